//! Resources of the site that a script or an upstream names in place of its body: a path by `X-Accel-Redirect` or by a local
//! redirect (RFC 3875 §6.2.2), a file by `X-Sendfile`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use dunlin_exchange::{Client, Incoming, Named, RequestContext, Response};
use dunlin_http::{FieldLines, Request};
use dunlin_script::printable;

use crate::handler::files;
use crate::handler::rewrite::RewrittenRequest;
use crate::route::route_match::{OwnedRouteMatch, RouteMatch, TargetSource};
use crate::route::sites::Route;
use crate::worker::WorkerContext;

/// Redirects in a row, so that a loop ends.
const MAX_REDIRECTS: u8 = 10;

/// The request for which a resource is named.
pub(super) struct Naming<'a> {
    pub(super) ctx: &'a Rc<WorkerContext>,
    pub(super) request: &'a Request<'a>,
    pub(super) matched: &'a OwnedRouteMatch,
    pub(super) context: Option<&'a Rc<RequestContext>>,
    pub(super) client: Client,
}

impl Naming<'_> {
    /// Returns the response for the resource, under the fields of the response that names it. `log` gets what is wrong with a
    /// resource that cannot be sent.
    ///
    /// # Errors
    /// Why it may not be named.
    pub(super) async fn respond(
        &self,
        named: &Named,
        fields: &FieldLines,
        incoming: Box<Incoming>,
        log: impl FnOnce(u16, &str),
    ) -> Result<Response, String> {
        let response = match named {
            Named::Path(path) => self.redirect(incoming, path, TargetSource::Server).await?,
            Named::File(path) => self.file(incoming, path).await?,
        };
        if response.status >= 400 && !matches!(response.status, 412 | 416) {
            log(response.status, &printable(named.as_bytes()));
        }
        Ok(response.under(fields))
    }

    /// Responds as to a request for `target` without a body.
    ///
    /// # Errors
    /// Why the target cannot be reached.
    pub(super) async fn redirect(
        &self,
        incoming: Box<Incoming>,
        target: &[u8],
        origin: TargetSource,
    ) -> Result<Response, String> {
        if incoming.redirects == MAX_REDIRECTS {
            return Err(format!("more than {MAX_REDIRECTS} local redirects in a row"));
        }
        let what = if origin == TargetSource::Client { "Location" } else { "X-Accel-Redirect" };
        let rewritten = self
            .rewrite(target)
            .ok_or_else(|| format!("its {what} is not a path of this server"))?;
        let request = rewritten.as_request();
        let client = self.client.admitted();
        let routed = self
            .ctx
            .router
            .dispatch(self.ctx, client, origin, &request, &mut Vec::new())
            .map_err(|error| format!("its {what}: {}", error.reason))?;
        let redirects = incoming.redirects + 1;
        let incoming = Box::new(Incoming { redirects, ..incoming.with_empty_body() });
        let response = routed.reply.response(&request, incoming).await;
        Ok(Response { is_named: true, ..response })
    }

    /// Returns the request rewritten for `target` without a body. `None` if `target` is not a path.
    fn rewrite(&self, target: &[u8]) -> Option<RewrittenRequest> {
        let is_path = target.starts_with(b"/");
        let limits = &self.ctx.http1.limits;
        is_path.then(|| RewrittenRequest::new(self.request, target, &[], limits)).flatten()
    }

    /// Returns the response for the file `path`, which has to lie beneath a `sendfile_root` of the route.
    async fn file(&self, incoming: Box<Incoming>, path: &[u8]) -> Result<Response, String> {
        let misplaced = || {
            let path = printable(path);
            format!("its X-Sendfile is beneath no `sendfile_root`: {path:?}")
        };
        let (settings, path) = self.beneath(path).ok_or_else(misplaced)?;
        // The target does not matter: the file is not found by it.
        let rewritten = self.rewrite(b"/").ok_or_else(misplaced)?;
        let request = rewritten.as_request();
        let matched = RouteMatch {
            site: &self.matched.site,
            settings: &settings,
            raw_path: &path,
            path: &path,
            query: None,
            client: self.client,
            context: self.context,
            via: self.matched.via,
        };
        let reply = files::respond(self.ctx, &request, &matched);
        let response = reply.response(&request, incoming).await;
        if response.status == 301 {
            return Err("its X-Sendfile is a directory".into());
        }
        Ok(Response { is_named: true, ..response })
    }

    /// Returns the route of the `sendfile_root` that an absolute path leads into, and the rest of the path with a slash at
    /// its front. That the path stays there is checked by the kernel when the file is opened.
    fn beneath(&self, path: &[u8]) -> Option<(Arc<Route>, Vec<u8>)> {
        let path = Path::new(OsStr::from_bytes(path));
        self.matched.settings.sendfile_routes.iter().find_map(|settings| {
            let by_name = path.strip_prefix(&settings.root).ok().map(Path::to_owned);
            // The root may be a symlink, which the application has followed.
            let rest = by_name.or_else(|| {
                let root = self.ctx.shared.root(&settings.root).ok()?;
                path.strip_prefix(OsStr::from_bytes(&root.path)).ok().map(Path::to_owned)
            })?;
            Some((Arc::clone(settings), [b"/", rest.as_os_str().as_bytes()].concat()))
        })
    }
}
