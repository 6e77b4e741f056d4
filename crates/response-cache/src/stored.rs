//! A stored response, and its update by a 304 (RFC 9111 §3.1, §3.2, §4.3.4).

use bytes::Bytes;
use dunlin_http::FieldLines;
use dunlin_http::semantics::conditional::Validators;
use dunlin_http::semantics::list::members;
use dunlin_http::semantics::{EntityTag, date};

use crate::directives::{Directives, TARGETED};
use crate::fields::values;
use crate::freshness::{Freshness, Received};
use crate::presented::Presented;
use crate::storable::{self, Requested, Rules};
use crate::vary::Vary;

/// The fields that a response lists as its tags, by which it can be purged.
const TAG_FIELDS: [&str; 2] = ["Cache-Tag", "Surrogate-Key"];

/// Fields of a stored response that a 304 does not change: they describe the content that is stored.
const OF_CONTENT: [&str; 5] =
    ["Content-Encoding", "Content-Length", "Content-MD5", "Content-Range", "ETag"];

/// Fields that are not stored as they are: of one message, or for this cache alone.
const NOT_STORED: [&str; 5] = ["Age", "Content-Length", "Date", "Proxy-Authorization", TARGETED[0]];

/// The head of a response that may be stored, before its body has arrived.
#[derive(Debug, Clone)]
pub struct StoredHead {
    /// The status code.
    pub status: u16,
    /// The fields for clients, without `Age` and `Content-Length`. `Date` is that of the upstream, or of the arrival.
    pub fields: FieldLines,
    /// The `Date`, in seconds since 1970.
    pub date: u64,
    /// The time for which the response may be used.
    pub freshness: Freshness,
    /// The request fields that the response depends on.
    pub vary: Vary,
    etag: Option<EntityTag>,
    last_modified: Option<u64>,
    /// The directives, for the update by a 304.
    rules: Rules,
}

/// A stored response.
#[derive(Debug)]
pub struct Stored {
    /// The head of the response.
    pub head: StoredHead,
    /// The complete body.
    pub body: Bytes,
}

