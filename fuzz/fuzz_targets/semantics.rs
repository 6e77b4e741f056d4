#![no_main]
//! Field values and paths.

use dunlin_http::semantics::range::{self, RangeOutcome};
use dunlin_http::semantics::target::Target;
use dunlin_http::semantics::{Method, date, digest, etag, host, negotiate, path, target};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, &[u8])| {
    let (length, data) = input;
    if let RangeOutcome::Ranges(ranges) = range::parse(&[data], u64::from(length), 16) {
        for range in ranges {
            assert!(range.start < range.end && range.end <= u64::from(length));
        }
    }
    let _ = date::parse(data);
    let _ = etag::TagList::parse(&[data]);
    if let Some(found) = host::parse(data) {
        // The name alone is a host, and only a port can follow it.
        assert_eq!(host::parse(found.name), Some(host::Host { name: found.name, port: None }));
        assert!(matches!(&data[found.name.len()..], [] | [b':', ..]));
        assert_eq!(host::is_authority(data), !found.name.is_empty());
    }
    if let Ok(Target::Absolute { authority, path, .. }) = target::parse(Method::Get, data) {
        assert!(host::is_authority(authority) && path.starts_with(b"/"));
    }
    let _ = negotiate::accept_encoding(&[data]);
    let _ = negotiate::prefers_json(&[data]);
    let _ = digest::wants_sha256(&[data]);
    let mut decoded = Vec::new();
    if path::decode(data, &mut decoded).is_ok() {
        assert!(decoded.starts_with(b"/") && !decoded.contains(&0));
        assert!(decoded.split(|&b| b == b'/').all(|segment| segment != b".."));
        let mut again = Vec::new();
        assert_eq!(path::decode(path::encode(&decoded).as_bytes(), &mut again), Ok(()));
        assert_eq!(again, decoded);
    }
});
