//! Names of settings that are secret.

/// Words that make a name secret wherever they stand in it; without the dots, dashes and capitals
/// that separate its parts.
const WITHIN: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "jaas",
    "signature",
    "authorization",
    "authparams",
    "privatekey",
    "accesskey",
    "accountkey",
    "apikey",
    "sharedkey",
    "storagekey",
    "masterkey",
    "encryptionkey",
    "sslkey",
    "connectionstring",
];
/// Ends of names that are not secret, though one of those words is in them: where tokens come from,
/// and whose they are.
const HARMLESS: &[&str] = &["tokenendpointurl", "credentialsclientid"];
/// Short words that make a name secret only as a whole part of it: `compass` is no `pass`.
const PARTS: &[&str] = &["pwd", "pass", "sig", "sas"];
/// Long words, which are recognized even with one letter wrong: a misspelled name is just
/// what an error shows.
const MISSPELLED: &[&str] = &["password", "passphrase", "secret", "credential"];

/// True for the name of an option, variable or parameter whose value is a secret: known ones, and
/// those that say so, as `kafka.sasl.password`, `fs.s3a.secret.key`, `X-Amz-Signature`, `apiKey`.
pub fn is_secret_key(key: &str) -> bool {
    let flat: String = key.chars().filter(char::is_ascii_alphanumeric).collect();
    let flat = flat.to_ascii_lowercase();
    if HARMLESS.iter().any(|end| flat.ends_with(end)) {
        return false;
    }
    if WITHIN.iter().any(|word| flat.contains(word)) {
        return true;
    }
    let parts = parts(key);
    // The password of Redis, under the name that spark-redis has for it.
    if parts.last().is_some_and(|last| last == "auth") {
        return true;
    }
    let is_meant = |part: &String| {
        PARTS.contains(&part.as_str()) || MISSPELLED.iter().any(|word| is_near(word, part))
    };
    parts.iter().any(is_meant)
}

/// The words of a name, in lower case.
fn parts(key: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    for char in key.chars() {
        let is_start = !char.is_ascii_alphanumeric() || (was_lower && char.is_ascii_uppercase());
        was_lower = char.is_ascii_lowercase();
        if is_start {
            parts.push(String::new());
        }
        if char.is_ascii_alphanumeric() {
            parts.last_mut().expect("there is one").push(char.to_ascii_lowercase());
        }
    }
    parts
}

/// True if one letter is missing, too many or another, or two are exchanged.
fn is_near(word: &str, part: &str) -> bool {
    // After the common beginning one edit may follow, and then the rests must be equal: that is
    // all of the Damerau-Levenshtein distance that one edit needs.
    let (word, part) = (word.as_bytes(), part.as_bytes());
    let same = word.iter().zip(part).take_while(|(one, other)| one == other).count();
    let (word, part) = (&word[same..], &part[same..]);
    match (word, part) {
        ([], [_]) | ([_], []) | ([], []) => true,
        ([_, word @ ..], [_, part @ ..]) if word == part => true,
        ([a, b, word @ ..], [c, d, part @ ..]) if a == d && b == c && word == part => true,
        ([_, rest @ ..], part) if rest == part => true,
        (word, [_, rest @ ..]) => word == rest,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_are_known() {
        for key in [
            "kafka.sasl.password",
            "kafka.sasl.jaas.config",
            "kafka.ssl.key.pem",
            "kafka.ssl.key.password",
            "kafka.ssl.keystore.key",
            "kafka.sasl.oauthbearer.client.secret",
            "fs.s3a.access.key",
            "fs.s3a.secret.key",
            "fs.azure.account.key.x.dfs.core.windows.net",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_ACCESS_KEY_ID",
            "aws_session_token",
            "X-Amz-Signature",
            "sig",
            "apiKey",
            "userPwd",
            "kafka.sasl.pasword",
            "kafka.sasl.passwrod",
            "client.secrt",
        ] {
            assert!(is_secret_key(key), "{key}");
        }
    }

    #[test]
    fn ordinary_names_are_not() {
        for key in [
            "kafka.bootstrap.servers",
            "key",
            "includeKey",
            "path",
            "signal",
            "passed",
            "design",
            "select",
            "server",
            "topic",
            "kafka.partition.assignment.strategy",
        ] {
            assert!(!is_secret_key(key), "{key}");
        }
    }
}
