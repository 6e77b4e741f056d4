//! Compression of a response as it is made.

mod brotli;
mod gzip;
mod zstd;

use std::io;
use std::sync::Arc;

use dunlin_http::semantics::ContentCoding;

use self::brotli::Brotli;
use self::gzip::Gzip;
pub use self::zstd::SharedDictionary;
use self::zstd::Zstd;

/// The time that compression may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// As little as possible.
    Least,
    /// For content that is made for one client.
    Normal,
    /// For content that many clients get.
    Shared,
}

// The levels, measured for a page of 79 KB and for JSON of 10 KB: bytes, microseconds, and KB of memory. `least`, `normal` and `shared`
// mark those that are used.
//
//   gzip  1  24925 108   2299  14   390 least    zstd 1  19742 115   1522  21   280 least     br 0  22424 259   2112  35   160 least
//         2  19780 205   1672  27   340 normal        3  18569 152   1503  24   345 normal       1  21593 325   1903  34   380
//         3  18826 387   1603  34   340               5  18399 418                               2  18237 439   1543  52   710 normal
//         6  18032 666                  shared        9                           shared         3  18121 572   1510  57   935
//                                                                                               5  16721 1437  1321 118  2160 shared

/// Compresses a body, part by part.
pub struct Encoder {
    kind: Kind,
    coding: ContentCoding,
    /// Bytes of memory that it takes at most at work.
    memory: usize,
    /// It has that memory.
    is_at_work: bool,
    /// It has input that is not in its output.
    is_behind: bool,
    /// Bytes that decoders skip.
    padding: Option<usize>,
}

enum Kind {
    Gzip(Gzip),
    Brotli(Brotli),
    Zstd(Zstd),
}

/// Bytes of padding that every coding has room for.
pub const MAX_PADDING: usize = 32 << 10;
const _: () = assert!(MAX_PADDING <= gzip::MAX_PADDING && MAX_PADDING <= brotli::MAX_PADDING);

