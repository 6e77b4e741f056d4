//! Selection by request fields (RFC 9111 §4.1).

use dunlin_http::FieldLines;
use dunlin_http::semantics::list::{members, split, weight};

use crate::codec::{Decoder, Encoder};
use crate::fields::{Values, values};
use crate::presented::Presented;

/// The dependencies of a stored response: the spelling of the path, and the request fields that its `Vary` names, with their
/// values in the request that it is the response to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vary {
    /// The path, if the origin did not get it in the form of the key.
    spelling: Option<Box<[u8]>>,
    fields: Box<[Selecting]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Selecting {
    /// The name in lower case.
    name: Box<[u8]>,
    /// The value as it came, its lines joined by a comma; `None` if the request does not have the field.
    raw: Option<Box<[u8]>>,
    /// The normalised value.
    value: Option<Box<[u8]>>,
    /// The language of the response in lower case, if the field is `Accept-Language`.
    language: Option<Box<[u8]>>,
}

impl Vary {
    /// Returns what the response to `request` depends on; `None` if no request selects it: for `*`, and for a field that is
    /// different for each message.
    pub fn of(fields: &FieldLines, request: &dyn Presented) -> Option<Self> {
        let lines = values(fields, "Vary");
        let mut selecting: Vec<Selecting> = Vec::new();
        for member in members(&lines) {
            if member == b"*" {
                return None;
            }
            let name: Box<[u8]> = member.to_ascii_lowercase().into();
            if selecting.iter().any(|field| field.name == name) {
                continue;
            }
            let raw = raw_value(request, &name)?;
            let value = raw.as_deref().map(|raw| normalised(&name, raw));
            let is_language = &*name == b"accept-language";
            let language = is_language.then(|| language(fields)).flatten();
            selecting.push(Selecting { name, raw: raw.map(Into::into), value, language });
        }
        selecting.sort_by(|a, b| a.name.cmp(&b.name));
        Some(Self { spelling: request.spelling().map(Into::into), fields: selecting.into() })
    }

    /// Returns `true` if the response may be used for this request.
    pub fn matches(&self, request: &dyn Presented) -> bool {
        self.spelling.as_deref() == request.spelling()
            && self.fields.iter().all(|field| field.matches(request))
    }

    /// Returns the names of the request fields that the response depends on, in lower case.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.fields.iter().map(|field| &*field.name)
    }

    /// Returns `true` if both depend on the same values of the same fields, so that a response replaces the other one.
    pub fn is_same(&self, other: &Self) -> bool {
        let pairs = || self.fields.iter().zip(&other.fields);
        self.spelling == other.spelling
            && self.fields.len() == other.fields.len()
            && pairs().all(|(a, b)| a.name == b.name && a.value == b.value)
    }

    /// Returns what of the request selects its response: the same for requests that the same response suits. `None` if no
    /// other request has the same response.
    pub fn variant(&self, request: &dyn Presented) -> Option<Vec<u8>> {
        let mut variant = Vec::new();
        // No name of a field begins with a slash.
        variant.extend_from_slice(request.spelling().unwrap_or(b"/"));
        variant.push(b'\n');
        for field in &self.fields {
            variant.extend_from_slice(&field.name);
            if let Some(raw) = raw_value(request, &field.name)? {
                variant.push(b':');
                variant.extend_from_slice(&normalised(&field.name, &raw));
            }
            variant.push(b'\n');
        }
        Some(variant)
    }

    pub(crate) fn write(&self, writer: &mut Encoder) {
        writer.optional(self.spelling.as_deref());
        writer.number(self.fields.len() as u64);
        for field in &self.fields {
            writer.text(&field.name);
            for text in [&field.raw, &field.value, &field.language] {
                writer.optional(text.as_deref());
            }
        }
    }

    /// Returns what [`write`](Self::write) has written; `None` if it is something else.
    pub(crate) fn read(reader: &mut Decoder<'_>) -> Option<Self> {
        let spelling = reader.optional()?.map(Into::into);
        let count = reader.number()?;
        let mut fields = Vec::new();
        for _ in 0..count {
            let name = reader.text()?.into();
            let mut optional = || Some(reader.optional()?.map(Into::into));
            let (raw, value, language) = (optional()?, optional()?, optional()?);
            fields.push(Selecting { name, raw, value, language });
        }
        Some(Self { spelling, fields: fields.into() })
    }

    /// Memory in bytes.
    pub fn size(&self) -> usize {
        let text = |text: &Option<Box<[u8]>>| text.as_ref().map_or(0, |text| text.len());
        let size = |field: &Selecting| {
            size_of::<Selecting>() + field.name.len() + text(&field.raw) + text(&field.value)
        };
        text(&self.spelling) + self.fields.iter().map(size).sum::<usize>()
    }
}

