//! One schema, without the schemas that it is made with.

use crate::answer::{LinkAnswer, SchemaAnswer};
use crate::ask::{Ask, Place};
use crate::error::RegistryError;
use crate::exchange::Exchange;
use crate::patience::Wait;
use crate::schema::{Body, SchemaKind};

/// A schema as it stands in one place.
pub(crate) struct Fetched {
    pub(crate) id: Option<u32>,
    pub(crate) version: Option<u32>,
    pub(crate) kind: SchemaKind,
    pub(crate) body: Body,
    pub(crate) links: Vec<LinkAnswer>,
}

/// The schema at `place`. One of Protobuf is asked for a second time, as a descriptor, which needs
/// no parser of `.proto` files. Not the first time: only the answer says what language it is, and
/// of Avro some registries refuse that format (Redpanda answers 501).
pub(crate) async fn fetch(
    exchange: &Exchange,
    place: Place<'_>,
    wait: &Wait<'_>,
) -> Result<Fetched, RegistryError> {
    let first: SchemaAnswer = exchange.ask(&Ask::Schema { place, serialized: false }, wait).await?;
    let Some(kind) = SchemaKind::named(first.kind.as_deref()) else {
        let language: String = first.kind.unwrap_or_default().chars().take(40).collect();
        return Err(RegistryError::Unusable {
            schema: place.to_string(),
            problem: format!("it is of the kind {language:?}; AVRO, PROTOBUF and JSON are known"),
        });
    };
    let SchemaAnswer { id, version, references, .. } = first;
    let mut body = Body::new(kind, first.schema);
    if kind == SchemaKind::Protobuf && matches!(body, Body::Text(_)) {
        // What is latest may be another one by now.
        let place = match place {
            Place::Version { subject, version: None } => Place::Version { subject, version },
            Place::Reference { subject, version: None } => Place::Reference { subject, version },
            other => other,
        };
        let serialized = Ask::Schema { place, serialized: true };
        match exchange.ask::<SchemaAnswer>(&serialized, wait).await {
            Ok(second) => body = Body::new(kind, second.schema),
            Err(
                RegistryError::Invalid { .. }
                | RegistryError::NotARegistry { .. }
                | RegistryError::NoSuchSchema { .. }
                | RegistryError::NoSuchVersion { .. },
            ) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Fetched { id, version, kind, body, links: references.unwrap_or_default() })
}
