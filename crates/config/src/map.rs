//! The tables `[map.NAME]`: values that follow from a text of the request.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use regex::bytes::Regex;

use super::facts::Facts;
use super::file::MapTable;
use super::glob::Glob;
use super::network::Network;
use super::report::Report;
use super::request_value::Piece;
use super::response_value;
use super::spanned::Spanned;
use super::template::Template;
use super::value_pattern::expression_of;

/// All maps, by name.
#[derive(Debug, Default)]
pub(super) struct Maps {
    all: BTreeMap<String, Arc<Map>>,
    /// Maps that follow from responses are found, too.
    has_responses: bool,
}

/// Values that follow from a text of the request.
#[derive(Debug, PartialEq)]
pub(super) struct Map {
    name: String,
    from: Template,
    /// The text is known with the response.
    is_of_response: bool,
    keys: Keys,
    values: Vec<Template>,
    /// The value of texts that no key matches.
    other: Option<usize>,
}

/// What texts are looked up by, with the indexes of the values.
#[derive(Debug)]
enum Keys {
    Texts {
        /// In lower case.
        exact: HashMap<Box<[u8]>, usize>,
        /// In the order of the file.
        regexes: Vec<(Regex, usize)>,
        /// From long to short.
        globs: Vec<(Glob, usize)>,
    },
    /// From small to large.
    Networks(Vec<(Network, usize)>),
    /// The first bound that is above the hash of the text decides.
    Shares(Vec<(u64, usize)>),
}

type Entries = BTreeMap<Spanned<String>, Spanned<String>>;

/// The key of the value for all other texts.
const OTHER: &str = "*";

impl Maps {
    /// Checks the tables. Errors are reported, and the faulty maps omitted.
    pub(super) fn read(tables: &BTreeMap<String, Spanned<MapTable>>, report: Report<'_>) -> Self {
        let mut maps = Self::default();
        let mut left: Vec<_> = tables.iter().collect();
        while !left.is_empty() {
            let is_ready = |(_, table): &(_, &Spanned<MapTable>)| {
                referred(table)
                    .all(|name| maps.all.contains_key(name) || !tables.contains_key(name))
            };
            let (ready, waiting): (Vec<_>, Vec<_>) = left.into_iter().partition(is_ready);
            if ready.is_empty() {
                for (name, table) in waiting {
                    report(&table.span, format!("map.{name}: its values need each other"));
                }
                return maps;
            }
            for (name, table) in ready {
                if let Some(map) = Map::read(name, table, &maps, report) {
                    maps.all.insert(name.clone(), Arc::new(map));
                }
            }
            left = waiting;
        }
        maps
    }

    /// Returns the map of that name.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn find(&self, name: &str) -> Result<Arc<Map>, String> {
        match self.all.get(name) {
            Some(map) if map.is_of_response && !self.has_responses => Err(format!(
                "[map.{name}] follows from responses: it is for the fields of responses alone"
            )),
            Some(map) => Ok(Arc::clone(map)),
            None => Err(format!("there is no [map.{name}]")),
        }
    }

    /// Returns the maps for the fields of responses.
    pub(super) fn for_fields(&self) -> Self {
        Self { all: self.all.clone(), has_responses: true }
    }
}

/// Returns the names of the maps that the values of a table name.
fn referred(table: &MapTable) -> impl Iterator<Item = &str> {
    let values = table.values.iter().chain(&table.split).flat_map(|entries| entries.values());
    values.chain([&table.from]).flat_map(|text| names(text))
}

/// Returns the names of the maps that a text names.
pub(super) fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split("{map.").skip(1).filter_map(|rest| Some(rest.split_once('}')?.0))
}

