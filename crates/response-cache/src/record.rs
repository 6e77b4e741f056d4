//! Stored responses as bytes, for files that outlive the process.
//!
//! A record is a preamble of fixed length, a head (the key, when the response was received, and the [`StoredHead`]) and the body.
//! Each of the three has a checksum, so that a file that was truncated, overwritten or written by another version is known as such.
//! Numbers are little-endian; texts have their length in front.

use bytes::Bytes;
use dunlin_http::FieldLines;
use xxhash_rust::xxh3::xxh3_64;

use crate::codec::{Decoder, Encoder};
use crate::fields::MAX_SECONDS;
use crate::freshness::Freshness;
use crate::key::Key;
use crate::storable::Rules;
use crate::stored::{Stored, StoredHead};
use crate::vary::Vary;

/// The first bytes of each record: a name, and the version of the format.
const MAGIC: &[u8; 8] = b"dunlinR3";

/// Bytes of a preamble.
pub const PREAMBLE: usize = 40;
/// Bytes of the largest head. Larger ones are not written, and no others are read.
const MAX_HEAD: usize = 1 << 20;

/// The current time, by the clock of the process and by that of all processes.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Milliseconds of the monotonic clock.
    pub monotonic: u64,
    /// Milliseconds since 1970.
    pub unix: u64,
}

/// The lengths and checksums of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preamble {
    head: usize,
    body: u64,
    head_sum: u64,
    body_sum: u64,
}

/// The head of a record.
#[derive(Debug)]
pub struct RecordHead {
    /// The key, whose site is a number that means the same in each process.
    pub key: Key,
    /// The head of the response.
    pub head: StoredHead,
}

/// Returns the preamble and the head of the record of a response. The body follows them. `None` if the head is too large.
pub fn encode(key: &Key, stored: &Stored, now: Now) -> Option<Vec<u8>> {
    let mut writer = Encoder(vec![0; PREAMBLE]);
    writer.number(key.site as u64);
    writer.text(&key.url);
    stored.head.write(&mut writer, now);
    let mut bytes = writer.0;
    let head = bytes.get(PREAMBLE..)?;
    if head.len() > MAX_HEAD {
        return None;
    }
    let sums = (xxh3_64(head), xxh3_64(&stored.body));
    let mut preamble = Encoder(MAGIC.to_vec());
    preamble.0.extend_from_slice(&(head.len() as u32).to_le_bytes());
    preamble.number(stored.body.len() as u64);
    preamble.number(sums.0);
    preamble.number(sums.1);
    let sum = xxh3_64(&preamble.0) as u32;
    preamble.0.extend_from_slice(&sum.to_le_bytes());
    bytes.get_mut(..PREAMBLE)?.copy_from_slice(&preamble.0);
    Some(bytes)
}

impl Preamble {
    /// Reads a preamble; `None` if the bytes are not a preamble, or have another version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (rest, sum) = bytes.get(..PREAMBLE)?.split_at(PREAMBLE - 4);
        let expected = (xxh3_64(rest) as u32).to_le_bytes();
        if !rest.starts_with(MAGIC) || sum != expected {
            return None;
        }
        let (head, rest) = rest[MAGIC.len()..].split_at(4);
        let head = u32::from_le_bytes(head.try_into().ok()?) as usize;
        let mut reader = Decoder(rest);
        let (body, head_sum) = (reader.number()?, reader.number()?);
        let body_sum = reader.number()?;
        (head <= MAX_HEAD).then_some(Self { head, body, head_sum, body_sum })
    }

    /// Returns the bytes of the head.
    pub fn head_len(&self) -> usize {
        self.head
    }

    /// Returns the bytes of the body.
    pub fn body_len(&self) -> u64 {
        self.body
    }

    /// Returns the bytes of the record; `None` if no file is that large.
    pub fn record_len(&self) -> Option<u64> {
        self.body.checked_add((PREAMBLE + self.head) as u64)
    }

    /// Reads the head that follows the preamble; `None` if it is not the one that was written, or if it was written later than
    /// `now`, which leaves its age unknown.
    pub fn decode_head(&self, bytes: &[u8], now: Now) -> Option<RecordHead> {
        if bytes.len() != self.head || xxh3_64(bytes) != self.head_sum {
            return None;
        }
        let mut reader = Decoder(bytes);
        let site = usize::try_from(reader.number()?).ok()?;
        let key = Key { site, url: reader.text()?.into() };
        let head = StoredHead::read(&mut reader, now)?;
        reader.0.is_empty().then_some(RecordHead { key, head })
    }

    /// Returns `true` if this is the body that was written.
    pub fn has_body(&self, bytes: &[u8]) -> bool {
        bytes.len() as u64 == self.body && xxh3_64(bytes) == self.body_sum
    }
}

