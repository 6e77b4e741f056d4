//! Redaction of credentials in fields, queries and URLs, for logs and traces.

use std::borrow::Cow;

use dunlin_config::is_secret_name;
use percent_encoding::percent_decode;

/// Replacement of a secret.
const INSTEAD: &[u8] = b"REDACTED";

/// Removes secrets from telemetry.
#[derive(Debug, Clone)]
pub struct Redactor {
    /// Secret query keys in lower case; `None` for those whose names are those of credentials.
    keys: Option<Vec<Box<[u8]>>>,
    /// Query keys whose values are secret in any case, in lower case.
    always: Vec<Box<[u8]>>,
}

impl Redactor {
    /// Creates a redactor for the values of these query keys, ignoring case; with `None`, for those of keys whose names are those
    /// of credentials.
    pub fn new(keys: Option<&[String]>) -> Self {
        let key = |key: &String| key.to_ascii_lowercase().into_bytes().into_boxed_slice();
        Self { keys: keys.map(|keys| keys.iter().map(key).collect()), always: Vec::new() }
    }

    /// Adds query keys, ignoring case, whose values are always secret.
    pub fn with(mut self, keys: &[String]) -> Self {
        self.always.extend(keys.iter().map(|key| key.to_ascii_lowercase().into_bytes().into()));
        self
    }

    /// Redacts the values of secret query keys and the userinfo (RFC 3986 §3.2.1) of a request-target
    /// or URL.
    #[inline]
    pub fn target<'a>(&self, target: &'a [u8]) -> Cow<'a, [u8]> {
        if target.first() == Some(&b'/') && memchr::memchr(b'?', target).is_none() {
            return Cow::Borrowed(target);
        }
        self.query(without_userinfo(target))
    }

    /// Redacts the value of a field. Any field can contain a URL, as `Referer` does, so values are redacted like
    /// request-targets.
    pub fn field<'a>(&self, name: &[u8], value: &'a [u8]) -> Cow<'a, [u8]> {
        if is_secret_name(name) { Cow::Borrowed(INSTEAD) } else { self.target(value) }
    }

    fn query<'a>(&self, target: Cow<'a, [u8]>) -> Cow<'a, [u8]> {
        let Some(mark) = memchr::memchr(b'?', &target) else { return target };
        let pairs = || target[mark + 1..].split(|&byte| matches!(byte, b'&' | b';'));
        if !pairs().any(|pair| self.is_secret(pair)) {
            return target;
        }
        let mut clean = target[..=mark].to_vec();
        let mut at = mark + 1;
        for pair in pairs() {
            if self.is_secret(pair) {
                let key = memchr::memchr(b'=', pair).map_or(pair.len(), |sign| sign + 1);
                clean.extend_from_slice(&pair[..key]);
                clean.extend_from_slice(INSTEAD);
            } else {
                clean.extend_from_slice(pair);
            }
            at += pair.len();
            // Copy the separator.
            clean.extend(target.get(at));
            at += 1;
        }
        Cow::Owned(clean)
    }

    /// Returns `true` if the value of a pair `key=value` is secret.
    fn is_secret(&self, pair: &[u8]) -> bool {
        let Some(sign) = memchr::memchr(b'=', pair) else { return false };
        if sign + 1 == pair.len() {
            return false;
        }
        // Applications decode the key before they compare it.
        let key: Cow<'_, [u8]> = percent_decode(&pair[..sign]).into();
        let is_it = |secret: &[u8]| key.eq_ignore_ascii_case(secret);
        if self.always.iter().any(|secret| is_it(secret)) {
            return true;
        }
        match &self.keys {
            Some(keys) => keys.iter().any(|secret| is_it(secret)),
            None => is_secret_name(&key),
        }
    }
}

