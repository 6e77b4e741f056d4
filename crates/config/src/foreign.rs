//! Texts in the syntax of other servers, which are recognized so that an error names the way over.

use std::path::Path;

/// The syntax that a text is in instead of TOML.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Syntax {
    Nginx,
    Apache,
    Caddy,
    Lighttpd,
    Yaml,
    Json,
}

/// Returns a message about a text that is not TOML, if it has the syntax of another server, and the offset of the first
/// line that shows it. `at` is the offset of the syntax error.
pub(super) fn recognize(text: &str, path: &Path, at: usize) -> Option<(usize, String)> {
    let at = text.floor_char_boundary(at.min(text.len()));
    let own = text.lines().map(str::trim).any(is_toml_header);
    // In a file with tables of TOML, only the faulty line counts: a block was pasted into it.
    let start = match own {
        true => text[..at].rfind('\n').map_or(0, |end| end + 1),
        false => 0,
    };
    let mut offset = start;
    let mut found = None;
    for line in text[start..].split_inclusive('\n').take(if own { 1 } else { LINES }) {
        let content = line.trim();
        if let Some(syntax) = of_line(content) {
            let (first, before) = *found.get_or_insert((offset, syntax));
            // A block, which nginx has as well, shows less than a directive of one of them.
            if syntax != Syntax::Caddy || before != Syntax::Caddy {
                found = Some((first, syntax));
                break;
            }
        }
        offset += line.len();
    }
    let (offset, syntax) = found?;
    if own && syntax == Syntax::Yaml {
        // `key: value` in a file of TOML is a slip rather than another syntax.
        let line = text[offset..].lines().next()?.trim();
        let (key, value) = line.split_once(':')?;
        return Some((offset, format!("write `=` instead of `:`, {key} = {}", value.trim())));
    }
    let file = path.display().to_string();
    Some((offset, if own { of_block(syntax) } else { of_file(syntax, &file) }))
}

/// Lines that are looked at.
const LINES: usize = 200;

fn is_toml_header(line: &str) -> bool {
    let name = line.strip_prefix("[[").and_then(|line| line.split_once("]]"));
    let name = name.or_else(|| line.strip_prefix('[').and_then(|line| line.split_once(']')));
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-. \"".contains(c))
    };
    name.is_some_and(|(name, rest)| {
        is_name(name) && matches!(rest.trim().as_bytes(), [] | [b'#', ..])
    })
}

/// Returns the syntax that a line shows; `None` if it may be TOML or any other.
fn of_line(line: &str) -> Option<Syntax> {
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    if line == "---" {
        return Some(Syntax::Yaml);
    }
    let first = line.split([' ', '\t']).next().unwrap_or_default();
    let is = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(first));
    if line.starts_with('<') || is(&APACHE) {
        return Some(Syntax::Apache);
    }
    if line.starts_with("$HTTP[") || line.starts_with("server.modules") {
        return Some(Syntax::Lighttpd);
    }
    let in_braces = line.strip_prefix('{').unwrap_or(line).trim_start();
    if in_braces.starts_with('"') && in_braces.contains("\":") {
        return Some(Syntax::Json);
    }
    // Statements of TOML have an equals sign before anything else.
    let is_assignment = line.split(['=', ' ', '\t']).next().is_some_and(|key| {
        let rest = line[key.len()..].trim_start();
        rest.starts_with('=')
    });
    if is_assignment {
        return None;
    }
    if line.ends_with(';') || is(&NGINX) && line.contains('{') {
        return Some(Syntax::Nginx);
    }
    if is(&CADDY) || line.ends_with('{') || is_address(line) {
        return Some(Syntax::Caddy);
    }
    let (key, value) = line.trim_start_matches("- ").split_once(':')?;
    let is_key = key.chars().all(|c| c.is_alphanumeric() || "_-\"'".contains(c)) && !key.is_empty();
    (is_key && (value.is_empty() || value.starts_with(' '))).then_some(Syntax::Yaml)
}

/// Returns `true` for a line that is the address of a site of a Caddyfile.
fn is_address(line: &str) -> bool {
    let port = line.strip_prefix(':').or_else(|| line.strip_prefix("localhost:"));
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    port.is_some_and(is_port) || line.starts_with("http://") || line.starts_with("https://")
}

/// Blocks of nginx.
const NGINX: [&str; 6] = ["server", "http", "events", "location", "upstream", "stream"];

/// Directives of Apache that start a line.
const APACHE: [&str; 14] = [
    "servername",
    "serveralias",
    "serverroot",
    "documentroot",
    "loadmodule",
    "listen",
    "rewriteengine",
    "rewriterule",
    "rewritecond",
    "directoryindex",
    "allowoverride",
    "customlog",
    "proxypass",
    "errordocument",
];

