//! Decoding of a body as it arrives.

use std::io::{self, BufRead, ErrorKind, Read};

use dunlin_http::semantics::ContentCoding;

/// Decodes a body, part by part. The output of one call is bounded by the room that the caller has, and the window by that which
/// HTTP allows: 8 MB for Zstandard (RFC 9659 §3), 16 MB for Brotli.
pub struct Decoder {
    kind: Kind,
    coding: ContentCoding,
    /// The first bytes, until the window is known.
    head: Vec<u8>,
    memory: usize,
}

enum Kind {
    Gzip(Box<flate2::bufread::MultiGzDecoder<Input>>),
    Brotli(Box<brotli::Decompressor<Input>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, Input>>),
}

/// The coded bytes that were not decoded. Reading waits for more of them ([`ErrorKind::WouldBlock`]) until the end.
#[derive(Debug, Default)]
struct Input {
    bytes: Vec<u8>,
    at: usize,
    has_ended: bool,
}

/// The largest window of Zstandard as a power of two.
const ZSTD_WINDOW_LOG: u32 = 23;
/// Bytes that have the window of a frame of Zstandard.
const ZSTD_HEAD: usize = 18;
/// Bytes of memory besides the window.
const OVERHEAD: usize = 96 << 10;
/// The buffer of Brotli's reader.
const BUFFER: usize = 4 << 10;

impl Decoder {
    /// Creates a decoder.
    ///
    /// # Errors
    /// There is no decoder for the identity.
    pub fn new(coding: ContentCoding) -> io::Result<Self> {
        let input = Input::default();
        let kind = match coding {
            ContentCoding::Identity => {
                return Err(io::Error::new(ErrorKind::Unsupported, "the identity has no decoder"));
            }
            ContentCoding::Gzip => {
                Kind::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(input)))
            }
            ContentCoding::Brotli => {
                Kind::Brotli(Box::new(brotli::Decompressor::new(input, BUFFER)))
            }
            ContentCoding::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG)?;
                Kind::Zstd(Box::new(decoder))
            }
        };
        Ok(Self { kind, coding, head: Vec::new(), memory: OVERHEAD })
    }

    /// Returns an upper estimate of the bytes of memory that the decoder takes, with the coded bytes that it has.
    pub fn memory(&self) -> usize {
        let input = match &self.kind {
            Kind::Gzip(decoder) => decoder.get_ref(),
            Kind::Brotli(decoder) => decoder.get_ref(),
            Kind::Zstd(decoder) => decoder.get_ref(),
        };
        self.memory + input.bytes.capacity()
    }

    /// Takes coded bytes.
    ///
    /// # Errors
    /// The window is larger than HTTP allows.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.head.len() < ZSTD_HEAD {
            let room = ZSTD_HEAD - self.head.len();
            self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
            let window = match self.coding {
                ContentCoding::Brotli => self.head.first().map_or(Ok(0), |&first| brotli(first))?,
                ContentCoding::Zstd => zstd_window(&self.head),
                ContentCoding::Gzip | ContentCoding::Identity => 0,
            };
            self.memory = OVERHEAD + window;
        }
        let input = self.input();
        input.bytes.drain(..std::mem::take(&mut input.at));
        input.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Decodes into `output`. Returns the number of bytes, 0 at the end of the content; `None` if more coded bytes are needed.
    ///
    /// # Errors
    /// The bytes are not what the coding makes, or they end too early.
    pub fn pull(&mut self, output: &mut [u8]) -> io::Result<Option<usize>> {
        let read = match &mut self.kind {
            Kind::Gzip(decoder) => decoder.read(output),
            Kind::Brotli(decoder) => decoder.read(output),
            Kind::Zstd(decoder) => decoder.read(output),
        };
        match read {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            read => read.map(Some),
        }
    }

    /// Ends the coded bytes: what [`Decoder::pull`] still returns is the rest.
    pub fn end(&mut self) {
        self.input().has_ended = true;
    }

    fn input(&mut self) -> &mut Input {
        match &mut self.kind {
            Kind::Gzip(decoder) => decoder.get_mut(),
            Kind::Brotli(decoder) => decoder.get_mut(),
            Kind::Zstd(decoder) => decoder.get_mut(),
        }
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("coding", &self.coding).finish_non_exhaustive()
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.fill_buf()?.read(buffer)?;
        self.consume(length);
        Ok(length)
    }
}

impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match &self.bytes[self.at..] {
            [] if !self.has_ended => Err(ErrorKind::WouldBlock.into()),
            bytes => Ok(bytes),
        }
    }

    fn consume(&mut self, amount: usize) {
        self.at = (self.at + amount).min(self.bytes.len());
    }
}

/// Returns the window of a stream with that first byte (RFC 7932 §9.1).
fn brotli(first: u8) -> io::Result<usize> {
    let log = match (first & 1, first >> 1 & 7, first >> 4 & 7) {
        (0, ..) => 16,
        (_, more @ 1.., _) => 17 + more,
        (_, _, 0) => 17,
        // Large windows are another format.
        (_, _, 1) => return Err(ErrorKind::InvalidData.into()),
        (_, _, less) => 8 + less,
    };
    Ok(1 << log)
}

