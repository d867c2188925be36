//! What `kll_sketch_to_string_*` says of a sketch, line for line what Java's library says.

use std::fmt::Write;

use datasketches::kll::KllSketch;

use super::kll_items::Item;

/// Where a sketch of several values has how many levels it has.
const LEVELS: usize = 18;
/// Where it has the number of places that are free, as the first offset of its levels.
const FREE: usize = 20;
/// How many bytes are before its levels.
const BEFORE_LEVELS: usize = 20;
/// How many bytes are before the value of a sketch of one.
const BEFORE_ONE: usize = 8;

/// That the values of the lowest level are in their order.
const IS_SORTED: u8 = 1 << 1;

/// Appends the summary of a sketch, of which `bytes` were read.
pub(super) fn write<T: Item>(sketch: &KllSketch<T>, bytes: &[u8], out: &mut String) {
    let (k, kept) = (usize::from(sketch.k()), sketch.num_retained());
    let has_levels = sketch.n() > 1;
    let levels = if has_levels { usize::from(bytes[LEVELS]) } else { 1 };
    let free = if has_levels { offset(bytes) } else { k - kept };
    let (capacity, value) = (free + kept, T::MIN_SERIALIZED_SIZE);
    let compact = match sketch.n() {
        0 => BEFORE_ONE,
        1 => BEFORE_ONE + value,
        _ => BEFORE_LEVELS + 4 * levels + (kept + 2) * value,
    };
    let updatable = BEFORE_LEVELS + 4 * (levels + 1) + (capacity + 2) * value;
    let shown = |item: Option<&T>| item.map_or_else(|| "NaN".to_owned(), |item| item.text());
    let lines: [(&str, String); 17] = [
        ("K", k.to_string()),
        ("Dynamic min K", sketch.min_k().to_string()),
        ("M", "8".to_owned()),
        ("N", sketch.n().to_string()),
        ("Epsilon", percent(sketch.normalized_rank_error())),
        ("Epsilon PMF", percent(sketch.normalized_pmf_error())),
        ("Empty", sketch.is_empty().to_string()),
        ("Estimation Mode", sketch.is_estimation_mode().to_string()),
        ("Levels", levels.to_string()),
        ("Level 0 Sorted", (bytes[3] & IS_SORTED != 0).to_string()),
        ("Capacity Items", capacity.to_string()),
        ("Retained Items", kept.to_string()),
        ("Free Space", free.to_string()),
        ("ReadOnly", "false".to_owned()),
        ("Updatable Storage Bytes", updatable.to_string()),
        ("Compact Storage Bytes", compact.to_string()),
        ("Min Item", shown(sketch.min_item())),
    ];
    // Writing to a String does not fail.
    let _ = writeln!(out, "\n### Kll{} Summary:", T::KIND);
    for (name, value) in lines {
        let _ = writeln!(out, "   {name:<23}: {value}");
    }
    let _ = writeln!(out, "   {:<23}: {}", "Max Item", shown(sketch.max_item()));
    out.push_str("### End sketch summary\n");
}

fn percent(share: f64) -> String {
    format!("{:.3}%", share * 100.0)
}

fn offset(bytes: &[u8]) -> usize {
    let offset = bytes[FREE..FREE + 4].iter().rev();
    offset.fold(0, |offset, byte| (offset << 8) | usize::from(*byte))
}
