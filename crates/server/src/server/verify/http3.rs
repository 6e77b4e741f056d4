//! HTTP/3 outside of this machine: what may keep its datagrams away, and the DNS records by which clients learn of it.

use std::collections::BTreeSet;
use std::path::Path;

use dunlin_config::{Address, Config, Listen, Site};

/// Describes what may keep datagrams from the server, and the records to publish, one line each.
pub fn http3_notes(config: &Config) -> Vec<String> {
    let mut lines = hidden_ports(config, Path::new("/"));
    let records = https_records(config);
    if !records.is_empty() {
        lines.push(
            "HTTP/3: with these DNS records, browsers use it from their first request:".into(),
        );
        lines.extend(records.into_iter().map(|record| format!("  {record}")));
    }
    lines
}

/// Returns the listeners with HTTP/3 and their ports.
fn listeners(config: &Config) -> impl Iterator<Item = (&Listen, u16)> {
    let wanted = config.listen.iter().filter(|listen| listen.http3.is_wanted());
    wanted.filter_map(|listen| match &listen.address {
        Address::Tcp(address) if address.port() != 0 => Some((listen, address.port())),
        _ => None,
    })
}

/// Returns the HTTPS records (RFC 9460) of the sites with HTTP/3.
fn https_records(config: &Config) -> Vec<String> {
    let mut records = Vec::new();
    for (listen, port) in listeners(config) {
        let protocols = if listen.http2 { "h3,h2" } else { "h3" };
        for site in
            config.sites.on(listen.number).filter_map(|index| config.sites.iter().nth(index))
        {
            if !has_tls13(site) {
                continue;
            }
            for host in site.hosts().iter().filter(|host| is_name(host)) {
                let record = match port {
                    443 => format!("{host}. HTTPS 1 . alpn=\"{protocols}\""),
                    // The name of another port has a prefix (RFC 9460 §9.1).
                    _ => format!("_{port}._https.{host}. HTTPS 1 {host}. alpn=\"{protocols}\""),
                };
                if !records.contains(&record) {
                    records.push(record);
                }
            }
        }
    }
    records
}

fn has_tls13(site: &Site) -> bool {
    site.tls.as_ref().is_some_and(|tls| tls.has_tls13())
}

/// Returns `true` for a host with a place in the public DNS.
fn is_name(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_special = matches!(last, "localhost" | "local" | "internal" | "test" | "*");
    let is_address = last.bytes().all(|byte| byte.is_ascii_digit()) || host.contains(':');
    host.contains('.') && !is_special && !is_address
}

/// Describes what may keep datagrams from the ports of HTTP/3, by files beneath `root`.
fn hidden_ports(config: &Config, root: &Path) -> Vec<String> {
    let is_local = |listen: &Listen| matches!(&listen.address, Address::Tcp(address) if address.ip().is_loopback());
    let outside = listeners(config).filter(|(listen, _)| !is_local(listen));
    let ports: BTreeSet<u16> = outside.map(|(_, port)| port).collect();
    let exists = |path: &str| root.join(path).exists();
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let mut lines = Vec::new();
    for port in ports {
        if exists(".dockerenv") || exists("run/.containerenv") {
            lines.push(format!(
                "HTTP/3: this is a container: publish the UDP port, too, for example with -p {port}:{port}/udp"
            ));
        }
        let is_ufw = read("etc/ufw/ufw.conf").is_some_and(|text| is_enabled(&text));
        // Only root may read the rules.
        if is_ufw && read("etc/ufw/user.rules").is_none_or(|rules| !ufw_permits(&rules, port)) {
            lines.push(format!(
                "HTTP/3: the firewall ufw may drop its datagrams: `ufw allow {port}/udp`"
            ));
        }
        if exists("run/firewalld") && !firewalld_permits(root, port) {
            lines.push(format!(
                "HTTP/3: firewalld may drop its datagrams: `firewall-cmd --permanent --add-port={port}/udp` and \
                 `firewall-cmd --reload`"
            ));
        }
    }
    lines
}

/// Returns `true` if a file of ufw has `ENABLED=yes`.
fn is_enabled(text: &str) -> bool {
    text.lines().any(|line| line.trim().eq_ignore_ascii_case("enabled=yes"))
}

/// Returns `true` if rules of ufw accept datagrams for a port.
fn ufw_permits(rules: &str, port: u16) -> bool {
    rules.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let has = |name: &str, value: &str| {
            words
                .windows(2)
                .any(|pair| pair[0] == name && pair[1].split(',').any(|one| one == value))
        };
        let port = port.to_string();
        has("-p", "udp") && (has("--dport", &port) || has("--dports", &port)) && has("-j", "ACCEPT")
    })
}

