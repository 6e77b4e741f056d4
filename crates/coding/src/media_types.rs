//! Media types that benefit from compression.

/// Returns `true` if content of this media type benefits from compression.
pub fn compressible(media_type: &str) -> bool {
    let lower = &mut [0; LONGEST];
    let Some(essence) = essence(media_type.as_bytes(), lower) else { return false };
    is_compressible(essence)
}

/// As [`compressible`], for the value of a field.
pub fn compressible_value(media_type: &[u8]) -> bool {
    let lower = &mut [0; LONGEST];
    essence(media_type, lower).is_some_and(is_compressible)
}

fn is_compressible(essence: &str) -> bool {
    essence.starts_with("text/")
        || ["+json", "+xml", "+yaml"].iter().any(|suffix| essence.ends_with(suffix))
        || matches!(
            essence,
            "application/javascript"
                | "application/json"
                | "application/jsonl"
                | "application/postscript"
                | "application/rtf"
                | "application/sql"
                | "application/toml"
                | "application/vnd.apple.mpegurl"
                | "application/vnd.ms-fontobject"
                | "application/wasm"
                | "application/x-ndjson"
                | "application/x-sh"
                | "application/x-tar"
                | "application/x-tex"
                | "application/xml"
                | "application/xml-dtd"
                | "application/yaml"
                | "font/collection"
                | "font/otf"
                | "font/ttf"
                | "image/bmp"
                | "image/vnd.microsoft.icon"
                | "image/x-icon"
        )
}

/// Returns `true` if the format of this media type is compressed already, so that no sibling is searched for.
pub fn is_compressed(media_type: &str) -> bool {
    let lower = &mut [0; LONGEST];
    let Some(essence) = essence(media_type.as_bytes(), lower) else { return false };
    let kind = essence.split('/').next().unwrap_or_default();
    match kind {
        "image" => !is_compressible(essence),
        "audio" | "video" => true,
        _ => matches!(
            essence,
            "application/gzip"
                | "application/pdf"
                | "application/x-7z-compressed"
                | "application/x-bzip2"
                | "application/x-xz"
                | "application/zip"
                | "application/zstd"
                | "font/woff"
                | "font/woff2"
        ),
    }
}

/// Bytes of the longest media type that is looked at.
const LONGEST: usize = 64;

/// Returns the media type without parameters in lower case; `None` if it is longer than any that is known.
fn essence<'a>(media_type: &[u8], lower: &'a mut [u8; LONGEST]) -> Option<&'a str> {
    let end = media_type.iter().position(|&byte| byte == b';').unwrap_or(media_type.len());
    let essence = media_type[..end].trim_ascii();
    let lower = lower.get_mut(..essence.len())?;
    lower.copy_from_slice(essence);
    lower.make_ascii_lowercase();
    str::from_utf8(lower).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_depends_on_the_type() {
        for media_type in
            ["Text/HTML; charset=utf-8", "image/svg+xml", "application/yaml", "font/ttf"]
        {
            assert!(compressible(media_type) && !is_compressed(media_type), "{media_type}");
        }
        for media_type in ["image/webp", "video/mp4", "font/woff2", "Application/Zip"] {
            assert!(!compressible(media_type) && is_compressed(media_type), "{media_type}");
        }
    }
}
