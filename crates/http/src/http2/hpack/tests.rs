//! The examples of RFC 7541, appendix C; round trips; and another implementation's opinion.

use proptest::prelude::*;

use super::*;
use crate::section::{huffman, integer};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn decode(decoder: &mut HpackDecoder, block: &[u8]) -> Result<Fields, MalformedSection> {
    let (mut text, mut fields) = (Vec::new(), Vec::new());
    decoder.decode(block, &mut text, |text, field| {
        fields.push((text[field.name].to_vec(), text[field.value].to_vec()));
    })?;
    Ok(fields)
}

fn pairs(text: &str) -> Fields {
    let pair = |line: &str| {
        let (name, value) = line.trim().rsplit_once(": ").unwrap();
        (name.into(), value.into())
    };
    text.lines().map(pair).collect()
}

#[test]
fn requests_of_appendix_c_are_read_plain_and_coded() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let coded = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    let expected = [
        (":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com", 57),
        (
            ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n\
             cache-control: no-cache",
            110,
        ),
        (
            ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\n\
             custom-key: custom-value",
            164,
        ),
    ];
    for blocks in [plain, coded] {
        let mut decoder = HpackDecoder::default();
        for (block, (text, size)) in blocks.iter().zip(expected) {
            assert_eq!(decode(&mut decoder, &bytes(block)).unwrap(), pairs(text));
            assert_eq!(decoder.table().size(), size);
        }
    }
}

#[test]
fn responses_of_appendix_c_evict_and_are_written_as_there() {
    let blocks = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e
         919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7
         821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed
         4ee5 b106 3d50 07",
    ];
    let sections = [
        ":status: 302\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n\
         location: https://www.example.com",
        ":status: 307\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n\
         location: https://www.example.com",
        ":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\n\
         location: https://www.example.com\ncontent-encoding: gzip\n\
         set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
    ];
    let (mut decoder, mut encoder) = (HpackDecoder::default(), HpackEncoder::default());
    encoder.limit_table(256);
    let sizes = [222, 222, 215];
    for (number, ((block, text), size)) in blocks.iter().zip(sections).zip(sizes).enumerate() {
        // The table of this example is smaller, which a section must announce.
        let mut block = bytes(block);
        if number == 0 {
            block.splice(..0, bytes("3f e1 01"));
        }
        let mut out = Vec::new();
        encoder.begin(&mut out);
        for (name, value) in pairs(text) {
            if name == b":status" {
                encoder.status(std::str::from_utf8(&value).unwrap().parse().unwrap(), &mut out);
            } else {
                encoder.field(&name, &value, Indexing::Incremental, &mut out);
            }
        }
        assert_eq!(out, block);
        assert_eq!(decode(&mut decoder, &block).unwrap(), pairs(text));
        assert_eq!((decoder.table().size(), encoder.table().size()), (size, size));
    }
}

#[test]
fn a_secret_is_in_no_table() {
    let mut encoder = HpackEncoder::default();
    let mut first = Vec::new();
    encoder.field(b"set-cookie", b"a=b", Indexing::Never, &mut first);
    let mut second = Vec::new();
    encoder.field(b"set-cookie", b"a=b", Indexing::Never, &mut second);
    assert_eq!(first, second);
    assert_eq!(first[0] & 0xf0, 0x10);
    assert_eq!(encoder.table().size(), 0);
}

#[test]
fn a_repeated_field_is_one_byte() {
    let (mut encoder, mut out) = (HpackEncoder::default(), Vec::new());
    encoder.field(b"server", b"dunlin", Indexing::Incremental, &mut out);
    out.clear();
    encoder.field(b"server", b"dunlin", Indexing::Incremental, &mut out);
    assert_eq!(out, [0xbe]);
}

#[test]
fn malformed_blocks_are_rejected() {
    for (block, why) in [
        ("80", "index 0"),
        ("be", "an index beyond the table"),
        ("ff ff ff ff ff ff", "an integer without bounds"),
        ("ff 80 80 80 80 80 00", "an integer of zeros"),
        ("82 3f e1 01", "a table size behind a field"),
        ("3f e2 1f", "a table size beyond the limit: 4097"),
        ("40 0a 61", "a string that is cut off"),
        ("40 01 61 81 00", "a Huffman string that is filled up with zeros"),
        ("40 01 61 82 1f ff", "a Huffman string that is filled up with more than seven bits"),
        ("40 01 61 84 ff ff ff ff", "a Huffman string that holds its end"),
        ("40", "a field without a name"),
    ] {
        assert!(decode(&mut HpackDecoder::default(), &bytes(block)).is_err(), "{why}");
    }
}