fn without_userinfo(target: &[u8]) -> Cow<'_, [u8]> {
    let authority = match memchr::memmem::find(target, b"://") {
        Some(scheme) if !target[..scheme].contains(&b'/') => scheme + 3,
        _ => return Cow::Borrowed(target),
    };
    let rest = &target[authority..];
    let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
    match memchr::memrchr(b'@', &rest[..end]) {
        Some(sign) => Cow::Owned([&target[..authority], INSTEAD, &rest[sign..]].concat()),
        None => Cow::Borrowed(target),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_secrets_are_redacted() {
        let redactor = Redactor::new(None);
        for (target, clean) in [
            ("/a", "/a"),
            ("/a?", "/a?"),
            ("/a?x=1&token=abc&y=2", "/a?x=1&token=REDACTED&y=2"),
            ("/a?ToKeN=abc", "/a?ToKeN=REDACTED"),
            ("/a?t%6Fken=abc;password=x;z", "/a?t%6Fken=REDACTED;password=REDACTED;z"),
            ("/a?token=", "/a?token="),
            ("/a?token", "/a?token"),
            ("/a?code=1&&", "/a?code=1&&"),
            (
                "/a?private_token=abc&job%5Ftoken=d",
                "/a?private_token=REDACTED&job%5Ftoken=REDACTED",
            ),
            ("/a?jwt=abc&api-key=d", "/a?jwt=REDACTED&api-key=REDACTED"),
            ("/a?user%5Bpassword%5D=abc", "/a?user%5Bpassword%5D=REDACTED"),
            (
                "/a?AWSAccessKeyId=A&x-goog-signature=b",
                "/a?AWSAccessKeyId=REDACTED&x-goog-signature=REDACTED",
            ),
            ("/a?sid=abc&PHPSESSID=d&auth=e", "/a?sid=REDACTED&PHPSESSID=REDACTED&auth=REDACTED"),
            ("/a?x=token=1", "/a?x=token=1"),
            ("/a?token=a=b", "/a?token=REDACTED"),
            ("http://u:p@h/a?b", "http://REDACTED@h/a?b"),
            ("http://u:p@x@h", "http://REDACTED@h"),
            ("http://h/a@b?sig=1", "http://h/a@b?sig=REDACTED"),
            ("/a?u=http://x:y@h/", "/a?u=http://x:y@h/"),
            ("", ""),
            ("*", "*"),
        ] {
            let cleaned = redactor.target(target.as_bytes());
            assert_eq!(cleaned, clean.as_bytes(), "{target}");
        }
    }

    #[test]
    fn some_parameters_are_always_secret() {
        let redactor = Redactor::new(Some(&[])).with(&["Md5".to_owned()]);
        assert_eq!(redactor.target(b"/a?MD5=x&token=y"), &b"/a?MD5=REDACTED&token=y"[..]);
    }

    #[test]
    fn credentials_and_urls_in_fields_are_redacted() {
        let redactor = Redactor::new(Some(&["K".to_owned()]));
        for (name, value, shown) in [
            ("Proxy-Authorization", "Basic hunter", "REDACTED"),
            ("cookie", "id=hunter", "REDACTED"),
            ("X-Vault-Token", "hunter", "REDACTED"),
            ("Private-Token", "hunter", "REDACTED"),
            ("X-Amz-Security-Token", "hunter", "REDACTED"),
            ("Client-Cert", ":hunter:", "REDACTED"),
            ("Sec-WebSocket-Protocol", "bearer, hunter", "REDACTED"),
            ("Referer", "http://u:hunter@h/?k=hunter&a=b", "http://REDACTED@h/?k=REDACTED&a=b"),
            ("x-original-url", "/a?k=hunter", "/a?k=REDACTED"),
            ("X-Url", "/a?token=shown", "/a?token=shown"),
            ("X-Auth", "hunter", "REDACTED"),
            ("Origin", "https://h:8443", "https://h:8443"),
            ("Accept", "text/html, */*;q=0.8", "text/html, */*;q=0.8"),
        ] {
            assert_eq!(
                redactor.field(name.as_bytes(), value.as_bytes()),
                shown.as_bytes(),
                "{name}"
            );
        }
    }
}
