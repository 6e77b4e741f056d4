//! What a route asks of the encryption of its requests.

use dunlin_http::FieldName;
use dunlin_http::semantics::host;
use dunlin_http::semantics::target::{self, Target};

use super::{Asker, Refused, Verdict};

/// What a route asks of the encryption of its requests.
#[derive(Debug, Default)]
pub(crate) struct Https {
    /// The value of `Strict-Transport-Security` (RFC 6797 §6.1).
    pub(crate) strict: Option<String>,
    /// The port to which requests without TLS are sent.
    pub(crate) redirect: Option<u16>,
}

impl Https {
    pub(super) fn describe(&self) -> impl Iterator<Item = (&'static str, String)> {
        let strict = self.strict.iter().map(|value| ("hsts", value.clone()));
        strict.chain(self.redirect.map(|port| ("redirect_https", format!("to port {port}"))))
    }

    pub(super) fn ask(&self, asker: &Asker<'_, '_>) -> Verdict {
        if asker.pass.client.encrypted {
            // RFC 6797 §7.2: nowhere but there.
            if let Some(value) = &self.strict {
                asker.pass.add_field("Strict-Transport-Security", value);
            }
            return Verdict::Pass;
        }
        match self.redirect {
            Some(port) => Verdict::Refuse(elsewhere(asker, port)),
            None => Verdict::Pass,
        }
    }
}

/// The same target by https.
fn elsewhere(asker: &Asker<'_, '_>, port: u16) -> Refused {
    let field = asker.request.field(FieldName::Host);
    let named = field.and_then(host::parse).map(|host| host.name).filter(|name| !name.is_empty());
    let Some(name) = named else {
        // Nobody knows where.
        return Refused::new(400);
    };
    let mut location = [b"https://", name].concat();
    if port != 443 {
        location.extend_from_slice(format!(":{port}").as_bytes());
    }
    let (path, query) = match target::parse(asker.request.method(), asker.request.target()) {
        Ok(Target::Origin { path, query } | Target::Absolute { path, query, .. }) => (path, query),
        _ => return Refused::new(400),
    };
    location.extend_from_slice(path);
    if let Some(query) = query {
        location.push(b'?');
        location.extend_from_slice(query);
    }
    Refused::new(308).with("Location", location)
}
