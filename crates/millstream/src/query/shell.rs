//! The shell: statements as they are typed, with a history and several lines to a statement.

use std::process::ExitCode;

use rustyline::error::ReadlineError;
use rustyline::{CompletionType, Config, Editor};

use super::completion::Completion;
use super::{Desk, Refused, here};
use crate::cli::Format;
use crate::load::PipelineFile;

const PROMPT: &str = "millstream> ";
const CONTINUED: &str = "         -> ";
const HELP: &str = "\
Statements end with a semicolon and may have several lines.
  SELECT ... FROM delta.`/path`;   query a Delta table (also parquet, json, csv, text)
  CREATE TABLE t USING delta LOCATION '/path';   give a table a name for this session
  SHOW TABLES;  DESCRIBE t;  EXPLAIN [ANALYZE] SELECT ...;
  \\timing     switch the time that each query takes on and off
  \\format F   print rows as table, json or csv
  \\q          leave (also Ctrl-D); Ctrl-C ends a query
";

/// Reads statements until the end of input.
pub(super) async fn run(desk: &mut Desk<'_>) -> Result<ExitCode, Refused> {
    let failed = |error: &dyn std::fmt::Display| {
        Refused::Failed(format!("the terminal cannot be read: {error}"))
    };
    let config = Config::builder().completion_type(CompletionType::List).build();
    let mut editor = Editor::with_config(config).map_err(|error| failed(&error))?;
    editor.set_helper(Some(Completion::new(desk.session.functions())));
    let history = std::env::home_dir().map(|home| home.join(".millstream_history"));
    if let Some(history) = &history {
        // The first time there is none.
        let _ = editor.load_history(history);
    }
    if desk.app.screen.is_terminal() {
        desk.app.screen.say("Spark SQL over tables at rest; \\? shows help.");
    }
    let mut typed = String::new();
    loop {
        if let Some(completion) = editor.helper_mut() {
            completion.tables = desk.session.catalog().declared();
        }
        let prompt = if typed.is_empty() { PROMPT } else { CONTINUED };
        match editor.readline(prompt) {
            Ok(line) if typed.is_empty() && line.trim_start().starts_with('\\') => {
                if !command(desk, line.trim()) {
                    break;
                }
            }
            Ok(line) => {
                typed.push_str(&line);
                typed.push('\n');
                if !is_complete(&typed) {
                    continue;
                }
                let statement = std::mem::take(&mut typed);
                let _ = editor.add_history_entry(statement.trim());
                run_statement(desk, statement).await?;
            }
            // What was typed so far is thrown away, as in other shells.
            Err(ReadlineError::Interrupted) => typed.clear(),
            Err(ReadlineError::Eof) => {
                if !typed.trim().is_empty() {
                    run_statement(desk, std::mem::take(&mut typed)).await?;
                }
                break;
            }
            Err(error) => return Err(failed(&error)),
        }
    }
    if let Some(history) = &history {
        let _ = editor.save_history(history);
    }
    Ok(desk.app.done())
}

/// Runs a statement; one that fails is reported, and the shell goes on.
async fn run_statement(desk: &mut Desk<'_>, text: String) -> Result<(), Refused> {
    if text.trim().trim_matches(';').trim().is_empty() {
        return Ok(());
    }
    let file = PipelineFile { name: "query".to_owned(), text, base_dir: here()? };
    match desk.run_text(&file, &[]).await {
        Err(refused @ Refused::NotRead) => Err(refused),
        Err(refused) => {
            let _ = refused.report(desk.app);
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

/// True where a statement ends: at a semicolon that is neither in a text nor in a comment.
fn is_complete(text: &str) -> bool {
    use millstream_query::statements::ends_statement;
    text.trim().is_empty() || ends_statement(text)
}

/// Does what a line with a backslash says; false to leave.
fn command(desk: &mut Desk<'_>, line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    match (words.next().unwrap_or_default(), words.next()) {
        ("\\q" | "\\quit" | "\\exit", _) => return false,
        ("\\timing", _) => {
            desk.is_timed = !desk.is_timed;
            let state = if desk.is_timed { "on" } else { "off" };
            desk.app.screen.say(&format!("Timing is {state}."));
        }
        ("\\format", Some("table")) => desk.format = Format::Table,
        ("\\format", Some("json")) => desk.format = Format::Json,
        ("\\format", Some("csv")) => desk.format = Format::Csv,
        _ => desk.app.screen.say(HELP.trim_end()),
    }
    true
}