/// Directives of Caddy that start a line.
const CADDY: [&str; 10] = [
    "reverse_proxy",
    "file_server",
    "php_fastcgi",
    "encode",
    "handle",
    "handle_path",
    "redir",
    "respond",
    "basic_auth",
    "try_files",
];

/// Returns the message about a whole file.
fn of_file(syntax: Syntax, file: &str) -> String {
    let name = match syntax {
        Syntax::Nginx => "nginx",
        Syntax::Apache => "apache",
        Syntax::Caddy => "caddy",
        Syntax::Lighttpd => {
            return "this is a configuration of lighttpd; the page \"Coming from lighttpd\" of the book has what to write \
                    instead"
                .into();
        }
        Syntax::Yaml => return of_data("YAML"),
        Syntax::Json => return of_data("JSON"),
    };
    let whose = match syntax {
        Syntax::Nginx => "a configuration of nginx",
        Syntax::Apache => "a configuration of Apache",
        _ => "a Caddyfile",
    };
    format!(
        "this is {whose}; `dunlin convert {name} {file} > new.toml` converts it, and `dunlin serve --{name} {file}` serves it as \
         it is"
    )
}

fn of_data(name: &str) -> String {
    format!(
        "this is {name}, and a configuration is TOML: [[listen]] and address = \":8080\", then [[site]] and root = \
         \"DIRECTORY\", each on its own line; `dunlin init` writes one"
    )
}

/// Returns the message about a line within a file of TOML.
fn of_block(syntax: Syntax) -> String {
    let (name, command) = match syntax {
        Syntax::Nginx => ("nginx", Some("nginx")),
        Syntax::Apache => ("Apache", Some("apache")),
        Syntax::Caddy => ("nginx or Caddy", Some("nginx` or `dunlin convert caddy")),
        Syntax::Lighttpd => ("lighttpd", None),
        Syntax::Yaml => ("YAML", None),
        Syntax::Json => ("JSON", None),
    };
    match command {
        Some(command) => format!(
            "this line is in the syntax of {name}; put the text into a separate file and convert it with `dunlin convert \
             {command}`"
        ),
        None => format!("this line is in the syntax of {name}; write KEY = VALUE"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str, at: usize) -> Option<String> {
        recognize(text, Path::new("site.conf"), at).map(|(_, what)| what)
    }

    #[test]
    fn the_syntax_of_other_servers_leads_to_the_way_over() {
        let cases = [
            ("# a site\nserver {\n    listen 80;\n}\n", "dunlin convert nginx site.conf"),
            ("server { listen 80; location / { root /srv; } }\n", "dunlin convert nginx"),
            ("user www-data;\nhttp {\n", "dunlin convert nginx"),
            ("map $a $b {\n  default 1;\n}\n", "dunlin convert nginx"),
            ("example.com {\n\troot * /srv/www\n\tfile_server\n}\n", "dunlin convert caddy"),
            (":8080\n\nreverse_proxy 127.0.0.1:3000\n", "dunlin convert caddy"),
            ("{\n\temail a@example.com\n}\nexample.com {\n}\n", "dunlin serve --caddy"),
            ("<VirtualHost *:80>\n  DocumentRoot /srv\n</VirtualHost>\n", "dunlin convert apache"),
            ("ServerName example.com\n", "dunlin serve --apache"),
            ("RewriteEngine On\nRewriteRule ^a$ /b [L]\n", "dunlin convert apache"),
            ("$HTTP[\"host\"] == \"a\" {\n}\n", "Coming from lighttpd"),
            ("listen:\n  - address: 127.0.0.1:8080\n", "this is YAML"),
            ("---\nsites: []\n", "this is YAML"),
            ("{ \"listen\": [] }\n", "this is JSON"),
            ("{\n  \"listen\": []\n}\n", "this is JSON"),
        ];
        for (text, expected) in cases {
            let what = message(text, 0).unwrap_or_default();
            assert!(what.contains(expected), "{text}: {what}");
        }
    }

    #[test]
    fn mistakes_of_toml_are_left_to_its_parser() {
        for text in ["root = \"/srv\nhost = 1\n", "[[site]\nroot = \"/srv\"\n", "a = {\n", "key\n"]
        {
            assert_eq!(message(text, 0), None, "{text}");
        }
    }

    #[test]
    fn a_block_within_toml_is_recognized_by_its_line() {
        let text = "[[site]]\nroot = \"/srv\"\nlocation /a {\n  return 404;\n}\n";
        let found = recognize(text, Path::new("a.toml"), text.find("location").unwrap_or_default());
        let (offset, what) = found.unwrap_or_default();
        assert_eq!(offset, text.find("location").unwrap_or_default());
        assert!(what.contains("dunlin convert nginx`"), "{what}");
        let text = "[[site]]\nroot: \"/srv\"\n";
        let what = message(text, 13).unwrap_or_default();
        assert!(what.contains("root = \"/srv\""), "{what}");
    }
}
