//! The settings of WebAssembly components.

use std::path::PathBuf;
use std::time::Duration;

use super::read::Reader;
use crate::file::ComponentStderr;
use crate::spanned::Spanned;

/// The rules by which WebAssembly components run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// Maximum size of a memory of an instance, in bytes.
    pub memory: u64,
    /// Maximum time from the start of an instance to the end of its response.
    pub time: Duration,
    /// Maximum time for which a request runs on its worker.
    pub cpu: Duration,
    /// Maximum number of instances that run at the same time in a worker.
    pub instances: usize,
    /// Number of requests that an instance handles.
    pub reuse: usize,
    /// Time without a request after which a kept instance is dropped.
    pub idle: Duration,
    /// Directories that it can use.
    pub files: Vec<Directory>,
    /// Hosts that it can send requests to.
    pub outbound: Vec<Outbound>,
    /// The target of the standard error.
    pub stderr: ComponentStderr,
}

/// A directory that a component can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// The directory.
    pub path: PathBuf,
    /// The name of the directory in the component.
    pub name: String,
    /// Files there can be written, created and removed.
    pub write: bool,
}

/// A host that a component can send requests to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outbound {
    /// Name or address in lower case; an IPv6 address in brackets.
    pub host: String,
    /// The port; `None` for the default port of the scheme.
    pub port: Option<u16>,
}

/// Default of the largest memory in bytes.
const MEMORY: u64 = 64 << 20;
/// Maximum of the largest memory in bytes: the range of 32-bit addresses.
const MAX_MEMORY: u64 = 4 << 30;

impl Reader<'_> {
    /// Reads the settings of a script of kind `component`.
    pub(super) fn component(&mut self) -> Component {
        let table = self.table;
        let second = Duration::from_secs;
        if let Some(memory) = &table.memory
            && !((64 << 10)..=MAX_MEMORY).contains(&memory.value.0)
        {
            (self.report)(&memory.span, "script: memory is not between 64KB and 4GB".into());
        }
        self.between("instances", &table.instances, 1, 65_536);
        self.between("reuse", &table.reuse, 1, usize::MAX);
        Component {
            memory: table.memory.as_deref().map_or(MEMORY, |size| size.0),
            time: self.time("time", &table.time).unwrap_or(second(30)),
            cpu: self.time("cpu", &table.cpu).unwrap_or(second(1)),
            instances: table.instances.as_deref().copied().unwrap_or(256),
            reuse: table.reuse.as_deref().copied().unwrap_or(1),
            idle: self.time("idle", &table.idle).unwrap_or(second(10)),
            files: self.files(),
            outbound: self.outbound(),
            stderr: table.stderr.as_deref().copied().unwrap_or_default(),
        }
    }

    fn files(&mut self) -> Vec<Directory> {
        let mut files = Vec::new();
        for directory in self.table.files.iter().flat_map(|files| &files.value) {
            let name = &directory.name;
            let is_absolute = name.starts_with('/') && !name.contains('\0');
            if !is_absolute || name.split('/').any(|part| part == "..") {
                let what = format!("script: files: {:?} is not an absolute path", name.value);
                (self.report)(&name.span, what);
            }
            files.push(Directory {
                path: directory.path.value.clone(),
                name: name.value.clone(),
                write: directory.write.unwrap_or(false),
            });
        }
        files
    }

    fn outbound(&mut self) -> Vec<Outbound> {
        let named = self.table.outbound.iter().flat_map(|hosts| &hosts.value);
        let mut outbound = Vec::new();
        for name in named {
            match Outbound::parse(name) {
                Some(host) => outbound.push(host),
                None => self.not_a_host(name),
            }
        }
        outbound
    }

    fn not_a_host(&mut self, name: &Spanned<String>) {
        let what = format!(
            "script: outbound: {:?} is not a host such as \"example.com\" or \"example.com:8080\"",
            name.value
        );
        (self.report)(&name.span, what);
    }
}

impl Outbound {
    /// Parses `host` or `host:port`.
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = match text.rsplit_once(':') {
            // The colon belongs to an IPv6 address.
            Some((_, rest)) if rest.ends_with(']') => (text, None),
            Some((host, port)) => (host, Some(port.parse().ok().filter(|&port| port > 0)?)),
            None => (text, None),
        };
        let is_address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let is_host = match is_address {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
                !host.is_empty() && host.bytes().all(plain)
            }
        };
        is_host.then(|| Self { host: host.to_ascii_lowercase(), port })
    }

    /// Returns `true` if requests to `host` at `port` are allowed; `default` is the port of the scheme.
    pub fn allows(&self, host: &str, port: u16, default: u16) -> bool {
        self.host.eq_ignore_ascii_case(host) && self.port.unwrap_or(default) == port
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_or_addresses_with_or_without_a_port() {
        let host = |host: &str, port| Some(Outbound { host: host.into(), port });
        for (text, expected) in [
            ("example.com", host("example.com", None)),
            ("Example.com:8080", host("example.com", Some(8080))),
            ("127.0.0.1:80", host("127.0.0.1", Some(80))),
            ("[::1]", host("[::1]", None)),
            ("[::1]:81", host("[::1]", Some(81))),
        ] {
            assert_eq!(Outbound::parse(text), expected, "{text}");
        }
        for text in ["", "a:", "a:0", "a:65536", "::1", "[x]", "http://a", "a/b", "*.a", "a b"] {
            assert_eq!(Outbound::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_host_without_a_port_stands_for_the_default_port_of_the_scheme() {
        let plain = Outbound { host: "a".into(), port: None };
        assert!(plain.allows("A", 443, 443) && !plain.allows("a", 8443, 443));
        assert!(!plain.allows("b", 443, 443));
        let other = Outbound { host: "a".into(), port: Some(8080) };
        assert!(other.allows("a", 8080, 80) && !other.allows("a", 80, 80));
    }
}
