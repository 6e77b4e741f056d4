//! The fields of WebDAV requests besides `If` (RFC 4918 §10).

use dunlin_http::semantics::host;
use dunlin_http::semantics::target::{self, Target};
use dunlin_http::{FieldName, Method, Request};

use super::Malformed;

/// The members of a collection that a request concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// None.
    Zero,
    /// Its direct members.
    One,
    /// All.
    Infinity,
}

/// The time after which a lock ends, in seconds: the longest that a client gets by default.
pub const DEFAULT_TIMEOUT: u64 = 600;

/// Returns the value of a field that stands once at most.
fn field<'r>(request: &Request<'r>, name: &str) -> Result<Option<&'r [u8]>, Malformed> {
    let is_it = |(other, _): &(&[u8], &[u8])| other.eq_ignore_ascii_case(name.as_bytes());
    let mut values = request.fields().filter(is_it).map(|(_, value)| value.trim_ascii());
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        _ => Err(Malformed),
    }
}

/// Returns the value of `Depth`.
///
/// # Errors
/// If it is another value.
pub fn depth(request: &Request<'_>) -> Result<Option<Depth>, Malformed> {
    Ok(match field(request, "Depth")? {
        None => None,
        Some(b"0") => Some(Depth::Zero),
        Some(b"1") => Some(Depth::One),
        Some(value) if value.eq_ignore_ascii_case(b"infinity") => Some(Depth::Infinity),
        Some(_) => return Err(Malformed),
    })
}

/// Returns `false` if the request does not replace what is at its destination.
///
/// # Errors
/// If the value is neither `T` nor `F`.
pub fn overwrites(request: &Request<'_>) -> Result<bool, Malformed> {
    match field(request, "Overwrite")? {
        None | Some(b"T" | b"t") => Ok(true),
        Some(b"F" | b"f") => Ok(false),
        Some(_) => Err(Malformed),
    }
}

/// Returns the first time of `Timeout` in seconds, at most `max`.
///
/// # Errors
/// If there is no time of a known form.
pub fn timeout(request: &Request<'_>, max: u64) -> Result<u64, Malformed> {
    let Some(value) = field(request, "Timeout")? else { return Ok(DEFAULT_TIMEOUT.min(max)) };
    let mut times = value.split(|&byte| byte == b',').filter_map(|time| {
        let time = std::str::from_utf8(time.trim_ascii()).ok()?;
        if time.eq_ignore_ascii_case("infinite") {
            return Some(max);
        }
        let (unit, number) = time.split_once('-')?;
        let is_number = unit.eq_ignore_ascii_case("second")
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit());
        // A number that is too large for the type is larger than the maximum.
        is_number.then(|| number.parse().unwrap_or(u64::MAX).clamp(1, max))
    });
    times.next().ok_or(Malformed)
}

/// Returns the token of `Lock-Token`.
///
/// # Errors
/// If there is none in angle brackets.
pub fn lock_token<'r>(request: &Request<'r>) -> Result<&'r str, Malformed> {
    let value = field(request, "Lock-Token")?.ok_or(Malformed)?;
    let token = value.strip_prefix(b"<").and_then(|rest| rest.strip_suffix(b">"));
    std::str::from_utf8(token.ok_or(Malformed)?).map_err(|_| Malformed)
}

/// Returns the value of `If`.
///
/// # Errors
/// If it stands twice.
pub fn conditions<'r>(request: &Request<'r>) -> Result<Option<&'r [u8]>, Malformed> {
    field(request, "If")
}

/// A URL that a request names besides its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'r> {
    /// A path of the same host, encoded.
    Here(&'r [u8]),
    /// A URL of another host.
    Elsewhere,
}

/// Returns the value of `Destination`.
///
/// # Errors
/// If there is none, or it is not a URL.
pub fn destination<'r>(request: &Request<'r>) -> Result<Place<'r>, Malformed> {
    place(request, field(request, "Destination")?.ok_or(Malformed)?)
}

