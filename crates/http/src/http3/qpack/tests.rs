//! The examples of RFC 9204, appendix B; round trips over streams in any order; and a naive model.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn decode(
    decoder: &mut QpackDecoder,
    stream: u64,
    section: &[u8],
) -> Result<Option<Fields>, MalformedSection> {
    let (mut text, mut fields) = (Vec::new(), Vec::new());
    let decoded = decoder.decode(stream, section, &mut text, |text, field| {
        assert_eq!(field.kind, Kind::of(&text[field.name.clone()], &text[field.value.clone()]));
        fields.push((text[field.name].to_vec(), text[field.value].to_vec()));
        true
    })?;
    Ok((decoded == Decoded::Complete).then_some(fields))
}

fn fields(pairs: &[(&str, &str)]) -> Fields {
    pairs
        .iter()
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect()
}

fn take_instructions(decoder: &mut QpackDecoder) -> Vec<u8> {
    let instructions = decoder.instructions().to_vec();
    decoder.sent(instructions.len());
    instructions
}

#[test]
fn the_examples_of_appendix_b_are_decoded() {
    let mut decoder = QpackDecoder::new(220, 1);
    // B.1: a literal field with a static name.
    let section = bytes("0000 510b 2f69 6e64 6578 2e68 746d 6c");
    let expected = fields(&[(":path", "/index.html")]);
    assert_eq!(decode(&mut decoder, 0, &section), Ok(Some(expected)));
    assert_eq!(take_instructions(&mut decoder), b"");
    // B.2: the section arrives before the insertions.
    let section = bytes("0381 10 11");
    assert_eq!(decode(&mut decoder, 4, &section), Ok(None));
    assert_eq!((decoder.next_unblocked(), decoder.blocked_streams()), (None, 1));
    let instructions = bytes(
        "3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d c10c 2f73 616d 706c 652f 7061 7468",
    );
    assert_eq!(decoder.receive(&instructions), Ok(2));
    assert_eq!(decoder.table().size(), 106);
    assert_eq!((decoder.next_unblocked(), decoder.next_unblocked()), (Some(4), None));
    let expected = fields(&[(":authority", "www.example.com"), (":path", "/sample/path")]);
    assert_eq!(decode(&mut decoder, 4, &section), Ok(Some(expected)));
    assert_eq!(take_instructions(&mut decoder), bytes("84"));
    // B.3: an insertion with a literal name, which is acknowledged by itself.
    let instructions = bytes("4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565");
    assert_eq!(decoder.receive(&instructions), Ok(1));
    assert_eq!((take_instructions(&mut decoder), decoder.table().size()), (bytes("01"), 160));
    // B.4: a duplicate; the stream is reset before it is decoded.
    assert_eq!(decode(&mut decoder, 8, &bytes("0500 80c1 81")), Ok(None));
    decoder.cancel(8);
    assert_eq!(decoder.receive(&bytes("02")), Ok(1));
    assert_eq!(decoder.table().size(), 217);
    assert_eq!(take_instructions(&mut decoder), bytes("48 01"));
    let expected = fields(&[
        (":authority", "www.example.com"),
        (":path", "/"),
        ("custom-key", "custom-value"),
    ]);
    assert_eq!(decode(&mut decoder, 8, &bytes("0500 80c1 81")), Ok(Some(expected)));
    // B.5: an insertion that evicts.
    let instructions = bytes("810d 6375 7374 6f6d 2d76 616c 7565 32");
    assert_eq!(decoder.receive(&instructions), Ok(1));
    assert_eq!(decoder.table().size(), 215);
    assert_eq!(decoder.table().get(0).unwrap().1, b"custom-value2");
    assert_eq!(decoder.table().oldest(), 1);
}

