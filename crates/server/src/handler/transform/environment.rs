//! The variables of server-side includes.

use std::rc::Rc;

use dunlin_http::FieldName;
use dunlin_http::semantics::path::with_slashes;
use dunlin_net::address::Peer;
use dunlin_transform::ssi::Environment;
use percent_encoding::percent_decode;

use crate::handler::call::HandlerCall;

/// The variables of a request. Those of CGI also have their names of nginx.
pub(super) struct PageEnvironment {
    call: Rc<HandlerCall>,
    last_modified: Option<u64>,
}

/// The variables that every request has, for `printenv`.
const NAMES: [&str; 15] = [
    "DATE_GMT",
    "DATE_LOCAL",
    "DOCUMENT_NAME",
    "DOCUMENT_URI",
    "HTTPS",
    "LAST_MODIFIED",
    "QUERY_STRING",
    "QUERY_STRING_UNESCAPED",
    "REMOTE_ADDR",
    "REMOTE_USER",
    "REQUEST_METHOD",
    "REQUEST_SCHEME",
    "REQUEST_URI",
    "SERVER_NAME",
    "SERVER_PROTOCOL",
];

impl PageEnvironment {
    pub(super) fn new(call: Rc<HandlerCall>, last_modified: Option<u64>) -> Self {
        Self { call, last_modified }
    }

    fn query(&self) -> &[u8] {
        self.call.matched.query.as_deref().unwrap_or_default()
    }

    /// Returns the value of a parameter of the query, as it was sent.
    fn parameter(&self, name: &str) -> Option<String> {
        let mut pairs = self.query().split(|&byte| byte == b'&');
        pairs.find_map(|pair| {
            let end = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
            let is_it = pair[..end].eq_ignore_ascii_case(name.as_bytes());
            is_it.then(|| text(pair.get(end + 1..).unwrap_or_default()))
        })
    }

    /// Returns the value of a field whose name is written with underscores.
    fn field(&self, name: &str) -> Option<String> {
        let is_it = |field: &[u8]| {
            field.len() == name.len()
                && field.iter().zip(name.bytes()).all(|(byte, other)| match byte {
                    b'-' => other == b'_',
                    byte => byte.eq_ignore_ascii_case(&other),
                })
        };
        let request = self.call.request();
        let mut fields = request.fields().filter(|(name, _)| is_it(name));
        fields.next().map(|(_, value)| text(value))
    }
}

impl Environment for PageEnvironment {
    fn variable(&self, name: &str) -> Option<String> {
        let request = self.call.request();
        let client = self.call.client();
        let path = || with_slashes(&self.call.matched.path);
        Some(match name {
            "DOCUMENT_URI" | "document_uri" | "uri" => text(&path()),
            "DOCUMENT_NAME" => {
                let path = path();
                text(path.rsplit(|&byte| byte == b'/').next().unwrap_or_default())
            }
            "QUERY_STRING" | "query_string" | "args" => text(self.query()),
            "QUERY_STRING_UNESCAPED" => {
                percent_decode(self.query()).decode_utf8_lossy().into_owned()
            }
            "REQUEST_METHOD" | "request_method" => text(request.method_text()),
            "REQUEST_URI" | "request_uri" => text(request.target()),
            "REQUEST_SCHEME" | "scheme" => {
                if client.encrypted { "https" } else { "http" }.to_owned()
            }
            "HTTPS" | "https" if client.encrypted => "on".to_owned(),
            "SERVER_NAME" | "host" => {
                let host = request.field(FieldName::Host)?;
                text(dunlin_http::semantics::host::parse(host)?.name)
            }
            "SERVER_PROTOCOL" | "server_protocol" => request.version().as_str().to_owned(),
            "REMOTE_ADDR" | "remote_addr" => match client.address {
                Peer::Ip(address) => address.to_string(),
                Peer::Unix => return None,
            },
            "REMOTE_USER" | "remote_user" => self.call.context.as_ref()?.user()?.to_owned(),
            name => {
                if let Some(parameter) = name.strip_prefix("arg_") {
                    return self.parameter(parameter);
                }
                let field = name.strip_prefix("HTTP_").or_else(|| name.strip_prefix("http_"))?;
                return self.field(field);
            }
        })
    }

    fn names(&self) -> Vec<String> {
        let request = self.call.request();
        let fields = request.fields().map(|(name, _)| {
            let name = text(name).to_ascii_uppercase().replace('-', "_");
            format!("HTTP_{name}")
        });
        // What authenticates the client is not shown.
        let secret = ["HTTP_AUTHORIZATION", "HTTP_COOKIE", "HTTP_PROXY_AUTHORIZATION"];
        let shown = fields.filter(|name| !secret.contains(&&**name));
        NAMES.into_iter().map(str::to_owned).chain(shown).collect()
    }

    fn now(&self) -> u64 {
        self.call.ctx.clock.unix()
    }

    fn last_modified(&self) -> Option<u64> {
        self.last_modified
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
