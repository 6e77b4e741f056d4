//! The table `when`: conditions of a route besides its path.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use dunlin_http::FieldName;
use dunlin_http::semantics::is_token;

use super::facts::Facts;
use super::file::{OneOrMany, ValueTest, WhenTable};
use super::file_test::{FileKind, FileTest};
use super::glob::Glob;
use super::map::{Map, Maps};
use super::network::Network;
use super::referer::Referer;
use super::report::Report;
use super::spanned::Spanned;
use super::value_pattern::ValuePattern;

/// Conditions that must all hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct When {
    tests: Vec<Test>,
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    Method(Vec<String>),
    Encrypted(bool),
    Client(Vec<Network>),
    Type(Vec<Glob>),
    Query(Box<str>, Value),
    Header(Box<str>, Value),
    Cookie(Box<str>, Value),
    Map(Arc<Map>, Value),
    /// The map has this value, of which a route was made.
    Choice(Arc<Map>, Box<str>),
    Referer(Vec<Referer>),
    File(Box<FileTest>),
    Not(When),
}

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Present(bool),
    OneOf(Vec<ValuePattern>),
}

/// The deepest `not` in a `not`.
const MAX_DEPTH: usize = 8;

impl When {
    /// Checks the table of a route of the site for `hosts`. Errors are reported, and the faulty conditions omitted.
    pub(super) fn read(
        table: &Spanned<WhenTable>,
        (maps, hosts): (&Maps, &[String]),
        report: Report<'_>,
    ) -> Self {
        let mut reader = Reader { report, maps, hosts, place: &table.span };
        reader.table(&table.value, 0)
    }

    /// Returns `true` if all conditions hold.
    pub fn holds(&self, facts: &Facts<'_>) -> bool {
        self.tests.iter().all(|test| test.holds(facts))
    }

    /// Returns the number of conditions that the file names. More of them are more specific.
    pub(super) fn count(&self) -> usize {
        self.tests.iter().filter(|test| !test.is_choice()).count()
    }

    /// Returns `true` if the route is one of several that a value of maps was made of, of which one applies to each request.
    pub(super) fn is_choice(&self) -> bool {
        self.tests.iter().all(Test::is_choice)
    }

    /// Returns the maps that the conditions name.
    pub(super) fn maps(&self) -> Vec<&Map> {
        let mut maps = Vec::new();
        for test in &self.tests {
            match test {
                Test::Map(map, _) | Test::Choice(map, _) => maps.push(&**map),
                Test::File(test) => maps.extend(test.maps()),
                Test::Not(other) => maps.extend(other.maps()),
                _ => {}
            }
        }
        maps
    }

    /// Returns `true` if the maps have the values that the route was made of.
    pub(super) fn choice_holds(&self, facts: &Facts<'_>) -> bool {
        self.tests.iter().filter(|test| test.is_choice()).all(|test| test.holds(facts))
    }
}

struct Reader<'a> {
    report: Report<'a>,
    maps: &'a Maps,
    hosts: &'a [String],
    place: &'a super::spanned::Span,
}

type Tests = Option<BTreeMap<Spanned<String>, Spanned<ValueTest>>>;