#[test]
fn malformed_instructions_of_an_encoder_are_rejected() {
    for (instructions, why) in [
        ("3fe21f", "a capacity beyond the limit: 4,097"),
        ("3f00 c001 61", "a value larger than a table without capacity"),
        ("00", "a duplicate of nothing"),
        ("3fe11f 80 00", "the name of no entry"),
        ("ff24 00", "a static name beyond the table: 99"),
        ("3f45 c07f e17f", "an entry larger than the table"),
        ("3fe11f ff80808080", "an integer that is too long"),
        ("3fe11f c0 82 1fff", "a Huffman string that is filled up with more than seven bits"),
        ("3f01 5fe101", "a string that is larger than any table"),
    ] {
        let mut decoder = QpackDecoder::new(4096, 16);
        let mut result = Ok(0);
        for byte in bytes(instructions) {
            result = result.and_then(|_| decoder.receive(&[byte]));
        }
        assert!(result.is_err(), "{why}");
        assert!(QpackDecoder::new(4096, 16).receive(&bytes(instructions)).is_err(), "{why}");
    }
}

#[test]
fn malformed_sections_are_rejected() {
    for (section, why) in [
        ("", "no prefix"),
        ("00", "no base"),
        ("0080", "a negative base"),
        ("0382", "a base that is negative by one"),
        ("0100 80", "a required insert count of 0, encoded"),
        ("ff0200", "a required insert count beyond the range: 257"),
        ("0000 80", "an entry without a required insert count"),
        ("0200 10", "an entry that is not required"),
        ("0200 81", "an entry before all"),
        ("0000 ff24", "a static entry beyond the table: 99"),
        ("0000 51 05 61", "a string that is cut off"),
        ("0000 5f", "an integer that is cut off"),
        ("0000 24 61", "a name that is cut off"),
        ("0200 08 00", "the name of an entry that is not required"),
    ] {
        let mut decoder = QpackDecoder::new(4096, 16);
        decoder.receive(&bytes("3fe11f c001 61 c001 62")).unwrap();
        assert!(decode(&mut decoder, 0, &bytes(section)).is_err(), "{why}");
    }
    let mut decoder = QpackDecoder::new(4096, 1);
    assert_eq!(decode(&mut decoder, 0, &bytes("0200 80")), Ok(None));
    assert_eq!(decode(&mut decoder, 0, &bytes("0200 80")), Ok(None), "the same stream");
    assert!(decode(&mut decoder, 4, &bytes("0200 80")).is_err(), "a second blocked stream");
    assert!(decode(&mut QpackDecoder::new(0, 1), 0, &bytes("0200 80")).is_err(), "no table");
    let mut decoder = QpackDecoder::new(64, 0);
    decoder.receive(&bytes("3f21 c001 61 c001 62")).unwrap();
    assert!(decode(&mut decoder, 0, &bytes("0300 81")).is_err(), "an entry that was evicted");
}

#[test]
fn malformed_instructions_of_a_decoder_are_rejected() {
    let encoder = || {
        let (mut encoder, mut out) = (QpackEncoder::default(), Vec::new());
        encoder.set_limits(4096, 16);
        encoder.begin(4, &mut out);
        encoder.field(b"a", b"b", Indexing::Incremental, &mut out);
        encoder.end(0, &mut out);
        encoder
    };
    for (instructions, why) in [
        ("00", "an increment by 0"),
        ("02", "an increment beyond the insertions"),
        ("80", "the acknowledgement of a stream without a section"),
        ("84 84", "a second acknowledgement"),
        ("01 01", "a second increment"),
        ("84 01", "an increment by what was acknowledged"),
        ("44 84", "the acknowledgement of a stream that was cancelled"),
        ("ffffffffffffffffffffff", "an integer beyond 62 bits"),
    ] {
        assert!(encoder().receive(&bytes(instructions)).is_err(), "{why}");
    }
    assert_eq!(encoder().receive(&bytes("84")), Ok(0));
    assert_eq!(encoder().receive(&bytes("01 84 40 44")), Ok(2));
    // The largest stream identifier, byte by byte.
    let (mut encoder, mut largest) = (encoder(), Vec::new());
    crate::section::integer::encode((1 << 62) - 1, 6, 0x40, &mut largest);
    let idle: usize = largest.iter().map(|byte| encoder.receive(&[*byte]).unwrap()).sum();
    assert_eq!(idle, 1);
}

