//! `aes_encrypt`, `aes_decrypt` and `try_aes_decrypt`: bytes under a key.
//!
//! What is encrypted begins with its initialization vector, which ECB has none of, and by GCM ends
//! with a tag that tells a wrong key and a changed byte. No error repeats an argument: two of them
//! in the wrong order would show the key.

use std::sync::Arc;

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::common::InnerInit as _;
use aes::cipher::consts::{U12, U16};
use aes::cipher::{
    BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt as _, BlockModeEncrypt as _,
    BlockSizeUser, InnerIvInit as _, KeyInit as _,
};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::{Aead as _, Payload};
use aes_gcm::{AesGcm, Nonce};
use arrow::array::ArrayRef;
use arrow::array::builder::BinaryBuilder;
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_datafusion_err, exec_err};

use super::define::{Arguments, Function, Param, within_column};
use super::random::Unguessable;

use Param::{Binary, Text};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(
        "aes_encrypt",
        &[Binary, Binary, Text, Text, Binary, Binary],
        |_| Ok(DataType::Binary),
        encrypt,
    )
    .required(2)
    .varies(),
    Function::new(
        "aes_decrypt",
        OF_DECRYPT,
        |_| Ok(DataType::Binary),
        |args| {
            let mut last = LastCipher::default();
            column(args, |row| decrypted(row, &mut last).map(Some))
        },
    )
    .required(2),
    Function::new(
        "try_aes_decrypt",
        OF_DECRYPT,
        |_| Ok(DataType::Binary),
        |args| {
            let mut last = LastCipher::default();
            column(args, |row| Ok(decrypted(row, &mut last).ok()))
        },
    )
    .required(2),
];

const OF_DECRYPT: &[Param] = &[Binary, Binary, Text, Text, Binary];

/// How blocks follow each other, with the one padding that each has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Ecb,
    Cbc,
    Gcm,
}

impl Mode {
    fn of(mode: &str, padding: &str) -> Result<Self> {
        let known =
            [("ECB", "PKCS", Self::Ecb), ("CBC", "PKCS", Self::Cbc), ("GCM", "NONE", Self::Gcm)];
        let is_meant = |(name, own, _): &(&str, &str, Self)| {
            mode.eq_ignore_ascii_case(name)
                && (padding.eq_ignore_ascii_case(own) || padding.eq_ignore_ascii_case("DEFAULT"))
        };
        match known.into_iter().find(is_meant) {
            Some((_, _, mode)) => Ok(mode),
            None => exec_err!(
                "the modes of AES are GCM, with the padding NONE, and CBC and ECB, with PKCS; \
                 DEFAULT is the padding of each"
            ),
        }
    }

    fn vector_length(self) -> usize {
        match self {
            Self::Ecb => 0,
            Self::Cbc => 16,
            Self::Gcm => 12,
        }
    }
}

/// A block cipher with its key.
enum Cipher {
    Of128(Aes128),
    Of192(Aes192),
    Of256(Aes256),
}

impl Cipher {
    fn of(key: &[u8]) -> Result<Self> {
        let made = match key.len() {
            16 => Aes128::new_from_slice(key).map(Self::Of128),
            24 => Aes192::new_from_slice(key).map(Self::Of192),
            _ => Aes256::new_from_slice(key).map(Self::Of256),
        };
        made.map_err(|_| {
            let length = key.len();
            exec_datafusion_err!("a key of AES has 16, 24 or 32 bytes, and this one has {length}")
        })
    }

    fn encrypt(&self, mode: Mode, text: &[u8], vector: &[u8], aad: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Of128(cipher) => encrypted(cipher, mode, text, vector, aad),
            Self::Of192(cipher) => encrypted(cipher, mode, text, vector, aad),
            Self::Of256(cipher) => encrypted(cipher, mode, text, vector, aad),
        }
    }

    fn decrypt(&self, mode: Mode, text: &[u8], vector: &[u8], aad: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Of128(cipher) => clear(cipher, mode, text, vector, aad),
            Self::Of192(cipher) => clear(cipher, mode, text, vector, aad),
            Self::Of256(cipher) => clear(cipher, mode, text, vector, aad),
        }
    }
}

