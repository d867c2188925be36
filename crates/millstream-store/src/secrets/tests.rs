use super::*;

const SECRET: &str = "hunter2/x+y";

#[test]
fn secrets_are_found_where_they_stand() {
    let texts = [
        "'kafka.sasl.password' = 'hunter2/x+y'",
        "'kafka.sasl.password' 'hunter2/x+y'",
        "'kafka.sasl.password' = 'größe hunter2/x+y \u{1F600}'",
        "'kafka.sasl.pasword' = \"hunter2/x+y\"",
        "OPTIONS (kafka.sasl.password 'hunter2/x+y')",
        "invalid value 't.kafka.sasl.password hunter2/x+y' for '--set'",
        "'a 'kafka.sasl.password' = 'hunter2/x+y'",
        "'kafka.sasl.password' = 'hunter2/x+y",
        "-- password: hunter2/x+y",
        "'sasl.jaas.config' = 'Login required username=\"a\" password=\"hunter2/x+y\";'",
        "s3://KEY:hunter2/x+y@bucket/table",
        "https://hunter2%2Fx+y@host/ and s3://AKIA:hunter2/x+y@b",
        "abfss://container@account/table?sv=1&sig=hunter2/x+y#x",
        "'ssl.key.pem' = '-----BEGIN PRIVATE KEY-----\nhunter2/x+y\n-----END PRIVATE KEY-----'",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2/x+y",
        "SELECT AES_ENCRYPT(concat(a, ', (', b), 'hunter2/x+y', 'GCM') FROM t",
        "SELECT try_aes_decrypt (\n  x,\n  concat(salt, 'hunter2/x+y')",
        "SELECT `aes_decrypt`(X'00', 'hunter2/x+y",
    ];
    for text in texts {
        for hidden in [masked(text), redacted_source(text).into_owned()] {
            assert!(!hidden.contains("hunter2"), "{text}\n{hidden}");
            assert!(!hidden.contains("x+y"), "{text}\n{hidden}");
        }
        assert_eq!(masked(text).chars().count(), text.chars().count());
        assert_eq!(masked(text).len(), text.len());
        assert_eq!(redacted(&masked(text)), masked(text));
        assert_eq!(masked(text).lines().count(), text.lines().count());
    }
    let messages = [
        "'kafka.sasl.password' is 'hunter2/x+y', but should be longer",
        "{\"password\":\"hunter2/x+y\"}",
        "{\\\"password\\\":\\\"hunter2/x+y\\\"}",
        "Settings { secret_access_key: \"hunter2/x+y\", region: \"eu\" }",
        "password=hunter2/x+y&user=a",
        "Authorization: Basic hunter2/x+y",
        "cannot reach https://a:hunter2/x+y@host:80/p",
        "GET https://host/p?X-Amz-Signature=hunter2/x+y&a=b failed",
        "aes_encrypt(Utf8(\"a, (\"),CAST(Utf8(\"hunter2/x+y\") AS Binary)) failed",
        "{\"sql\":\"SELECT aes_encrypt(x, \\\"hunter2/x+y\\\")\"}",
    ];
    for text in messages {
        let hidden = redacted(text);
        assert!(!hidden.contains("hunter2") && !hidden.contains("x+y"), "{text}\n{hidden}");
    }
}

#[test]
fn what_is_no_secret_stays() {
    let texts = [
        "error: flow 'token' failed: the topic is away",
        "unexpected token: expected a name, found ')'",
        "the secret of 'x' is told",
        "abfss://container@account.dfs.core.windows.net/table",
        "kafka://host:9092/topic",
        "http://127.0.0.1:9100/metrics",
        "s3://bucket/a@b/c",
        "'kafka.sasl.password' = '${env:KAFKA_PASSWORD}'",
        "SELECT aes_encrypt('x', k, 'GCM'), aes_decrypt(x, k2)",
    ];
    for text in texts {
        assert_eq!(redacted(text), text);
    }
    let sources = [
        "SELECT token, secret FROM STREAM t",
        "'kafka.sasl.password' = '${file:/run/secrets/x}', 'topic' = 'a'",
        "'key' = 'a', 'path' = 's3://bucket/x'",
    ];
    for text in sources {
        assert_eq!(masked(text), text);
    }
}

#[test]
fn keys_of_ciphers_are_hidden_in_plans() {
    let plan = "expr=[aes_encrypt(concat(a@0, x), 68756E74657232..., GCM) as c, upper(a@0) as d]";
    let hidden = "expr=[aes_encrypt(concat(a@0, x),***) as c, upper(a@0) as d]";
    assert_eq!(redacted_values(plan), hidden);
    let plan = "Projection: try_aes_decrypt(t.a, Binary(\"1,2\")), t.b";
    assert_eq!(redacted_values(plan), "Projection: try_aes_decrypt(t.a,***), t.b");
}

/// Each call to its end would be the square of the length, minutes for a megabyte.
#[test]
fn keys_of_calls_within_calls_are_hidden_at_once() {
    let nested = format!("{}x, 'hunter2/x+y'", "aes_encrypt(".repeat(80_000));
    for hidden in
        [masked(&nested), redacted(&nested).into_owned(), redacted_values(&nested).into_owned()]
    {
        assert!(!hidden.contains("hunter2"), "{}", &hidden[hidden.len() - 40..]);
    }
    let few =
        format!("{}x, 'hunter2/x+y'), 'GCM', iv{}", "f(aes_encrypt(".repeat(9), ")".repeat(17));
    assert!(redacted(&few).ends_with(&format!("'GCM', iv{}", ")".repeat(17))), "{few}");
}

#[test]
fn what_is_remembered_is_hidden_wherever_it_comes_up() {
    remember_setting("kafka.sasl.password", "a \"quoted\" pass/word\n");
    remember_setting("path", "s3://AKIAKEYS:slash/ed+key@bucket");
    remember_setting("db.pwd", "cat5");
    let texts = [
        "denied for a \"quoted\" pass/word",
        "{\"text\":\"a \\\"quoted\\\" pass/word\"}",
        "a%20%22quoted%22%20pass%2Fword",
        "slash/ed+key was refused",
    ];
    for text in texts {
        let hidden = redacted(text);
        assert!(hidden.contains(HIDDEN), "{hidden}");
        assert!(!hidden.contains("pass") && !hidden.contains("ed+key"), "{hidden}");
    }
    assert_eq!(redacted("cat5, cat56"), "***, cat56");
    assert_eq!(masked("SELECT 'cat5'"), "SELECT '****'");
    remember_setting("path", SECRET);
    assert_eq!(redacted(SECRET), SECRET);
}

#[test]
fn credentials_of_a_url_are_told_from_a_container() {
    assert_eq!(credentials_in_url("s3://A:b/c@bucket/x"), Some("A:b/c"));
    assert_eq!(credentials_in_url("s3://A@bucket"), Some("A"));
    assert_eq!(credentials_in_url("abfss://c@account/x"), None);
    assert_eq!(credentials_in_url("s3://bucket/x@y"), None);
}
