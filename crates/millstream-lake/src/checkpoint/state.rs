//! What a table is apart from its files: protocol, metadata, transactions and domains.
//!
//! Small next to the files, and held in memory whole, as the JSON that the log has. All of it is
//! written anew at every checkpoint: nothing that only the previous checkpoint knew gets lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use serde_json::{Value, json};

use super::actions::OTHERS;
use super::error::{CheckpointError, encode_error};
use super::retention::Limits;

/// Everything in force that is not about a file.
#[derive(Clone, Debug, Default)]
pub(super) struct TableState {
    protocol: Value,
    metadata: Value,
    transactions: BTreeMap<String, Value>,
    domains: BTreeMap<String, Value>,
}

impl TableState {
    /// Applies one action; what is not a part of the state is ignored.
    pub(super) fn apply(&mut self, name: &str, action: Value) {
        match name {
            "protocol" => self.protocol = action,
            "metaData" => self.metadata = action,
            "txn" => {
                if let Some(app) = action["appId"].as_str() {
                    self.transactions.insert(app.to_owned(), action);
                }
            }
            "domainMetadata" => self.apply_domain(action),
            _ => {}
        }
    }

    fn apply_domain(&mut self, action: Value) {
        let Some(domain) = action["domain"].as_str() else { return };
        if action["removed"] == true {
            self.domains.remove(domain);
        } else {
            self.domains.insert(domain.to_owned(), action);
        }
    }

    /// Checks that this can be a table's state.
    pub(super) fn check(&self, version: u64) -> Result<(), CheckpointError> {
        for (action, value) in [("protocol", &self.protocol), ("metaData", &self.metadata)] {
            if value.is_null() {
                return Err(CheckpointError::Incomplete { action, version });
            }
        }
        Ok(())
    }

    pub(super) fn metadata(&self) -> &Value {
        &self.metadata
    }

    /// True if the protocol lists the table feature `name`.
    pub(super) fn has_feature(&self, name: &str) -> bool {
        ["readerFeatures", "writerFeatures"].iter().any(|list| {
            self.protocol[list].as_array().is_some_and(|names| names.iter().any(|at| at == name))
        })
    }

    /// Drops the transactions that the table wants forgotten.
    pub(super) fn expire(&mut self, limits: &Limits) {
        let Some(oldest_ms) = limits.oldest_transaction_ms else { return };
        self.transactions.retain(|_, transaction| {
            transaction["lastUpdated"].as_i64().is_none_or(|updated_ms| updated_ms >= oldest_ms)
        });
    }

    /// The actions, each an object with one key.
    pub(super) fn actions(&self) -> Vec<Value> {
        let mut actions =
            vec![json!({"protocol": self.protocol}), json!({"metaData": self.metadata})];
        actions.extend(self.transactions.values().map(|action| json!({"txn": action})));
        actions.extend(self.domains.values().map(|action| json!({"domainMetadata": action})));
        actions
    }

    /// The actions as rows of a checkpoint, in the schema [`OTHERS`].
    pub(super) fn rows(&self) -> Result<RecordBatch, CheckpointError> {
        rows_of(&self.actions(), &OTHERS)
    }
}

/// Actions as one record batch in `schema`.
pub(super) fn rows_of(
    actions: &[Value],
    schema: &SchemaRef,
) -> Result<RecordBatch, CheckpointError> {
    let mut decoder = arrow_json::ReaderBuilder::new(Arc::clone(schema))
        .with_batch_size(actions.len().max(1))
        .with_coerce_primitive(true)
        .build_decoder()
        .map_err(encode_error)?;
    decoder.serialize(actions).map_err(encode_error)?;
    let rows = decoder.flush().map_err(encode_error)?;
    Ok(rows.unwrap_or_else(|| RecordBatch::new_empty(Arc::clone(schema))))
}

/// The rows of a record batch as actions: pairs of a name and its fields.
pub(super) fn actions_of(rows: &RecordBatch) -> Result<Vec<(String, Value)>, CheckpointError> {
    let mut writer = arrow_json::LineDelimitedWriter::new(Vec::new());
    writer.write(rows).map_err(encode_error)?;
    writer.finish().map_err(encode_error)?;
    let mut actions = Vec::new();
    for row in serde_json::Deserializer::from_slice(&writer.into_inner()).into_iter::<Value>() {
        if let Value::Object(row) = row.map_err(encode_error)? {
            actions.extend(row);
        }
    }
    Ok(actions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_hold_what_the_actions_said() {
        let mut state = TableState::default();
        let metadata = json!({"id": "i", "format": {"provider": "parquet", "options": {}},
            "schemaString": "{}", "partitionColumns": ["p"], "configuration": {"a": "b"}});
        state.apply(
            "protocol",
            json!({"minReaderVersion": 3, "minWriterVersion": 7,
            "readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}),
        );
        state.apply("metaData", metadata);
        state.apply("txn", json!({"appId": "a", "version": 3}));
        state.apply("txn", json!({"appId": "a", "version": 4, "lastUpdated": 1}));
        state.apply(
            "domainMetadata",
            json!({"domain": "d", "configuration": "c", "removed": false}),
        );
        state.apply(
            "domainMetadata",
            json!({"domain": "e", "configuration": "c", "removed": false}),
        );
        state.apply("domainMetadata", json!({"domain": "e", "configuration": "", "removed": true}));
        let mut again = TableState::default();
        for (name, action) in actions_of(&state.rows().unwrap()).unwrap() {
            again.apply(&name, action);
        }
        assert_eq!(again.actions(), state.actions());
        assert!(again.has_feature("v2Checkpoint"));
        assert_eq!(again.actions().len(), 4);
        let limits =
            Limits { oldest_remove_ms: 0, overdue_remove_ms: 0, oldest_transaction_ms: Some(2) };
        again.expire(&limits);
        assert_eq!(again.actions().len(), 3);
    }
}