impl Encoder {
    /// Creates an encoder. `length` is that of the body, if it is known.
    ///
    /// # Errors
    /// There is no encoder for the identity.
    pub fn new(coding: ContentCoding, effort: Effort, length: Option<u64>) -> io::Result<Self> {
        let kind = match coding {
            ContentCoding::Identity => {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "the identity has no encoder",
                ));
            }
            ContentCoding::Gzip => Kind::Gzip(Gzip::new(effort, length)),
            ContentCoding::Brotli => Kind::Brotli(Brotli::new(effort, length)),
            ContentCoding::Zstd => Kind::Zstd(Zstd::new(effort, length)),
        };
        let memory = memory(coding, effort, length);
        Ok(Self { kind, coding, memory, is_at_work: false, is_behind: false, padding: None })
    }

    /// Creates an encoder that compresses with a dictionary: its output is Dictionary-Compressed Zstandard (RFC 9842 §5).
    pub fn with_dictionary(dictionary: &Arc<SharedDictionary>, effort: Effort) -> Self {
        Self {
            kind: Kind::Zstd(Zstd::with_dictionary(dictionary, effort)),
            coding: ContentCoding::Zstd,
            memory: zstd::memory_with(dictionary.content.len()),
            is_at_work: false,
            is_behind: false,
            padding: None,
        }
    }

    /// Adds as many bytes to the output, which decoders skip, up to [`MAX_PADDING`].
    #[must_use]
    pub fn with_padding(self, bytes: usize) -> Self {
        Self { padding: Some(bytes.min(MAX_PADDING)), ..self }
    }

    /// Returns the coding.
    pub fn coding(&self) -> ContentCoding {
        self.coding
    }

    /// Returns an estimate of the bytes of memory that the encoder takes now.
    pub fn memory(&self) -> usize {
        if self.is_at_work { self.memory } else { 0 }
    }

    /// Returns `true` if [`Encoder::flush`] would bring output.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Takes input, and appends the output that is ready.
    ///
    /// # Errors
    /// The encoder failed.
    pub fn push(&mut self, input: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
        self.begin(output);
        self.is_behind |= !input.is_empty();
        self.is_at_work |= !input.is_empty();
        match &mut self.kind {
            Kind::Gzip(gzip) => gzip.push(input, output),
            Kind::Brotli(brotli) => brotli.push(input, output),
            Kind::Zstd(zstd) => zstd.push(input, output),
        }
    }

    /// Appends all output of the input so far.
    ///
    /// # Errors
    /// The encoder failed.
    pub fn flush(&mut self, output: &mut Vec<u8>) -> io::Result<()> {
        if !std::mem::take(&mut self.is_behind) {
            return Ok(());
        }
        match &mut self.kind {
            Kind::Gzip(gzip) => gzip.flush(output),
            Kind::Brotli(brotli) => brotli.flush(output),
            Kind::Zstd(zstd) => zstd.flush(output),
        }
    }

    /// Appends all output of the input so far, and releases nearly all memory until there is more input. What follows refers to nothing
    /// before it, which makes the output longer.
    ///
    /// # Errors
    /// The encoder failed.
    pub fn rest(&mut self, output: &mut Vec<u8>) -> io::Result<()> {
        (self.is_behind, self.is_at_work) = (false, false);
        match &mut self.kind {
            Kind::Gzip(gzip) => gzip.rest(output),
            Kind::Brotli(brotli) => brotli.rest(output),
            Kind::Zstd(zstd) => zstd.rest(output),
        }
    }

    /// Appends all output of the input so far, and has further input stored without compression, which takes hardly any time and
    /// memory.
    ///
    /// # Errors
    /// The encoder failed.
    pub fn store(&mut self, output: &mut Vec<u8>) -> io::Result<()> {
        self.begin(output);
        (self.is_behind, self.is_at_work, self.memory) = (false, false, 0);
        match &mut self.kind {
            Kind::Gzip(gzip) => gzip.store(output),
            Kind::Brotli(brotli) => brotli.store(output),
            Kind::Zstd(zstd) => zstd.store(output),
        }
    }

    /// Appends the rest of the output.
    ///
    /// # Errors
    /// The encoder failed.
    pub fn finish(mut self, output: &mut Vec<u8>) -> io::Result<()> {
        self.begin(output);
        match self.kind {
            Kind::Gzip(gzip) => gzip.finish(output),
            Kind::Brotli(brotli) => brotli.finish(self.padding, output),
            Kind::Zstd(zstd) => zstd.finish(output),
        }
    }

    /// Appends what precedes the content.
    fn begin(&mut self, output: &mut Vec<u8>) {
        match &mut self.kind {
            Kind::Gzip(gzip) => gzip.begin(self.padding, output),
            Kind::Zstd(zstd) => zstd.begin(self.padding, output),
            Kind::Brotli(_) => {}
        }
    }
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").field("coding", &self.coding).finish_non_exhaustive()
    }
}

