//! Names of cipher suites.

use rustls::CipherSuite;

use super::error::nearest;

/// The supported cipher suites, with OpenSSL's names.
const CIPHERS: [(CipherSuite, &str); 9] = [
    (CipherSuite::TLS13_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384"),
    (CipherSuite::TLS13_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256"),
    (CipherSuite::TLS13_CHACHA20_POLY1305_SHA256, "TLS_CHACHA20_POLY1305_SHA256"),
    (CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "ECDHE-ECDSA-AES256-GCM-SHA384"),
    (CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, "ECDHE-ECDSA-AES128-GCM-SHA256"),
    (CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, "ECDHE-ECDSA-CHACHA20-POLY1305"),
    (CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, "ECDHE-RSA-AES256-GCM-SHA384"),
    (CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, "ECDHE-RSA-AES128-GCM-SHA256"),
    (CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, "ECDHE-RSA-CHACHA20-POLY1305"),
];

/// Returns OpenSSL's name of a cipher suite; `-` if it is not supported.
pub fn cipher_name(suite: CipherSuite) -> &'static str {
    CIPHERS.iter().find(|(other, _)| *other == suite).map_or("-", |(_, name)| name)
}

/// Finds a cipher suite by its OpenSSL, IANA or rustls name.
///
/// # Errors There is no such suite; the message contains the nearest name.
pub(crate) fn cipher_suite(name: &str) -> Result<CipherSuite, String> {
    let iana =
        |suite: CipherSuite| suite.as_str().unwrap_or_default().replacen("TLS13_", "TLS_", 1);
    let found = CIPHERS.iter().find(|(suite, openssl)| {
        *openssl == name || suite.as_str() == Some(name) || iana(*suite) == name
    });
    let names: Vec<&str> = CIPHERS.iter().map(|(_, name)| *name).collect();
    found.map(|(suite, _)| *suite).ok_or_else(|| match nearest(name, &names) {
        Some(nearest) => format!("there is no cipher suite {name:?}; did you mean {nearest:?}?"),
        None => format!("there is no cipher suite {name:?}; there are {}", names.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cipher_suites_are_found_by_every_name() {
        let suite = CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
        for name in ["ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"] {
            assert_eq!(cipher_suite(name), Ok(suite));
        }
        for name in ["TLS_AES_128_GCM_SHA256", "TLS13_AES_128_GCM_SHA256"] {
            assert_eq!(cipher_suite(name), Ok(CipherSuite::TLS13_AES_128_GCM_SHA256));
        }
        let error = cipher_suite("ECDHE-RSA-AES128-GCM-SHA265").unwrap_err();
        assert!(error.ends_with("did you mean \"ECDHE-RSA-AES128-GCM-SHA256\"?"), "{error}");
    }
}
