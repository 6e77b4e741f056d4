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
    if charset.is_empty()
        || !takes_charset(&media_type)
        || media_type.to_ascii_lowercase().contains("charset=")
    {
        return media_type;
    }
    format!("{media_type}; charset={charset}").into()
}

/// The types that matter to browsers are pinned here; the crate's table, which may change with any
/// release, knows the rest.
fn known(extension: &str) -> &'static str {
    match extension {
        // RFC 9239 §6: text/javascript; the application/ forms are obsolete.
        "js" | "mjs" | "cjs" => "text/javascript",
        "html" | "htm" => "text/html",
        "xhtml" | "xht" => "application/xhtml+xml",
        "css" => "text/css",
        "txt" | "text" | "log" | "stmlf" => "text/plain",
        "csv" => "text/csv",
        "md" | "markdown" => "text/markdown",
        "vtt" => "text/vtt",
        "json" | "map" => "application/json",
        "jsonld" => "application/ld+json",
        "webmanifest" => "application/manifest+json",
        "xml" | "xsl" => "application/xml",
        "atom" => "application/atom+xml",
        "rss" => "application/rss+xml",
        "yaml" | "yml" => "application/yaml", // RFC 9512
        "toml" => "application/toml",
        "wasm" => "application/wasm",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "zst" => "application/zstd", // RFC 8878 §7.1
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "jxl" => "image/jxl",
        "ico" => "image/vnd.microsoft.icon",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "ttf" => "font/ttf",
        "otf" => "font/otf",
        "mp3" => "audio/mpeg",
        "m4a" => "audio/mp4",
        "ogg" | "oga" | "opus" => "audio/ogg", // RFC 5334 §9, RFC 7845 §9
        "wav" => "audio/wav",
        "flac" => "audio/flac",
        "mp4" | "m4v" => "video/mp4",
        "webm" => "video/webm",
        "m3u8" => "application/vnd.apple.mpegurl",
        "ts" => "video/mp2t",
        _ => mime_guess::from_ext(extension).first_raw().unwrap_or("application/octet-stream"),
    }
}

/// JSON is UTF-8 by definition and has no such parameter (RFC 8259 §11).
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
            ("a.xml", "application/xml; charset=utf-8"),
            ("a.wasm", "application/wasm"),
            ("a.woff2", "font/woff2"),
            ("a.webp", "image/webp"),
            ("a.avif", "image/avif"),
            ("a.md", "text/markdown; charset=utf-8"),
            ("a.webmanifest", "application/manifest+json"),
            ("a.tar.gz", "application/gzip"),
            ("a.foo", "text/x-foo; charset=utf-8"),
            ("a.yaml", "application/yaml"),
            ("a.toml", "application/toml"),
            ("a.ico", "image/vnd.microsoft.icon"),
            ("a.jxl", "image/jxl"),
            ("a.ttf", "font/ttf"),
            ("a.ogg", "audio/ogg"),
            ("a.ts", "video/mp2t"),
            ("a.zst", "application/zstd"),
            ("A.TXT.stmlf", "text/plain; charset=utf-8"),
            ("a.rs", "text/x-rust; charset=utf-8"),
            ("README", "application/octet-stream"),
        ] {
            assert_eq!(media_type(name, &overrides, "utf-8"), expected, "{name}");
        }
        assert_eq!(media_type("a.html", &HashMap::new(), ""), "text/html");
    }
}
