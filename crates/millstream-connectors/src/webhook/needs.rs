//! What a `webhook` table needs outside. Of a URL the host alone is shown: its path is a secret of
//! some receivers.

use std::path::Path;

use millstream_engine::api::needs::Need;
use url::Url;

use super::options::{Authorization, Proxy, WebhookOptions};
use crate::notify::needs::files;

/// The variables that say whom requests are sent through.
const PROXIES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];

impl WebhookOptions {
    /// The receiver, a proxy, and files; relative paths are relative to `base_dir`. `is_signed` is
    /// known where the secret itself is not.
    pub(super) fn needs(&self, is_signed: bool, base_dir: &Path) -> Vec<Need> {
        let mut needs = vec![Need::server(address(&self.url), "the receiver of requests")];
        match &self.proxy {
            Proxy::Environment => {
                needs.extend(PROXIES.map(|name| Need::variable(name, "the proxy of requests")));
            }
            Proxy::Url(url) => needs.push(Need::server(address(url), "the proxy of requests")),
            Proxy::None => {}
        }
        let on = || format!("{} requests to {}", self.method, address(&self.url));
        match &self.authorization {
            Authorization::None => {}
            Authorization::Bearer(_) => {
                needs.push(Need::rights(&["the bearer token"], on(), "'bearerToken'"));
            }
            Authorization::Basic { .. } => {
                needs.push(Need::rights(&["the user"], on(), "'user' and 'password'"));
            }
        }
        if is_signed {
            let purpose = "'signingSecret', which the receiver has to know";
            needs.push(Need::rights(&["the signature"], on(), purpose));
        }
        needs.extend(files(self.ca_file.as_deref(), self.refused_path.as_deref(), base_dir));
        needs
    }
}

fn address(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port_or_known_default() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}
