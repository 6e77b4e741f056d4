//! The command line of a script (RFC 3875 §4.4).

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use dunlin_http::Request;
use dunlin_http::semantics::Method;

/// Returns the words of a query without `=`, which a search form sends (RFC 3875 §4.4). None if the script or its interpreter
/// could take one for an option.
pub(super) fn arguments(request: &Request<'_>, query: Option<&[u8]>) -> Vec<OsString> {
    let Some(query) = query.filter(|query| !query.is_empty() && !query.contains(&b'=')) else {
        return Vec::new();
    };
    if !matches!(request.method(), Method::Get | Method::Head) {
        return Vec::new();
    }
    let words = query.split(|&byte| byte == b'+').map(decode);
    let words: Option<Vec<OsString>> = words.collect();
    words
        .filter(|words| !words.iter().any(|word| word.as_bytes().starts_with(b"-")))
        .unwrap_or_default()
}

fn decode(word: &[u8]) -> Option<OsString> {
    let mut at = 0;
    let mut decoded = Vec::with_capacity(word.len());
    while let Some(&byte) = word.get(at) {
        if byte == b'%' {
            let digits = std::str::from_utf8(word.get(at + 1..at + 3)?).ok()?;
            let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            decoded.push(u8::from_str_radix(digits, 16).ok().filter(|byte| plain && *byte != 0)?);
            at += 3;
        } else {
            decoded.push(byte);
            at += 1;
        }
    }
    Some(OsString::from_vec(decoded))
}
