//! What a table needs of its server: commands, keys and channels of an ACL.

use std::path::Path;

use arrow::datatypes::SchemaRef;
use millstream_engine::api::connector::{ReadMode, Table};
use millstream_engine::api::needs::{Need, Role, Usage};
use millstream_engine::api::options::OptionError;

use super::lookup::RedisLookup;
use super::options::{Model, SinkOptions};
use super::server::of_cluster;
use super::source::SourceOptions;

/// What a table needs in its role.
///
/// # Errors
/// As when the table is checked.
pub(super) fn needs(
    table: &Table,
    usage: &Usage<'_>,
    base_dir: &Path,
) -> Result<Vec<Need>, OptionError> {
    match usage.role {
        Role::Written(schema) => written(table, schema, base_dir),
        Role::Read(ReadMode::Batch) => Ok(RedisLookup::check(table, base_dir)?.needs()),
        Role::Read(mode) => Ok(SourceOptions::parse(table, mode, base_dir)?.needs()),
    }
}

fn written(table: &Table, schema: &SchemaRef, base_dir: &Path) -> Result<Vec<Need>, OptionError> {
    let options = SinkOptions::parse(table, schema, base_dir)?;
    let mut needs = options.server.needs();
    let own = ["EVALSHA", "SCRIPT|LOAD", "INFO", "HGET", "HGETALL", "HSET", "HMGET", "HDEL", "DEL"];
    let staged = ["GET", "SET", "LINDEX", "LLEN", "LPOP", "RPUSH", "EXPIRE"];
    let purpose = "the record of progress, and micro-batches that are larger than one call";
    needs.push(Need::rights(&[&own[..], &staged[..]].concat(), "keys 'millstream:*'", purpose));
    let mut commands = of_model(options.model).to_vec();
    if options.model != Model::Publish && options.ttl_s.is_some() {
        commands.push("EXPIRE");
    }
    needs.push(Need::rights(&commands, places(&options), "the rows"));
    if options.wait_replicas > 0 {
        needs.push(Need::rights(&["WAIT"], "the server", "'wait.replicas'"));
    }
    needs.push(of_cluster());
    Ok(needs)
}

/// The commands that scripts use for rows.
fn of_model(model: Model) -> &'static [&'static str] {
    match model {
        Model::Hash => &["TYPE", "HSET", "HDEL"],
        Model::String | Model::Json => &["SET", "DEL"],
        Model::List => &["TYPE", "RPUSH"],
        Model::Set => &["TYPE", "SADD"],
        Model::Stream => &["TYPE", "XADD"],
        Model::Publish => &["PUBLISH"],
    }
}

fn places(options: &SinkOptions) -> String {
    let kind = if options.model == Model::Publish { "channel" } else { "key" };
    match options.key.is_empty() {
        true => format!("{kind} '{}'", options.prefix),
        false => format!("{kind}s '{}:*'", options.prefix),
    }
}
