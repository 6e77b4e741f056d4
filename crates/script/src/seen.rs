//! The fields of a request as a script sees them, by their names: for a cache that selects responses by them (RFC 9111 §4.1).

use std::cell::OnceCell;

use dunlin_config::ForwardedField;
use dunlin_exchange::{Client, RequestContext};
use dunlin_http::{FieldLines, FieldName, Request};
use dunlin_tls::ClientCertificate;

use super::request_fields::ForwardedFields;
use super::variables::Treatment;

/// A request as a script sees it. What the script gets in variables has the name of the field that a proxy would set:
/// the user, the certificate and the address of the client.
pub struct Seen<'a> {
    request: Request<'a>,
    checked: Option<&'a RequestContext>,
    certificate: Option<&'a ClientCertificate>,
    client: Client,
    address: OnceCell<String>,
    /// The fields that authentication has set.
    set: FieldLines,
    fields: ForwardedFields<'a>,
}

impl<'a> Seen<'a> {
    /// Creates the request of that client, with a certificate if it has one. `user_fields` are names of fields that only the
    /// server sets, in lower case.
    pub fn new(
        request: Request<'a>,
        (client, certificate): (Client, Option<&'a ClientCertificate>),
        checked: Option<&'a RequestContext>,
        (forwarded_field, user_fields): (&'a ForwardedField, &'a [String]),
    ) -> Self {
        let fields = ForwardedFields::with_authorization(client, forwarded_field, user_fields);
        let set = checked.map(|checked| checked.request_fields().clone()).unwrap_or_default();
        Self { request, checked, certificate, client, address: OnceCell::new(), set, fields }
    }

    /// Returns the request.
    pub fn request(&self) -> Request<'a> {
        self.request
    }

    /// Returns what the checks know of it.
    pub fn checked(&self) -> Option<&'a RequestContext> {
        self.checked
    }

    /// Returns `true` if the script learns of a verified certificate of the client.
    pub fn names_certificate(&self) -> bool {
        self.certificate.is_some()
    }

    /// Calls `add` with the value of each line of the field `name`, which is in lower case. Returns `false` if the values are
    /// those of one message, so that no response can be selected by them.
    pub fn each_line<'s>(&'s self, name: &[u8], mut add: impl FnMut(&'s [u8])) -> bool {
        // A redirect may lead to a handler that does not get what `Connection` lists.
        if matches!(name, b"connection" | b"traceparent" | b"x-request-id") || self.is_listed(name)
        {
            return false;
        }
        if name == b"content-type" || self.fields.treatment(name) != Treatment::Omit {
            let is_it = |(other, _): &(&[u8], &[u8])| other.eq_ignore_ascii_case(name);
            self.request.fields().filter(is_it).for_each(|(_, value)| add(value));
        }
        let is_it = |(other, _): &(&[u8], &[u8])| other.eq_ignore_ascii_case(name);
        self.set.iter().filter(is_it).for_each(|(_, value)| add(value));
        match name {
            b"remote-user" => {
                if let Some(user) = self.checked.and_then(RequestContext::user) {
                    add(user.as_bytes());
                }
            }
            b"client-cert" => {
                if let Some(certificate) = self.certificate {
                    add(certificate.client_cert().as_bytes());
                }
            }
            b"client-cert-chain" => {
                if let Some(certificate) = self.certificate {
                    add(certificate.client_cert_chain().as_bytes());
                }
            }
            name if self.fields.is_address(name) => {
                let address = self.address.get_or_init(|| self.client.address.to_string());
                add(address.as_bytes());
            }
            _ => {}
        }
        true
    }

    fn is_listed(&self, name: &[u8]) -> bool {
        let values = self.request.values(FieldName::Connection);
        let mut options = values.flat_map(|value| value.split(|&byte| byte == b','));
        options.any(|option| option.trim_ascii().eq_ignore_ascii_case(name))
    }
}
