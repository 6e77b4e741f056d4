//! The formats of the access log.

use std::net::IpAddr;

use super::escape;
use super::exchange::Exchange;
use crate::config::nearest;

/// How an exchange becomes a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Format {
    /// The common log format.
    Common,
    /// The common log format with Referer and User-Agent.
    Combined,
    /// One JSON object.
    Json,
    /// A text with placeholders.
    Template(Vec<Part>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Text(Box<[u8]>),
    /// By its place in [`PLACEHOLDERS`].
    Value(usize),
}

/// Writes one value of an exchange as text, escaped.
type Write = fn(&Exchange<'_>, &mut TimeCache, &mut Vec<u8>);

/// Every placeholder of a template, and what it stands for.
const PLACEHOLDERS: [(&str, Write); 21] = [
    ("remote", |e, _, out| address(e.peer, out)),
    ("remote_name", |e, _, out| remote(e, out)),
    ("user", |_, _, out| out.push(b'-')),
    ("time", |e, time, out| out.extend_from_slice(time.clf(e.started_secs))),
    ("time_iso", |e, time, out| time.iso(e, out)),
    ("method", |e, _, out| or_dash(Some(e.method), out)),
    ("target", |e, _, out| or_dash(Some(e.target), out)),
    ("path", |e, _, out| or_dash(Some(split_query(e.target).0), out)),
    ("query", |e, _, out| or_dash(split_query(e.target).1, out)),
    ("protocol", |e, _, out| out.extend_from_slice(e.version.as_bytes())),
    ("status", |e, _, out| number(u64::from(e.status), out)),
    ("bytes", |e, _, out| number(e.body_bytes, out)),
    ("referer", |e, _, out| or_dash(e.referer, out)),
    ("user_agent", |e, _, out| or_dash(e.user_agent, out)),
    ("host", |e, _, out| or_dash(e.host, out)),
    ("duration_us", |e, _, out| number(e.duration_ns / 1000, out)),
    ("duration_ms", |e, _, out| number(e.duration_ns / 1_000_000, out)),
    ("connection", |e, _, out| number(e.connection, out)),
    ("site", |e, _, out| escape::text(e.site.as_bytes(), out)),
    ("cache", |e, _, out| out.extend_from_slice(e.cache.as_bytes())),
    ("coding", |e, _, out| out.extend_from_slice(e.coding.as_bytes())),
];

impl Format {
    /// # Errors
    /// When the text is neither the name of a format nor a template.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            "common" => Ok(Self::Common),
            "combined" => Ok(Self::Combined),
            "json" => Ok(Self::Json),
            template if template.contains('{') => parse_template(template).map(Self::Template),
            other => {
                let hint = nearest(other, &["common", "combined", "json"])
                    .map_or(String::new(), |name| format!("; did you mean `{name}`?"));
                Err(format!(
                    "{other:?} is neither common, combined, json nor a text with {{placeholders}}{hint}"
                ))
            }
        }
    }

    /// Writes the line of `exchange`, with its LF.
    pub(crate) fn write_line(
        &self,
        exchange: &Exchange<'_>,
        time: &mut TimeCache,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::Common => common(exchange, time, out),
            Self::Combined => {
                common(exchange, time, out);
                out.extend_from_slice(b" \"");
                or_dash(exchange.referer, out);
                out.extend_from_slice(b"\" \"");
                or_dash(exchange.user_agent, out);
                out.push(b'"');
            }
            Self::Json => json(exchange, time, out),
            Self::Template(parts) => {
                for part in parts {
                    match part {
                        Part::Text(text) => out.extend_from_slice(text),
                        Part::Value(number) => PLACEHOLDERS[*number].1(exchange, time, out),
                    }
                }
            }
        }
        out.push(b'\n');
    }
}

