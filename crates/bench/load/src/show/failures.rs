//! Failures as text: their number by kind, the first of each kind, and advice.

use crate::outcome::{ErrorKind, Outcome, TLS_RECORD};

use super::layout::fill;
use super::number::count;

/// Returns the number of failures by kind.
pub(crate) fn failures(o: &Outcome) -> String {
    let kinds = o.errors_by_kind.iter().map(|(kind, n)| format!("{} {}", count(*n), words(*kind)));
    kinds.collect::<Vec<_>>().join(", ")
}

/// Returns the first failure of each kind and advice, in lines.
pub(super) fn details(o: &Outcome) -> String {
    let several = o.first_errors.len() > 1;
    let mut text = String::new();
    for (kind, reason) in &o.first_errors {
        let which = if several { format!(" ({})", words(*kind)) } else { String::new() };
        text.push_str(&fill("  ", &format!("first{which}: {reason}"), 4));
    }
    for hint in hints(o) {
        text.push_str(&fill("  ", &format!("hint: {hint}"), 4));
    }
    text
}

/// Description of a kind of failure.
fn words(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Refused => "connections refused",
        ErrorKind::Reset => "connections reset",
        ErrorKind::StreamReset => "streams reset",
        ErrorKind::Closed => "cut short by a closed connection",
        ErrorKind::Timeout => "timed out",
        ErrorKind::NoAddress => "without a free local port",
        ErrorKind::NoDescriptor => "without a free descriptor",
        ErrorKind::Tls => "TLS handshakes failed",
        ErrorKind::Protocol => "not HTTP",
        ErrorKind::Status => "with another status",
        ErrorKind::Length => "with another length",
        ErrorKind::Hash => "with other content",
        ErrorKind::Other => "other",
    }
}

/// Advice on failures.
fn hints(o: &Outcome) -> Vec<String> {
    let first = |kind: ErrorKind| o.first_errors.get(&kind).map_or("", String::as_str);
    let tls = first(ErrorKind::Tls);
    let mut hints = Vec::new();
    let mut hint = |text: &str| hints.push(text.to_owned());
    if tls.contains("certificate is rejected") {
        hint("--insecure accepts any certificate");
    } else if tls.contains("did not respond with TLS") {
        hint("the port does not use TLS; use http://");
    }
    if ["certificate_required", "CertificateRequired"].iter().any(|alert| tls.contains(alert)) {
        hint("the server demands a client certificate, which load does not have");
    }
    let is_plain = o.plan.urls.first().is_some_and(|url| url.starts_with("http://"));
    let wants_tls = first(ErrorKind::Protocol).contains(TLS_RECORD)
        || o.status.contains_key(&400) && names_tls(first(ErrorKind::Status));
    if is_plain && wants_tls {
        hint("the port uses TLS; use https://");
    } else if o.errors_by_kind.contains_key(&ErrorKind::Status) {
        hint(&unexpected_status(o));
    }
    hints
}

/// Returns `true` if a server's message is about a port that uses TLS, as those of all common servers are.
fn names_tls(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["https", "tls", "ssl"].iter().any(|word| message.contains(word))
}

/// Advice on the most frequent status outside of 2xx.
fn unexpected_status(o: &Outcome) -> String {
    let others = o.status.iter().filter(|(status, _)| !(200..300).contains(*status));
    let Some((status, _)) = others.max_by_key(|(_, count)| **count) else {
        return "--expect-status accepts other statuses than the given ones".to_owned();
    };
    let cause = match status {
        304 => "the request is conditional, by a header such as If-None-Match; ",
        300..=399 => "redirects are not followed: load the URL that they name; ",
        401 | 407 => "a header such as -H 'Authorization: …' authenticates; ",
        404 | 410 => "the server has nothing at this URL; ",
        421 => {
            "the server has no site for this host, or not on a TLS connection for another (--sni); "
        }
        429 | 503 => "the server rejects requests, perhaps by a limit; ",
        _ => "",
    };
    format!("{cause}if {status} is right, accept it with --expect-status {status}")
}
