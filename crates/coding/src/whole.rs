//! Compression of whole files.

use std::io::{self, Read};

use dunlin_http::semantics::ContentCoding;

/// Compresses the `length` bytes of `input`. The result is cached, so the levels are those beyond which time grows much
/// faster than size shrinks. The output depends on the input alone.
///
/// # Errors
/// Those of reading `input`.
pub fn compress(coding: ContentCoding, input: &mut dyn Read, length: u64) -> io::Result<Vec<u8>> {
    let mut input = io::BufReader::with_capacity(READ, input);
    match coding {
        ContentCoding::Identity => {
            let mut output = Vec::new();
            input.read_to_end(&mut output)?;
            Ok(output)
        }
        ContentCoding::Gzip => {
            let level = flate2::Compression::new(GZIP_LEVEL);
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            io::copy(&mut input, &mut encoder)?;
            encoder.finish()
        }
        ContentCoding::Brotli => {
            let mut output = Vec::new();
            let parameters = brotli::enc::BrotliEncoderParams {
                quality: BROTLI_QUALITY,
                lgwin: BROTLI_WINDOW_LOG,
                size_hint: usize::try_from(length).unwrap_or(usize::MAX),
                ..Default::default()
            };
            brotli::BrotliCompress(&mut input, &mut output, &parameters)?;
            Ok(output)
        }
        ContentCoding::Zstd => {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?;
            // With a known size, the encoder allocates smaller tables, and the frame header contains the size.
            encoder.set_pledged_src_size(Some(length))?;
            io::copy(&mut input, &mut encoder)?;
            encoder.finish()
        }
    }
}

/// Returns an upper estimate of the memory in bytes that [`compress`] needs for `length` bytes.
pub fn memory(coding: ContentCoding, length: u64) -> u64 {
    let encoder = match coding {
        ContentCoding::Identity => 0,
        ContentCoding::Gzip => 512 << 10,
        // Windows of at most 1 and 4 MB, with their tables.
        ContentCoding::Brotli => length.min(2 << 20) * 8 + (256 << 10),
        ContentCoding::Zstd => length.min(4 << 20) * 4 + (256 << 10),
    };
    encoder + length / 4
}

// A variant is compressed once for each version of a file and cached, so it may take longer than compression for each
// response, as long as the first client does not notice. Measured on every 100th file up to
// 256 KB of the Rust HTML documentation (513 files, mean 7.7 KB; one busy core): size in per cent of
// the original, and milliseconds per file.
//
//   gzip   1  35.0 %  0.15    4  26.1 %  0.19    6  25.7 %  0.38     9  25.7 %  0.38
//   br     1  36.9 %  0.28    4  24.8 %  1.20    5  23.2 %  1.38     9  22.9 %  11.5    11  20.5 %  41
//   zstd   3  26.9 %  0.09    6  25.5 %  0.21    9  25.3 %  0.31    15  24.9 %  2.15    19  24.8 %  8.8

/// Size of one read in bytes.
const READ: usize = 64 << 10;

/// Levels above 6 gain nothing.
const GZIP_LEVEL: u32 = 6;

/// Level 5 has nearly all savings of the levels below 10. Levels 10 and 11 save another tenth for 14 to 30 times the work,
/// which is better done in a build step (a `.br` file beside the original is served).
const BROTLI_QUALITY: i32 = 5;

/// 1 MB, of the 16 MB that decoders must allow (RFC 7932 §9.1). For 8 MB of text, a window of 4 MB takes 68 MB of
/// memory instead of 18, half as much time again, and its output is no smaller.
const BROTLI_WINDOW_LOG: i32 = 20;

/// Level 11 takes three times as long and gains 0.05 %. The window is 4 MB, within the 8 MB that
/// RFC 9659 allows.
const ZSTD_LEVEL: i32 = 9;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn compress(coding: ContentCoding, input: &[u8]) -> io::Result<Vec<u8>> {
        super::compress(coding, &mut &*input, input.len() as u64)
    }

    #[test]
    fn each_coding_gives_smaller_output_that_decodes_to_the_input() {
        let input = "the same words again, ".repeat(1000).into_bytes();
        let gzip = compress(ContentCoding::Gzip, &input).unwrap();
        let mut decoded = Vec::new();
        io::copy(&mut flate2::read::GzDecoder::new(&*gzip), &mut decoded).unwrap();
        assert!(decoded == input && gzip.len() < input.len() / 10);

        let br = compress(ContentCoding::Brotli, &input).unwrap();
        let mut decoded = Vec::new();
        brotli::BrotliDecompress(&mut &*br, &mut decoded).unwrap();
        assert!(decoded == input && br.len() < input.len() / 10);

        let zstd = compress(ContentCoding::Zstd, &input).unwrap();
        assert!(zstd::bulk::decompress(&zstd, 1 << 20).unwrap() == input);
        assert!(zstd.len() < input.len() / 10);
    }

    #[test]
    fn the_same_input_gives_the_same_bytes_at_any_time() {
        let input = text(100_000);
        for coding in [ContentCoding::Gzip, ContentCoding::Brotli, ContentCoding::Zstd] {
            assert_eq!(compress(coding, &input).unwrap(), compress(coding, &input).unwrap());
        }
        let gzip = compress(ContentCoding::Gzip, b"x").unwrap();
        assert_eq!(&gzip[..8], &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0], "flags and time are zero");
    }

    /// Browsers reject frames with a larger window (RFC 9659 §3).
    #[test]
    fn zstd_windows_stay_within_8_mb() {
        for size in [100, 1_000_000, 9_000_000, 20_000_000] {
            let window = zstd_window(&compress(ContentCoding::Zstd, &text(size)).unwrap());
            assert!(window <= 8 << 20, "{size} bytes: window {window}");
        }
    }

    /// Returns the window size in the frame header (RFC 8878 §3.1.1.1).
    fn zstd_window(frame: &[u8]) -> u64 {
        assert_eq!(frame[..4], [0x28, 0xb5, 0x2f, 0xfd]);
        let descriptor = frame[4];
        if descriptor & 0x20 == 0 {
            let (exponent, mantissa) = (frame[5] >> 3, frame[5] & 7);
            let base = 1_u64 << (10 + exponent);
            return base + base / 8 * u64::from(mantissa);
        }
        // The window of a single segment is its content.
        match descriptor >> 6 {
            0 => u64::from(frame[5]),
            1 => u64::from(u16::from_le_bytes([frame[5], frame[6]])) + 256,
            2 => u64::from(u32::from_le_bytes(frame[5..9].try_into().unwrap())),
            _ => u64::from_le_bytes(frame[5..13].try_into().unwrap()),
        }
    }

    /// Similar but different lines, without randomness.
    fn text(size: usize) -> Vec<u8> {
        let mut text = Vec::with_capacity(size + 100);
        for n in 0_u64.. {
            if text.len() >= size {
                break;
            }
            let noise = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
            writeln!(text, "<li><a href=\"{noise:x}.html\">line {n}</a> of the text").unwrap();
        }
        text.truncate(size);
        text
    }
}
