//! Dictionaries that are made of sampled responses: of what several clients got, and of nothing else.
//!
//! A dictionary is sent to everyone, so that nothing of it may be about one visitor. It consists of pieces of the samples, and whatever
//! part of a piece one takes, with at most [`WINDOW`] bytes, was in the responses to several visitors, and at several URLs. A secret that
//! one visitor got is in no piece, nor is a part of it beside what surrounds it.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use bytes::Bytes;

use super::dcz;

/// A response.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Identifies who got it.
    pub visitor: u64,
    /// Identifies its URL.
    pub url: u64,
    /// Its content, or the beginning of it.
    pub content: Bytes,
}

/// Bytes that several visitors must have got in one piece.
pub const WINDOW: usize = 32;
/// Visitors that must have got them.
pub const VISITORS: u32 = 3;
/// The largest dictionary in bytes. The window of coded responses is larger.
pub const MAX_DICTIONARY: usize = 64 << 10;
/// Samples of which a dictionary is made, at most.
pub const MAX_SAMPLES: usize = 24;
/// The smallest dictionary in bytes.
const MIN_DICTIONARY: usize = 512;
/// Windows that a piece has at least that no other piece has.
const MIN_NEW: usize = 8;
/// The first bytes of a dictionary with a format of its own (RFC 8878 §5), which RFC 9842 does not use.
const FORMATTED: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];

/// Makes a dictionary of what was at `urls` URLs at least; `None` if the samples have too little in common. Of more than
/// [`MAX_SAMPLES`], the first are used.
pub fn train(samples: &[Sample], urls: u32) -> Option<Vec<u8>> {
    let samples = &samples[..samples.len().min(MAX_SAMPLES)];
    let pieces = pieces(samples, urls);
    let parts: Vec<&[u8]> =
        pieces.iter().map(|piece| &samples[piece.sample].content[piece.bytes.clone()]).collect();
    // The most common pieces are the last ones, as near to the content as they can be.
    let mut dictionary = parts.concat();
    dictionary.drain(..dictionary.len().saturating_sub(MAX_DICTIONARY));
    let is_usable = dictionary.len() >= MIN_DICTIONARY && !dictionary.starts_with(&FORMATTED);
    is_usable.then_some(dictionary)
}

/// Returns the bytes of all samples compressed with a dictionary. It fails as [`dcz::compress`] does.
///
/// # Errors
/// The encoder failed.
pub fn coded_length(dictionary: &[u8], samples: &[Sample]) -> std::io::Result<usize> {
    let hash = super::sha256(dictionary);
    let coded = samples.iter().map(|sample| dcz::compress(dictionary, &hash, &sample.content));
    coded.map(|coded| Ok(coded?.len())).sum()
}

/// A part of a sample, all windows of which are common.
#[derive(Debug)]
struct Piece {
    sample: usize,
    bytes: Range<usize>,
    /// The mean number of samples with its windows, times 16.
    weight: usize,
}

/// Returns pieces without common windows, the least common first.
fn pieces(samples: &[Sample], urls: u32) -> Vec<Piece> {
    let base = RandomState::new().hash_one(0_u8) % (PRIME - 512) + 256;
    let all: Vec<Vec<u64>> = samples.iter().map(|sample| hashes(&sample.content, base)).collect();
    let common = common(samples, &all, urls);
    let mut taken: HashSet<u64> = HashSet::new();
    let mut pieces = Vec::new();
    for (sample, windows) in all.iter().enumerate() {
        let is_new = |hash: &u64| common.contains_key(hash) && !taken.contains(hash);
        let runs = runs(windows, is_new);
        for run in runs.into_iter().filter(|run| run.len() >= MIN_NEW) {
            let counts = windows[run.clone()].iter().filter_map(|hash| common.get(hash));
            let weight = counts.map(|&count| count as usize * 16).sum::<usize>() / run.len();
            taken.extend(&windows[run.clone()]);
            pieces.push(Piece { sample, bytes: run.start..run.end - 1 + WINDOW, weight });
        }
    }
    pieces.sort_by_key(|piece| piece.weight);
    pieces
}

