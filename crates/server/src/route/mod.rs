//! The router: from a request to the site, the route and the handler that serve it.
//!
//! [`reply`], [`route_match`] and [`sites`] are what handlers see of it. The other modules call handlers.

mod admission;
mod admit;
mod complete;
mod conditions;
mod dispatch;
mod fast_path;
mod handle;
mod registry;
mod reply;
mod reroute;
mod route_match;
mod sites;
mod subrequest;

pub(crate) use self::admit::refuse;
pub(crate) use self::complete::complete;
pub(crate) use self::conditions::FastPathConditions;
pub(crate) use self::dispatch::{dispatch, dispatch_client, path_rejection, refusal_to};
pub(crate) use self::fast_path::{FastPath, FastResponse, fast_path};
pub(crate) use self::handle::{error_response, handle, not_for_files};
pub(crate) use self::reply::{CachedResponse, Direction, Reply, Routed, StreamingHandler};
pub(crate) use self::reroute::{MOST_REDIRECTS, reroute};
pub(crate) use self::route_match::{Origin, OwnedRouteMatch, RouteMatch, Via};
pub(crate) use self::sites::{CacheEntry, Route, Site, Sites};
pub(crate) use self::subrequest::services;
