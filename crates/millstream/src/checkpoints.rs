//! Where the flows of a file have their checkpoints, with what the command line says.

use std::path::{Path, PathBuf};

use millstream_engine::pipeline::Flow;
use millstream_engine::pipeline::checkpoints::{earlier_default, overlap};
use millstream_store::directory_name::directory_name;

/// Where the file is that a flow stands in.
#[derive(Clone, Copy)]
pub struct FilePlace<'a> {
    /// Its name, as messages have it.
    pub name: &'a str,
    /// Its directory, which locations in it are relative to.
    pub base_dir: &'a Path,
}

/// The checkpoint of `flow`; `flag` is `--checkpoint`, below which each has a directory of its own
/// if the file has several.
pub fn location(file: FilePlace<'_>, flow: &Flow, flag: Option<&str>, several: bool) -> String {
    match flag {
        Some(flag) if several => below(flag, &directory_name(&flow.name)),
        Some(flag) => flag.to_owned(),
        None if is_url(&flow.checkpoint) => flow.checkpoint.clone(),
        None => {
            let here = |checkpoint: &str| file.base_dir.join(checkpoint);
            let own = here(&flow.checkpoint);
            let earlier = earlier_default(file.name, &flow.name)
                .filter(|_| flow.writer.checkpoint_location.is_none())
                .map(|earlier| here(&earlier));
            match earlier {
                Some(earlier) if earlier.exists() && !own.exists() => earlier,
                _ => own,
            }
            .display()
            .to_string()
        }
    }
}

fn is_url(location: &str) -> bool {
    location.contains("://") || location.starts_with("file:")
}

fn below(location: &str, directory: &str) -> String {
    if !is_url(location) {
        return format!("{}/{directory}", location.trim_end_matches('/'));
    }
    let directory = directory.replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    let (path, rest) = location.split_at(location.find(['?', '#']).unwrap_or(location.len()));
    // One slash and no more: those behind the scheme belong to it.
    format!("{}/{directory}{rest}", path.strip_suffix('/').unwrap_or(path))
}

/// Refuses flows that would share a checkpoint by ways that only the file system knows, such as
/// symbolic links; what the text alone tells has been refused before.
///
/// `flows` are names with checkpoints.
pub fn are_apart<'a>(flows: impl Iterator<Item = (&'a str, &'a str)>) -> Result<(), String> {
    let placed: Vec<_> =
        flows.map(|(flow, checkpoint)| (flow, checkpoint, real(checkpoint))).collect();
    for (index, (flow, checkpoint, place)) in placed.iter().enumerate() {
        let mut earlier = placed[..index].iter();
        if let Some((first, ..)) = earlier.find(|(_, _, other)| overlap(place, other)) {
            return Err(format!(
                "flows '{first}' and '{flow}' would share the checkpoint {checkpoint}, and each \
                 would take the other's progress for its own: give one of them another \
                 checkpointLocation"
            ));
        }
    }
    Ok(())
}

/// A local location without symbolic links, as far as it is there yet.
fn real(location: &str) -> String {
    if is_url(location) && !location.starts_with("file:") {
        return location.to_owned();
    }
    let path = location.strip_prefix("file:").map_or(location, |path| {
        path.strip_prefix("//localhost").or(path.strip_prefix("//")).unwrap_or(path)
    });
    let path = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
    let found = path.ancestors().find_map(|there| {
        let rest = path.strip_prefix(there).unwrap_or(Path::new(""));
        Some(there.canonicalize().ok()?.join(rest))
    });
    found.unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_below_a_url_is_one_part_of_it() {
        assert_eq!(below("ck/", "a%2Fb"), "ck/a%2Fb");
        assert_eq!(below("s3://b/ck", "a%2Fb"), "s3://b/ck/a%252Fb");
        assert_eq!(
            below("memory:///?put_latency_ms=3", "a?#"),
            "memory:///a%3F%23?put_latency_ms=3"
        );
    }
}