/// Returns the maximal ranges of windows for which `is_in` returns `true`.
fn runs(windows: &[u64], is_in: impl Fn(&u64) -> bool) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, _) in windows.iter().enumerate().filter(|(_, hash)| is_in(hash)) {
        match runs.last_mut().filter(|run| run.end == at) {
            Some(run) => run.end += 1,
            None => runs.push(at..at + 1),
        }
    }
    runs
}

/// Returns the windows that enough visitors and URLs have, and the number of samples with each.
fn common(samples: &[Sample], all: &[Vec<u64>], urls: u32) -> HashMap<u64, u32> {
    let visitors = numbered(samples.iter().map(|sample| sample.visitor));
    let places = numbered(samples.iter().map(|sample| sample.url));
    let mut windows: Vec<(u64, u8)> = Vec::with_capacity(all.iter().map(Vec::len).sum());
    for (sample, hashes) in all.iter().enumerate() {
        windows.extend(hashes.iter().map(|&hash| (hash, sample as u8)));
    }
    windows.sort_unstable();
    windows.dedup();
    let same = windows.chunk_by(|(one, _), (other, _)| one == other);
    let counted = same.filter_map(|group| {
        let set = |numbers: &[u32]| {
            let bits = group.iter().map(|&(_, sample)| 1_u32 << numbers[sample as usize]);
            bits.fold(0, |all, bit| all | bit).count_ones()
        };
        let is_common = set(&visitors) >= VISITORS && set(&places) >= urls;
        is_common.then(|| (group[0].0, group.len() as u32))
    });
    counted.collect()
}

/// Returns a small number for each identifier, the same one for equal ones.
fn numbered(identifiers: impl Iterator<Item = u64>) -> Vec<u32> {
    let mut known = HashMap::new();
    identifiers
        .map(|identifier| {
            let next = known.len() as u32;
            *known.entry(identifier).or_insert(next)
        })
        .collect()
}

/// The modulus of the hashes, a Mersenne prime.
const PRIME: u64 = (1 << 61) - 1;

