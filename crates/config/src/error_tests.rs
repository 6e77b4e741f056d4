//! The messages of errors, and their places.

use std::path::Path;

use proptest::prelude::*;

use super::tests::{GOOD, parse, problems};
use super::{Config, Overrides, Problem};

#[test]
fn errors_are_reported_with_line_and_column() {
    for (old, new, expected) in [
        // Keys
        ("threads", "thread", "2:1: there is no key `thread` in [server]; did you mean `threads`?"),
        (
            "threads = 2",
            "listing = true",
            "2:1: there is no key `listing` in [server]; it belongs in [[site]] or [[site.route]]",
        ),
        (
            "threads = 2",
            "listen = ':80'",
            "2:1: there is no key `listen` in [server]: write address = \"127.0.0.1:8080\" or address = \":8080\" into [[listen]]",
        ),
        (
            "root =",
            "quic = true\nroot =",
            "10:1: there is no key `quic` in [[site]]; the keys are: host, listen, root, tls, route",
        ),
        (
            "root =",
            "tls = true\nroot =",
            "10:7: tls: expected a table such as { certificate = \"cert.pem\", key = \"key.pem\" }, found true",
        ),
        ("[server]", "[serve]", "1:2: there is no key `serve` in the file; did you mean `server`?"),
        (
            "format =",
            "fromat =",
            "3:53: there is no key `fromat` in [server.access_log]; did you mean `format`?",
        ),
        ("address =", "backlog = 1 #", "5:1: [[listen]] lacks the key `address`"),
        (
            "path = \"/cgi-bin/*\"",
            "path = '/'\nredirect = { status = 301 }",
            "14:12: `redirect` lacks the key `to`",
        ),
        // Types and units
        (
            "threads = 2",
            "threads = 'two'",
            "2:11: threads: expected a whole number of at least 0, found \"two\"",
        ),
        (
            "threads = 2",
            "stop_timeout = 30",
            "2:16: stop_timeout: 30 has no unit; write for example \"30s\"",
        ),
        (
            "threads = 2",
            "http1.body_rate = '400KB'",
            "2:19: body_rate: \"400KB\" is not a rate; write for example \"400KB/s\"",
        ),
        (
            "threads = 2",
            "cache.size = '1 XB'",
            "2:14: size: \"1 XB\" is not a size; write for example \"256KB\" or \"1MiB\"",
        ),
        (
            "threads = 2",
            "http1.connection = 'pipelind'",
            "2:20: `pipelind` is not one of `close`, `persistent`, `pipelined`; did you mean `pipelined`?",
        ),
        // Ranges
        ("threads = 2", "threads = 0", "2:11: threads is less than 1"),
        (
            "threads = 2",
            "http1.head_timeout = 0",
            "2:22: head_timeout is 0: write how long to wait",
        ),
        ("threads = 2", "http1.fields = 255", "2:16: fields is more than 254"),
        (
            "threads = 2",
            "http1.head_size = '64KB'\nhttp1.target_size = '65KB'",
            "3:21: target_size is not between 1 and head_size, 64000 bytes",
        ),
        // Addresses, hosts, sites
        (
            "127.0.0.1:8080",
            "127.0.0.1",
            "6:11: \"127.0.0.1\" is not an address such as \"127.0.0.1:8080\", \":8080\" or \"unix:/run/site.sock\"",
        ),
        (
            "[[site]]",
            "[[listen]]\naddress = 'localhost:8080'\n[[site]]",
            "9:11: two [[listen]] have the address 127.0.0.1:8080, first in line 6",
        ),
        (
            "\"*.example.com\"",
            "\"*.*.com\"",
            "9:24: \"*.*.com\" is not a host such as \"example.com\" or \"*.example.com\"",
        ),
        (
            "[\"example.com\", \"*.example.com\"]",
            "\"*\"",
            "9:8: \"*\" is not a host such as \"example.com\" or \"*.example.com\"; leave `host` out for every other host",
        ),
        ("\"*.example.com\"", "\"EXAMPLE.com.\"", "9:24: the host \"example.com\" is listed twice"),
        (
            "[[site.route]]",
            "[[site]]\nhost = 'Example.Com'\nroot = '/'\n[[site.route]]",
            "13:8: two sites have the host \"example.com\", the other one in line 9",
        ),
        (
            "root = \"/srv/www\"",
            "",
            "8:1: the site has no root, and no route for \"/*\" with a handler",
        ),
        // Patterns
        ("/cgi-bin/*", "/*/*", "13:8: the pattern \"/*/*\" has more than one `*`"),
        (
            "/cgi-bin/*\"",
            "/a\"\n[[site.route]]\npath = \"/a\"",
            "15:8: two routes have the path \"/a\"",
        ),
        // The log
        (
            "combined",
            "{remot}",
            "3:62: access_log: log template: unknown placeholder `{remot}`, did you mean `{remote}`?",
        ),
    ] {
        let text = GOOD.replacen(old, new, 1);
        let all = problems(&text);
        assert!(
            all[0].starts_with(expected) && all.len() == 1,
            "{text}\nexpected {expected}\n   got {all:#?}"
        );
    }
}

