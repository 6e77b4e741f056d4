//! Media types by file name.

mod table;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use dunlin_http::semantics::{ContentCoding, is_field_value};

/// The content type that a file name implies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentType {
    /// With a `charset` parameter if the type is text that does not declare one itself.
    pub media_type: Arc<str>,
    /// The content coding of the file itself; usually [`ContentCoding::Identity`].
    pub coding: ContentCoding,
    /// Compression pays.
    pub is_compressible: bool,
    /// The format compresses its content.
    pub is_compressed: bool,
}

thread_local! {
    /// Content types without a route's list, by charset and extension.
    static KNOWN: RefCell<hashbrown::HashMap<String, hashbrown::HashMap<String, ContentType>>> = RefCell::default();
}

/// Maximum number of extensions with one charset.
const MAX_KNOWN: usize = 256;

/// Returns the content type of a file name: by the route's list (`overrides`), then by the built-in table, then by
/// `mime_guess`.
pub(crate) fn content_type(
    file_name: &str,
    overrides: &HashMap<String, String>,
    charset: &str,
) -> ContentType {
    let extension = file_name.rsplit_once('.').map(|(_, extension)| extension);
    let Some(extension) = extension.filter(|_| overrides.is_empty()) else {
        return look_up(file_name, overrides, charset);
    };
    KNOWN.with_borrow_mut(|known| {
        if let Some(found) = known.get(charset).and_then(|of_charset| of_charset.get(extension)) {
            return found.clone();
        }
        let found = look_up(file_name, overrides, charset);
        let of_charset = known.entry(charset.to_owned()).or_default();
        if of_charset.len() >= MAX_KNOWN {
            of_charset.clear();
        }
        of_charset.insert(extension.to_owned(), found.clone());
        found
    })
}

/// Returns the content type of an object: the one that its name implies; if it implies none, the one that the store has. The
/// content coding is that of the store.
pub(crate) fn of_object(
    by_name: ContentType,
    stored_type: Option<&str>,
    stored_coding: Option<&str>,
    charset: &str,
) -> ContentType {
    let mut found = by_name;
    let stored = stored_type.filter(|stored| is_field_value(stored.as_bytes()));
    if let Some(stored) = stored.filter(|_| &*found.media_type == UNKNOWN) {
        let media_type = with_charset(stored, charset);
        found = ContentType {
            is_compressible: dunlin_coding::compressible(&media_type),
            is_compressed: dunlin_coding::is_compressed(&media_type),
            media_type: media_type.into(),
            ..found
        };
    }
    let stored = stored_coding.map(|coding| coding.trim().to_ascii_lowercase());
    found.coding = match stored.as_deref() {
        Some("gzip" | "x-gzip") => ContentCoding::Gzip,
        Some("br") => ContentCoding::Brotli,
        Some("zstd") => ContentCoding::Zstd,
        _ => found.coding,
    };
    found
}

/// Returns the name of the file at a path, which determines its media type.
pub(crate) fn file_name(file: &[u8]) -> Cow<'_, str> {
    let start = memchr::memrchr(b'/', file).map_or(0, |slash| slash + 1);
    String::from_utf8_lossy(&file[start..])
}

fn look_up(file_name: &str, overrides: &HashMap<String, String>, charset: &str) -> ContentType {
    let name = file_name.to_ascii_lowercase();
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    let media_type = match extension.and_then(|extension| overrides.get(extension)) {
        Some(media_type) => Cow::Borrowed(media_type.as_str()),
        None => Cow::Borrowed(extension.map_or_else(|| by_whole_name(&name), by_extension)),
    };
    // `svgz` is SVG compressed with gzip.
    let is_svgz = extension == Some("svgz") && essence(&media_type) == "image/svg+xml";
    let coding = if is_svgz { ContentCoding::Gzip } else { ContentCoding::Identity };
    let media_type = with_charset(&media_type, charset);
    let is_compressible = dunlin_coding::compressible(&media_type);
    let is_compressed = dunlin_coding::is_compressed(&media_type);
    ContentType { media_type: media_type.into(), coding, is_compressible, is_compressed }
}

fn with_charset(media_type: &str, charset: &str) -> String {
    let has_charset = media_type.to_ascii_lowercase().contains("charset=");
    if charset.is_empty() || has_charset || !takes_charset(media_type) {
        return media_type.to_owned();
    }
    format!("{media_type}; charset={charset}")
}

fn by_extension(extension: &str) -> &'static str {
    static TABLE: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
        let pairs = |&(media_type, extensions): &(&'static str, &'static [&'static str])| {
            extensions.iter().map(move |&extension| (extension, media_type))
        };
        table::BY_EXTENSION.iter().flat_map(pairs).collect()
    });
    let known = TABLE.get(extension).copied();
    known.or_else(|| mime_guess::from_ext(extension).first_raw()).unwrap_or(UNKNOWN)
}

/// Returns the media type of a file without extension. `name` is in lower case.
fn by_whole_name(name: &str) -> &'static str {
    let stem = name.split('-').next().unwrap_or(name);
    if table::TEXT_NAMES.contains(&stem) { "text/plain" } else { UNKNOWN }
}

