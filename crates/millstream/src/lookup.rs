//! Values of options that stand in the environment or in files.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use millstream_engine::api::references::{Lookup, Reference};

/// The largest file that is taken for a value, in bytes.
const LENGTH_MAX: u64 = 1 << 20;

/// Looks at variables and files, for a flow that runs.
pub struct Here {
    /// Relative paths are relative to this directory.
    pub base_dir: PathBuf,
}

impl Lookup for Here {
    fn look_up(&self, reference: &Reference) -> Result<Option<String>, String> {
        match reference {
            Reference::Env(name) => variable(name)
                .and_then(|value| value.ok_or_else(|| format!("the variable {name} is not set")))
                .map(Some),
            Reference::File(path) => {
                let path = self.base_dir.join(path);
                let failed = |problem| format!("the file {} {problem}", path.display());
                content(&path).map(Some).map_err(failed)
            }
        }
    }
}

/// Looks at variables that are set, and at no file: for a file that is only checked.
pub struct Variables;

impl Lookup for Variables {
    fn look_up(&self, reference: &Reference) -> Result<Option<String>, String> {
        match reference {
            Reference::Env(name) => variable(name),
            Reference::File(_) => Ok(None),
        }
    }
}

/// True for a variable that is not set; files are not looked at.
pub fn is_missing(reference: &Reference) -> bool {
    matches!(reference, Reference::Env(name) if !matches!(variable(name), Ok(Some(_))))
}

fn variable(name: &str) -> Result<Option<String>, String> {
    if name.contains(['=', '\0']) {
        return Err(format!("{name:?} is not a name of a variable"));
    }
    match std::env::var_os(name).map(std::ffi::OsString::into_string) {
        None => Ok(None),
        Some(Ok(value)) => Ok(Some(value)),
        Some(Err(_)) => Err(format!("the variable {name} is not UTF-8")),
    }
}

/// What is in a file, without the line feed at its end.
fn content(path: &Path) -> Result<String, String> {
    let unreadable = |error| format!("cannot be read: {error}");
    // A pipe that nobody writes to would keep us waiting before we could see what it is.
    let mut options = File::options();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(unreadable)?;
    let facts = file.metadata().map_err(unreadable)?;
    if !facts.is_file() {
        return Err("is no file".to_owned());
    }
    if facts.len() > LENGTH_MAX {
        return Err(format!("has {} bytes, which is no value of an option", facts.len()));
    }
    let mut text = String::new();
    file.take(LENGTH_MAX).read_to_string(&mut text).map_err(unreadable)?;
    let text = text.strip_suffix('\n').map_or(&*text, |text| text.trim_end_matches('\r'));
    match text {
        "" => Err("is empty".to_owned()),
        text => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gives_what_is_in_it_without_its_line_feed() {
        let directory = tempfile::tempdir().expect("a directory");
        let here = Here { base_dir: directory.path().to_owned() };
        let read = |content: &str| {
            std::fs::write(directory.path().join("secret"), content).expect("written");
            here.look_up(&Reference::File("secret".to_owned()))
        };
        assert_eq!(read("a b\n"), Ok(Some("a b".to_owned())));
        assert_eq!(read("a\r\n"), Ok(Some("a".to_owned())));
        assert_eq!(read("a\nb\n\n"), Ok(Some("a\nb\n".to_owned())));
        assert!(read("\n").expect_err("empty").ends_with("is empty"));
        let gone = here.look_up(&Reference::File("gone".to_owned())).expect_err("gone");
        assert!(gone.contains("/gone cannot be read"), "{gone}");
        let directory = here.look_up(&Reference::File(".".to_owned())).expect_err("no file");
        assert!(directory.ends_with("is no file"), "{directory}");
    }

    #[test]
    fn a_variable_that_is_not_set_is_an_error_only_for_a_run() {
        let unset = Reference::Env("MILLSTREAM_NOT_SET_ANYWHERE".to_owned());
        assert_eq!(Variables.look_up(&unset), Ok(None));
        let here = Here { base_dir: PathBuf::new() };
        assert!(here.look_up(&unset).expect_err("not set").ends_with("is not set"));
    }
}
