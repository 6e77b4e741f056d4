//! Checks of the tables `[[listen]]`.

use sha2::{Digest, Sha256};

use super::Checker;
use crate::address::{Address, not_an_address, parse_address};
use crate::file::{File, ListenTable, OneOrMany};
use crate::listen::{Http3, Listen};
use crate::spanned::Spanned;

impl Checker<'_> {
    /// Returns the listeners, and for each the index of its table.
    pub(super) fn listen(&mut self, file: &File) -> (Vec<Listen>, Vec<usize>) {
        let mut all: Vec<Listen> = Vec::new();
        let mut tables = Vec::new();
        for (table, listen) in file.listen.iter().enumerate() {
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
                let same = all.iter().position(|other| other.address == address);
                if let Some(at) = same.filter(|_| !chosen_later) {
                    let first = tables.get(at).and_then(|&table: &usize| file.listen.get(table));
                    let first = first.map_or_else(String::new, |of| self.first(&of.address.span));
                    self.problem(
                        place,
                        format!("two [[listen]] have the address {address}{first}"),
                    );
                }
                let number = number(&address, &all);
                let http3 = self.http3(listen, &address, tls);
                tables.push(table);
                all.push(Listen {
                    number,
                    address,
                    mode: self.mode(listen),
                    backlog: listen.backlog.map_or(4096, i32::from),
                    tls,
                    http2: listen.http2.unwrap_or(true),
                    http3,
                    admin: false,
                    proxy_protocol: listen.proxy_protocol.unwrap_or(false),
                });
            }
        }
        if let Some(path) = &file.server.admin {
            let address = Address::Unix(self.absolute(path));
            if all.iter().any(|other| other.address == address) {
                self.problem(&path.span, format!("a [[listen]] also has the address {address}"));
            }
            let commands = Listen {
                number: 0,
                address,
                mode: 0o600,
                backlog: 128,
                tls: false,
                http2: false,
                http3: Http3::Off,
                proxy_protocol: false,
                admin: true,
            };
            all.push(commands);
        }
        (all, tables)
    }

    /// Returns the indexes of the tables `[[listen]]` that a site names by `listen`.
    pub(super) fn listeners_of_site(
        &mut self,
        names: &Spanned<OneOrMany<String>>,
        tables: &[ListenTable],
    ) -> Vec<usize> {
        let mut found = Vec::new();
        for name in &names.value.0 {
            let is_meant = |table: &ListenTable| {
                let is_named = table.name.as_ref().is_some_and(|own| own.value == name.value);
                is_named || table.address.value == name.value
            };
            match tables.iter().position(is_meant) {
                Some(at) => found.push(at),
                None => {
                    let place = name.span.as_ref().or(names.span.as_ref()).cloned();
                    let what = format!(
                        "listen: no [[listen]] has the name or address {:?}; write address = {:?} into one",
                        name.value, name.value
                    );
                    self.problem(&place, what);
                }
            }
        }
        if names.value.0.is_empty() {
            self.problem(&names.span, "the list of listeners is empty");
        }
        found
    }

    /// Returns the address, and reports errors in the rest of its table.
    pub(super) fn endpoint(&mut self, listen: &ListenTable, address: Address) -> Address {
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

    /// Returns whether a listener has HTTP/3, and reports where it cannot have one that the file requires.
    fn http3(&mut self, listen: &ListenTable, address: &Address, tls: bool) -> Http3 {
        let lacking = if matches!(address, Address::Unix(_)) {
            "a Unix socket has no UDP port"
        } else if !tls {
            "HTTP/3 is always encrypted; write tls = true"
        } else if listen.proxy_protocol == Some(true) {
            "datagrams have no header of the PROXY protocol"
        } else {
            return match listen.http3.as_deref() {
                None => Http3::IfPossible,
                Some(true) => Http3::Required,
                Some(false) => Http3::Off,
            };
        };
        if let Some(http3) = listen.http3.as_ref().filter(|http3| http3.value) {
            self.problem(&http3.span, format!("http3: {lacking}"));
        }
        Http3::Off
    }

    pub(super) fn mode(&mut self, listen: &ListenTable) -> u32 {
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

/// Returns the number of a listener beside those before it. Addresses whose port the system chooses may be equal.
fn number(address: &Address, before: &[Listen]) -> u64 {
    let earlier = before.iter().filter(|other| other.address == *address).count();
    let digest = Sha256::digest(format!("{address} {earlier}"));
    digest.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
