//! What every table of Kafka needs outside, by its client's settings.

use millstream_engine::api::needs::Need;

use super::settings::ClientSettings;
use crate::tokens::Issuer;

/// The brokers, and the files that settings name.
pub fn needs(settings: &ClientSettings) -> Vec<Need> {
    let purpose = "brokers that are asked first; all brokers that they name must be reachable, too";
    let servers = settings.servers().split(',').map(str::trim).filter(|name| !name.is_empty());
    let servers = servers.map(|server| Need::server(server, purpose));
    // `ssl.ca.location`, `ssl.keystore.location` and so on; a certificate may be in the value.
    let is_file = |key: &str| key.ends_with(".location") || key.ends_with(".keytab");
    let files = settings.all().filter(|(key, value)| is_file(key) && !value.contains('\n'));
    let files = files.map(|(_, path)| Need::reads(path, "the connection's security"));
    let tokens = settings.tokens().map(|tokens| match tokens.issuer() {
        Issuer::Endpoint(endpoint) => Need::server(&endpoint.url, "tokens for the brokers"),
        Issuer::File(path) => Need::reads(path.display(), "a token for the brokers"),
        Issuer::Iam(iam) => {
            let on = format!("AWS's IAM in {}", iam.region);
            Need::rights(&["kafka-cluster:Connect"], on, "tokens for the brokers")
        }
    });
    servers.chain(files).chain(tokens).collect()
}
