//! A source's private part of the checkpoint.

/// A source's private directory in the checkpoint, `sources/<id>/`.
pub struct SourceLog {}
