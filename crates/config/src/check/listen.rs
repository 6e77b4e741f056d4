//! Checks of the tables `[[listen]]`.

use super::Checker;
use crate::address::{Address, not_an_address, parse_address};
use crate::file::{self, File};
use crate::listen::Listen;
use crate::spanned::Spanned;

impl Checker<'_> {
    pub(super) fn listen(&mut self, file: &File) -> Vec<Listen> {
        let mut all: Vec<Listen> = Vec::new();
        for listen in &file.listen {
            let place = &listen.address.span;
            let addresses = parse_address(&listen.address);
            if addresses.is_empty() {
                self.problem(place, not_an_address(&listen.address));
            }
            let tls = listen.tls.as_deref().copied().unwrap_or(false);
            let is_tcp = addresses.iter().any(|address| matches!(address, Address::Tcp(_)));
            let proxies = file.server.trusted_proxies.as_deref().unwrap_or_default();
            if listen.proxy_protocol == Some(true) && is_tcp && proxies.is_empty() {
                let what = "proxy_protocol without trusted_proxies: every client of this port can choose its address; \
                            write trusted_proxies = [\"ADDRESS\"] into [server]";
                self.warn(place, what);
            }
            for address in addresses {
                let address = self.endpoint(listen, address);
                let chosen_later = matches!(&address, Address::Tcp(tcp) if tcp.port() == 0);
                if !chosen_later && all.iter().any(|other| other.address == address) {
                    self.problem(place, format!("{address} is listened on twice"));
                }
                all.push(Listen {
                    address,
                    mode: self.mode(listen),
                    backlog: listen.backlog.map_or(4096, i32::from),
                    tls,
                    http2: listen.http2.unwrap_or(true),
                    admin: false,
                    proxy_protocol: listen.proxy_protocol.unwrap_or(false),
                });
            }
        }
        if let Some(path) = &file.server.admin {
            let address = Address::Unix(self.absolute(path));
            if all.iter().any(|other| other.address == address) {
                self.problem(&path.span, format!("{address} is listened on twice"));
            }
            let commands = Listen {
                address,
                mode: 0o600,
                backlog: 128,
                tls: false,
                http2: false,
                proxy_protocol: false,
                admin: true,
            };
            all.push(commands);
        }
        all
    }

    /// Returns the address, and reports errors in the rest of its table.
    pub(super) fn endpoint(&mut self, listen: &file::ListenTable, address: Address) -> Address {
        let Address::Unix(path) = address else {
            if let Some(mode) = &listen.mode {
                self.problem(&mode.span, "mode belongs to a Unix socket");
            }
            return address;
        };
        if let Some(tls) = listen.tls.as_ref().filter(|tls| tls.value) {
            self.problem(&tls.span, "tls: a Unix socket cannot use TLS");
        }
        let path = Spanned { value: path, span: listen.address.span.clone() };
        Address::Unix(self.socket_path("address", &path))
    }

    pub(super) fn mode(&mut self, listen: &file::ListenTable) -> u32 {
        let Some(text) = &listen.mode else { return 0o660 };
        let octal = text.bytes().all(|digit| matches!(digit, b'0'..=b'7'));
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| octal && *mode <= 0o777);
        mode.unwrap_or_else(|| {
            let what = format!("mode: {:?} is not octal digits such as \"0660\"", text.value);
            self.problem(&text.span, what);
            0
        })
    }
}