/// Returns an estimate of the bytes of memory that an encoder takes at work.
fn memory(coding: ContentCoding, effort: Effort, length: Option<u64>) -> usize {
    match coding {
        ContentCoding::Identity => 0,
        // The window twice, its tables, and pending output. What is gathered before is less.
        ContentCoding::Gzip => 384 << 10,
        ContentCoding::Brotli => brotli::memory(effort),
        ContentCoding::Zstd => zstd::memory(length),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use proptest::prelude::*;

    use super::*;
    use crate::Decoder;

    const CODINGS: [ContentCoding; 3] =
        [ContentCoding::Gzip, ContentCoding::Brotli, ContentCoding::Zstd];

    /// Returns what can be decoded, and whether it is all.
    fn decode(coding: ContentCoding, bytes: &[u8]) -> (Vec<u8>, bool) {
        let mut decoder = Decoder::new(coding).unwrap();
        decoder.push(bytes).unwrap();
        let (mut decoded, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            match decoder.pull(&mut buffer) {
                Ok(Some(0)) => return (decoded, true),
                Ok(Some(read)) => decoded.extend_from_slice(&buffer[..read]),
                Ok(None) => decoder.end(),
                // A stream that was flushed has no end yet.
                Err(_) => return (decoded, false),
            }
        }
    }

    #[test]
    fn flushed_output_can_be_decoded_at_once() {
        for coding in CODINGS {
            let mut encoder = Encoder::new(coding, Effort::Normal, None).unwrap();
            let (mut output, mut input) = (Vec::new(), Vec::new());
            for number in 0..50 {
                let part = format!("data: event {number} of a stream\n\n").into_bytes();
                encoder.push(&part, &mut output).unwrap();
                assert!(encoder.is_behind());
                encoder.flush(&mut output).unwrap();
                assert!(!encoder.is_behind());
                input.extend(part);
                assert!(decode(coding, &output) == (input.clone(), false), "{coding:?} {number}");
            }
        }
    }

    /// Content that comes in one part and content that is flushed take different ways.
    #[test]
    fn content_in_one_part_is_decoded_as_content_in_several_is() {
        for length in
            [1, 2, 255, 4_096, gzip::MAX_WHOLE - 1, gzip::MAX_WHOLE, gzip::MAX_WHOLE + 1, 300_000]
        {
            let line =
                |number: usize| format!("{:x} line\n", number.wrapping_mul(0x9e37_79b9) >> 7);
            let mut input = (0..length / 5 + 1).map(line).collect::<String>().into_bytes();
            input.truncate(length);
            for (effort, known) in [
                (Effort::Least, true),
                (Effort::Normal, true),
                (Effort::Normal, false),
                (Effort::Shared, true),
            ] {
                let coded = |flushes: bool, part: usize| {
                    let known = known.then_some(length as u64);
                    let mut encoder =
                        Encoder::new(ContentCoding::Gzip, effort, known).unwrap().with_padding(7);
                    let mut output = Vec::new();
                    for part in input.chunks(part) {
                        encoder.push(part, &mut output).unwrap();
                        if flushes {
                            encoder.flush(&mut output).unwrap();
                        }
                    }
                    encoder.finish(&mut output).unwrap();
                    assert!(
                        decode(ContentCoding::Gzip, &output) == (input.clone(), true),
                        "{length}"
                    );
                    output
                };
                let (at_once, flushed) = (coded(false, length), coded(true, 1 + length / 3));
                assert!(coded(false, 1 + length / 2) == at_once || length > gzip::MAX_WHOLE);
                assert!(
                    at_once.len() <= flushed.len() + flushed.len() / 8 + 32,
                    "{length} {} {}",
                    at_once.len(),
                    flushed.len()
                );
            }
        }
    }

    #[test]
    fn padding_adds_its_bytes() {
        for coding in CODINGS {
            let length = |padding: Option<usize>| {
                let mut encoder = Encoder::new(coding, Effort::Normal, None).unwrap();
                if let Some(padding) = padding {
                    encoder = encoder.with_padding(padding);
                }
                let mut output = Vec::new();
                encoder.push(b"a page with a secret", &mut output).unwrap();
                encoder.finish(&mut output).unwrap();
                assert_eq!(decode(coding, &output), (b"a page with a secret".to_vec(), true));
                output.len()
            };
            let least = length(Some(1));
            assert!(least > length(None));
            for padding in [2, 255, 256, 257, 4096, MAX_PADDING] {
                // Another byte of length.
                let more = usize::from(coding == ContentCoding::Brotli && padding > 256);
                assert_eq!(length(Some(padding)), least + padding - 1 + more, "{coding:?}");
            }
            assert_eq!(length(Some(usize::MAX)), length(Some(MAX_PADDING)));
        }
    }

    static DICTIONARIES: AtomicU64 = AtomicU64::new(0);

    /// Decodes Dictionary-Compressed Zstandard. The dictionary is forgotten after a frame if `forgets`.
    fn decode_with(dictionary: &SharedDictionary, coded: &[u8], forgets: bool) -> Vec<u8> {
        use std::io::Read;
        let frames = coded.strip_prefix(&dictionary.header).unwrap();
        let mut decoded = Vec::new();
        match forgets {
            true => ::zstd::stream::read::Decoder::with_ref_prefix(frames, &dictionary.content)
                .unwrap()
                .read_to_end(&mut decoded),
            false => ::zstd::stream::read::Decoder::with_dictionary(frames, &dictionary.content)
                .unwrap()
                .read_to_end(&mut decoded),
        }
        .unwrap();
        decoded
    }

    #[test]
    fn a_page_of_a_dictionary_takes_few_bytes() {
        let line = |number: usize| {
            format!("<li class=\"item\">{:x}</li>\n", number.wrapping_mul(0x9e37_79b9))
        };
        let page = |number: usize| (0..800).chain([number]).map(line).collect::<String>();
        let content = page(1).into_bytes().into();
        let dictionary = Arc::new(SharedDictionary { header: [7; 40], content });
        for effort in [Effort::Normal, Effort::Shared, Effort::Normal, Effort::Normal] {
            let mut encoder = Encoder::with_dictionary(&dictionary, effort);
            let mut coded = Vec::new();
            encoder.push(page(2000).as_bytes(), &mut coded).unwrap();
            encoder.finish(&mut coded).unwrap();
            assert!(coded.len() < 200, "{}", coded.len());
            assert!(decode_with(&dictionary, &coded, true) == page(2000).as_bytes());
        }
    }

    proptest! {
        #[test]
        fn output_with_a_dictionary_is_decoded_by_it(
            content in prop::collection::vec(0_u8..4, 1..3000),
            parts in prop::collection::vec((prop::collection::vec(0_u8..4, 0..3000), 0..4), 0..8),
            effort in prop::sample::select(vec![Effort::Least, Effort::Normal, Effort::Shared]),
            repeat in prop::sample::select(vec![1_usize, 40]),
        ) {
            // The header is unique, as that of a hash is.
            let mut header = [9; 40];
            header[32..].copy_from_slice(&DICTIONARIES.fetch_add(1, Ordering::Relaxed).to_le_bytes());
            let dictionary = Arc::new(SharedDictionary { header, content: content.into() });
            let mut encoder = Encoder::with_dictionary(&dictionary, effort);
            let (mut coded, mut input, mut is_stored) = (Vec::new(), Vec::new(), false);
            for (part, what) in parts {
                let part = part.repeat(repeat);
                encoder.push(&part, &mut coded).unwrap();
                input.extend(part);
                match what {
                    1 => encoder.flush(&mut coded).unwrap(),
                    2 => encoder.rest(&mut coded).unwrap(),
                    3 if input.len() > 20_000 && !std::mem::replace(&mut is_stored, true) => {
                        encoder.store(&mut coded).unwrap();
                    }
                    _ => {}
                }
            }
            encoder.finish(&mut coded).unwrap();
            for forgets in [true, false] {
                prop_assert!(decode_with(&dictionary, &coded, forgets) == input);
            }
        }

        #[test]
        fn the_decoded_output_is_the_input(
            parts in prop::collection::vec((prop::collection::vec(0_u8..4, 0..3000), any::<bool>()), 0..8),
            effort in prop::sample::select(vec![Effort::Least, Effort::Normal, Effort::Shared]),
            is_known in any::<bool>(),
            (stored_from, rests) in (0_usize..10, prop::collection::vec(any::<bool>(), 8)),
            padding in prop::option::of(0_usize..500),
            repeat in prop::sample::select(vec![1_usize, 40]),
        ) {
            let parts: Vec<_> =
                parts.into_iter().map(|(part, flush)| (part.repeat(repeat), flush)).collect();
            let input: Vec<u8> = parts.iter().flat_map(|(part, _)| part.clone()).collect();
            for coding in CODINGS {
                let length = is_known.then_some(input.len() as u64);
                let mut encoder = Encoder::new(coding, effort, length).unwrap();
                if let Some(padding) = padding {
                    encoder = encoder.with_padding(padding);
                }
                let mut output = Vec::new();
                for (number, (part, flush)) in parts.iter().enumerate() {
                    if number == stored_from {
                        encoder.store(&mut output).unwrap();
                    }
                    encoder.push(part, &mut output).unwrap();
                    if *flush {
                        encoder.flush(&mut output).unwrap();
                    }
                    if rests[number] {
                        encoder.rest(&mut output).unwrap();
                        prop_assert_eq!(encoder.memory(), 0);
                    }
                }
                encoder.finish(&mut output).unwrap();
                let is_same = decode(coding, &output) == (input.clone(), true);
                prop_assert!(is_same, "{:?}", coding);
            }
        }
    }
}
