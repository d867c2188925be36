//! The names of the files in a table's log.
//!
//! ```text
//! _delta_log/%020d.json                           commit
//! _delta_log/%020d.crc                            checksum of a version
//! _delta_log/%020d.%020d.compacted.json           several commits in one
//! _delta_log/%020d.checkpoint.parquet             classic checkpoint
//! _delta_log/%020d.checkpoint.%010d.%010d.parquet part, counted from one, of a number of parts
//! _delta_log/%020d.checkpoint.<uuid>.{json,parquet}   V2 checkpoint
//! _delta_log/_sidecars/<unique>.parquet           file actions of V2 checkpoints
//! _delta_log/_last_checkpoint                     the hint: where to begin reading
//! _delta_log/_staged/v<version>-p<parts>-<owner>-<uuid>-part-<n>   ours: not published yet
//! ```
//! A staged name must not look like a checkpoint to those who search for one by a pattern that is
//! not anchored: no twenty digits followed by a dot. All are in one directory, as a local disk
//! keeps a directory when the last file in it is deleted.

/// The log's directory.
pub(super) const LOG: &str = "_delta_log";
/// The hint.
pub(super) const HINT: &str = "_delta_log/_last_checkpoint";
/// The directory of sidecars.
pub(super) const SIDECARS: &str = "_delta_log/_sidecars/";
/// The directory of parts that are not published yet.
pub(super) const STAGED: &str = "_delta_log/_staged/";
/// Commits that a catalog has yet to number.
pub(super) const STAGED_COMMITS: &str = "_delta_log/_staged_commits/";

/// What a file of the log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LogName {
    Commit(u64),
    Checksum(u64),
    Compacted {
        start: u64,
    },
    Classic(u64),
    /// `part` is counted from one.
    Part {
        version: u64,
        part: u32,
        parts: u32,
    },
    Unique {
        version: u64,
        is_json: bool,
    },
}

impl LogName {
    /// Takes a name relative to the table's directory.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let name = name.strip_prefix(LOG)?.strip_prefix('/')?;
        let pieces: Vec<&str> = name.split('.').collect();
        let version = number(pieces[0], 20)?;
        match pieces[1..] {
            ["json"] => Some(Self::Commit(version)),
            ["crc"] => Some(Self::Checksum(version)),
            [end, "compacted", "json"] => {
                number(end, 20).map(|_| Self::Compacted { start: version })
            }
            ["checkpoint", "parquet"] => Some(Self::Classic(version)),
            ["checkpoint", part, parts, "parquet"] => {
                let (part, parts) = (number(part, 10)?, number(parts, 10)?);
                let (part, parts) = (u32::try_from(part).ok()?, u32::try_from(parts).ok()?);
                (1..=parts).contains(&part).then_some(Self::Part { version, part, parts })
            }
            ["checkpoint", _, kind @ ("json" | "parquet")] => {
                Some(Self::Unique { version, is_json: kind == "json" })
            }
            _ => None,
        }
    }

    /// The version in the name; the first one of a compaction.
    pub(super) fn version(&self) -> u64 {
        match *self {
            Self::Commit(version)
            | Self::Checksum(version)
            | Self::Compacted { start: version }
            | Self::Classic(version)
            | Self::Part { version, .. }
            | Self::Unique { version, .. } => version,
        }
    }

    pub(super) fn is_checkpoint(&self) -> bool {
        matches!(self, Self::Classic(_) | Self::Part { .. } | Self::Unique { .. })
    }
}

fn number(digits: &str, length: usize) -> Option<u64> {
    let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    if digits.len() == length && all_digits { digits.parse().ok() } else { None }
}

pub(super) fn commit(version: u64) -> String {
    format!("{LOG}/{version:020}.json")
}

/// `part` is counted from zero.
pub(super) fn part(version: u64, part: u32, parts: u32) -> String {
    let number = part + 1;
    if parts == 1 {
        // A set of one part is not a multi-part checkpoint; readers refuse it.
        return format!("{LOG}/{version:020}.checkpoint.parquet");
    }
    format!("{LOG}/{version:020}.checkpoint.{number:010}.{parts:010}.parquet")
}

pub(super) fn unique_json(version: u64, uuid: uuid::Uuid) -> String {
    format!("{LOG}/{version:020}.checkpoint.{uuid}.json")
}

/// What the names of the parts of one attempt begin with.
pub(super) fn staged(version: u64, parts: u32, owner: &str, uuid: uuid::Uuid) -> String {
    format!("{STAGED}v{version}-p{parts}-{owner}-{uuid}-")
}

/// The version, the number of parts and the owner of the attempt that staged the file `name`.
pub(super) fn staged_set(name: &str) -> Option<(u64, u32, &str)> {
    let attempt = name.strip_prefix(STAGED)?.strip_prefix('v')?;
    let (version, rest) = attempt.split_once("-p")?;
    let (parts, rest) = rest.split_once('-')?;
    let (owner, _) = rest.split_once('-')?;
    Some((version.parse().ok()?, parts.parse().ok()?, owner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        assert_eq!(LogName::parse(&commit(7)), Some(LogName::Commit(7)));
        assert_eq!(LogName::parse(&part(7, 0, 1)), Some(LogName::Classic(7)));
        let expected = LogName::Part { version: 7, part: 3, parts: 16 };
        assert_eq!(LogName::parse(&part(7, 2, 16)), Some(expected));
        let unique = LogName::parse(&unique_json(7, uuid::Uuid::nil()));
        assert_eq!(unique, Some(LogName::Unique { version: 7, is_json: true }));
        let attempt = staged(7, 16, "me", uuid::Uuid::nil());
        assert_eq!(LogName::parse(&attempt), None);
        assert_eq!(staged_set(&format!("{attempt}part-3")), Some((7, 16, "me")));
        for other in ["x.parquet", HINT, "_delta_log/7.json", "_delta_log/_sidecars/a.parquet"] {
            assert_eq!(LogName::parse(other), None, "{other}");
        }
    }
}
