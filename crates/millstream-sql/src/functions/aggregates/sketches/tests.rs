//! Sketches of rows in parts, joined by their partial states, are those of all rows at once, and
//! sketches of Spark's are those of the same rows here.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array};

use super::hll::OfValues as Hll;
use super::theta::Gathered as Theta;
use super::tuple::Gathered as Tuple;
use super::{Sketching, for_each_sketch};
use crate::functions::sketches::retained::{Gathering, Retained};
use crate::functions::sketches::summaries::Mode;
use crate::functions::sketches::{hll, kll, theta, tuple_bytes};

fn columns(rows: std::ops::Range<i64>) -> [ArrayRef; 2] {
    let numbers: Vec<f64> = rows.clone().map(|row| row as f64 / 2.0).collect();
    [Arc::new(Int64Array::from_iter_values(rows)), Arc::new(Float64Array::from(numbers))]
}

/// The sketch of all rows, and that of parts which overlap by a third, through their states.
fn whole_and_parts<S: Sketching>(new: impl Fn() -> S) -> (Vec<u8>, Vec<u8>) {
    let mut whole = new();
    whole.add(&columns(0..900)).unwrap();
    let mut parts = new();
    for start in [0, 200, 400, 600] {
        let mut part = new();
        part.add(&columns(start..start + 300)).unwrap();
        parts.join(&part.state().unwrap().unwrap()).unwrap();
    }
    (whole.sketch().unwrap(), parts.sketch().unwrap())
}

#[test]
fn theta_sketches_of_parts_are_those_of_all() {
    let (whole, parts) = whole_and_parts(|| Theta::of_values(12));
    assert_eq!(whole, parts);
    assert_eq!(theta::read("test", &whole).unwrap().entries.len(), 900);
}

#[test]
fn tuple_sketches_of_parts_are_those_of_all() {
    let new = |mode| Tuple::<f64>::of_values("test", mode, 12);
    let (whole, parts) = whole_and_parts(|| new(Mode::Max));
    assert_eq!(whole, parts);
    let (whole, parts) = whole_and_parts(|| new(Mode::Sum));
    let sum = |bytes: &[u8]| {
        let sketch = tuple_bytes::read::<f64>("test", bytes).unwrap();
        sketch.entries.iter().fold(0.0, |sum, (_, summary)| sum + summary.number)
    };
    // What is in two parts counts twice.
    assert_eq!(sum(&whole), 899.0 * 900.0 / 4.0);
    assert!(sum(&parts) > sum(&whole));
}

#[test]
fn hll_sketches_of_parts_count_what_all_have() {
    let (whole, parts) = whole_and_parts(|| Hll::new(Some(12)).unwrap());
    let estimate = |bytes: &[u8]| hll::read("test", bytes).unwrap().estimate();
    assert!((estimate(&whole) - 900.0).abs() < 45.0, "{}", estimate(&whole));
    assert!((estimate(&parts) - 900.0).abs() < 45.0, "{}", estimate(&parts));
}

/// A partial state without rows says nothing, or is a sketch of nothing.
#[test]
fn parts_without_rows_change_nothing() {
    let mut theta = Theta::of_values(12);
    theta.add(&columns(0..5)).unwrap();
    let before = theta.sketch().unwrap();
    theta.join(&Theta::of_values(12).state().unwrap().unwrap()).unwrap();
    assert_eq!(theta.sketch().unwrap(), before);
    let none: ArrayRef = Arc::new(arrow::array::BinaryArray::from(vec![None::<&[u8]>]));
    for_each_sketch(&none, |_| panic!("there is no sketch")).unwrap();
}

/// What Spark 4.2.0 gives for `SELECT hex(theta_sketch_agg(id)) FROM range(11)`.
const THETA_OF_11: &str = "\
    0104033E011ACC930B16861AF72DF7E45429C550C15B0E52B006633BAC22AB4A4865304281678B95103FE12D\
    7D486EFC9D0DF3AA0896506069C411F6D9350881EB0BD01CCF6535ECE5E906DA09BE81F5A7CBF28D8B42605C\
    8D6C6325CE3E00";

/// The same of `theta_sketch_agg(id, 4)` and 1000 rows.
const THETA_OF_1000: &str = "\
    02040337011ACC9394DED6C8A0752A021054E975E5DB13AAED949BB9F88C2446B9A35A3E40E04CDFD38CE4FC\
    D46F63B88B2F4711BA2F7D098A148BAEC7D83EABFD11841B23DA08998F9B5F27792F9643D34C4717096CA41D\
    A3FBE21BF0B6E1C2F9519F31F564C451973006DEB9D849A1AF946EC17C533EDFA160DDEC687277";