#[test]
fn a_repeated_field_is_one_byte_and_a_secret_in_no_table() {
    let mut encoder = QpackEncoder::default();
    encoder.set_limits(4096, 16);
    let mut section = |stream, name: &[u8], indexing| {
        let mut out = Vec::new();
        encoder.begin(stream, &mut out);
        encoder.field(name, b"dunlin", indexing, &mut out);
        encoder.end(0, &mut out);
        out
    };
    assert_eq!(section(0, b"server", Indexing::Incremental), bytes("02 80 10"));
    assert_eq!(section(4, b"server", Indexing::Incremental), bytes("02 00 80"));
    let secret = section(8, b"set-cookie", Indexing::Never);
    assert_eq!(secret, section(12, b"set-cookie", Indexing::Never));
    assert_eq!(secret[..3], bytes("00 00 7e"));
    assert_eq!(section(16, b"x-secret", Indexing::Never)[2] & 0xf0, 0x30);
    assert_eq!(encoder.table().inserted(), 1);
}

#[test]
fn entries_that_the_peer_may_need_are_not_evicted() {
    let mut encoder = QpackEncoder::default();
    encoder.set_limits(100, 1);
    let send = |encoder: &mut QpackEncoder, stream, value: &[u8]| {
        let mut out = Vec::new();
        encoder.begin(stream, &mut out);
        encoder.field(b"a", value, Indexing::Incremental, &mut out);
        encoder.end(0, &mut out);
        out.len()
    };
    assert_eq!(send(&mut encoder, 0, b"1"), 3);
    // A second stream must not be blocked.
    assert_eq!(send(&mut encoder, 4, b"1"), 6);
    assert_eq!(send(&mut encoder, 4, b"2"), 6);
    assert_eq!(encoder.table().inserted(), 2);
    // The table is full, and nothing is acknowledged.
    assert_eq!(send(&mut encoder, 8, b"3"), 6);
    assert_eq!(encoder.table().inserted(), 2);
    // All is received, but a section refers to the first entry.
    encoder.receive(&bytes("02")).unwrap();
    send(&mut encoder, 8, b"3");
    assert_eq!(encoder.table().inserted(), 2);
    encoder.receive(&bytes("80")).unwrap();
    assert_eq!(send(&mut encoder, 8, b"3"), 3);
    assert_eq!((encoder.table().inserted(), encoder.table().oldest()), (3, 1));
}

#[test]
fn a_stalled_encoder_stream_gets_no_insertions() {
    let mut encoder = QpackEncoder::default();
    encoder.set_limits(4096, 16);
    let mut out = Vec::new();
    encoder.sent(1);
    encoder.begin(0, &mut out);
    encoder.field(b"a", b"b", Indexing::Incremental, &mut out);
    assert_eq!(encoder.table().inserted(), 0);
    encoder.sent(encoder.instructions().len());
    encoder.field(b"a", b"b", Indexing::Incremental, &mut out);
    assert_eq!(encoder.table().inserted(), 1);
}

/// A reader of one direction by the letter of RFC 9204, with all entries ever inserted.
#[derive(Default)]
struct Model {
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    capacity: usize,
    /// Index of the oldest entry that is not evicted.
    oldest: usize,
}

impl Model {
    fn integer(input: &mut VecDeque<u8>, prefix: u32) -> usize {
        let mask = (1_usize << prefix) - 1;
        let mut value = usize::from(input.pop_front().unwrap()) & mask;
        if value == mask {
            for shift in 0.. {
                let byte = usize::from(input.pop_front().unwrap());
                value += (byte & 0x7f) << (7 * shift);
                if byte & 0x80 == 0 {
                    break;
                }
            }
        }
        value
    }

    fn string(input: &mut VecDeque<u8>, prefix: u32) -> Vec<u8> {
        let is_coded = input[0] >> prefix & 1 == 1;
        let length = Self::integer(input, prefix);
        let raw: Vec<u8> = input.drain(..length).collect();
        let mut text = Vec::new();
        match is_coded {
            true => crate::section::huffman::decode(&raw, &mut text).unwrap(),
            false => text = raw,
        }
        text
    }

