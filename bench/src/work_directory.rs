//! Where a benchmark keeps the broker's data, pipeline files, checkpoints, tables and logs while it
//! runs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;

const PREFIX: &str = "millstream-bench-";

/// A directory that is removed when dropped.
///
/// It carries the process id in its name: what a killed benchmark left behind is recognised and
/// removed by the next one.
pub struct WorkDirectory {
    path: PathBuf,
}

impl WorkDirectory {
    /// Makes this process's directory in the system's place for temporary files.
    pub fn create() -> Result<Self, Error> {
        Self::create_in(&std::env::temp_dir())
    }

    /// Makes it in `parent`.
    pub fn create_in(parent: &Path) -> Result<Self, Error> {
        remove_left_behind(parent);
        let path = parent.join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir_all(&path).map_err(Error::file("create", &path))?;
        Ok(Self { path })
    }

    /// Makes a directory in it.
    pub fn subdirectory(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.path.join(name);
        fs::create_dir_all(&path).map_err(Error::file("create", &path))?;
        Ok(path)
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next benchmark.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn remove_left_behind(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        let pid = pid.and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            // Another user's: not ours to remove.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_itself_and_what_the_dead_left() {
        let parent = std::env::temp_dir().join(format!("sweep-{}", std::process::id()));
        // Process ids end at 4 million on Linux, so this one never lived.
        let dead = parent.join(format!("{PREFIX}999999999"));
        let alive = parent.join(format!("{PREFIX}1"));
        let other = parent.join("somebody-else-999999999");
        for path in [&dead, &alive, &other] {
            fs::create_dir_all(path).expect("the temporary directory is writable");
        }
        let own = WorkDirectory::create_in(&parent).expect("it can be made");
        let path = own.path.clone();
        fs::write(own.subdirectory("run").expect("it can be made").join("x"), "x").expect("same");
        assert!(!dead.exists() && alive.exists() && other.exists());
        drop(own);
        assert!(!path.exists());
        fs::remove_dir_all(parent).expect("it was made above");
    }
}
