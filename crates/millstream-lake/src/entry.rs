//! Entries of the table's log, as far as a writer looks into those of others.

use serde::Deserialize;
use serde_json::Value;

/// The mark of an attempt stands in the note behind this key.
const MARK: &str = "millstreamAttempt";

/// What one entry of the log says that matters to an append.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// What each application published with it.
    pub(crate) applications: Vec<(String, i64)>,
    /// The writer's note, without the mark.
    pub(crate) note: Option<String>,
    /// The mark of the attempt, in entries of ours.
    pub(crate) mark: Option<String>,
    /// The paths of files that it removed, as written.
    pub(crate) removed: Vec<String>,
    changes_schema: bool,
    changes_protocol: bool,
}

/// A line of an entry; files that are added are passed over.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogLine {
    txn: Option<Txn>,
    commit_info: Option<CommitInfo>,
    remove: Option<Remove>,
    meta_data: Option<serde::de::IgnoredAny>,
    protocol: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Txn {
    app_id: String,
    version: i64,
}

#[derive(Deserialize)]
struct Remove {
    path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CommitInfo {
    user_metadata: Option<String>,
}

/// The file of entry `version`, relative to the table's directory.
pub fn name(version: u64) -> String {
    format!("_delta_log/{version:020}.json")
}

/// `note`, a JSON object, with the mark of one attempt.
pub(crate) fn marked(note: &str, mark: &str) -> String {
    let mut fields = match serde_json::from_str(note) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::from_iter([("note".to_owned(), Value::from(note))]),
    };
    fields.insert(MARK.to_owned(), Value::from(mark));
    Value::Object(fields).to_string()
}

/// A note without its mark, and the mark.
fn unmarked(note: String) -> (String, Option<String>) {
    let Ok(Value::Object(mut fields)) = serde_json::from_str(&note) else { return (note, None) };
    let Some(Value::String(mark)) = fields.remove(MARK) else { return (note, None) };
    (Value::Object(fields).to_string(), Some(mark))
}

impl Entry {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut entry = Self::default();
        for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let line: LogLine = serde_json::from_slice(line)
                .map_err(|error| format!("line {} is no action: {error}", number + 1))?;
            entry.add(line);
        }
        Ok(entry)
    }

    fn add(&mut self, line: LogLine) {
        if let Some(Txn { app_id, version }) = line.txn {
            self.applications.push((app_id, version));
        }
        if let Some(note) = line.commit_info.and_then(|info| info.user_metadata) {
            let (note, mark) = unmarked(note);
            (self.note, self.mark) = (Some(note), mark);
        }
        self.removed.extend(line.remove.map(|remove| remove.path));
        self.changes_schema |= line.meta_data.is_some();
        self.changes_protocol |= line.protocol.is_some();
    }

    /// What `application` published with it.
    pub(crate) fn published(&self, application: &str) -> Option<i64> {
        let found = self.applications.iter().find(|(found, _)| found == application);
        found.map(|(_, version)| *version)
    }

    /// What it changes that rows are prepared by.
    pub(crate) fn changed(&self) -> Option<&'static str> {
        match (self.changes_schema, self.changes_protocol) {
            (true, _) => Some("schema or property"),
            (false, true) => Some("protocol"),
            (false, false) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_far_as_it_matters() {
        let note = marked(r#"{"batchId":4}"#, "m1").replace('"', "\\\"");
        let text = format!(
            "{{\"commitInfo\":{{\"timestamp\":1,\"userMetadata\":\"{note}\"}}}}\n\
             {{\"txn\":{{\"appId\":\"q\",\"version\":4,\"lastUpdated\":1}}}}\n\
             {{\"add\":{{\"path\":\"a\",\"stats\":\"{{}}\"}}}}\n\
             {{\"remove\":{{\"path\":\"b%20c\",\"dataChange\":true}}}}\n"
        );
        let entry = Entry::parse(text.as_bytes()).expect("four actions");
        assert_eq!(entry.published("q"), Some(4));
        assert_eq!(entry.published("p"), None);
        assert_eq!(
            (entry.note.as_deref(), entry.mark.as_deref()),
            (Some(r#"{"batchId":4}"#), Some("m1"))
        );
        assert_eq!(entry.changed(), None);
        assert_eq!(entry.removed, ["b%20c"]);
    }

    #[test]
    fn changes_of_schema_and_protocol_are_seen() {
        let changed = |text: &str| Entry::parse(text.as_bytes()).expect("an action").changed();
        assert_eq!(changed(r#"{"metaData":{"id":"x"}}"#), Some("schema or property"));
        assert_eq!(changed(r#"{"protocol":{"minReaderVersion":1}}"#), Some("protocol"));
        assert!(Entry::parse(b"{\"txn\":").is_err());
    }

    #[test]
    fn foreign_notes_stay_as_they_are() {
        assert_eq!(unmarked("by hand".into()), ("by hand".into(), None));
        let (note, mark) = unmarked(marked("by hand", "m"));
        assert_eq!((note.as_str(), mark.as_deref()), (r#"{"note":"by hand"}"#, Some("m")));
    }
}
