//! Table locations as people write them: a path, or a URL.

use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use millstream_store::env::Env;
use millstream_store::error::{Classified, Kind};
use millstream_store::secrets::{credentials_in_url, redacted};
use millstream_store::storage::{cloud_settings, is_cloud};
use object_store::path::Path;
use url::Url;

use super::TableStore;
use super::local::LocalDisk;

/// What is wrong with a URL that names a user or a password.
pub const CREDENTIALS: &str = "it has a user or a password in it, which no store takes from there. Leave them out, and give them in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_*, AZURE_*)";

/// Why a location cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the table's location {location:?} cannot be used: {problem}")]
pub struct LocationError {
    /// The location as written.
    pub location: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Classified for LocationError {
    fn kind(&self) -> Kind {
        Kind::Config
    }
}

pub(super) fn parse(location: &str, env: &Env) -> Result<TableStore, LocationError> {
    let failed =
        |problem: String| LocationError { location: redacted(location).into_owned(), problem };
    if !location.contains("://") && !location.starts_with("file:") {
        return local(PathBuf::from(location), env).map_err(failed);
    }
    if credentials_in_url(location).is_some() {
        return Err(failed(CREDENTIALS.to_owned()));
    }
    let url = Url::parse(location).map_err(|error| failed(error.to_string()))?;
    match url.scheme() {
        "file" => {
            let path = url.to_file_path();
            let path = path.map_err(|()| failed("it does not name a local path".to_owned()))?;
            local(path, env).map_err(failed)
        }
        scheme if is_cloud(scheme) => {
            let (store, root) = object_store::parse_url_opts(&url, cloud_settings())
                .map_err(|error| failed(error.to_string()))?;
            Ok(TableStore::new(Arc::from(store), root, url, env))
        }
        scheme => Err(failed(format!(
            "{scheme}:// is not known. Write a path, or a URL that begins with file://, s3://, \
             gs:// or az://"
        ))),
    }
}

/// The path with symbolic links resolved as far as it exists: the protocol library does so too, and
/// names of files are found by comparing.
fn without_links(path: &FilePath) -> PathBuf {
    for there in path.ancestors() {
        if let (Ok(resolved), Ok(rest)) = (there.canonicalize(), path.strip_prefix(there)) {
            return resolved.join(rest);
        }
    }
    path.to_owned()
}

fn local(path: PathBuf, env: &Env) -> Result<TableStore, String> {
    let path = std::path::absolute(&path).map_err(|error| error.to_string())?;
    let path = without_links(&path);
    let url =
        Url::from_directory_path(&path).map_err(|()| "it is not an absolute path".to_owned())?;
    let root = Path::from_url_path(url.path()).map_err(|error| error.to_string())?;
    Ok(TableStore::new(Arc::new(LocalDisk::new(env)), root, url, env))
}
