//! The schemas that a schema is made with, and those that they are made with.
//!
//! A registry gives with a schema only where its own references stand. They are followed depth
//! first, so that each comes after those that it needs. A name stands for one schema, the first
//! that is found under it, as in Confluent's own clients.

use std::collections::HashSet;
use std::vec;

use crate::answer::LinkAnswer;
use crate::ask::Place;
use crate::error::RegistryError;
use crate::exchange::Exchange;
use crate::fetch::{Fetched, fetch};
use crate::patience::Wait;
use crate::schema::{Reference, Registered};

/// A schema may be made with so many others, bytes of their texts included. A registry that is not
/// ours may say anything.
pub(crate) const REFERENCES_MAX: usize = 100;
const TEXTS_BYTES_MAX: usize = 16 << 20;

/// A schema whose references are being followed.
struct Open {
    links: vec::IntoIter<LinkAnswer>,
    /// What it is to others; the schema that was asked for is nothing.
    own: Option<Reference>,
}

/// `fetched`, which was at `place`, with all that it is made with.
pub(crate) async fn complete(
    exchange: &Exchange,
    place: Place<'_>,
    id: u32,
    fetched: Fetched,
    wait: &Wait<'_>,
) -> Result<Registered, RegistryError> {
    let unusable = |problem| RegistryError::Unusable { schema: place.to_string(), problem };
    let Fetched { kind, body, links, .. } = fetched;
    let mut registered = Registered { id, kind, body, references: Vec::new() };
    let (mut names, mut bytes) = (HashSet::new(), registered.body.len());
    let mut open = vec![Open { links: links.into_iter(), own: None }];
    while let Some(top) = open.last_mut() {
        let Some(link) = top.links.next() else {
            registered.references.extend(open.pop().and_then(|done| done.own));
            continue;
        };
        let version = version_of(&link).map_err(unusable)?;
        check_cycle(&open, &link, version).map_err(unusable)?;
        if !names.insert(link.name.clone()) {
            continue;
        }
        if names.len() > REFERENCES_MAX {
            return Err(unusable(format!("it refers to more than {REFERENCES_MAX} schemas")));
        }
        let place = Place::Reference { subject: &link.subject, version };
        let fetched = fetch(exchange, place, wait).await?;
        if fetched.kind != kind {
            let other = format!("it is {kind} and refers to {place}, which is {}", fetched.kind);
            return Err(unusable(other));
        }
        bytes += fetched.body.len() + link.name.len() + link.subject.len();
        if bytes > TEXTS_BYTES_MAX {
            let limit = TEXTS_BYTES_MAX >> 20;
            return Err(unusable(format!("with all that it refers to it has over {limit} MiB")));
        }
        let Some(version) = version.or(fetched.version) else {
            return Err(unusable(format!("the registry does not say which is {place}")));
        };
        let own = Reference { name: link.name, subject: link.subject, version, body: fetched.body };
        open.push(Open { links: fetched.links.into_iter(), own: Some(own) });
    }
    Ok(registered)
}

/// The version that `link` is to; `None` is the latest.
fn version_of(link: &LinkAnswer) -> Result<Option<u32>, String> {
    match (link.version, u32::try_from(link.version)) {
        (-1, _) => Ok(None),
        (1.., Ok(version)) => Ok(Some(version)),
        (other, _) => Err(format!("it refers to version {other} of '{}'", link.subject)),
    }
}

/// Refuses a schema that is made with itself.
fn check_cycle(open: &[Open], link: &LinkAnswer, version: Option<u32>) -> Result<(), String> {
    let is_same = |own: &Reference| {
        own.name == link.name || (own.subject == link.subject && Some(own.version) == version)
    };
    match open.iter().filter_map(|open| open.own.as_ref()).find(|own| is_same(own)) {
        Some(own) => Err(format!("'{}' ('{}') refers to itself", own.name, own.subject)),
        None => Ok(()),
    }
}