impl Map {
    fn read(
        name: &str,
        table: &Spanned<MapTable>,
        maps: &Maps,
        report: Report<'_>,
    ) -> Option<Self> {
        let of_response = response_value::names(&table.from);
        let from = Template::with_values(&table.from, &of_response, maps);
        let from = from.inspect_err(|what| {
            report(&table.from.span, format!("map.{name}: from: {what}"));
        });
        let (entries, is_split) = match (&table.values, &table.split) {
            (Some(entries), None) => (entries, false),
            (None, Some(entries)) => (entries, true),
            _ => {
                let what = format!("map.{name}: it has either `values` or `split`");
                report(&table.span, what);
                return None;
            }
        };
        let mut reader = Reader { name, maps, report, values: Vec::new(), other: None };
        let keys = match is_split {
            true => reader.shares(entries),
            false => reader.keys(entries),
        };
        let Reader { values, other, .. } = reader;
        let is_of_response = !of_response.is_empty();
        if is_of_response && !values.iter().all(Template::is_fixed) {
            let what = format!("map.{name}: values that follow from a response are texts");
            report(&table.span, what);
        }
        Some(Self { name: name.to_owned(), from: from.ok()?, is_of_response, keys, values, other })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns `true` if the text is known with the response.
    pub(super) fn is_of_response(&self) -> bool {
        self.is_of_response
    }

    /// Returns the text whose value the map has.
    pub(super) fn from(&self) -> &Template {
        &self.from
    }

    /// Returns the value for a text, where values are texts as well.
    pub(super) fn value_of(&self, text: &[u8]) -> Vec<u8> {
        let at = self.keys.find(text).map(|(at, _)| at).or(self.other);
        let value = at.and_then(|at| self.values.get(at));
        value.map_or_else(Vec::new, |value| value.fill(|_, _| {}))
    }

    /// Returns `true` if a client can choose a value freely.
    pub(super) fn is_chosen(&self) -> bool {
        self.values.iter().any(Template::is_chosen)
    }

    /// Returns the maps that the text and the values name.
    pub(super) fn maps(&self) -> impl Iterator<Item = &Self> {
        self.from.maps().chain(self.values.iter().flat_map(Template::maps))
    }

    /// Returns the values.
    pub(super) fn values(&self) -> &[Template] {
        &self.values
    }

    /// Returns the value for a request.
    pub(super) fn value(&self, facts: &Facts<'_>) -> Vec<u8> {
        let mut value = Vec::new();
        self.pieces(facts, &mut |piece| piece.push_plain(&mut value));
        value
    }

    /// Passes on the pieces of the value for a request.
    pub(super) fn pieces(&self, facts: &Facts<'_>, add: &mut dyn FnMut(Piece<'_>)) {
        let mut text = Vec::new();
        self.from.pieces(Some(facts), &mut |piece| piece.push_plain(&mut text), |_, _| {});
        let found = self.keys.find(&text);
        let at = found.as_ref().map(|(at, _)| *at).or(self.other);
        let Some(value) = at.and_then(|at| self.values.get(at)) else { return };
        let groups = found.and_then(|(_, regex)| regex?.captures(&text));
        value.pieces(Some(facts), add, |name, add| {
            let group = groups.as_ref().and_then(|groups| match name.parse() {
                Ok(number) => groups.get(number),
                Err(_) => groups.name(name),
            });
            add(Piece::Value(group.map_or(&[], |group| group.as_bytes())));
        });
    }
}

impl Keys {
    /// Returns the index of the value for a text, and the regular expression that matches it.
    fn find(&self, text: &[u8]) -> Option<(usize, Option<&Regex>)> {
        match self {
            Self::Texts { exact, regexes, globs } => {
                if let Some(&at) = exact.get(&*text.to_ascii_lowercase()) {
                    return Some((at, None));
                }
                if let Some((regex, at)) = regexes.iter().find(|(regex, _)| regex.is_match(text)) {
                    return Some((*at, Some(regex)));
                }
                let glob = globs.iter().find(|(glob, _)| glob.matches_any_case(text));
                glob.map(|(_, at)| (*at, None))
            }
            Self::Networks(networks) => {
                let address: IpAddr = std::str::from_utf8(text).ok()?.parse().ok()?;
                let network = networks.iter().find(|(network, _)| network.contains(address));
                network.map(|(_, at)| (*at, None))
            }
            Self::Shares(shares) => {
                let hash = u64::from(murmur_hash(text));
                let share = shares.iter().find(|(bound, _)| hash < *bound);
                share.map(|(_, at)| (*at, None))
            }
        }
    }
}

impl PartialEq for Keys {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Texts { exact, regexes, globs },
                Self::Texts { exact: exact_2, regexes: regexes_2, globs: globs_2 },
            ) => {
                let texts = |all: &[(Regex, usize)]| -> Vec<_> {
                    all.iter().map(|(regex, at)| (regex.as_str().to_owned(), *at)).collect()
                };
                exact == exact_2 && globs == globs_2 && texts(regexes) == texts(regexes_2)
            }
            (Self::Networks(one), Self::Networks(other)) => one == other,
            (Self::Shares(one), Self::Shares(other)) => one == other,
            _ => false,
        }
    }
}

struct Reader<'a> {
    name: &'a str,
    maps: &'a Maps,
    report: Report<'a>,
    values: Vec<Template>,
    other: Option<usize>,
}

