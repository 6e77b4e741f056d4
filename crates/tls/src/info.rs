//! Information about a TLS connection.

use std::cell::OnceCell;
use std::fmt::Write;
use std::net::IpAddr;
use std::rc::Rc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dunlin_config::cipher_name;
use rustls::pki_types::CertificateDer;
use rustls::{CipherSuite, CommonState, HandshakeKind, ProtocolVersion};
use x509_parser::x509::X509Name;

/// Information about a TLS connection, for logs and scripts.
#[derive(Debug, Clone)]
pub struct TlsInfo {
    /// `TLSv1.3` or `TLSv1.2`.
    pub protocol: &'static str,
    /// OpenSSL's name of the cipher suite.
    pub cipher: &'static str,
    /// The request came as early data, which an attacker may replay.
    pub early: bool,
    /// The name of the server that the client has sent (SNI), in lower case.
    pub server_name: Option<Rc<str>>,
    /// The client has resumed a session.
    pub resumed: bool,
    /// The verified client certificate.
    pub client: Option<Rc<ClientCertificate>>,
}

/// A client's certificate.
#[derive(Debug)]
pub struct ClientCertificate {
    /// The subject, in the form of RFC 4514.
    pub subject: String,
    /// The issuer, in the form of RFC 4514.
    pub issuer: String,
    /// The serial number in hexadecimal.
    pub serial: String,
    /// The certificate, then those that the client has sent with it.
    chain: Vec<CertificateDer<'static>>,
    /// The first of the chain, and the others, as values of fields.
    values: OnceCell<(String, String)>,
}

impl TlsInfo {
    /// `SUCCESS` with a verified client certificate, `NONE` without one. Handshakes with any other certificate fail.
    pub fn verified(&self) -> &'static str {
        if self.client.is_some() { "SUCCESS" } else { "NONE" }
    }

    pub(crate) fn new(
        tls: &CommonState,
        client: Option<&Rc<ClientCertificate>>,
        name: &str,
    ) -> Self {
        let protocol = match tls.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLSv1.3",
        };
        let suite = tls.negotiated_cipher_suite();
        let cipher = suite.map_or("-", |suite| cipher_name(suite.suite()));
        Self {
            protocol,
            cipher,
            early: tls.is_handshaking(),
            server_name: named(name),
            resumed: tls.handshake_kind() == Some(HandshakeKind::Resumed),
            client: client.cloned(),
        }
    }

    /// The information about a QUIC connection.
    pub(crate) fn of_quic(
        suite: Option<CipherSuite>,
        client: Option<&Rc<ClientCertificate>>,
        name: &str,
        (early, resumed): (bool, bool),
    ) -> Self {
        let cipher = suite.map_or("-", cipher_name);
        let (server_name, client) = (named(name), client.cloned());
        Self { protocol: "TLSv1.3", cipher, early, server_name, resumed, client }
    }
}

/// Returns the server name of a handshake. Without one, it is empty or an address of the server.
fn named(name: &str) -> Option<Rc<str>> {
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    Some(name.to_ascii_lowercase().into()).filter(|_| !name.is_empty() && !is_address)
}

impl ClientCertificate {
    /// Returns the value of the field `Client-Cert` (RFC 9440 §2.2): the certificate.
    pub fn client_cert(&self) -> &str {
        &self.values().0
    }

    /// Returns the value of the field `Client-Cert-Chain` (RFC 9440 §2.3): the certificates that the client has sent with its
    /// own, which may be none.
    pub fn client_cert_chain(&self) -> &str {
        &self.values().1
    }

    fn values(&self) -> &(String, String) {
        self.values.get_or_init(|| {
            // A byte sequence (RFC 9651 §3.3.5).
            let item = |der: &CertificateDer<'_>| format!(":{}:", STANDARD.encode(der));
            let (first, others) = self.chain.split_at(self.chain.len().min(1));
            let others: Vec<_> = others.iter().map(item).collect();
            (first.iter().map(item).collect(), others.join(", "))
        })
    }

    /// `None` when the certificate, the first of the chain, cannot be parsed.
    pub(crate) fn read(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(chain.first()?).ok()?;
        Some(Self {
            subject: distinguished_name(parsed.subject()),
            issuer: distinguished_name(parsed.issuer()),
            serial: parsed.raw_serial().iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02X}");
                text
            }),
            chain: chain.iter().map(|der| der.clone().into_owned()).collect(),
            values: OnceCell::new(),
        })
    }
}

/// Returns the name in the form of RFC 4514, with the last component first.
fn distinguished_name(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    let parts: Vec<_> = name.iter().collect();
    for part in parts.iter().rev() {
        for (number, attribute) in part.iter().enumerate() {
            if !text.is_empty() {
                text.push(if number == 0 { ',' } else { '+' });
            }
            let kind = attribute.attr_type();
            let registry = x509_parser::objects::oid_registry();
            match x509_parser::objects::oid2abbrev(kind, registry) {
                Ok(short) => text.push_str(short),
                Err(_) => text.push_str(&kind.to_id_string()),
            }
            text.push('=');
            match attribute.as_str() {
                Ok(value) => escape(value, &mut text),
                Err(_) => {
                    text.push('#');
                    for byte in attribute.as_slice() {
                        let _ = write!(text, "{byte:02x}");
                    }
                }
            }
        }
    }
    text
}

/// RFC 4514 §2.4.
fn escape(value: &str, text: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (at, character) in value.chars().enumerate() {
        match character {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => text.extend(['\\', character]),
            ' ' | '#' if at == 0 => text.extend(['\\', character]),
            ' ' if at == last => text.push_str("\\ "),
            character if character.is_control() => {
                let mut bytes = [0; 4];
                for byte in character.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(text, "\\{byte:02X}");
                }
            }
            character => text.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguished_names_are_escaped() {
        let escaped = |value: &str| {
            let mut text = String::new();
            escape(value, &mut text);
            text
        };
        assert_eq!(escaped("James \"Jim\" Smith, III"), "James \\\"Jim\\\" Smith\\, III");
        assert_eq!(escaped(" #a\r\n "), "\\ #a\\0D\\0A\\ ");
        assert_eq!(escaped("#Lučić"), "\\#Lučić");
    }

    #[test]
    fn certificates_are_values_of_fields() {
        let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        let own = made.cert.der().clone();
        let encoded = format!(":{}:", STANDARD.encode(&own));
        let alone = ClientCertificate::read(std::slice::from_ref(&own)).unwrap();
        assert_eq!((alone.client_cert(), alone.client_cert_chain()), (&*encoded, ""));
        let with_others = ClientCertificate::read(&[own.clone(), own.clone(), own]).unwrap();
        assert_eq!(with_others.client_cert_chain(), format!("{encoded}, {encoded}"));
        assert!(ClientCertificate::read(&[]).is_none());
    }

    #[test]
    fn every_cipher_suite_of_the_library_has_a_name() {
        for suite in super::super::certificate::provider().cipher_suites.iter() {
            assert_ne!(cipher_name(suite.suite()), "-");
        }
    }
}
