//! Positions in a table's history as they stand in the offset log, in the form of Delta's source in
//! Spark:
//!
//! ```text
//! {"sourceVersion":1,"reservoirId":"<table's id>","reservoirVersion":5,"index":-1,"isStartingVersion":false}
//! ```
//!
//! `index` is the last file of the version that was read, -1 before the first; `isStartingVersion`
//! says that the version is read as a whole.

use millstream_engine::api::source::SourceOffset;
use millstream_lake::stream::Position;
use serde::{Deserialize, Serialize};

use crate::delta::error::DeltaError;

/// Before the first file of a version.
const BASE: i64 = -1;
/// The same, as newer sources have it in memory.
const BASE_V3: i64 = -100;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Text {
    source_version: u64,
    reservoir_id: String,
    reservoir_version: u64,
    index: i64,
    is_starting_version: bool,
}

/// A position in the table with the id `table`.
pub(super) fn encode(table: &str, position: Position) -> SourceOffset {
    let text = Text {
        source_version: 1,
        reservoir_id: table.to_owned(),
        reservoir_version: position.version,
        index: position
            .index
            .map_or(BASE, |index| i64::try_from(index).expect("files are counted from 0")),
        is_starting_version: position.is_in_snapshot,
    };
    SourceOffset::new(serde_json::to_string(&text).expect("texts and numbers are JSON"))
}

/// Reads what [`encode`] or Spark wrote: the table's id, and the position.
///
/// # Errors
/// An offset of another source, or one that stands at a change of schema.
pub(super) fn decode(offset: &SourceOffset) -> Result<(String, Position), DeltaError> {
    let foreign = |problem: &str| DeltaError::ForeignOffset {
        offset: offset.to_string(),
        problem: problem.to_owned(),
    };
    let text: Text =
        serde_json::from_str(offset.as_str()).map_err(|_| foreign("it is not of a Delta table"))?;
    if !matches!(text.source_version, 1 | 3) {
        return Err(foreign("it is of a newer kind"));
    }
    let index = match text.index {
        BASE | BASE_V3 => None,
        index => Some(u64::try_from(index).map_err(|_| {
            foreign(
                "it stands at a change of schema, which Spark reads with 'schemaTrackingLocation'",
            )
        })?),
    };
    let (version, is_in_snapshot) = (text.reservoir_version, text.is_starting_version);
    Ok((text.reservoir_id, Position { version, index, is_in_snapshot }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_those_of_spark() {
        // Written by Delta 4.2.0 on Spark 4.1.0.
        let of_spark = [
            (
                r#"{"sourceVersion":1,"reservoirId":"61f5db67-9552-4daf-a526-e9fa4850c41e","reservoirVersion":2,"index":1,"isStartingVersion":true}"#,
                Position { version: 2, index: Some(1), is_in_snapshot: true },
            ),
            (
                r#"{"sourceVersion":1,"reservoirId":"61f5db67-9552-4daf-a526-e9fa4850c41e","reservoirVersion":3,"index":-1,"isStartingVersion":false}"#,
                Position::before(3),
            ),
        ];
        for (text, position) in of_spark {
            let offset = SourceOffset::new(text.to_owned());
            let (table, found) = decode(&offset).expect("Spark's");
            assert_eq!(found, position);
            assert_eq!(encode(&table, position).as_str(), text);
        }
    }

    #[test]
    fn what_cannot_be_read_on_from_is_refused() {
        let at = |source_version, index| {
            let text = format!(
                r#"{{"sourceVersion":{source_version},"reservoirId":"t","reservoirVersion":2,"index":{index},"isStartingVersion":false}}"#
            );
            decode(&SourceOffset::new(text)).map(|(_, position)| position)
        };
        assert_eq!(at(3, -100).ok(), Some(Position::before(2)));
        assert!(at(3, -20).is_err() && at(3, -19).is_err() && at(4, 0).is_err());
        assert!(decode(&SourceOffset::new("{\"logOffset\":3}".to_owned())).is_err());
    }
}