fn parse_template(template: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut text = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find(['{', '}', '\n', '\r']) {
        text.extend_from_slice(&rest.as_bytes()[..at]);
        let brace = rest.as_bytes()[at];
        let after = &rest[at + 1..];
        if matches!(brace, b'\n' | b'\r') {
            return Err("a template is one line".into());
        }
        if after.as_bytes().first() == Some(&brace) {
            text.push(brace);
            rest = &after[1..];
            continue;
        }
        let name = after.split_once('}').filter(|_| brace == b'{');
        let (name, after) = name.ok_or("a brace is not paired; write {{ or }} for a brace itself")?;
        let number = PLACEHOLDERS.iter().position(|(known, _)| *known == name).ok_or_else(|| {
            let known = PLACEHOLDERS.map(|(known, _)| known);
            match nearest(name, &known) {
                Some(near) => format!("there is no placeholder {{{name}}}; did you mean {{{near}}}?"),
                None => format!("there is no placeholder {{{name}}}; there are: {}", known.join(", ")),
            }
        })?;
        parts.push(Part::Text(std::mem::take(&mut text).into()));
        parts.push(Part::Value(number));
        rest = after;
    }
    text.extend_from_slice(rest.as_bytes());
    parts.push(Part::Text(text.into()));
    Ok(parts)
}

/// `host ident user [time] "request" status bytes`
fn common(exchange: &Exchange<'_>, time: &mut TimeCache, out: &mut Vec<u8>) {
    remote(exchange, out);
    out.extend_from_slice(b" - - [");
    out.extend_from_slice(time.clf(exchange.started_secs));
    out.extend_from_slice(b"] \"");
    if exchange.method.is_empty() {
        out.push(b'-');
    } else {
        escape::text(exchange.method, out);
        out.push(b' ');
        escape::text(exchange.target, out);
        out.push(b' ');
        out.extend_from_slice(exchange.version.as_bytes());
    }
    out.extend_from_slice(b"\" ");
    number(u64::from(exchange.status), out);
    out.push(b' ');
    number(exchange.body_bytes, out);
}

fn json(exchange: &Exchange<'_>, time: &mut TimeCache, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"time\":\"");
    time.iso(exchange, out);
    out.extend_from_slice(b"\",\"remote\":\"");
    address(exchange.peer, out);
    let texts = [
        ("remote_name", exchange.peer_name.map(str::as_bytes)),
        ("method", Some(exchange.method)),
        ("target", Some(exchange.target)),
        ("protocol", Some(exchange.version.as_bytes())),
        ("host", exchange.host),
        ("referer", exchange.referer),
        ("user_agent", exchange.user_agent),
        ("site", Some(exchange.site.as_bytes())),
        ("cache", Some(exchange.cache.as_bytes())),
        ("coding", Some(exchange.coding.as_bytes())),
    ];
    out.push(b'"');
    for (name, value) in texts {
        if let Some(value) = value {
            out.extend_from_slice(b",\"");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"\":\"");
            escape::json(value, out);
            out.push(b'"');
        }
    }
    for (name, value) in [
        ("status", u64::from(exchange.status)),
        ("bytes", exchange.body_bytes),
        ("duration_us", exchange.duration_ns / 1000),
        ("connection", exchange.connection),
    ] {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
        number(value, out);
    }
    out.push(b'}');
}

fn split_query(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b'?', target) {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    }
}

fn remote(exchange: &Exchange<'_>, out: &mut Vec<u8>) {
    match exchange.peer_name {
        Some(name) => escape::text(name.as_bytes(), out),
        None => address(exchange.peer, out),
    }
}

fn or_dash(value: Option<&[u8]>, out: &mut Vec<u8>) {
    match value {
        Some(value) if !value.is_empty() => escape::text(value, out),
        _ => out.push(b'-'),
    }
}

fn number(value: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

fn address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(address) => {
            for (at, octet) in address.octets().into_iter().enumerate() {
                if at > 0 {
                    out.push(b'.');
                }
                number(u64::from(octet), out);
            }
        }
        IpAddr::V6(address) => out.extend_from_slice(address.to_string().as_bytes()),
    }
}

/// The times of lines, worked out once a second. All are in UTC.
#[derive(Debug)]
pub(crate) struct TimeCache {
    second: u64,
    clf: [u8; 26],
    iso: [u8; 19],
}

impl Default for TimeCache {
    fn default() -> Self {
        let mut cache = Self { second: 0, clf: [b' '; 26], iso: [b' '; 19] };
        cache.render(0);
        cache
    }
}

impl TimeCache {
    /// `21/Nov/2026:01:30:39 +0000`
    fn clf(&mut self, second: u64) -> &[u8] {
        self.update(second);
        &self.clf
    }

