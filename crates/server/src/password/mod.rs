//! Password hashes, and password files in the format of Apache's htpasswd.

mod apr1;
mod cost;
mod des_crypt;
mod htpasswd;
mod weak;

use argon2::Argon2;
use argon2::password_hash::phc;
use sha_crypt::{PasswordHasher, PasswordVerifier, ShaCrypt};

pub use self::htpasswd::{Users, remove, set};

/// Fills `bytes` from the system's cryptographic random number generator.
///
/// # Errors
/// The generator fails.
pub(crate) fn random(bytes: &mut [u8]) -> Result<(), String> {
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.secure_random.fill(bytes).map_err(|_| "the random number generator failed".into())
}

/// Algorithm for hashing a new password.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Argon2id (RFC 9106), with 19 MiB of memory and two passes.
    #[default]
    Argon2id,
    /// bcrypt with cost 12, the usual choice for Apache and nginx.
    Bcrypt,
    /// SHA-512-crypt, as in `/etc/shadow`.
    Sha512,
}

/// A hashed password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hash {
    kind: Kind,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Argon2,
    Bcrypt,
    ShaCrypt,
    Apr1,
    Weak(weak::Weak),
}

/// Maximum length of a password in bytes. Longer ones are rejected without hashing, which would cost the server
/// more than the client.
const LONGEST: usize = 512;

