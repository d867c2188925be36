//! A flow run over its dead letters instead of its streams.
//!
//! The plans, constraints and sinks are the flow's own; each stream is replaced by the letters that
//! were its records. It is a query of its own, with a checkpoint beside the flow's: what the sinks
//! know of the flow's progress is not touched, and the flow may run at the same time.

use std::sync::Arc;

use millstream_sql::nearest;
use millstream_store::directory_name::directory_name;
use parking_lot::Mutex;
use thiserror::Error;

use super::{Failure, FlowContext, PlannedFlow, RunSettings};
use crate::api::connector::Connector;
use crate::api::source::{Classified, Kind, Source};
use crate::constraints::Remedy;
use crate::dead_letters::{LetterBox, LetterSource, Tally};
use crate::pipeline::dead_letters::DeadLetterTable;

/// Which letters are fed to a flow.
pub struct Replay {
    /// The name of the dead-letter table.
    pub from: String,
    /// A condition on its columns.
    pub condition: Option<String>,
    /// Only count.
    pub is_dry: bool,
    /// How the flow runs; the trigger is not looked at.
    pub settings: RunSettings,
}

/// Why a flow's letters cannot be replayed.
#[derive(Debug, Error)]
pub enum NotReplayed {
    /// The flow's sources name no such table.
    #[error("no source of flow '{flow}' sends dead letters to '{from}': {help}")]
    OtherTable {
        /// The flow.
        flow: String,
        /// The table asked for.
        from: String,
        /// What there is.
        help: String,
    },
    /// The table's connector only writes.
    #[error("dead letters in '{from}' cannot be replayed: a {connector} table cannot be read")]
    WriteOnly {
        /// The table asked for.
        from: String,
        /// Its connector.
        connector: &'static str,
    },
    /// The flow has state, which a replay would not see.
    #[error(
        "letters of flow '{flow}' cannot be replayed: its results depend on earlier rows, and a \
         replay, a query of its own, has none of them: it would give results of the letters alone, \
         such as a second count of a window. Write the source's rows to a table with a flow that \
         has no state, let '{flow}' read that table, and replay the letters of the first"
    )]
    HasState {
        /// The flow.
        flow: String,
    },
    /// The flow cannot go on with the rows of a letter.
    #[error("the letter of {position} cannot be replayed: {problem}")]
    Refused {
        /// Where its record was read.
        position: String,
        /// What the flow says about it.
        problem: Failure,
    },
}

impl Classified for NotReplayed {
    fn kind(&self) -> Kind {
        match self {
            Self::Refused { problem, .. } => problem.kind(),
            Self::OtherTable { .. } | Self::WriteOnly { .. } | Self::HasState { .. } => {
                Kind::Config
            }
        }
    }
}

impl PlannedFlow {
    /// Feeds letters to the flow, each once in all runs; says how many.
    pub async fn replay(mut self, replay: Replay) -> Result<Tally, Failure> {
        let Replay { from, condition, is_dry, settings } = replay;
        let letters = self.letters(&from)?.clone();
        if self.has_state() {
            return Err(NotReplayed::HasState { flow: self.flow.name.clone() }.into());
        }
        let directory = directory_name(&letters.id());
        let location = format!("{}/replay/{directory}", settings.checkpoint.trim_end_matches('/'));
        let checkpoint = settings.open_checkpoint(&location, &self.env).await?;
        let context = self.context(checkpoint.query_id());
        let of_flow = self.letter_box(&letters, condition, &context)?;
        let (tally, mut sources) = (Arc::new(Mutex::new(Tally::default())), Vec::new());
        for read in &self.streams {
            let declared = &read.declared;
            let of = (Arc::clone(&declared.connector), declared.table.clone());
            let of = (of.0, of.1, Arc::clone(&read.schema));
            let tally = Arc::clone(&tally);
            sources.push(LetterSource::new(of_flow.clone(), of, context.clone(), tally));
        }
        for (index, source) in sources.iter_mut().enumerate() {
            source.open_log(checkpoint.source_log(index)).await?;
            source.choose().await?;
        }
        if !is_dry {
            // Once they are recorded there is no choice any more.
            self.try_letters(&sources, &context).await?;
            // What decoding rejects never leaves its table; constraints may still add letters.
            for table in &mut self.flow.dead_letters {
                table.sources.clear();
                table.expressions.clear();
            }
            let boxed = |source| Box::new(source) as Box<dyn Source>;
            let sources = sources.into_iter().map(boxed).collect();
            // It writes beside the flow whatever that has written: letters are not its rows again.
            self.flow.writer.beside_others = true;
            let checks = self.checks().map(|checks| checks.with_remedy(Remedy::OfRecordedLetter));
            self.drive(checkpoint, &context, sources, checks, settings).await?;
        }
        let tally = *tally.lock();
        Ok(tally)
    }

    fn letters(&self, from: &str) -> Result<&DeadLetterTable, NotReplayed> {
        let of_records =
            |table: &&DeadLetterTable| !table.sources.is_empty() || !table.expressions.is_empty();
        let tables = || self.flow.dead_letters.iter().filter(of_records);
        let found = tables().find(|table| table.sink.name.eq_ignore_ascii_case(from));
        found.ok_or_else(|| {
            let names = || tables().map(|table| table.sink.name.as_str());
            let help = match names().next() {
                Some(_) => nearest::suggest(from, "tables", names().collect::<Vec<_>>()),
                None => "none of them has the option 'deadLetter'".to_owned(),
            };
            NotReplayed::OtherTable { flow: self.flow.name.clone(), from: from.to_owned(), help }
        })
    }

    fn letter_box(
        &self,
        letters: &DeadLetterTable,
        condition: Option<String>,
        context: &FlowContext,
    ) -> Result<LetterBox, Failure> {
        let connector: &dyn Connector = &*letters.connector;
        let sink = letters.sink.fresh()?;
        let table = connector.dead_letters().readable(&sink, letters.layout.schema());
        let Some(table) = connector.static_table(&table, context)? else {
            let from = letters.sink.name.clone();
            return Err(NotReplayed::WriteOnly { from, connector: connector.name() }.into());
        };
        let (form, flow) = (connector.dead_letters().form(), self.flow.name.clone());
        Ok(LetterBox { table, form, flow, condition })
    }
}
