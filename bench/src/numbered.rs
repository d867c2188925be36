//! Records of any size that know their number, with keys: what measurements of throughput send.

use crate::generator::KEYS;
use crate::payload::{self, Payload};

/// Makes records of one size.
pub struct Numbered {
    size: usize,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Numbered {
    /// Of `size` bytes, [`payload::SIZE_MIN`] at least.
    pub fn new(size: usize) -> Self {
        Self { size, key: Vec::new(), value: Vec::with_capacity(size) }
    }

    /// The key and the value of the record with this number.
    pub fn make(&mut self, number: u64) -> (&[u8], &[u8]) {
        self.key = key_of(number);
        payload::encode(Payload::Record { due_us: 0, number }, self.size, &mut self.value);
        (&self.key, &self.value)
    }
}

/// The key of the record with this number.
pub fn key_of(number: u64) -> Vec<u8> {
    (number % KEYS).to_string().into_bytes()
}

/// The number that a record's value tells; `None` if it is not one of ours.
pub fn number_of(value: &[u8]) -> Option<u64> {
    match payload::decode(value)? {
        Payload::Record { number, .. } => Some(number),
        Payload::Probe { .. } => None,
    }
}
