//! Local paths as `file:` URIs, quoted as Java's `java.net.URI` quotes them.
//!
//! Spark writes paths into its logs this way and compares them as text, so a path must come out
//! exactly as Spark would write it.

use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// `file:///a/b%20c` for `/a/b c`. Characters outside ASCII stay; bytes that are not UTF-8 are
/// quoted.
pub(super) fn encode(path: &Path) -> String {
    let mut uri = String::from("file://");
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_plain(character) {
                uri.push(character);
            } else {
                quote(&mut uri, character.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        quote(&mut uri, chunk.invalid());
    }
    uri
}

/// The path that [`encode`] or Spark made `uri` from; `None` where it is not on the local disk.
pub(super) fn decode(uri: &str) -> Option<PathBuf> {
    let rest = uri.strip_prefix("file:")?;
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if !path.starts_with('/') {
        return None;
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = after;
            continue;
        }
        // Digits only: `from_str_radix` would also accept a sign.
        let digits = after.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        let digits = std::str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &after[2..];
    }
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

fn is_plain(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_alphanumeric() || "/_-!.~'()*,;:$&+=@".contains(character);
    }
    !character.is_whitespace() && !character.is_control()
}

fn quote(uri: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(uri, "%{byte:02X}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_out_as_java_quotes_them() {
        let cases = [
            ("/data/in/b c.json", "file:///data/in/b%20c.json"),
            ("/d/100%#?.csv", "file:///d/100%25%23%3F.csv"),
            ("/d/dt=2026-01-01/[x].json", "file:///d/dt=2026-01-01/%5Bx%5D.json"),
            ("/d/größe.txt", "file:///d/größe.txt"),
        ];
        for (path, uri) in cases {
            assert_eq!(encode(Path::new(path)), uri);
            assert_eq!(decode(uri).unwrap(), Path::new(path));
        }
    }

    #[test]
    fn what_is_not_utf_8_survives() {
        let path = PathBuf::from(OsString::from_vec(b"/d/\xff\xfe".to_vec()));
        assert_eq!(encode(&path), "file:///d/%FF%FE");
        assert_eq!(decode(&encode(&path)).unwrap(), path);
    }

    #[test]
    fn other_spellings_and_other_places() {
        assert_eq!(decode("file:/d/a").unwrap(), Path::new("/d/a"));
        for uri in
            ["s3://b/a", "/d/a", "file://host/a", "file:///a%2", "file:///a%zz", "file:///a%+f"]
        {
            assert_eq!(decode(uri), None, "{uri}");
        }
    }
}
