//! A query that begins anew at a table that knows another query's record of progress.
//!
//! It may be that query under another name: a checkpoint is named after the pipeline file and the
//! flow, so a file that is renamed has a new one, and its query a new id. What was published would
//! be published again, or what came since be skipped, and nothing else would tell. So such a start
//! is refused, unless the user says which of two things is meant: to go on where the other query
//! stands, as that query ([`Start::adopts`]), or to write beside it ([`Start::is_beside_others`]).
//!
//! Queries of one pipeline file know each other ([`Siblings`]), by the ids in the checkpoints of
//! the file's flows and by those that are begun in the same process: several flows of a file may
//! write to one table, and a flow may be added to it later.
//!
//! [`Start::adopts`]: super::start::Start::adopts
//! [`Start::is_beside_others`]: super::start::Start::is_beside_others
//! [`Siblings`]: super::start::Siblings

use std::fmt::Write as _;

use millstream_store::checkpoint::Checkpoint;
use millstream_store::error::{Classified, Kind};
use millstream_store::recovery::Recovered;
use thiserror::Error;

use super::Query;
use super::start::base;
use crate::api::sink::{OtherQuery, Published};
use crate::api::source::Failure;

/// Why a query does not begin.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NotBegun {
    /// A table has rows of another query.
    #[error(
        "{sink} has rows of another query, {other}, and the checkpoint {location} is new: this \
         query would {would}. Was the pipeline file or the flow renamed, or the checkpoint moved \
         or deleted? Then continue from that query's progress: run {remedy}. If both are to write there, \
         set 'otherQueries' = 'allowed' on the table"
    )]
    OtherQuery {
        /// The sink.
        sink: String,
        /// The other query, in words.
        other: String,
        /// What to run to go on as that query.
        remedy: String,
        /// This query's checkpoint.
        location: String,
        /// What would become of rows.
        would: String,
    },
    /// No table knows the query that is to be gone on with.
    #[error(
        "--adopt {query_id}: no table that this flow writes to has a record of that query with the position of its sources{known}. Correct the id, or continue from that query's checkpoint with --checkpoint"
    )]
    Unknown {
        /// The id that was given.
        query_id: String,
        /// The queries that are known, in words.
        known: String,
    },
    /// What the query knows is in its checkpoint only.
    #[error(
        "--adopt {query_id}: this flow has {what}, which only that query's checkpoint contains, and no table: continue from it with --checkpoint"
    )]
    NotInTables {
        /// The id that was given.
        query_id: String,
        /// What it has.
        what: String,
    },
}

impl Classified for NotBegun {
    fn kind(&self) -> Kind {
        Kind::Config
    }
}

/// Whether a query has done nothing yet that its checkpoint or its sinks would know of.
pub(super) fn is_new(
    checkpoint: &Checkpoint,
    recovered: &Recovered,
    published: &[Option<Published>],
) -> bool {
    is_unused(checkpoint, recovered) && published.iter().all(Option::is_none)
}

fn is_unused(checkpoint: &Checkpoint, recovered: &Recovered) -> bool {
    recovered.last_intent.is_none() && !checkpoint.has_state()
}

/// Refuses what [`NotBegun`] says. Of a query that is adopted, sinks without a record of it stand
/// where the foremost one does: `published` says so then.
pub(super) async fn settle(
    query: &mut Query,
    recovered: &Recovered,
    published: &mut [Option<Published>],
) -> Result<(), Failure> {
    let adopts = query.branches.start.adopts;
    if adopts && is_unused(&query.checkpoint, recovered) {
        return adopt(query, published).await;
    }
    if !is_new(&query.checkpoint, recovered, published) {
        return Ok(());
    }
    let start = query.branches.start.clone();
    for (sink, other) in others(query).await? {
        let known = told(&other);
        if start.is_beside_others {
            warn_of_gap(query, &sink, &known);
            continue;
        }
        let (location, would) = (query.checkpoint.location(), would(query));
        let remedy = match not_in_sinks(query) {
            None => format!("with --adopt {}, or with --checkpoint and its own", other.query_id),
            Some(_) => "with --checkpoint and its own".to_owned(),
        };
        return Err(NotBegun::OtherQuery { sink, other: known, remedy, location, would }.into());
    }
    Ok(())
}

