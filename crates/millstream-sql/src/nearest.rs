//! "Did you mean": the known name nearest to one that is not known.

/// Bytes of a name that others are compared with.
const BYTES_MAX: usize = 128;
/// How many names are compared at most; among thousands a guess is of no use.
const NAMES_MAX: usize = 1_000;

/// The name of `known` that `wanted` was probably meant to be, ignoring case; `None` where none
/// is near enough to be worth showing.
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The time for two names grows with the product of their lengths.
    if wanted.len() > BYTES_MAX {
        return None;
    }
    let wanted = wanted.to_lowercase();
    // A third of the letters may differ, and one always: `ts` for `t`, `kafak` for `kafka`.
    let length = wanted.chars().count();
    let distance_max = (length / 3).max(1);
    let known = known.into_iter().take(NAMES_MAX);
    let known = known.filter(|name| name.chars().count().abs_diff(length) <= distance_max.max(3));
    let scored = known.map(|name| (distance(&wanted, &name.to_lowercase()), name));
    let near = scored.filter(|(distance, name)| {
        *distance <= distance_max && *distance < wanted.chars().count().max(name.chars().count())
    });
    near.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// Edit distance in which swapping neighbours counts once, and a separator more or less (`_`, `.`,
/// `-`) counts as one edit wherever it stands.
fn distance(left: &str, right: &str) -> usize {
    let plain = strsim::damerau_levenshtein(left, right);
    let bare = |text: &str| text.replace(['_', '.', '-', ' '], "");
    if bare(left) == bare(right) { plain.min(1) } else { plain }
}

/// A list of names for a sentence: `a`, `b` and `c`; of many, the first ones.
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const NAMES_MAX: usize = 12;
    let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [] => String::from("none"),
        [only] => only.clone(),
        many if many.len() > NAMES_MAX => {
            format!("{} and {} more", many[..NAMES_MAX].join(", "), many.len() - NAMES_MAX)
        }
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Help for an unknown name: the nearest one, else all of them. `what` is the plural, as in
/// "the columns are".
pub fn suggest<'a>(
    wanted: &str,
    what: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    let mut all = known.clone().into_iter();
    match (nearest(wanted, known.clone()), all.next(), all.next()) {
        (Some(name), _, _) => format!("did you mean `{name}`?"),
        (None, Some(only), None) => format!("the only one here is `{only}`"),
        (None, _, _) => format!("the {what} are {}", listed(known)),
    }
}
