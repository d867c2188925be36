//! The node's side: a function is invoked, and waited for.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::{Request, StatusCode};
use millstream_store::storage::cloud_settings;
use object_store::ClientOptions;
use object_store::aws::{AmazonS3Builder, AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{HttpClient, HttpConnector as _, ReqwestConnector};

use super::{Event, FunctionError, Outcome, PAYLOAD_BYTES_MAX, TOO_LONG, decoded, encoded};
use crate::cluster::error::ClusterError;

/// How long a connection may take to be made.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// What the function has failed with is in the answer, and not the result.
const FUNCTION_ERROR: &str = "x-amz-function-error";

/// A function, by its name and, if one is meant, a version or an alias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    name: String,
    qualifier: Option<String>,
}

impl Function {
    /// Reads `NAME` or `NAME:QUALIFIER`. `None` for another text, ARNs included: the name is part
    /// of what is signed, where colons are written differently for each service.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, qualifier) = match text.split_once(':') {
            Some((name, qualifier)) => (name, Some(qualifier)),
            None => (text, None),
        };
        let is_word = |word: &str| {
            let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
            (1..=128).contains(&word.len()) && word.chars().all(is_plain)
        };
        let is_whole = is_word(name) && qualifier.is_none_or(is_word);
        let qualifier = qualifier.map(str::to_owned);
        is_whole.then(|| Self { name: name.to_owned(), qualifier })
    }

    fn path(&self) -> String {
        let path = format!("/2015-03-31/functions/{}/invocations", self.name);
        match &self.qualifier {
            Some(qualifier) => format!("{path}?Qualifier={qualifier}"),
            None => path,
        }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.qualifier {
            Some(qualifier) => write!(f, "lambda:{}:{qualifier}", self.name),
            None => write!(f, "lambda:{}", self.name),
        }
    }
}

/// Invokes functions of one region.
pub struct Invoker {
    client: HttpClient,
    credentials: AwsCredentialProvider,
    region: String,
    endpoint: String,
}

impl Invoker {
    /// One with the settings and credentials of the environment, under AWS's usual names.
    ///
    /// # Errors
    /// [`ClusterError::Lambda`] without a region or with settings that cannot be.
    pub fn from_environment() -> Result<Self, ClusterError> {
        Self::new(cloud_settings().collect())
    }

    fn new(settings: HashMap<String, String>) -> Result<Self, ClusterError> {
        let failed = |problem: String| ClusterError::Lambda { problem };
        let setting = |key: &str| settings.get(key).filter(|value| !value.is_empty()).cloned();
        let region = setting("AWS_REGION").or_else(|| setting("AWS_DEFAULT_REGION"));
        let region = region.ok_or_else(|| failed("set AWS_REGION".to_owned()))?;
        let endpoint = setting("AWS_ENDPOINT_URL_LAMBDA").or_else(|| setting("AWS_ENDPOINT_URL"));
        let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        let endpoint = endpoint.unwrap_or_else(|| format!("https://lambda.{region}.{domain}"));
        // A store's builder knows all the places that credentials come from.
        let mut builder = AmazonS3Builder::new().with_bucket_name("none").with_region(&region);
        for (key, value) in &settings {
            if let Ok(key) = key.to_ascii_lowercase().parse() {
                builder = builder.with_config(key, value);
            }
        }
        let store = builder.build().map_err(|error| failed(error.to_string()))?;
        let options = ClientOptions::new()
            .with_allow_http(endpoint.starts_with("http://"))
            .with_connect_timeout(CONNECT_PATIENCE)
            .with_timeout_disabled();
        let client = ReqwestConnector::default().connect(&options);
        let client = client.map_err(|error| failed(error.to_string()))?;
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        Ok(Self { client, credentials: store.credentials().clone(), region, endpoint })
    }

    /// Has `function` run the task in `message`, and gives the message that answers it.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] where too many run already;
    /// [`io::ErrorKind::FileTooLarge`] for a task or an answer that is too long for Lambda; all
    /// others are of the kind after which the same task may be sent again.
    pub async fn invoke(
        &self,
        function: &Function,
        authorization: Option<String>,
        message: &[u8],
    ) -> io::Result<Bytes> {
        let event = Event { task: encoded(message), authorization };
        let event = serde_json::to_vec(&event)?;
        if event.len() > PAYLOAD_BYTES_MAX {
            let problem = format!(
                "the task has {} bytes for {function}, and Lambda takes {PAYLOAD_BYTES_MAX}",
                event.len()
            );
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, problem));
        }
        let mut request = Request::post(format!("{}{}", self.endpoint, function.path()))
            .header("content-type", "application/json")
            .header("x-amz-invocation-type", "RequestResponse")
            .body(event.into())
            .map_err(io::Error::other)?;
        let credential = self.credentials.get_credential().await?;
        AwsAuthorizer::new(&credential, "lambda", &self.region).authorize(&mut request, None);
        let response = self.client.execute(request).await.map_err(io::Error::other)?;
        let (parts, body) = response.into_parts();
        // A little more than a payload, so that what is too long is not taken for something else.
        let body = Limited::new(body, 2 * PAYLOAD_BYTES_MAX).collect().await;
        let body = body.map_err(io::Error::other)?.to_bytes();
        let has_failed = parts.headers.contains_key(FUNCTION_ERROR);
        result(function, parts.status, has_failed, &body)
    }
}

