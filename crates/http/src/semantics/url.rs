//! URLs of the schemes `http` and `https`.

use std::fmt;

use super::host;

/// An absolute URL without userinfo and fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    is_secure: bool,
    authority: Box<str>,
    host_length: usize,
    port: Option<u16>,
    target: Box<str>,
}

/// The text is not a URL that the client can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidUrl {
    text: String,
}

impl Url {
    /// Reads a URL.
    ///
    /// # Errors
    /// If the scheme is neither `http` nor `https`, the host is missing or malformed, or the text has userinfo, a
    /// fragment, or a character that no URL has.
    pub fn parse(text: &str) -> Result<Self, InvalidUrl> {
        Self::read(text).ok_or_else(|| InvalidUrl { text: text.to_owned() })
    }

    fn read(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let is_secure = match scheme {
            _ if scheme.eq_ignore_ascii_case("http") => false,
            _ if scheme.eq_ignore_ascii_case("https") => true,
            _ => return None,
        };
        if !rest.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            return None;
        }
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let parsed = host::parse(authority.as_bytes()).filter(|host| !host.name.is_empty())?;
        let slash = if target.starts_with('/') { "" } else { "/" };
        Some(Self {
            is_secure,
            authority: authority.into(),
            host_length: parsed.name.len(),
            port: parsed.port,
            target: format!("{slash}{target}").into(),
        })
    }

    /// Returns `true` if the scheme is `https`.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Host and port as they stand in the URL.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the host, an IPv6 address with brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.authority[..self.host_length]
    }

    /// Returns the port, or the scheme's default.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(if self.is_secure { 443 } else { 80 })
    }

    /// Path and query; begins with a slash.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.target)
    }
}

impl fmt::Display for InvalidUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text } = self;
        write!(f, "{text:?} is not an http or https URL such as \"http://127.0.0.1:8080/\"")
    }
}

impl std::error::Error for InvalidUrl {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split_into_their_parts() {
        let url = Url::parse("https://[::1]:444/a?b").unwrap();
        assert_eq!((url.host(), url.port(), url.target()), ("[::1]", 444, "/a?b"));
        assert_eq!((url.authority(), url.is_secure()), ("[::1]:444", true));
        let url = Url::parse("HTTP://a.example?q").unwrap();
        assert_eq!((url.host(), url.port(), url.target()), ("a.example", 80, "/?q"));
        assert_eq!(url.to_string(), "http://a.example/?q");
        assert_eq!(Url::parse("https://a").unwrap().port(), 443);
    }

    #[test]
    fn unusable_urls_are_rejected() {
        for wrong in [
            "",
            "a",
            "/a",
            "ftp://a/",
            "http://",
            "http:///a",
            "http://u@a/",
            "http://a/b c",
            "http://a/#f",
            "http://a:99999/",
            "http://a:x/",
            "http://a\u{e4}/",
            "http://:80/",
        ] {
            assert!(Url::parse(wrong).is_err(), "{wrong}");
        }
    }
}
