//! A request for the upstreams of a group.

use std::borrow::Cow;
use std::rc::Rc;

use dunlin_config::{Balance, Facts, ForwardedField, HashKey, RequestField};
use dunlin_exchange::{Client, RequestContext};
use dunlin_http::semantics::{Method, host};
use dunlin_http::{FieldName, Request};
use dunlin_telemetry::ScriptContext;
use dunlin_telemetry::ids::random_id;

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
    /// What the logs know of the request, with its ID; `None` where no upstream gets it.
    pub script_context: Option<&'a ScriptContext>,
}

impl<'a> Call<'a> {
    /// Returns what templates see of the request.
    pub(crate) fn facts(&self) -> Facts<'a> {
        Facts {
            request: self.request,
            path: self.path,
            query: self.query,
            client: self.client.address.ip(),
            encrypted: self.client.encrypted,
            hidden: self.user_fields,
        }
    }

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

    /// Returns the value of a field that the route sets.
    pub(crate) fn field_value<'f>(&self, field: &'f RequestField) -> Cow<'f, [u8]> {
        field.value(&self.facts(), |name, text| self.push(name, text))
    }

    /// Returns the host that `field` gives; `None` if its value is none.
    pub(crate) fn host_value(&self, field: &RequestField) -> Option<String> {
        field.host_value(&self.facts(), |name, text| self.push(name, text))
    }

    /// Appends what the proxy knows.
    fn push(&self, name: &str, text: &mut Vec<u8>) {
        match name {
            "target" => text.extend_from_slice(self.request.target()),
            "path" => text.extend_from_slice(self.raw_path),
            "port" => text.extend_from_slice(self.port().to_string().as_bytes()),
            "request_id" => {
                if let Some(known) = self.script_context {
                    known.set_id(|| random_id().into());
                    text.extend_from_slice(known.id().as_bytes());
                }
            }
            "early" if self.client.early => text.push(b'1'),
            "user" => {
                let user = self.checked.and_then(RequestContext::user).unwrap_or_default();
                text.extend_from_slice(user.as_bytes());
            }
            _ => {}
        }
    }

    /// Returns the port of the host, or that of the scheme.
    fn port(&self) -> u16 {
        let host = self.request.field(FieldName::Host).and_then(host::parse);
        let default = if self.client.encrypted { 443 } else { 80 };
        host.and_then(|host| host.port).unwrap_or(default)
    }

    /// Returns `true` if the request can be sent again: its method, which may be another one than the client's, is idempotent.
    pub(crate) fn is_idempotent(&self) -> bool {
        let method = self.group.rules().method.as_deref();
        let own = method.map(|method| Method::from_bytes(method.as_bytes()));
        own.unwrap_or_else(|| self.request.method()).is_idempotent()
    }

    /// Returns `true` if another upstream gets the request after a response with that status, which then counts. `attempts` were
    /// made, this one among them. `can_repeat`: the request can be sent again.
    pub(crate) fn retries_status(&self, status: u16, can_repeat: bool, attempts: usize) -> bool {
        let Some(retry) = &self.group.rules.retry else { return false };
        can_repeat
            && retry.statuses.contains(&status)
            && attempts < self.group.upstreams.len()
            && attempts <= retry.attempts as usize
            && self.group.retries.spend()
    }

    /// Returns `true` if another upstream gets the request after a failure, which then counts. `attempts` were made.
    pub(crate) fn retries(
        &self,
        failure: &Failure,
        upload: Option<&Upload>,
        attempts: usize,
    ) -> bool {
        // It was decided by the status.
        if failure.is_unwanted() {
            return true;
        }
        let Some(retry) = &self.group.rules.retry else { return false };
        let can_restart = upload.is_some_and(Upload::can_restart);
        let has_other = attempts < self.group.upstreams.len();
        if !can_restart || !has_other || attempts > retry.attempts as usize {
            return false;
        }
        // Where nothing was sent, another attempt adds no load to an upstream.
        failure.is_before_request()
            || failure.may_be_repeated() && self.is_idempotent() && self.group.retries.spend()
    }
}
