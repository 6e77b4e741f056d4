//! Cache directives (RFC 9111 §5.2, RFC 5861) of responses: `Cache-Control` and the targeted fields (RFC 9213).

use dunlin_http::FieldLines;
use dunlin_http::semantics::list::members;

use crate::fields::{delta_seconds, values};
use crate::structured::{self, Value};

/// The targeted fields that apply to this cache, the most specific one first.
pub const TARGETED: [&str; 2] = ["Dunlin-Cache-Control", "CDN-Cache-Control"];

/// The directives of a response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the directive of that name; times are in seconds")]
pub struct Directives {
    pub max_age: Option<u64>,
    pub s_maxage: Option<u64>,
    pub no_store: bool,
    pub no_cache: bool,
    /// The fields that `no-cache="..."` lists, in lower case.
    pub no_cache_fields: Vec<Box<[u8]>>,
    pub private: bool,
    pub public: bool,
    pub must_revalidate: bool,
    pub proxy_revalidate: bool,
    pub must_understand: bool,
    pub stale_while_revalidate: Option<u64>,
    pub stale_if_error: Option<u64>,
    /// They come from a targeted field, so that `Expires` does not apply (RFC 9213 §2.2).
    pub is_targeted: bool,
}

/// The argument of a directive.
enum Argument<'a> {
    None,
    Text(&'a [u8]),
    Seconds(u64),
    /// Of a type that the directive does not take, in a structured field.
    Other,
}

impl Directives {
    /// Creates the directives of a response: of the first targeted field that is valid and not empty, or of `Cache-Control`.
    pub fn of(fields: &FieldLines) -> Self {
        TARGETED
            .iter()
            .find_map(|name| Self::targeted(&values(fields, name)))
            .unwrap_or_else(|| Self::cache_control(&values(fields, "Cache-Control")))
    }

    /// Returns the directives of `Cache-Control`.
    pub fn cache_control(lines: &[&[u8]]) -> Self {
        let mut directives = Self::default();
        for (name, argument) in arguments(lines) {
            let argument = argument.as_deref().map_or(Argument::None, Argument::Text);
            directives.add(&name, &argument);
        }
        directives
    }

    /// Returns the directives of a targeted field, a dictionary (RFC 8941 §3.2). `None` if it is absent, empty or malformed.
    fn targeted(lines: &[&[u8]]) -> Option<Self> {
        let members = structured::dictionary(lines).filter(|members| !members.is_empty())?;
        let mut directives = Self { is_targeted: true, ..Self::default() };
        for (name, value) in members {
            let argument = match value {
                Value::Boolean(true) => Argument::None,
                Value::Integer(seconds) if seconds >= 0 => Argument::Seconds(seconds as u64),
                Value::Boolean(false) => continue,
                Value::Integer(_) | Value::Other => Argument::Other,
            };
            directives.add(name, &argument);
        }
        Some(directives)
    }

    fn add(&mut self, name: &[u8], argument: &Argument<'_>) {
        let flag = !matches!(argument, Argument::Other);
        match name {
            b"max-age" => self.max_age = shorter(self.max_age, argument),
            b"s-maxage" => self.s_maxage = shorter(self.s_maxage, argument),
            b"stale-while-revalidate" => {
                self.stale_while_revalidate = shorter(self.stale_while_revalidate, argument);
            }
            b"stale-if-error" => self.stale_if_error = shorter(self.stale_if_error, argument),
            b"no-store" => self.no_store |= flag,
            b"no-cache" => match argument {
                Argument::Text(list) => self.no_cache_fields.extend(names(list)),
                _ => self.no_cache |= flag,
            },
            // With a list of fields, too: what is left without them may be as private.
            b"private" => self.private |= flag,
            b"public" => self.public |= flag,
            b"must-revalidate" => self.must_revalidate |= flag,
            b"proxy-revalidate" => self.proxy_revalidate |= flag,
            b"must-understand" => self.must_understand |= flag,
            _ => {}
        }
    }
}

/// Returns the shorter one of two times, of which the second is that of a directive. A malformed one is none at all (RFC 9111
/// §4.2.1), unless its type is wrong (RFC 9213 §2.1).
fn shorter(before: Option<u64>, argument: &Argument<'_>) -> Option<u64> {
    let seconds = match argument {
        Argument::None => 0,
        Argument::Text(text) => delta_seconds(text).unwrap_or(0),
        Argument::Seconds(seconds) => *seconds,
        Argument::Other => return before,
    };
    Some(before.map_or(seconds, |before| before.min(seconds)))
}

