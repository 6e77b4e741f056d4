//! Scripts, components, upstreams and object stores.

use serde::{Deserialize, Serialize};

/// A pool of scripts.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Scripts {
    /// Name of the script or application.
    pub name: String,
    /// Kind of scripts.
    pub kind: String,
    /// Maximum of processes.
    pub max: u64,
    /// Running processes.
    pub processes: u64,
    /// Requests in progress.
    pub busy: u64,
    /// Requests in the queue.
    pub waiting: u64,
    /// Duration of the oldest request in progress, in milliseconds.
    pub longest: u64,
    /// Script that handles this request.
    pub longest_script: String,
}

/// A component.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Component {
    /// The path of its file.
    pub name: String,
    /// The interface that it exports; `none` while no version of it is loaded.
    pub kind: String,
    /// Instances that handle a request or are kept.
    pub live: u64,
    /// Requests that a new instance handled.
    pub fresh: u64,
    /// Requests that a kept instance handled.
    pub reused: u64,
    /// Requests that were rejected because all instances were in use.
    pub rejected: u64,
    /// Requests whose instance was stopped, by reason.
    pub stops: Vec<(String, u64)>,
    /// Largest memory of an instance in bytes.
    pub memory_peak: u64,
    /// Time that its compilation took, in seconds.
    pub compile_seconds: f64,
    /// Versions of the file that replaced another.
    pub swaps: u64,
    /// Why the newest version of the file is not loaded.
    pub error: Option<String>,
}

/// An upstream of a proxy.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Upstream {
    /// The site's name.
    pub site: String,
    /// The pattern of the route that names it.
    pub route: String,
    /// Its address as in the configuration.
    pub name: String,
    /// Requests that it works on.
    pub in_flight: u64,
    /// Requests that wait for a connection.
    pub waiting: u64,
    /// Requests that it was sent.
    pub requests: u64,
    /// Attempts that brought no response.
    pub failures: u64,
    /// Connections that were opened.
    pub connections: u64,
    /// Connections that use another protocol, such as WebSocket.
    pub tunnels: u64,
    /// It gets requests.
    pub is_available: bool,
    /// Requests in a row, up to the last one, that have failed.
    pub failing: u64,
    /// The reason of its last failure.
    pub last_error: Option<String>,
    /// Time of its last failure, in seconds since 1970.
    pub last_failure: Option<f64>,
}

/// A bucket of an object store.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectStore {
    /// Its URL.
    pub name: String,
    /// It responds.
    pub is_available: bool,
    /// Requests for objects.
    pub gets: u64,
    /// Those of them whose response was that the object has not changed.
    pub not_modified: u64,
    /// Requests for listings.
    pub lists: u64,
    /// Requests without a response, with an error as response, or whose body ended early.
    pub errors: u64,
    /// Bytes of bodies.
    pub bytes: u64,
    /// Requests of clients that waited for the response to the request of another client.
    pub joined: u64,
    /// Uses of a cached object that the store did not confirm in time.
    pub stale: u64,
}