#[test]
fn errors_in_routes_are_reported_with_line_and_column() {
    for (setting, expected) in [
        ("index = ['a/b']", "14:10: index: \"a/b\" is not a file name"),
        ("try = ['=404', '/x']", "14:8: try: nothing is looked for after \"=404\""),
        ("try = ['x']", "14:8: try: \"x\" begins neither with {path} nor with `/`"),
        ("redirect = { to = '{pth}' }", "14:19: redirect: there is no placeholder {pth}"),
        ("redirect = { to = '/', status = 200 }", "14:33: redirect: 200 is not one of 301, 302"),
        ("respond = { status = 99 }", "14:22: respond: 99 is not a status between 200 and 599"),
        ("respond = { status = 304, body = 'x' }", "14:22: respond: a 304 has no body"),
        (
            "respond = {}\nredirect = { to = '/' }",
            "15:12: a route has either `redirect` or `respond`",
        ),
        (
            "redirect = { to = '/' }\nscript = { kind = 'cgi', directory = 'x' }",
            "15:10: a route has either `script` or `redirect`",
        ),
        (
            "script = { kind = 'cgi', directory = 'x', sendfile_root = ['x', ''] }",
            "14:65: script: sendfile_root is empty",
        ),
        ("early_hints = ['/style.css']", "14:16: early_hints: \"/style.css\" is not a link such"),
        (
            "script = { kind = 'cgi', directory = 'x', user = 'nobody-at-all' }",
            "14:50: script: there is no user \"nobody-at-all\"",
        ),
        (
            "script = { kind = 'cgi', directory = 'x', group = 'none-of-them' }",
            "14:51: script: there is no group \"none-of-them\"",
        ),
        ("script = { kind = 'cgi' }", "14:19: script: a script of kind \"cgi\" needs `directory`"),
        ("script = { kind = 'gci', directory = 'x' }", "14:19: `gci` is not one of `cgi`, `warm`"),
        (
            "script = { kind = 'fastcgi', root = 'x' }",
            "14:19: script: a script of kind \"fastcgi\" needs `command` or `connect`",
        ),
        (
            "script = { kind = 'scgi', root = 'x' }",
            "14:19: script: a script of kind \"scgi\" needs `connect`",
        ),
        (
            "script = { kind = 'psgi', application = '' }",
            "14:41: script: application names no file such as",
        ),
        (
            "script = { kind = 'wsgi' }",
            "14:19: script: a script of kind \"wsgi\" needs `application`",
        ),
        (
            "script = { kind = 'asgi', application = 'a:b', threads = 2 }",
            "14:58: script: `threads` belongs to kind \"wsgi\"",
        ),
        (
            "script = { kind = 'cgi', directory = 'x', application = 'a:b' }",
            "14:57: script: `application` belongs to kinds \"wsgi\", \"asgi\" and \"psgi\"",
        ),
        (
            "script = { kind = 'fastcgi', command = ['x'], connect = ['unix:/x'] }",
            "14:57: script: workers are either started by `command` or reached at `connect`",
        ),
        (
            "script = { kind = 'fastcgi', command = ['x'], root = 'x', directory = 'x' }",
            "14:54: script: scripts are either in a `directory` or beneath a `root`",
        ),
        ("script = { kind = 'fastcgi', command = [] }", "14:40: script: command names no program"),
        (
            "script = { kind = 'fastcgi', connect = ['localhost'] }",
            "14:41: script: \"localhost\" is not an address such as",
        ),
        (
            "script = { kind = 'fastcgi', connect = ['unix:x'] }",
            "14:41: script: \"x\" is not the absolute path of a socket",
        ),
        ("script = { kind = 'fastcgi', connect = [] }", "14:40: script: connect names no address"),
        (
            "script = { kind = 'fastcgi', connect = ['unix:/x'], requests = 5 }",
            "14:64: script: `requests` belongs to workers that are started here",
        ),
        (
            "script = { kind = 'fastcgi', command = ['x'], cool_down = '1s' }",
            "14:59: script: `cool_down` belongs to workers at `connect`",
        ),
        (
            "script = { kind = 'fastcgi', command = ['x'], keep_alive = true }",
            "14:60: script: `keep_alive` belongs to workers at `connect`",
        ),
        (
            "script = { kind = 'fastcgi', command = ['x'], extensions = ['php'] }",
            "14:60: script: `extensions` belongs to scripts beneath a `root` or `directory`",
        ),
        (
            "script = { kind = 'fastcgi', command = ['x'], root = 'x', extensions = ['a/b'] }",
            "14:73: script: \"a/b\" is not an extension",
        ),
        (
            "script = { kind = 'cgi', directory = 'x', command = ['x'] }",
            "14:53: script: `command` belongs to kind \"fastcgi\"",
        ),
        (
            "script = { kind = 'cgiplus' }",
            "14:19: script: a script of kind \"cgiplus\" needs `directory`",
        ),
        (
            "script = { kind = 'rte', interpreter = 'perl' }",
            "14:19: script: a script of kind \"rte\" needs `directory`",
        ),
        (
            "script = { kind = 'cgiplus', directory = 'x', connect = ['unix:/x'] }",
            "14:57: script: `connect` belongs to kinds",
        ),
        (
            "script = { kind = 'cgiplus', directory = 'x', extensions = ['py'] }",
            "14:60: script: `extensions` belongs to scripts beneath",
        ),
        (
            "script = { kind = 'cgiplus', directory = 'x', interpreter = 'perl' }",
            "14:61: script: `interpreter` belongs to kinds \"wsgi\", \"asgi\", \"psgi\" and \"rte\"",
        ),
        (
            "script = { kind = 'rte', directory = 'x', interpreter = '/bin/ruby' }",
            "14:57: script: \"/bin/ruby\" is named like neither python nor perl",
        ),
        (
            "script = { kind = 'uwsgi', connect = ['unix:/x'], memory = '1GB' }",
            "14:60: script: `memory` belongs to processes that are started here",
        ),
        (
            "script = { kind = 'fastcgi', command = ['x'], processes = 2, min_processes = 3 }",
            "14:78: script: min_processes is not between 0 and 2",
        ),
        (
            "script = { kind = 'fastcgi', command = ['x'], requests = 0 }",
            "14:58: script: requests is less than 1",
        ),
        (
            "script = { kind = 'fastcgi', command = ['x'], max_resident = 0 }",
            "14:62: script: max_resident is 0",
        ),
        (
            "script = { kind = 'fastcgi', command = ['x'], backoff = 0 }",
            "14:57: script: backoff is 0: write how long to wait",
        ),
        (
            "script = { kind = 'wsgi', application = 'app' }",
            "14:41: script: \"app\" is not an application such as \"app:application\"",
        ),
        (
            "script = { kind = 'cgi', directory = 'x', processes = 0 }",
            "14:55: script: processes is not between 1 and 65536",
        ),
        (
            "script = { kind = 'cgi', directory = 'x', env = { 'A-B' = 'c' } }",
            "14:51: script: \"A-B\" is not a name of a variable",
        ),
        ("script = { kind = 'cgi', directory = 'x', timeout = 0 }", "14:53: script: timeout is 0"),
        ("set_fields = { 'A B' = 'c' }", "14:16: set_fields: \"A B\" is not a field name"),
        (
            "set_fields = { A = \"c\\r\\nd\" }",
            "14:20: set_fields: \"c\\r\\nd\" contains a control character",
        ),
        (
            "set_fields = { content-length = '1' }",
            "14:16: set_fields: content-length is the server's to send",
        ),
        (
            "set_fields = { ETag = '1' }",
            "14:16: set_fields: ETag is the server's to set; see `etag`",
        ),
        ("set_fields = { X-A = '1', x-a = '2' }", "14:16: set_fields: X-A is listed twice"),
        ("remove_fields = ['Date']", "14:18: remove_fields: Date is the server's to send"),
        (
            "cache_control = \"a\\nb\"",
            "14:17: cache_control: \"a\\nb\" contains a control character",
        ),
        (
            "types = { c = 'text' }",
            "14:15: types: \"text\" is not a media type such as \"text/plain\"",
        ),
        ("compress = ['br', 'deflate']", "14:19: `deflate` is not one of `zstd`, `br`, `gzip`"),
        (
            "compress = 1",
            "14:12: compress: expected true, false or a list such as [\"zstd\", \"br\", \"gzip\"], found 1",
        ),
        ("compress_unless = ['a b']", "14:20: compress_unless: \"a b\" is not a field name"),
        ("compress_padding = '33KiB'", "14:20: compress_padding: it is at most 32KiB"),
        ("unaccepted_coding = 'x'", "14:21: `x` is not one of `decode`, `reject`, `pass`"),
        ("cache = { file = 'x' }", "14:18: file: \"x\" is not a size"),
        ("etag = 'md5'", "14:8: `md5` is not one of `stat`, `sha256`, `off`"),
        (
            "records = { format = 'variable', control = 2 }",
            "14:44: records: `control` belongs to `vfc` records",
        ),
        (
            "error_pages = { 200 = '/x' }",
            "14:17: error_pages: the keys are statuses from 400 to 599",
        ),
        (
            "error_pages = { 404 = 'x' }",
            "14:23: error_pages: \"x\" is not a path that begins with `/`",
        ),
        (
            "error_pages = { 404 = '/{path}' }",
            "14:23: error_pages: \"/{path}\" begins with a placeholder",
        ),
        (
            "error_pages = { 404 = { to = 'https://a.test/', status = 404 } }",
            "14:30: error_pages: the status of a redirect is one of 301, 302, 303, 307 and 308",
        ),
        (
            "error_pages = { 404 = { to = '/x', status = 'own' } }",
            "14:45: status: expected a status such as 200, or \"page\", found \"own\"",
        ),
        ("ranges = -1", "14:10: ranges: expected a whole number of at least 0, found -1"),
        ("proxy_pass = 1", "14:1: there is no key `proxy_pass` in [[site.route]]: write proxy = "),
        (
            "auth = { basic = 'x', forward = '/y' }",
            "14:33: auth: either `basic` or `forward` decides",
        ),
        ("allow = []", "14:9: allow: the list is empty"),
        ("deny = ['1.2.3.4/33']", "14:9: deny: \"1.2.3.4/33\" is not a network"),
        ("methods = ['get']", "14:12: methods: \"get\" is not \"GET\""),
        ("listing = yes", "14:11: "),
    ] {
        let all = problems(&format!("{GOOD}{setting}\n"));
        assert!(
            all[0].starts_with(expected) && all.len() == 1,
            "{setting}\nexpected {expected}\n   got {all:#?}"
        );
    }
}

