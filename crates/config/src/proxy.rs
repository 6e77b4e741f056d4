//! The table `proxy`: forwards requests to other HTTP servers.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use dunlin_http::semantics::{Url, is_field_value, is_token};

use super::file::{ProxyHost, ProxyTable};
use super::forward_fields::HOP_BY_HOP;
use super::report::Report;
use super::spanned::{Span, Spanned};
use super::units::DurationValue;

/// A reverse proxy, with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// The upstreams.
    pub upstreams: Vec<Upstream>,
    /// Prefix that is removed from paths, without a slash at its end.
    pub strip: Option<String>,
    /// Upstreams get the host of the client's request.
    pub preserves_host: bool,
    /// Request fields to set; an empty value removes the field.
    pub set_request_fields: Vec<(String, String)>,
    /// Maximum of connections to one upstream that are in use.
    pub connections: usize,
    /// Maximum of requests that wait for a connection.
    pub queue: usize,
    /// Maximum wait for a connection.
    pub queue_timeout: Duration,
    /// Maximum of idle connections per worker and upstream.
    pub idle_connections: usize,
    /// Time after which an idle connection is closed.
    pub keep_alive: Duration,
    /// Maximum time for connecting.
    pub connect_timeout: Duration,
    /// Maximum wait for the head of a response; `None` for no limit.
    pub first_byte_timeout: Option<Duration>,
    /// Maximum time without progress of a body; `None` for no limit.
    pub idle_timeout: Option<Duration>,
    /// Authorities that upstreams with TLS have their certificates from; those of the system if absent.
    pub authority: Option<PathBuf>,
}

/// An upstream as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Its address.
    pub address: UpstreamAddress,
}

/// The address of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamAddress {
    /// A server at a TCP port, with TLS if the URL has it.
    Url(Url),
    /// A server at a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for UpstreamAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => {
                let scheme = if url.is_secure() { "https" } else { "http" };
                write!(f, "{scheme}://{}", url.authority())
            }
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Proxy {
    /// Describes the proxy in one line.
    pub(super) fn describe(&self) -> String {
        let names = self.upstreams.iter().map(|upstream| upstream.address.to_string());
        let mut text = names.collect::<Vec<_>>().join(", ");
        if let Some(prefix) = &self.strip {
            text.push_str(&format!(", without the prefix {prefix}"));
        }
        text
    }

    /// Splits the prefix to remove from a path: the prefix, and the path that upstreams get. `None` if the path does not
    /// have the prefix.
    pub fn strip<'p>(&self, path: &'p [u8]) -> Option<(&'p [u8], &'p [u8])> {
        let prefix = self.strip.as_deref()?.as_bytes();
        let rest = path.strip_prefix(prefix)?;
        matches!(rest.first(), None | Some(b'/')).then(|| path.split_at(prefix.len()))
    }
}

/// Checks `table` and fills in its defaults.
pub(super) fn read(table: &Spanned<ProxyTable>, report: Report<'_>) -> Proxy {
    Reader { table, report }.proxy()
}

struct Reader<'a> {
    table: &'a Spanned<ProxyTable>,
    report: Report<'a>,
}

impl Reader<'_> {
    fn proxy(mut self) -> Proxy {
        let table = self.table;
        let seconds = Duration::from_secs;
        let timeout = |value: Option<DurationValue>| {
            let time = value.map_or(seconds(60), |time| time.0);
            (!time.is_zero()).then_some(time)
        };
        Proxy {
            upstreams: self.upstreams(),
            strip: self.strip(),
            preserves_host: table.host != Some(ProxyHost::Upstream),
            set_request_fields: self.set_request_fields(),
            connections: self.connections(),
            queue: table.queue.unwrap_or(1024),
            queue_timeout: self.time("queue_timeout", &table.queue_timeout, seconds(30)),
            idle_connections: table.idle_connections.unwrap_or(32),
            keep_alive: self.time("keep_alive", &table.keep_alive, seconds(30)),
            connect_timeout: self.time("connect_timeout", &table.connect_timeout, seconds(5)),
            first_byte_timeout: timeout(table.first_byte_timeout),
            idle_timeout: timeout(table.idle_timeout),
            authority: self.authority(),
        }
    }

    fn upstreams(&mut self) -> Vec<Upstream> {
        let table = self.table;
        let place = table.to.span.clone().or_else(|| table.span.clone());
        if table.to.0.is_empty() {
            (self.report)(&place, "proxy: the list of upstreams is empty".into());
        }
        let mut upstreams: Vec<Upstream> = Vec::new();
        for text in &table.to.0 {
            let place = text.span.clone().or_else(|| place.clone());
            match address(text) {
                Ok(address) if upstreams.iter().any(|other| other.address == address) => {
                    let what = format!("proxy: the upstream {address} stands twice");
                    (self.report)(&place, what);
                }
                Ok(address) => upstreams.push(Upstream { address }),
                Err(what) => (self.report)(&place, format!("proxy: {what}")),
            }
        }
        upstreams
    }

    fn strip(&mut self) -> Option<String> {
        let strip = self.table.strip.as_ref()?;
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'%');
        let has_dots = strip.split('/').any(|segment| matches!(segment, "." | ".."));
        if !strip.starts_with('/') || !strip.bytes().all(is_plain) || has_dots {
            let what = format!("proxy: strip: {:?} is no prefix such as \"/app\"", strip.value);
            (self.report)(&strip.span, what);
        }
        let prefix = strip.trim_end_matches('/');
        (!prefix.is_empty()).then(|| prefix.to_owned())
    }

    fn set_request_fields(&mut self) -> Vec<(String, String)> {
        let fields = self.table.set_request_fields.iter().flatten();
        for (name, value) in fields.clone() {
            if let Err(what) = check_field(name, value) {
                (self.report)(&name.span, format!("proxy: set_request_fields: {what}"));
            }
        }
        fields.map(|(name, value)| (name.value.clone(), value.value.clone())).collect()
    }

    fn connections(&mut self) -> usize {
        let Some(connections) = &self.table.connections else { return 1024 };
        if connections.value == 0 {
            let what = "proxy: connections is 0, so that no request could be forwarded";
            (self.report)(&connections.span, what.into());
        }
        connections.value
    }

    fn authority(&mut self) -> Option<PathBuf> {
        let authority = self.table.authority.as_ref()?;
        let has_tls = self.table.to.0.iter().any(|to| to.starts_with("https:"));
        if !has_tls {
            let what = "proxy: authority does nothing without an https upstream";
            (self.report)(&authority.span, what.into());
        }
        Some(authority.value.clone())
    }

    fn time(
        &mut self,
        key: &str,
        value: &Option<Spanned<DurationValue>>,
        default: Duration,
    ) -> Duration {
        let Some(value) = value else { return default };
        if value.value.0.is_zero() {
            (self.report)(&value.span, format!("proxy: {key} is 0: write how long to wait"));
        }
        value.value.0
    }
}