type Gcm<C> = AesGcm<C, U12, U16>;

fn encrypted<C>(cipher: &C, mode: Mode, text: &[u8], vector: &[u8], aad: &[u8]) -> Option<Vec<u8>>
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    match mode {
        Mode::Ecb => {
            Some(ecb::Encryptor::<&C>::inner_init(cipher).encrypt_padded_vec::<Pkcs7>(text))
        }
        Mode::Cbc => {
            let blocks = cbc::Encryptor::<&C>::inner_iv_slice_init(cipher, vector).ok()?;
            Some(blocks.encrypt_padded_vec::<Pkcs7>(text))
        }
        Mode::Gcm => {
            let nonce = Nonce::<U12>::try_from(vector).ok()?;
            Gcm::<&C>::from(cipher).encrypt(&nonce, Payload { msg: text, aad }).ok()
        }
    }
}

/// What was encrypted, unless it was so in another way.
fn clear<C>(cipher: &C, mode: Mode, text: &[u8], vector: &[u8], aad: &[u8]) -> Option<Vec<u8>>
where
    C: BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16>,
{
    match mode {
        // To Java no block at all is nothing that was padded.
        Mode::Ecb | Mode::Cbc if text.is_empty() => Some(Vec::new()),
        Mode::Ecb => {
            let blocks = ecb::Decryptor::<&C>::inner_init(cipher);
            blocks.decrypt_padded_vec::<Pkcs7>(text).ok()
        }
        Mode::Cbc => {
            let blocks = cbc::Decryptor::<&C>::inner_iv_slice_init(cipher, vector).ok()?;
            blocks.decrypt_padded_vec::<Pkcs7>(text).ok()
        }
        Mode::Gcm => {
            let nonce = Nonce::<U12>::try_from(vector).ok()?;
            Gcm::<&C>::from(cipher).decrypt(&nonce, Payload { msg: text, aad }).ok()
        }
    }
}

/// The cipher of the last key, which is most often that of all rows.
#[derive(Default)]
struct LastCipher(Option<(Vec<u8>, Box<Cipher>)>);

impl LastCipher {
    fn get(&mut self, key: &[u8]) -> Result<&Cipher> {
        let known = match self.0.take() {
            Some(known) if known.0 == key => known,
            _ => (key.to_vec(), Box::new(Cipher::of(key)?)),
        };
        Ok(&self.0.insert(known).1)
    }
}

/// The arguments of one row.
struct Row<'a> {
    input: &'a [u8],
    key: &'a [u8],
    mode: &'a str,
    padding: &'a str,
    /// What follows the padding; empty where it is not given.
    rest: [&'a [u8]; 2],
}

