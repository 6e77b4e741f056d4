//! The router: from a request to the site, the route and the handler that serve it.
//!
//! Handlers see [`sites`], [`reply`], [`route_match`] and [`router`]. The other modules call handlers.

mod admission;
mod admit;
pub(crate) mod conditions;
pub(crate) mod decode;
pub(crate) mod dispatch;
pub(crate) mod fast_path;
mod handle;
mod registry;
pub(crate) mod reply;
pub(crate) mod reroute;
pub(crate) mod route_match;
pub(crate) mod router;
pub(crate) mod select;
pub(crate) mod sites;
