//! Content negotiation (RFC 9110 §12).

use super::list::{members, split, weight};

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContentCoding {
    /// No coding.
    Identity,
    /// gzip (RFC 1952).
    Gzip,
    /// Brotli (RFC 7932).
    Brotli,
    /// Zstandard (RFC 8878).
    Zstd,
}

impl ContentCoding {
    /// Returns the name in Content-Encoding.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }

    /// Returns the suffix of files with this coding.
    pub fn suffix(self) -> Option<&'static str> {
        match self {
            Self::Identity => None,
            Self::Gzip => Some(".gz"),
            Self::Brotli => Some(".br"),
            Self::Zstd => Some(".zst"),
        }
    }

    fn from_token(token: &[u8]) -> Option<Self> {
        [Self::Identity, Self::Gzip, Self::Brotli, Self::Zstd]
            .into_iter()
            .find(|coding| token.eq_ignore_ascii_case(coding.as_str().as_bytes()))
            .or_else(|| token.eq_ignore_ascii_case(b"x-gzip").then_some(Self::Gzip))
    }
}

/// The content codings that a client accepts: a weight in thousandths for each, 0 for those that it rejects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Accepted {
    weights: [u16; 4],
}

/// Parses Accept-Encoding (RFC 9110 §12.5.3). Malformed members are ignored.
pub fn accept_encoding(values: &[&[u8]]) -> Accepted {
    let mut named = [None; 4];
    let mut any = None;
    for member in members(values) {
        let mut parts = split(member, b';');
        let token = parts.next().unwrap_or_default();
        let Some(weight) = weight(parts) else { continue };
        if token == b"*" {
            any = Some(weight);
        } else if let Some(coding) = ContentCoding::from_token(token) {
            named[coding as usize] = Some(weight);
        }
    }
    let mut weights = named.map(|weight| weight.or(any).unwrap_or(0));
    // Identity is acceptable unless it has weight 0 by name or by `*`. If it is not named, it ranks behind all that are.
    if named[ContentCoding::Identity as usize].is_none() {
        weights[ContentCoding::Identity as usize] = if any == Some(0) { 0 } else { 1 };
    }
    Accepted { weights }
}

impl Accepted {
    /// Returns `true` if the client accepts this coding.
    pub fn accepts(&self, coding: ContentCoding) -> bool {
        self.weights[coding as usize] > 0
    }

    /// Returns the best of `available`, which are in the server's order of preference: the first one with the highest weight.
    /// `None` if none is acceptable.
    pub fn choose(&self, available: &[ContentCoding]) -> Option<ContentCoding> {
        let mut best: Option<(ContentCoding, u16)> = None;
        for &coding in available {
            let weight = self.weights[coding as usize];
            if weight > best.map_or(0, |best| best.1) {
                best = Some((coding, weight));
            }
        }
        best.map(|best| best.0)
    }
}

/// Returns `true` if the client prefers `application/json` to `text/html` (RFC 9110 §12.5.1): only if it names it, or
/// `application/*`, with the higher weight.
pub fn prefers_json(accept: &[&[u8]]) -> bool {
    let weight_of = |kind: &[u8], subtype: &[u8]| {
        // By precedence: the exact type, `type/*`, `*/*`.
        let mut best = (0, 0);
        for member in members(accept) {
            let mut parts = split(member, b';');
            let range = parts.next().unwrap_or_default();
            let Some(weight) = weight(parts) else { continue };
            let Some(slash) = memchr::memchr(b'/', range) else { continue };
            let (range_kind, range_subtype) = (&range[..slash], &range[slash + 1..]);
            let same_kind = range_kind.eq_ignore_ascii_case(kind);
            let specific = match (same_kind, range_kind, range_subtype) {
                (true, _, given) if given.eq_ignore_ascii_case(subtype) => 3,
                (true, _, b"*") => 2,
                (_, b"*", b"*") => 1,
                _ => continue,
            };
            if specific > best.0 {
                best = (specific, weight);
            }
        }
        best
    };
    let (json, html) = (weight_of(b"application", b"json"), weight_of(b"text", b"html"));
    json.0 >= 2 && (json.1 > html.1 || json.1 == html.1 && json.0 > html.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ContentCoding::{Brotli, Gzip, Identity, Zstd};

    #[test]
    fn the_highest_weight_wins_and_ties_follow_the_servers_order() {
        let all = [Zstd, Brotli, Gzip, Identity];
        for (value, expected) in [
            ("gzip, deflate, br, zstd", Some(Zstd)),
            ("gzip;q=1.0, br;q=0.9", Some(Gzip)),
            ("x-gzip", Some(Gzip)),
            ("GZIP", Some(Gzip)),
            ("", Some(Identity)),
            ("deflate", Some(Identity)),
            ("*", Some(Zstd)),
            ("*;q=0.5, identity", Some(Identity)),
            ("identity;q=0", None),
            ("identity;q=0, gzip;q=0.001", Some(Gzip)),
            ("*;q=0", None),
            ("*;q=0, br", Some(Brotli)),
            ("gzip;q=0", Some(Identity)),
            ("gzip;q=2, br", Some(Brotli)),
            ("gzip;q=0.5;x=y", Some(Gzip)),
            (",,gzip ; q=0.8 ,", Some(Gzip)),
        ] {
            assert_eq!(accept_encoding(&[value.as_bytes()]).choose(&all), expected, "{value}");
        }
        assert_eq!(accept_encoding(&[b"gzip"]).choose(&[Zstd, Identity]), Some(Identity));
        assert_eq!(accept_encoding(&[b"identity;q=0.1, gzip"]).choose(&[Identity]), Some(Identity));
    }

    #[test]
    fn json_is_preferred_only_if_named_with_a_higher_weight() {
        for (value, expected) in [
            ("application/json", true),
            ("application/json, text/html;q=0.9", true),
            ("application/json;q=0.5, text/html", false),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", false),
            ("*/*", false),
            ("application/*", true),
            ("", false),
            ("text/html, application/json", false),
        ] {
            assert_eq!(prefers_json(&[value.as_bytes()]), expected, "{value}");
        }
    }
}
