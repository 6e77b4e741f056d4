//! The status page: one file without external resources.

use std::sync::LazyLock;

use dunlin_exchange::Response;
use dunlin_http::semantics::digest::base64;
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const BODY: &str = include_str!("page.html");

/// Content Security Policy of the page: only its own style, its own script and requests to its own server.
static CSP: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| base64(&Sha256::digest(text));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
        hash(STYLE),
        hash(SCRIPT)
    )
});

static PAGE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Dunlin: status</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n{BODY}<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
});

/// Returns the page.
pub(super) fn response() -> Response {
    let mut response = super::text("text/html; charset=utf-8", PAGE.as_bytes());
    response.fields.push("Content-Security-Policy", &*CSP);
    response
}
