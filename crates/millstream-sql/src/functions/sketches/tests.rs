//! Sketches as bytes: those of Spark are read, ours are what Spark writes, and no bytes at all
//! bring down what reads them.

use datasketches::hash::value::raw_bytes::from_slice;
use datasketches::hll::{HllSketch, HllType};
use datasketches::kll::{KllFloat, KllSketch};

use super::retained::{ALL, Gathering, Retained};
use super::summaries::{Mode, Number, Summary};
use super::tuple_bytes::{Tuple, read, written};
use super::{hll, kll, kll_text, theta};

/// Spreads numbers over all hashes.
fn hash(number: u64) -> u64 {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1).max(1)
}

fn theta_of(count: u64, lg_nominal: u8) -> theta::Theta {
    let mut gathering = Gathering::new(lg_nominal);
    (0..count).for_each(|number| gathering.add(hash(number), |_| ()));
    gathering.trimmed()
}

fn hll_of(count: u64, lg_k: i32, bits: HllType) -> HllSketch {
    let size = hll::empty_sketch("test", Some(lg_k)).unwrap().lg_config_k();
    let mut sketch = HllSketch::new(size, bits).unwrap();
    (0..count).for_each(|number| sketch.update(from_slice(&number.to_le_bytes())));
    sketch
}

/// Calls `read` with each beginning of some bytes, with each of them changed, and with numbers that
/// claim much put in each place.
fn with_hostile_bytes(good: &[u8], read: impl Fn(&[u8])) {
    (0..good.len()).for_each(|end| read(&good[..end]));
    let mut bytes = good.to_vec();
    for at in 0..good.len().min(64) {
        let all = 0..=u8::MAX;
        let some = [0, 1, 0x7F, 0x80, 0xFF];
        let values = if at < 16 { all.collect() } else { some.to_vec() };
        for value in values {
            bytes[at] = value;
            read(&bytes);
        }
        bytes[at] = good[at];
    }
    for at in 0..good.len().saturating_sub(8).min(64) {
        for claim in [u64::MAX, u64::MAX >> 1, 1 << 32, u64::from(u32::MAX), 1 << 63] {
            bytes[at..at + 8].copy_from_slice(&claim.to_le_bytes());
            read(&bytes);
            bytes[at..at + 8].copy_from_slice(&good[at..at + 8]);
        }
    }
}

#[test]
fn a_theta_sketch_is_itself_again() {
    for count in [0, 1, 2, 7, 8, 9, 100, 10_000] {
        let sketch = theta_of(count, 6);
        let bytes = theta::written(&sketch).unwrap();
        assert_eq!(theta::read("test", &bytes).unwrap(), sketch, "{count} values");
    }
    let none_left = Retained { theta: ALL / 2, is_empty: false, entries: Vec::new() };
    let bytes = theta::written(&none_left).unwrap();
    assert_eq!(theta::read("test", &bytes).unwrap(), none_left);
}

/// The forms that Java's library documents: that of nothing, of one hash, and of several, which
/// begin with the version 4.
#[test]
fn theta_sketches_have_the_bytes_of_data_sketches() {
    let bytes = |count| theta::written(&theta_of(count, 12)).unwrap();
    assert_eq!(bytes(0), [1, 3, 3, 0, 0, 0x1E, 0, 0]);
    let one = bytes(1);
    assert_eq!(one[..8], [1, 3, 3, 0, 0, 0x3A, 0xCC, 0x93]);
    assert_eq!(one[8..], hash(0).to_le_bytes());
    let several = bytes(5);
    assert_eq!((several[0], several[1], several[2], several[5]), (1, 4, 3, 0x1A));
    assert_eq!(several[6..8], [0xCC, 0x93]);
}

/// Sketches of another seed know values by other hashes.
#[test]
fn theta_sketches_of_another_seed_are_refused() {
    let mut bytes = theta::written(&theta_of(5, 12)).unwrap();
    bytes[6] ^= 1;
    let error = theta::read("theta_union", &bytes).unwrap_err().to_string();
    assert!(error.contains("no theta sketch"), "{error}");
}

