//! Whole files.

use crate::report::Verdict;
use crate::testing::{has, loses_nothing};
use crate::{Conversion, apache};

fn convert(text: &str) -> Conversion {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("site.conf");
    std::fs::write(&file, text).unwrap();
    let converted = apache(&file, None).unwrap();
    let config = converted.config(std::path::Path::new("dunlin.toml"), &Default::default());
    assert!(config.is_ok(), "{:?}\n{}", config.err(), converted.toml);
    converted
}

fn htaccess(text: &str) -> Conversion {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(".htaccess");
    std::fs::write(&file, text).unwrap();
    let converted = apache(&file, Some(folder.path())).unwrap();
    let config = converted.config(std::path::Path::new("dunlin.toml"), &Default::default());
    assert!(config.is_ok(), "{:?}\n{}", config.err(), converted.toml);
    let root = folder.path().to_string_lossy().into_owned();
    Conversion { toml: converted.toml.replace(&root, "ROOT"), ..converted }
}

#[test]
fn the_rules_of_wordpress_are_a_list_of_paths() {
    let converted = htaccess(
        "# BEGIN WordPress\n<IfModule mod_rewrite.c>\nRewriteEngine On\nRewriteRule .* - [E=HTTP_AUTHORIZATION:%{HTTP:Authorization}]\nRewriteBase /\nRewriteRule ^index\\.php$ - [L]\nRewriteCond %{REQUEST_FILENAME} !-f\nRewriteCond %{REQUEST_FILENAME} !-d\nRewriteRule . /index.php [L]\n</IfModule>\n",
    );
    loses_nothing(&converted);
    has(
        &converted,
        &[
            "try = [\"{path}\", \"{path}/\", \"/index.php\"]",
            "kind = \"fastcgi\", command = [\"php-cgi\"], root = \"ROOT\", authorization = true",
        ],
    );
    assert!(!converted.toml.contains("[[site.route]]"), "{}", converted.toml);
}

#[test]
fn a_virtual_host_is_a_site() {
    let converted = convert(
        "<VirtualHost *:8080>\nServerName example.com\nDocumentRoot /srv/www\nErrorDocument 404 /404.html\nHeader always set X-Frame-Options DENY\n<Directory /srv/www>\nOptions -Indexes +FollowSymLinks\nRequire all granted\n</Directory>\n<Location /private>\nAuthType Basic\nAuthName Members\nAuthUserFile /srv/users\nRequire valid-user\n</Location>\nRedirect permanent /old /new\nProxyPass /api http://127.0.0.1:3000\nProxyPassReverse /api http://127.0.0.1:3000\nScriptAlias /cgi-bin/ /srv/cgi-bin/\n</VirtualHost>\n",
    );
    loses_nothing(&converted);
    has(
        &converted,
        &[
            "address = \":8080\"",
            "root = \"/srv/www\"",
            "error_pages = { \"404\" = \"/404.html\" }",
            "path = [\"/private\", \"/private/*\"]\nauth = { basic = \"/srv/users\", realm = \"Members\" }",
            "redirect = { to = \"/new{query}\", status = 301 }",
            "redirect = { to = \"/new/{rest}{query}\", status = 301 }",
            "proxy = { to = \"http://127.0.0.1:3000\", strip = \"/api\", host = \"upstream\" }",
            "script = { kind = \"cgi\", directory = \"/srv/cgi-bin\" }",
        ],
    );
}

#[test]
fn hosts_and_schemes_are_conditions() {
    let converted = convert(
        "ServerName www.a.test\nDocumentRoot /srv\n<Directory /srv>\nRewriteEngine On\nRewriteCond %{HTTPS} off\nRewriteRule ^(.*)$ https://%{HTTP_HOST}/$1 [R=301,L]\nRewriteCond %{HTTP_HOST} ^www\\.(.+)$ [NC]\nRewriteRule ^ https://%1%{REQUEST_URI} [R=301,L]\nRewriteRule ^user/([a-z]+)$ profile.php?name=$1 [QSA,L]\nRewriteRule ^(secret|hidden)/ - [F]\n</Directory>\n",
    );
    loses_nothing(&converted);
    has(
        &converted,
        &[
            "when = { scheme = \"http\" }\nredirect = { to = \"https://{host}{path}{query}\", status = 301 }",
            "values = { \"www.a.test\" = \"a.test\" }",
            "redirect = { to = \"https://{map.host_1}/{rest}{query}\", status = 301 }",
            "rewrite = \"/profile.php?name={1}&{query}\"",
            "respond = { status = 403 }",
        ],
    );
}

#[test]
fn what_restricts_access_and_is_lost_rejects() {
    let converted =
        convert("DocumentRoot /srv\n<Directory /srv>\nRequire group staff\n</Directory>\n");
    assert_eq!(converted.report.losses().count(), 1);
    has(&converted, &["deny = [\"0.0.0.0/0\", \"::/0\"]"]);
    let converted = convert(
        "DocumentRoot /srv\n<If \"%{TIME_HOUR} == '5' || true\">\nRequire all denied\n</If>\n",
    );
    has(&converted, &["deny = [\"0.0.0.0/0\", \"::/0\"]"]);
    let converted =
        htaccess("RewriteEngine On\nRewriteCond %{TIME_HOUR} >5\nRewriteRule ^night/ - [F]\n");
    has(&converted, &["path = \"/night/*\"\nrespond = { status = 403 }"]);
}

#[test]
fn every_directive_has_a_verdict() {
    let text = "ServerTokens Prod\nUnknown x\nphp_value memory_limit 1M\n<IfModule mod_a.c>\nDocumentRoot /srv\n</IfModule>\n<IfModule !mod_a.c>\nDeflateCompressionLevel 1\n</IfModule>\n";
    let converted = convert(text);
    let of = |name: &str| {
        let mut all = converted.report.findings();
        all.find(|finding| finding.name == name).map(|finding| finding.verdict.clone())
    };
    for (name, expected) in [
        ("ServerTokens", 'n'),
        ("Unknown", 'l'),
        ("php_value", 'l'),
        ("DocumentRoot", 'c'),
        ("DeflateCompressionLevel", 'n'),
        ("IfModule", 'n'),
    ] {
        let found = match of(name) {
            Some(Verdict::Carried(_)) => 'c',
            Some(Verdict::NotNeeded(_)) => 'n',
            Some(Verdict::Lost(_)) => 'l',
            None => '-',
        };
        assert_eq!(found, expected, "{name}");
    }
}