/// Returns the response of a whole record, with its key; `None` if the record is not as it was written.
pub fn decode(record: &Bytes, now: Now) -> Option<(Key, Stored)> {
    let preamble = Preamble::decode(record)?;
    if preamble.record_len() != Some(record.len() as u64) {
        return None;
    }
    let start = PREAMBLE + preamble.head;
    let RecordHead { key, head } = preamble.decode_head(record.get(PREAMBLE..start)?, now)?;
    let body = record.slice(start..);
    preamble.has_body(&body).then_some((key, Stored { head, body }))
}

impl Freshness {
    fn write(&self, writer: &mut Encoder, now: Now) {
        let age = self.initial_age * 1000 + now.monotonic.saturating_sub(self.received);
        let flags = [self.is_explicit, self.always_validate, self.must_revalidate];
        for number in [now.unix, age, self.lifetime, self.while_revalidate, self.if_error] {
            writer.number(number);
        }
        flags.into_iter().for_each(|flag| writer.flag(flag));
    }

    fn read(reader: &mut Decoder<'_>, now: Now) -> Option<Self> {
        let (unix, age) = (reader.number()?, reader.number()?);
        let age = now.unix.checked_sub(unix)?.checked_add(age)?;
        let mut seconds = || Some(reader.number()?.min(MAX_SECONDS));
        let (lifetime, while_revalidate, if_error) = (seconds()?, seconds()?, seconds()?);
        Some(Self {
            initial_age: (age / 1000).min(MAX_SECONDS),
            // So that the milliseconds of the age are counted on.
            received: now.monotonic.saturating_sub(age % 1000),
            lifetime,
            while_revalidate,
            if_error,
            is_explicit: reader.flag()?,
            always_validate: reader.flag()?,
            must_revalidate: reader.flag()?,
        })
    }
}

impl StoredHead {
    fn write(&self, writer: &mut Encoder, now: Now) {
        writer.number(u64::from(self.status));
        writer.number(self.date);
        self.freshness.write(writer, now);
        writer.flag(self.rules().set_cookie);
        writer.flag(self.rules().is_heuristic);
        writer.flag(self.rules().lifetime.is_some());
        self.rules().lifetime.into_iter().for_each(|lifetime| writer.number(lifetime));
        writer.number(self.rules().max_body);
        self.vary.write(writer);
        for (name, value) in self.fields.iter() {
            writer.text(name);
            writer.text(value);
        }
    }