/// A column of what is made of each row, NULL where an argument is.
fn column(
    args: &Arguments,
    mut made: impl FnMut(&Row<'_>) -> Result<Option<Vec<u8>>>,
) -> Result<ArrayRef> {
    let text = |at: usize| (args.len() > at).then(|| args.text(at));
    let bytes = |at: usize| (args.len() > at).then(|| args.binary(at));
    let (inputs, keys, modes, paddings) = (args.binary(0), args.binary(1), text(2), text(3));
    let rest = [bytes(4), bytes(5)];
    let row_at = |row: usize| {
        let part =
            |at: usize| rest[at].as_ref().map_or(Some(b"".as_slice()), |parts| parts.get(row));
        Some(Row {
            input: inputs.get(row)?,
            key: keys.get(row)?,
            mode: modes.as_ref().map_or(Some("GCM"), |modes| modes.get(row))?,
            padding: paddings.as_ref().map_or(Some("DEFAULT"), |paddings| paddings.get(row))?,
            rest: [part(0)?, part(1)?],
        })
    };
    let (mut out, mut total) = (BinaryBuilder::new(), 0);
    for row in 0..args.rows {
        let value = match row_at(row) {
            Some(row) => made(&row)?,
            None => None,
        };
        within_column(&mut total, value.as_ref().map_or(0, Vec::len))?;
        out.append_option(value);
    }
    Ok(Arc::new(out.finish()))
}

fn encrypt(args: &Arguments) -> Result<ArrayRef> {
    let (mut last, mut random) = (LastCipher::default(), Unguessable::default());
    column(args, |row| {
        let (cipher, mode) = (last.get(row.key)?, Mode::of(row.mode, row.padding)?);
        let [vector, aad] = row.rest;
        let mut out = vec![0; mode.vector_length()];
        if vector.is_empty() {
            random.fill(&mut out);
        } else if mode == Mode::Ecb {
            return exec_err!("aes_encrypt by ECB takes no initialization vector");
        } else if vector.len() != out.len() {
            let (wanted, found) = (out.len(), vector.len());
            return exec_err!(
                "the initialization vector of aes_encrypt has {wanted} bytes in this mode, and \
                 not {found}"
            );
        } else {
            out.copy_from_slice(vector);
        }
        if mode != Mode::Gcm {
            check_no_aad(aad)?;
        }
        match cipher.encrypt(mode, row.input, &out, aad) {
            Some(text) => {
                out.extend(text);
                Ok(Some(out))
            }
            None => exec_err!("the value is too long for aes_encrypt"),
        }
    })
}

fn decrypted(row: &Row<'_>, last: &mut LastCipher) -> Result<Vec<u8>> {
    let (cipher, mode) = (last.get(row.key)?, Mode::of(row.mode, row.padding)?);
    let [aad, _] = row.rest;
    let parts = row.input.split_at_checked(mode.vector_length());
    // Spark does not look at what ECB is given here.
    if mode == Mode::Cbc && parts.is_some() {
        check_no_aad(aad)?;
    }
    match parts.and_then(|(vector, text)| cipher.decrypt(mode, text, vector, aad)) {
        Some(text) => Ok(text),
        None => exec_err!(
            "aes_decrypt: the value is not one that was encrypted with this key, mode, padding and \
             additional data; use try_aes_decrypt to get NULL instead"
        ),
    }
}

fn check_no_aad(aad: &[u8]) -> Result<()> {
    match aad.is_empty() {
        true => Ok(()),
        false => exec_err!("AES takes additional data by the mode GCM only"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encrypted_can_be_decrypted() {
        for key_length in [16, 24, 32] {
            let cipher = Cipher::of(&vec![7; key_length]).expect("it is long enough");
            for mode in [Mode::Ecb, Mode::Cbc, Mode::Gcm] {
                let (vector, other) = (vec![1; mode.vector_length()], Cipher::of(&[8; 16]));
                let other = other.expect("it is long enough");
                for length in [0, 1, 15, 16, 17, 100] {
                    let text = vec![b'x'; length];
                    let hidden = cipher.encrypt(mode, &text, &vector, b"").expect("it is short");
                    assert_eq!(cipher.decrypt(mode, &hidden, &vector, b""), Some(text.clone()));
                    assert_ne!(other.decrypt(mode, &hidden, &vector, b""), Some(text));
                }
            }
        }
    }

    #[test]
    fn a_changed_byte_and_other_data_are_found() {
        let (cipher, vector) = (Cipher::of(&[7; 16]).expect("it is long enough"), [1; 12]);
        let mut hidden = cipher.encrypt(Mode::Gcm, b"text", &vector, b"aad").expect("it is short");
        let clear = |hidden: &[u8], aad: &[u8]| cipher.decrypt(Mode::Gcm, hidden, &vector, aad);
        assert_eq!(clear(&hidden, b"aad").as_deref(), Some(&b"text"[..]));
        assert_eq!(clear(&hidden, b"other"), None);
        hidden[0] ^= 1;
        assert_eq!(clear(&hidden, b"aad"), None);
        assert_eq!(clear(b"short", b"aad"), None);
    }

    #[test]
    fn errors_say_nothing_of_what_they_are_about() {
        let key = "a key of one text";
        let said = [
            Cipher::of(key.as_bytes()).err().map(|error| error.to_string()),
            Mode::of(key, "NONE").err().map(|error| error.to_string()),
            Mode::of("GCM", key).err().map(|error| error.to_string()),
        ];
        for said in said {
            let said = said.expect("it is an error");
            assert!(!said.contains(key), "{said}");
        }
    }
}
