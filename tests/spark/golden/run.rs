//! Runs all queries, several files at a time.

use std::panic;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::answers::{Answers, Line, Query};
use crate::compare::compare;
use crate::engine::{Engine, Ran};
use crate::functions::Functions;
use crate::inputs::Texts;
use crate::outcomes::{Found, Outcome};
use crate::tables::common;

/// What is to be run.
pub struct Run {
    inputs: PathBuf,
    files: Vec<Answers>,
}

impl Run {
    /// The queries of `files`, whose texts are in `inputs`.
    pub fn new(inputs: PathBuf, files: Vec<Answers>) -> Self {
        Self { inputs, files }
    }

    /// Runs them, and says what became of each, sorted by file and number.
    pub fn outcomes(self) -> Vec<Found> {
        keep_quiet();
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let common = Arc::new(common(&self.inputs, directory.path()));
        let waiting = Mutex::new(self.files.into_iter().enumerate().collect::<Vec<_>>());
        let found = Mutex::new(Vec::new());
        let work = || {
            loop {
                // The lock is not held while the file runs.
                let next = waiting.lock().pop();
                let Some((at, file)) = next else { return };
                let own = directory.path().join(format!("file-{at}"));
                std::fs::create_dir(&own).expect("a temporary directory is writable");
                let engine = Engine::new(&own, Arc::clone(&common));
                let (texts, settings) = (Texts::new(&self.inputs), Map::new());
                let functions = Functions::default();
                let outcomes = File { engine, texts, settings, functions }.run(&file);
                found.lock().extend(outcomes);
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
        let mut found = found.into_inner();
        found.sort_by_cached_key(|found: &Found| (found.file.clone(), found.number));
        found
    }
}

/// A panic of a query is an outcome, and needs no report of its own.
fn keep_quiet() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if thread::current().name() != Some("golden") {
            usual(panic);
        }
    }));
}

/// A file that runs.
struct File {
    engine: Engine,
    texts: Texts,
    settings: Map<String, Value>,
    functions: Functions,
}

impl File {
    fn run(mut self, file: &Answers) -> Vec<Found> {
        let mut found = Vec::new();
        for line in &file.lines {
            match line {
                Line::Settings { set } => self.settings = set.clone(),
                Line::Table(table) => {
                    let view = table.view.as_ref().map(|view| {
                        let query = self.texts.get(&view.file, view.at);
                        match view.columns.join(", ") {
                            names if names.is_empty() => query.to_owned(),
                            names => format!("SELECT * FROM ({query}) AS named({names})"),
                        }
                    });
                    self.engine.take(table, view);
                }
                Line::Query(query) => found.push(self.query(&file.name, query)),
            }
        }
        found
    }

    fn query(&mut self, file: &str, query: &Query) -> Found {
        let source = query.file.as_deref().unwrap_or(file);
        let text = self.texts.get(source, query.at).to_owned();
        if query.file.is_none() && query.at[0] > self.functions.read {
            let between = self.texts.get(source, [self.functions.read, query.at[0]]);
            self.engine.note(between);
            for statement in self.functions.go_on(between, query.at[0]) {
                self.engine.change(statement);
            }
        }
        let sum = format!("{:08x}", crc32fast::hash(text.as_bytes()));
        assert_eq!(sum, query.sum, "{file}:{}: the answers are of another text", query.n);
        let (outcome, same_names) = self.outcome(&text, query);
        Found { file: file.to_owned(), number: query.n, sum, text, outcome, same_names }
    }

    fn outcome(&mut self, text: &str, query: &Query) -> (Outcome, Option<bool>) {
        let whole = format!("{}{text}", self.functions.text());
        let outcome = match self.engine.run(&whole, &self.settings) {
            Ran::Answer(ours) => {
                let outcome = compare(text, query, &ours);
                let names = query.columns.iter().map(|(name, _)| name);
                let same = names.eq(ours.columns.iter().map(|(name, _)| name));
                return (outcome, query.error.is_none().then_some(same));
            }
            Ran::Error(_) if query.error.is_some() => Outcome::BothError,
            Ran::Error(problem) => Outcome::Refused(problem),
            Ran::Hang => Outcome::Hang,
            Ran::Panic(message) => Outcome::Panic(message),
        };
        (outcome, None)
    }
}