impl StoredHead {
    /// Returns the head of a response to `request`, if it may be stored.
    ///
    /// # Errors
    /// Why not, as a token for `Cache-Status`.
    pub fn new(
        requested: Requested,
        request: &dyn Presented,
        (status, fields): (u16, &FieldLines),
        received: Received,
        rules: &Rules,
    ) -> Result<Self, &'static str> {
        let directives = Directives::of(fields);
        let freshness = Freshness::of(status, fields, &directives, received, rules.is_heuristic)
            .with_default(rules.lifetime);
        storable::check(requested, status, fields, &directives, &freshness, rules)?;
        let Some(vary) = Vary::of(fields, request) else { return Err("vary") };
        let is_stored = |name: &[u8]| {
            !NOT_STORED.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
                && !directives.no_cache_fields.iter().any(|other| name.eq_ignore_ascii_case(other))
        };
        let mut kept = FieldLines::new();
        for (name, value) in fields.iter().filter(|(name, _)| is_stored(name)) {
            kept.push_parsed(name, value);
        }
        let (etag, last_modified) = (etag(fields), last_modified(fields));
        // RFC 9110 §6.6.1.
        let date = received.date.unwrap_or(received.unix);
        kept.push("Date", date::format(date));
        let rules = *rules;
        Ok(Self { status, fields: kept, date, freshness, vary, etag, last_modified, rules })
    }

    /// Creates a head of parts that are known: one that was stored before, or that of content which is not a response of an
    /// upstream.
    pub fn from_parts(
        (status, fields): (u16, FieldLines),
        date: u64,
        freshness: Freshness,
        vary: Vary,
        rules: Rules,
    ) -> Self {
        let (etag, last_modified) = (etag(&fields), last_modified(&fields));
        Self { status, fields, date, freshness, vary, etag, last_modified, rules }
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the validators of the response (RFC 9110 §8.8).
    pub fn validators(&self) -> Validators<'_> {
        Validators { etag: self.etag.as_ref(), last_modified: self.last_modified }
    }

    /// Returns the date that `If-Modified-Since` is compared with: without `Last-Modified` that of the response (RFC 9111
    /// §4.3.2).
    pub fn modified(&self) -> u64 {
        self.last_modified.unwrap_or(self.date)
    }

    /// Returns the conditional fields that validate it (RFC 9111 §4.3.1); none if it has no validator.
    pub fn conditions(&self) -> FieldLines {
        let mut conditions = FieldLines::new();
        for (field, condition) in
            [("ETag", "If-None-Match"), ("Last-Modified", "If-Modified-Since")]
        {
            if let Some(value) = self.fields.get(field) {
                conditions.push(condition, value);
            }
        }
        conditions
    }

    /// Returns the tags by which it can be purged, each followed by a space.
    pub fn tags(&self) -> Box<[u8]> {
        let mut tags = Vec::new();
        for name in TAG_FIELDS {
            let lines = values(&self.fields, name);
            let words = members(&lines).flat_map(|member| member.split(|&byte| byte == b' '));
            for word in words.filter(|word| !word.is_empty()) {
                tags.extend_from_slice(word);
                tags.push(b' ');
            }
        }
        tags.into()
    }

    /// Returns `true` if a response has the tag.
    pub fn has_tag(&self, tag: &[u8]) -> bool {
        has_tag(&self.tags(), tag)
    }

    /// Returns the head after a validation by a 304 with these fields (RFC 9111 §4.3.4).
    ///
    /// # Errors
    /// Why the result may not be stored, as a token for `Cache-Status`.
    pub fn updated(
        &self,
        requested: Requested,
        request: &dyn Presented,
        fields: &FieldLines,
        received: Received,
    ) -> Result<Self, &'static str> {
        let merged = merged(&self.fields, fields);
        let mut head =
            Self::new(requested, request, (self.status, &merged), received, &self.rules)?;
        // The request that validates has the values that the stored response depends on.
        if !head.vary.is_same(&self.vary) && fields.get("Vary").is_none() {
            head.vary = self.vary.clone();
        }
        Ok(head)
    }

    fn size(&self) -> usize {
        size_of::<Stored>() + self.fields.as_bytes().len() + self.vary.size()
    }
}

/// Returns `true` if `tags`, those of a response, contain `tag`.
pub fn has_tag(tags: &[u8], tag: &[u8]) -> bool {
    !tag.is_empty() && tags.split(|&byte| byte == b' ').any(|word| word == tag)
}

fn etag(fields: &FieldLines) -> Option<EntityTag> {
    values(fields, "ETag").first().and_then(|tag| EntityTag::parse(tag))
}

fn last_modified(fields: &FieldLines) -> Option<u64> {
    values(fields, "Last-Modified").first().and_then(|at| date::parse(at))
}

/// Returns the fields of a stored response, replaced by those of a 304 (RFC 9111 §3.2).
pub fn merged(stored: &FieldLines, update: &FieldLines) -> FieldLines {
    let is_in = |fields: &FieldLines, name: &[u8]| {
        fields.iter().any(|(other, _)| other.eq_ignore_ascii_case(name))
    };
    let is_of_content =
        |name: &[u8]| OF_CONTENT.iter().any(|other| name.eq_ignore_ascii_case(other.as_bytes()));
    let mut merged = FieldLines::new();
    for (name, value) in stored.iter() {
        if is_of_content(name) || !is_in(update, name) {
            merged.push_parsed(name, value);
        }
    }
    for (name, value) in update.iter().filter(|(name, _)| !is_of_content(name)) {
        merged.push_parsed(name, value);
    }
    merged
}

impl Stored {
    /// Memory in bytes.
    pub fn size(&self) -> usize {
        self.head.size() + self.body.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presented::Unchanged;
    use crate::testing::{fields, request};
    use dunlin_http::Method;

    const REQUESTED: Requested =
        Requested { method: Method::Get, is_authenticated: false, no_store: false };
    const RULES: Rules =
        Rules { set_cookie: false, is_heuristic: true, lifetime: None, max_body: 1000 };

    fn received(at: u64) -> Received {
        Received { date: None, unix: 784_111_777 + at, at: at * 1000, delay: 0 }
    }

    fn head(pairs: &[(&str, &str)]) -> Result<StoredHead, &'static str> {
        let request = request("GET", "/", "");
        StoredHead::new(
            REQUESTED,
            &Unchanged(request.as_request()),
            (200, &fields(pairs)),
            received(0),
            &RULES,
        )
    }