impl Selecting {
    fn matches(&self, request: &dyn Presented) -> bool {
        let Some(lines) = request.lines(&self.name) else { return false };
        // Most requests have one line.
        if let [line] = *lines
            && Some(line) == self.raw.as_deref()
        {
            return true;
        }
        let raw = joined(&self.name, &lines);
        if raw.as_deref() == self.raw.as_deref() {
            return true;
        }
        let (Some(raw), Some(value)) = (raw, &self.value) else { return false };
        if normalised(&self.name, &raw) == *value {
            return true;
        }
        // The client prefers the language of the response, so that negotiation cannot give it a better one.
        self.language.as_deref().is_some_and(|language| preferred(&raw) == Some(language.into()))
    }
}

/// Returns the lines of a request field in one; `Some(None)` if the request does not have it, and `None` if that is not
/// known.
fn raw_value(request: &dyn Presented, name: &[u8]) -> Option<Option<Vec<u8>>> {
    Some(joined(name, &request.lines(name)?))
}

/// Returns the lines of a field as one (RFC 9110 §5.3, RFC 9113 §8.2.3).
fn joined(name: &[u8], lines: &[&[u8]]) -> Option<Vec<u8>> {
    let separator: &[u8] = if name == b"cookie" { b"; " } else { b"," };
    (!lines.is_empty()).then(|| lines.join(separator))
}

/// Returns a value in a form that is equal for values of the same meaning.
fn normalised(name: &[u8], raw: &[u8]) -> Box<[u8]> {
    match name {
        b"accept-encoding" | b"accept-language" | b"accept-charset" | b"accept" => preferences(raw),
        _ => members(&[raw]).collect::<Vec<_>>().join(&b','),
    }
    .into()
}

/// Returns the members of a list with weights, in lower case and in the order of their weights.
fn preferences(raw: &[u8]) -> Vec<u8> {
    let mut weighted = weighted(raw);
    weighted.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    weighted.dedup();
    let mut text = Vec::with_capacity(raw.len());
    let mut before = None;
    for (weight, member) in weighted {
        if let Some(before) = before {
            text.push(if before == weight { b',' } else { b'>' });
        }
        // What is not accepted differs from what is accepted least.
        if weight == 0 {
            text.push(b'!');
        }
        text.extend_from_slice(&member);
        before = Some(weight);
    }
    text
}

/// Returns the members of a list in lower case and without spaces, each with its weight in thousandths.
fn weighted(raw: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let lines = [raw];
    let weighted = members(&lines).map(|member| {
        let weight = weight(split(member, b';').skip(1)).unwrap_or(0);
        let is_weight = |part: &&[u8]| matches!(part, [b'q' | b'Q', b'=', ..]);
        let parts = split(member, b';').filter(|part| !is_weight(part)).collect::<Vec<_>>();
        (weight, parts.join(&b';').to_ascii_lowercase())
    });
    weighted.collect()
}

/// Returns the language range that the client prefers to all others.
fn preferred(raw: &[u8]) -> Option<Box<[u8]>> {
    let weighted = weighted(raw);
    let most = weighted.iter().map(|(weight, _)| *weight).max()?;
    let mut best = weighted.into_iter().filter(|(weight, _)| *weight == most);
    let (_, language) = best.next()?;
    best.next().is_none().then(|| language.into())
}