/// Returns the hash of each window, a polynomial of its bytes at `base`, a secret number.
fn hashes(content: &[u8], base: u64) -> Vec<u64> {
    let Some(last) = content.len().checked_sub(WINDOW) else { return Vec::new() };
    let times =
        |one: u64, other: u64| (u128::from(one) * u128::from(other) % u128::from(PRIME)) as u64;
    let leaving = (0..WINDOW - 1).fold(1, |power, _| times(power, base));
    let append = |hash: u64, byte: u8| (times(hash, base) + u64::from(byte) + 1) % PRIME;
    let mut hash = content[..WINDOW].iter().fold(0, |hash, &byte| append(hash, byte));
    let mut hashes = Vec::with_capacity(last + 1);
    hashes.push(hash);
    for at in 0..last {
        let left = times(u64::from(content[at]) + 1, leaving);
        hash = append((hash + PRIME - left) % PRIME, content[at + WINDOW]);
        hashes.push(hash);
    }
    hashes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A page with a part that all have, a part of its URL, and what one visitor got.
    fn page(url: u64, secret: &str) -> String {
        let menu: String =
            (0..40).map(|n| format!("<li><a href=\"/s/{n}\">Section {n}</a>\n")).collect();
        let article: String =
            (0..30).map(|n| format!("<p>Text {} of article {url}</p>\n", n * url)).collect();
        format!(
            "<!doctype html><ul>\n{menu}</ul><input value=\"{secret}\">{article}<footer>The end of all pages of this site</footer>"
        )
    }

    fn sample(visitor: u64, url: u64, content: impl Into<Bytes>) -> Sample {
        Sample { visitor, url, content: content.into() }
    }

    fn samples(count: u64) -> Vec<Sample> {
        (0..count)
            .map(|n| {
                sample(
                    n,
                    n % 5,
                    page(n % 5, &format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))),
                )
            })
            .collect()
    }

    #[test]
    fn what_pages_have_in_common_is_in_the_dictionary() {
        let samples = samples(12);
        let dictionary = train(&samples, 2).unwrap();
        let text = String::from_utf8(dictionary.clone()).unwrap();
        for common in
            ["Section 7</a>\n<li><a href=\"/s/8\">Section 8", "The end of all pages of this site"]
        {
            assert!(text.contains(common), "{text}");
        }
        let with = coded_length(&dictionary, &samples).unwrap();
        let without = coded_length(b"", &samples).unwrap();
        assert!(with * 10 < without * 9, "{with} {without}");
    }

    #[test]
    fn what_one_visitor_or_one_url_has_is_not() {
        let mut samples = samples(12);
        // One visitor sees the same name at each URL.
        for sample in &mut samples[8..] {
            let named = page(sample.url, "signed in as Somebody of Nowhere");
            (sample.visitor, sample.content) = (99, named.into());
        }
        // Three visitors have followed the same link.
        let invited = page(77, "the invitation of somebody to a certain place");
        samples.extend((0..3).map(|n| sample(200 + n, 77, invited.clone())));
        let text = String::from_utf8(train(&samples, 2).unwrap()).unwrap();
        assert!(!text.contains("Somebody") && !text.contains("invitation"), "{text}");
        // The only URL of a pattern.
        let text = String::from_utf8(train(&samples, 1).unwrap()).unwrap();
        assert!(!text.contains("Somebody") && text.contains("invitation"), "{text}");
    }

    #[test]
    fn too_little_in_common_makes_no_dictionary() {
        assert_eq!(train(&[], 1), None);
        assert_eq!(train(&samples(2), 2), None);
        let short: Vec<Sample> =
            (0..9).map(|n| sample(n, n, "<p>the same few words in all</p>")).collect();
        assert_eq!(train(&short, 2), None);
        let formatted = [FORMATTED.as_slice(), page(1, "").as_bytes()].concat();
        let formatted: Vec<Sample> = (0..9).map(|n| sample(n, n, formatted.clone())).collect();
        assert_eq!(train(&formatted, 2), None);
    }

    #[test]
    fn the_size_is_bounded() {
        let long: String =
            (0..9_000).map(|n| format!("<p>line {n} of a long page</p>\n")).collect();
        let long: Vec<Sample> = (0..4).map(|n| sample(n, n, long.clone())).collect();
        assert_eq!(pieces(&long, 2).len(), 1);
        assert_eq!(train(&long, 2).unwrap().len(), MAX_DICTIONARY);
        let cut: Vec<Sample> = long
            .iter()
            .map(|of| Sample { content: of.content.slice(..50_000), ..of.clone() })
            .collect();
        let other: String =
            (0..9_000).map(|n| format!("<b>row {n} of another page</b>\n")).collect();
        let more = (0..4).map(|n| sample(n, 9 + n, other.clone()[..40_000].to_owned()));
        let both: Vec<Sample> = cut.into_iter().chain(more).collect();
        assert!((40_000..=MAX_DICTIONARY).contains(&train(&both, 2).unwrap().len()));
    }

    proptest! {
        /// The rule that keeps secrets out, computed in another way.
        #[test]
        fn each_window_of_each_piece_was_got_by_several_visitors(
            parts in prop::collection::vec(prop::collection::vec(0_usize..6, 1..12), 3..9),
            visitors in prop::collection::vec(0_u64..5, 9),
            urls in prop::collection::vec(0_u64..4, 9),
        ) {
            let words = ["<p>the first of all the words that are common", "2", "<b>another word that is long enough for it</b>",
                "x</i>", "<footer>what pages end with, if they have an end</footer>", "<td>4"];
            let samples: Vec<Sample> = parts.iter().enumerate().map(|(n, parts)| {
                let text: String = parts.iter().map(|&word| words[word]).collect();
                sample(visitors[n], urls[n], text)
            }).collect();
            for piece in pieces(&samples, 2) {
                let bytes = &samples[piece.sample].content[piece.bytes.clone()];
                for window in bytes.windows(WINDOW) {
                    let having = || samples.iter().filter(|sample| sample.content.windows(WINDOW).any(|other| other == window));
                    let visitors: HashSet<u64> = having().map(|sample| sample.visitor).collect();
                    let urls: HashSet<u64> = having().map(|sample| sample.url).collect();
                    prop_assert!(visitors.len() >= VISITORS as usize && urls.len() >= 2);
                }
            }
        }
    }
}