#[test]
fn a_table_of_one_size_follows_the_other() {
    let (mut encoder, mut decoder) = (HpackEncoder::default(), HpackDecoder::default());
    for size in [4096, 0, 100, 60, 1 << 30, 37] {
        encoder.limit_table(size.min(40));
        encoder.limit_table(size);
        for round in 0..3 {
            let mut out = Vec::new();
            encoder.begin(&mut out);
            encoder.field(b"a", b"b", Indexing::Incremental, &mut out);
            encoder.field(b"cd", &[b'0' + round], Indexing::Incremental, &mut out);
            let expected = vec![(b"a".into(), b"b".into()), (b"cd".into(), vec![b'0' + round])];
            assert_eq!(decode(&mut decoder, &out).unwrap(), expected);
            assert_eq!(decoder.table().size(), encoder.table().size());
        }
    }
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(b"server".to_vec()),
        Just(b"etag".to_vec()),
        proptest::collection::vec(b'a'..=b'c', 1..4),
    ]
}

fn section() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>, u8)>> {
    let value = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        proptest::collection::vec(b'a'..=b'b', 0..3),
        proptest::collection::vec(any::<u8>(), 1000..1500),
    ];
    proptest::collection::vec((name(), value, 0..3_u8), 1..20)
}

fn encode(encoder: &mut HpackEncoder, section: &[(Vec<u8>, Vec<u8>, u8)]) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.begin(&mut out);
    for (name, value, indexing) in section {
        let indexing =
            [Indexing::Incremental, Indexing::Without, Indexing::Never][usize::from(*indexing)];
        encoder.field(name, value, indexing, &mut out);
    }
    out
}

proptest! {
    #[test]
    fn huffman_strings_come_back(text: Vec<u8>) {
        let (mut coded, mut plain) = (Vec::new(), Vec::new());
        huffman::encode(&text, &mut coded);
        prop_assert_eq!(coded.len(), huffman::encoded_length(&text));
        huffman::decode(&coded, &mut plain).unwrap();
        prop_assert_eq!(plain, text);
    }

    #[test]
    fn integers_come_back(value in 0..1_usize << 24, prefix in 4..8_u8) {
        let mut out = Vec::new();
        integer::encode(value as u64, prefix, 0, &mut out);
        let mut at = 0;
        prop_assert_eq!(integer::decode(&out, &mut at, prefix).unwrap(), value);
        prop_assert_eq!(at, out.len());
    }

    #[test]
    fn sections_come_back_and_others_read_them_the_same(
        sections in proptest::collection::vec((section(), 0..5000_usize), 0..12),
    ) {
        let (mut encoder, mut decoder) = (HpackEncoder::default(), HpackDecoder::default());
        let mut other = fluke_hpack::Decoder::new();
        for (section, size) in sections {
            if size < 1000 {
                encoder.limit_table(size);
            }
            let block = encode(&mut encoder, &section);
            let expected: Fields = section.into_iter().map(|field| (field.0, field.1)).collect();
            prop_assert_eq!(&decode(&mut decoder, &block).unwrap(), &expected);
            let read: Fields = other.decode(&block).unwrap();
            prop_assert_eq!(&read, &expected);
        }
    }

    #[test]
    fn blocks_of_another_encoder_are_decoded(sections in proptest::collection::vec(section(), 0..8)) {
        let (mut decoder, mut other) = (HpackDecoder::default(), fluke_hpack::Encoder::new());
        for section in sections {
            let fields: Fields = section.into_iter().map(|field| (field.0, field.1)).collect();
            let block = other.encode(fields.iter().map(|field| (&*field.0, &*field.1)));
            prop_assert_eq!(decode(&mut decoder, &block).unwrap(), fields);
        }
    }

    #[test]
    fn any_bytes_are_decoded_as_by_others_or_rejected(
        blocks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..6),
    ) {
        let (mut decoder, mut other) = (HpackDecoder::default(), fluke_hpack::Decoder::new());
        for block in blocks {
            match decode(&mut decoder, &block) {
                // Others are more lenient about bounds; what is accepted has to be the same.
                Ok(fields) => {
                    if let Ok(read) = other.decode(&block) {
                        prop_assert_eq!(read, fields);
                    } else {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
    }
}
