//! Signatures of links.

use aws_lc_rs::{constant_time, hmac};
use dunlin_config::{LinkAlgorithm, SignedRules};
use md5::{Digest, Md5};

use crate::decode;

/// What a link is made of.
#[derive(Debug, Clone, Copy)]
pub struct Link<'l> {
    /// The decoded path.
    pub path: &'l [u8],
    /// The address of the client, as text.
    pub client: &'l [u8],
    /// The host.
    pub host: &'l [u8],
    /// The time of expiry as it stands in the link; empty if it has none.
    pub expires: &'l [u8],
}

/// What a signature means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// The link is valid.
    Valid,
    /// The signature or the time is missing, malformed or wrong.
    Wrong,
    /// The signature is right, and the time is over.
    Expired,
}

impl Link<'_> {
    /// Returns what `signature` means at the time `now`, in seconds since 1970.
    pub fn state(&self, rules: &SignedRules, signature: &[u8], now: u64) -> LinkState {
        let end = rules.expires.as_ref().map(|_| number(self.expires));
        let padded = signature.strip_suffix(b"==").or_else(|| signature.strip_suffix(b"="));
        let Some(given) = decode(padded.unwrap_or(signature)) else { return LinkState::Wrong };
        let is_right = constant_time::verify_slices_are_equal(&self.digest(rules), &given).is_ok();
        match end {
            _ if !is_right => LinkState::Wrong,
            Some(None) => LinkState::Wrong,
            Some(Some(end)) if end < now => LinkState::Expired,
            _ => LinkState::Valid,
        }
    }

    fn digest(&self, rules: &SignedRules) -> Vec<u8> {
        let secret = rules.secret.reveal().as_bytes();
        let text = rules.text.fill(|name, text| {
            text.extend_from_slice(match name {
                "path" => self.path,
                "client" => self.client,
                "host" => self.host,
                "expires" => self.expires,
                _ => secret,
            });
        });
        match rules.algorithm {
            LinkAlgorithm::Md5 => Md5::digest(&text).to_vec(),
            LinkAlgorithm::HmacSha256 => {
                hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), &text).as_ref().to_vec()
            }
        }
    }
}

#[cfg(test)]
fn sign(link: &Link<'_>, rules: &SignedRules) -> String {
    base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, link.digest(rules))
}

/// Returns a time after 1970, of digits alone.
fn number(text: &[u8]) -> Option<u64> {
    let is_plain = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok()?;
    (number > 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dunlin_config::{Config, Overrides};

    use super::*;

    fn rules(table: &str) -> SignedRules {
        let text = format!("[[listen]]\naddress = ':1'\n[[site]]\nroot = '/'\nsigned = {table}\n");
        let config = Config::parse(&text, Path::new("/d.toml"), &Overrides::default()).unwrap();
        config.sites.only().unwrap().route(b"/").check_rules.signed.clone().unwrap()
    }

    const LINK: Link<'_> =
        Link { path: b"/s/link", client: b"127.0.0.1", host: b"h", expires: b"2147483647" };

    #[test]
    fn md5_is_that_of_nginx() {
        // The example of the documentation of nginx: echo -n '2147483647/s/link127.0.0.1 secret' | openssl md5 -binary | ...
        let rules = rules(
            "{ secret = 'secret', algorithm = 'md5', signature = 'md5', expires = 'expires', text = '{expires}{path}{client} {secret}' }",
        );
        assert_eq!(sign(&LINK, &rules), "_e4Nc3iduzkWRm01TBBNYw");
        let state = |signature: &[u8], now| LINK.state(&rules, signature, now);
        assert_eq!(state(b"_e4Nc3iduzkWRm01TBBNYw", 1), LinkState::Valid);
        assert_eq!(state(b"_e4Nc3iduzkWRm01TBBNYw==", 2_147_483_647), LinkState::Valid);
        assert_eq!(state(b"_e4Nc3iduzkWRm01TBBNYw", 2_147_483_648), LinkState::Expired);
        for wrong in
            [&b""[..], b"_e4Nc3iduzkWRm01TBBNYg", b"_e4Nc3iduzkWRm01TBBN", b"?", b"=", b"=="]
        {
            assert_eq!(state(wrong, 1), LinkState::Wrong);
        }
    }

    #[test]
    fn hmac_depends_on_everything_that_is_signed() {
        let rules = rules("{ secret = 'key', expires = 'e' }");
        let signature = sign(&LINK, &rules);
        let state = |link: Link<'_>| link.state(&rules, signature.as_bytes(), 1);
        assert_eq!(state(LINK), LinkState::Valid);
        assert_eq!(state(Link { client: b"::1", host: b"i", ..LINK }), LinkState::Valid);
        assert_eq!(state(Link { path: b"/s/other", ..LINK }), LinkState::Wrong);
        assert_eq!(state(Link { expires: b"2147483646", ..LINK }), LinkState::Wrong);
        for expires in [&b""[..], b"0", b"+1", b" 1", b"1e9", b"99999999999999999999"] {
            let link = Link { expires, ..LINK };
            assert_eq!(link.state(&rules, sign(&link, &rules).as_bytes(), 1), LinkState::Wrong);
        }
    }
}
