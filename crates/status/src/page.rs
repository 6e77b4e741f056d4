//! The status page: one file without external resources.

use std::borrow::Cow;
use std::sync::LazyLock;

use dunlin_http::semantics::digest::base64;
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const BODY: &str = include_str!("page.html");

/// Content Security Policy of the page: only its own style, its own script and requests to its own server.
pub static CONTENT_SECURITY_POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| base64(&Sha256::digest(text));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
        hash(STYLE),
        hash(SCRIPT)
    )
});

/// What the page shows, if there are two of it.
#[derive(Debug, Clone, Copy)]
pub enum View {
    /// This server.
    Server,
    /// The sum of several.
    Fleet,
}

impl View {
    /// Links to both pages.
    fn links(self) -> String {
        let (own, sum) = match self {
            Self::Server => ("./", "fleet/"),
            Self::Fleet => ("../", "./"),
        };
        let link = |href: &str, text: &str| match href {
            "./" => format!("<a href=\"./\" aria-current=\"page\">{text}</a>"),
            _ => format!("<a href=\"{href}\">{text}</a>"),
        };
        format!("<nav>{} {}</nav>\n", link(own, "This server"), link(sum, "All replicas"))
    }
}

/// Returns the page as HTML. `view` is one of two, or `None` if there is only one.
pub fn html(view: Option<View>) -> String {
    let links = view.map(View::links).unwrap_or_default();
    let body = match view {
        // Each server has metrics of its own.
        Some(View::Fleet) => Cow::Owned(BODY.replace("\"metrics\"", "\"../metrics\"")),
        _ => Cow::Borrowed(BODY),
    };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Dunlin: status</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n{links}{body}<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
}
