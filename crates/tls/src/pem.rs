//! Reading files in PEM form (RFC 7468).
//!
//! A file that cannot be read is described in words. The messages of a parser have the text that it did not understand, which
//! may be a private key, so none of them is passed on, and no label of the file either.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::SigningKey;
use x509_parser::asn1_rs::{Any, FromDer};

/// Reads the certificates of a file, at least one.
///
/// # Errors
/// When the file has none or cannot be read; the message names it.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = |what: &str| format!("certificate {}: {what}", file.display());
    let text = std::fs::read(file).map_err(|error| match error.kind() {
        ErrorKind::NotFound => wrong("there is no such file"),
        _ => wrong(&error.to_string()),
    })?;
    let chain: Vec<_> = items(&text).map_err(wrong)?;
    if !chain.is_empty() {
        return Ok(chain);
    }
    Err(wrong(match fault(&text) {
        None if has_key(&text) => "it contains a private key, but no certificate",
        None => "it contains no certificate in PEM form",
        Some(fault) => fault,
    }))
}

/// Reads the revocation lists of a file.
///
/// # Errors
/// When the file cannot be read; the message names it.
pub(crate) fn revocation_lists(
    file: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let wrong = |what: &str| format!("client_revoked {}: {what}", file.display());
    let text = std::fs::read(file).map_err(|error| wrong(&error.to_string()))?;
    let lists: Vec<_> = items(&text).map_err(wrong)?;
    match fault(&text) {
        Some(fault) if lists.is_empty() => Err(wrong(fault)),
        _ => Ok(lists),
    }
}

/// Reads the private key of a file.
///
/// # Errors
/// When the file has none that can be used; the message names it.
pub(crate) fn signing_key(
    provider: &CryptoProvider,
    file: &Path,
) -> Result<Arc<dyn SigningKey>, String> {
    let wrong = |what: &str| format!("key {}: {what}", file.display());
    let text = std::fs::read(file).map_err(|error| wrong(&error.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        wrong(match (fault(&text), error) {
            (Some(fault), _) => fault,
            (None, pem::Error::NoItemsFound) => "it contains no private key in PEM form",
            (None, _) => NOT_BASE64,
        })
    })?;
    let is_whole = Any::from_der(key.secret_der()).is_ok_and(|(rest, _)| rest.is_empty());
    provider.key_provider.load_private_key(key).map_err(|_| {
        wrong(match fault(&text) {
            Some(fault) => fault,
            None if is_whole => UNSUPPORTED,
            None => "its content is incomplete or damaged",
        })
    })
}

const UNSUPPORTED: &str = "this kind of key is not supported; use RSA with 2048 to 8192 bits, ECDSA (P-256, P-384, P-521) or \
                           Ed25519";
const NOT_BASE64: &str = "its content is not Base64";
const ENCRYPTED: &str = "it is encrypted, but no passphrase can be given; decrypt it by `openssl pkey -in FILE -out FILE`";

/// Returns the items of one kind; the first fault when one cannot be read.
fn items<T: PemObject>(text: &[u8]) -> Result<Vec<T>, &'static str> {
    let read: Result<_, pem::Error> = T::pem_slice_iter(text).collect();
    read.map_err(|_| fault(text).unwrap_or(NOT_BASE64))
}

fn has_key(text: &[u8]) -> bool {
    PrivateKeyDer::from_pem_slice(text).is_ok()
}

/// Returns the first reason why the text cannot be read.
fn fault(text: &[u8]) -> Option<&'static str> {
    const BEGIN: &[u8] = b"-----BEGIN ";
    let mut label: Option<&[u8]> = None;
    let mut has_begin = false;
    for line in text.split(|byte| b"\r\n".contains(byte)) {
        if let Some(rest) = line.strip_prefix(BEGIN) {
            has_begin = true;
            if label.is_some() {
                return Some("a BEGIN line follows another one without an END line");
            }
            label = Some(match label_of(rest) {
                Ok(label) => label,
                Err(fault) => return Some(fault),
            });
        } else if let Some(rest) = line.strip_prefix(b"-----END ") {
            match label.take() {
                Some(label) if !is_end_of(rest, label) => {
                    return Some("its END line is not that of its BEGIN line");
                }
                _ => {}
            }
        } else if label.is_some() && line.starts_with(b"Proc-Type:") {
            return Some(ENCRYPTED);
        }
    }
    if label.is_some() {
        return Some("it has no END line; it is incomplete");
    }
    if has_begin {
        return None;
    }
    let is_der = text.first() == Some(&0x30) && !text.is_ascii();
    match memchr::memmem::find(text, BEGIN) {
        Some(_) => Some("its BEGIN line has something in front of it"),
        None if is_der => Some("it is in DER form; PEM form is needed"),
        None if text.trim_ascii().is_empty() => Some("it is empty"),
        None => None,
    }
}