#[test]
fn all_problems_are_reported_together() {
    let form = "[server]\nthread = 1\nhttp1 = { fields = 'x', requests = 'y' }\n[[listen]]\naddress = 8080\n[[site]]\nhots = 'x'\nroot = 1\n";
    let places: Vec<_> = problems(form).iter().map(|problem| problem[..4].to_owned()).collect();
    assert_eq!(places.len(), 6, "{:#?}", problems(form));
    let sense = GOOD.replace("threads = 2", "threads = 0").replace("127.0.0.1:", "x:");
    assert_eq!(problems(&format!("{sense}index = ['']\nranges = 1\ntry = ['']\n")).len(), 4);
    assert_eq!(problems("").len(), 1);
}

#[test]
fn errors_in_options_name_the_option() {
    let overrides = Overrides { listen: vec!["x".into()], threads: Some(0), ..Default::default() };
    let reported = Config::parse(GOOD, Path::new("/d.toml"), &overrides).unwrap_err();
    let reported: Vec<_> = reported.iter().map(Problem::to_string).collect();
    assert!(reported[0].starts_with("--listen: \"x\" is not an address"), "{reported:?}");
    assert_eq!(reported[1], "--threads: 0 is not between 1 and 1024");
}

proptest! {
    #[test]
    fn errors_in_a_damaged_file_are_single_lines(
        start in 0..GOOD.len(),
        length in 0_usize..40,
        piece in prop::sample::select(vec![
            "", "é\"", "[[", "]]\n", "\n[server]\n", "= 1\n", "\\u0000", "'\\n'", "{", "}", "site.route = 1\n",
            "[[site]]\n", "[[site.route]]\n", "\"a\\nb\" = 1\n", "a.b.c = 2\n", "path = '/*'\n", "\0",
        ]),
    ) {
        let end = (start + length).min(GOOD.len());
        let text = format!("{}{piece}{}", &GOOD[..start], &GOOD[end..]);
        if let Err(problems) = parse(&text) {
            prop_assert!(!problems.is_empty());
            for problem in problems {
                prop_assert!(!problem.to_string().contains('\n'), "{text}\n{problem}");
            }
        }
    }
}
