//! Where the checkpoints of a file's flows are, and that no two flows share one.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use millstream_store::directory_name::directory_name;
use millstream_store::layout;

use millstream_sql::diagnostic::{Diagnostic, Span};

/// The ending of a pipeline file that its checkpoints' directory leaves out.
const ENDING: &str = "sql";
/// The file name of standard input.
const STDIN: &str = "stdin";

/// The checkpoint of a flow that does not say where it is.
pub(super) fn default(file_name: &str, flow: &str) -> String {
    format!(".millstream/{}/{}", file_directory(file_name), directory_name(flow))
}

/// The directory for all flows of a file: its name without `.sql`. Other endings stay, behind a
/// `%` that no name has there, so that `a.sql` and `a.txt` are two.
fn file_directory(file_name: &str) -> String {
    let path = Path::new(file_name);
    let named = |part: Option<&OsStr>| directory_name(&part.unwrap_or_default().to_string_lossy());
    let stem = named(path.file_stem());
    match path.extension() {
        Some(ending) if ending.eq_ignore_ascii_case(ENDING) => stem,
        None if file_name == STDIN => stem,
        ending => format!("{stem}%.{}", named(ending)),
    }
}

/// Where releases that did not tell endings apart had the checkpoint; `None` where it is the same.
pub fn earlier_default(file_name: &str, flow: &str) -> Option<String> {
    let stem = Path::new(file_name).file_stem().unwrap_or_default().to_string_lossy();
    let earlier = format!(".millstream/{}/{}", directory_name(&stem), directory_name(flow));
    (earlier != default(file_name, flow)).then_some(earlier)
}

/// A flow and its checkpoint.
pub(super) struct Placed<'a> {
    pub(super) flow: &'a str,
    pub(super) checkpoint: &'a str,
    /// The place that a message points at.
    pub(super) span: Span,
}

/// What is wrong where two flows have one checkpoint, or one has its own among another's files:
/// each would take the other's progress for its own.
pub(super) fn shared(flows: &[Placed<'_>]) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for (index, own) in flows.iter().enumerate() {
        // Two flows of one name have been reported as such.
        let mut earlier = flows[..index].iter().filter(|first| first.flow != own.flow);
        if let Some(first) = earlier.find(|first| overlap(first.checkpoint, own.checkpoint)) {
            let message = format!(
                "flows `{}` and `{}` would share the checkpoint '{}'",
                first.flow, own.flow, own.checkpoint
            );
            let help = "leave checkpointLocation out: each flow then has a directory of its own";
            found.push(Diagnostic::at(own.span, message).help(help));
        }
    }
    found
}

/// True where two locations are the same, however they are written, or one is among the other's own
/// files. What only the file system knows, like symbolic links, is not considered.
pub fn overlap(one: &str, other: &str) -> bool {
    let (one, other) = (normal(one), normal(other));
    let is_inside = |inner: &Path, outer: &Path| match inner.strip_prefix(outer) {
        // Only names that a checkpoint has files under: `ck/a` beside them may be another
        // flow's checkpoint.
        Ok(rest) => rest.components().next().is_none_or(|first| {
            let names = [
                layout::OFFSETS,
                layout::COMMITS,
                layout::SOURCES,
                layout::STATE,
                layout::METADATA,
            ];
            let mut names = names.into_iter().chain([layout::DEAD_LETTERS, layout::SINKS]);
            names.any(|name| first.as_os_str() == name)
        }),
        Err(_) => false,
    };
    is_inside(&one, &other) || is_inside(&other, &one)
}

/// A location without detours: `a/./b//c/..` is `a/b`.
fn normal(location: &str) -> PathBuf {
    let path = location.strip_prefix("file:").map_or(location, |path| {
        path.strip_prefix("//localhost").or(path.strip_prefix("//")).unwrap_or(path)
    });
    let mut normal = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(last(&normal), Some(Component::Normal(_))) => {
                normal.pop();
            }
            // There is nothing above the root, so `/..` is `/`. Other `..` at the start stay.
            Component::ParentDir if matches!(last(&normal), Some(Component::RootDir)) => {}
            part => normal.push(part),
        }
    }
    normal
}

fn last(path: &Path) -> Option<Component<'_>> {
    path.components().next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_of_a_file_is_its_own() {
        let cases = [
            ("orders.sql", ".millstream/orders/x"),
            ("dir/orders.SQL", ".millstream/orders/x"),
            ("orders.txt", ".millstream/orders%.txt/x"),
            ("orders", ".millstream/orders%.%/x"),
            ("...sql", ".millstream/%2E./x"),
            ("stdin", ".millstream/stdin/x"),
        ];
        for (file, wanted) in cases {
            assert_eq!(default(file, "x"), wanted, "{file}");
        }
        assert_eq!(default("p.sql", "../../x"), ".millstream/p/..%2F..%2Fx");
        assert_eq!(default("p.sql", ""), ".millstream/p/%");
    }

    #[test]
    fn one_place_is_known_however_it_is_written() {
        let same = [
            ("ck", "./ck/"),
            ("ck", "a/../ck"),
            ("/ck", "file:///ck"),
            ("/ck", "file:/ck"),
            ("/ck", "/../ck"),
            ("ck", "ck/offsets/x"),
            ("ck/state", "ck"),
            ("s3://b/ck", "s3://b/ck/"),
        ];
        for (one, other) in same {
            assert!(overlap(one, other), "{one} and {other}");
        }
        for (one, other) in [("ck", "ck2"), ("ck", "ck/a"), ("../ck", "ck"), ("a/ck", "b/ck")] {
            assert!(!overlap(one, other), "{one} and {other}");
        }
    }
}
