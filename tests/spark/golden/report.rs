//! The outcomes as a table, and what is refused most often.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::outcomes::{Found, Outcome};

/// Refusals that are listed.
const REFUSALS: usize = 60;

/// How many queries have which outcome.
#[derive(Clone, Copy, Default)]
struct Counts {
    all: usize,
    equal: usize,
    both_error: usize,
    refused: usize,
    different: usize,
    no_error: usize,
    types: usize,
    hang: usize,
    panic: usize,
    unshown: usize,
    other_names: usize,
}

impl Counts {
    fn add(&mut self, found: &Found) {
        self.all += 1;
        self.other_names += usize::from(found.same_names == Some(false));
        let count = match found.outcome {
            Outcome::Equal => &mut self.equal,
            Outcome::BothError => &mut self.both_error,
            Outcome::Refused(_) => &mut self.refused,
            Outcome::Different(_) => &mut self.different,
            Outcome::NoError => &mut self.no_error,
            Outcome::Types(_) => &mut self.types,
            Outcome::Hang => &mut self.hang,
            Outcome::Panic(_) => &mut self.panic,
            Outcome::Unshown(_) => &mut self.unshown,
        };
        *count += 1;
    }

    fn line(&self, name: &str) -> String {
        format!(
            "{name:<60}{:>7}{:>7}{:>7}{:>7}{:>7}{:>7}{:>7}{:>7}{:>7}{:>7}{:>7}\n",
            self.all,
            self.equal,
            self.both_error,
            self.refused,
            self.different,
            self.no_error,
            self.types,
            self.hang,
            self.panic,
            self.unshown,
            self.other_names,
        )
    }
}

/// A line per file, a total, and the most frequent refusals.
pub fn table(found: &[Found]) -> String {
    let (mut files, mut total) = (BTreeMap::<&str, Counts>::new(), Counts::default());
    for query in found {
        files.entry(&query.file).or_default().add(query);
        total.add(query);
    }
    let names = ["all", "equal", "errors", "refus.", "differ", "no-err", "types", "hang", "panic"];
    let names = names.iter().chain(&["unsh.", "names"]).map(|name| format!("{name:>7}"));
    let mut text = format!("{:<60}{}\n", "", names.collect::<String>());
    for (file, counts) in &files {
        text += &counts.line(file);
    }
    text += &total.line("total");
    text += &shares(&total);
    text += "\nrefusals, most frequent first:\n";
    text += &refusals(found);
    text
}

/// The shares of what Spark answers.
fn shares(total: &Counts) -> String {
    let answered = total.equal + total.types + total.refused + total.different;
    let answered = answered + total.hang + total.panic;
    let share = |count: usize| 100.0 * count as f64 / answered.max(1) as f64;
    format!(
        "of {answered} queries that Spark answers: {:.1} % equal, {:.1} % equal but for types, \
         {:.1} % refused, {:.1} % different\n",
        share(total.equal),
        share(total.types),
        share(total.refused),
        share(total.different),
    )
}

fn refusals(found: &[Found]) -> String {
    let mut counts = BTreeMap::<String, (usize, String)>::new();
    for query in found {
        if let Outcome::Refused(problem) = &query.outcome {
            let example = || (0, format!("{}:{}", query.file, query.number));
            counts.entry(normalised(problem)).or_insert_with(example).0 += 1;
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    let mut text = String::new();
    for (problem, (count, example)) in counts.into_iter().take(REFUSALS) {
        let _ = writeln!(text, "{count:>6}  {problem}  ({example})");
    }
    text
}

/// The words of a refusal that other queries have, too: names of functions and settings stay, and
/// numbers and texts do not.
fn normalised(problem: &str) -> String {
    let mut text = String::with_capacity(problem.len());
    let mut chars = problem.lines().next().unwrap_or_default().chars().peekable();
    while let Some(ch) = chars.next() {
        if ch == '\'' || ch == '"' {
            // To the closing one, if there is one.
            while chars.next_if(|next| *next != ch).is_some() {}
            chars.next();
            text.push_str("'...'");
        } else if ch.is_ascii_digit() {
            while chars.next_if(char::is_ascii_digit).is_some() {}
            text.push('9');
        } else {
            text.push(ch);
        }
    }
    text.chars().take(160).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_that_differ_in_values_are_one() {
        assert_eq!(normalised("no `f` with 12 at 'a b'\nmore"), "no `f` with 9 at '...'");
    }
}