    fn instructions(&mut self, input: &[u8]) {
        let mut input: VecDeque<u8> = input.iter().copied().collect();
        while let Some(first) = input.front().copied() {
            let count = self.entries.len();
            let entry = if first & 0x80 != 0 {
                let number = Self::integer(&mut input, 6);
                let name = match first & 0x40 != 0 {
                    true => static_table::get(number).unwrap().0.to_vec(),
                    false => self.live(count - 1 - number).0,
                };
                (name, Self::string(&mut input, 7))
            } else if first & 0x40 != 0 {
                (Self::string(&mut input, 5), Self::string(&mut input, 7))
            } else if first & 0x20 != 0 {
                self.capacity = Self::integer(&mut input, 5);
                continue;
            } else {
                let number = Self::integer(&mut input, 5);
                self.live(count - 1 - number)
            };
            self.entries.push(entry);
            let size = |entry: &(Vec<u8>, Vec<u8>)| entry.0.len() + entry.1.len() + 32;
            while self.entries[self.oldest..].iter().map(size).sum::<usize>() > self.capacity {
                self.oldest += 1;
            }
            assert!(self.oldest < self.entries.len());
        }
    }

    fn live(&self, index: usize) -> (Vec<u8>, Vec<u8>) {
        assert!(index >= self.oldest, "an evicted entry");
        self.entries[index].clone()
    }

    /// The required insert count, without the fields if it is not reached.
    fn section(&self, input: &[u8], max_capacity: usize) -> (usize, Option<Fields>) {
        let mut input: VecDeque<u8> = input.iter().copied().collect();
        let encoded = Self::integer(&mut input, 8);
        let sign = input[0] & 0x80 != 0;
        let delta = Self::integer(&mut input, 7);
        // The only one in the range that both sides have in mind.
        let (entries, count) = (max_capacity / 32, self.entries.len());
        let is_encoded = |required: &usize| encoded > 0 && required % (2 * entries) == encoded - 1;
        let mut range = count.saturating_sub(entries - 1)..count + entries + 1;
        let required = if encoded == 0 { 0 } else { range.find(is_encoded).unwrap() };
        if required > self.entries.len() {
            return (required, None);
        }
        let base = if sign { required - delta - 1 } else { required + delta };
        let mut fields = Fields::new();
        while let Some(first) = input.front().copied() {
            let at = |is_static: bool, number: usize| match is_static {
                true => {
                    let (name, value, _) = static_table::get(number).unwrap();
                    (name.to_vec(), value.to_vec())
                }
                false => {
                    assert!(base - number <= required);
                    self.live(base - 1 - number)
                }
            };
            if first & 0x80 != 0 {
                let number = Self::integer(&mut input, 6);
                fields.push(at(first & 0x40 != 0, number));
            } else if first & 0x40 != 0 {
                let number = Self::integer(&mut input, 4);
                let name = at(first & 0x10 != 0, number).0;
                fields.push((name, Self::string(&mut input, 7)));
            } else if first & 0x20 != 0 {
                fields.push((Self::string(&mut input, 3), Self::string(&mut input, 7)));
            } else if first & 0x10 != 0 {
                let index = base + Self::integer(&mut input, 4);
                assert!(index < required);
                fields.push(self.live(index));
            } else {
                let index = base + Self::integer(&mut input, 3);
                assert!(index < required);
                fields.push((self.live(index).0, Self::string(&mut input, 7)));
            }
        }
        (required, Some(fields))
    }
}

#[test]
fn insert_counts_wrap_and_take_several_bytes() {
    for capacity in [64, 220, 4096, 65_536] {
        let (mut encoder, mut decoder) = (QpackEncoder::default(), QpackDecoder::new(capacity, 1));
        let mut model = Model::default();
        encoder.set_limits(capacity as u64, 1);
        let mut longest = 0;
        for number in 0..3000_u64 {
            let value = number.to_string();
            let mut out = b"frame".to_vec();
            encoder.begin(4 * number, &mut out);
            encoder.field(b"x", value.as_bytes(), Indexing::Incremental, &mut out);
            encoder.field(b"y", b"z", Indexing::Incremental, &mut out);
            encoder.end(5, &mut out);
            let section = out.split_off(5);
            assert_eq!(out, b"frame");
            model.instructions(encoder.instructions());
            let expected = fields(&[("x", &value), ("y", "z")]);
            assert_eq!(
                model.section(&section, capacity),
                (model.entries.len(), Some(expected.clone()))
            );
            longest = longest.max(section.len());
            if capacity <= TABLE_SIZE {
                decoder.receive(encoder.instructions()).unwrap();
                assert_eq!(decode(&mut decoder, 4 * number, &section), Ok(Some(expected)));
            }
            encoder.sent(usize::MAX);
            let mut acknowledgement = Vec::new();
            crate::section::integer::encode(4 * number, 7, 0x80, &mut acknowledgement);
            encoder.receive(&acknowledgement).unwrap();
        }
        assert!(model.entries.len() >= 3000);
        assert!(capacity < 65_536 || longest >= 5, "{longest}");
    }
}

