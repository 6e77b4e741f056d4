//! A request for the upstreams of a group.

use std::borrow::Cow;
use std::rc::Rc;

use dunlin_config::{Balance, ForwardedField, HashKey};
use dunlin_exchange::{Client, RequestContext};
use dunlin_http::Request;

use crate::failure::Failure;
use crate::group::Group;
use crate::pool::WorkerProxy;
use crate::upload::Upload;

/// A request for the upstreams of a group.
pub struct Call<'a> {
    /// The idle connections of the worker.
    pub worker: &'a Rc<WorkerProxy>,
    /// The upstreams.
    pub group: &'a Group,
    /// The head of the request.
    pub request: Request<'a>,
    /// The path as in the request target.
    pub raw_path: &'a [u8],
    /// The decoded path that led to the route.
    pub path: &'a [u8],
    /// The query, without the question mark.
    pub query: Option<&'a [u8]>,
    /// The client, resolved through trusted proxies.
    pub client: Client,
    /// The results of the checks; `None` if the route has no checks.
    pub checked: Option<&'a RequestContext>,
    /// Names of the request fields that only the server sets, in lower case.
    pub user_fields: &'a [String],
    /// The field in which trusted proxies name the client.
    pub forwarded_field: &'a ForwardedField,
}

impl Call<'_> {
    /// Returns the value by which requests have the same upstream; empty if that does not depend on the request.
    pub(crate) fn key(&self) -> Vec<u8> {
        let Balance::Hash(key) = &self.group.rules.balance else { return Vec::new() };
        let field = match key {
            HashKey::Address => None,
            HashKey::Field(name) => {
                let is_it = |(other, _): &(&[u8], Cow<'_, [u8]>)| {
                    other.eq_ignore_ascii_case(name.as_bytes())
                };
                self.request.joined_fields().find(is_it)
            }
        };
        field.map_or_else(
            || self.client.address.to_string().into_bytes(),
            |(_, value)| value.into_owned(),
        )
    }

    /// Returns `true` if another upstream gets the request after a failure, which then counts. `attempts` were made.
    pub(crate) fn retries(
        &self,
        failure: &Failure,
        upload: Option<&Upload>,
        attempts: usize,
    ) -> bool {
        let Some(retry) = &self.group.rules.retry else { return false };
        let can_restart = upload.is_some_and(Upload::can_restart);
        let has_other = attempts < self.group.upstreams.len();
        if !can_restart || !has_other || attempts > retry.attempts as usize {
            return false;
        }
        // Where nothing was sent, another attempt adds no load to an upstream.
        failure.is_before_request()
            || failure.may_be_repeated()
                && self.request.method().is_idempotent()
                && self.group.retries.spend()
    }
}
