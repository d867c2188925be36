//! Identifiers and numbers of networks, phones and people: digits in a fixed form.

use crate::error::Problem;
use crate::functions::Action;
use crate::java::{parse_i32, push_integer, push_padded};
use crate::random::Random;

const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";
const OBJECT_ID_BYTES: usize = 12;
const HEX_BYTES: usize = 16;

/// An identifier to draw.
#[derive(Debug)]
pub(crate) enum Identifier {
    Uuid { dashes: bool },
    Hex { bytes: usize },
    Phone,
    Ssn,
    Ipv4,
    Ipv6 { digits: &'static [u8; 16] },
}

impl Identifier {
    pub(crate) fn write(&self, random: &mut Random, out: &mut Vec<u8>) {
        match self {
            Self::Uuid { dashes } => write_uuid(*dashes, random, out),
            Self::Hex { bytes } => write_hex(*bytes, random, out),
            Self::Phone => write_phone(random, out),
            Self::Ssn => {
                push_padded(1 + random.below(798) as i64, 3, out);
                out.push(b'-');
                push_padded(1 + random.below(98) as i64, 2, out);
                out.push(b'-');
                push_padded(1 + random.below(9_998) as i64, 4, out);
            }
            Self::Ipv4 => {
                for (number, byte) in random.next().to_le_bytes()[..4].iter().enumerate() {
                    if number > 0 {
                        out.push(b'.');
                    }
                    push_integer(i64::from(*byte), out);
                }
            }
            Self::Ipv6 { digits } => write_ipv6(digits, random, out),
        }
    }
}

/// RFC 9562, version 4.
fn write_uuid(dashes: bool, random: &mut Random, out: &mut Vec<u8>) {
    // The version, 4, and in the lower half the variant, binary 10, have fixed places.
    let high = random.next() & !0xF000 | 0x4000;
    let low = random.next() & !(0xC << 60) | (0x8 << 60);
    for (number, byte) in high.to_be_bytes().into_iter().chain(low.to_be_bytes()).enumerate() {
        if dashes && matches!(number, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        push_byte(byte, out);
    }
}

fn write_hex(bytes: usize, random: &mut Random, out: &mut Vec<u8>) {
    let mut left = bytes;
    while left > 0 {
        let drawn = random.next().to_le_bytes();
        for byte in &drawn[..left.min(drawn.len())] {
            push_byte(*byte, out);
        }
        left = left.saturating_sub(drawn.len());
    }
}

fn push_byte(byte: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&[LOWER[usize::from(byte >> 4)], LOWER[usize::from(byte & 15)]]);
}

/// Ranges of the original: no 8 or 9 in the area code, and exchanges below 743.
fn write_phone(random: &mut Random, out: &mut Vec<u8>) {
    push_integer(1 + random.below(7) as i64, out);
    push_integer(random.below(8) as i64, out);
    push_integer(random.below(8) as i64, out);
    out.push(b'-');
    push_padded(random.below(743) as i64, 3, out);
    out.push(b'-');
    push_padded(random.below(10_000) as i64, 4, out);
}

/// Two numbers below 2^63 in four groups each, lowest bits first. As in the original they come from
/// 53 random bits, so the first group of each ends in 001, 401, 801 or c01.
fn write_ipv6(digits: &[u8; 16], random: &mut Random, out: &mut Vec<u8>) {
    for half in 0..2 {
        let mut number = ((random.next() >> 11) << 10) | 1;
        for group in 0..4 {
            if half + group > 0 {
                out.push(b':');
            }
            push_group(number as u16, digits, out);
            number >>= 16;
        }
    }
}

fn push_group(group: u16, digits: &[u8; 16], out: &mut Vec<u8>) {
    let length = (u16::BITS - group.leading_zeros()).div_ceil(4).max(1);
    for place in (0..length).rev() {
        out.push(digits[usize::from(group >> (4 * place) & 15)]);
    }
}

/// Dashes unless the argument is something else than `true`.
pub(crate) fn uuid<'a>(arguments: &[&'a str]) -> Action<'a> {
    let dashes = arguments.first().is_none_or(|keep| keep.eq_ignore_ascii_case("true"));
    Action::Identifier(Identifier::Uuid { dashes })
}

pub(crate) fn hex<'a>(arguments: &[&'a str]) -> Result<Action<'a>, Problem> {
    let bytes = match arguments.first() {
        Some(bytes) => usize::try_from(parse_i32(bytes)?)
            .map_err(|_| Problem::new(format!("{bytes} is no size"), "sizes are 0 or more"))?,
        None => HEX_BYTES,
    };
    Ok(Action::Identifier(Identifier::Hex { bytes }))
}

pub(crate) fn object_id() -> Action<'static> {
    Action::Identifier(Identifier::Hex { bytes: OBJECT_ID_BYTES })
}

pub(crate) fn phone() -> Action<'static> {
    Action::Identifier(Identifier::Phone)
}

pub(crate) fn ssn() -> Action<'static> {
    Action::Identifier(Identifier::Ssn)
}

pub(crate) fn ipv4() -> Action<'static> {
    Action::Identifier(Identifier::Ipv4)
}

/// Upper case only for the argument `upper`, exactly so.
pub(crate) fn ipv6<'a>(arguments: &[&'a str]) -> Action<'a> {
    let digits = if arguments == ["upper"] { UPPER } else { LOWER };
    Action::Identifier(Identifier::Ipv6 { digits })
}
