//! A QUIC connection with its TLS session.

use std::io;

use dunlin_config::Config;
use dunlin_net::address::SocketAddresses;
use dunlin_quic::Connection;
use dunlin_tls::{Certificates, Policy, PolicyMatch, QuicSession, TlsInfo};

use crate::exchange::link::Carrier;

/// What carries an HTTP/3 connection.
pub(crate) struct QuicCarrier {
    pub(crate) connection: Connection,
    pub(crate) session: QuicSession,
}

impl Carrier for QuicCarrier {
    fn ends(&self) -> io::Result<Option<SocketAddresses>> {
        let local = self.connection.local();
        Ok(local.map(|local| SocketAddresses { remote: self.connection.remote(), local }))
    }

    fn policy(&self) -> Policy {
        self.session.policy()
    }

    fn tls(&self) -> Option<TlsInfo> {
        Some(self.session.tls())
    }

    fn renew_policy(&mut self, config: &Config, certificates: &Certificates) -> PolicyMatch {
        self.session.renew_policy(config, certificates)
    }
}
