//! A plan that is ready to run: the address, the requests, and the expected responses.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use bytes::Bytes;
use dunlin_http::RequestHead;
use serde::{Deserialize, Serialize};
use url::Url;

use super::request::{Prepared, request_of_streams};
use super::tls::Tls;
use crate::choose::Chooser;
use crate::plan::Plan;
use crate::urls;
use crate::verify::Reference;

/// A plan with everything that is needed to run it.
pub struct Job {
    /// The plan.
    pub plan: Plan,
    /// Address of the server: the first one that accepts a connection, once [`Job::probe`] has found it.
    pub address: SocketAddr,
    /// All addresses of its name.
    pub addresses: Vec<SocketAddr>,
    /// The request of each URL.
    pub(super) requests: Vec<Prepared>,
    /// The head and body of the request of each URL, for protocols with streams.
    pub(super) of_streams: Vec<(RequestHead, Bytes)>,
    pub(super) tls: Option<Tls>,
    /// The expected bodies.
    pub(super) reference: Reference,
    /// The dictionary with which bodies are decoded before they are verified; empty for none.
    pub(super) dictionary: Vec<u8>,
    /// The statuses that are no failure.
    pub(super) expected: ExpectedStatuses,
    /// Cumulative probabilities for [`crate::choose::Chooser`].
    pub(super) table: Arc<[f64]>,
    /// The requests of a replay: the time when each is due, in nanoseconds, and the index of its URL.
    pub(super) replay: Option<Vec<(u64, u32)>>,
}

/// Statuses that are no failure. Empty for all of 2xx.
#[derive(Clone)]
pub(super) struct ExpectedStatuses(Arc<[u16]>);

impl ExpectedStatuses {
    /// Returns `true` if the status is one of them.
    #[inline]
    pub(super) fn has(&self, status: u16) -> bool {
        if self.0.is_empty() { (200..300).contains(&status) } else { self.0.contains(&status) }
    }
}

/// An error that prevents a run.
#[derive(Debug)]
pub enum JobError {
    /// A URL is malformed, has another scheme than http and https, or belongs to another server than the first one.
    Url(String, String),
    /// The server's name cannot be resolved.
    Resolve(String, String),
    /// TLS cannot be set up.
    Tls(String),
    /// No connection can be made to any address.
    Connect(Vec<(SocketAddr, std::io::Error)>),
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url, why) => write!(f, "{url}: {why}"),
            Self::Resolve(host, why) => write!(f, "{host}: {why}"),
            Self::Tls(why) => write!(f, "TLS: {why}"),
            Self::Connect(errors) => {
                let each = errors.iter().map(|(address, error)| format!("{address}: {error}"));
                let each = each.collect::<Vec<_>>().join("; ");
                write!(f, "connecting to {each}; is the server running?")
            }
        }
    }
}

impl std::error::Error for JobError {}

/// Inputs of a run that are not part of the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extras {
    /// The body of each request.
    #[serde(with = "base64_text")]
    pub body: Vec<u8>,
    /// The dictionary with which bodies are decoded before they are verified; empty for none.
    #[serde(with = "base64_text", default)]
    pub dictionary: Vec<u8>,
    /// ExpectedStatuses statuses. Empty for all of 2xx.
    pub statuses: Vec<u16>,
    /// The method of each URL. Empty for the plan's method.
    pub methods: Vec<String>,
    /// The requests of a replay: the time when each is due, in nanoseconds, and the index of its URL.
    pub replay: Option<Vec<(u64, u32)>>,
}

