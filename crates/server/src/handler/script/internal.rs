//! Responses that the server makes in place of a script: a file or another path of the site, local redirects (RFC 3875
//! §6.2.2), and resources that a script names by X-Accel-Redirect or X-Sendfile.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use dunlin_exchange::{Incoming, Response};
use dunlin_http::semantics::Method;
use dunlin_script::call::Call;
use dunlin_script::failure::Failure;
use dunlin_script::head::ScriptHead;
use dunlin_script::outcome::{Internal, Target, under_fields};
use dunlin_script::printable;
use dunlin_telemetry::ScriptContext;

use super::ScriptExchange;
use crate::handler::files;
use crate::handler::rejection::not_for_files;
use crate::handler::reply::complete;
use crate::handler::rewrite::RewrittenRequest;
use crate::route::route_match::{Origin, RouteMatch};
use crate::route::sites::Route;

/// Redirects in a row, so that a loop ends.
const MAX_REDIRECTS: u8 = 10;

impl ScriptExchange {
    /// Responds with the target of `internal`.
    ///
    /// # Errors
    /// When the script names a target that it may not name.
    pub(super) async fn respond_internally(
        &self,
        call: &Call<'_>,
        internal: Internal,
        script_context: &ScriptContext,
    ) -> Result<Response, Failure> {
        let Internal { target, incoming } = internal;
        let (ctx, request) = (&self.ctx, &call.request);
        let matched = self.matched.borrow();
        let reply = match target {
            Target::LocalRedirect(path) => {
                return self.redirect(call, incoming, &path, Origin::Client).await;
            }
            Target::SendPath(head, path) => {
                let response = self.redirect(call, incoming, &path, Origin::Server).await?;
                return Ok(self.send(&head, &path, response, script_context));
            }
            Target::SendFile(head, path) => {
                let response = self.file(call, incoming, &path).await?;
                return Ok(self.send(&head, &path, response, script_context));
            }
            Target::Path(candidate) => {
                let matched = matched.with(self.context.as_ref());
                ctx.router.reroute(ctx, request, &matched, &candidate)
            }
            Target::File if matches!(request.method(), Method::Get | Method::Head) => {
                files::respond(ctx, request, &matched.with(self.context.as_ref()))
            }
            Target::File => not_for_files(ctx, request, &matched),
        };
        Ok(Box::pin(complete(request, reply, incoming)).await)
    }

    /// Responds as to a request for `target` without a body.
    async fn redirect(
        &self,
        call: &Call<'_>,
        incoming: Box<Incoming>,
        target: &[u8],
        origin: Origin,
    ) -> Result<Response, Failure> {
        if incoming.redirects == MAX_REDIRECTS {
            return Err(Failure::Malformed(format!(
                "more than {MAX_REDIRECTS} local redirects in a row"
            )));
        }
        let what = if origin == Origin::Client { "Location" } else { "X-Accel-Redirect" };
        let rewritten = self.rewrite(call, target).ok_or_else(|| {
            Failure::Malformed(format!("its {what} is not a path of this server"))
        })?;
        let request = rewritten.as_request();
        let client = call.client(&incoming).admitted();
        let routed = self
            .ctx
            .router
            .dispatch(&self.ctx, client, origin, &request, &mut Vec::new())
            .map_err(|error| Failure::Malformed(format!("its {what}: {}", error.reason)))?;
        let redirects = incoming.redirects + 1;
        let incoming = Box::new(Incoming { redirects, ..incoming.with_empty_body() });
        Ok(complete(&request, routed.reply, incoming).await)
    }

    /// The request rewritten for `target` without a body. `None` if `target` is not a path.
    fn rewrite(&self, call: &Call<'_>, target: &[u8]) -> Option<RewrittenRequest> {
        let is_path = target.starts_with(b"/");
        let limits = &self.ctx.http1.limits;
        is_path.then(|| RewrittenRequest::new(&call.request, target, &[], limits)).flatten()
    }

    /// The response for the file `path`, which has to lie beneath a `sendfile_root` of the route.
    async fn file(
        &self,
        call: &Call<'_>,
        incoming: Box<Incoming>,
        path: &[u8],
    ) -> Result<Response, Failure> {
        let misplaced = || {
            let path = printable(path);
            Failure::Malformed(format!("its X-Sendfile is beneath no `sendfile_root`: {path:?}"))
        };
        let (settings, path) = self.beneath(path).ok_or_else(misplaced)?;
        // The target does not matter: the file is not found by it.
        let rewritten = self.rewrite(call, b"/").ok_or_else(misplaced)?;
        let request = rewritten.as_request();
        let matched = RouteMatch {
            site: &self.matched.site,
            settings: &settings,
            raw_path: &path,
            path: &path,
            query: None,
            client: call.client(&incoming),
            context: self.context.as_ref(),
            via: self.matched.via,
        };
        let reply = files::respond(&self.ctx, &request, &matched);
        let response = complete(&request, reply, incoming).await;
        if response.status == 301 {
            return Err(Failure::Malformed("its X-Sendfile is a directory".into()));
        }
        Ok(response)
    }

    /// The route of the `sendfile_root` that an absolute path leads into, and the rest of the path with a slash at its
    /// front. That the path stays there is checked by the kernel when the file is opened.
    fn beneath(&self, path: &[u8]) -> Option<(Arc<Route>, Vec<u8>)> {
        let path = Path::new(OsStr::from_bytes(path));
        self.matched.settings.sendfile_routes.iter().find_map(|settings| {
            let by_name = path.strip_prefix(&settings.root).ok().map(Path::to_owned);
            // The root may be a symlink, which the script has followed.
            let rest = by_name.or_else(|| {
                let root = self.ctx.shared.root(&settings.root).ok()?;
                path.strip_prefix(OsStr::from_bytes(&root.path)).ok().map(Path::to_owned)
            })?;
            Some((Arc::clone(settings), [b"/", rest.as_os_str().as_bytes()].concat()))
        })
    }

    /// The response for the resource `path` that a script names, under the fields of the script's header.
    fn send(
        &self,
        head: &ScriptHead,
        path: &[u8],
        response: Response,
        script_context: &ScriptContext,
    ) -> Response {
        if response.status >= 400 && !matches!(response.status, 412 | 416) {
            tracing::warn!(
                script = &*self.rules.label,
                status = response.status,
                "the resource that the script names cannot be sent: {}",
                printable(path)
            );
        }
        self.finish(under_fields(head, response), script_context)
    }
}