    fn read(reader: &mut Decoder<'_>, now: Now) -> Option<Self> {
        let status = u16::try_from(reader.number()?).ok()?;
        let date = reader.number()?;
        let freshness = Freshness::read(reader, now)?;
        let rules = Rules {
            set_cookie: reader.flag()?,
            is_heuristic: reader.flag()?,
            lifetime: if reader.flag()? { Some(reader.number()?) } else { None },
            max_body: reader.number()?,
        };
        let vary = Vary::read(reader)?;
        let mut fields = FieldLines::new();
        while !reader.0.is_empty() {
            let name = str::from_utf8(reader.text()?).ok()?;
            fields.push(name, reader.text()?);
        }
        Some(Self::from_parts((status, fields), date, freshness, vary, rules))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::freshness::Received;
    use crate::presented::Unchanged;
    use crate::storable::Requested;
    use crate::testing::{fields, request};
    use dunlin_http::Method;
    use proptest::prelude::*;

    const NOW: Now = Now { monotonic: 5_000, unix: 784_111_777_000 };

    fn key() -> Key {
        Key { site: 7, url: b"http://a/b?c"[..].into() }
    }

    fn stored() -> Stored {
        let requested = Requested { method: Method::Get, is_authenticated: false, no_store: false };
        let rules = Rules { set_cookie: true, is_heuristic: true, lifetime: None, max_body: 1000 };
        let request = request("GET", "/b", "Accept-Language: de, en\r\nA: 1\r\n");
        let received = Received { date: None, unix: 784_111_777, at: 3_400, delay: 0 };
        let pairs = [
            ("Cache-Control", "max-age=60, stale-while-revalidate=5, stale-if-error=9"),
            ("Age", "2"),
            ("ETag", "\"a\""),
            ("Last-Modified", "Sat, 05 Nov 1994 08:49:37 GMT"),
            ("Content-Language", "de"),
            ("Vary", "Accept-Language, A, B"),
            ("Empty", ""),
            ("Set-Cookie", "a=b"),
        ];
        let response = (200, &fields(&pairs));
        let head = StoredHead::new(
            requested,
            &Unchanged(request.as_request()),
            response,
            received,
            &rules,
        )
        .unwrap();
        Stored { head, body: Bytes::from_static(b"hello") }
    }

    fn record() -> Vec<u8> {
        let stored = stored();
        [&encode(&key(), &stored, NOW).unwrap(), &stored.body[..]].concat()
    }

    fn decoded(bytes: &[u8], now: Now) -> Option<(Key, Stored)> {
        decode(&Bytes::copy_from_slice(bytes), now)
    }

    #[test]
    fn a_response_is_read_as_it_was_written() {
        let before = stored();
        let (read, after) = decoded(&record(), NOW).unwrap();
        assert_eq!((read, &after.body), (key(), &before.body));
        assert_eq!(
            (after.head.status, &after.head.fields, after.head.date, &after.head.vary),
            (200, &before.head.fields, before.head.date, &before.head.vary)
        );
        assert_eq!(after.head.modified(), before.head.modified());
        assert_eq!(after.head.conditions(), before.head.conditions());
        assert_eq!(after.head.validators().etag, before.head.validators().etag);
        assert_eq!(after.head.rules(), before.head.rules());
        // 1.6 seconds have passed.
        assert_eq!((after.head.freshness.initial_age, after.head.freshness.received), (3, 4_400));
        let same = Freshness { initial_age: 2, received: 3_400, ..after.head.freshness };
        assert_eq!(same, before.head.freshness);
    }

    #[test]
    fn the_age_goes_on_while_no_process_runs() {
        let before = stored().head.freshness;
        for (monotonic, unix) in [(5_000, 0), (999, 399), (9_000, 400), (1_000_000, 57_000)] {
            let now = Now { monotonic, unix: NOW.unix + unix };
            let after = decoded(&record(), now).unwrap().1.head.freshness;
            for later in [0, 600, 1_700, 60_000] {
                let expected = before.age(NOW.monotonic + unix + later);
                assert_eq!(after.age(monotonic + later), expected, "{now:?} {later}");
            }
        }
        let earlier = Now { monotonic: 5_000, unix: NOW.unix - 1 };
        assert!(decoded(&record(), earlier).is_none(), "the clock was set back");
    }

    #[test]
    fn a_truncated_or_extended_record_is_none() {
        let whole = record();
        for length in 0..whole.len() {
            assert!(decoded(&whole[..length], NOW).is_none(), "{length}");
        }
        assert!(decoded(&[&whole[..], b"x"].concat(), NOW).is_none());
    }

    #[test]
    fn each_byte_counts() {
        let whole = record();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(decoded(&changed, NOW).is_none(), "{at}");
        }
    }

    proptest! {
        #[test]
        fn heads_with_any_content_are_read_without_a_panic(head in prop::collection::vec(any::<u8>(), 0..200)) {
            let preamble = Preamble { head: head.len(), body: 0, head_sum: xxh3_64(&head), body_sum: 0 };
            let _ = preamble.decode_head(&head, NOW);
        }
    }
}
