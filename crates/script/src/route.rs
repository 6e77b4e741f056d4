//! The site and the route of a request.

use std::sync::Arc;

use dunlin_config::Settings;

/// The site and the route of a request, as the router keeps them.
pub trait Route {
    /// Returns the settings of the route. Their address identifies the route.
    fn settings(&self) -> &Settings;

    /// Returns the names of the request fields that only the server sets, in lower case.
    fn user_fields(&self) -> &[String];

    /// Returns `true` if the decoded `path` belongs to the same route.
    fn covers(&self, path: &[u8]) -> bool;

    /// Returns the same for a cache or another thread.
    fn share(&self) -> Arc<dyn Route + Send + Sync>;
}
