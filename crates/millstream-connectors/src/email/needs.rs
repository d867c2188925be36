//! What an `email` table needs outside.

use std::path::Path;

use millstream_engine::api::needs::Need;

use super::options::EmailOptions;
use crate::notify::needs::files;

impl EmailOptions {
    /// The mail server, and files; relative paths are relative to `base_dir`.
    pub(super) fn needs(&self, base_dir: &Path) -> Vec<Need> {
        let server = format!("{}:{}", self.host, self.port);
        let mut needs = vec![Need::server(server.clone(), "the server that takes mails")];
        let sender = format!("mails from {}", self.from.email);
        let purpose = match self.credentials {
            Some(_) => "'user' and 'password', who may send as this sender",
            None => "without a user: the server must take them from here",
        };
        needs.push(Need::rights(&["sending"], sender, purpose));
        needs.extend(files(self.ca_file.as_deref(), self.refused_path.as_deref(), base_dir));
        needs
    }
}
