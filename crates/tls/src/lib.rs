//! TLS of a server: the certificates of sites, handshakes, sessions, and the byte stream of a connection with or without
//! encryption.
//!
//! # Certificates
//! [`Certificates`] has the certificates of all sites of a configuration. It follows changes of their files, obtains and
//! renews certificates by ACME (RFC 8555), and reports the [`CertificateStatus`] of each. [`examine`] and [`shortcomings`]
//! check certificates without a server.
//!
//! # Connections
//! [`handshake()`] selects the certificate by the server name of the client and returns a [`Session`]. [`Transport`] is the
//! byte stream that a protocol adapter reads from and writes to, whether there is a session or not.
//!
//! # Policies
//! A [`Policy`] is what a site requires of a handshake: versions, cipher suites, client certificates. A client may name one
//! site in the handshake and another one in a request. The caller has to compare [`Transport::policy`] with
//! [`Certificates::policy`] for each request, and reject the request if they differ (421, RFC 9110 §15.5.20).
//! After a reload [`Transport::renew_policy`] compares the handshake with the new configuration.
//!
//! # Contract
//! A session belongs to one thread. All operations are non-blocking; a session buffers ciphertext only while the socket
//! does not take all of it, so a caller of [`Session::write`] has to call [`Session::make_room`] first:
//!
//! ```
//! use std::io::{self, IoSlice};
//!
//! use dunlin_tls::Session;
//!
//! /// Encrypts and sends `bytes`; false when the socket has no room.
//! fn send(session: &mut Session, bytes: &[u8]) -> io::Result<bool> {
//!     if !session.make_room()? {
//!         return Ok(false);
//!     }
//!     session.write(&[IoSlice::new(bytes)])?;
//!     Ok(true)
//! }
//! # drop(send);
//! ```

mod acme;
mod certificate;
mod certificates;
mod client_rejection;
mod clock;
mod file_stamp;
mod handshake;
mod info;
mod kept_sessions;
mod name_check;
mod pem;
mod policy;
mod quic;
mod record_cipher;
mod record_writer;
mod session;
mod shared_tickets;
mod site;
mod status;
mod transport;
mod trust;
mod trusted_itself;

pub use self::acme::challenges::{Challenges, Published};
pub use self::acme::storage::{Pending, SharedChallenge, SharedStorage, certificates_were_stored};
pub use self::certificate::check_pair;
pub use self::certificates::{Certificates, examine};
pub use self::client_rejection::client_rejection;
pub use self::handshake::{Listener, PolicyMatch, handshake};
pub use self::info::{ClientCertificate, TlsInfo};
pub use self::name_check::shortcomings;
pub use self::policy::Policy;
pub use self::quic::{QuicSession, QuicSites};
pub use self::session::Session;
pub use self::shared_tickets::{TicketSecret, set_ticket_secrets};
pub use self::status::{CertificateStatus, RenewalFailure};
pub use self::transport::Transport;
pub use self::trust::{Trust, client_config, client_config_besides, client_config_with};
pub use rustls::ClientConfig;