impl Job {
    /// Prepares `plan`.
    ///
    /// # Errors
    /// A URL, name or setting is invalid.
    pub fn new(plan: Plan, extras: Extras, reference: Reference) -> Result<Self, JobError> {
        let wrong = |url: &str, why: &str| JobError::Url(urls::shown(url), why.to_owned());
        let mut first: Option<Url> = None;
        let mut requests = Vec::with_capacity(plan.urls.len());
        let mut of_streams = Vec::new();
        for (index, text) in plan.urls.iter().enumerate() {
            let url = Url::parse(text).map_err(|error| wrong(text, &error.to_string()))?;
            if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
                return Err(wrong(text, "is not an http or https URL"));
            }
            if first.as_ref().is_some_and(|first| first.origin() != url.origin()) {
                return Err(wrong(text, "is on another server than the first URL"));
            }
            let method = extras.methods.get(index).unwrap_or(&plan.request.method);
            requests.push(Prepared::new(&plan, method, &url, &extras.body));
            if plan.protocol.has_streams() {
                let (head, body) = request_of_streams(&plan, method, &url, &extras.body);
                let head = head.checked().map_err(|error| wrong(text, &error.to_string()))?;
                of_streams.push((head, body));
            }
            first.get_or_insert(url);
        }
        let Some(first) = first else { return Err(wrong("", "there is no URL")) };
        let addresses = addresses_of(&first)?;
        let address = addresses[0];
        let tls = (first.scheme() == "https")
            .then(|| Tls::new(&plan, &first).map_err(JobError::Tls))
            .transpose()?;
        let table = crate::choose::table(&plan.choice, plan.urls.len());
        Ok(Self {
            plan,
            table,
            address,
            addresses,
            requests,
            of_streams,
            tls,
            reference,
            dictionary: extras.dictionary,
            expected: ExpectedStatuses(extras.statuses.into()),
            replay: extras.replay,
        })
    }

    /// Returns `true` if all addresses are those of this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.addresses.iter().all(|address| address.ip().is_loopback())
    }

    /// Returns the error that the target is another machine and the user has not permitted that.
    #[must_use]
    pub fn not_permitted(&self) -> String {
        let others = self.addresses.iter().find(|address| !address.ip().is_loopback());
        format!(
            "{} is not this machine; --i-own-this-host permits it",
            others.unwrap_or(&self.address)
        )
    }

    /// Makes one connection and closes it, to the first address that accepts one, which all connections of the run then use.
    ///
    /// # Errors
    /// [`JobError::Connect`] if no address accepts one.
    pub fn probe(&mut self) -> Result<(), JobError> {
        // An address that does not respond must not take the time of all others.
        let seconds = self.plan.timeout_seconds / self.addresses.len().max(1) as f64;
        let timeout = std::time::Duration::from_secs_f64(seconds.max(0.001));
        let mut errors = Vec::new();
        for address in &self.addresses {
            match std::net::TcpStream::connect_timeout(address, timeout) {
                Ok(_) => {
                    self.address = *address;
                    return Ok(());
                }
                Err(error) => errors.push((*address, error)),
            }
        }
        Err(JobError::Connect(errors))
    }

    /// Does what the first TLS session of a thread does once, such as seeding its random numbers, which takes up to 150 ms.
    pub(super) fn prepare_thread(&self) {
        let Some(tls) = &self.tls else { return };
        let session = rustls::ClientConnection::new(Arc::clone(&tls.config), tls.name.clone());
        if let Ok(mut session) = session {
            // Writing to memory cannot fail.
            let _ = session.write_tls(&mut std::io::sink());
        }
    }

    /// Returns `true` if connections are encrypted.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the sequence of URLs of the user with that number.
    pub(super) fn chooser(&self, number: u64) -> Chooser {
        let Plan { choice, urls, seed, .. } = &self.plan;
        Chooser::new(choice, &self.table, urls.len(), *seed, number, self.plan.users())
    }
}

/// Returns the addresses of the URL's host, of which there is at least one.
fn addresses_of(url: &Url) -> Result<Vec<SocketAddr>, JobError> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_or_known_default().unwrap_or(80);
    let resolved = (host, port).to_socket_addrs();
    let error = |why: String| JobError::Resolve(host.to_owned(), why);
    let mut all: Vec<SocketAddr> = Vec::new();
    for address in resolved.map_err(|cause| error(cause.to_string()))? {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    // Servers listen on the IPv4 loopback address more often than on both.
    all.sort_by_key(|address| !address.is_ipv4());
    if all.is_empty() { Err(error("has no address".to_owned())) } else { Ok(all) }
}

/// Bytes as Base64, since JSON has no better form.
mod base64_text {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        bytes: &Vec<u8>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(serde::de::Error::custom)
    }
}