impl Reader<'_> {
    fn table(&mut self, table: &WhenTable, depth: usize) -> When {
        let mut tests = Vec::new();
        if let Some(names) = &table.method {
            tests.push(Test::Method(self.methods(names)));
        }
        if let Some(scheme) = &table.scheme {
            match scheme.as_str() {
                "http" => tests.push(Test::Encrypted(false)),
                "https" => tests.push(Test::Encrypted(true)),
                other => {
                    let what = format!("when: scheme is \"http\" or \"https\", not {other:?}");
                    (self.report)(&scheme.span, what);
                }
            }
        }
        if let Some(networks) = &table.client {
            tests.push(Test::Client(self.networks(networks)));
        }
        if let Some(types) = &table.r#type {
            self.not_empty("type", types);
            tests.push(Test::Type(types.value.0.iter().map(|text| Glob::new(text)).collect()));
        }
        self.values("query", &table.query, Test::Query, &mut tests);
        self.values("header", &table.header, Test::Header, &mut tests);
        self.values("cookie", &table.cookie, Test::Cookie, &mut tests);
        self.maps(table, &mut tests);
        if let Some(pages) = &table.referer {
            tests.push(Test::Referer(self.referers(pages)));
        }
        self.files(table, &mut tests);
        if let Some(not) = &table.not {
            if depth < MAX_DEPTH {
                tests.push(Test::Not(self.table(not, depth + 1)));
            } else {
                (self.report)(self.place, format!("when: more than {MAX_DEPTH} `not` are nested"));
            }
        }
        if tests.is_empty() {
            (self.report)(self.place, "when: the table has no condition".into());
        }
        When { tests }
    }

    fn methods(&mut self, names: &Spanned<OneOrMany<String>>) -> Vec<String> {
        self.not_empty("method", names);
        let mut methods = Vec::new();
        for name in &names.value.0 {
            let is_method = is_token(name.as_bytes()) && name.to_ascii_uppercase() == name.value;
            if !is_method {
                let place = name.span.as_ref().or(names.span.as_ref()).cloned();
                let what = format!("when: {:?} is not a method such as \"POST\"", name.value);
                (self.report)(&place, what);
            }
            methods.push(name.value.clone());
        }
        if methods.iter().any(|name| name == "GET") {
            methods.push("HEAD".into());
        }
        methods
    }

    fn networks(&mut self, networks: &Spanned<OneOrMany<String>>) -> Vec<Network> {
        self.not_empty("client", networks);
        let mut all = Vec::new();
        for text in &networks.value.0 {
            match text.parse() {
                Ok(network) => all.push(network),
                Err(what) => {
                    let place = text.span.as_ref().or(networks.span.as_ref()).cloned();
                    (self.report)(&place, format!("when: {what}"));
                }
            }
        }
        all
    }

    fn referers(&mut self, pages: &Spanned<OneOrMany<String>>) -> Vec<Referer> {
        self.not_empty("referer", pages);
        let mut all = Vec::new();
        for text in &pages.value.0 {
            match Referer::parse(text, self.hosts) {
                Ok(page) => all.push(page),
                Err(what) => {
                    let place = text.span.as_ref().or(pages.span.as_ref()).cloned();
                    (self.report)(&place, format!("when: referer: {what}"));
                }
            }
        }
        all
    }

    fn files(&mut self, table: &WhenTable, tests: &mut Vec<Test>) {
        let keys = [
            (FileKind::File, &table.file),
            (FileKind::Directory, &table.directory),
            (FileKind::Any, &table.exists),
        ];
        for (kind, path) in keys.into_iter().filter_map(|(kind, path)| Some((kind, path.as_ref()?)))
        {
            match FileTest::parse(kind, path, self.maps) {
                Ok(test) => tests.push(Test::File(Box::new(test))),
                Err(what) => (self.report)(&path.span, format!("when: {what}")),
            }
        }
    }

    fn values(
        &mut self,
        key: &str,
        table: &Tests,
        make: impl Fn(Box<str>, Value) -> Test,
        tests: &mut Vec<Test>,
    ) {
        for (name, test) in table.iter().flatten() {
            let is_valid = match key {
                "query" => !name.is_empty(),
                _ => is_token(name.as_bytes()),
            };
            if !is_valid {
                let what = format!("when: {key}: {:?} is not a name", name.value);
                (self.report)(&name.span, what);
            }
            let value = self.value(key, test);
            tests.push(make(name.value.as_str().into(), value));
        }
    }

    fn maps(&mut self, table: &WhenTable, tests: &mut Vec<Test>) {
        for (name, test) in table.map.iter().flatten() {
            let value = self.value("map", test);
            match self.maps.find(name) {
                Ok(map) => tests.push(Test::Map(map, value)),
                Err(what) => (self.report)(&name.span, format!("when: {what}")),
            }
        }
        for (name, value) in table.choice.iter().flatten() {
            match self.maps.find(name) {
                Ok(map) => tests.push(Test::Choice(map, value.value.as_str().into())),
                Err(what) => (self.report)(&value.span, what),
            }
        }
    }

    fn value(&mut self, key: &str, test: &Spanned<ValueTest>) -> Value {
        let texts = match &test.value {
            ValueTest::Present(is_present) => return Value::Present(*is_present),
            ValueTest::OneOf(texts) => texts,
        };
        if texts.is_empty() {
            let what = format!("when: {key}: the list of values is empty");
            (self.report)(&test.span, what);
        }
        let mut patterns = Vec::with_capacity(texts.len());
        for text in texts {
            match ValuePattern::parse(text) {
                Ok(pattern) => patterns.push(pattern),
                Err(what) => {
                    let place = text.span.as_ref().or(test.span.as_ref()).cloned();
                    (self.report)(&place, format!("when: {key}: {what}"));
                }
            }
        }
        Value::OneOf(patterns)
    }

    fn not_empty(&mut self, key: &str, list: &Spanned<OneOrMany<String>>) {
        if list.value.0.is_empty() {
            (self.report)(&list.span, format!("when: the list of `{key}` is empty"));
        }
    }
}

