//! The table `when`: conditions of a route besides its path.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use dunlin_http::semantics::is_token;
use dunlin_http::{FieldName, Request};
use percent_encoding::percent_decode;

use super::file::{OneOrMany, ValueTest, WhenTable};
use super::glob::Glob;
use super::network::Network;
use super::report::Report;
use super::spanned::Spanned;

/// Conditions that must all hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct When {
    tests: Vec<Test>,
}

/// What conditions see of a request besides its path.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'r> {
    /// The head of the request.
    pub request: Request<'r>,
    /// The query of the request, encoded.
    pub query: Option<&'r [u8]>,
    /// The address of the client, behind trusted proxies; `None` on a Unix socket.
    pub client: Option<IpAddr>,
    /// The client uses TLS.
    pub encrypted: bool,
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
    Not(When),
}

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Present(bool),
    OneOf(Vec<Glob>),
}

/// The deepest `not` in a `not`.
const MAX_DEPTH: usize = 8;

impl When {
    /// Checks the table of a route. Errors are reported, and the faulty conditions omitted.
    pub(super) fn read(table: &Spanned<WhenTable>, report: Report<'_>) -> Self {
        let mut reader = Reader { report, place: &table.span };
        reader.table(&table.value, 0)
    }

    /// Returns `true` if all conditions hold.
    pub fn holds(&self, facts: &Facts<'_>) -> bool {
        self.tests.iter().all(|test| test.holds(facts))
    }

    /// Returns the number of conditions. More of them are more specific.
    pub(super) fn count(&self) -> usize {
        self.tests.len()
    }
}

struct Reader<'a> {
    report: Report<'a>,
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
            let value = match &test.value {
                ValueTest::Present(is_present) => Value::Present(*is_present),
                ValueTest::OneOf(texts) => {
                    if texts.is_empty() {
                        let what = format!("when: {key}: the list of values is empty");
                        (self.report)(&test.span, what);
                    }
                    Value::OneOf(texts.iter().map(|text| Glob::new(text)).collect())
                }
            };
            tests.push(make(name.value.as_str().into(), value));
        }
    }

    fn not_empty(&mut self, key: &str, list: &Spanned<OneOrMany<String>>) {
        if list.value.0.is_empty() {
            (self.report)(&list.span, format!("when: the list of `{key}` is empty"));
        }
    }
}

impl Test {
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
            Self::Query(name, value) => value.holds(query_values(facts.query, name)),
            Self::Header(name, value) => {
                let named = request
                    .fields()
                    .filter(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
                value.holds(named.map(|(_, value)| Cow::Borrowed(value)))
            }
            Self::Cookie(name, value) => {
                let cookies = request.cookies().unwrap_or_default();
                value.holds(cookie_values(&cookies, name))
            }
            Self::Not(when) => !when.holds(facts),
        }
    }
}

impl Value {
    fn holds<'v>(&self, mut values: impl Iterator<Item = Cow<'v, [u8]>>) -> bool {
        match self {
            Self::Present(is_present) => values.next().is_some() == *is_present,
            Self::OneOf(globs) => values.any(|value| globs.iter().any(|glob| glob.matches(&value))),
        }
    }
}

/// Returns `true` if the media type of a `Content-Type`, without its parameters, is one of `types`.
fn is_of_type(value: &[u8], types: &[Glob]) -> bool {
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    let essence = value[..end].trim_ascii();
    types.iter().any(|glob| glob.matches_any_case(essence))
}

/// Returns the decoded values of a parameter of a query.
fn query_values<'q>(query: Option<&'q [u8]>, name: &str) -> impl Iterator<Item = Cow<'q, [u8]>> {
    let parameters = query.unwrap_or_default().split(|&byte| byte == b'&');
    parameters.filter(|parameter| !parameter.is_empty()).filter_map(move |parameter| {
        let end = memchr::memchr(b'=', parameter).unwrap_or(parameter.len());
        let is_named = form_decoded(&parameter[..end]).as_ref() == name.as_bytes();
        is_named.then(|| form_decoded(parameter.get(end + 1..).unwrap_or_default()))
    })
}

/// Decodes `application/x-www-form-urlencoded`. A `%` without two digits stands for itself.
fn form_decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'%', b'+', text).is_none() {
        return Cow::Borrowed(text);
    }
    let spaced: Vec<u8> = text.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
    Cow::Owned(percent_decode(&spaced).collect())
}

/// Returns the values of a cookie (RFC 6265 §4.2.1), without double quotes.
fn cookie_values<'c>(cookies: &'c [u8], name: &str) -> impl Iterator<Item = Cow<'c, [u8]>> {
    cookies.split(|&byte| byte == b';').filter_map(move |pair| {
        let pair = pair.trim_ascii();
        let sign = memchr::memchr(b'=', pair)?;
        let value = &pair[sign + 1..];
        let value = value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value);
        (&pair[..sign] == name.as_bytes()).then_some(Cow::Borrowed(value))
    })
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
            Self::Not(when) => write!(f, "not ({when})"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present(true) => Ok(()),
            Self::Present(false) => f.write_str(" absent"),
            Self::OneOf(globs) => write!(f, " {}", joined(globs)),
        }
    }
}

fn joined(values: &[impl fmt::Display]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dunlin_http::Head;

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
        let query = target.split_once('?').map(|(_, query)| query.as_bytes());
        let client = Some("192.0.2.7".parse().unwrap());
        when.holds(&Facts { request, query, client, encrypted: false })
    }

    #[test]
    fn conditions_hold_for_the_requests_that_they_name() {
        let get = "GET /?a=1&b=x+y%21&c HTTP/1.1\nHost: h\nX-Kind: a-json-b\nCookie: s=1; t=\"q\"";
        let post = "POST / HTTP/1.1\nHost: h\nContent-Type: Application/JSON; charset=x\nContent-Length: 0";
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
