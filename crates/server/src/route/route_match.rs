//! The site and the route of a request.

use std::rc::Rc;
use std::sync::Arc;

use dunlin_exchange::{Client, RequestContext};

use super::sites::{Route, Site};

/// The site, the route and the path of a request.
pub(crate) struct RouteMatch<'a> {
    pub(crate) site: &'a Arc<Site>,
    pub(crate) settings: &'a Arc<Route>,
    /// The path as in the request target.
    pub(crate) raw_path: &'a [u8],
    /// The path after decoding; encoded slashes, which are parts of names, are NULs.
    pub(crate) path: &'a [u8],
    pub(crate) query: Option<&'a [u8]>,
    /// The client.
    pub(crate) client: Client,
    /// Context of the checks; `None` if the route has none.
    pub(crate) context: Option<&'a Rc<RequestContext>>,
    /// Internal redirects that led to this path.
    pub(crate) via: Via,
}

/// Internal redirects that led to a path other than the target's.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Via {
    /// Internal redirects so far.
    pub(crate) redirects: u8,
    /// The status for which the path is the error page.
    pub(crate) error: Option<u16>,
    /// Conditions of routes have decided on a path before: the URL alone does not determine the response.
    pub(crate) is_conditional: bool,
}

impl<'a> RouteMatch<'a> {
    /// Returns the same with the context of the checks.
    pub(crate) fn with(&self, context: Option<&'a Rc<RequestContext>>) -> Self {
        Self { client: context.map_or(self.client, |context| context.client), context, ..*self }
    }
}

/// The source of a request target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetSource {
    Client,
    /// A script or the configuration, which can name internal routes.
    Server,
}

/// An owned [`RouteMatch`] without the context, for work that outlives the buffers of the request or runs in another thread.
pub(crate) struct OwnedRouteMatch {
    pub(crate) site: Arc<Site>,
    pub(crate) settings: Arc<Route>,
    pub(crate) raw_path: Box<[u8]>,
    pub(crate) path: Box<[u8]>,
    pub(crate) query: Option<Box<[u8]>>,
    pub(crate) client: Client,
    pub(crate) via: Via,
}

impl RouteMatch<'_> {
    pub(crate) fn to_owned(&self) -> OwnedRouteMatch {
        OwnedRouteMatch {
            site: Arc::clone(self.site),
            settings: Arc::clone(self.settings),
            raw_path: self.raw_path.into(),
            path: self.path.into(),
            query: self.query.map(Into::into),
            client: self.client,
            via: self.via,
        }
    }

    /// Returns `true` if a script may have to respond where a file or an error is found: such a handler streams.
    pub(crate) fn may_run_script(&self) -> bool {
        self.settings.reroutes || !self.settings.error_pages.is_empty()
    }
}

impl OwnedRouteMatch {
    pub(crate) fn borrow(&self) -> RouteMatch<'_> {
        RouteMatch {
            site: &self.site,
            settings: &self.settings,
            raw_path: &self.raw_path,
            path: &self.path,
            query: self.query.as_deref(),
            client: self.client,
            context: None,
            via: self.via,
        }
    }
}