/// What a query knows that its sinks do not, in words.
fn not_in_sinks(query: &Query) -> Option<String> {
    if query.branches.stateful().next().is_some() {
        return Some("state".to_owned());
    }
    let mut sources = query.sources.iter();
    let source = sources.find(|source| !source.offsets_stand_alone())?;
    Some(format!("the source {} with a log of its own", source.description()))
}

/// Goes on as the query that the sinks know.
async fn adopt(query: &mut Query, published: &mut [Option<Published>]) -> Result<(), Failure> {
    let query_id = query.checkpoint.query_id().to_owned();
    if let Some(what) = not_in_sinks(query) {
        return Err(NotBegun::NotInTables { query_id, what }.into());
    }
    let records = published.iter().flatten().filter(|record| record.end_offsets.is_some());
    let Some(foremost) = records.max_by_key(|record| record.batch_id).cloned() else {
        let others = others(query).await?;
        let ids: Vec<String> = others.iter().map(|(_, other)| told(other)).collect();
        let known =
            if ids.is_empty() { String::new() } else { format!("; they know {}", ids.join(", ")) };
        return Err(NotBegun::Unknown { query_id, known }.into());
    };
    for (index, of_sink) in published.iter_mut().enumerate() {
        if of_sink.is_none() {
            let sink = query.branches.sinks().nth(index).map(|sink| sink.description());
            tracing::warn!(
                ?sink,
                query_id,
                "no record of the adopted query; it goes on here where \
                the others stand"
            );
            *of_sink = Some(foremost.clone());
        }
    }
    Ok(())
}

/// The queries that the sinks know, without this one and those of its pipeline file.
async fn others(query: &mut Query) -> Result<Vec<(String, OtherQuery)>, Failure> {
    let own = query.checkpoint.query_id().to_owned();
    let siblings = query.branches.start.siblings.clone();
    let mut others: Vec<(String, OtherQuery)> = Vec::new();
    for sink in query.branches.sinks_mut() {
        let description = sink.description();
        for mut other in sink.other_queries().await? {
            other.query_id = base(&other.query_id).to_owned();
            let is_told = others.iter().any(|(_, told)| told.query_id == other.query_id);
            if other.query_id != base(&own) && !siblings.has(&other.query_id) && !is_told {
                others.push((description.clone(), other));
            }
        }
    }
    Ok(others)
}

fn told(other: &OtherQuery) -> String {
    let OtherQuery { query_id, flow, batch_id, at_ms } = other;
    let mut text = query_id.clone();
    let _ = write!(text, " (");
    if let Some(flow) = flow {
        let _ = write!(text, "flow '{flow}', ");
    }
    let _ = write!(text, "up to its micro-batch {batch_id}");
    if let Some(at) = at_ms.and_then(chrono::DateTime::from_timestamp_millis) {
        let _ = write!(text, " of {}", at.format("%Y-%m-%dT%H:%M:%SZ"));
    }
    text.push(')');
    text
}

/// What would become of rows if the query began anew, as far as its sources tell.
fn would(query: &Query) -> String {
    let beginnings = query.sources.iter().filter_map(|source| source.beginning());
    let (skipping, repeating): (Vec<_>, Vec<_>) = beginnings.partition(|of| of.may_skip);
    let options = |of: &[crate::api::source::Beginning]| {
        of.iter().map(|of| of.option.clone()).collect::<Vec<_>>().join(", ")
    };
    match (skipping.is_empty(), repeating.is_empty()) {
        (true, true) => "begin at the beginning and write the same rows again".to_owned(),
        (true, false) => format!("write the same rows again ({})", options(&repeating)),
        (false, true) => format!("leave out what came since ({})", options(&skipping)),
        (false, false) => format!(
            "leave out what came since ({}), and write rows again ({})",
            options(&skipping),
            options(&repeating)
        ),
    }
}

/// Says what a query that begins beside others at the newest rows does not read.
fn warn_of_gap(query: &Query, sink: &str, known: &str) {
    for source in &query.sources {
        if let Some(beginning) = source.beginning().filter(|beginning| beginning.may_skip) {
            let (source, option) = (source.description(), beginning.option);
            tracing::warn!(
                sink,
                other = known,
                source,
                option,
                "this query begins beside another, \
                at the newest rows: what came since the other's last micro-batch is not read by it"
            );
        }
    }
}
