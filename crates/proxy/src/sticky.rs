//! The cookie that keeps the requests of a client at one upstream.

use std::fmt::Write;
use std::sync::Arc;

use dunlin_config::{SameSite, Sticky};
use dunlin_http::FieldName;
use sha2::{Digest, Sha256};

use crate::call::Call;
use crate::upstream::Upstream;

impl Call<'_> {
    /// The upstream that the client's cookie names.
    pub(crate) fn bound_upstream(&self) -> Option<&Arc<Upstream>> {
        let sticky = self.group.rules.sticky.as_ref()?;
        let value = self.cookie(sticky.cookie.as_bytes())?;
        self.group.upstreams.iter().find(|upstream| upstream.cookie.as_bytes() == value)
    }

    /// The value of a cookie of the client (RFC 6265 §4.2.1).
    fn cookie(&self, name: &[u8]) -> Option<&[u8]> {
        let values = self.request.values(FieldName::Cookie);
        let mut pairs = values.flat_map(|value| value.split(|&byte| byte == b';'));
        pairs.find_map(|pair| pair.trim_ascii().strip_prefix(name)?.strip_prefix(b"="))
    }

    /// The value of `Set-Cookie` that keeps the client at `upstream`, if it is not there yet. `bound` is the upstream that its
    /// cookie names.
    pub(crate) fn set_cookie(
        &self,
        bound: Option<&Arc<Upstream>>,
        upstream: &Upstream,
    ) -> Option<String> {
        let sticky = self.group.rules.sticky.as_ref()?;
        let is_bound = bound.is_some_and(|bound| bound.id == upstream.id);
        (!is_bound).then(|| value(sticky, upstream, self.client.encrypted))
    }
}

fn value(sticky: &Sticky, upstream: &Upstream, is_encrypted: bool) -> String {
    let same_site = match sticky.same_site {
        SameSite::Lax => "Lax",
        SameSite::Strict => "Strict",
        SameSite::None => "None",
    };
    let mut value =
        format!("{}={}; Path=/; HttpOnly; SameSite={same_site}", sticky.cookie, upstream.cookie);
    if let Some(age) = sticky.max_age {
        let _ = write!(value, "; Max-Age={}", age.as_secs());
    }
    if sticky.secure.unwrap_or(is_encrypted || sticky.same_site == SameSite::None) {
        value.push_str("; Secure");
    }
    value
}

/// The name of an upstream for clients, which is the same in every process with the same secret: a hash, with a secret
/// HMAC-SHA-256 (RFC 2104), of its name.
pub(crate) fn cookie(sticky: Option<&Sticky>, name: &str) -> Box<str> {
    let Some(sticky) = sticky else { return Box::default() };
    let digest = match &sticky.secret {
        Some(secret) => hmac(secret.as_bytes(), name.as_bytes()),
        None => Sha256::digest(name).into(),
    };
    let text = digest.iter().take(8).fold(String::with_capacity(16), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    text.into()
}

fn hmac(secret: &[u8], message: &[u8]) -> [u8; 32] {
    const BLOCK: usize = 64;
    let hashed;
    let secret = match secret.len() > BLOCK {
        true => {
            hashed = Sha256::digest(secret);
            &hashed[..]
        }
        false => secret,
    };
    let padded = |pad: u8| {
        let mut key = [pad; BLOCK];
        key.iter_mut().zip(secret).for_each(|(byte, secret)| *byte ^= secret);
        Sha256::new_with_prefix(key)
    };
    let inner = padded(0x36).chain_update(message).finalize();
    padded(0x5c).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_hash_is_that_of_rfc_4231() {
        let short = hmac(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(hex(&short), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let long = hmac(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(hex(&long), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }
}
