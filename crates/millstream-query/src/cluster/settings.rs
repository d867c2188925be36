//! What a query says about where its stages run.

use std::any::Any;

use ballista_core::extension::SessionConfigExt as _;
use datafusion::common::{DataFusionError, Result, config_err};
use datafusion::config::{ConfigEntry, ConfigExtension, ExtensionOptions};
use datafusion::prelude::SessionConfig;

use super::stage::StageKind;

/// `SET millstream.remote.stages = ...` and its like; travels with a query to all that run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteOptions {
    /// The stages that are handed to runners: `none`, `scan`, `group by`, both separated by a
    /// comma, or `auto` for those that read much.
    pub stages: String,
    /// Attempts of a task at runners before the node runs it itself.
    pub attempts: usize,
    /// How long a task may take at a runner, in seconds; at most [`TIMEOUT_S_MAX`].
    pub timeout: usize,
    /// The URL of the directory in an object store that answers go to which are too long for the
    /// way back and cannot be pushed to the node. Empty for none.
    pub spill: String,
    /// Tasks of the query that are at runners at one time.
    pub max: usize,
    /// With `auto`: a query whose scans read less bytes runs in the client.
    pub here_bytes: usize,
    /// With `auto`: a stage that scans as many bytes goes to runners.
    pub scan_bytes: usize,
    /// With `auto`: a stage that reads as many bytes of what others have written goes to runners.
    pub group_by_bytes: usize,
}

/// The longest time that a task may be given at a runner, in seconds: a week.
pub const TIMEOUT_S_MAX: usize = 7 * 24 * 60 * 60;

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            stages: "none".to_owned(),
            attempts: 3,
            timeout: 900,
            spill: String::new(),
            max: 1_024,
            here_bytes: 64 << 20,
            scan_bytes: 4 << 30,
            group_by_bytes: 1 << 30,
        }
    }
}

impl ConfigExtension for RemoteOptions {
    // One without a dot: DataFusion looks an extension up by what is before the first one.
    const PREFIX: &'static str = "millstream_remote";
}

// By hand, since what the macro makes leaves the prefix out of the keys that are sent to others.
impl ExtensionOptions for RemoteOptions {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let number = || {
            let parsed = value.parse().ok().filter(|number| *number > 0);
            parsed.ok_or_else(|| DataFusionError::Configuration(format!("{key} = {value}")))
        };
        if key == "timeout" && number()? > TIMEOUT_S_MAX {
            return config_err!("{key} = {value}, which is more than {TIMEOUT_S_MAX}");
        }
        match key {
            "stages" => value.clone_into(&mut self.stages),
            "attempts" => self.attempts = number()?,
            "timeout" => self.timeout = number()?,
            "spill" => value.clone_into(&mut self.spill),
            "max" => self.max = number()?,
            "here_bytes" => self.here_bytes = number()?,
            "scan_bytes" => self.scan_bytes = number()?,
            "group_by_bytes" => self.group_by_bytes = number()?,
            _ => return config_err!("there is no setting {key}"),
        }
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        let entry = |name: &str, value: String| ConfigEntry {
            key: option_key(name),
            value: Some(value),
            description: "see RemoteOptions",
        };
        vec![
            entry("stages", self.stages.clone()),
            entry("attempts", self.attempts.to_string()),
            entry("timeout", self.timeout.to_string()),
            entry("spill", self.spill.clone()),
            entry("max", self.max.to_string()),
            entry("here_bytes", self.here_bytes.to_string()),
            entry("scan_bytes", self.scan_bytes.to_string()),
            entry("group_by_bytes", self.group_by_bytes.to_string()),
        ]
    }
}

impl RemoteOptions {
    /// Whether the sizes of stages decide.
    pub fn is_auto(&self) -> bool {
        self.stages.trim().eq_ignore_ascii_case("auto")
    }
}

/// Which stages are handed to runners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteStages {
    /// Those that read tables.
    pub scan: bool,
    /// Those that bring the rows of a group together.
    pub group_by: bool,
}

impl RemoteStages {
    /// Reads `none`, `scan`, `group by` or both. `None` for another text.
    pub fn parse(text: &str) -> Option<Self> {
        let mut stages = Self::default();
        for part in text.split(',') {
            match part.trim().to_ascii_lowercase().as_str() {
                "none" | "" => {}
                "scan" => stages.scan = true,
                "group by" | "groupby" | "group_by" => stages.group_by = true,
                _ => return None,
            }
        }
        Some(stages)
    }

    /// Whether stages of `kind` are among them.
    pub fn include(self, kind: StageKind) -> bool {
        match kind {
            StageKind::Scan => self.scan,
            StageKind::GroupBy => self.group_by,
            StageKind::Other => false,
        }
    }
}

/// The largest message between the parts of a cluster: a plan over some ten thousand files.
pub const MESSAGE_BYTES_MAX: u32 = 256 << 20;
/// A node that was not heard of for so long is given up, in seconds.
pub const NODE_TIMEOUT_S: u64 = 15;

/// `config` for plans that a cluster runs.
pub fn cluster_config(config: SessionConfig) -> SessionConfig {
    let config = with_remote_options(config.upgrade_for_ballista());
    // Stages are planned before they run: a task lost with its node is then known to be made again.
    config
        .with_ballista_adaptive_query_planner(false)
        .with_ballista_grpc_client_max_message_size(MESSAGE_BYTES_MAX as usize)
}

/// `config` with [`RemoteOptions`] in it.
pub fn with_remote_options(config: SessionConfig) -> SessionConfig {
    if config.options().extensions.get::<RemoteOptions>().is_some() {
        return config;
    }
    config.with_option_extension(RemoteOptions::default())
}

/// The key under which DataFusion has the setting `name` of [`RemoteOptions`].
pub fn option_key(name: &str) -> String {
    format!("{}.{name}", RemoteOptions::PREFIX)
}

/// What `config` says.
pub fn remote_options(config: &SessionConfig) -> RemoteOptions {
    config.options().extensions.get::<RemoteOptions>().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_travel_by_their_keys() {
        let mut config = with_remote_options(SessionConfig::new());
        let options = config.options_mut();
        options.set(&option_key("stages"), "scan").expect("it is a setting");
        assert!(options.set(&option_key("attempts"), "0").is_err());
        for (timeout, is_taken) in [("604800", true), ("604801", false), ("0", false)] {
            assert_eq!(options.set(&option_key("timeout"), timeout).is_ok(), is_taken, "{timeout}");
        }
        assert!(options.set(&option_key("timeout"), &usize::MAX.to_string()).is_err());
        let mut other = with_remote_options(SessionConfig::new());
        for entry in config.options().entries() {
            if let Some(value) = entry.value.filter(|_| entry.key.starts_with("millstream")) {
                other.options_mut().set(&entry.key, &value).expect("it is a setting there, too");
            }
        }
        assert_eq!(remote_options(&other).stages, "scan");
        assert_eq!(remote_options(&other), remote_options(&config));
    }

    #[test]
    fn stages_are_named_in_any_case_and_separated_by_commas() {
        let both = RemoteStages { scan: true, group_by: true };
        assert_eq!(RemoteStages::parse("scan, group by"), Some(both));
        assert_eq!(RemoteStages::parse("NONE"), Some(RemoteStages::default()));
        let scan = RemoteStages { scan: true, group_by: false };
        assert_eq!(RemoteStages::parse("Scan"), Some(scan));
        assert!(scan.include(StageKind::Scan) && !scan.include(StageKind::GroupBy));
        assert_eq!(RemoteStages::parse("scan;group by"), None);
    }
}
