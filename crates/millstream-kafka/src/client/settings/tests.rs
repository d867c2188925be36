//! Options as settings.

use super::*;

fn parse(entries: &[(&str, &str)], purpose: Use) -> Result<ClientSettings, OptionError> {
    let servers = [("Kafka.Bootstrap.Servers", "localhost:9092")];
    let entries = servers.iter().chain(entries);
    let entries = entries.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ClientSettings::parse(&Options::new(entries), purpose)
}

fn error(key: &str, value: &str, purpose: Use) -> OptionError {
    parse(&[(key, value)], purpose).expect_err("the option is wrong")
}

#[test]
fn servers_are_required() {
    let error = ClientSettings::parse(&Options::default(), Use::Consumer).unwrap_err();
    assert!(error.problem.contains("kafka.bootstrap.servers"), "{error:?}");
}

#[test]
fn defaults_give_way_to_the_user() {
    let user = [("kafka.isolation.level", "read_committed"), ("kafka.LINGER.ms", "7")];
    let settings = parse(&user, Use::Consumer).unwrap();
    assert_eq!(settings.reader(None).get("isolation.level"), Some("read_committed"));
    assert_eq!(settings.control(Some("g")).get("group.id"), Some("g"));
    assert_eq!(settings.producer().get("linger.ms"), Some("7"));
    let plain = parse(&[], Use::Consumer).unwrap();
    assert_eq!(plain.reader(None).get("isolation.level"), Some("read_uncommitted"));
    assert_eq!(plain.reader(None).get("auto.offset.reset"), Some("error"));
    assert_eq!(plain.producer().get("enable.idempotence"), Some("true"));
    for config in [plain.reader(None), plain.control(None), plain.producer()] {
        config.create_native_config().expect("our own settings are valid");
    }
}

#[test]
fn fewer_acknowledgements_switch_idempotence_off() {
    let settings = parse(&[("kafka.acks", "1")], Use::Producer).unwrap();
    assert_eq!(settings.producer().get("enable.idempotence"), None);
}

#[test]
fn what_spark_refuses_is_refused_with_help() {
    for key in [
        "auto.offset.reset",
        "enable.auto.commit",
        "key.deserializer",
        "value.deserializer",
        "interceptor.classes",
    ] {
        let error = error(&format!("kafka.{key}"), "x", Use::Consumer);
        assert_eq!(error.key, Some(format!("kafka.{key}")));
        assert!(error.help.is_some(), "{key}");
    }
    assert!(error("kafka.value.serializer", "x", Use::Producer).help.is_some());
}

#[test]
fn java_names_are_translated() {
    let user = [
        ("kafka.fetch.max.wait.ms", "20"),
        ("kafka.buffer.memory", "33554432"),
        ("kafka.max.poll.records", "500"),
        (
            "kafka.sasl.jaas.config",
            "org.apache.kafka.common.security.plain.PlainLoginModule \
          required username=\"ann\" password=\"a'b\";",
        ),
    ];
    let settings = parse(&user, Use::Consumer).unwrap();
    assert_eq!(settings.get("fetch.wait.max.ms"), Some("20"));
    assert_eq!(settings.get("queue.buffering.max.kbytes"), Some("32768"));
    assert_eq!(settings.get("max.poll.records"), None);
    assert_eq!(settings.get("sasl.username"), Some("ann"));
    assert_eq!(settings.get("sasl.password"), Some("a'b"));
}

#[cfg(feature = "tls")]
#[test]
fn javas_stores_in_pem_are_translated() {
    let user = [
        ("kafka.ssl.truststore.location", "/trust.pem"),
        ("kafka.ssl.truststore.type", "pem"),
        ("kafka.ssl.keystore.type", "PEM"),
        ("kafka.ssl.keystore.location", "/own.pem"),
        ("kafka.ssl.endpoint.identification.algorithm", ""),
    ];
    let settings = parse(&user, Use::Consumer).unwrap();
    assert_eq!(settings.get("ssl.ca.location"), Some("/trust.pem"));
    assert_eq!(settings.get("ssl.key.location"), Some("/own.pem"));
    assert_eq!(settings.get("ssl.certificate.location"), Some("/own.pem"));
    assert_eq!(settings.get("ssl.endpoint.identification.algorithm"), Some("none"));
    let refused = error("kafka.ssl.truststore.location", "/trust.jks", Use::Consumer);
    assert!(refused.help.unwrap().contains("keytool -exportcert"));
}