fn a_field() -> impl Strategy<Value = (Vec<u8>, Vec<u8>, u8)> {
    let name = prop_oneof![
        Just(b"server".to_vec()),
        Just(b"etag".to_vec()),
        Just(b":status".to_vec()),
        Just(b"x-one".to_vec()),
        proptest::collection::vec(b'a'..=b'c', 1..4),
    ];
    let value = prop_oneof![
        4 => proptest::collection::vec(b'a'..=b'b', 0..3),
        1 => Just(b"200".to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => proptest::collection::vec(any::<u8>(), 100..1500),
    ];
    (name, value, prop_oneof![4 => Just(0_u8), 1 => 1..3_u8])
}

proptest! {
    /// The three kinds of streams are delivered in any order and in pieces of any size.
    #[test]
    fn sections_come_back_in_any_order_of_the_streams(
        sections in proptest::collection::vec(proptest::collection::vec(a_field(), 1..8), 1..40),
        capacity in prop_oneof![Just(0_usize), 32..300_usize, Just(4096), Just(70_000)],
        blocked in 0..6_usize,
        steps in proptest::collection::vec((0..5_u8, any::<u16>()), 0..200),
    ) {
        let (mut encoder, mut decoder) = (QpackEncoder::default(), QpackDecoder::new(capacity, blocked));
        encoder.set_limits(decoder_capacity(capacity) as u64, blocked as u64);
        let (mut model, mut sent) = (Model::default(), Vec::new());
        let (mut to_decoder, mut to_encoder) = (VecDeque::new(), VecDeque::<u8>::new());
        let mut unsent: VecDeque<_> = sections.iter().enumerate().collect();
        // Encoded sections that were not decoded, by stream.
        let mut waiting: BTreeMap<u64, (Vec<u8>, Fields)> = BTreeMap::new();
        let mut is_blocked: Vec<u64> = Vec::new();
        // Streams after a reset have other numbers.
        let mut first = 0;
        // At the end, everything is delivered.
        let rest = (0..2000).map(|number| ((number % 4) as u8, u16::MAX));
        for (step, amount) in steps.into_iter().chain(rest) {
            match step {
                0 => {
                    let Some((number, section)) = unsent.pop_front() else { continue };
                    let stream = 4 * (number as u64 % 7 + first);
                    if waiting.contains_key(&stream) {
                        unsent.push_front((number, section));
                        continue;
                    }
                    let mut out = vec![7];
                    encoder.begin(stream, &mut out);
                    for (name, value, indexing) in section {
                        let indexing = [Indexing::Incremental, Indexing::Without, Indexing::Never]
                            [usize::from(*indexing)];
                        encoder.field(name, value, indexing, &mut out);
                    }
                    encoder.end(1, &mut out);
                    let expected = section.iter().map(|field| (field.0.clone(), field.1.clone()));
                    waiting.insert(stream, (out.split_off(1), expected.collect()));
                    let taken = encoder.instructions().len().min(usize::from(amount));
                    to_decoder.extend(encoder.instructions()[..taken].iter().copied());
                    sent.extend_from_slice(&encoder.instructions()[..taken]);
                    encoder.sent(taken);
                }
                1 => {
                    let taken = encoder.instructions().len();
                    sent.extend_from_slice(encoder.instructions());
                    to_decoder.extend(encoder.instructions().iter().copied());
                    encoder.sent(taken);
                    let count = to_decoder.len().min(usize::from(amount) % 50 + usize::from(amount) / 1000);
                    let piece: Vec<u8> = to_decoder.drain(..count).collect();
                    decoder.receive(&piece).unwrap();
                    while let Some(stream) = decoder.next_unblocked() {
                        is_blocked.retain(|other| *other != stream);
                    }
                }
                2 => {
                    let ready: Vec<u64> =
                        waiting.keys().copied().filter(|stream| !is_blocked.contains(stream)).collect();
                    let Some(stream) = ready.get(usize::from(amount) % ready.len().max(1)) else { continue };
                    let (section, expected) = &waiting[stream];
                    match decode(&mut decoder, *stream, section).unwrap() {
                        Some(fields) => {
                            prop_assert_eq!(&fields, expected);
                            waiting.remove(stream);
                        }
                        None => {
                            is_blocked.push(*stream);
                            prop_assert!(is_blocked.len() <= blocked);
                        }
                    }
                }
                3 => {
                    let instructions = take_instructions(&mut decoder);
                    to_encoder.extend(instructions);
                    let count = to_encoder.len().min(usize::from(amount) % 10 + usize::from(amount) / 1000);
                    let piece: Vec<u8> = to_encoder.drain(..count).collect();
                    encoder.receive(&piece).unwrap();
                }
                _ => {
                    // A stream is reset.
                    let Some(stream) = waiting.keys().next().copied() else { continue };
                    waiting.remove(&stream);
                    is_blocked.retain(|other| *other != stream);
                    decoder.cancel(stream);
                    first += 7;
                }
            }
        }
        prop_assert!(waiting.is_empty() && unsent.is_empty());
        prop_assert_eq!(encoder.table().inserted(), decoder.table().inserted());
        prop_assert_eq!(encoder.table().size(), decoder.table().size());
        model.instructions(&sent);
        prop_assert_eq!(model.entries.len() as u64, decoder.table().inserted());
        prop_assert_eq!(model.oldest as u64, decoder.table().oldest());
    }

    #[test]
    fn sections_are_those_of_the_model(
        sections in proptest::collection::vec(proptest::collection::vec(a_field(), 1..8), 1..40),
        capacity in prop_oneof![32..300_usize, Just(4096), Just(65_536)],
        acknowledged in proptest::collection::vec(any::<bool>(), 40),
    ) {
        let (mut encoder, mut decoder) = (QpackEncoder::default(), QpackDecoder::new(capacity, 100));
        let mut model = Model::default();
        encoder.set_limits(capacity as u64, 100);
        for (number, section) in sections.iter().enumerate() {
            let mut out = Vec::new();
            encoder.begin(4 * number as u64, &mut out);
            for (name, value, _) in section {
                encoder.field(name, value, Indexing::Incremental, &mut out);
            }
            encoder.end(0, &mut out);
            let instructions = encoder.instructions().to_vec();
            model.instructions(&instructions);
            encoder.sent(instructions.len());
            let expected: Fields = section.iter().map(|field| (field.0.clone(), field.1.clone())).collect();
            prop_assert_eq!(model.section(&out, capacity).1.unwrap(), expected.clone());
            if capacity > TABLE_SIZE {
                continue;
            }
            decoder.receive(&instructions).unwrap();
            prop_assert_eq!(decode(&mut decoder, 4 * number as u64, &out), Ok(Some(expected)));
            if acknowledged[number] {
                encoder.receive(&take_instructions(&mut decoder)).unwrap();
            }
        }
    }

    #[test]
    fn any_bytes_are_decoded_the_same_in_pieces_or_rejected(
        instructions in proptest::collection::vec(any::<u8>(), 0..200),
        cut in any::<prop::sample::Index>(),
        section in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let start = bytes("3fe11f c00161 c00162 41610163");
        let input = [start, instructions].concat();
        let (mut whole, mut split) = (QpackDecoder::new(4096, 4), QpackDecoder::new(4096, 4));
        let (first, second) = input.split_at(cut.index(input.len()));
        let result = whole.receive(&input);
        let parts = split.receive(first).and_then(|one| Ok(one + split.receive(second)?));
        prop_assert_eq!(result, parts);
        if result.is_ok() {
            prop_assert_eq!(decode(&mut whole, 0, &section), decode(&mut split, 0, &section));
        }
    }
}

/// The capacity that a decoder announces.
fn decoder_capacity(capacity: usize) -> usize {
    capacity.min(TABLE_SIZE)
}
