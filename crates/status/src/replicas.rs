//! The reports of the servers that SRV records name.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use dunlin_client::{Client, Empty, Error, Origin, Request, Timeouts};
use futures_util::StreamExt;
use tokio::runtime::{Builder, Runtime};

use crate::report::Report;

/// The servers that the SRV records of a name have (RFC 2782), and where each has its status.
#[derive(Debug, Clone)]
pub struct Replicas {
    name: String,
    resolvers: Vec<SocketAddr>,
    path: String,
    /// Limit of each request.
    limit: Duration,
    client: Client,
}

/// [`Replicas`] for programs without a runtime: each call blocks its thread.
#[derive(Debug)]
pub struct BlockingReplicas {
    runtime: Runtime,
    replicas: Replicas,
}

/// What each server has responded, or why it has not.
pub type Reports = BTreeMap<SocketAddr, Result<Report, String>>;

/// Requests at the same time.
const AT_ONCE: usize = 32;
/// Maximum size of a report in bytes.
const MAX_REPORT: usize = 8 << 20;

impl Replicas {
    /// Creates the servers of `name`, with their status routes at `path`. `resolvers` are the name servers, or those of the
    /// system if there are none, and `limit` is the maximum duration of each request.
    pub fn new(name: &str, resolvers: Vec<SocketAddr>, path: &str, limit: Duration) -> Self {
        let path = path.trim_end_matches('/').to_owned();
        Self { name: name.to_owned(), resolvers, path, limit, client: Client::default() }
    }

    /// Resolves the name.
    ///
    /// # Errors
    /// The name has no records, or no name server has responded.
    pub async fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        dunlin_dns::replicas(&self.resolvers, &self.name).await
    }

    /// Requests the report of each server.
    pub async fn fetch(&self, addresses: &[SocketAddr]) -> Reports {
        let requests = addresses
            .iter()
            .map(|&address| async move { (address, self.fetch_one(address).await) });
        futures_util::stream::iter(requests).buffer_unordered(AT_ONCE).collect().await
    }

    async fn fetch_one(&self, address: SocketAddr) -> Result<Report, String> {
        let not_reached = |error: Error| format!("the server is not reached: {error}");
        let origin = Origin::tcp(&address.ip().to_string(), address.port());
        let mut request = Request::new(&origin, "GET", &format!("{}/status.json", self.path));
        request.head.fields.push("User-Agent", concat!("dunlin/", env!("CARGO_PKG_VERSION")));
        request.timeouts = Timeouts { total: Some(self.limit), ..Timeouts::each(self.limit) };
        let mut exchange = self.client.send(request, Empty).await.map_err(not_reached)?;
        let head = exchange.final_head().await.map_err(not_reached)?;
        if head.status != 200 {
            return Err(format!("the server responds with {} to {}/", head.status, self.path));
        }
        let body = exchange.collect(MAX_REPORT).await.map_err(not_reached)?;
        serde_json::from_slice(&body)
            .map_err(|error| format!("the server's status is malformed: {error}"))
    }
}

impl BlockingReplicas {
    /// Returns the same servers.
    ///
    /// # Errors
    /// The system lacks a resource that the runtime needs.
    pub fn new(replicas: Replicas) -> io::Result<Self> {
        Ok(Self { runtime: Builder::new_current_thread().enable_all().build()?, replicas })
    }

    /// Resolves the name, and requests the report of each server.
    ///
    /// # Errors
    /// As [`Replicas::addresses`].
    pub fn fetch(&self) -> Result<Reports, String> {
        self.runtime.block_on(async {
            let addresses = self.replicas.addresses().await?;
            Ok(self.replicas.fetch(&addresses).await)
        })
    }
}