/// Returns the label of a BEGIN line without its first word; or what is wrong with the line.
fn label_of(rest: &[u8]) -> Result<&[u8], &'static str> {
    let Some(end) = memchr::memmem::find(rest, b"-----") else {
        return Err("its BEGIN line does not end with five dashes");
    };
    let (label, after) = (&rest[..end], rest[end..].trim_ascii_end());
    if after != b"-----" {
        return Err(match memchr::memmem::find(after, b"\\n") {
            Some(_) => "its line breaks are written as `\\n`",
            None => "its BEGIN line has no line break",
        });
    }
    match label {
        b"ENCRYPTED PRIVATE KEY" => Err(ENCRYPTED),
        b"DSA PRIVATE KEY" => Err(UNSUPPORTED),
        b"OPENSSH PRIVATE KEY" => {
            Err("it is a key of OpenSSH; convert it by `ssh-keygen -p -m PEM -f FILE`")
        }
        label => Ok(label),
    }
}

fn is_end_of(rest: &[u8], label: &[u8]) -> bool {
    rest.strip_prefix(label).is_some_and(|rest| rest.starts_with(b"-----"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::certificate::provider;

    const EC: &str = include_str!("testing/ec.key");
    const ENCRYPTED_EC: &str = include_str!("testing/encrypted-ec.key");
    const ENCRYPTED_PKCS8: &str = include_str!("testing/encrypted-pkcs8.key");

    /// Keys that cannot be used, and a part of the message.
    fn unusable() -> Vec<(&'static str, String, &'static str)> {
        let lines: Vec<&str> = EC.lines().collect();
        vec![
            ("no line breaks", EC.replace('\n', ""), "its BEGIN line has no line break"),
            ("spaces", lines.join(" "), "its BEGIN line has no line break"),
            ("escaped", lines.join("\\n"), "line breaks are written as `\\n`"),
            ("one break", EC.replacen('\n', "", 1), "its BEGIN line has no line break"),
            ("truncated", lines[..3].join("\n"), "it has no END line"),
            ("cut last line", EC.trim_end()[..EC.len() - 8].to_owned(), "its END line is not that"),
            ("other end", EC.replace("END EC", "END RSA"), "its END line is not that"),
            ("other begin", EC.replace("BEGIN EC", "BEGIN RSA"), "its END line is not that"),
            ("four dashes", EC.replacen("-----\n", "----\n", 1), "does not end with five dashes"),
            ("begin twice", format!("{}\n{EC}", lines[..2].join("\n")), "follows another one"),
            ("indented", EC.replace("-----BEGIN", "  -----BEGIN"), "something in front of it"),
            ("byte order mark", format!("\u{feff}{EC}"), "something in front of it"),
            (
                "a character",
                EC.replacen(lines[1], &format!("!{}", &lines[1][1..]), 1),
                "not Base64",
            ),
            ("a line less", [lines[0], lines[1], lines[3], lines[4]].join("\n"), "is incomplete"),
            ("empty", String::new(), "it is empty"),
            ("no PEM", lines[1..4].join("\n"), "no private key in PEM form"),
            ("traditional", ENCRYPTED_EC.into(), "it is encrypted"),
            ("PKCS#8", ENCRYPTED_PKCS8.into(), "it is encrypted"),
            (
                "RSA-PSS",
                include_str!("testing/rsa-pss.key").into(),
                "this kind of key is not supported",
            ),
            (
                "Ed448",
                include_str!("testing/ed448.key").into(),
                "this kind of key is not supported",
            ),
            ("1024 bits", include_str!("testing/rsa-1024.key").into(), "this kind of key is not"),
            ("secp256k1", include_str!("testing/secp256k1.key").into(), "this kind of key is not"),
        ]
    }

    /// Returns `true` if the message has eight consecutive characters of the key, or the codes of them.
    fn leaks(message: &str, key: &str) -> bool {
        let lines = key.lines().filter(|line| !line.contains("-----") && !line.contains(':'));
        let content = lines.collect::<String>().into_bytes();
        content.windows(8).any(|part| {
            let codes: Vec<String> = part.iter().map(u8::to_string).collect();
            let text = String::from_utf8_lossy(part);
            message.contains(&*text) || message.contains(&codes.join(", "))
        })
    }

    #[test]
    fn a_key_that_cannot_be_used_is_described_without_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("k.pem");
        for (name, text, expected) in unusable() {
            fs::write(&file, &text).unwrap();
            let wrong = signing_key(&provider(), &file).unwrap_err();
            assert!(wrong.contains(expected) && wrong.contains("k.pem"), "{name}: {wrong}");
            for message in [
                wrong,
                certificates(&file).unwrap_err(),
                crate::trust::client_config_besides(Some(&file)).unwrap_err(),
                revocation_lists(&file).err().unwrap_or_default(),
            ] {
                for key in [&text, EC] {
                    assert!(!leaks(&message, key), "{name}: {message}");
                }
            }
        }
    }

    #[test]
    fn keys_in_other_forms_can_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("k.pem");
        for text in [
            EC.to_owned(),
            EC.replace('\n', "\r\n"),
            EC.replace('\n', "\r"),
            EC.trim_end().to_owned(),
            format!("some words\n{EC}more words\n"),
            format!(
                "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n{EC}"
            ),
        ] {
            fs::write(&file, &text).unwrap();
            assert!(signing_key(&provider(), &file).is_ok(), "{text}");
            let wrong = certificates(&file).unwrap_err();
            assert!(wrong.ends_with("it contains a private key, but no certificate"), "{wrong}");
        }
    }
}
