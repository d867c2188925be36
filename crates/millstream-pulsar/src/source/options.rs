//! What the options of a table that is read say.

use std::collections::BTreeMap;
use std::path::Path;

use millstream_engine::api::connector::{ReadMode, Table};
use millstream_engine::api::needs::{Need, Usage};
use millstream_engine::api::options::{OptionError, Options};
use regex::Regex;
use serde_json::Value;

use super::position::Position;
use crate::client::settings::Settings;
use crate::topic;

const STARTING: &str = "startingOffsets";
const PATTERN: &str = "topicsPattern";
const ENDING: &str = "endingOffsets";

/// The topics that a table reads.
#[derive(Clone, Debug)]
pub(crate) enum Topics {
    /// Full names.
    Named(Vec<String>),
    /// Topics of a namespace whose whole name matches.
    Pattern { namespace: String, pattern: Regex, text: String },
}

/// Where a new query begins.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Starting {
    Earliest,
    Latest,
    /// By the full name of a topic or of a partition; a partition that is not named begins with its
    /// first message.
    Positions(BTreeMap<String, Start>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Start {
    Latest,
    At(Position),
}

/// A table that is read.
#[derive(Clone, Debug)]
pub(crate) struct SourceOptions {
    pub(crate) table: String,
    pub(crate) settings: Settings,
    pub(crate) topics: Topics,
    pub(crate) starting: Starting,
    pub(crate) fails_on_loss: bool,
    /// Bytes of a micro-batch, about.
    pub(crate) bytes_max: Option<usize>,
    /// The name of the subscription, if the table says it.
    pub(crate) subscription: Option<String>,
    pub(crate) prefix: String,
}

impl SourceOptions {
    /// What the table needs of the service.
    pub(crate) fn needs(&self, usage: &Usage<'_>) -> Vec<Need> {
        let mut needs = self.settings.needs();
        let subscription = match &self.subscription {
            Some(name) => format!("the subscription '{name}'"),
            None => format!("subscriptions that begin with '{}-{}-'", self.prefix, usage.flow),
        };
        let of = |topic: String| {
            let purpose = "reading, and holding what was not read yet";
            Need::rights(&["consume"], format!("{topic}, with {subscription}"), purpose)
        };
        match &self.topics {
            Topics::Named(names) => {
                needs.extend(names.iter().map(|name| of(format!("topic {name}"))));
            }
            Topics::Pattern { namespace, text, .. } => {
                let purpose = "the names of its topics";
                let on = format!("namespace {namespace}");
                needs.push(Need::rights(&["the list of topics"], on, purpose));
                needs.push(of(format!("topics that match '{text}'")));
            }
        }
        needs
    }

    /// Checks a table.
    pub(crate) fn parse(
        table: &Table,
        mode: ReadMode,
        base_dir: &Path,
    ) -> Result<Self, OptionError> {
        let options = &table.options;
        let bytes_max = options.parse_bytes("maxBytesPerTrigger")?;
        if let Some(text) = options.get(ENDING)
            && !text.trim().eq_ignore_ascii_case("latest")
        {
            return Err(OptionError::invalid(ENDING, text, "latest, which is the default"));
        }
        Ok(Self {
            table: table.name.clone(),
            settings: Settings::parse(options, base_dir)?,
            topics: topics(options)?,
            starting: starting(options, mode)?,
            fails_on_loss: options.parse_bool("failOnDataLoss")?.unwrap_or(true),
            bytes_max: bytes_max.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            subscription: named(options, "predefinedSubscription")?,
            prefix: named(options, "subscriptionPrefix")?
                .unwrap_or_else(|| "millstream".to_owned()),
        })
    }

    /// The table's topics, in Spark's words.
    pub(crate) fn description(&self) -> String {
        match &self.topics {
            Topics::Named(names) => format!("Pulsar[{}]", names.join(",")),
            Topics::Pattern { text, .. } => format!("Pulsar[{text}]"),
        }
    }
}

fn named(options: &Options, key: &str) -> Result<Option<String>, OptionError> {
    match options.get(key).map(str::trim) {
        None => Ok(None),
        Some(name) if name.is_empty() || name.contains(['/', '"', ' ']) => {
            Err(OptionError::invalid(key, name, "a name without spaces and slashes"))
        }
        Some(name) => Ok(Some(name.to_owned())),
    }
}

fn topics(options: &Options) -> Result<Topics, OptionError> {
    let given = ["topic", "topics", PATTERN].map(|key| options.get(key).map(|text| (key, text)));
    let mut given = given.into_iter().flatten();
    let Some((key, text)) = given.next() else {
        let help = "name one, for example 'topic' = 'orders'; or several with 'topics', or \
                    'topicsPattern'";
        return Err(OptionError::missing("topic", help));
    };
    if let Some((other, _)) = given.next() {
        let problem = format!("both '{key}' and '{other}' are set");
        return Err(OptionError::of(other, problem, Some("keep one of them".to_owned())));
    }
    let full = |name: &str| {
        topic::full_name(name).map_err(|problem| {
            OptionError::of(key, format!("'{name}' is no topic"), Some(problem.to_owned()))
        })
    };
    if key != PATTERN {
        let mut names = match key {
            "topic" => vec![full(text)?],
            _ => text.split(',').map(full).collect::<Result<Vec<_>, _>>()?,
        };
        names.sort_unstable();
        names.dedup();
        return Ok(Topics::Named(names));
    }
    let local = text.trim().strip_prefix(topic::PERSISTENT).unwrap_or(text.trim());
    let parts: Vec<&str> = local.splitn(3, '/').collect();
    let (namespace, expression) = match parts[..] {
        [expression] => ("public/default".to_owned(), expression),
        [tenant, namespace, expression] => (format!("{tenant}/{namespace}"), expression),
        _ => {
            let wanted = "an expression, or persistent://TENANT/NAMESPACE/EXPRESSION";
            return Err(OptionError::invalid(PATTERN, text, wanted));
        }
    };
    let pattern = Regex::new(&format!("^(?:{expression})$")).map_err(|error| {
        OptionError::of(PATTERN, format!("'{expression}' is no regular expression: {error}"), None)
    })?;
    Ok(Topics::Pattern { namespace, pattern, text: text.trim().to_owned() })
}

fn starting(options: &Options, mode: ReadMode) -> Result<Starting, OptionError> {
    let Some(text) = options.get(STARTING).map(str::trim) else {
        return Ok(match mode {
            ReadMode::Batch => Starting::Earliest,
            ReadMode::Stream => Starting::Latest,
        });
    };
    match text.to_ascii_lowercase().as_str() {
        "earliest" => return Ok(Starting::Earliest),
        "latest" if mode == ReadMode::Stream => return Ok(Starting::Latest),
        "latest" => {
            let problem = "a batch query that begins with what is latest reads nothing";
            return Err(OptionError::of(STARTING, problem, Some("write 'earliest'".to_owned())));
        }
        _ => {}
    }
    let wanted = "earliest, latest or {\"TOPIC\":\"LEDGER:ENTRY\"}";
    let invalid = || OptionError::invalid(STARTING, text, wanted);
    let object: serde_json::Map<String, Value> =
        serde_json::from_str(text).map_err(|_| invalid())?;
    let starts = object.iter().map(|(name, value)| {
        let name = topic::full_name(name).map_err(|_| invalid())?;
        let start = match value.as_str() {
            Some(text) if text.trim().eq_ignore_ascii_case("latest") => Start::Latest,
            _ => Start::At(Position::parse_written(value).ok_or_else(invalid)?),
        };
        Ok((name, start))
    });
    Ok(Starting::Positions(starts.collect::<Result<_, _>>()?))
}

impl Starting {
    /// Where a partition begins.
    pub(crate) fn of(&self, partition: &str) -> Start {
        match self {
            Self::Earliest => Start::At(Position::Earliest),
            Self::Latest => Start::Latest,
            Self::Positions(starts) => {
                let whole = topic::whole(partition);
                let start = starts.get(partition).or_else(|| starts.get(whole));
                start.copied().unwrap_or(Start::At(Position::Earliest))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(entries: &[(&str, &str)]) -> Result<SourceOptions, OptionError> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let url = [("service.url".to_owned(), "pulsar://a".to_owned())];
        let options = Options::new(entries.iter().map(owned).chain(url));
        let table = Table { name: "t".to_owned(), columns: None, options };
        SourceOptions::parse(&table, ReadMode::Stream, Path::new(""))
    }

    #[test]
    fn topics_are_named_in_one_way() {
        let options = parse(&[("topics", "b, a,b")]).expect("they are names");
        let Topics::Named(names) = options.topics else { panic!("they are named") };
        assert_eq!(names, ["persistent://public/default/a", "persistent://public/default/b"]);
        for (entries, said) in [
            (&[][..], "'topic' is missing"),
            (&[("topic", "a"), ("topics", "b")], "both"),
            (&[("topic", "a/b")], "no topic"),
            (&[("topicsPattern", "(")], "regular expression"),
            (&[("topic", "a"), ("startingOffsets", "{\"a\":7}")], "LEDGER:ENTRY"),
            (&[("topic", "a"), ("endingOffsets", "{}")], "latest"),
        ] {
            let error = parse(entries).expect_err(said);
            assert!(error.to_string().contains(said), "{error}");
        }
        let pattern = parse(&[("topicsPattern", "persistent://t/n/a.*")]).expect("it is one");
        let Topics::Pattern { namespace, pattern, .. } = pattern.topics else { panic!("it is") };
        assert_eq!(namespace, "t/n");
        assert!(pattern.is_match("ab") && !pattern.is_match("ba"));
    }

    #[test]
    fn a_query_begins_where_it_is_told() {
        let text = r#"{"a":"1:2","b-partition-1":"latest"}"#;
        let starting = parse(&[("topic", "a"), ("startingOffsets", text)]).unwrap().starting;
        let name = |name: &str| format!("persistent://public/default/{name}");
        let at = Start::At(Position::after((1, 2)));
        assert_eq!(starting.of(&name("a-partition-4")), at);
        assert_eq!(starting.of(&name("b-partition-1")), Start::Latest);
        assert_eq!(starting.of(&name("b-partition-0")), Start::At(Position::Earliest));
    }
}