/// Returns the place of a URL or a path with respect to the request. The scheme is that of the client, which a proxy before this
/// server may replace.
///
/// # Errors
/// If it is neither, or has a fragment.
pub fn place<'r>(request: &Request<'_>, url: &'r [u8]) -> Result<Place<'r>, Malformed> {
    match target::parse(Method::Get, url).map_err(|_| Malformed)? {
        Target::Origin { path, .. } => Ok(Place::Here(path)),
        Target::Absolute { scheme, authority, path, .. } => {
            let default = if scheme.eq_ignore_ascii_case(b"https") { 443 } else { 80 };
            let own = request.field(FieldName::Host).unwrap_or_default();
            let is_own = match (host::parse(authority), host::parse(own)) {
                (Some(named), Some(own)) => {
                    named.name.eq_ignore_ascii_case(own.name)
                        && named.port.unwrap_or(default) == own.port.unwrap_or(default)
                }
                _ => false,
            };
            Ok(if is_own { Place::Here(path) } else { Place::Elsewhere })
        }
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use dunlin_http::http1::Http1Connection;
    use dunlin_http::{Head, Limits};

    use super::*;

    fn with<T>(fields: &str, run: impl FnOnce(&Request<'_>) -> T) -> T {
        let text = format!("COPY /a HTTP/1.1\r\nHost: x.test:8080\r\n{fields}\r\n");
        let mut head = Head::default();
        let read = Http1Connection::default().head(text.as_bytes(), &Limits::default(), &mut head);
        assert_eq!(read, Ok(Some(text.len())));
        run(&Request::new(text.as_bytes(), &head))
    }

    #[test]
    fn fields_have_known_values_only() {
        for (fields, expected) in [
            ("", Ok(None)),
            ("Depth: 0\r\n", Ok(Some(Depth::Zero))),
            ("depth: 1\r\n", Ok(Some(Depth::One))),
            ("Depth: Infinity\r\n", Ok(Some(Depth::Infinity))),
            ("Depth: 2\r\n", Err(Malformed)),
            ("Depth: 0\r\nDepth: 0\r\n", Err(Malformed)),
        ] {
            assert_eq!(with(fields, depth), expected, "{fields}");
        }
        for (fields, expected) in [
            ("", Ok(true)),
            ("Overwrite: T\r\n", Ok(true)),
            ("Overwrite: F\r\n", Ok(false)),
            ("Overwrite: x\r\n", Err(Malformed)),
        ] {
            assert_eq!(with(fields, overwrites), expected, "{fields}");
        }
        for (value, expected) in [
            ("Second-5", Ok(5)),
            ("Infinite, Second-5", Ok(1000)),
            ("Second-4100000000", Ok(1000)),
            ("Second-99999999999999999999", Ok(1000)),
            ("Second-0", Ok(1)),
            ("x, Second-7", Ok(7)),
            ("Second-", Err(Malformed)),
        ] {
            let fields = format!("Timeout: {value}\r\n");
            assert_eq!(with(&fields, |request| timeout(request, 1000)), expected, "{value}");
        }
        assert_eq!(with("", |request| timeout(request, 10)), Ok(10));
        assert_eq!(
            with("Lock-Token: <urn:a>\r\n", |request| lock_token(request).map(str::to_owned)),
            Ok("urn:a".into())
        );
        assert_eq!(
            with("Lock-Token: urn:a\r\n", |request| lock_token(request).map(str::to_owned)),
            Err(Malformed)
        );
    }

    #[test]
    fn a_destination_is_a_path_of_the_host_or_elsewhere() {
        for (value, expected) in [
            ("/b?c", Ok(Some("/b"))),
            ("http://x.test:8080/b%20c", Ok(Some("/b%20c"))),
            ("https://X.TEST:8080/b", Ok(Some("/b"))),
            ("http://x.test/b", Ok(None)),
            ("http://y.test:8080/b", Ok(None)),
            ("b", Err(Malformed)),
            ("/b#c", Err(Malformed)),
            ("ftp://x.test:8080/b", Err(Malformed)),
        ] {
            let fields = format!("Destination: {value}\r\n");
            let found = with(&fields, |request| {
                destination(request).map(|place| match place {
                    Place::Here(path) => Some(String::from_utf8_lossy(path).into_owned()),
                    Place::Elsewhere => None,
                })
            });
            assert_eq!(found, expected.map(|path| path.map(str::to_owned)), "{value}");
        }
        assert!(with("", |request| destination(request).is_err()));
    }
}
