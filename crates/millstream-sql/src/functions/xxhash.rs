//! XXH64 of numbers and bytes, each with a seed, as `xxhash64` uses it.

const PRIMES: [u64; 5] = [
    0x9E37_79B1_85EB_CA87,
    0xC2B2_AE3D_27D4_EB4F,
    0x1656_67B1_9E37_79F9,
    0x85EB_CA77_C2B2_AE63,
    0x27D4_EB2F_1656_67C5,
];

/// The hash of the four bytes of a number.
pub(super) fn of_int(value: i32, seed: u64) -> u64 {
    let hash = seed.wrapping_add(PRIMES[4]).wrapping_add(4);
    finished(with_four(hash, value.cast_unsigned()))
}

/// The hash of the eight bytes of a number.
pub(super) fn of_long(value: i64, seed: u64) -> u64 {
    let hash = seed.wrapping_add(PRIMES[4]).wrapping_add(8);
    finished(with_eight(hash, value.cast_unsigned()))
}

pub(super) fn of_bytes(bytes: &[u8], seed: u64) -> u64 {
    let (stripes, rest) = bytes.as_chunks::<32>();
    let hash = match stripes {
        [] => seed.wrapping_add(PRIMES[4]),
        stripes => of_stripes(stripes, seed),
    };
    let (eights, rest) = rest.as_chunks::<8>();
    let (fours, rest) = rest.as_chunks::<4>();
    let hash = hash.wrapping_add(bytes.len() as u64);
    let hash = eights.iter().fold(hash, |hash, part| with_eight(hash, u64::from_le_bytes(*part)));
    let hash = fours.iter().fold(hash, |hash, part| with_four(hash, u32::from_le_bytes(*part)));
    finished(rest.iter().fold(hash, |hash, byte| {
        let hash = hash ^ u64::from(*byte).wrapping_mul(PRIMES[4]);
        hash.rotate_left(11).wrapping_mul(PRIMES[0])
    }))
}

fn of_stripes(stripes: &[[u8; 32]], seed: u64) -> u64 {
    let mut lanes = [
        seed.wrapping_add(PRIMES[0]).wrapping_add(PRIMES[1]),
        seed.wrapping_add(PRIMES[1]),
        seed,
        seed.wrapping_sub(PRIMES[0]),
    ];
    for stripe in stripes {
        let (parts, _) = stripe.as_chunks::<8>();
        for (lane, part) in lanes.iter_mut().zip(parts) {
            *lane = round(*lane, u64::from_le_bytes(*part));
        }
    }
    let turned = lanes.iter().zip([1, 7, 12, 18]).map(|(lane, bits)| lane.rotate_left(bits));
    let hash = turned.fold(0_u64, u64::wrapping_add);
    lanes.iter().fold(hash, |hash, lane| {
        (hash ^ round(0, *lane)).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3])
    })
}

fn round(lane: u64, part: u64) -> u64 {
    lane.wrapping_add(part.wrapping_mul(PRIMES[1])).rotate_left(31).wrapping_mul(PRIMES[0])
}

fn with_eight(hash: u64, part: u64) -> u64 {
    (hash ^ round(0, part)).rotate_left(27).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3])
}

fn with_four(hash: u64, part: u32) -> u64 {
    let hash = hash ^ u64::from(part).wrapping_mul(PRIMES[0]);
    hash.rotate_left(23).wrapping_mul(PRIMES[1]).wrapping_add(PRIMES[2])
}

fn finished(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 33)).wrapping_mul(PRIMES[1]);
    let hash = (hash ^ (hash >> 29)).wrapping_mul(PRIMES[2]);
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_spark() {
        assert_eq!(of_long(1, 42).cast_signed(), -7_001_672_635_703_045_582);
        assert_eq!(of_int(1, 42).cast_signed(), -6_698_625_589_789_238_999);
        assert_eq!(of_bytes(b"Spark", 42).cast_signed(), -4_294_468_057_691_064_905);
        let long = b"abcdefgh".repeat(10);
        assert_eq!(of_bytes(&long, 42).cast_signed(), 490_681_399_125_966_194);
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        assert_eq!(of_bytes(&bytes, 42).cast_signed(), 2_921_568_789_748_321_628);
        assert_eq!(of_bytes(&7_i32.to_le_bytes(), 42), of_int(7, 42));
        assert_eq!(of_bytes(&7_i64.to_le_bytes(), 42), of_long(7, 42));
    }
}