impl Test {
    fn is_choice(&self) -> bool {
        matches!(self, Self::Choice(..))
    }

    fn holds(&self, facts: &Facts<'_>) -> bool {
        let request = &facts.request;
        match self {
            Self::Method(names) => {
                names.iter().any(|name| name.as_bytes() == request.method_text())
            }
            Self::Encrypted(encrypted) => facts.encrypted == *encrypted,
            Self::Client(networks) => facts
                .client
                .is_some_and(|address| networks.iter().any(|network| network.contains(address))),
            Self::Type(types) => {
                request.field(FieldName::ContentType).is_some_and(|value| is_of_type(value, types))
            }
            Self::Query(name, value) => value.holds(facts.parameters(name)),
            Self::Header(name, value) => value.holds(facts.field_values(name)),
            Self::Cookie(name, value) => value.holds(facts.cookies(name)),
            Self::Map(map, value) => value.holds_for(&map.value(facts)),
            Self::Choice(map, value) => map.value(facts) == value.as_bytes(),
            Self::Referer(pages) => pages.iter().any(|page| page.holds(request)),
            Self::File(test) => test.holds(facts),
            Self::Not(when) => !when.holds(facts),
        }
    }
}

impl Value {
    fn holds<V: AsRef<[u8]>>(&self, values: impl IntoIterator<Item = V>) -> bool {
        let mut values = values.into_iter();
        match self {
            Self::Present(is_present) => values.next().is_some() == *is_present,
            Self::OneOf(patterns) => {
                values.any(|value| patterns.iter().any(|pattern| pattern.matches(value.as_ref())))
            }
        }
    }

    /// As [`Value::holds`], for a value that is always there; an empty one counts as absent.
    fn holds_for(&self, value: &[u8]) -> bool {
        match self {
            Self::Present(is_present) => value.is_empty() != *is_present,
            Self::OneOf(_) => self.holds([value]),
        }
    }
}

