//! An identity provider on loopback: an OAuth token endpoint whose tokens are signed, and the file
//! of keys that tells brokers by whom.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

use crate::certificates::Files;
use crate::http_receiver::{Answer, Receiver};

/// The client that may have tokens.
pub const CLIENT: &str = "app";
/// Its secret.
pub const SECRET: &str = "pl4nted-one";
/// Whom tokens are for.
pub const AUDIENCE: &str = "kafka";
/// Who gives them.
pub const ISSUER: &str = "millstream-tests";

/// A running provider, which gives the client [`CLIENT`] with the secret [`SECRET`] tokens. It ends
/// with this. For tests: an error is a panic.
pub struct Provider {
    receiver: Receiver,
    state: Arc<State>,
    /// Holds the keys.
    directory: tempfile::TempDir,
}

struct State {
    key: PathBuf,
    other_key: PathBuf,
    /// How long a token is good.
    life_s: AtomicU32,
    forges: AtomicBool,
}

impl Provider {
    /// Listens with TLS, as the server that `files` are for.
    pub fn start(files: &Files) -> Self {
        let directory = tempfile::tempdir().expect("it can be made");
        let at = |name: &str| directory.path().join(name);
        let (key, other_key) = (at("key.pem"), at("other.pem"));
        for key in [&key, &other_key] {
            let mut make = Command::new("openssl");
            make.args(["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out"]);
            output(make.arg(key), b"");
        }
        fs::write(at("keys.json"), keys_of(&key)).expect("it can be written");
        let (life_s, forges) = (AtomicU32::new(3_600), AtomicBool::new(false));
        let state = Arc::new(State { key, other_key, life_s, forges });
        let gives = Arc::clone(&state);
        let user = format!("Basic {}", STANDARD.encode(format!("{CLIENT}:{SECRET}")));
        let receiver = Receiver::start_tls(files, move |request, _| {
            if request.header("authorization") != Some(&user) {
                let body = r#"{"error":"invalid_client","error_description":"who is that"}"#;
                return Answer::Status(401, Vec::new(), body.into(), Duration::ZERO);
            }
            let life_s = gives.life_s.load(Ordering::Relaxed);
            let token = gives.token(AUDIENCE, life_s);
            let body = format!(r#"{{"access_token":"{token}","expires_in":{life_s}}}"#);
            Answer::Status(200, Vec::new(), body.into(), Duration::ZERO)
        });
        Self { receiver, state, directory }
    }

    /// Where tokens are asked for.
    pub fn url(&self) -> String {
        format!("{}/token", self.receiver.address())
    }

    /// The file of keys, for brokers.
    pub fn keys(&self) -> PathBuf {
        self.directory.path().join("keys.json")
    }

    /// How many tokens were asked for.
    pub fn asked(&self) -> usize {
        self.receiver.received().len()
    }

    /// Lets tokens be good for so many seconds from now on.
    pub fn set_life(&self, seconds: u32) {
        self.state.life_s.store(seconds, Ordering::Relaxed);
    }

    /// Signs with a key that brokers do not know from now on, or with its own again.
    pub fn forge(&self, forges: bool) {
        self.state.forges.store(forges, Ordering::Relaxed);
    }

    /// A token for `audience`.
    pub fn token(&self, audience: &str) -> String {
        self.state.token(audience, self.state.life_s.load(Ordering::Relaxed))
    }

    /// Does not answer any more, until [`start_again`](Self::start_again).
    pub fn stop(&self) {
        self.receiver.stop();
    }

    /// Answers again.
    pub fn start_again(&self) {
        self.receiver.start_again();
    }
}

impl State {
    fn token(&self, audience: &str, life_s: u32) -> String {
        #[allow(clippy::disallowed_methods, reason = "the broker goes by this clock, too")]
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now_s = now.expect("it is later").as_secs();
        let claims = format!(
            r#"{{"sub":"{CLIENT}","aud":"{audience}","iss":"{ISSUER}","iat":{now_s},"exp":{}}}"#,
            now_s + u64::from(life_s)
        );
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","kid":"one","typ":"JWT"}"#);
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
        let forges = self.forges.load(Ordering::Relaxed);
        let mut sign = Command::new("openssl");
        sign.args(["dgst", "-sha256", "-sign"]);
        sign.arg(if forges { &self.other_key } else { &self.key });
        let signature = URL_SAFE_NO_PAD.encode(output(&mut sign, signed.as_bytes()));
        format!("{signed}.{signature}")
    }
}

/// The public part of a key as brokers read it (RFC 7517).
fn keys_of(key: &Path) -> String {
    let mut show = Command::new("openssl");
    show.args(["rsa", "-noout", "-modulus", "-in"]).arg(key);
    let text = String::from_utf8(output(&mut show, b"")).expect("it is text");
    let modulus = text.trim().strip_prefix("Modulus=").expect("OpenSSL writes it so");
    let byte = |at: usize| u8::from_str_radix(&modulus[at..at + 2], 16).expect("it is hexadecimal");
    let bytes: Vec<u8> = (0..modulus.len()).step_by(2).map(byte).collect();
    let modulus = URL_SAFE_NO_PAD.encode(bytes);
    format!(
        r#"{{"keys":[{{"kty":"RSA","use":"sig","alg":"RS256","kid":"one","n":"{modulus}","e":"AQAB"}}]}}"#
    )
}

fn output(command: &mut Command, input: &[u8]) -> Vec<u8> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("OpenSSL is there: apt-get install openssl");
    child.stdin.take().expect("it was asked for").write_all(input).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "OpenSSL fails: {:?}", output.status);
    output.stdout
}