#[test]
fn unknown_settings_get_a_suggestion() {
    let error = error("kafka.fetch.min.byte", "1", Use::Consumer);
    assert_eq!(error.help.as_deref(), Some("Did you mean 'kafka.fetch.min.bytes'?"));
}

#[test]
fn values_are_checked_without_connecting() {
    let error = error("kafka.linger.ms", "soon", Use::Producer);
    assert_eq!(error.key.as_deref(), Some("kafka.linger.ms"));
    assert!(error.problem.contains("soon"), "{error:?}");
}

#[cfg(not(feature = "tls"))]
#[test]
fn tls_names_the_feature() {
    for (key, value) in [
        ("kafka.security.protocol", "SASL_SSL"),
        ("kafka.sasl.mechanism", "SCRAM-SHA-256"),
        ("kafka.ssl.ca.location", "/ca.pem"),
    ] {
        let error = error(key, value, Use::Consumer);
        assert!(error.help.unwrap().contains("kafka-tls"), "{key}");
    }
}

#[cfg(feature = "tls")]
#[test]
fn tokens_come_from_who_the_options_name() {
    let sasl =
        |mechanism| [("kafka.security.protocol", "SASL_SSL"), ("kafka.sasl.mechanism", mechanism)];
    let tokens = |mechanism, more: &[(&str, &str)]| {
        let settings = parse(&[&sasl(mechanism)[..], more].concat(), Use::Consumer)?;
        assert_eq!(settings.get("sasl.mechanism"), Some("OAUTHBEARER"));
        assert!(settings.all().all(|(key, _)| !key.contains("oauthbearer")), "librdkafka's");
        Ok::<_, OptionError>(settings.tokens().expect("there are some").clone())
    };
    let url = ("kafka.sasl.oauthbearer.token.endpoint.url", "https://idp/token");
    let jaas = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
                clientId=\"ann\" clientSecret='pl4nted' scope=\"a b\" extension_pool=\"p=1\";";
    let java = tokens("OAUTHBEARER", &[url, ("kafka.sasl.jaas.config", jaas)]).unwrap();
    let named = tokens(
        "oauthbearer",
        &[
            url,
            ("kafka.sasl.oauthbearer.client.credentials.client.id", "ann"),
            ("kafka.sasl.oauthbearer.client.secret", "pl4nted"),
            ("kafka.sasl.oauthbearer.scope", "a b"),
            ("kafka.sasl.oauthbearer.extensions", "pool=p=1"),
            ("kafka.sasl.oauthbearer.method", "OIDC"),
        ],
    );
    assert_eq!(java, named.unwrap());
    assert_eq!(java.extensions(), [("pool".to_owned(), "p=1".to_owned())]);
    assert!(!format!("{java:?}").contains("pl4nted"));

    let module = "software.amazon.msk.auth.iam.IAMLoginModule required;";
    let iam = [("kafka.sasl.jaas.config", module), ("kafka.aws.region", "eu-west-1")];
    assert_eq!(
        format!("{:?}", tokens("AWS_MSK_IAM", &iam).unwrap()),
        "tokens of Iam(Iam { region: \"eu-west-1\" })"
    );
    let handler = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler";
    let handler = ("kafka.sasl.login.callback.handler.class", handler);
    assert!(tokens("OAUTHBEARER", &[handler, iam[1]]).is_ok());

    let role = "software.amazon.msk.auth.iam.IAMLoginModule required awsRoleArn=\"arn:x\";";
    for (more, wanted) in [
        (&[][..], "token.endpoint.url"),
        (&[url][..], "client.id"),
        (&[("kafka.sasl.oauthbearer.token.endpoint.url", "idp")], "https://"),
        (&[url, ("kafka.sasl.oauthbearer.method", "default")], "oidc"),
        (&[url, ("kafka.sasl.oauthbearer.extensions", "auth=x")], "name=value"),
        (&[("kafka.sasl.jaas.config", role)], "awsRoleArn"),
        (&[url, ("kafka.sasl.login.callback.handler.class", "io.x.Handler")], "Java code"),
    ] {
        let error = tokens("OAUTHBEARER", more).unwrap_err();
        assert!(format!("{error}").contains(wanted), "{wanted}: {error}");
    }
}