/// Returns `true` if the media type of a `Content-Type`, without its parameters, is one of `types`.
fn is_of_type(value: &[u8], types: &[Glob]) -> bool {
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    let essence = value[..end].trim_ascii();
    types.iter().any(|glob| glob.matches_any_case(essence))
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, test) in self.tests.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { ", " })?;
            write!(f, "{test}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method(names) => {
                // `HEAD` comes with `GET`.
                let named: Vec<_> = names.iter().map(String::as_str).collect();
                let named = named.strip_suffix(&["HEAD"]).filter(|n| n.contains(&"GET"));
                let all: Vec<_> = names.iter().map(String::as_str).collect();
                write!(f, "method {}", named.unwrap_or(&all).join(" or "))
            }
            Self::Encrypted(encrypted) => {
                write!(f, "scheme {}", if *encrypted { "https" } else { "http" })
            }
            Self::Client(networks) => write!(f, "client {}", joined(networks)),
            Self::Type(types) => write!(f, "type {}", joined(types)),
            Self::Query(name, value) => write!(f, "query {name}{value}"),
            Self::Header(name, value) => write!(f, "header {name}{value}"),
            Self::Cookie(name, value) => write!(f, "cookie {name}{value}"),
            Self::Map(map, value) => write!(f, "map.{}{value}", map.name()),
            Self::Choice(map, value) => write!(f, "map.{} {value:?}", map.name()),
            Self::Referer(pages) => write!(f, "referer {}", joined(pages)),
            Self::File(test) => write!(f, "{test}"),
            Self::Not(when) => write!(f, "not ({when})"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present(true) => Ok(()),
            Self::Present(false) => f.write_str(" absent"),
            Self::OneOf(patterns) => write!(f, " {}", joined(patterns)),
        }
    }
}

