//! The scripts that write. Each is one step that happens whole, or, where its first command is
//! refused, not at all; what one may write is bounded, since a server does nothing else meanwhile.

use redis::Script;

const ROWS: &str = include_str!("rows.lua");

/// All scripts of a sink.
pub(super) struct Scripts {
    /// Takes the query over.
    pub(super) claim: Script,
    /// Writes a micro-batch of one piece.
    pub(super) publish: Script,
    /// Puts a piece of a larger one aside.
    pub(super) stage: Script,
    /// Decides that it is published.
    pub(super) commit: Script,
    /// Applies a piece.
    pub(super) apply: Script,
    /// In a cluster: gives the next piece that is to be applied.
    pub(super) next: Script,
    /// In a cluster: writes what is in one slot.
    pub(super) slot: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        let script = |body: &str| Script::new(&format!("{ROWS}\n{body}"));
        Self {
            claim: Script::new(include_str!("claim.lua")),
            publish: script(include_str!("publish.lua")),
            stage: script(include_str!("stage.lua")),
            commit: script(include_str!("commit.lua")),
            apply: script(include_str!("apply.lua")),
            next: script(include_str!("next.lua")),
            slot: script(include_str!("slot.lua")),
        }
    }
}
