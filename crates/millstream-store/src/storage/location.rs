//! Checkpoint locations as people write them: a path, or a URL.

use std::path::{Path, PathBuf};
#[cfg(feature = "cloud")]
use std::sync::Arc;
use std::time::Duration;

use url::Url;

use super::{Latency, Storage};
use crate::env::Env;
use crate::error::{Classified, Kind};
use crate::secrets;

/// Why a location cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LocationError {
    /// It is a URL, but not a proper one.
    #[error(
        "the checkpoint location {location:?} is not a valid URL: {problem}. Write a path, or a URL such as file:///var/checkpoint or s3://bucket/checkpoint"
    )]
    Invalid {
        /// The location.
        location: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A URL whose scheme is not known.
    #[error(
        "the checkpoint location {location:?} begins with {scheme}://, which is not known. Write a path, or a URL that begins with file://, s3://, gs:// or az://"
    )]
    UnknownScheme {
        /// The location.
        location: String,
        /// What stands before `://`.
        scheme: String,
    },
    /// A user and a password in the URL.
    #[error(
        "the checkpoint location {location:?} has a user or a password in it, which no store takes from there. Leave them out, and give them in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_*, AZURE_*)"
    )]
    Credentials {
        /// The location, without them.
        location: String,
    },
    /// The URL of an object store, in a program built without the feature `cloud`.
    #[error(
        "the checkpoint location {location:?} is in an object store, and this program was built without them. Use a build with the feature `cloud`, or a local path"
    )]
    NotBuiltIn {
        /// The location.
        location: String,
    },
    /// The settings of the object store are incomplete or wrong.
    #[error("the object store of the checkpoint location {location:?} cannot be used: {problem}")]
    Store {
        /// The location.
        location: String,
        /// What the client said.
        problem: String,
    },
}

impl Classified for LocationError {
    fn kind(&self) -> Kind {
        Kind::Config
    }
}

/// The storage at `location`; nothing is touched yet.
///
/// A plain path or a `file:` URL is local. `s3://`, `gs://`, `az://` and their variants need the
/// feature `cloud`; their credentials come from the usual environment variables (`AWS_*`,
/// `GOOGLE_*`, `AZURE_*`). `memory:///` is a new storage of its own, for tests; with
/// `?put_latency_ms=30&list_latency_ms=30&delete_latency_ms=30` requests take that long, for
/// benchmarks.
pub fn parse(location: &str, env: &Env) -> Result<Storage, LocationError> {
    let is_url = location.contains("://") || location.starts_with("file:");
    if !is_url {
        return Ok(Storage::local(Path::new(location), env));
    }
    if secrets::credentials_in_url(location).is_some() {
        return Err(LocationError::Credentials { location: secrets::redacted(location).into() });
    }
    let invalid = |problem: String| LocationError::Invalid { location: location.into(), problem };
    let url = Url::parse(location).map_err(|error| invalid(error.to_string()))?;
    match url.scheme() {
        "file" => {
            let path: PathBuf = url
                .to_file_path()
                .map_err(|()| invalid("it does not name a local path".to_owned()))?;
            Ok(Storage::local(path, env))
        }
        "memory" => Ok(Storage::in_memory_with_latency(env, latency(&url).map_err(invalid)?)),
        scheme if is_cloud(scheme) => cloud(location, &url),
        scheme => Err(LocationError::UnknownScheme {
            location: location.to_owned(),
            scheme: scheme.to_owned(),
        }),
    }
}

/// What the parameters of a `memory:` URL ask for.
fn latency(url: &Url) -> Result<Latency, String> {
    let mut latency = Latency::default();
    for (key, text) in url.query_pairs() {
        let time = match &*key {
            "put_latency_ms" => &mut latency.put,
            "list_latency_ms" => &mut latency.list,
            "delete_latency_ms" => &mut latency.delete,
            other => return Err(format!("{other} is no parameter of a storage in memory")),
        };
        let problem = |_| format!("{key} should be milliseconds");
        *time = Duration::from_millis(text.parse().map_err(problem)?);
    }
    Ok(latency)
}

