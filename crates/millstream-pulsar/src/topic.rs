//! Names of topics.

/// What stands before the number of a partition in its name.
const PARTITION: &str = "-partition-";
/// What names of topics begin with that are kept on disk.
pub(crate) const PERSISTENT: &str = "persistent://";
/// What the names of topics begin with that hold the progress of queries.
pub(crate) const PROGRESS: &str = "millstream-progress-";
/// Where a topic is whose name says no more than that.
const DEFAULT_NAMESPACE: &str = "public/default";

/// The full name of a topic, `persistent://TENANT/NAMESPACE/TOPIC`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn full_name(name: &str) -> Result<String, &'static str> {
    let name = name.trim();
    if name.starts_with("non-persistent://") {
        return Err("topics that are not persistent cannot be read again after a failure");
    }
    let local = name.strip_prefix(PERSISTENT).unwrap_or(name);
    let parts: Vec<&str> = local.split('/').collect();
    if local.contains("://") || parts.iter().any(|part| part.trim().is_empty()) {
        return Err("write NAME, or persistent://TENANT/NAMESPACE/NAME");
    }
    if local.chars().any(|letter| letter.is_control() || letter == '"') {
        return Err("it has a character that names cannot have");
    }
    match parts.len() {
        1 if local.len() == name.len() => Ok(format!("{PERSISTENT}{DEFAULT_NAMESPACE}/{local}")),
        3 => Ok(format!("{PERSISTENT}{local}")),
        _ => Err("write NAME, or persistent://TENANT/NAMESPACE/NAME"),
    }
}

/// `TENANT/NAMESPACE` of a full name.
pub(crate) fn namespace(topic: &str) -> &str {
    let local = topic.strip_prefix(PERSISTENT).unwrap_or(topic);
    local.rsplit_once('/').map_or(local, |(namespace, _)| namespace)
}

/// What a full name says within its namespace.
pub(crate) fn local_name(topic: &str) -> &str {
    topic.rsplit_once('/').map_or(topic, |(_, name)| name)
}

/// The name of a partition.
pub(crate) fn partition(topic: &str, number: u32) -> String {
    format!("{topic}{PARTITION}{number}")
}

/// The topic that a partition is of, which is itself where it has no partitions.
pub(crate) fn whole(partition: &str) -> &str {
    match partition.rsplit_once(PARTITION) {
        Some((topic, number)) if is_number(number) => topic,
        _ => partition,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed() {
        assert_eq!(full_name("in"), Ok("persistent://public/default/in".to_owned()));
        let full = "persistent://tenant/space/in-partition-3";
        assert_eq!(full_name(full).as_deref(), Ok(full));
        assert_eq!(full_name("tenant/space/in"), Ok("persistent://tenant/space/in".to_owned()));
        for wrong in ["", "a/b", "persistent://in", "http://a/b", "a/b/", "non-persistent://a/b/c"]
        {
            assert!(full_name(wrong).is_err(), "{wrong}");
        }
        assert_eq!(namespace(full), "tenant/space");
        assert_eq!(whole(full), "persistent://tenant/space/in");
        assert_eq!(local_name(full), "in-partition-3");
        assert_eq!(whole("a-partition-"), "a-partition-");
        assert_eq!(partition("t", 2), "t-partition-2");
    }
}
