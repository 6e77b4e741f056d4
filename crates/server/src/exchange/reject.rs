//! Responses to requests that an engine, the router or a limit rejects.

use std::rc::Rc;

use dunlin_exchange::{Client, Incoming, RequestContext};
use dunlin_http::semantics::Method;
use dunlin_http::{Request, RequestError};

use super::link::{Carrier, Link};
use super::{Exchange, deferred_record};
use crate::route::dispatch::{error_page, invalid_request};

impl Link {
    /// Returns the exchange of a request that is rejected.
    pub(crate) fn reject(
        &mut self,
        carrier: &impl Carrier,
        error: RequestError,
        request: &Request<'_>,
        context: Option<Rc<RequestContext>>,
    ) -> Exchange {
        let is_head = request.method() == Method::Head;
        let exchange = self.rejected(carrier, error, Some(request), context.as_ref(), is_head);
        Exchange { log: deferred_record(request, context), ..exchange }
    }

    /// Aborts an exchange whose request is rejected, and replaces it by one with the response to that.
    pub(crate) fn reject_exchange(
        &mut self,
        carrier: &impl Carrier,
        error: RequestError,
        exchange: &mut Exchange,
    ) {
        exchange.abort();
        let (log, is_head) = (exchange.log.take(), exchange.is_head);
        let request = log.as_ref().map(|log| log.request.as_request());
        let context = log.as_ref().map(|log| &log.context);
        let rejected = self.rejected(carrier, error, request.as_ref(), context, is_head);
        *exchange = Exchange { log, ..rejected };
    }

    /// Logs the rejection of a request and returns its exchange, without its record. `request` is absent if its head was not
    /// read; `is_head`: its method is HEAD.
    pub(crate) fn rejected(
        &mut self,
        carrier: &impl Carrier,
        error: RequestError,
        request: Option<&Request<'_>>,
        context: Option<&Rc<RequestContext>>,
        is_head: bool,
    ) -> Exchange {
        let RequestError { status, reason } = error;
        tracing::debug!(peer = %self.facts.peer, status, reason, "request rejected");
        let client = context.map_or_else(|| Client::of(&self.facts), |context| context.client);
        let page = request.and_then(|request| {
            Some((request, error_page(&self.ctx, client, request, context, status)?))
        });
        let Some((request, page)) = page else {
            let response =
                invalid_request(&self.ctx, self.facts.listener, request, (&error, !is_head));
            return Exchange::with_response(response, None, is_head);
        };
        let (ends, tls) = (self.ends(carrier).ok().flatten(), self.facts.tls.as_deref().cloned());
        let incoming = Incoming::without_content(ends, client.encrypted, tls);
        let request = request.to_owned();
        let page = async move { page.response(&request.as_request(), incoming).await };
        Exchange::with_future(Box::pin(page), None, is_head)
    }
}
