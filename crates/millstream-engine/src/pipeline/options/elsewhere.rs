//! Options whose values are read from the environment or from files.

use std::sync::Arc;

use super::DeclaredTable;
use crate::api::options::OptionError;
use crate::api::references::{Lookup, Template, TemplateError};

impl DeclaredTable {
    /// Sets an option to a value, parts of which may refer to the environment or to files.
    pub(super) fn look_up(
        &mut self,
        key: &str,
        value: &str,
        lookup: &Arc<dyn Lookup>,
    ) -> Result<(), OptionError> {
        let template = Template::parse(value).map_err(|TemplateError { problem, help }| {
            OptionError::of(key, format!("'{key}': {problem}"), Some(help))
        })?;
        let set = self.table.options.set_elsewhere(key, template, lookup);
        set.map_err(|problem| OptionError::of(key, format!("'{key}': {problem}"), None))
    }
}
