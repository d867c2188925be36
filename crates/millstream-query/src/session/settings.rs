//! What SET and RESET change of a session.

use millstream_sql::functions::SessionZone;
use millstream_sql::query::settings::Settings;
use url::Url;

use super::QuerySession;
use crate::cluster::error::ClusterError;
use crate::cluster::settings::{RemoteStages, option_key, with_remote_options};
use crate::error::QueryError;
use crate::setting_statements::{ANSI, Change, TIME_ZONE, truth, zone_name};
use crate::spark_settings::{self, Known};
use crate::tables::meanings::Meaning;

/// The settings that there are.
const SETTINGS: &str = "the settings are millstream.remote.stages, millstream.remote.spill, and \
                        millstream.remote.attempts, timeout, max, here_bytes, scan_bytes and \
                        group_by_bytes, which are whole \
                        numbers";

/// What is said of others of Spark's.
const NOT_KNOWN: &str = "what this setting of Spark's does is not known here; a query means what it \
                         means with Spark's defaults, so leave the statement out where it sets one, \
                         or says how Spark computes";

impl QuerySession {
    /// Changes a setting.
    ///
    /// # Errors
    /// [`ClusterError::Setting`]: there is none of this name, or it cannot have this value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), QueryError> {
        self.variables.check_setting(key)?;
        let refused =
            |help| ClusterError::Setting { key: key.to_owned(), value: value.to_owned(), help };
        if key == TIME_ZONE {
            let help = "write the name of a region, such as Europe/Berlin, or an offset from UTC, \
                        such as +02:00";
            let zone = SessionZone::parse(zone_name(value)).ok_or_else(|| refused(help))?;
            self.mean(Meaning { zone, ..self.meaning.clone() });
            return Ok(());
        }
        if key == ANSI {
            let ansi = truth(value).ok_or_else(|| refused("write 'true' or 'false'"))?;
            self.mean(Meaning { ansi, ..self.meaning.clone() });
            return Ok(());
        }
        match self.settings.set(key, value) {
            Some(true) => return Ok(()),
            Some(false) => return Err(refused("write 'true' or 'false'").into()),
            None => {}
        }
        match spark_settings::known(key, value) {
            Some(Known::Fits) => return Ok(()),
            Some(Known::Fixed { here, help }) => {
                let (key, value) = (key.to_owned(), value.to_owned());
                return Err(ClusterError::FixedSetting { key, value, here, help }.into());
            }
            None if key.starts_with("spark.") => return Err(refused(NOT_KNOWN).into()),
            None => {}
        }
        let Some(name) = key.strip_prefix("millstream.remote.") else {
            return Err(refused(SETTINGS).into());
        };
        let is_auto = value.trim().eq_ignore_ascii_case("auto");
        if name == "stages" && !is_auto && RemoteStages::parse(value).is_none() {
            let help = "write 'none', 'scan', 'group by', 'scan, group by' or 'auto'";
            return Err(refused(help).into());
        }
        if name == "spill" && !value.is_empty() && Url::parse(value).is_err() {
            return Err(refused("write the URL of a directory, as s3://BUCKET/DIRECTORY").into());
        }
        let config = with_remote_options(self.state.config().clone());
        *self.state.config_mut() = config;
        let options = self.state.config_mut().options_mut();
        let help = match name {
            "timeout" => "write a number of seconds, at most 604800, which is a week",
            _ => SETTINGS,
        };
        options.set(&option_key(name), value).map_err(|_| refused(help).into())
    }

    fn mean(&mut self, meaning: Meaning) {
        if meaning != self.meaning {
            self.of_other_meanings.clone_from(&self.functions);
            self.always = self.always.and(&meaning);
            self.meaning = meaning;
        }
    }

    /// Does what a statement about settings says; a setting that it shows is given, as its name and
    /// its value.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn apply(&mut self, change: &Change) -> Result<Option<[String; 2]>, QueryError> {
        let unknown = |key: &String| ClusterError::Setting {
            key: key.clone(),
            value: String::new(),
            help: "only settings of Spark's that are known here are shown and reset",
        };
        match change {
            Change::Set(key, value) => self.set(key, value)?,
            Change::Reset(None) => {
                self.settings = Settings::default();
                self.mean(Meaning::default());
            }
            Change::Reset(Some(key)) if key == TIME_ZONE => {
                self.mean(Meaning { zone: SessionZone::default(), ..self.meaning.clone() });
            }
            Change::Reset(Some(key)) if key == ANSI => {
                self.mean(Meaning { ansi: true, ..self.meaning.clone() });
            }
            Change::Reset(Some(key)) => {
                let is_known = self.settings.reset(key)
                    || spark_settings::value(key).is_some()
                    || spark_settings::is_without_effect(key);
                if !is_known {
                    return Err(unknown(key).into());
                }
            }
            Change::Show(key) => {
                let value = match self.settings.value(key) {
                    _ if key == TIME_ZONE => Some(self.meaning.zone.name().to_owned()),
                    _ if key == ANSI => Some(self.meaning.ansi.to_string()),
                    Some(value) => Some(value.to_string()),
                    None => spark_settings::value(key).map(str::to_owned),
                };
                return Ok(Some([key.clone(), value.ok_or_else(|| unknown(key))?]));
            }
        }
        Ok(None)
    }
}
