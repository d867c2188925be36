//! A hash that is the same in every process and version: it names files and decides places.

/// 64 bits for `parts`, each of which ends where it ends: `["ab", "c"]` differs from `["a", "bc"]`.
///
/// Origin: FNV-1a, with the finalizer of MurmurHash3, whose high bits depend on all of the input.
pub fn stable_hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    for part in parts {
        part.iter().copied().for_each(&mut add);
        (part.len() as u64).to_le_bytes().into_iter().for_each(&mut add);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_changes_and_parts_do_not_run_together() {
        assert_eq!(stable_hash([&b"s3://lake"[..], b"part-0.parquet"]), 17_450_271_705_837_862_503);
        assert_ne!(stable_hash([&b"ab"[..], b"c"]), stable_hash([&b"a"[..], b"bc"]));
    }
}
