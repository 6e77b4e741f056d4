//! Coded forms of bodies that a worker sends again and again: of cached responses, and of texts of the configuration. Each is
//! compressed once.

use std::collections::HashMap;

use bytes::Bytes;
use dunlin_http::FieldLines;
use dunlin_http::semantics::ContentCoding;

/// The coded forms that a worker keeps, by the bytes that they are made of.
#[derive(Debug, Default)]
pub(crate) struct CodedForms {
    by_body: HashMap<Key, Form>,
    /// Bytes of all bodies and forms.
    bytes: usize,
    uses: u64,
}

/// The place of a body in memory, which a form keeps from being used again, its length, and the coding.
type Key = (usize, usize, FormCoding);

/// The coding of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum FormCoding {
    Plain(ContentCoding),
    /// With the dictionary of this header.
    Dictionary([u8; 40]),
}

#[derive(Debug)]
struct Form {
    body: Bytes,
    /// `None` until the body has been sent before.
    coded: Option<Bytes>,
    /// The head that it was sent with last, before and after it was coded.
    head: Option<(FieldLines, FieldLines)>,
    last_use: u64,
}

/// What is known of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing: it may be sent once only.
    New,
    /// It was sent before: its coded form is worth keeping.
    Again,
    Coded(Bytes),
}

/// Bytes of bodies and forms that a worker keeps at most, and their number. Their heads take 2 MB besides.
const MAX_BYTES: usize = 8 << 20;
const MAX_FORMS: usize = 512;
/// Bytes of a head that is kept, before and after it was coded.
const MAX_HEAD: usize = 2 << 10;
/// Bytes of the fields that are added to a head.
const ROOM: usize = 160;

impl CodedForms {
    /// Returns what is known of a body, and notes that it is sent.
    pub(super) fn find(&mut self, body: &Bytes, coding: FormCoding) -> Known {
        self.uses += 1;
        if let Some(form) = self.by_body.get_mut(&key(body, coding)) {
            form.last_use = self.uses;
            return form.coded.clone().map_or(Known::Again, Known::Coded);
        }
        self.put(body, coding, None);
        Known::New
    }

    /// Returns the coded form of a body, with the head that `fields` become by that.
    pub(super) fn ready(
        &mut self,
        body: &Bytes,
        coding: FormCoding,
        fields: &FieldLines,
    ) -> Option<(Bytes, FieldLines)> {
        let form = self.by_body.get_mut(&key(body, coding))?;
        let (before, after) = form.head.as_ref()?;
        if before != fields {
            return None;
        }
        self.uses += 1;
        form.last_use = self.uses;
        Some((form.coded.clone()?, after.with_room(ROOM)))
    }

    /// Keeps the head of the coded form of a body.
    pub(super) fn keep_head(
        &mut self,
        body: &Bytes,
        coding: FormCoding,
        before: FieldLines,
        after: &FieldLines,
    ) {
        if let Some(form) = self.by_body.get_mut(&key(body, coding))
            && before.as_bytes().len().max(after.as_bytes().len()) <= MAX_HEAD
        {
            form.head = Some((before, after.clone()));
        }
    }

    /// Keeps the coded form of a body.
    pub(super) fn keep(&mut self, body: &Bytes, coding: FormCoding, coded: Bytes) {
        self.put(body, coding, Some(coded));
    }

    fn put(&mut self, body: &Bytes, coding: FormCoding, coded: Option<Bytes>) {
        self.remove(key(body, coding));
        let size = body.len() + coded.as_ref().map_or(0, Bytes::len);
        if size > MAX_BYTES / 4 {
            return;
        }
        while self.bytes + size > MAX_BYTES || self.by_body.len() >= MAX_FORMS {
            let oldest = self.by_body.iter().min_by_key(|(_, form)| form.last_use);
            let Some(oldest) = oldest.map(|(key, _)| *key) else { break };
            self.remove(oldest);
        }
        self.bytes += size;
        let form = Form { body: body.clone(), coded, head: None, last_use: self.uses };
        self.by_body.insert(key(body, coding), form);
    }