/// Whether URLs with `scheme`, in lower case, are of object stores.
pub fn is_cloud(scheme: &str) -> bool {
    matches!(scheme, "s3" | "s3a" | "gs" | "az" | "adl" | "azure" | "abfs" | "abfss")
}

/// The variables of the environment that have credentials and settings of object stores.
pub fn cloud_settings() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(key, value)| {
        let (key, value) = (key.into_string().ok()?, value.into_string().ok()?);
        let known = ["AWS_", "GOOGLE_", "AZURE_"].iter().any(|prefix| key.starts_with(prefix));
        known.then_some((key, value))
    })
}

#[cfg(not(feature = "cloud"))]
fn cloud(location: &str, _url: &Url) -> Result<Storage, LocationError> {
    Err(LocationError::NotBuiltIn { location: location.to_owned() })
}

#[cfg(feature = "cloud")]
fn cloud(location: &str, url: &Url) -> Result<Storage, LocationError> {
    let (store, prefix) = object_store::parse_url_opts(url, cloud_settings()).map_err(|error| {
        LocationError::Store { location: location.to_owned(), problem: error.to_string() }
    })?;
    Ok(Storage::object(Arc::from(store), prefix, secrets::redacted(location)))
}

#[cfg(test)]
mod tests {
    use super::super::Durability;
    use super::*;

    fn location(text: &str) -> Result<String, LocationError> {
        parse(text, &Env::real()).map(|storage| storage.location())
    }

    #[test]
    fn paths_and_file_urls_are_local() {
        assert_eq!(location("/var/checkpoint").expect("local"), "/var/checkpoint");
        assert_eq!(location("file:///var/a%20b").expect("local"), "/var/a b");
        assert_eq!(location("file:/var/checkpoint").expect("local"), "/var/checkpoint");
        let relative = location("checkpoint/a").expect("local");
        assert!(relative.starts_with('/') && relative.ends_with("/checkpoint/a"), "{relative}");
        assert_eq!(location("memory:///").expect("memory"), "memory://checkpoint");
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_words() {
        let unknown = location("hdfs://name/checkpoint").expect_err("unknown");
        assert!(matches!(unknown, LocationError::UnknownScheme { .. }), "{unknown}");
        assert!(matches!(location("file://host/p"), Err(LocationError::Invalid { .. })));
        for memory in ["memory:///?put_latency_ms=soon", "memory:///?get_latency_ms=3"] {
            assert!(matches!(location(memory), Err(LocationError::Invalid { .. })), "{memory}");
        }
    }

    #[tokio::test]
    async fn requests_take_as_long_as_a_location_in_memory_says() {
        let env = Env::real();
        let url = "memory:///?put_latency_ms=20&delete_latency_ms=80&list_latency_ms=40";
        let storage = parse(url, &env).expect("it is right");
        let put = storage.put_if_absent("a", b"1".to_vec(), Durability::Process);
        let begun = env.monotonic();
        put.await.expect("the name is free");
        let was_put = env.monotonic();
        assert_eq!(storage.list("").await.expect("it lists"), ["a"]);
        let was_listed = env.monotonic();
        storage.delete_many(vec!["a".to_owned()]).await.expect("it is there");
        let took = [was_put - begun, was_listed - was_put, env.monotonic() - was_listed];
        let least = [20, 40, 80].map(Duration::from_millis);
        assert!(took.iter().zip(&least).all(|(took, least)| took >= least), "{took:?}");
    }

    #[cfg(not(feature = "cloud"))]
    #[test]
    fn clouds_need_the_feature() {
        for url in
            ["s3://bucket/checkpoint", "gs://bucket/c", "abfss://c@account.dfs.core.windows.net/c"]
        {
            let error = location(url).expect_err("not built in");
            assert!(error.to_string().contains("`cloud`"), "{error}");
        }
    }

    #[cfg(feature = "cloud")]
    #[test]
    fn clouds_are_parsed() {
        assert_eq!(location("s3://bucket/checkpoint/").expect("s3"), "s3://bucket/checkpoint");
    }
}
