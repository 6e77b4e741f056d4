//! Why a request has no response of an upstream.

use std::io;

use dunlin_client::{Error, ErrorKind, Phase};

/// Why a request has no response of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub(crate) kind: Kind,
    pub(crate) reason: String,
}

/// The part of a request that has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The upstream's name has no address.
    Resolve,
    /// The upstream has rejected the connection.
    Refused,
    /// There is no route to the upstream.
    Unreachable,
    /// The upstream's Unix socket does not exist, or the server may not use it.
    NoSocket,
    ConnectTimeout,
    Tls,
    /// All connections are in use.
    Busy,
    /// The connection ended before the response did.
    Lost,
    /// The upstream has stated that it did not process the request.
    Unprocessed,
    /// The connection ended within the response.
    Incomplete,
    /// The response is not valid HTTP.
    Malformed,
    /// The response has a status after which another upstream gets the request.
    Unwanted,
    ResponseTimeout,
    /// The upstream did not take the request.
    WriteTimeout,
    /// The server cannot forward the request as it is configured.
    Configuration,
    /// The request came through this server already.
    Loop,
    /// The upstream has not switched to the protocol of an extended CONNECT.
    Upgrade,
    /// The upstreams have no tunnels for the request.
    NoTunnel,
    /// The request cannot be sent to an upstream.
    Request,
    /// The client has left, or its body is incomplete.
    Client,
}

impl Failure {
    pub(crate) fn new(kind: Kind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }

    /// Returns the response of the upstream cannot be used: the reason.
    #[must_use]
    pub fn malformed(reason: String) -> Self {
        Self::new(Kind::Malformed, reason)
    }

    /// Returns the failure that an error of the client means.
    pub(crate) fn of_client(error: &Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::Resolve => Kind::Resolve,
            ErrorKind::Connect if error.io_kind() == Some(io::ErrorKind::ConnectionRefused) => {
                Kind::Refused
            }
            ErrorKind::Connect => match error.io_kind() {
                Some(io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => Kind::NoSocket,
                _ => Kind::Unreachable,
            },
            ErrorKind::Tls => Kind::Tls,
            ErrorKind::Timeout(Phase::Connect | Phase::Tls) => Kind::ConnectTimeout,
            ErrorKind::Timeout(_) => Kind::ResponseTimeout,
            _ if error.is_unprocessed() => Kind::Unprocessed,
            ErrorKind::Connection if error.is_without_response() => Kind::Lost,
            ErrorKind::Connection => Kind::Incomplete,
            ErrorKind::RequestBody => Kind::Client,
            ErrorKind::InvalidRequest => Kind::Request,
            _ => Kind::Malformed,
        };
        Self::new(kind, error.reason())
    }

    /// Returns the status of the response.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self.kind {
            Kind::ConnectTimeout | Kind::ResponseTimeout | Kind::WriteTimeout => 504,
            Kind::Busy => 503,
            Kind::Configuration => 500,
            Kind::NoTunnel => 501,
            Kind::Request | Kind::Client => 400,
            _ => 502,
        }
    }

    /// Returns the value of `Proxy-Status` (RFC 9209).
    #[must_use]
    pub fn proxy_status(&self) -> String {
        format!("dunlin; error={}", self.error_type())
    }

    /// Returns the type of the error (RFC 9209 §2.3).
    fn error_type(&self) -> &'static str {
        match self.kind {
            Kind::Resolve => "dns_error",
            Kind::Refused => "connection_refused",
            Kind::Unreachable => "destination_ip_unroutable",
            Kind::NoSocket => "destination_unavailable",
            Kind::ConnectTimeout => "connection_timeout",
            Kind::Tls => "tls_protocol_error",
            Kind::Busy => "connection_limit_reached",
            Kind::Lost | Kind::Unprocessed => "connection_terminated",
            Kind::Incomplete => "http_response_incomplete",
            Kind::Malformed | Kind::Unwanted => "http_protocol_error",
            Kind::ResponseTimeout => "http_response_timeout",
            Kind::WriteTimeout => "connection_write_timeout",
            Kind::Configuration => "proxy_configuration_error",
            Kind::Upgrade | Kind::NoTunnel => "http_upgrade_failed",
            Kind::Loop => "proxy_loop_detected",
            Kind::Request | Kind::Client => "http_request_error",
        }
    }

    /// Returns the reason for the error log.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns `true` if another upstream gets the request because of the status of the response.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.kind == Kind::Unwanted
    }

    /// Returns `true` if nothing of the request was sent, so that another upstream can get it.
    pub(crate) fn is_before_request(&self) -> bool {
        matches!(
            self.kind,
            Kind::Resolve
                | Kind::Refused
                | Kind::Unreachable
                | Kind::NoSocket
                | Kind::ConnectTimeout
                | Kind::Tls
                | Kind::Unprocessed
        )
    }

    /// Returns `true` if a request with an idempotent method may be sent again.
    pub(crate) fn may_be_repeated(&self) -> bool {
        matches!(
            self.kind,
            Kind::Lost | Kind::Incomplete | Kind::ResponseTimeout | Kind::WriteTimeout | Kind::Busy
        )
    }

    /// Returns `true` if the upstream is the cause.
    pub(crate) fn is_of_upstream(&self) -> bool {
        !matches!(
            self.kind,
            Kind::Request
                | Kind::Client
                | Kind::Loop
                | Kind::Configuration
                // Its status was noted.
                | Kind::Unwanted
                // The path decides, which is the client's choice.
                | Kind::Upgrade
                | Kind::NoTunnel
        )
    }
}
