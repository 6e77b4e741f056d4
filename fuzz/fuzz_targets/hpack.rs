#![no_main]
//! Field sections: reading any bytes does not panic, encoding the fields and reading them again gives the
//! same fields, and another implementation reads the same.

use dunlin_http::http2::hpack::{HpackDecoder, HpackEncoder, Indexing};
use libfuzzer_sys::fuzz_target;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn decode(decoder: &mut HpackDecoder, block: &[u8]) -> Option<Fields> {
    let (mut text, mut fields) = (Vec::new(), Vec::new());
    let take = |text: &mut Vec<u8>, field: dunlin_http::http2::hpack::DecodedField| {
        fields.push((text[field.name].to_vec(), text[field.value].to_vec()));
    };
    decoder.decode(block, &mut text, take).ok()?;
    Some(fields)
}

fuzz_target!(|blocks: Vec<(u8, Vec<u8>)>| {
    let (mut decoder, mut other) = (HpackDecoder::default(), fluke_hpack::Decoder::new());
    let (mut encoder, mut back) = (HpackEncoder::default(), HpackDecoder::default());
    for (choice, block) in blocks {
        let Some(fields) = decode(&mut decoder, &block) else { return };
        // The other implementation is stricter in some cases; fields that both read must be equal.
        match other.decode(&block) {
            Ok(read) => assert_eq!(read, fields),
            Err(_) => return,
        }
        if choice & 0xf0 == 0 {
            encoder.limit_table(usize::from(choice) * 50);
        }
        let mut out = Vec::new();
        encoder.begin(&mut out);
        for (number, (name, value)) in fields.iter().enumerate() {
            let indexing = match (usize::from(choice) + number) % 3 {
                0 => Indexing::Incremental,
                1 => Indexing::Without,
                _ => Indexing::Never,
            };
            encoder.field(name, value, indexing, &mut out);
        }
        assert_eq!(decode(&mut back, &out), Some(fields));
    }
});