/// Returns the only language of a response.
fn language(fields: &FieldLines) -> Option<Box<[u8]>> {
    let lines: Values<'_> = values(fields, "Content-Language");
    let mut languages = members(&lines);
    let language = languages.next()?.to_ascii_lowercase();
    languages.next().is_none().then(|| language.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presented::Unchanged;
    use crate::testing::{fields, request};

    fn matches(response: &[(&str, &str)], stored: &str, presented: &str) -> Option<bool> {
        let stored = request("GET", "/", stored);
        let vary = Vary::of(&fields(response), &Unchanged(stored.as_request()))?;
        Some(vary.matches(&Unchanged(request("GET", "/", presented).as_request())))
    }

    #[test]
    fn requests_with_the_same_values_match() {
        for (vary, stored, presented, expected) in [
            ("", "", "A: 1\r\n", true),
            ("A", "A: 1\r\n", "a: 1\r\n", true),
            ("A", "A: 1\r\n", "A: 2\r\n", false),
            ("A", "", "A: 1\r\n", false),
            ("A", "A: 1\r\n", "", false),
            ("A", "", "", true),
            ("A, b", "A: 1\r\nB: 2\r\n", "B: 2\r\nA: 1\r\n", true),
            ("A, b", "A: 1\r\nB: 2\r\n", "B: 2\r\n", false),
            ("A", "A: 1, 2\r\n", "A: 1\r\nA: 2\r\n", true),
            ("A", "A: 1,2\r\n", "A: 1 ,  2\r\n", true),
            ("A", "A: x\r\n", "A: X\r\n", false),
            ("Cookie", "Cookie: a=1\r\nCookie: b=2\r\n", "Cookie: a=1; b=2\r\n", true),
        ] {
            let found = matches(&[("Vary", vary)], stored, presented);
            assert_eq!(found, Some(expected), "{vary} {stored} {presented}");
        }
    }

    #[test]
    fn values_of_the_same_meaning_match() {
        for (name, stored, presented, expected) in [
            ("Accept-Encoding", "gzip, deflate, br", "br,gzip,deflate", true),
            ("Accept-Encoding", "gzip", "GZIP", true),
            ("Accept-Encoding", "gzip;q=1.0, br", "br, gzip", true),
            ("Accept-Encoding", "gzip;q=0.5, br", "br, gzip", false),
            ("Accept-Encoding", "gzip, br;q=0", "gzip, br", false),
            ("Accept-Encoding", "gzip, br;q=0", "gzip", false),
            ("Accept-Language", "en, de", "de, EN", true),
            ("Accept-Language", "en, de;q=0.5", "de, en;q=0.5", false),
            ("Accept", "text/html;level=1, */*;q=0.1", "text/html; level=1,*/*; q=0.1", true),
        ] {
            let line = |value| format!("{name}: {value}\r\n");
            let found = matches(&[("Vary", name)], &line(stored), &line(presented));
            assert_eq!(found, Some(expected), "{name} {stored} {presented}");
        }
    }

    #[test]
    fn a_response_in_the_preferred_language_matches() {
        let response = [("Vary", "Accept-Language"), ("Content-Language", "de")];
        let stored = "Accept-Language: en, de\r\n";
        for (presented, expected) in [
            ("fr;q=0.5, de;q=1.0", true),
            ("de", true),
            ("fr, de", false),
            ("fr, de;q=0.5", false),
            ("de-CH", false),
        ] {
            let presented = format!("Accept-Language: {presented}\r\n");
            assert_eq!(matches(&response, stored, &presented), Some(expected), "{presented}");
        }
    }

    #[test]
    fn an_asterisk_matches_nothing() {
        for vary in ["*", "*, *", ", *", "*, Foo", "Foo, *"] {
            assert_eq!(matches(&[("Vary", vary)], "", ""), None, "{vary}");
        }
        assert_eq!(matches(&[("Vary", "A"), ("Vary", "*")], "", ""), None);
    }

    #[test]
    fn variants_are_those_of_the_selecting_fields() {
        let stored = request("GET", "/", "");
        let vary = Vary::of(&fields(&[("Vary", "A, Accept")]), &Unchanged(stored.as_request()));
        let variant = |lines| {
            let request = request("GET", "/", lines);
            vary.as_ref().and_then(|vary| vary.variant(&Unchanged(request.as_request())))
        };
        let expected = Some(b"/\na\naccept:x\n".to_vec());
        assert_eq!(variant("Accept: x\r\nB: 1\r\n"), expected);
        assert_eq!(variant("accept: X\r\n"), expected);
        assert_ne!(variant("A: \r\nAccept: x\r\n"), expected);
    }

    #[test]
    fn responses_for_the_same_values_replace_each_other() {
        let vary = |names: &str, presented: &str| {
            let request = request("GET", "/", presented);
            Vary::of(&fields(&[("Vary", names)]), &Unchanged(request.as_request()))
        };
        let is_same = |a: Option<Vary>, b: Option<Vary>| a.zip(b).map(|(a, b)| a.is_same(&b));
        assert_eq!(is_same(vary("A", "A: 1\r\n"), vary("a", "A: 1\r\n")), Some(true));
        assert_eq!(is_same(vary("A, B", "A: 1\r\n"), vary("b, a", "A: 1\r\n")), Some(true));
        assert_eq!(is_same(vary("A", "A: 1\r\n"), vary("A", "A: 2\r\n")), Some(false));
        assert_eq!(is_same(vary("A", "A: 1\r\n"), vary("", "A: 1\r\n")), Some(false));
    }
}
