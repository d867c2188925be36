//! A user and password by SCRAM (RFC 5802, and RFC 7677 for SHA-256), as Kafka's brokers ask for
//! them: the password is never sent, and the broker shows that it knows it too.
//!
//! Like Kafka's own client, this one takes names and passwords as the bytes that they are, without
//! SASLprep.

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac, pbkdf2};

/// Iterations that a broker may ask for: fewer would make the password easy to guess for whoever
/// pretends to be a broker, and more would keep the client busy for seconds.
const ITERATIONS: std::ops::RangeInclusive<u32> = 4_096..=1_000_000;
/// The flag and name of a client that binds its login to no channel, and the same in base64.
const NO_CHANNEL: &str = "n,,";
const NO_CHANNEL_CODED: &str = "biws";

/// Which hash is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Hash {
    fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }

    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }

    fn digest(self) -> &'static digest::Algorithm {
        self.hmac().digest_algorithm()
    }
}

/// The first message, sent.
pub struct First<'a> {
    hash: Hash,
    password: &'a str,
    nonce: String,
    bare: String,
}

/// The second message, sent: what the broker has to answer.
pub struct Last {
    server: hmac::Key,
    signed: String,
}

impl<'a> First<'a> {
    /// For a user; `nonce` is text that no other login has.
    pub fn new(hash: Hash, user: &str, password: &'a str, nonce: String) -> Self {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let bare = format!("n={user},r={nonce}");
        Self { hash, password, nonce, bare }
    }

    /// What is sent.
    pub fn message(&self) -> String {
        format!("{NO_CHANNEL}{}", self.bare)
    }

    /// The second message, after the broker's answer.
    ///
    /// # Errors
    /// What is wrong with the answer.
    pub fn answer(self, answer: &str) -> Result<(String, Last), String> {
        let nonce = field(answer, 'r')?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err("its answer belongs to another login".to_owned());
        }
        let salt = decoded(field(answer, 's')?)?;
        let iterations = field(answer, 'i')?.parse().ok().filter(|i| ITERATIONS.contains(i));
        let iterations = iterations.and_then(NonZeroU32::new).ok_or_else(|| {
            format!(
                "it asks for a number of iterations that is not between {} and {}",
                ITERATIONS.start(),
                ITERATIONS.end()
            )
        })?;
        let mut salted = vec![0; self.hash.digest().output_len()];
        let password = self.password.as_bytes();
        pbkdf2::derive(self.hash.pbkdf2(), iterations, &salt, password, &mut salted);
        let salted = hmac::Key::new(self.hash.hmac(), &salted);
        let without_proof = format!("c={NO_CHANNEL_CODED},r={nonce}");
        let signed = format!("{},{answer},{without_proof}", self.bare);
        let proof = self.proof(&salted, &signed);
        let server = hmac::sign(&salted, b"Server Key");
        let server = hmac::Key::new(self.hash.hmac(), server.as_ref());
        let message = format!("{without_proof},p={}", STANDARD.encode(proof));
        Ok((message, Last { server, signed }))
    }

    fn proof(&self, salted: &hmac::Key, signed: &str) -> Vec<u8> {
        let client = hmac::sign(salted, b"Client Key");
        let stored = digest::digest(self.hash.digest(), client.as_ref());
        let stored = hmac::Key::new(self.hash.hmac(), stored.as_ref());
        let signature = hmac::sign(&stored, signed.as_bytes());
        client.as_ref().iter().zip(signature.as_ref()).map(|(key, sign)| key ^ sign).collect()
    }
}

impl Last {
    /// Checks the broker's last answer.
    ///
    /// # Errors
    /// What is wrong with it: the broker refuses the password, or does not know it.
    pub fn check(&self, answer: &str) -> Result<(), String> {
        if let Ok(error) = field(answer, 'e') {
            return Err(format!("it says {error}"));
        }
        let signature = decoded(field(answer, 'v')?)?;
        hmac::verify(&self.server, self.signed.as_bytes(), &signature)
            .map_err(|_| "it does not know the password itself".to_owned())
    }
}

fn field(answer: &str, name: char) -> Result<&str, String> {
    let fields = answer.split(',').filter_map(|field| field.split_once('='));
    let mut found = fields.filter(|(key, _)| key.chars().eq([name])).map(|(_, value)| value);
    found.next().ok_or_else(|| format!("its answer has no field '{name}'"))
}

fn decoded(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|_| "its answer is not in base64".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3.
    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const SERVER_FIRST: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                                s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    fn first() -> First<'static> {
        First::new(Hash::Sha256, "user", "pencil", NONCE.to_owned())
    }

    #[test]
    fn the_example_of_the_rfc_is_followed() {
        let first = first();
        assert_eq!(first.message(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let (message, last) = first.answer(SERVER_FIRST).unwrap();
        let wanted = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                      p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        assert_eq!(message, wanted);
        let right = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        assert_eq!(last.check(right), Ok(()));
        assert!(last.check("v=AAAA").unwrap_err().contains("does not know"));
        assert!(last.check("e=invalid-proof").unwrap_err().contains("invalid-proof"));
        assert!(last.check("").is_err());
    }

    #[test]
    fn an_answer_of_another_login_or_of_few_iterations_is_refused() {
        for (answer, wanted) in [
            (SERVER_FIRST.replace("r=r", "r=x"), "another login"),
            (format!("r={NONCE},s=AAAA,i=4096"), "another login"),
            (SERVER_FIRST.replace("i=4096", "i=1"), "iterations"),
            (SERVER_FIRST.replace("i=4096", "i=4000000000"), "iterations"),
            (SERVER_FIRST.replace("==,", ","), "base64"),
            ("r".to_owned(), "no field 'r'"),
        ] {
            let refused = first().answer(&answer).err().unwrap();
            assert!(refused.contains(wanted), "{answer}: {refused}");
        }
    }

    #[test]
    fn names_are_escaped() {
        let first = First::new(Hash::Sha512, "a=b,c", "", "n".to_owned());
        assert_eq!(first.message(), "n,,n=a=3Db=2Cc,r=n");
    }
}
