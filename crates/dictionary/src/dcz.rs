//! Dictionary-Compressed Zstandard (RFC 9842 §5): a header that names the dictionary, and a frame of Zstandard.

use std::io::{self, Read, Write};

use zstd::stream::raw::CParameter;

use super::Hash;

/// The name of the content coding.
pub const NAME: &str = "dcz";

/// Length of the header in bytes: the magic number and the SHA-256 of the dictionary.
pub const HEADER: usize = 40;

/// A skippable frame of Zstandard with 32 bytes.
const MAGIC: [u8; 8] = [0x5e, 0x2a, 0x4d, 0x18, 0x20, 0, 0, 0];

/// Compresses `content` with a dictionary.
///
/// # Errors
/// The encoder failed, or one of both is longer than [`MAX_LENGTH`](super::MAX_LENGTH).
pub fn compress(dictionary: &[u8], hash: &Hash, content: &[u8]) -> io::Result<Vec<u8>> {
    if dictionary.len().max(content.len()) as u64 > super::MAX_LENGTH {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than the window"));
    }
    let mut output = Vec::with_capacity(HEADER + content.len() / 16);
    output.extend_from_slice(&header(hash));
    let mut encoder = zstd::stream::write::Encoder::with_ref_prefix(output, LEVEL, dictionary)?;
    encoder.set_parameter(CParameter::WindowLog(window_log(dictionary.len() + content.len())))?;
    encoder.long_distance_matching(dictionary.len() > FAR)?;
    encoder.set_pledged_src_size(Some(content.len() as u64))?;
    encoder.write_all(content)?;
    encoder.finish()
}

/// Returns the header of content that is compressed with a dictionary.
pub fn header(hash: &Hash) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..MAGIC.len()].copy_from_slice(&MAGIC);
    header[MAGIC.len()..].copy_from_slice(hash);
    header
}

/// Returns an upper estimate of the memory in bytes that [`compress`] takes besides the dictionary and the content.
pub fn memory(dictionary: u64, content: u64) -> u64 {
    let both = (dictionary + content).min(super::MAX_LENGTH);
    // The window, a buffer of input, and the tables, which grow with the window.
    both * 4 + (1 << 20)
}

/// Returns the SHA-256 of the dictionary that coded content names; `None` if it is not of this coding.
pub fn dictionary_of(coded: &[u8]) -> Option<Hash> {
    coded.strip_prefix(&MAGIC)?.first_chunk().copied()
}

/// Returns the content, of at most `max` bytes.
///
/// # Errors
/// `coded` is malformed, the dictionary is another one, or the content is longer.
pub fn decompress(dictionary: &[u8], coded: &[u8], max: usize) -> io::Result<Vec<u8>> {
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let named = dictionary_of(coded).ok_or_else(|| wrong("the header of dcz is malformed"))?;
    if named != super::sha256(dictionary) {
        return Err(wrong("the content needs another dictionary"));
    }
    let decoder = zstd::stream::read::Decoder::with_ref_prefix(&coded[HEADER..], dictionary)?;
    let mut content = Vec::new();
    decoder.take(max as u64 + 1).read_to_end(&mut content)?;
    if content.len() > max {
        return Err(wrong("the content is too long"));
    }
    Ok(content)
}

/// Returns the logarithm of the smallest window that covers that number of bytes, within [`MAX_LENGTH`](super::MAX_LENGTH).
fn window_log(bytes: usize) -> u32 {
    (usize::BITS - bytes.saturating_sub(1).leading_zeros()).clamp(10, super::MAX_LENGTH.ilog2())
}

/// The level of compression. 21 pairs of releases of npm packages (`tests/test_dictionary_releases.py`), in bytes, and time of `zstd
/// --patch-from`, against 1,206,047 bytes of Brotli 11 without a dictionary:
///
/// ```text
/// 3  49,053  0.40 s    6  46,933  0.62 s    9  41,022  0.79 s    12  40,368  1.0 s    19  37,434  5.1 s
/// ```
const LEVEL: i32 = 9;

/// Matches beyond this distance need a table of their own.
const FAR: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sha256;

    fn text(lines: usize, seed: u64) -> Vec<u8> {
        let noise = |n: u64| (n ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let line = |n: usize| format!("function f{n}(a) {{ return {:x} + a; }}\n", noise(n as u64));
        (0..lines).flat_map(|n| line(n).into_bytes()).collect()
    }

    #[test]
    fn a_small_change_of_a_file_of_any_size_takes_few_bytes() {
        for lines in [10, 1_000, 20_000, 150_000] {
            let old = text(lines, 0);
            let mut new = old.clone();
            let middle = new.len() / 2;
            new.splice(middle..middle + 3, *b"changed");
            let coded = compress(&old, &sha256(&old), &new).unwrap();
            assert!(coded.len() < HEADER + 200 + new.len() / 4_000, "{}", coded.len());
            assert!(decompress(&old, &coded, new.len()).unwrap() == new);
        }
    }

    /// Decoders may reject frames with a larger window (RFC 9842 §5).
    #[test]
    fn windows_stay_within_8_mb() {
        for (old, new) in [(10, 10), (180_000, 10), (10, 180_000), (180_000, 180_000)] {
            let (old, new) = (text(old, 1), text(new, 2));
            assert!((old.len().max(new.len()) as u64) < crate::MAX_LENGTH);
            let coded = compress(&old, &sha256(&old), &new).unwrap();
            let frame = &coded[HEADER..];
            assert_eq!(frame[..4], [0x28, 0xb5, 0x2f, 0xfd]);
            let descriptor = frame[4];
            let window = match (descriptor & 0x20, descriptor >> 6) {
                (0, _) => {
                    let base = 1_u64 << (10 + (frame[5] >> 3));
                    base + base / 8 * u64::from(frame[5] & 7)
                }
                // The window of a single segment is its content.
                _ => new.len() as u64,
            };
            assert!(window <= crate::MAX_LENGTH, "{window}");
            assert!(decompress(&old, &coded, new.len()).unwrap() == new);
        }
    }

    #[test]
    fn content_of_another_dictionary_or_without_a_header_is_an_error() {
        let (old, new) = (text(50, 0), text(50, 1));
        let coded = compress(&old, &sha256(&old), &new).unwrap();
        assert!(decompress(&new, &coded, 1 << 20).is_err());
        assert!(decompress(&old, &coded[1..], 1 << 20).is_err());
        assert!(decompress(&old, &coded[..20], 1 << 20).is_err());
        assert!(decompress(&old, &coded, new.len() - 1).is_err());
        let long = vec![0; crate::MAX_LENGTH as usize + 1];
        assert!(compress(&long, &sha256(&long), &new).is_err());
    }

    proptest! {
        #[test]
        fn the_decoded_output_is_the_input(
            old in prop::collection::vec(0_u8..4, 0..3000),
            new in prop::collection::vec(0_u8..4, 0..3000),
        ) {
            let coded = compress(&old, &sha256(&old), &new).unwrap();
            prop_assert!(decompress(&old, &coded, 4000).unwrap() == new);
        }
    }
}
