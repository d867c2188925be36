//! What reading or writing a directory needs, be it local or in an object store.

use std::path::Path;

use millstream_engine::api::needs::Need;
use url::Url;

use crate::paths::{is_stored, resolve};

/// What is done in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Files are read.
    Read,
    /// Files are read, written and removed.
    Write,
}

/// What it takes to work in the directory at `path`, as written in an option.
pub(crate) fn needs(path: &str, base_dir: &Path, access: Access) -> Vec<Need> {
    if is_stored(path) {
        return in_store(path, access);
    }
    let local = resolve(base_dir, path);
    match access {
        Access::Read => vec![Need::reads(local.display(), "its files")],
        Access::Write => vec![Need::writes(local.display(), "the table's files")],
    }
}

fn in_store(path: &str, access: Access) -> Vec<Need> {
    let scheme = path.split_once("://").map_or("", |(scheme, _)| scheme);
    let (rights, variables) = of_scheme(scheme, access);
    let purpose = match access {
        Access::Read => "reading its files",
        Access::Write => "its files; a version is claimed by a put that replaces nothing",
    };
    let credentials = "the store's credentials, address and region";
    let mut needs = vec![Need::rights(rights, format!("objects below {path}"), purpose)];
    needs.extend(variables.iter().map(|name| Need::variable(name, credentials)));
    if scheme.starts_with("s3") {
        let bucket = Url::parse(path).ok().and_then(|url| url.host_str().map(str::to_owned));
        let bucket = format!("bucket {}", bucket.unwrap_or_default());
        needs.insert(0, Need::rights(&["s3:ListBucket"], bucket, "which files there are"));
    }
    needs
}

type Named = &'static [&'static str];

/// The store's own names of rights, and the variables that are read.
fn of_scheme(scheme: &str, access: Access) -> (Named, Named) {
    let is_read = access == Access::Read;
    match scheme {
        "s3" | "s3a" => (
            if is_read {
                &["s3:GetObject"]
            } else {
                &["s3:GetObject", "s3:PutObject", "s3:DeleteObject"]
            },
            &["AWS_*"],
        ),
        "gs" => (
            if is_read {
                &["storage.objects.list", "storage.objects.get"]
            } else {
                &[
                    "storage.objects.list",
                    "storage.objects.get",
                    "storage.objects.create",
                    "storage.objects.delete",
                ]
            },
            &["GOOGLE_*"],
        ),
        _ => (
            if is_read {
                &["Storage Blob Data Reader"]
            } else {
                &["Storage Blob Data Contributor"]
            },
            &["AZURE_*"],
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, access: Access) -> Vec<String> {
        needs(path, Path::new("/base"), access).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_local_directory_is_named_with_its_whole_path() {
        assert_eq!(lines("in", Access::Read), ["reads /base/in: its files"]);
        assert_eq!(lines("file:///out", Access::Write), ["writes /out: the table's files"]);
    }

    #[test]
    fn a_store_asks_for_the_rights_of_what_is_done() {
        let read = lines("s3://lake/t", Access::Read);
        assert_eq!(read[0], "s3:ListBucket on bucket lake: which files there are");
        assert_eq!(read[1], "s3:GetObject on objects below s3://lake/t: reading its files");
        let written = lines("s3a://lake/t", Access::Write);
        assert!(written[1].contains("s3:PutObject, s3:DeleteObject"), "{written:?}");
        assert!(lines("gs://lake/t", Access::Write)[0].contains("storage.objects.create"));
        assert!(!lines("gs://lake/t", Access::Read)[0].contains("create"));
        assert!(lines("abfss://lake/t", Access::Write)[0].contains("Contributor"));
    }
}
