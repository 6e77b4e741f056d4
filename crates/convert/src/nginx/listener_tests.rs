//! Servers of several listeners.

use super::tests::{converted, losses};

/// Returns the lines of a conversion that name hosts and listeners of sites, and their roots.
fn places(http: &str) -> String {
    let text = converted(http).toml;
    let sites = text.split("[[site]]").skip(1).map(|site| {
        let keys = ["host = ", "listen = ", "root = "];
        let lines = site.lines().filter(|line| keys.iter().any(|key| line.starts_with(key)));
        lines.map(|line| line.replace('"', "")).collect::<Vec<_>>().join("; ")
    });
    sites.collect::<Vec<_>>().join("\n")
}

#[test]
fn each_listener_has_the_servers_that_listen_there() {
    let server = |listens: &str, name: &str| {
        format!("server {{ {listens} server_name {name}.test; root /srv/{name}; }}\n")
    };
    // Each port has a server for the hosts that none names.
    let two = [server("listen 8080;", "a"), server("listen 9090;", "b")].concat();
    assert_eq!(
        places(&two),
        "listen = :8080; root = /srv/a\nhost = [b.test, *]; listen = :9090; root = /srv/b"
    );
    // What listens at the loopback address is reached there alone, whatever host a client names.
    let own = [server("listen 80;", "a"), server("listen 127.0.0.1:8080;", "admin")].concat();
    assert_eq!(
        places(&own),
        "listen = :80; root = /srv/a\n\
         host = [admin.test, *]; listen = 127.0.0.1:8080; root = /srv/admin"
    );
    // The first server of a port has the other hosts there, and its own ones elsewhere.
    let three = [
        server("listen 8080;", "a"),
        server("listen 8080; listen 9090;", "b"),
        server("listen 9090;", "c"),
    ]
    .concat();
    assert_eq!(
        places(&three),
        "listen = :8080; root = /srv/a\n\
         host = b.test; listen = :8080; root = /srv/b\n\
         host = [b.test, *]; listen = :9090; root = /srv/b\n\
         host = c.test; listen = :9090; root = /srv/c"
    );
    // One server at two ports, of which the other one has one.
    let part = [server("listen 80; listen 81;", "a"), server("listen 80;", "b")].concat();
    assert_eq!(places(&part), "root = /srv/a\nhost = b.test; listen = :80; root = /srv/b");
    // Everywhere the same servers.
    let same =
        [server("listen 80; listen 81;", "a"), server("listen 80; listen 81;", "b")].concat();
    assert_eq!(places(&same), "root = /srv/a\nhost = b.test; root = /srv/b");
    let named = [server("listen 80;", "a"), server("listen 80 default_server;", "b")].concat();
    assert_eq!(places(&named), "root = /srv/b\nhost = a.test; root = /srv/a");
}

#[test]
fn servers_of_other_ports_are_sites_of_their_listeners() {
    let converted = converted(
        "server { listen 8080; server_name a.test; root /srv/a; }\n\
         server { listen 8081; server_name a.test; root /srv/b; }",
    );
    let text = &converted.toml;
    assert!(
        text.contains(
            "[[site]]\nhost = [\"a.test\", \"*\"]\nlisten = \":8081\"\nroot = \"/srv/b\""
        ),
        "{text}"
    );
    assert_eq!(converted.report.losses().count(), 0);
    assert_eq!(
        losses(
            "server { server_name a.test; root /srv/a; }\nserver { server_name a.test; root /srv/b; }"
        ),
        [""; 0]
    );
}