impl Hash {
    /// Parses a hash of a password file: argon2, bcrypt, SHA-crypt or Apache's MD5.
    ///
    /// # Errors
    /// The hash is not one of these, or its verification would take too much memory or time. Clear text, DES and
    /// unsalted SHA-1 are rejected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let begins = |beginnings: &[&str]| beginnings.iter().any(|start| text.starts_with(start));
        let kind = if begins(&["$argon2id$", "$argon2i$", "$argon2d$"]) {
            Kind::Argon2
        } else if begins(&["$2y$", "$2b$", "$2a$", "$2x$"]) {
            Kind::Bcrypt
        } else if begins(&["$5$", "$6$"]) {
            Kind::ShaCrypt
        } else if begins(&[apr1::APACHE]) {
            Kind::Apr1
        } else if begins(&["{SHA}"]) {
            return Err(
                "unsalted SHA-1 is not secure; set the password again with `dunlin passwd`".into(),
            );
        } else {
            return Err("the password is not hashed, or the algorithm is not supported".into());
        };
        let well_formed = match kind {
            Kind::Argon2 => phc::PasswordHash::new(text).is_ok(),
            Kind::Bcrypt => text.len() == 60 && text.parse::<bcrypt::HashParts>().is_ok(),
            Kind::ShaCrypt => sha_crypt::PasswordHashRef::new(text).is_ok(),
            Kind::Apr1 => apr1::salt(apr1::APACHE, text).is_some(),
            Kind::Weak(_) => true,
        };
        if !well_formed {
            return Err("the hash is malformed".into());
        }
        match kind {
            Kind::Argon2 => cost::argon2(text)?,
            Kind::Bcrypt => cost::bcrypt(text)?,
            Kind::ShaCrypt => cost::sha_crypt(text)?,
            // The number of rounds is fixed.
            Kind::Apr1 | Kind::Weak(_) => {}
        }
        Ok(Self { kind, text: text.into() })
    }

    /// Parses a password as nginx accepts it: a hash of [`Self::parse`], clear text after `{PLAIN}`, SHA-1 with and without a
    /// salt (`{SSHA}`, `{SHA}`), or MD5 and DES of crypt.
    ///
    /// # Errors
    /// It is none of these, or its verification would take too much memory or time.
    pub fn parse_weak(text: &str) -> Result<Self, String> {
        match weak::kind(text) {
            Some(kind) => Ok(Self { kind: Kind::Weak(kind), text: text.into() }),
            None => Self::parse(text),
        }
    }

    /// Hashes a new password.
    ///
    /// # Errors
    /// The password is empty or longer than 512 bytes (72 with bcrypt, which ignores the rest), or the random number
    /// generator fails.
    pub fn of(password: &[u8], algorithm: Algorithm) -> Result<Self, String> {
        if password.is_empty() || password.len() > LONGEST {
            return Err(format!("a password has 1 to {LONGEST} bytes"));
        }
        let (kind, text) = match algorithm {
            Algorithm::Argon2id => {
                let hash = Argon2::default().hash_password(password);
                (Kind::Argon2, hash.map_err(|error| error.to_string())?.to_string())
            }
            Algorithm::Bcrypt => {
                let parts = bcrypt::non_truncating_hash_with_result(password, 12)
                    .map_err(|error| error.to_string())?;
                (Kind::Bcrypt, parts.format_for_version(bcrypt::Version::TwoY))
            }
            Algorithm::Sha512 => {
                // crypt(3) uses 16 characters of a salt, which encode 12 bytes.
                let mut salt = [0; 12];
                random(&mut salt)?;
                let hash = ShaCrypt::SHA512.hash_password_with_salt(password, &salt);
                (Kind::ShaCrypt, hash.map_err(|error| error.to_string())?.to_string())
            }
        };
        Ok(Self { kind, text })
    }

    /// Returns `true` if `password` has this hash. The time does not depend on the result.
    pub fn verify(&self, password: &[u8]) -> bool {
        if password.len() > LONGEST {
            return false;
        }
        match self.kind {
            Kind::Argon2 => phc::PasswordHash::new(&self.text)
                .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok()),
            // Use the first 72 bytes only, as other programs do.
            Kind::Bcrypt => bcrypt::verify(password, &self.text).unwrap_or(false),
            Kind::ShaCrypt => sha_crypt::PasswordHashRef::new(&self.text)
                .is_ok_and(|hash| ShaCrypt::default().verify_password(password, hash).is_ok()),
            Kind::Apr1 => apr1::verify(apr1::APACHE, password, &self.text),
            Kind::Weak(kind) => weak::verify(kind, password, &self.text),
        }
    }

    /// Returns the hash as it is written to a file.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_other_programs_are_verified() {
        for (hash, password) in [
            // openssl passwd -apr1 -salt 12345678 secret
            ("$apr1$12345678$0lqb/6VUFP8JY/s/jTrIk0", "secret"),
            // openssl passwd -5/-6 -salt saltsalt secret
            ("$5$saltsalt$0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA", "secret"),
            // A test vector of crypt_blowfish.
            ("$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW", "U*U"),
        ] {
            let hash = Hash::parse(hash).unwrap();
            assert!(hash.verify(password.as_bytes()), "{hash:?}");
            assert!(!hash.verify(b"wrong"));
        }
    }

    #[test]
    fn a_new_hash_is_of_its_password_alone() {
        for algorithm in [Algorithm::Argon2id, Algorithm::Bcrypt, Algorithm::Sha512] {
            let hash = Hash::of(b"s3cret", algorithm).unwrap();
            let read = Hash::parse(hash.as_str()).unwrap();
            assert!(read.verify(b"s3cret") && !read.verify(b"s3cre") && !read.verify(b""));
        }
        assert!(Hash::of(&[b'x'; 600], Algorithm::Argon2id).is_err());
        assert!(Hash::of(b"", Algorithm::Bcrypt).is_err());
    }

    #[test]
    fn hashes_without_protection_are_rejected() {
        for text in
            ["secret", "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", "rqXexS6ZhobKA", "$2y$05$x", "$apr1$"]
        {
            assert!(Hash::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn hashes_without_protection_are_verified_where_they_are_accepted() {
        for (text, password) in [
            ("{PLAIN}secret", "secret"),
            // printf secret | openssl dgst -sha1 -binary | base64
            ("{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", "secret"),
            // printf secretsalt | openssl dgst -sha1 -binary, and the salt
            ("{SSHA}gVK8WC9YyFT1gMsQHTGCgT3sSv5zYWx0", "secret"),
            // openssl passwd -1 -salt salt password
            ("$1$salt$qJH7.N4xYta3aEG/dfqo/0", "password"),
            ("sa3tHJ3/KuYvI", "password"),
            ("$apr1$12345678$0lqb/6VUFP8JY/s/jTrIk0", "secret"),
        ] {
            let hash = Hash::parse_weak(text).unwrap();
            assert!(hash.verify(password.as_bytes()), "{text}");
            assert!(!hash.verify(b"wrong") && !hash.verify(b""), "{text}");
        }
        for text in ["secret", "{SHA}Zm9vCg==", "{SSHA}Zm9vCg==", "{SHA}_", "$1$", "$apr1$"] {
            assert!(Hash::parse_weak(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_hash_that_costs_too_much_is_rejected_and_the_usual_ones_are_accepted() {
        let argon2 = |name: &str, parameters: &str| {
            Hash::parse(&format!("${name}$v=19${parameters}$YWJjZGVmZ2g$YWJjZGVmZ2hpamtsbW5vcA"))
        };
        for name in ["argon2id", "argon2i", "argon2d"] {
            for usual in ["m=19456,t=2,p=1", "m=65536,t=3,p=4", "m=1048576,t=1,p=4"] {
                assert!(argon2(name, usual).is_ok(), "{usual}");
            }
            for costly in [
                "m=4294967295,t=1,p=1",
                "m=1048577,t=1,p=1",
                "m=1048576,t=9,p=1",
                "m=8,t=4294967295,p=1",
            ] {
                assert!(argon2(name, costly).is_err(), "{costly}");
            }
        }
        let bcrypt = |cost: &str| {
            Hash::parse(&format!(
                "$2y${cost}$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW"
            ))
        };
        assert!(bcrypt("12").is_ok() && bcrypt("17").is_ok());
        assert!(bcrypt("18").is_err() && bcrypt("31").is_err());
        for (kind, digest) in [
            ("$5$", "0IyaXrmV7.sGNS6tirgqHLqX/G.FBvgkYA.lpPdS5sA"),
            (
                "$6$",
                "TVLlQcbpFVof5W3Yz4DTP6gRstiNuHwwTt6GLc1E5n0U0aDehy0S5knV8wiOQSpT0Y77vwPZN.Pq.H91p5hVO1",
            ),
        ] {
            let rounds = |rounds: &str| Hash::parse(&format!("{kind}{rounds}saltsalt${digest}"));
            for usual in ["", "rounds=5000$", "rounds=656000$"] {
                assert!(rounds(usual).is_ok(), "{kind}{usual}: {:?}", rounds(usual));
            }
            assert!(rounds("rounds=999999999$").is_err());
        }
    }
}