    /// `2026-11-21T01:30:39.123456Z`
    fn iso(&mut self, exchange: &Exchange<'_>, out: &mut Vec<u8>) {
        self.update(exchange.started_secs);
        out.extend_from_slice(&self.iso);
        let micros = exchange.started_nanos / 1000;
        out.push(b'.');
        for divisor in [100_000, 10_000, 1000, 100, 10, 1] {
            out.push(b'0' + (micros / divisor % 10) as u8);
        }
        out.push(b'Z');
    }

    fn update(&mut self, second: u64) {
        if self.second != second {
            self.render(second);
        }
    }

    fn render(&mut self, second: u64) {
        use std::io::Write;
        const MONTHS: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        self.second = second;
        let (days, rest) = (second / 86_400, second % 86_400);
        let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
        let (year, month, day) = civil(days.min(2_932_896));
        let name = MONTHS[(month - 1) as usize];
        // Both texts have fixed widths up to the year 9999, to which the days are limited.
        let _ = write!(self.clf.as_mut_slice(), "{day:02}/{name}/{year:04}:{hour:02}:{minute:02}:{second:02} +0000");
        let _ = write!(self.iso.as_mut_slice(), "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    }
}

/// Year, month and day of a number of days since 1970 (the civil_from_days of Howard Hinnant's
/// "chrono-Compatible Low-Level Date Algorithms").
pub(crate) fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exchange<'a>(target: &'a [u8], agent: &'a [u8]) -> Exchange<'a> {
        Exchange {
            peer: IpAddr::from([192, 0, 2, 7]),
            peer_name: None,
            started_secs: 784_111_777,
            started_nanos: 123_456_789,
            duration_ns: 1_234_567,
            method: b"GET",
            target,
            version: "HTTP/1.1",
            status: 200,
            body_bytes: 1024,
            referer: None,
            user_agent: Some(agent),
            host: Some(b"example.com"),
            site: "default",
            cache: "hit",
            coding: "-",
            connection: 9,
        }
    }

    fn line(format: &str, exchange: &Exchange<'_>) -> String {
        let mut out = Vec::new();
        let format = Format::parse(format).unwrap();
        format.write_line(exchange, &mut TimeCache::default(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_format_has_its_line() {
        let exchange = exchange(b"/a?b", b"curl \"8\"");
        assert_eq!(
            line("combined", &exchange),
            "192.0.2.7 - - [06/Nov/1994:08:49:37 +0000] \"GET /a?b HTTP/1.1\" 200 1024 \"-\" \"curl \\x228\\x22\"\n"
        );
        assert_eq!(
            line("{{{status}}} {path} {query} {time_iso} {duration_us}", &exchange),
            "{200} /a b 1994-11-06T08:49:37.123456Z 1234\n"
        );
        let json: serde_json::Value = serde_json::from_str(&line("json", &exchange)).unwrap();
        assert_eq!(json["user_agent"], "curl \"8\"");
        assert_eq!(json["duration_us"], 1234);
    }

    #[test]
    fn a_wrong_format_is_explained() {
        assert!(Format::parse("combind").unwrap_err().contains("did you mean `combined`"));
        assert!(Format::parse("{stats}").unwrap_err().contains("did you mean {status}"));
        assert!(Format::parse("{status").is_err() && Format::parse("a}b{status}").is_err());
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_778), (2026, 11, 21));
        assert_eq!(civil(2_932_896), (9999, 12, 31));
    }

    proptest! {
        #[test]
        fn no_client_can_forge_a_line(target: Vec<u8>, agent: Vec<u8>) {
            let exchange = exchange(&target, &agent);
            for format in ["common", "combined", "json", "{target}|{user_agent}"] {
                let line = line(format, &exchange);
                prop_assert_eq!(line.find('\n'), Some(line.len() - 1));
                prop_assert!(!line[..line.len() - 1].contains(|c: char| c.is_control()));
            }
            let quotes = line("combined", &exchange).matches('"').count();
            prop_assert_eq!(quotes, 6);
            prop_assert!(serde_json::from_str::<serde_json::Value>(&line("json", &exchange)).is_ok());
        }
    }
}
