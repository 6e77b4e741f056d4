//! Responses that the server makes in place of a script: a file or another path of the site, local redirects (RFC 3875
//! §6.2.2), and resources that a script names by X-Accel-Redirect or X-Sendfile.

use dunlin_exchange::Response;
use dunlin_http::semantics::Method;
use dunlin_script::call::Call;
use dunlin_script::failure::Failure;
use dunlin_script::outcome::{Internal, Target};
use dunlin_telemetry::ScriptContext;

use crate::handler::call::HandlerCall;
use crate::handler::files;
use crate::handler::named::Naming;
use crate::handler::rejection::not_for_files;
use crate::route::route_match::TargetSource;

impl HandlerCall {
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
        let matched = self.matched();
        let naming = || Naming {
            ctx,
            request,
            matched: &self.matched,
            context: self.context.as_ref(),
            client: call.client(&incoming),
        };
        let reply = match target {
            Target::LocalRedirect(path) => {
                let redirected = naming().redirect(incoming, &path, TargetSource::Client).await;
                return redirected.map_err(Failure::Malformed);
            }
            Target::Named(fields, named) => {
                let log = |status, named: &str| {
                    tracing::warn!(
                        script = &*call.rules.label,
                        status,
                        "the resource that the script names cannot be sent: {named}"
                    );
                };
                let response = naming().respond(&named, &fields, incoming, log).await;
                let response = response.map_err(Failure::Malformed)?;
                return Ok(self.finish_script(response, call.rules, script_context));
            }
            Target::Path(candidate) => ctx.router.reroute(ctx, request, &matched, &candidate),
            Target::File if matches!(request.method(), Method::Get | Method::Head) => {
                files::respond(ctx, request, &matched)
            }
            Target::File => not_for_files(ctx, request, &matched),
        };
        Ok(Box::pin(reply.response(request, incoming)).await)
    }
}
