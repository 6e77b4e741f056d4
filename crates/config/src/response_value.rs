//! Values of a response that fields name: `{status}`, `{upstream}`, `{response.X-Kind}`.

use std::fmt;

use dunlin_http::semantics::is_token;

/// Declares the values with their names. The doc comments are their meanings in the book.
macro_rules! values {
    ($($(#[$meaning:meta])+ $variant:ident = $name:literal,)*) => {
        /// A value that is known once there is a response.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum ResponseValue {
            $($(#[$meaning])+ $variant,)*
            /// The values of a field of the response, as its handler sends it, separated by `, `.
            Field(Box<str>),
            /// The value of a cookie that the handler sets.
            Cookie(Box<str>),
        }

        impl ResponseValue {
            fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for ResponseValue {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($name),)*
                    Self::Field(name) => write!(f, "response.{name}"),
                    Self::Cookie(name) => write!(f, "response_cookie.{name}"),
                }
            }
        }
    };
}

values! {
    /// Status.
    Status = "status",
    /// User that was authenticated.
    User = "user",
    /// Upstream that got the request last, as in the configuration.
    Upstream = "upstream",
    /// Address of that upstream: host and port, or `unix:` and the path.
    UpstreamAddress = "upstream_address",
    /// Result of the file cache or the response cache, as in the access log; empty without one.
    Cache = "cache",
    /// Result of the response cache as nginx names it: `HIT`, `MISS`, `STALE`, `REVALIDATED`; empty without one.
    CacheStatus = "cache_status",
    /// Body of the request, if it has at most 16 KiB and its handler has received it.
    RequestBody = "request_body",
    /// Serial number of the connection.
    Connection = "connection",
    /// Number of requests of the connection so far.
    ConnectionRequests = "connection_requests",
    /// Port of the client.
    ClientPort = "client_port",
    /// Address of the server that the client has connected to.
    ServerAddress = "server_address",
    /// Port of the server that the client has connected to.
    ServerPort = "server_port",
    /// Time of the response, as in the field `Date`.
    Date = "date",
    /// Seconds that the upstream took, as `0.004`; empty without one.
    UpstreamTime = "upstream_time",
    /// ID of the request, which the access log has as well where a script or an upstream gets it.
    RequestId = "request_id",
    /// Version of TLS, as `TLSv1.3`.
    TlsProtocol = "tls_protocol",
    /// Cipher suite.
    TlsCipher = "tls_cipher",
    /// Subject of the client's certificate.
    TlsClientSubject = "tls_client_subject",
    /// `SUCCESS` with a verified client certificate, `NONE` without one.
    TlsClientVerify = "tls_client_verify",
    /// Name of the server that the client has sent (SNI).
    TlsServerName = "tls_server_name",
    /// `r` if the client has resumed a session of TLS, `.` if it has not.
    TlsResumed = "tls_resumed",
}

impl ResponseValue {
    /// Returns the value of that name; `None` if there is none.
    pub fn parse(name: &str) -> Option<Self> {
        let token = |name: &str| is_token(name.as_bytes()).then(|| name.into());
        match name.split_once('.') {
            Some(("response", field)) => token(field).map(Self::Field),
            Some(("response_cookie", cookie)) => token(cookie).map(Self::Cookie),
            Some(_) => None,
            None => Self::named(name),
        }
    }

    /// Returns `true` if the value is one of the addresses of the connection.
    pub fn is_address(&self) -> bool {
        matches!(self, Self::ClientPort | Self::ServerAddress | Self::ServerPort)
    }
}

/// Returns the names of the values of responses in a text.
pub(super) fn names(text: &str) -> Vec<&str> {
    let inner = text.match_indices('{').filter_map(|(start, _)| {
        let rest = &text[start + 1..];
        Some(&rest[..rest.find('}')?])
    });
    inner.filter(|name| ResponseValue::parse(name).is_some()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_names() {
        for name in [
            "status",
            "upstream_address",
            "response.X-Kind",
            "response_cookie.a",
            "tls_client_verify",
        ] {
            assert_eq!(ResponseValue::parse(name).unwrap().to_string(), name);
        }
        assert_eq!(ResponseValue::parse("response.a b"), None);
        assert_eq!(names("{status} {path} {{cache} {a"), ["status", "cache"]);
    }
}
