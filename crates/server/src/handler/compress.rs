//! Content codings made on the fly.

use std::io::{self, Write};

use dunlin_http::semantics::Coding;
use sha2::{Digest, Sha256};

/// Codes `input`; done once for each version of a file and kept.
pub(crate) fn compress(coding: Coding, input: &[u8]) -> io::Result<Vec<u8>> {
    match coding {
        Coding::Identity => Ok(input.to_vec()),
        Coding::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
            encoder.write_all(input)?;
            encoder.finish()
        }
        Coding::Brotli => {
            let mut output = Vec::new();
            let params = brotli::enc::BrotliEncoderParams { quality: 5, lgwin: 22, ..Default::default() };
            brotli::BrotliCompress(&mut &*input, &mut output, &params)?;
            Ok(output)
        }
        Coding::Zstd => zstd::bulk::compress(input, 6),
    }
}

pub(crate) fn compressible(media_type: &str) -> bool {
    media_type.starts_with("text/") || media_type.contains("json") || media_type.contains("javascript") || media_type.contains("xml") || media_type.contains("wasm")
}

pub(crate) fn is_compressed(media_type: &str) -> bool {
    (media_type.starts_with("image/") && !media_type.contains("svg")) || media_type.starts_with("video/") || media_type.starts_with("audio/") || media_type.contains("zip") || media_type.contains("woff")
}

pub(crate) fn sha256(content: &[u8]) -> [u8; 32] {
    Sha256::digest(content).into()
}