/// Returns the directives of `Cache-Control`: names in lower case, and arguments without quotes.
pub(crate) fn arguments<'a>(
    lines: &'a [&'a [u8]],
) -> impl Iterator<Item = (Box<[u8]>, Option<Vec<u8>>)> + 'a {
    members(lines).map(|member| {
        let equals = member.iter().position(|&byte| byte == b'=');
        let (name, argument) = match equals {
            Some(equals) => (&member[..equals], Some(unquoted(&member[equals + 1..]))),
            None => (member, None),
        };
        (name.to_ascii_lowercase().into(), argument)
    })
}

/// Returns an argument, which may be a quoted string.
fn unquoted(argument: &[u8]) -> Vec<u8> {
    let quoted = argument.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
    let Some(quoted) = quoted else { return argument.to_vec() };
    let mut text = Vec::with_capacity(quoted.len());
    let mut bytes = quoted.iter();
    while let Some(&byte) = bytes.next() {
        text.push(if byte == b'\\' { bytes.next().copied().unwrap_or(byte) } else { byte });
    }
    text
}

/// Returns a list of field names in lower case.
fn names(list: &[u8]) -> impl Iterator<Item = Box<[u8]>> {
    let names = list.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    names.filter(|name| !name.is_empty()).map(|name| name.to_ascii_lowercase().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> Directives {
        let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        Directives::cache_control(&lines)
    }

    fn response(fields: &[(&str, &str)]) -> Directives {
        let mut lines = FieldLines::new();
        fields.iter().for_each(|(name, value)| lines.push(name, value));
        Directives::of(&lines)
    }

    #[test]
    fn times_are_digits_and_the_shortest_one_applies() {
        for (lines, expected) in [
            (&["max-age=60"][..], Some(60)),
            (&["MaX-aGe=60"], Some(60)),
            (&["max-age=\"60\""], Some(60)),
            (&["max-age=0060"], Some(60)),
            (&["max-age=99999999999999999999"], Some(1 << 31)),
            (&["max-age='60'"], Some(0)),
            (&["max-age=-60"], Some(0)),
            (&["max-age=60.5"], Some(0)),
            (&["max-age"], Some(0)),
            (&["max-age=60, max-age=5"], Some(5)),
            (&["max-age=5", "max-age=60"], Some(5)),
            (&["extension=\"max-age=60\""], None),
            (&["extension=\"a, max-age=60\", max-age=7"], Some(7)),
            (&["max-age =60"], None),
            (&["public"], None),
        ] {
            assert_eq!(of(lines).max_age, expected, "{lines:?}");
        }
    }

    #[test]
    fn every_directive_is_read() {
        let all = of(&[
            "s-maxage=1, no-store, No-Cache, private, public, must-revalidate, proxy-revalidate",
            "must-understand, stale-while-revalidate=2, stale-if-error=3, unknown=4",
        ]);
        let expected = Directives {
            s_maxage: Some(1),
            no_store: true,
            no_cache: true,
            private: true,
            public: true,
            must_revalidate: true,
            proxy_revalidate: true,
            must_understand: true,
            stale_while_revalidate: Some(2),
            stale_if_error: Some(3),
            ..Directives::default()
        };
        assert_eq!(all, expected);
        let listed = of(&["no-cache=\"A, b\", private=\"x\""]);
        assert!(!listed.no_cache && listed.private);
        assert_eq!(listed.no_cache_fields, [b"a".as_slice().into(), b"b".as_slice().into()]);
    }

    #[test]
    fn a_valid_targeted_field_replaces_cache_control() {
        let cache_control = ("Cache-Control", "max-age=1, no-store");
        for (fields, max_age, no_store) in [
            (&[("CDN-Cache-Control", "max-age=60")][..], Some(60), false),
            (&[("CDN-Cache-Control", "foo, max-age=60;a=b")], Some(60), false),
            (&[("CDN-Cache-Control", "no-store"), ("CDN-Cache-Control", "a=(1 2)")], None, true),
            (&[("CDN-Cache-Control", "no-store=?0, max-age=5")], Some(5), false),
            // The type is wrong.
            (&[("CDN-Cache-Control", "max-age=\"60\"")], None, false),
            // The more specific one comes first.
            (
                &[("CDN-Cache-Control", "max-age=60"), ("dunlin-cache-control", "max-age=7")],
                Some(7),
                false,
            ),
            // Empty or malformed.
            (&[("CDN-Cache-Control", "")], Some(1), true),
            (&[("CDN-Cache-Control", "max-age=60, &&&")], Some(1), true),
            (&[("CDN-Cache-Control", "MaX-aGe=60")], Some(1), true),
            (&[("CDN-Cache-Control", "max-age= 60")], Some(1), true),
        ] {
            let fields: Vec<_> = fields.iter().copied().chain([cache_control]).collect();
            let directives = response(&fields);
            assert_eq!(
                (directives.max_age, directives.no_store),
                (max_age, no_store),
                "{fields:?}"
            );
        }
    }
}