fn joined(values: &[impl fmt::Display]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dunlin_http::{Head, Request};

    use super::*;
    use crate::{Config, Overrides};

    fn when(text: &str) -> (When, Vec<String>) {
        let text = format!(
            "[[listen]]\naddress = ':1'\n[[site]]\nroot = '/'\n[[site.route]]\npath = '/*'\n[site.route.when]\n{text}\n"
        );
        match Config::parse(&text, Path::new("/d.toml"), &Overrides::default()) {
            Ok(config) => {
                let site = config.sites.only().unwrap();
                let route = site.conditional_routes(b"/")[0];
                (site.condition(route).unwrap().clone(), Vec::new())
            }
            Err(problems) => (When::default(), problems.iter().map(ToString::to_string).collect()),
        }
    }

    /// Returns whether the conditions hold for a request with this head.
    fn holds(text: &str, message: &str) -> bool {
        let (when, problems) = when(text);
        assert_eq!(problems, Vec::<String>::new(), "{text}");
        let message = message.replace('\n', "\r\n") + "\r\n\r\n";
        let mut head = Head::default();
        let mut connection = dunlin_http::http1::Http1Connection::default();
        let limits = dunlin_http::Limits::default();
        let parsed = connection.head(message.as_bytes(), &limits, &mut head);
        assert!(matches!(parsed, Ok(Some(_))), "{message}");
        let request = Request::new(message.as_bytes(), &head);
        let target = std::str::from_utf8(request.target()).unwrap();
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.as_bytes())),
            None => (target, None),
        };
        let client = Some("192.0.2.7".parse().unwrap());
        let path = path.as_bytes();
        when.holds(&Facts { request, path, query, client, encrypted: false, hidden: &[] })
    }

    #[test]
    fn conditions_hold_for_the_requests_that_they_name() {
        let get = "GET /?a=1&b=x+y%21&c HTTP/1.1\nHost: h\nX-Kind: a-json-b\nCookie: s=1; t=\"q\"";
        let post = "POST / HTTP/1.1\nHost: h\nContent-Type: Application/JSON; charset=x\nContent-Length: 0";
        let linked = "GET / HTTP/1.1\nHost: h\nReferer: https://WWW.b.test:8443/gallery/1?x";
        let own = "GET / HTTP/1.1\nHost: H:80\nReferer: http://h/a";
        let user = "GET / HTTP/1.1\nHost: h\nReferer: http://a.test@evil.test/";
        let masked = "GET / HTTP/1.1\nHost: h\nReferer: XXXX:++++";
        for (text, message, expected) in [
            ("method = 'GET'", get, true),
            ("method = ['PUT', 'POST']", get, false),
            ("method = ['PUT', 'POST']", post, true),
            ("method = 'GET'", "HEAD / HTTP/1.1\nHost: h", true),
            ("scheme = 'http'", get, true),
            ("scheme = 'https'", get, false),
            ("client = '192.0.2.0/24'", get, true),
            ("client = ['::1', '10.0.0.0/8']", get, false),
            ("type = 'application/json'", post, true),
            ("type = ['text/*', 'application/*']", post, true),
            ("type = '*'", get, false),
            ("query = { a = '1' }", get, true),
            ("query = { a = ['2', '1'] }", get, true),
            ("query = { b = 'x y!' }", get, true),
            ("query = { c = true, d = false }", get, true),
            ("query = { c = '' }", get, true),
            ("query = { a = '2' }", get, false),
            ("header = { x-kind = '*json*' }", get, true),
            ("header = { X-Kind = 'json' }", get, false),
            ("header = { X-Other = false }", get, true),
            ("cookie = { s = '1', t = 'q' }", get, true),
            ("cookie = { S = true }", get, false),
            ("header = { X-Kind = '~^a-(json|xml)' }", get, true),
            ("header = { X-Kind = ['~^json', '~xml'] }", get, false),
            ("referer = 'none'", get, true),
            ("referer = 'none'", linked, false),
            ("referer = ['blocked', 'a.test']", linked, false),
            ("referer = 'server_names'", linked, false),
            ("referer = 'server_names'", own, true),
            ("referer = '*.b.test'", linked, true),
            ("referer = 'www.b.*/gallery/'", linked, true),
            ("referer = 'www.b.test/other/'", linked, false),
            ("referer = 'b.test'", linked, false),
            ("referer = 'a.test'", user, false),
            ("referer = 'evil.test'", user, true),
            ("referer = 'blocked'", masked, true),
            ("file = '/proc/version'", get, true),
            ("directory = '/proc{path}'", get, true),
            ("exists = '/proc/none{path}'", get, false),
            ("not = { method = 'GET' }", get, false),
            ("not = { method = 'GET', scheme = 'https' }", get, true),
            ("method = 'GET'\nnot = { query = { a = true } }", get, false),
            ("not = { not = { method = 'GET' } }", get, true),
        ] {
            assert_eq!(holds(text, message), expected, "{text}");
        }
    }

    #[test]
    fn errors_name_the_condition() {
        for (text, word) in [
            ("method = 'get'", "\"get\" is not a method"),
            ("method = []", "the list of `method` is empty"),
            ("scheme = 'ftp'", "\"ftp\""),
            ("client = '1.2.3'", "\"1.2.3\" is not a network"),
            ("header = { 'a b' = true }", "\"a b\" is not a name"),
            ("cookie = { a = [] }", "the list of values is empty"),
            ("cookie = { a = '~(' }", "unclosed group"),
            ("map = { a = true }", "there is no [map.a]"),
            ("file = 'x.html'", "absolute path"),
            ("directory = '/a/{rest}'", "there is no placeholder {rest}"),
            ("", "no condition"),
            ("not = {}", "no condition"),
        ] {
            let (_, problems) = when(text);
            assert!(problems.iter().any(|what| what.contains(word)), "{text}: {problems:?}");
        }
        let deep = format!("{}method = 'GET'{}", "not = { ".repeat(10), " }".repeat(10));
        assert!(when(&deep).1.iter().any(|what| what.contains("nested")));
    }

    #[test]
    fn conditions_are_described_in_one_line() {
        let (when, _) = when(
            "method = ['GET', 'PUT']\nquery = { a = true }\nheader = { B = ['x', 'y*'] }\nnot = { scheme = 'https' }",
        );
        let shown = when.to_string();
        assert_eq!(shown, "method GET or PUT, query a, header B x or y*, not (scheme https)");
    }
}
