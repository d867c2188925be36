//! The nodes of a text, in the order in which they stand there.

use super::events::{Event, NotRead, whole};

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What holds the outermost element.
    Root,
    Element(String),
    Attribute(String, String),
    Text(String),
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) parent: usize,
    /// Behind the last node within it.
    pub(super) end: usize,
}

/// A text as nodes. The first one is the root; behind an element come its attributes, then what is
/// in it.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(super) nodes: Vec<Node>,
}

impl Tree {
    /// The nodes of a text; `None` if it is no XML.
    ///
    /// # Errors
    /// It has what is not read here.
    pub(crate) fn of(text: &str) -> Result<Option<Self>, NotRead> {
        let mut nodes = vec![Node { kind: Kind::Root, parent: 0, end: 0 }];
        let mut parent = 0;
        for event in whole(text)? {
            let at = nodes.len();
            match event {
                Event::Start { name, attributes } => {
                    nodes.push(Node { kind: Kind::Element(name), parent, end: 0 });
                    nodes.extend(attributes.into_iter().zip(at + 2..).map(
                        |((name, value), end)| Node {
                            kind: Kind::Attribute(name, value),
                            parent: at,
                            end,
                        },
                    ));
                    parent = at;
                }
                Event::Text(text) => {
                    nodes.push(Node { kind: Kind::Text(text), parent, end: at + 1 });
                }
                Event::End(_) => {
                    nodes[parent].end = at;
                    parent = nodes[parent].parent;
                }
                Event::Malformed => return Ok(None),
            }
        }
        nodes[0].end = nodes.len();
        Ok(Some(Self { nodes }))
    }

    /// What is written in a node.
    pub(super) fn text(&self, at: usize) -> String {
        match &self.nodes[at].kind {
            Kind::Text(text) | Kind::Attribute(_, text) => text.clone(),
            Kind::Root | Kind::Element(_) => {
                let within = &self.nodes[at..self.nodes[at].end];
                let texts = within.iter().filter_map(|node| match &node.kind {
                    Kind::Text(text) => Some(text.as_str()),
                    _ => None,
                });
                texts.collect()
            }
        }
    }

    /// The text or the value that a node has itself, which an element has not.
    pub(crate) fn own_text(&self, at: usize) -> Option<&str> {
        match &self.nodes[at].kind {
            Kind::Text(text) | Kind::Attribute(_, text) => Some(text),
            Kind::Root | Kind::Element(_) => None,
        }
    }

    /// The name of an element or an attribute.
    pub(super) fn name(&self, at: usize) -> &str {
        match &self.nodes[at].kind {
            Kind::Element(name) | Kind::Attribute(name, _) => name,
            Kind::Root | Kind::Text(_) => "",
        }
    }

    pub(super) fn is_attribute(&self, at: usize) -> bool {
        matches!(self.nodes[at].kind, Kind::Attribute(..))
    }
}
