//! Whole files.

use std::path::Path;

use crate::testing::{has, loses_nothing};
use crate::{Conversion, caddy};

fn convert(text: &str) -> Conversion {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("Caddyfile");
    std::fs::write(&file, text).unwrap();
    let converted = caddy(&file, Some(Path::new("/users"))).unwrap();
    let config = converted.config(Path::new("dunlin.toml"), &Default::default());
    assert!(config.is_ok(), "{:?}\n{}", config.err(), converted.toml);
    converted
}

#[test]
fn a_site_with_https_and_php() {
    let converted = convert(
        "{\n\temail admin@example.com\n}\nexample.com {\n\troot * /srv/www\n\tencode zstd gzip\n\tphp_fastcgi unix//run/php/php8.2-fpm.sock\n\tfile_server\n\theader /assets/* Cache-Control \"max-age=86400\"\n\tredir /old /new permanent\n}\n",
    );
    loses_nothing(&converted);
    has(
        &converted,
        &[
            "[[listen]]\naddress = \":443\"\ntls = true",
            "[[listen]]\naddress = \":80\"",
            "host = \"example.com\"",
            "tls = { acme = { contact = \"admin@example.com\" } }",
            "redirect_https = true",
            "connect = \"unix:/run/php/php8.2-fpm.sock\", root = \"/srv/www\"",
            "try = [\"{path}\", \"{path}/\", \"/index.php\"]",
            "cache_control = \"max-age=86400\"",
            "redirect = { to = \"/new\", status = 301 }",
        ],
    );
}

#[test]
fn handles_are_routes() {
    let converted = convert(
        "http://app.test {\n\thandle_path /api/* {\n\t\treverse_proxy localhost:3000 {\n\t\t\theader_up X-Source edge\n\t\t}\n\t}\n\t@post method POST\n\trespond @post \"no\" 405\n\thandle {\n\t\troot * /srv\n\t\ttry_files {path} /index.html\n\t\tfile_server\n\t}\n}\n",
    );
    loses_nothing(&converted);
    has(
        &converted,
        &[
            "host = \"app.test\"\nroot = \"/srv\"\n",
            "try = [\"{path}\", \"/index.html\"]",
            "proxy = { to = \"http://127.0.0.1:3000\", strip = \"/api\", rewrite_location = false, set_request_fields = { X-Source = \"edge\" } }",
        ],
    );
}

#[test]
fn what_restricts_access_and_is_lost_rejects() {
    let converted = convert(
        ":80 {\n\t@bad expression `{method} == 'X'`\n\trespond @bad 403\n\troot * /srv\n\tfile_server\n}\n",
    );
    assert!(converted.report.losses().count() > 0);
    has(&converted, &["respond = { status = 403 }"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("Caddyfile");
    std::fs::write(&file, ":80 {\n\tbasicauth {\n\t\tann JDJhJDE0JHg=\n\t}\n\tfile_server\n}\n")
        .unwrap();
    let converted = caddy(&file, None).unwrap();
    has(&converted, &["deny = [\"0.0.0.0/0\", \"::/0\"]"]);
    let converted = caddy(&file, Some(Path::new("/users"))).unwrap();
    has(&converted, &["auth = { basic = \"/users\", realm = \"restricted\" }"]);
    assert_eq!(converted.users, [("ann".to_owned(), "$2a$14$x".to_owned())]);
}
