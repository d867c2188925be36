//! What is known not to be equal, and why ours differs from Spark where it does so on purpose.
//!
//! `state.txt` has a line per query, `FILE:NUMBER CHECKSUM OUTCOME`. It has to be what the test
//! finds: a query that has become worse fails it, and so does one that has become better, lest it
//! may become worse again unseen. `reasons.txt` has `FILE:NUMBER REASON` for each query with a
//! silent difference: other rows, or rows where Spark has an error.

use std::collections::{BTreeMap, BTreeSet};

use crate::outcomes::Found;

/// The first lines of the state.
const HEAD: &str = "\
# Oracle: Apache Spark 4.2.0: the rows that it gives for its own test inputs, by answers.py.
# Queries whose outcome is not Spark's. MILLSTREAM_GOLDEN_REWRITE=1 writes this file.
";

/// The state as it is now.
pub fn text(found: &[Found]) -> String {
    let lines = found.iter().filter_map(line).map(|(place, rest)| format!("{place} {rest}\n"));
    HEAD.to_owned() + &lines.collect::<String>()
}

fn place(found: &Found) -> String {
    format!("{}:{}", found.file, found.number)
}

fn line(found: &Found) -> Option<(String, String)> {
    let word = found.outcome.word()?;
    Some((place(found), format!("{} {word}", found.sum)))
}

/// Lines of `place rest`, without comments.
fn entries(text: &str) -> BTreeMap<&str, &str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ')).collect()
}

/// How the outcomes differ from the `known` ones, of files that were run.
pub fn changes(known: &str, found: &[Found]) -> Vec<String> {
    let known = entries(known);
    let mut complaints = Vec::new();
    for query in found {
        let before = known.get(place(query).as_str()).copied();
        let now = line(query).map(|(_, rest)| rest);
        if before == now.as_deref() {
            continue;
        }
        let [before, now] = [before, now.as_deref()].map(|rest| rest.unwrap_or("equal"));
        let (place, detail) = (place(query), query.outcome.detail());
        complaints.push(format!("{place}: was {before}, is {now}: {detail}\n{}", query.text));
    }
    complaints
}

/// Silent differences without a reason.
pub fn without_reason(reasons: &str, found: &[Found]) -> Vec<String> {
    let reasons = entries(reasons);
    let silent = found.iter().filter(|query| query.outcome.is_silent()).map(place);
    silent.filter(|place| !reasons.contains_key(place.as_str())).collect()
}

/// Reasons of queries that need none.
pub fn needless_reasons(reasons: &str, found: &[Found]) -> Vec<String> {
    let reasons = entries(reasons);
    let loud = found.iter().filter(|query| !query.outcome.is_silent()).map(place);
    loud.filter(|place| reasons.contains_key(place.as_str()))
        .map(|place| format!("{place}: has a reason in reasons.txt, and needs none"))
        .collect()
}

/// Reasons of queries that are not there, where `found` has those of all files.
pub fn reasons_of_nothing(reasons: &str, found: &[Found]) -> Vec<String> {
    let places: BTreeSet<String> = found.iter().map(place).collect();
    let reasons = entries(reasons).into_keys();
    reasons
        .filter(|place| !places.contains(*place))
        .map(|place| format!("{place}: has a reason in reasons.txt, and there is no such query"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcomes::Outcome;

    fn found(outcome: Outcome) -> Vec<Found> {
        let (file, sum, text) = ("a.sql".to_owned(), "00ff".to_owned(), "SELECT 1".to_owned());
        vec![Found { file, number: 3, sum, text, outcome, same_names: None }]
    }

    #[test]
    fn worse_and_better_are_changes() {
        let refused = found(Outcome::Refused(String::new()));
        assert!(changes(&text(&refused), &refused).is_empty());
        assert_eq!(changes(&text(&refused), &found(Outcome::Equal)).len(), 1);
        assert_eq!(changes(HEAD, &refused).len(), 1);
        assert_eq!(changes(&text(&refused), &found(Outcome::NoError)).len(), 1);
    }

    #[test]
    fn a_silent_difference_has_a_reason_of_its_own() {
        let silent = found(Outcome::NoError);
        assert_eq!(without_reason("a.sql:4 because", &silent).len(), 1);
        assert!(without_reason("a.sql:3 because", &silent).is_empty());
        let equal = found(Outcome::Equal);
        assert!(without_reason("", &equal).is_empty());
        assert_eq!(needless_reasons("a.sql:3 because", &equal).len(), 1);
        assert!(needless_reasons("a.sql:3 because", &silent).is_empty());
    }

    #[test]
    fn a_reason_is_one_of_a_query() {
        let silent = found(Outcome::NoError);
        assert!(reasons_of_nothing("# why\na.sql:3 because", &silent).is_empty());
        let reasons = "a.sql:3 because\na.sql:4 because\nb.sql:3 because";
        assert_eq!(reasons_of_nothing(reasons, &silent).len(), 2);
    }
}