/// The message in an answer of the Invoke API.
fn result(
    function: &Function,
    status: StatusCode,
    has_failed: bool,
    body: &[u8],
) -> io::Result<Bytes> {
    let failed = |kind, problem: &str| Err(io::Error::new(kind, format!("{function}: {problem}")));
    match status {
        StatusCode::OK => {}
        StatusCode::TOO_MANY_REQUESTS => {
            return failed(io::ErrorKind::WouldBlock, "too many invocations at one time");
        }
        StatusCode::PAYLOAD_TOO_LARGE => {
            return failed(io::ErrorKind::FileTooLarge, "the task is too long for Lambda");
        }
        status => {
            let problem = format!("{status}: {}", String::from_utf8_lossy(body));
            return failed(io::ErrorKind::Other, &problem);
        }
    }
    if !has_failed && let Ok(Outcome { answer }) = serde_json::from_slice(body) {
        let answer = decoded(&answer);
        return answer.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
    }
    match serde_json::from_slice::<FunctionError>(body) {
        Ok(error) => {
            let kind = match error.error_type.as_str() {
                TOO_LONG => io::ErrorKind::FileTooLarge,
                _ => io::ErrorKind::Other,
            };
            failed(kind, &format!("{}: {}", error.error_type, error.error_message))
        }
        Err(_) => failed(io::ErrorKind::InvalidData, &String::from_utf8_lossy(body)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_a_name_and_maybe_a_version() {
        let function = Function::parse("scan-1:live").expect("it is one");
        assert_eq!(function.to_string(), "lambda:scan-1:live");
        assert_eq!(function.path(), "/2015-03-31/functions/scan-1/invocations?Qualifier=live");
        for text in ["", "a/b", "a:b:c", ":x", "x:", "arn:aws:lambda:eu-west-1:1:function:f"] {
            assert_eq!(Function::parse(text), None, "{text}");
        }
    }

    #[test]
    fn each_answer_of_lambda_has_its_meaning() {
        let function = Function::parse("f").expect("it is one");
        let kind = |status, has_failed, body: &str| {
            let result = result(&function, status, has_failed, body.as_bytes());
            result.map(|bytes| bytes.len()).map_err(|error| error.kind())
        };
        let ok = StatusCode::OK;
        assert_eq!(kind(ok, false, r#"{"answer":"AAEC"}"#), Ok(3));
        assert_eq!(kind(ok, true, r#"{"answer":"AAEC"}"#), Err(io::ErrorKind::Other));
        assert_eq!(kind(ok, false, r#"{"answer":"%"}"#), Err(io::ErrorKind::InvalidData));
        let timed_out = r#"{"errorType":"Sandbox.Timedout","errorMessage":"Task timed out"}"#;
        assert_eq!(kind(ok, true, timed_out), Err(io::ErrorKind::Other));
        let long = format!(r#"{{"errorType":"{TOO_LONG}","errorMessage":"it has 7 MB"}}"#);
        assert_eq!(kind(ok, true, &long), Err(io::ErrorKind::FileTooLarge));
        let throttled = StatusCode::TOO_MANY_REQUESTS;
        assert_eq!(kind(throttled, false, "{}"), Err(io::ErrorKind::WouldBlock));
        let missing = StatusCode::NOT_FOUND;
        assert_eq!(kind(missing, false, "{}"), Err(io::ErrorKind::Other));
        assert_eq!(kind(ok, false, "no JSON"), Err(io::ErrorKind::InvalidData));
    }

    #[test]
    fn the_endpoint_is_the_region_s_or_another() {
        let settings = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert!(Invoker::new(HashMap::new()).is_err(), "there is no region");
        let invoker = Invoker::new(settings(&[("AWS_REGION", "eu-west-1")])).expect("a client");
        assert_eq!(invoker.endpoint, "https://lambda.eu-west-1.amazonaws.com");
        let here = [("AWS_REGION", "x"), ("AWS_ENDPOINT_URL_LAMBDA", "http://127.0.0.1:1/")];
        let invoker = Invoker::new(settings(&here)).expect("a client");
        assert_eq!(invoker.endpoint, "http://127.0.0.1:1");
    }
}
