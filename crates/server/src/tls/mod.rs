//! TLS: certificates, handshakes and sessions.

mod acme;
mod certificate;
mod certificates;
mod clock;
mod coverage;
mod handshake;
mod info;
mod policy;
mod seal;
mod session;
mod stamp;
mod status;
mod trust;

pub(crate) use self::certificates::{Certificates, examine};
pub(crate) use self::coverage::shortcomings;
pub(crate) use self::handshake::{Standing, handshake};
pub(crate) use self::info::TlsInfo;
pub(crate) use self::policy::Policy;
pub(crate) use self::session::Session;
pub(crate) use self::status::CertificateStatus;
pub(crate) use self::trust::client_config;