const UNKNOWN: &str = "application/octet-stream";

/// Returns `true` if the type needs a `charset` parameter: it is text, and its format has no declaration that the parameter
/// would override, as XML has (RFC 7303 §3.2). JSON has no such parameter (RFC 8259 §11).
fn takes_charset(media_type: &str) -> bool {
    let essence = essence(media_type);
    let is_xml =
        essence.ends_with("+xml") || essence == "text/xml" || essence.starts_with("text/xml-");
    essence.starts_with("text/") && !is_xml || essence == "application/javascript"
}

/// Returns the media type without parameters, in lower case.
fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn media_type(name: &str) -> String {
        let overrides = HashMap::from([
            ("foo".to_owned(), "text/x-foo".to_owned()),
            ("page".to_owned(), "Text/XML".to_owned()),
        ]);
        content_type(name, &overrides, "utf-8").media_type.to_string()
    }

    #[test]
    fn the_types_of_the_web() {
        for (name, expected) in [
            ("index.html", "text/html; charset=utf-8"),
            ("A.HTM", "text/html; charset=utf-8"),
            ("app.js", "text/javascript; charset=utf-8"),
            ("app.mjs", "text/javascript; charset=utf-8"),
            ("a.css", "text/css; charset=utf-8"),
            ("a.json", "application/json"),
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
            ("a.unknown", "application/octet-stream"),
            ("a", "application/octet-stream"),
        ] {
            assert_eq!(media_type(name), expected, "{name}");
        }
        let without = content_type("a.html", &HashMap::new(), "");
        assert_eq!((&*without.media_type, without.is_compressible), ("text/html", true));
    }

    #[test]
    fn formats_that_declare_their_encoding_get_no_charset() {
        for (name, expected) in [
            ("a.xml", "application/xml"),
            ("a.svg", "image/svg+xml"),
            ("a.xhtml", "application/xhtml+xml"),
            ("a.atom", "application/atom+xml"),
            ("a.xslt", "application/xslt+xml"),
            ("a.mml", "application/mathml+xml"),
            ("a.page", "Text/XML"),
        ] {
            assert_eq!(media_type(name), expected, "{name}");
        }
    }

    #[test]
    fn types_that_the_general_table_has_wrong_or_not_at_all() {
        for (name, expected) in [
            ("a.sxg", "application/signed-exchange;v=b3"),
            ("a.obj", "model/obj"),
            ("a.stl", "model/stl"),
            ("a.tgz", "application/gzip"),
            ("a.vcf", "text/vcard; charset=utf-8"),
            ("a.sql", "application/sql"),
            ("a.rar", "application/vnd.rar"),
            ("a.mid", "audio/midi"),
            ("a.midi", "audio/midi"),
            ("a.cer", "application/pkix-cert"),
            ("a.m4s", "video/iso.segment"),
            ("a.usdz", "model/vnd.usdz+zip"),
            ("a.cbor", "application/cbor"),
            ("a.wgsl", "text/wgsl; charset=utf-8"),
            ("a.wbn", "application/webbundle"),
            ("a.deb", "application/vnd.debian.binary-package"),
            ("a.go", "text/x-go; charset=utf-8"),
            ("a.java", "text/x-java; charset=utf-8"),
            ("a.diff", "text/x-diff; charset=utf-8"),
            ("a.ndjson", "application/x-ndjson"),
            ("a.php", "text/x-php; charset=utf-8"),
            ("a.mts", "text/typescript; charset=utf-8"),
            ("README", "text/plain; charset=utf-8"),
            ("LICENSE", "text/plain; charset=utf-8"),
            ("LICENSE-MIT", "text/plain; charset=utf-8"),
            ("Makefile", "text/plain; charset=utf-8"),
            (".gitignore", "text/plain; charset=utf-8"),
        ] {
            assert_eq!(media_type(name), expected, "{name}");
        }
    }

    #[test]
    fn svgz_is_svg_in_gzip() {
        let types = HashMap::from([("svgz".to_owned(), "application/gzip".to_owned())]);
        for (name, types, media_type, coding) in [
            ("a.svgz", &HashMap::new(), "image/svg+xml", ContentCoding::Gzip),
            ("a.svgz", &types, "application/gzip", ContentCoding::Identity),
            ("a.svg", &HashMap::new(), "image/svg+xml", ContentCoding::Identity),
        ] {
            let found = content_type(name, types, "utf-8");
            assert_eq!((&*found.media_type, found.coding), (media_type, coding), "{name}");
        }
    }

    #[test]
    fn each_extension_is_in_the_table_once_and_in_lower_case() {
        let mut seen = std::collections::HashSet::new();
        for extension in table::BY_EXTENSION.iter().flat_map(|(_, extensions)| *extensions) {
            assert!(seen.insert(*extension), "{extension} is there twice");
            assert_eq!(*extension, extension.to_ascii_lowercase());
        }
    }
}
