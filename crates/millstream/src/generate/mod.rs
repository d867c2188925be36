//! `millstream generate`: messages made up from a template, at a steady rate, into a topic, files
//! or standard output.
//!
//! Messages are due at fixed moments; what has come due is written together every millisecond. A
//! receiver that is slower than the rate makes the messages late, not fewer: how far it fell behind
//! is said at the end.

pub mod output;
pub mod topic;

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use millstream_engine::driver::stop::{Stop, stop_pair};
use millstream_generate::{Generator, Template, TemplateError};
use millstream_store::env::Env;
use millstream_store::error::{Classified, Failure, Kind};
use thiserror::Error;

use crate::app::App;
use crate::cli::{GenerateArguments, Receiver};
use crate::stopping;
use output::{Files, Lines, Nowhere, Output};
use topic::Topic;

const TICK: Duration = Duration::from_millis(1);
/// Messages made between looks at the clock where there is no rate.
const UNPACED: u64 = 256;

/// Runs the command.
pub async fn run(arguments: GenerateArguments, app: &App) -> ExitCode {
    let text = match fs::read_to_string(&arguments.template) {
        Ok(text) => text,
        Err(error) => {
            return app.wrong(&format!("{} cannot be read: {error}", arguments.template.display()));
        }
    };
    let template = match Template::parse(&text) {
        Ok(template) => template,
        Err(error) => return app.wrong(&format!("{}: {error}", arguments.template.display())),
    };
    for warning in template.warnings() {
        app.screen.say(&format!("warning: {}: {warning}", arguments.template.display()));
    }
    let (stopper, stop) = stop_pair();
    if let Err(error) = stopping::on_signals(&app.env, stopper, app.screen.clone()) {
        return app.failed(&format!("signals cannot be heard: {error}"));
    }
    let env = app.env.clone();
    let work = move || generate(&arguments, &template, &env, &stop);
    match app.env.spawn_blocking("generate", work).join().await {
        Ok(done) => {
            app.screen.say(&done.shown());
            app.done()
        }
        Err(failure) if matches!(failure.kind(), Kind::Config | Kind::Credentials) => {
            app.wrong(&failure.to_string())
        }
        Err(failure) => app.failed(&failure.to_string()),
    }
}

/// What was generated.
#[derive(Default)]
struct Done {
    messages: u64,
    bytes: u64,
    took: Duration,
    /// The longest that a message was written after it was due.
    late_max: Duration,
    left_literal: u64,
}

impl Done {
    fn shown(&self) -> String {
        let seconds = self.took.as_secs_f64().max(1e-9);
        let mut text = format!(
            "{} messages, {:.1} MB in {seconds:.1} s: {:.0} messages/s, {:.1} MB/s",
            self.messages,
            self.bytes as f64 / 1e6,
            self.messages as f64 / seconds,
            self.bytes as f64 / 1e6 / seconds,
        );
        if self.late_max > Duration::from_millis(100) {
            text += &format!("; up to {:.1} s late", self.late_max.as_secs_f64());
        }
        if self.left_literal > 0 {
            text += &format!("; {} tokens gave no value and are unchanged", self.left_literal);
        }
        text
    }
}

fn output(arguments: &GenerateArguments, env: &Env) -> Result<Box<dyn Output>, Failure> {
    Ok(match arguments.to {
        Receiver::Stdout => Box::new(Lines::stdout()),
        Receiver::Files => {
            let Some(path) = &arguments.path else { return Err(missing("--path DIR", "files")) };
            Box::new(Files::new(path, env)?)
        }
        Receiver::Kafka => {
            let (Some(brokers), Some(topic)) = (&arguments.brokers, &arguments.topic) else {
                return Err(missing("--brokers HOST:PORT and --topic NAME", "kafka"));
            };
            Box::new(Topic::open(brokers, topic)?)
        }
        Receiver::Null => Box::new(Nowhere),
    })
}

/// Why there are no messages.
#[derive(Debug, Error)]
enum GenerateError {
    /// A receiver is chosen without what it needs.
    #[error("--to {receiver} needs {flags}")]
    MissingFlags { receiver: &'static str, flags: &'static str },
    /// A call in the template gives no value.
    #[error("{0}")]
    Template(TemplateError),
}

impl Classified for GenerateError {
    fn kind(&self) -> Kind {
        match self {
            Self::MissingFlags { .. } => Kind::Config,
            Self::Template(_) => Kind::Data,
        }
    }
}

fn missing(flags: &'static str, receiver: &'static str) -> Failure {
    GenerateError::MissingFlags { receiver, flags }.into()
}

fn generate(
    arguments: &GenerateArguments,
    template: &Template,
    env: &Env,
    stop: &Stop,
) -> Result<Done, Failure> {
    let seed = arguments.seed.unwrap_or_else(|| env.random_u64());
    let mut generator = Generator::new(template, seed, env.now_ms());
    let mut output = output(arguments, env)?;
    let (began, mut done) = (env.monotonic(), Done::default());
    let limit = arguments.limit.unwrap_or(u64::MAX);
    let mut message = Vec::new();
    while done.messages < limit && !stop.is_requested() {
        let elapsed = env.monotonic() - began;
        let due = match arguments.rate {
            Some(rate) => (elapsed.as_secs_f64() * rate as f64) as u64,
            None => done.messages + UNPACED,
        };
        if let Some(rate) = arguments.rate {
            let ended = Duration::from_secs_f64(done.messages as f64 / rate as f64);
            done.late_max = done.late_max.max(elapsed.saturating_sub(ended));
        }
        generator.set_now_ms(env.now_ms());
        // A stop is not to wait for a receiver that is far behind.
        for _ in done.messages..due.min(limit).min(done.messages + UNPACED * 16) {
            message.clear();
            generator.write_message(&mut message).map_err(GenerateError::Template)?;
            output.write(&message)?;
            done.messages += 1;
            done.bytes += message.len() as u64;
        }
        if arguments.rate.is_some() && done.messages >= due {
            output.tick()?;
            std::thread::sleep(TICK);
        }
    }
    output.finish()?;
    done.took = env.monotonic() - began;
    done.left_literal = generator.tokens_left_literal();
    Ok(done)
}