/// The same of `hll_sketch_agg(id)` and 10 rows.
const HLL_OF_10: &str = "\
    0301070C050000090A0000000000000081BC5D0600000000000000000000000000000000862FF90D00000000\
    000000000000000000000000CBD7C20400000000000000000000000000000000C1E9170500000000D2167307\
    0000000034A2610E7581660700000000000000000000000000000000FC2D420A7B65E6082BF2FB0600000000\
    0000000000000000";

/// The same of `hll_sketch_agg(id, 4)` and 100 rows.
const HLL_OF_100: &str = "\
    0A0107040000000A15EB1DC787F15440000000000000FB3F0000000000000000000000000000000004020307\
    030403060304050202030704";

/// The same of `hll_union(hll_sketch_agg(id, 4), hll_sketch_agg(id + 50, 4))`.
const HLL_OF_150: &str = "\
    0A0107040010020A0000000000000000000000000000F83F0000000000000000020000000000000004020307\
    030403060304050204030704";

/// The same of `kll_sketch_agg_bigint(id)` and 5 rows.
const KLL_OF_5: &str = "\
    05010F00C80008000500000000000000C8000100C30000000000000000000000040000000000000000000000\
    000000000100000000000000020000000000000003000000000000000400000000000000";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn sketch_of(mut sketching: impl Sketching, rows: std::ops::Range<i64>) -> Vec<u8> {
    sketching.add(&columns(rows)).unwrap();
    sketching.sketch().unwrap()
}

#[test]
fn theta_sketches_are_those_of_spark() {
    assert_eq!(hex(&sketch_of(Theta::of_values(12), 0..11)), THETA_OF_11);
    assert_eq!(hex(&sketch_of(Theta::of_values(4), 0..1000)), THETA_OF_1000);
    let again = theta::read("test", &bytes(THETA_OF_1000)).unwrap();
    assert_eq!(hex(&theta::written(&again).unwrap()), THETA_OF_1000);
}

/// A table of coupons is in the order of its places here, and in that of the values in Spark.
#[test]
fn hll_sketches_are_those_of_spark() {
    let estimate = |bytes: &[u8]| hll::read("test", bytes).unwrap().estimate().round();
    let (ours, theirs) = (sketch_of(Hll::new(Some(12)).unwrap(), 0..10), bytes(HLL_OF_10));
    let sorted = |bytes: &[u8]| {
        let mut coupons: Vec<[u8; 4]> = bytes[12..].as_chunks().0.to_vec();
        coupons.sort_unstable();
        coupons
    };
    assert_eq!((&ours[..12], sorted(&ours)), (&theirs[..12], sorted(&theirs)));
    assert_eq!(estimate(&theirs), 10.0);
    let (ours, theirs) = (sketch_of(Hll::new(Some(4)).unwrap(), 0..100), bytes(HLL_OF_100));
    assert_eq!((&ours[..8], &ours[32..]), (&theirs[..8], &theirs[32..]));
    assert_eq!((estimate(&ours), estimate(&theirs)), (84.0, 84.0));
    // Spark says of this one that its least register is 2, as it is.
    assert_eq!(estimate(&bytes(HLL_OF_150)), 115.0);
    let mut joined = Hll::new(Some(4)).unwrap();
    joined.join(&sketch_of(Hll::new(Some(4)).unwrap(), 0..100)).unwrap();
    joined.join(&sketch_of(Hll::new(Some(4)).unwrap(), 50..150)).unwrap();
    let joined = joined.sketch().unwrap();
    assert_eq!((estimate(&joined), &joined[40..]), (115.0, &bytes(HLL_OF_150)[40..]));
}

#[test]
fn kll_sketches_of_spark_are_read() {
    let sketch = kll::read::<i64>("test", &bytes(KLL_OF_5)).unwrap();
    assert_eq!((sketch.n(), sketch.min_item(), sketch.max_item()), (5, Some(&0), Some(&4)));
    assert_eq!(sketch.num_retained(), 5);
}

/// Sets of which more was thrown away than kept, with what Spark estimates of them.
#[test]
fn estimates_are_those_of_spark() {
    let new = |lg_nominal| Tuple::<f64>::of_values("test", Mode::Sum, lg_nominal);
    let small = tuple_bytes::read::<f64>("test", &sketch_of(new(4), 0..1000)).unwrap();
    let large = tuple_bytes::read::<f64>("test", &sketch_of(new(5), 500..1500)).unwrap();
    let estimate = |sketch: &Retained<_>| sketch.entries.len() as f64 / sketch.share();
    assert_eq!(small.share(), 0.016920760639258032);
    assert_eq!(estimate(&small), 945.5839687772802);
    let mut union = Gathering::new(4);
    union.union(&small, |one, _| one);
    union.union(&large, |one, _| one);
    assert_eq!(estimate(&union.trimmed()), 1805.9501762325508);
    let both = small.intersection(&large, |one, _| one);
    assert_eq!(estimate(&both), 472.7919843886401);
    assert_eq!(estimate(&small.difference(&large)), 472.7919843886401);
}
