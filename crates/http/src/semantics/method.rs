//! Request methods (RFC 9110 §9).

/// A request method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the method of that name")]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Trace,
    Connect,
    /// CONNECT with `:protocol` (RFC 8441): it requests a tunnel to the resource of its path, as GET with `Upgrade` does
    /// in HTTP/1.1. No name gives this variant.
    ExtendedConnect,
    Patch,
    /// Any other token.
    Other,
}

impl Method {
    /// Creates the method with that name. Names are case-sensitive.
    #[inline]
    pub fn from_bytes(name: &[u8]) -> Self {
        match name {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"OPTIONS" => Self::Options,
            b"TRACE" => Self::Trace,
            b"CONNECT" => Self::Connect,
            b"PATCH" => Self::Patch,
            _ => Self::Other,
        }
    }

    /// Returns the name; `_OTHER` for unknown methods, as OpenTelemetry prescribes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Trace => "TRACE",
            Self::Connect | Self::ExtendedConnect => "CONNECT",
            Self::Patch => "PATCH",
            Self::Other => "_OTHER",
        }
    }

    /// Returns `true` if the method is safe: read-only by definition (RFC 9110 §9.2.1).
    pub fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options | Self::Trace)
    }

    /// Returns `true` if the method is idempotent: repeated requests have the effect of one (RFC 9110 §9.2.2). An extended
    /// CONNECT is, as the GET that it is equivalent to.
    pub fn is_idempotent(self) -> bool {
        self.is_safe() || matches!(self, Self::Put | Self::Delete | Self::ExtendedConnect)
    }
}
