//! What the codecs of both logs share: a version line, then lines of JSON.

/// Why the bytes of a log entry cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// No bytes at all: what a power cut leaves of a file whose content was never flushed.
    #[error("the file is empty")]
    Empty,
    /// Torn in the middle, or not a log entry.
    #[error("{problem}")]
    Malformed {
        /// What is wrong, in words.
        problem: String,
    },
    /// Of a format version from the future.
    #[error(
        "it was written by a newer version (format v{found}; this one reads up to v{supported})"
    )]
    NewerVersion {
        /// The version in the file.
        found: u32,
        /// The highest version that can be read.
        supported: u32,
    },
    /// Whole, but in one of Spark's formats that is not supported.
    #[error("{problem}")]
    Unsupported {
        /// What is not supported, in words.
        problem: String,
    },
}

impl DecodeError {
    /// True if a crash can have left the file like this.
    pub fn is_torn(&self) -> bool {
        matches!(self, Self::Empty | Self::Malformed { .. })
    }

    pub(crate) fn malformed(problem: impl Into<String>) -> Self {
        Self::Malformed { problem: problem.into() }
    }
}

/// Splits an entry into its version (checked to be at most `supported`) and the lines after it.
///
/// A line break at the very end, as editors leave it, is no line.
pub(crate) fn versioned_lines(
    bytes: &[u8],
    supported: u32,
) -> Result<(u32, std::str::Lines<'_>), DecodeError> {
    if bytes.is_empty() {
        return Err(DecodeError::Empty);
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| DecodeError::malformed(format!("it is not UTF-8 text: {error}")))?;
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    // Digits only: `u32::from_str` would also accept a sign, which no writer puts there.
    let digits = first.strip_prefix('v').filter(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
    match digits.and_then(|digits| digits.parse::<u32>().ok()) {
        Some(found) if found > supported => Err(DecodeError::NewerVersion { found, supported }),
        Some(found) if found > 0 => Ok((found, lines)),
        _ => {
            let start: String = first.chars().take(20).collect();
            Err(DecodeError::malformed(format!("it begins with {start:?} instead of a version")))
        }
    }
}

/// Reads a line of JSON; `what` names it in the error.
pub(crate) fn json_line<'a, T: serde::Deserialize<'a>>(
    what: &str,
    line: &'a str,
) -> Result<T, DecodeError> {
    serde_json::from_str(line).map_err(|error| {
        DecodeError::malformed(format!("{what} is not the JSON expected: {error}"))
    })
}

/// Reads a line that is a JSON object. (Derived readers would take an array of the fields too.)
pub(crate) fn json_object<'a, T: serde::Deserialize<'a>>(
    what: &str,
    line: &'a str,
) -> Result<T, DecodeError> {
    if line.trim_start().starts_with('{') {
        return json_line(what, line);
    }
    Err(DecodeError::malformed(format!("{what} is not a JSON object")))
}
