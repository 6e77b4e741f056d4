//! Settings of the command line that replace those of the file.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::address::{not_an_address, parse_address};
use super::error::Problem;
use super::file;
use super::sites::EVERY_HOST;
use super::spanned::Spanned;

/// Settings of the command line that replace those of the file.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overrides {
    /// Addresses; empty for those of the file.
    pub listen: Vec<String>,
    /// Worker threads.
    pub threads: Option<usize>,
    /// A path, `-` or `off`.
    pub access_log: Option<String>,
    /// Certificate and key: all listeners use TLS, with this pair for sites without a certificate.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The admin socket of a server without a file.
    pub admin: Option<PathBuf>,
}

impl Overrides {
    /// Makes the paths absolute: paths of the command line are relative to the working directory.
    #[must_use]
    pub fn absolute(mut self) -> Self {
        let absolute = |path: &str| match std::path::absolute(path) {
            Ok(path) => path.display().to_string(),
            Err(_) => path.to_owned(),
        };
        for address in &mut self.listen {
            if let Some(path) = address.strip_prefix("unix:") {
                *address = format!("unix:{}", absolute(path));
            }
        }
        if let Some(path) =
            self.access_log.as_mut().filter(|path| !["-", "off"].contains(&&***path))
        {
            *path = absolute(path);
        }
        self
    }

    /// Returns `true` if the command line sets a key of `[server]`.
    pub fn has(&self, key: &str) -> bool {
        match key.split('.').next() {
            Some("threads") => self.threads.is_some(),
            Some("access_log") => self.access_log.is_some(),
            _ => false,
        }
    }

    /// Replaces settings of the file.
    pub fn apply(&self, file: &mut file::File) -> Result<(), Vec<Problem>> {
        let unusable = |address: &&String| parse_address(address).is_empty();
        let problems: Vec<_> = self
            .listen
            .iter()
            .filter(unusable)
            .map(|address| Problem::of_option("--listen", &not_an_address(address)))
            .chain(self.threads.filter(|threads| !(1..=1024).contains(threads)).map(|threads| {
                let what = format!("{threads} is not between 1 and 1024");
                Problem::of_option("--threads", &what)
            }))
            .collect();
        if !problems.is_empty() {
            return Err(problems);
        }
        if !self.listen.is_empty() {
            let listen = |address: &String| file::ListenTable {
                name: None,
                address: Spanned::detached(address.clone()),
                mode: None,
                backlog: None,
                tls: None,
                http2: None,
                http3: None,
                proxy_protocol: None,
            };
            file.listen = self.listen.iter().map(listen).collect();
            join_listeners(&mut file.site);
        }
        if let Some((certificate, key)) = &self.certificate {
            for listen in &mut file.listen {
                listen.tls = Some(Spanned::detached(true));
            }
            for site in &mut file.site {
                let table = || Spanned::detached(file::TlsTable::of(certificate, key));
                site.value.tls.get_or_insert_with(table);
            }
        }
        if let Some(threads) = self.threads {
            file.server.threads = Some(Spanned::detached(threads));
        }
        if let Some(path) = &self.access_log {
            let table = file::AccessLogTable::to(path);
            let table = match file.server.access_log.take() {
                Some(log) => file::AccessLogTable { path: table.path, ..log.value.0 },
                None => table,
            };
            file.server.access_log = Some(Spanned::detached(file::AccessLogForm(table)));
        }
        Ok(())
    }
}

/// Serves the sites of all listeners on the same ones. A host that several of them have is that of the first one.
fn join_listeners(sites: &mut Vec<Spanned<file::SiteTable>>) {
    let mut seen: Vec<String> = Vec::new();
    sites.retain_mut(|site| {
        let has_own = site.value.listen.take().is_some();
        let mut is_new = |host: &str| {
            let is_new = !seen.iter().any(|other| other == host) || !has_own;
            seen.push(host.to_owned());
            is_new
        };
        match &mut site.value.host {
            Some(hosts) => {
                hosts.value.0.retain(|host| is_new(&host.to_ascii_lowercase()));
                !hosts.value.0.is_empty()
            }
            None => is_new(EVERY_HOST),
        }
    });
}
