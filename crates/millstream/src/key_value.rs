//! `KEY=VALUE`, as several flags take it.

/// `KEY=VALUE` of a flag.
pub fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() && !key.trim().contains(' ') => {
            Ok((key.trim().to_owned(), value.to_owned()))
        }
        _ => Err("write KEY=VALUE, such as logs.maxOffsetsPerTrigger=1000".into()),
    }
}