/// Returns the window of a frame that begins with these bytes (RFC 8878 §3.1.1.1); the largest one if they do not have it.
fn zstd_window(head: &[u8]) -> usize {
    known_zstd_window(head).unwrap_or(u64::MAX).min(1 << ZSTD_WINDOW_LOG) as usize
}

fn known_zstd_window(head: &[u8]) -> Option<u64> {
    let rest = head.strip_prefix(&[0x28, 0xb5, 0x2f, 0xfd])?;
    let (&descriptor, rest) = rest.split_first()?;
    if descriptor & 0x20 == 0 {
        let (exponent, mantissa) = (rest.first()? >> 3, rest.first()? & 7);
        let base = 1_u64 << (10 + exponent);
        return Some(base + base / 8 * u64::from(mantissa));
    }
    // The window of a single segment is its content, whose length follows the identifier of a dictionary.
    let rest = rest.get([0, 1, 2, 4][usize::from(descriptor & 3)]..)?;
    Some(match descriptor >> 6 {
        0 => u64::from(*rest.first()?),
        1 => u64::from(u16::from_le_bytes(*rest.first_chunk()?)) + 256,
        2 => u64::from(u32::from_le_bytes(*rest.first_chunk()?)),
        _ => u64::from_le_bytes(*rest.first_chunk()?),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::compress;

    const CODINGS: [ContentCoding; 3] =
        [ContentCoding::Gzip, ContentCoding::Brotli, ContentCoding::Zstd];

    fn coded(coding: ContentCoding, bytes: &[u8]) -> Vec<u8> {
        compress(coding, &mut &*bytes, bytes.len() as u64).unwrap()
    }

    /// Decodes parts, with `room` for the output of each call.
    fn decode<'a>(
        coding: ContentCoding,
        parts: impl IntoIterator<Item = &'a [u8]>,
        room: usize,
    ) -> io::Result<Vec<u8>> {
        let mut decoder = Decoder::new(coding)?;
        let (mut decoded, mut buffer) = (Vec::new(), vec![0; room]);
        let mut parts = parts.into_iter();
        loop {
            match decoder.pull(&mut buffer)? {
                Some(0) => return Ok(decoded),
                Some(length) => decoded.extend_from_slice(&buffer[..length]),
                None => match parts.next() {
                    Some(part) => decoder.push(part)?,
                    None => decoder.end(),
                },
            }
        }
    }

    proptest! {
        #[test]
        fn content_is_decoded_however_it_is_cut(
            content in prop::collection::vec(0_u8..6, 0..20_000),
            cut in 1_usize..3000,
            room in 1_usize..3000,
        ) {
            for coding in CODINGS {
                let coded = coded(coding, &content);
                let decoded = decode(coding, coded.chunks(cut), room).unwrap();
                prop_assert!(decoded == content, "{:?}", coding);
            }
        }

        #[test]
        fn what_ends_too_early_is_an_error(content in prop::collection::vec(any::<u8>(), 1..2000), cut in 0.0..1.0) {
            for coding in CODINGS {
                let coded = coded(coding, &content);
                let length = (coded.len() as f64 * cut) as usize;
                prop_assert!(decode(coding, [&coded[..length]], 4096).is_err(), "{:?} {}", coding, length);
            }
        }

        #[test]
        fn other_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            for coding in CODINGS {
                let _ = decode(coding, [&*bytes], 4096);
            }
        }
    }

    #[test]
    fn members_and_frames_may_follow_each_other() {
        for coding in [ContentCoding::Gzip, ContentCoding::Zstd] {
            let both = [coded(coding, b"first "), coded(coding, b"second")].concat();
            assert_eq!(decode(coding, both.chunks(3), 5).unwrap(), b"first second");
        }
    }

    #[test]
    fn output_takes_no_more_than_its_room() {
        for coding in CODINGS {
            let coded = coded(coding, &vec![b'a'; 50 << 20]);
            let mut decoder = Decoder::new(coding).unwrap();
            decoder.push(&coded).unwrap();
            let mut buffer = [0; 1000];
            for _ in 0..100 {
                assert!(decoder.pull(&mut buffer).unwrap().is_some_and(|length| length <= 1000));
            }
            assert!(decoder.memory() <= (16 << 20) + OVERHEAD);
        }
    }

    #[test]
    fn windows_are_bounded() {
        // A frame of zstd with a window of 16 MB, and the head of a large window of Brotli.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0, 14 << 3, 1, 0, 0];
        assert!(decode(ContentCoding::Zstd, [&frame[..]], 100).is_err());
        assert!(decode(ContentCoding::Brotli, [&[0x11, 30][..]], 100).is_err());
        let memory = |coding, bytes: &[u8]| {
            let mut decoder = Decoder::new(coding).unwrap();
            decoder.push(bytes).unwrap();
            assert!(decoder.memory() >= decoder.memory + bytes.len(), "coded bytes count, too");
            decoder.memory - OVERHEAD
        };
        assert_eq!(
            memory(ContentCoding::Brotli, &coded(ContentCoding::Brotli, b"short")) >> 10,
            1 << 10
        );
        assert_eq!(memory(ContentCoding::Zstd, &coded(ContentCoding::Zstd, b"short")), 5);
        assert_eq!(memory(ContentCoding::Zstd, &[]), 1 << ZSTD_WINDOW_LOG);
    }
}