impl Reader<'_> {
    fn error(&mut self, at: &Spanned<String>, what: &str) {
        (self.report)(&at.span, format!("map.{}: {what}", self.name));
    }

    /// Adds a value; `groups` are those of the regular expression of its key. Returns its index.
    fn value(&mut self, value: &Spanned<String>, groups: &[String]) -> usize {
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        match Template::with_values(value, &groups, self.maps) {
            Ok(template) => self.values.push(template),
            Err(what) => {
                self.error(value, &what);
                self.values.push(Template::of_text(value));
            }
        }
        self.values.len() - 1
    }

    fn keys(&mut self, entries: &Entries) -> Keys {
        let mut entries: Vec<_> = entries.iter().collect();
        // The order of the file.
        entries.sort_by_key(|(key, _)| key.span.as_ref().map(|span| span.start));
        let is_other = |key: &Spanned<String>| key.value == OTHER;
        if let Some((_, value)) = entries.iter().find(|(key, _)| is_other(key)) {
            self.other = Some(self.value(value, &[]));
        }
        entries.retain(|(key, _)| !is_other(key));
        let networks: Vec<Option<Network>> =
            entries.iter().map(|(key, _)| key.value.parse().ok()).collect();
        if !entries.is_empty() && networks.iter().all(Option::is_some) {
            let networks = networks.into_iter().flatten().zip(&entries);
            let mut networks: Vec<_> =
                networks.map(|(network, (_, value))| (network, self.value(value, &[]))).collect();
            networks.sort_by_key(|(network, _)| std::cmp::Reverse(network.prefix()));
            return Keys::Networks(networks);
        }
        self.texts(&entries)
    }

    fn texts(&mut self, entries: &[(&Spanned<String>, &Spanned<String>)]) -> Keys {
        let (mut exact, mut regexes, mut globs) = (HashMap::new(), Vec::new(), Vec::new());
        for (key, value) in entries {
            if let Some(expression) = key.strip_prefix('~') {
                match expression_of(expression) {
                    Ok(regex) => {
                        let names = regex.capture_names().enumerate();
                        let groups = names.flat_map(|(number, name)| {
                            [Some(number.to_string()), name.map(str::to_owned)]
                        });
                        let groups: Vec<String> = groups.flatten().collect();
                        regexes.push((regex, self.value(value, &groups)));
                    }
                    Err(what) => self.error(key, &what),
                }
            } else if key.contains('*') {
                globs.push((Glob::new(key), self.value(value, &[]), key.len()));
            } else {
                let lower = key.to_ascii_lowercase().into_bytes().into_boxed_slice();
                let at = self.value(value, &[]);
                if exact.insert(lower, at).is_some() {
                    self.error(key, &format!("the text {:?} is listed twice", key.value));
                }
            }
        }
        globs.sort_by_key(|(_, _, length)| std::cmp::Reverse(*length));
        let globs = globs.into_iter().map(|(glob, at, _)| (glob, at)).collect();
        Keys::Texts { exact, regexes, globs }
    }

    fn shares(&mut self, entries: &Entries) -> Keys {
        let mut entries: Vec<_> = entries.iter().collect();
        entries.sort_by_key(|(key, _)| key.span.as_ref().map(|span| span.start));
        let (mut shares, mut sum) = (Vec::new(), 0.0);
        for (key, value) in entries {
            if key.value == OTHER {
                self.other = Some(self.value(value, &[]));
                continue;
            }
            let share = key.strip_suffix('%').and_then(|share| share.trim().parse::<f64>().ok());
            let Some(share) = share.filter(|share| (0.0..=100.0).contains(share)) else {
                let what = format!("{:?} is not a share such as \"12.5%\", or \"*\"", key.value);
                self.error(key, &what);
                continue;
            };
            sum += share;
            if sum > 100.0 + 1e-9 {
                self.error(key, "the shares are more than 100%");
            }
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "at most 2^32"
            )]
            let bound = (sum / 100.0 * 4_294_967_296.0) as u64;
            shares.push((bound, self.value(value, &[])));
        }
        Keys::Shares(shares)
    }
}

/// Returns the hash by which nginx splits clients, so that those of a site that moves stay where they are: MurmurHash2 of 32 bits.
fn murmur_hash(text: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    #[expect(clippy::cast_possible_truncation, reason = "as the original does")]
    let mut hash = text.len() as u32;
    let (words, rest) = text.as_chunks::<4>();
    for word in words {
        let mut word = u32::from_le_bytes(*word).wrapping_mul(M);
        word ^= word >> 24;
        hash = hash.wrapping_mul(M) ^ word.wrapping_mul(M);
    }
    if !rest.is_empty() {
        for (at, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}