    #[test]
    fn fields_of_one_message_are_not_stored() {
        let stored = head(&[
            ("Cache-Control", "max-age=60, no-cache=\"A, b\""),
            ("Age", "5"),
            ("Content-Length", "5"),
            ("Date", "x"),
            ("A", "1"),
            ("B", "2"),
            ("C", "3"),
            ("CDN-Cache-Control", ""),
        ])
        .expect("it may be stored");
        let names: Vec<_> = stored.fields.iter().map(|(name, _)| name.to_vec()).collect();
        assert_eq!(names, [&b"Cache-Control"[..], b"C", b"CDN-Cache-Control", b"Date"]);
        assert_eq!(stored.fields.get("Date"), Some(&b"Sun, 06 Nov 1994 08:49:37 GMT"[..]));
        let stored = head(&[("Dunlin-Cache-Control", "max-age=5")]).expect("it may be stored");
        assert!(stored.fields.get("Dunlin-Cache-Control").is_none());
        assert_eq!(stored.freshness.lifetime, 5);
        assert_eq!(head(&[("Cache-Control", "max-age=60"), ("Vary", "*")]).err(), Some("vary"));
    }

    #[test]
    fn conditions_repeat_the_validators() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let stored = head(&[("ETag", "W/\"a\""), ("Last-Modified", date)]).expect("stored");
        let expected = fields(&[("If-None-Match", "W/\"a\""), ("If-Modified-Since", date)]);
        assert_eq!(stored.conditions(), expected);
        let stored = head(&[("Cache-Control", "max-age=1")]).expect("stored");
        assert!(stored.conditions().is_empty());
    }

    #[test]
    fn a_304_updates_the_fields_and_the_freshness() {
        let stored = head(&[
            ("Cache-Control", "max-age=1"),
            ("ETag", "\"a\""),
            ("Content-Encoding", "gzip"),
            ("Kept", "1"),
            ("Set", "1"),
            ("Set", "2"),
        ])
        .expect("stored");
        assert!(!stored.freshness.is_fresh(2_000));
        let update = fields(&[
            ("cache-control", "max-age=5"),
            ("ETag", "\"b\""),
            ("Content-Encoding", "br"),
            ("Set", "3"),
            ("New", "4"),
        ]);
        let request = request("GET", "/", "");
        let updated =
            stored.updated(REQUESTED, &Unchanged(request.as_request()), &update, received(2));
        let updated = updated.expect("stored");
        let expected = fields(&[
            ("ETag", "\"a\""),
            ("Content-Encoding", "gzip"),
            ("Kept", "1"),
            ("cache-control", "max-age=5"),
            ("Set", "3"),
            ("New", "4"),
            // Of the 304.
            ("Date", "Sun, 06 Nov 1994 08:49:39 GMT"),
        ]);
        assert_eq!(updated.fields, expected);
        assert!(updated.freshness.is_fresh(6_999) && !updated.freshness.is_fresh(7_000));
        let forbidden = fields(&[("Cache-Control", "no-store")]);
        let updated =
            stored.updated(REQUESTED, &Unchanged(request.as_request()), &forbidden, received(2));
        assert_eq!(updated.err(), Some("no-store"));
    }

    #[test]
    fn tags_are_lists_of_words() {
        let stored = head(&[
            ("Cache-Control", "max-age=1"),
            ("Cache-Tag", "a, b"),
            ("Surrogate-Key", "c d"),
        ])
        .expect("stored");
        let has = |tag: &str| stored.has_tag(tag.as_bytes());
        assert!(has("a") && has("b") && has("c") && has("d") && !has("e") && !has("a, b"));
    }
}
