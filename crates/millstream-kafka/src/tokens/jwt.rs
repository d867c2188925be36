//! What a token says of itself: as a JSON web token (RFC 7519) it names whose it is and when it
//! ends. Nothing is verified here, which is the brokers' business.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

/// The claims of a token.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Whose it is: `sub`.
    pub subject: Option<String>,
    /// When it ends: `exp`, seconds since the epoch.
    pub ends_s: Option<i64>,
}

/// The claims of a token; none of one that is no JSON web token.
pub fn claims(token: &str) -> Claims {
    let body = token.split('.').nth(1).unwrap_or_default();
    let body = URL_SAFE_NO_PAD.decode(body.trim_end_matches('=')).unwrap_or_default();
    let claims: Value = serde_json::from_slice(&body).unwrap_or_default();
    let ends = &claims["exp"];
    Claims {
        subject: claims["sub"].as_str().map(str::to_owned),
        ends_s: ends.as_i64().or_else(|| ends.as_f64().map(|seconds| seconds as i64)),
    }
}

/// True for a text that may be a token (RFC 6750, 2.1).
pub fn is_token(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    let text = text.trim_end_matches('=');
    !text.is_empty() && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_read_and_what_is_no_token_has_none() {
        let body = URL_SAFE_NO_PAD.encode(r#"{"sub":"ann","exp":1767225600.0,"x":[]}"#);
        let claims_of =
            |subject: Option<&str>, ends_s| Claims { subject: subject.map(str::to_owned), ends_s };
        assert_eq!(claims(&format!("e30.{body}.sig")), claims_of(Some("ann"), Some(1_767_225_600)));
        for other in ["", "opaque", "a.b.c", "..", "a.!!.c"] {
            assert_eq!(claims(other), Claims::default(), "{other}");
        }
    }

    #[test]
    fn a_token_is_one_word() {
        assert!(is_token("abc.DEF-1_2~+/=="));
        for other in ["", "a b", "a\nb", "=", "a\u{1}b", "ü"] {
            assert!(!is_token(other), "{other}");
        }
    }
}