impl Spanned<ProxyTable> {
    /// Gives texts without a position that of the table: a single text has none.
    pub(super) fn set_places(&mut self) {
        let to = &mut self.value.to;
        let place: Span = to.span.take().or_else(|| self.span.clone());
        for text in &mut to.value.0 {
            text.span = text.span.take().or_else(|| place.clone());
        }
        to.span = place;
    }
}

/// Parses the address of an upstream.
fn address(text: &str) -> Result<UpstreamAddress, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        if path.starts_with('/') && path.len() < 108 && !path.contains('\0') {
            return Ok(UpstreamAddress::Unix(path.into()));
        }
        return Err(format!(
            "{path:?} is not the absolute path of a socket, of less than 108 bytes"
        ));
    }
    let url = Url::parse(text).map_err(|_| {
        let hint = format!(
            "{text:?} is no upstream such as \"http://127.0.0.1:3000\", \"https://app.example\" or \
             \"unix:/run/app.sock\""
        );
        match text.contains("://") {
            false if Url::parse(&format!("http://{text}")).is_ok() => {
                format!("{hint}; did you mean \"http://{text}\"?")
            }
            _ => hint,
        }
    })?;
    if url.target() != "/" {
        return Err(format!(
            "{text:?} has a path; upstreams get the path of the request, from which `strip` removes a prefix"
        ));
    }
    if url.port() == 0 {
        return Err(format!("{text:?} has no port that can be connected to"));
    }
    Ok(UpstreamAddress::Url(url))
}

/// Checks a field to set in requests.
fn check_field(name: &str, value: &str) -> Result<(), String> {
    let lower = name.to_ascii_lowercase();
    if !is_token(name.as_bytes()) {
        return Err(format!("{name:?} is not a field name"));
    }
    if !is_field_value(value.as_bytes()) {
        return Err(format!("the value of {name} holds a control character"));
    }
    if HOP_BY_HOP.contains(&&*lower) || matches!(&*lower, "content-length" | "expect") {
        return Err(format!("{name} is the server's to send"));
    }
    if lower == "host" {
        return Err("the host is chosen by `host`".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_wrong_ones_explained() {
        for text in ["http://127.0.0.1:3000", "https://a.example", "http://[::1]:80", "unix:/a"] {
            assert_eq!(address(text).unwrap().to_string(), text);
        }
        let error = |text: &str| address(text).unwrap_err();
        assert!(error("127.0.0.1:3000").ends_with("did you mean \"http://127.0.0.1:3000\"?"));
        assert!(error("http://a/b").contains("`strip`"));
        assert!(error("unix:a").contains("absolute"));
        assert!(error("ftp://a").contains("no upstream such as"));
    }

    #[test]
    fn a_prefix_ends_at_a_slash() {
        let table = Spanned::detached(ProxyTable {
            strip: Some(Spanned::detached("/app/".into())),
            ..ProxyTable::to(vec![Spanned::detached("http://a".into())])
        });
        let proxy = read(&table, &mut |_, what| panic!("{what}"));
        assert_eq!(proxy.strip(b"/app/x"), Some((&b"/app"[..], &b"/x"[..])));
        assert_eq!(proxy.strip(b"/app"), Some((&b"/app"[..], &b""[..])));
        assert_eq!(proxy.strip(b"/apple"), None);
    }
}
