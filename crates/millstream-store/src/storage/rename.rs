//! Renaming without replacing, in one system call where there is one.

use std::io;
use std::path::Path;

/// Gives `from` the name `to`; fails with `AlreadyExists` if there is such a file.
pub(super) fn rename_if_absent(from: &Path, to: &Path) -> io::Result<()> {
    match rename_in_one_call(from, to) {
        // Some network and user-space file systems know renaming only with replacing.
        Err(error) if is_unsupported(&error) => link_and_unlink(from, to),
        result => result,
    }
}

fn link_and_unlink(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::hard_link(from, to)?;
    std::fs::remove_file(from)
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::ENOTSUP))
        || error.kind() == io::ErrorKind::Unsupported
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn rename_in_one_call(from: &Path, to: &Path) -> io::Result<()> {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    let from = CString::new(from.as_os_str().as_bytes())?;
    let to = CString::new(to.as_os_str().as_bytes())?;
    // SAFETY: both pointers are to NUL-terminated strings that live until the call returns, and
    // the kernel only reads them. AT_FDCWD needs no open file.
    let status = unsafe {
        libc::renameat2(
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            libc::RENAME_NOREPLACE,
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(not(target_os = "linux"))]
fn rename_in_one_call(_from: &Path, _to: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn neither_way_replaces_a_file() {
        for rename in [rename_if_absent, link_and_unlink] {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let (from, to) = (directory.path().join("from"), directory.path().join("to"));
            std::fs::write(&from, "new").expect("written");
            rename(&from, &to).expect("the name is free");
            assert!(!from.exists());

            std::fs::write(&from, "newer").expect("written");
            let error = rename(&from, &to).expect_err("the name is taken");
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
            assert_eq!(std::fs::read(&to).expect("readable"), b"new");
        }
    }
}