#[test]
fn hostile_theta_sketches_are_errors() {
    for count in [0, 1, 5, 10_000] {
        let bytes = theta::written(&theta_of(count, 5)).unwrap();
        with_hostile_bytes(&bytes, |bytes| {
            if let Ok(sketch) = theta::read("test", bytes) {
                assert!(sketch.entries.iter().all(|entry| entry.0 > 0 && entry.0 < sketch.theta));
                let mut union = Gathering::new(4);
                union.union(&sketch, |(), ()| ());
                theta::written(&union.trimmed()).unwrap();
            }
        });
    }
    // A billion hashes, of which there are none.
    let claims = [2, 3, 3, 0, 0, 0x1A, 0xCC, 0x93, 0, 0, 0, 0x40, 0, 0, 0, 0];
    assert!(theta::read("test", &claims).is_err());
}

#[test]
fn an_hll_sketch_is_itself_again() {
    for lg_k in [4, 7, 8, 12] {
        for count in [0, 1, 7, 8, 20, 100, 5_000] {
            let sketch = hll_of(count, lg_k, HllType::Hll8);
            let again = hll::read("test", &hll::written(&sketch)).unwrap();
            assert_eq!(again.estimate(), sketch.estimate(), "{count} values, {lg_k}");
            assert_eq!(again.lg_config_k(), sketch.lg_config_k());
        }
    }
}

/// Java's `toUpdatableByteArray` has all places of a list and of a table, and says that it is not
/// compact.
#[test]
fn hll_sketches_have_room_for_more() {
    let list = hll::written(&hll_of(3, 12, HllType::Hll8));
    assert_eq!(list.len(), 8 + 8 * 4);
    assert_eq!(list[..8], [2, 1, 7, 12, 3, 0, 3, 2 << 2]);
    assert!(list[20..].iter().all(|byte| *byte == 0));
    let table = hll::written(&hll_of(20, 12, HllType::Hll8));
    assert_eq!(table.len(), 12 + 32 * 4);
    assert_eq!((table[0], table[4], table[5], table[7]), (3, 5, 0, 1 | (2 << 2)));
    let places = table[12..].chunks_exact(4).filter(|place| **place != [0; 4]).count();
    assert_eq!(places, 20);
    assert_eq!(hll::written(&hll_of(5_000, 4, HllType::Hll8)).len(), 40 + 16);
}

/// Other systems keep four or six bits a register; what is counted is the same.
#[test]
fn hll_sketches_of_fewer_bits_are_read() {
    for lg_k in [4, 9, 12] {
        for count in [3, 500, 50_000] {
            let expected = hll_of(count, lg_k, HllType::Hll8);
            for bits in [HllType::Hll4, HllType::Hll6] {
                let sketch = hll_of(count, lg_k, bits);
                let again = hll::read("test", &sketch.serialize()).unwrap();
                let (found, wanted) = (again.estimate(), expected.estimate());
                assert!((found - wanted).abs() < wanted * 1e-9, "{found} {wanted} {bits:?}");
                let mut union = hll::empty_union(again.lg_config_k()).unwrap();
                union.update(&again);
                union.update(&expected);
                let joined = union.to_sketch(HllType::Hll8).composite_estimate();
                let alone = expected.composite_estimate();
                assert!((joined - alone).abs() < alone * 1e-9, "{joined} {alone} {bits:?}");
            }
        }
    }
}

#[test]
fn hostile_hll_sketches_are_errors() {
    for (count, bits) in [
        (0, HllType::Hll8),
        (5, HllType::Hll8),
        (20, HllType::Hll8),
        (5_000, HllType::Hll8),
        (5_000, HllType::Hll6),
        (5_000, HllType::Hll4),
    ] {
        let sketch = hll_of(count, 8, bits);
        for good in [hll::written(&hll_of(count, 8, HllType::Hll8)), sketch.serialize()] {
            with_hostile_bytes(&good, |bytes| {
                let Ok(sketch) = hll::read("test", bytes) else { return };
                let mut union = hll::empty_union(sketch.lg_config_k()).unwrap();
                union.update(&sketch);
                union.update(&hll_of(3, 8, HllType::Hll8));
                let joined = union.to_sketch(HllType::Hll8);
                assert!(!joined.estimate().is_nan());
                hll::read("test", &hll::written(&joined)).unwrap();
            });
        }
    }
}

