//! Content codings made on the fly, and which contents are worth it.

use std::io::{self, Write};

use dunlin_http::semantics::Coding;
use sha2::{Digest, Sha256};

/// Codes `input`. It is done once for each version of a file and kept, so the levels are those
/// beyond which time grows much faster than size shrinks. The output depends on the input alone.
///
/// # Errors
/// When the coder fails, which none does for want of anything but memory.
pub(crate) fn compress(coding: Coding, input: &[u8]) -> io::Result<Vec<u8>> {
    match coding {
        Coding::Identity => Ok(input.to_vec()),
        Coding::Gzip => {
            let level = flate2::Compression::new(6);
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(input)?;
            encoder.finish()
        }
        Coding::Brotli => {
            let mut output = Vec::new();
            let parameters =
                brotli::enc::BrotliEncoderParams { quality: 5, lgwin: 22, ..Default::default() };
            brotli::BrotliCompress(&mut &*input, &mut output, &parameters)?;
            Ok(output)
        }
        // Up to level 9 the window stays below the 8 MB that RFC 9659 allows.
        Coding::Zstd => zstd::bulk::compress(input, 9),
    }
}

/// Whether content of that type gets smaller by a coding.
pub(crate) fn compressible(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    essence.starts_with("text/")
        || essence.ends_with("+json")
        || essence.ends_with("+xml")
        || matches!(
            essence,
            "application/javascript"
                | "application/json"
                | "application/rtf"
                | "application/wasm"
                | "application/x-ndjson"
                | "application/xml"
                | "application/vnd.ms-fontobject"
                | "font/otf"
                | "font/ttf"
                | "image/bmp"
                | "image/x-icon"
        )
}

/// Whether content of that type is compressed by its own format, so that a coded form is not even
/// looked for.
pub(crate) fn is_compressed(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    let kind = essence.split('/').next().unwrap_or_default();
    match kind {
        "image" => !compressible(essence),
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

/// The SHA-256 of a content.
pub(crate) fn sha256(content: &[u8]) -> [u8; 32] {
    Sha256::digest(content).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_coding_gives_smaller_output_that_decodes_to_the_input() {
        let input = "the same words again, ".repeat(1000).into_bytes();
        let gzip = compress(Coding::Gzip, &input).unwrap();
        let mut decoded = Vec::new();
        io::copy(&mut flate2::read::GzDecoder::new(&*gzip), &mut decoded).unwrap();
        assert!(decoded == input && gzip.len() < input.len() / 10);

        let br = compress(Coding::Brotli, &input).unwrap();
        let mut decoded = Vec::new();
        brotli::BrotliDecompress(&mut &*br, &mut decoded).unwrap();
        assert!(decoded == input && br.len() < input.len() / 10);

        let zstd = compress(Coding::Zstd, &input).unwrap();
        assert!(zstd::bulk::decompress(&zstd, 1 << 20).unwrap() == input);
        assert!(zstd.len() < input.len() / 10);
    }
}
