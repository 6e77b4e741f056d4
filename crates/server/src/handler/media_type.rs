//! Media types by file name extension.

use std::borrow::Cow;
use std::collections::HashMap;

/// The media type of a file of that name: by the route's own list, then by the registry's; with
/// `charset` where the type is text that states none.
pub(crate) fn media_type(
    file_name: &str,
    overrides: &HashMap<String, String>,
    charset: &str,
) -> Cow<'static, str> {
    let extension = file_name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let extension = extension.to_ascii_lowercase();
    let media_type = match overrides.get(&extension) {
        Some(media_type) => Cow::Owned(media_type.clone()),
        None => Cow::Borrowed(known(&extension)),
    };
    if charset.is_empty() || media_type.contains(';') || !takes_charset(&media_type) {
        return media_type;
    }
    format!("{media_type}; charset={charset}").into()
}

fn known(extension: &str) -> &'static str {
    match extension {
        // RFC 9239 made text/javascript the one name.
        "js" | "mjs" => "text/javascript",
        "map" => "application/json",
        "webmanifest" => "application/manifest+json",
        extension => {
            mime_guess::from_ext(extension).first_raw().unwrap_or("application/octet-stream")
        }
    }
}

fn takes_charset(media_type: &str) -> bool {
    media_type.starts_with("text/")
        || media_type.ends_with("+xml")
        || matches!(media_type, "application/xml" | "application/javascript")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_of_the_web() {
        let overrides = HashMap::from([("foo".to_owned(), "text/x-foo".to_owned())]);
        for (name, expected) in [
            ("index.html", "text/html; charset=utf-8"),
            ("A.HTM", "text/html; charset=utf-8"),
            ("app.js", "text/javascript; charset=utf-8"),
            ("app.mjs", "text/javascript; charset=utf-8"),
            ("a.css", "text/css; charset=utf-8"),
            ("a.json", "application/json"),
            ("a.svg", "image/svg+xml; charset=utf-8"),
            ("a.xml", "text/xml; charset=utf-8"),
            ("a.wasm", "application/wasm"),
            ("a.woff2", "font/woff2"),
            ("a.webp", "image/webp"),
            ("a.avif", "image/avif"),
            ("a.md", "text/markdown; charset=utf-8"),
            ("a.webmanifest", "application/manifest+json"),
            ("a.tar.gz", "application/gzip"),
            ("a.foo", "text/x-foo; charset=utf-8"),
            ("README", "application/octet-stream"),
        ] {
            assert_eq!(media_type(name, &overrides, "utf-8"), expected, "{name}");
        }
        assert_eq!(media_type("a.html", &HashMap::new(), ""), "text/html");
    }
}