fn tuple_of<N: Number>(count: u64, lg_nominal: u8, number: impl Fn(u64) -> N) -> Tuple<N> {
    let mut gathering = Gathering::new(lg_nominal);
    for value in 0..count {
        gathering.add(hash(value), |known: Option<Summary<N>>| {
            known.unwrap_or_else(|| Summary::new(Mode::Sum)).with(number(value))
        });
    }
    gathering.trimmed()
}

#[test]
fn a_tuple_sketch_is_itself_again() {
    for count in [0, 1, 2, 100, 10_000] {
        let doubles = tuple_of(count, 6, |value| value as f64 / 4.0);
        let integers = tuple_of(count, 6, |value| value as i32);
        assert_eq!(read("test", &written(&doubles)).unwrap(), doubles, "{count} values");
        assert_eq!(read("test", &written(&integers)).unwrap(), integers, "{count} values");
    }
    let none_left = Tuple::<f64> { theta: ALL, is_empty: false, entries: Vec::new() };
    assert_eq!(read("test", &written(&none_left)).unwrap(), none_left);
}

/// The form that Java's library documents, with a DOUBLE of eight bytes or an INT of four, and the
/// mode behind it.
#[test]
fn tuple_sketches_have_the_bytes_of_data_sketches() {
    let nothing = written(&tuple_of(0, 12, |_| 0.0));
    assert_eq!(nothing, [1, 3, 9, 1, 0, 0x0E, 0xCC, 0x93]);
    let one = written(&tuple_of(1, 12, |_| 2.5));
    let number = 2.5_f64.to_le_bytes();
    let first = [1, 3, 9, 1, 0, 0x0A, 0xCC, 0x93];
    let wanted = [&first[..], &hash(0).to_le_bytes(), &number, &[0]];
    assert_eq!(one, wanted.concat());
    let two = written(&tuple_of(2, 12, |_| 7));
    assert_eq!(two[..16], [2, 3, 9, 1, 0, 0x0A, 0xCC, 0x93, 2, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(two.len(), 16 + 2 * (8 + 4 + 1));
}

/// A sketch of DOUBLEs is none of INTs, and a theta sketch is no tuple sketch.
#[test]
fn tuple_sketches_of_another_kind_are_refused() {
    let doubles = written(&tuple_of(7, 12, |value| value as f64));
    let error = read::<i32>("tuple_sketch_estimate_integer", &doubles).unwrap_err().to_string();
    assert!(error.contains("tuple_sketch_agg_integer"), "{error}");
    assert!(read::<f64>("test", &theta::written(&theta_of(7, 12)).unwrap()).is_err());
    assert!(theta::read("test", &doubles).is_err());
}

#[test]
fn numbers_become_one_by_their_mode() {
    let all = |mode| [5.0, -2.0, f64::NAN, 3.0].into_iter().fold(Summary::new(mode), Summary::with);
    assert!(all(Mode::Sum).number.is_nan());
    assert_eq!(all(Mode::Min).number, -2.0);
    assert_eq!(all(Mode::Max).number, 5.0);
    assert_eq!(all(Mode::AlwaysOne).number, 1.0);
    let whole = Summary::new(Mode::Sum).with(i32::MAX).with(1);
    assert_eq!(whole.number, i32::MIN);
    let (one, other) = (Summary::new(Mode::Sum).with(4), Summary::new(Mode::Sum).with(6));
    assert_eq!(Summary::joined(Mode::Max, one, other).number, 6);
    assert_eq!(Mode::named("test", "AlwaysOne").unwrap(), Mode::AlwaysOne);
    assert!(Mode::named("test", "mean").is_err());
}

#[test]
fn hostile_tuple_sketches_are_errors() {
    for count in [0, 1, 5, 10_000] {
        let bytes = written(&tuple_of(count, 5, |value| value as f64));
        with_hostile_bytes(&bytes, |bytes| {
            if let Ok(sketch) = read::<f64>("test", bytes) {
                assert!(sketch.entries.iter().all(|entry| entry.0 > 0 && entry.0 < sketch.theta));
                let mut union = Gathering::new(4);
                union.union(&sketch, |one, other| Summary::joined(Mode::Min, one, other));
                let again = written(&union.trimmed());
                read::<f64>("test", &again).unwrap();
            }
            let _: Option<Tuple<i32>> = read("test", bytes).ok();
        });
    }
    // Four billion values, of which there are none.
    let claims = [2, 3, 9, 1, 0, 0x0A, 0xCC, 0x93, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];
    assert!(read::<f64>("test", &claims).is_err());
}

fn kll_of(count: i64, k: u16) -> KllSketch<i64> {
    let mut sketch = KllSketch::new(k).unwrap();
    (0..count).for_each(|value| sketch.update(value));
    sketch
}

#[test]
fn a_kll_sketch_is_itself_again() {
    for count in [0, 1, 2, 199, 10_000] {
        let sketch = kll_of(count, 200);
        assert_eq!(kll::read::<i64>("test", &sketch.serialize()).unwrap(), sketch, "{count}");
    }
    let mut doubles = KllSketch::new(8).unwrap();
    (0..50).for_each(|value| doubles.update(KllFloat::<f64>::new(f64::from(value)).unwrap()));
    let again = kll::read::<KllFloat<f64>>("test", &doubles.serialize()).unwrap();
    assert_eq!(
        (again.n(), again.min_item(), again.max_item()),
        (50, doubles.min_item(), doubles.max_item(),)
    );
}

#[test]
fn hostile_kll_sketches_are_errors() {
    for count in [0, 1, 5, 1_000] {
        let good = kll_of(count, 8).serialize();
        with_hostile_bytes(&good, |bytes| {
            if let Ok(sketch) = kll::read::<i64>("test", bytes) {
                kll_text::write(&sketch, bytes, &mut String::new());
                let mut all = kll_of(3, 8);
                kll::join("test", &mut all, &sketch).unwrap();
                kll::join("test", &mut all, &sketch).unwrap();
                kll::read::<i64>("test", &all.serialize()).unwrap();
            }
            let _: Option<KllSketch<KllFloat<f32>>> = kll::read("test", bytes).ok();
        });
    }
    let few = kll_of(5, 8).serialize();
    let error = kll::read::<KllFloat<f32>>("test", &few).unwrap_err().to_string();
    assert!(error.contains("kll_sketch_agg_float"), "{error}");
}

/// The lines of Java's `toString`.
#[test]
fn a_kll_sketch_says_what_it_is() {
    let text = |sketch: &KllSketch<i64>| {
        let mut text = String::new();
        kll_text::write(sketch, &sketch.serialize(), &mut text);
        text
    };
    let few = text(&kll_of(5, 200));
    let wanted = [
        "### KllKllLongsSketch Summary:",
        "   K                      : 200",
        "   Dynamic min K          : 200",
        "   M                      : 8",
        "   N                      : 5",
        "   Epsilon                : 1.329%",
        "   Epsilon PMF            : 1.652%",
        "   Empty                  : false",
        "   Estimation Mode        : false",
        "   Levels                 : 1",
        "   Level 0 Sorted         : false",
        "   Capacity Items         : 200",
        "   Retained Items         : 5",
        "   Free Space             : 195",
        "   ReadOnly               : false",
        "   Updatable Storage Bytes: 1644",
        "   Compact Storage Bytes  : 80",
        "   Min Item               : 0",
        "   Max Item               : 4",
        "### End sketch summary",
    ];
    assert_eq!(few, format!("\n{}\n", wanted.join("\n")));
    assert!(text(&kll_of(0, 200)).contains("   Min Item               : NaN\n"));
    let sizes = |count| {
        let (sketch, line) = (kll_of(count, 8), "Compact Storage Bytes  : ");
        let text = text(&sketch);
        let size = text.lines().find_map(|text| text.trim().strip_prefix(line));
        (size.unwrap().parse::<usize>().unwrap(), sketch.serialize().len())
    };
    for count in [0, 1, 2, 1_000] {
        let (said, is) = sizes(count);
        assert_eq!(said, is, "{count} values");
    }
}