    fn remove(&mut self, key: Key) {
        if let Some(form) = self.by_body.remove(&key) {
            self.bytes -= form.body.len() + form.coded.map_or(0, |coded| coded.len());
        }
    }
}

fn key(body: &Bytes, coding: FormCoding) -> Key {
    (body.as_ptr().addr(), body.len(), coding)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GZIP: FormCoding = FormCoding::Plain(ContentCoding::Gzip);

    #[test]
    fn a_form_is_kept_for_a_body_that_is_sent_again() {
        let mut forms = CodedForms::default();
        let body = Bytes::from(vec![b'a'; 100]);
        assert_eq!(forms.find(&body, GZIP), Known::New);
        assert_eq!(forms.find(&body, GZIP), Known::Again);
        forms.keep(&body, GZIP, Bytes::from_static(b"coded"));
        assert_eq!(forms.find(&body.clone(), GZIP), Known::Coded(Bytes::from_static(b"coded")));
        for other in [FormCoding::Plain(ContentCoding::Zstd), FormCoding::Dictionary([1; 40])] {
            assert_eq!(forms.find(&body, other), Known::New);
        }
        assert_eq!(forms.find(&Bytes::from(vec![b'a'; 100]), GZIP), Known::New);
    }

    #[test]
    fn a_head_is_ready_for_the_same_fields_alone() {
        let mut forms = CodedForms::default();
        let body = Bytes::from(vec![b'a'; 100]);
        let head = |age: u64| {
            let mut fields = FieldLines::new();
            fields.push_number("Age", age);
            fields
        };
        forms.find(&body, GZIP);
        assert_eq!(forms.ready(&body, GZIP, &head(1)), None);
        forms.keep(&body, GZIP, Bytes::from_static(b"coded"));
        forms.keep_head(&body, GZIP, head(1), &head(7));
        assert_eq!(
            forms.ready(&body, GZIP, &head(1)),
            Some((Bytes::from_static(b"coded"), head(7)))
        );
        assert_eq!(forms.ready(&body, GZIP, &head(2)), None);
        assert_eq!(forms.ready(&Bytes::from(vec![b'a'; 100]), GZIP, &head(1)), None);
    }

    #[test]
    fn long_heads_are_not_kept() {
        let (body, coded) = (Bytes::from_static(b"body"), Bytes::from_static(b"b"));
        let long = || {
            let mut fields = FieldLines::new();
            fields.push("X-Long", "x".repeat(MAX_HEAD));
            fields
        };
        for (before, after) in [(long(), FieldLines::new()), (FieldLines::new(), long())] {
            let mut forms = CodedForms::default();
            forms.keep(&body, GZIP, coded.clone());
            forms.keep_head(&body, GZIP, before.clone(), &after);
            assert!(forms.ready(&body, GZIP, &before).is_none());
            forms.keep_head(&body, GZIP, FieldLines::new(), &FieldLines::new());
            assert!(forms.ready(&body, GZIP, &FieldLines::new()).is_some());
        }
    }

    #[test]
    fn forms_are_bounded() {
        let mut forms = CodedForms::default();
        let kept = Bytes::from(vec![b'k'; 1000]);
        forms.keep(&kept, GZIP, Bytes::from_static(b"k"));
        for size in (0..3000).map(|number| 1000 + number * 13) {
            forms.find(&Bytes::from(vec![b'x'; size]), GZIP);
            assert!(matches!(forms.find(&kept, GZIP), Known::Coded(_)), "{size}");
            assert!(forms.bytes <= MAX_BYTES && forms.by_body.len() <= MAX_FORMS);
        }
        let sum: usize = forms.by_body.values().map(|form| form.body.len()).sum();
        assert_eq!(sum + 1, forms.bytes);
        forms.find(&Bytes::from(vec![b'x'; MAX_BYTES]), GZIP);
        assert!(forms.bytes <= MAX_BYTES);
    }
}
