#![no_main]
//! Instructions and sections of QPACK, in one piece and in two: both give the same fields, nothing panics, what is held is
//! bounded, and encoding the fields and reading them again gives the same fields.

use dunlin_http::http3::qpack::{Decoded, DecodedField, Indexing, QpackDecoder, QpackEncoder};
use libfuzzer_sys::fuzz_target;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// Bytes of incomplete instructions and of acknowledgements at most.
const HELD: usize = 64 * 1024;

/// `None` if the section is malformed or blocked.
fn decode(decoder: &mut QpackDecoder, stream: u64, section: &[u8]) -> Option<Fields> {
    let (mut text, mut fields) = (Vec::new(), Vec::new());
    let take = |text: &mut Vec<u8>, field: DecodedField| {
        fields.push((text[field.name].to_vec(), text[field.value].to_vec()));
        fields.len() < 100
    };
    let decoded = decoder.decode(stream, section, &mut text, take).ok()?;
    (decoded == Decoded::Complete).then_some(fields)
}

fuzz_target!(|input: (u16, u16, Vec<(Vec<u8>, Vec<u8>)>)| {
    let (capacity, cut, pieces) = input;
    let capacity = usize::from(capacity);
    let (mut whole, mut split) = (QpackDecoder::new(capacity, 4), QpackDecoder::new(capacity, 4));
    let (mut encoder, mut back) = (QpackEncoder::default(), QpackDecoder::new(4096, 4));
    encoder.set_limits(4096, 4);
    for (number, (instructions, section)) in pieces.iter().enumerate() {
        let stream = 4 * number as u64;
        let (first, second) = instructions.split_at(usize::from(cut).min(instructions.len()));
        let result = whole.receive(instructions);
        let parts = split.receive(first).and_then(|one| Ok(one + split.receive(second)?));
        assert_eq!(result, parts);
        // The same bytes as instructions of the decoder that this encoder has.
        let mut other = QpackEncoder::default();
        other.set_limits(4096, 4);
        let _ = other.receive(instructions);
        if result.is_err() {
            return;
        }
        let fields = decode(&mut whole, stream, section);
        assert_eq!(fields, decode(&mut split, stream, section));
        assert!(whole.held() <= HELD && whole.blocked_streams() <= 4);
        assert_eq!(whole.instructions(), split.instructions());
        let Some(fields) = fields else { continue };
        let mut out = Vec::new();
        encoder.begin(stream, &mut out);
        for (number, (name, value)) in fields.iter().enumerate() {
            let indexing = match number % 4 {
                0 => Indexing::Without,
                1 => Indexing::Never,
                _ => Indexing::Incremental,
            };
            encoder.field(name, value, indexing, &mut out);
        }
        encoder.end(0, &mut out);
        // Sometimes the section is first, and sometimes nothing is acknowledged.
        let early = decode(&mut back, stream, &out);
        back.receive(encoder.instructions()).unwrap();
        encoder.sent(encoder.instructions().len());
        while back.next_unblocked().is_some() {}
        assert_eq!(early.or_else(|| decode(&mut back, stream, &out)), Some(fields));
        if number % 3 != 0 {
            encoder.receive(back.instructions()).unwrap();
            back.sent(usize::MAX);
        }
    }
});