/// Returns `true` if a zone of firewalld accepts datagrams for a port.
fn firewalld_permits(root: &Path, port: u16) -> bool {
    let Ok(zones) = root.join("etc/firewalld/zones").read_dir() else { return false };
    let texts = zones.flatten().filter_map(|zone| std::fs::read_to_string(zone.path()).ok());
    let number = format!("port=\"{port}\"");
    texts.into_iter().any(|text| {
        let is_port = |tag: &str| tag.contains(&number) && tag.contains("protocol=\"udp\"");
        let is_service = |tag: &str| port == 443 && tag.contains("name=\"http3\"");
        text.split('<').any(|tag| {
            tag.starts_with("port ") && is_port(tag)
                || tag.starts_with("service ") && is_service(tag)
        })
    })
}

#[cfg(test)]
mod tests {
    use dunlin_config::Overrides;

    use super::*;

    const TLS: &str = "tls = { certificate = 'a.pem', key = 'a.key' }\nrespond = { status = 204 }";

    fn config(text: &str) -> Config {
        Config::parse(text, Path::new("/etc/dunlin.toml"), &Overrides::default()).unwrap()
    }

    #[test]
    fn records_name_hosts_ports_and_protocols() {
        let config = config(&format!(
            "[[listen]]\naddress = ':443'\ntls = true\n\
             [[listen]]\naddress = ':8443'\ntls = true\nhttp2 = false\nname = 'other'\n\
             [[site]]\nhost = ['a.example', '*.a.example', 'localhost', '192.0.2.1', 'a.test']\nlisten = ':443'\n{TLS}\n\
             [[site]]\nhost = 'b.example'\nlisten = 'other'\n{TLS}\n\
             [[site]]\n{TLS}\n"
        ));
        assert_eq!(
            https_records(&config),
            [
                "a.example. HTTPS 1 . alpn=\"h3,h2\"",
                "*.a.example. HTTPS 1 . alpn=\"h3,h2\"",
                "_8443._https.b.example. HTTPS 1 b.example. alpn=\"h3\"",
            ]
        );
    }

    #[test]
    fn sites_without_http3_have_no_records() {
        for (listen, tls) in [
            ("http3 = false", TLS),
            ("proxy_protocol = true", TLS),
            (
                "",
                "tls = { certificate = 'a.pem', key = 'a.key', ciphers = ['ECDHE-RSA-AES128-GCM-SHA256'] }\nrespond = { status = 204 }",
            ),
        ] {
            let config = config(&format!(
                "[server]\ntrusted_proxies = ['192.0.2.0/24']\n[[listen]]\naddress = ':443'\ntls = true\n{listen}\n\
                 [[site]]\nhost = 'a.example'\n{tls}\n"
            ));
            assert_eq!(https_records(&config), [""; 0], "{listen}{tls}");
        }
    }

    #[test]
    fn firewalls_and_containers_are_named() {
        let config = config(&format!(
            "[[listen]]\naddress = ':443'\ntls = true\n[[listen]]\naddress = '127.0.0.1:444'\ntls = true\n[[site]]\n{TLS}\n"
        ));
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let lines = || hidden_ports(&config, root.path());
        assert_eq!(lines(), [""; 0]);
        write(".dockerenv", "");
        assert!(lines()[0].ends_with("-p 443:443/udp"), "{:?}", lines());
        std::fs::remove_file(root.path().join(".dockerenv")).unwrap();
        write("etc/ufw/ufw.conf", "ENABLED=no\n");
        assert_eq!(lines(), [""; 0]);
        write("etc/ufw/ufw.conf", "# state\nENABLED=yes\n");
        assert!(lines()[0].ends_with("`ufw allow 443/udp`"), "{:?}", lines());
        write("etc/ufw/user.rules", "-A ufw-user-input -p tcp --dport 443 -j ACCEPT\n");
        assert_eq!(lines().len(), 1);
        write("etc/ufw/user.rules", "-A ufw-user-input -p udp --dport 443 -j ACCEPT\n");
        assert_eq!(lines(), [""; 0]);
        write("run/firewalld/x", "");
        assert!(lines()[0].contains("--add-port=443/udp"), "{:?}", lines());
        write(
            "etc/firewalld/zones/public.xml",
            "<zone><port port=\"443\" protocol=\"tcp\"/></zone>",
        );
        assert_eq!(lines().len(), 1);
        write("etc/firewalld/zones/public.xml", "<zone><service name=\"http3\"/></zone>");
        assert_eq!(lines(), [""; 0]);
    }
}
