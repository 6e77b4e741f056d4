//! The fields of a request as an upstream gets them, by their names: for a cache that selects responses by them
//! (RFC 9111 §4.1).

use std::cell::OnceCell;

use dunlin_config::{UpstreamHost, is_other_spelling};
use dunlin_http::{FieldLines, FieldName};
use dunlin_tls::ClientCertificate;

use crate::call::Call;
use crate::hop_fields::is_listed;
use crate::request::{Facts, SET_BY_SERVER, add_server_fields, is_kept, is_set_by_checks};
use crate::target;

/// A request as an upstream gets it, before it is sent.
pub struct Sent<'a> {
    call: Call<'a>,
    certificate: Option<&'a ClientCertificate>,
    /// The fields that the server sets; made when the first one is requested.
    by_server: OnceCell<FieldLines>,
    /// The values of `set_request_fields`; made when the first one is requested.
    set: OnceCell<Vec<Vec<u8>>>,
}

impl<'a> Sent<'a> {
    /// Creates the request of `call`, of a client with that certificate, without a body.
    pub fn new(call: Call<'a>, certificate: Option<&'a ClientCertificate>) -> Self {
        Self { call, certificate, by_server: OnceCell::new(), set: OnceCell::new() }
    }

    /// Returns the request without what the proxy changes.
    pub fn call(&self) -> &Call<'a> {
        &self.call
    }

    /// Returns `true` if the upstream learns of a verified certificate of the client.
    pub fn names_certificate(&self) -> bool {
        self.certificate.is_some() && self.call.group.rules().forward_client_certificate.is_some()
    }

    /// Calls `add` with the value of each line of the field `name`, which is in lower case. Returns `false` if the values are
    /// those of one message or of one upstream, or if the upstream gets another spelling of the name, which it may take for the
    /// same: no response can be selected by them.
    pub fn each_line<'s>(&'s self, name: &[u8], mut add: impl FnMut(&'s [u8])) -> bool {
        let rules = self.call.group.rules();
        let is_it = |other: &[u8]| other.eq_ignore_ascii_case(name);
        // The last one of a name counts, as for the request itself.
        let set = rules.set_request_fields.iter().rposition(|field| is_it(field.name.as_bytes()));
        if let Some(value) = set.and_then(|at| self.set().get(at)) {
            if !value.is_empty() {
                add(value);
            }
            return true;
        }
        if matches!(name, b"connection" | b"traceparent") || self.has_other_spelling(name) {
            return false;
        }
        // Another name than the client's is that of the upstream.
        let is_host = name == b"host" && rules.host == UpstreamHost::Client;
        if is_host {
            self.call.request.values(FieldName::Host).for_each(&mut add);
        }
        let of_client = rules.passes_fields
            && is_kept(&self.call, &self.facts(), name)
            && !is_listed(&self.call.request, name);
        if of_client {
            let lines = self.call.request.fields().filter(|(other, _)| is_it(other));
            lines.for_each(|(_, value)| add(value));
        }
        if SET_BY_SERVER.contains(&name) || is_set_by_checks(&self.call, name) {
            let lines = self.by_server().iter().filter(|(other, _)| is_it(other));
            lines.for_each(|(_, value)| add(value));
        }
        true
    }

    /// Returns `true` if the upstream gets a field whose name is another spelling of `name`.
    fn has_other_spelling(&self, name: &[u8]) -> bool {
        let rules = self.call.group.rules();
        let is_sent = |other: &[u8]| {
            is_other_spelling(name, other)
                && is_kept(&self.call, &self.facts(), &other.to_ascii_lowercase())
                && !is_listed(&self.call.request, other)
        };
        self.call.request.fields().any(|(other, _)| is_sent(other))
            || rules
                .set_request_fields
                .iter()
                .any(|field| is_other_spelling(name, field.name.as_bytes()))
    }

    fn facts(&self) -> Facts<'a> {
        Facts {
            certificate: self.certificate,
            is_early: self.call.client.early,
            has_trailers: false,
            traceparent: None,
        }
    }

    fn set(&self) -> &[Vec<u8>] {
        self.set.get_or_init(|| {
            let all = self.call.group.rules().set_request_fields.iter();
            all.map(|field| self.call.field_value(field).into_owned()).collect()
        })
    }

    fn by_server(&self) -> &FieldLines {
        self.by_server.get_or_init(|| {
            let (_, prefix) = target::of_call(&self.call);
            let mut fields = FieldLines::new();
            add_server_fields(&self.call, &self.facts(), prefix.as_deref(), &mut fields);
            fields
        })
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use dunlin_config::ForwardedField;
    use dunlin_exchange::{Client, RequestContext, Scheme};
    use dunlin_http::{Head, Limits, OwnedRequest, Request, http1};
    use dunlin_net::address::Peer;
    use dunlin_net::deadlines::Deadlines;
    use dunlin_tls::Policy;

    use super::*;
    use crate::group::Group;
    use crate::pool::WorkerProxy;
    use crate::request::fields;
    use crate::testing::rules;

    fn request(lines: &str) -> OwnedRequest {
        let text = format!("GET /app/x HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n");
        let mut head = Head::default();
        let length =
            http1::Http1Connection::default().head(text.as_bytes(), &Limits::default(), &mut head);
        assert_eq!(length.ok().flatten(), Some(text.len()), "{text}");
        Request::new(text.as_bytes(), &head).to_owned()
    }

    fn lines(fields: &FieldLines, name: &str) -> Vec<String> {
        let is_it = |(other, _): &(&[u8], &[u8])| other.eq_ignore_ascii_case(name.as_bytes());
        let text = |(_, value): (&[u8], &[u8])| String::from_utf8_lossy(value).into_owned();
        fields.iter().filter(is_it).map(text).collect()
    }

    #[test]
    fn no_response_is_selected_by_a_field_that_the_upstream_gets_in_another_spelling() {
        let worker = WorkerProxy::new(&Rc::new(Deadlines::new(Rc::default())));
        let forwarded_field = ForwardedField::default();
        let groups = [
            "",
            ", set_request_fields = { X-Lang = 'ours' }",
            ", set_request_fields = { X_Lang = '' }",
        ]
        .map(|keys| Group::new(&rules(&format!("to = 'http://b.test'{keys}"))));
        for (lines_of_client, group, name, is_known) in [
            ("X-Lang: de\r\n", 0, "x-lang", true),
            ("X_Lang: de\r\n", 0, "x-lang", false),
            ("X.Lang: de\r\n", 0, "x-lang", false),
            ("X-Lang: de\r\nX_LANG: de\r\n", 0, "x-lang", false),
            ("X-Lang: de\r\n", 0, "x_lang", false),
            ("Connection: x_lang\r\nX_Lang: de\r\n", 0, "x-lang", true),
            ("X_Real_IP: 192.0.2.1\r\n", 0, "x-real-ip", true),
            ("X_Lang: de\r\n", 1, "x-lang", true),
            ("X-Lang: de\r\n", 2, "x-lang", false),
        ] {
            let request = request(lines_of_client);
            let client = Client {
                listener: 0,
                address: Peer::of(([192, 0, 2, 1], 1).into()),
                encrypted: false,
                early: false,
                via_proxy: false,
                is_subrequest: false,
                policy: Policy::EXEMPT,
            };
            let call = Call {
                worker: &worker,
                group: &groups[group],
                request: request.as_request(),
                raw_path: b"/app/x",
                path: b"/app/x",
                query: None,
                client,
                checked: None,
                user_fields: &[],
                forwarded_field: &forwarded_field,
                script_context: None,
            };
            let sent = Sent::new(call, None);
            assert_eq!(sent.each_line(name.as_bytes(), |_| {}), is_known, "{lines_of_client}");
            let fields = fields(sent.call(), &sent.facts(), None, (false, None));
            assert!(group == 0 || lines(&fields, "X_Lang").is_empty(), "{lines_of_client}");
        }
    }

    #[test]
    fn a_cache_sees_the_fields_that_the_upstream_gets() {
        const NAMES: [&str; 24] = [
            "accept",
            "authorization",
            "client-cert",
            "client_cert",
            "cookie",
            "early-data",
            "forwarded",
            "keep-alive",
            "origin",
            "proxy-authorization",
            "remote-user",
            "remote_user",
            "te",
            "trailer",
            "upgrade",
            "via",
            "x-a",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-prefix",
            "x-forwarded-proto",
            "x-real-ip",
            "x-set",
            "x-user",
        ];
        let all: String = NAMES.iter().map(|name| format!("{name}: trailers\r\n")).collect();
        let twice = format!("{all}{all}");
        let hidden: Vec<_> =
            NAMES.iter().map(|name| format!("Connection: x, {name}\r\n{all}")).collect();
        let requests = ["", &all, &twice].into_iter().chain(hidden.iter().map(String::as_str));
        let keys = [
            "to = 'http://b.test'",
            "to = 'http://b.test', strip = '/app', host = 'upstream'",
            "to = 'http://b.test', set_request_fields = { X-Set = '{client} {scheme}://{host}:{port}{target} {other}', Origin = '{user}', via = 'x' }",
        ];
        let groups = keys.map(|keys| Group::new(&rules(keys)));
        let worker = WorkerProxy::new(&Rc::new(Deadlines::new(Rc::default())));
        let (forwarded_field, user_fields) = (ForwardedField::default(), ["x-user".to_owned()]);
        for lines_of_client in requests {
            let request = request(lines_of_client);
            for number in 0..24 {
                let client = Client {
                    listener: 0,
                    address: Peer::of(([192, 0, 2, 1], 1).into()),
                    encrypted: number % 2 == 0,
                    early: number % 2 == 0,
                    via_proxy: number % 4 < 2,
                    is_subrequest: false,
                    policy: Policy::EXEMPT,
                };
                let checked = RequestContext::new(client);
                if number >= 8 {
                    let scheme = if number < 16 { Scheme::Basic } else { Scheme::Forward };
                    checked.set_user("alpha", scheme);
                }
                let call = Call {
                    worker: &worker,
                    group: &groups[number % 3],
                    request: request.as_request(),
                    raw_path: b"/app/x",
                    path: b"/app/x",
                    query: None,
                    client,
                    checked: Some(&checked),
                    user_fields: &user_fields,
                    forwarded_field: &forwarded_field,
                    script_context: None,
                };
                let sent = Sent::new(call, None);
                let (_, prefix) =
                    target::target(sent.call.group.rules(), b"/app/x", b"/app/x", None);
                for is_http2 in [false, true] {
                    let fields =
                        fields(&sent.call, &sent.facts(), prefix.as_deref(), (is_http2, None));
                    for name in NAMES {
                        let mut seen: Vec<String> = Vec::new();
                        let add = |line: &[u8]| seen.push(String::from_utf8_lossy(line).into());
                        assert!(sent.each_line(name.as_bytes(), add));
                        // A cache joins the lines of cookies as the request does.
                        if name == "cookie" && !seen.is_empty() {
                            seen = vec![seen.join("; ")];
                        }
                        assert_eq!(seen, lines(&fields, name), "{name} of {lines_of_client}");
                    }
                }
            }
        }
    }
}
