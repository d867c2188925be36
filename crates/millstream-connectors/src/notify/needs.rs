//! Files that channels of notifications have in common.

use std::path::Path;

use millstream_engine::api::needs::Need;

use crate::paths::resolve;

/// The file of authorities and the one for what is refused, where there are such.
pub(crate) fn files(
    authorities: Option<&str>,
    refused: Option<&str>,
    base_dir: &Path,
) -> Vec<Need> {
    let shown = |path: &str| resolve(base_dir, path).display().to_string();
    let authorities = authorities.map(|path| Need::reads(shown(path), "the authorities of TLS"));
    let refused = refused.map(|path| Need::writes(shown(path), "what the receiver refuses"));
    authorities.into_iter().chain(refused).collect()
}
