//! What to do about a refusal, by what librdkafka and OpenSSL say of it. They give no codes for it.

const USER: &str = "Check 'kafka.sasl.username', 'kafka.sasl.password' and 'kafka.sasl.mechanism'";
const RIGHTS: &str = "Give the user the rights, or check the table's 'kafka.*' options for \
                      authentication";
const TOPIC: &str = "Give the user the right Read on the topic where it is read, and Write where it \
                     is written; each includes Describe";
const WRITE: &str = "Give the user the right Write on the topic that is written";
const CERTIFICATE: &str = "The broker's certificate is not accepted. If its authority is not \
                           trusted, name the authority's certificate in 'kafka.ssl.ca.location'; \
                           if it is for another name, use that name in 'kafka.bootstrap.servers' \
                           and in what the broker advertises, or set \
                           'kafka.ssl.endpoint.identification.algorithm' = 'none'; it may also \
                           have expired";
const OWN: &str = "The broker asks its clients for a certificate that it trusts: set \
                   'kafka.ssl.certificate.location' and 'kafka.ssl.key.location'";
const WITHOUT_TLS: &str = "The broker may not speak TLS on this port: check the port, or \
                           'kafka.security.protocol'";
const WITH_TLS: &str = "The broker may want TLS on this port: set 'kafka.security.protocol' to SSL \
                        or SASL_SSL, or check the port";

/// Parts of what is said, in small letters, and what to do then. The first that fits counts.
const KNOWN: [(&str, &str); 13] = [
    ("certificate verify failed", CERTIFICATE),
    ("certificate required", OWN),
    ("bad certificate", OWN),
    ("unknown ca", OWN),
    ("handshake failure", OWN),
    ("connecting to a plaintext", WITHOUT_TLS),
    ("wrong version number", WITHOUT_TLS),
    ("packet length too long", WITHOUT_TLS),
    ("connecting to a ssl listener", WITH_TLS),
    ("incorrect security.protocol", WITH_TLS),
    ("sasl authentication", USER),
    ("topic authorization failed", TOPIC),
    // Who may write to no topic gets no number as an idempotent producer.
    ("cluster authorization failed", WRITE),
];

/// What to do about a refusal.
pub fn of_refusal(reason: &str) -> &'static str {
    known(reason).unwrap_or(RIGHTS)
}

/// True if the brokers let the user in, and not do what it wants.
pub fn is_about_rights(reason: &str) -> bool {
    reason.contains("uthorization failed")
}

/// What to do about a partition that cannot be read, as the end of a sentence.
pub fn of_reading(reason: &str) -> &'static str {
    if is_about_rights(reason) { ". Give the user the right Read on the topic" } else { "" }
}

/// What else may be the cause where nobody answers, as the end of a sentence.
pub fn of_silence(reasons: &[String]) -> String {
    let found = reasons.iter().find_map(|reason| known(reason));
    found.map(|remedy| format!(". {remedy}")).unwrap_or_default()
}

fn known(reason: &str) -> Option<&'static str> {
    let reason = reason.to_lowercase();
    KNOWN.iter().find(|(part, _)| reason.contains(part)).map(|(_, remedy)| *remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_refusal_has_its_remedy() {
        for (reason, option) in [
            ("ssl://a: SSL handshake failed: certificate verify failed", "kafka.ssl.ca.location"),
            ("SASL authentication error: invalid credentials", "kafka.sasl.password"),
            ("tlsv13 alert certificate required", "kafka.ssl.certificate.location"),
            ("Broker: Topic authorization failed", "Read on the topic"),
            ("Broker: Cluster authorization failed", "Write on the topic"),
        ] {
            assert!(of_refusal(reason).contains(option), "{reason}");
        }
        assert_eq!(of_silence(&["Connection refused".to_owned()]), "");
    }

    #[test]
    fn rights_are_told_from_users_that_are_not_let_in() {
        for reason in [
            "TopicAuthorizationFailed (Broker: Topic authorization failed)",
            "Fetch from broker 1 failed: Broker: Topic authorization failed",
        ] {
            assert!(is_about_rights(reason), "{reason}");
            assert!(of_reading(reason).contains("Read"), "{reason}");
        }
        let login = "SASL authentication error: invalid credentials";
        assert!(!is_about_rights(login) && of_reading(login).is_empty());
    }
}
