#!/usr/bin/env python3
"""Writes the book's chapter on the configuration from the types that read it.

    docs/options.py > docs/src/configuration.md
"""

import re
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "crates/config/src/file"
SOURCE = "\n".join(file.read_text() for file in sorted(FOLDER.glob("*.rs")))

INTRODUCTION = """# Configuration

One TOML file. Sizes and times carry units: `256KB` is 256,000 bytes, `256KiB` 262,144; times are `500ms`, `30s`,
`5m`, `1h`, `1d`; rates are `400KB/s`. Relative paths are relative to the file. An unknown key is an error
that names the nearest valid one. `dunlin check --schema` prints all of this as a JSON Schema.
"""

TABLES = [
    ("the file", "File"),
    ("`[server]`", "ServerTable"),
    ("an access log", "AccessLogTable"),
    ("`[server.error_log]`", "ErrorLogTable"),
    ("`[server.limits]`", "Limits"),
    ("`[server.http1]`", "Http1Table"),
    ("`[server.http3]`", "Http3Table"),
    ("`[server.cache]`", "CacheTable"),
    ("`[server.reverse_dns]`", "ReverseDnsTable"),
    ("`[server.landlock]`", "Landlock"),
    ("`[server.traces]`", "TracesTable"),
    ("`[shared]`", "SharedTable"),
    ("`[store]`", "StoreTables"),
    ("`[store.s3]`, `[store.gs]`, `[store.az]`, `[store.https]`", "StoreTable"),
    ("`[map.NAME]`", "MapTable"),
    ("`[[listen]]`", "ListenTable"),
    ("`[[site]]`", "SiteTable"),
    ("`tls` of a site", "TlsTable"),
    ("`acme` in `tls`", "AcmeTable"),
    ("an authority in `directory`", "AcmeDirectory"),
    ("`dns` in `acme`", "AcmeDnsTable"),
    ("`external_account` in `acme`", "ExternalAccountTable"),
    ("`[[site.route]]`", None),
    ("`when`", "WhenTable"),
    ("`redirect`", "RedirectTable"),
    ("`respond`", "RespondTable"),
    ("`script`", "ScriptTable"),
    ("`proxy`", "ProxyTable"),
    ("an upstream in `to`", "ProxyTarget"),
    ("an entry of `replace_location`, `replace_cookie_domain` and `replace_cookie_path`", "ReplacementTable"),
    ("`cookie_flags` in `proxy`", "CookieFlagsTable"),
    ("`retry` in `proxy`", "RetryTable"),
    ("`eject` in `proxy`", "EjectTable"),
    ("`sticky` in `proxy`", "StickyTable"),
    ("`buffer` in `proxy`", "BufferTable"),
    ("`health` in `proxy`", "HealthTable"),
    ("`hsts`", "HstsTable"),
    ("`auth`", "AuthTable"),
    ("`jwt` in `auth`", "JwtTable"),
    ("an entry of `any`", "AccessTable"),
    ("`cors`", "CorsTable"),
    ("`signed`", "SignedTable"),
    ("`limit`", "RateLimitTable"),
    ("`throttle`", "ThrottleTable"),
    ("`cache` on a route", "RouteCacheTable"),
    ("`records`", "RecordsTable"),
    ("`dictionary`", "RouteDictionaryTable"),
    ("`dav`", "DavTable"),
    ("a text in `substitute`", "SubstituteTable"),
    ("`ssi`", "SsiTable"),
    ("a field in `set_fields`", "SetField"),
]

# An example of each table, as it stands in a file.
EXAMPLES = {
    "the file": 'include = "sites/*.toml"\n\n[[listen]]\naddress = ":80"\n\n[[site]]\nroot = "/srv/www"\n',
    "`[server]`": '[server]\nuser = "www-data"\nadmin = "/run/dunlin/admin.sock"\naccess_log = "/var/log/dunlin/access.log"\nstop_timeout = "30s"\n',
    "an access log": '[server]\naccess_log = { path = "/var/log/dunlin/access.log", format = "json", status = ["4xx", "5xx"] }\n',
    "`[server.error_log]`": '[server.error_log]\npath = "/var/log/dunlin/error.log"\nformat = "json"\nlevel = "info"\n',
    "`[server.limits]`": '[server.limits]\nopen_files = 65_536\n',
    "`[server.http3]`": '[server.http3]\ncongestion = "bbr"\nqlog = "/var/log/dunlin/qlog"\n',
    "`dictionary`": '[[site.route]]\npath = "/blog/*"\nproxy = "http://127.0.0.1:3000"\ndictionary = { match = "/blog/*", rotate = "12h", unless = ["X-User"] }\n',
    "`[server.http1]`": '[server.http1]\nidle_timeout = "30s"\nhead_timeout = "10s"\n',
    "`[server.cache]`": '[server.cache]\nsize = "1GB"\ndirectory = "/var/cache/dunlin"\ndisk = "20GB"\n',
    "`[server.reverse_dns]`": '[server.reverse_dns]\nttl = "1h"\n',
    "`[server.landlock]`": '[server.landlock]\nread = ["/srv/shared"]\n',
    "`[server.traces]`": '[server.traces]\nendpoint = "http://127.0.0.1:4318/v1/traces"\n',
    "`[shared]`": '[shared]\nurl = "redis://10.0.0.5:6379"\n',
    "`[store]`": '[store.s3]\nregion = "eu-central-1"\n',
    "`[store.s3]`, `[store.gs]`, `[store.az]`, `[store.https]`": '[store.s3]\nendpoint = "https://s3.eu-central-1.amazonaws.com"\nregion = "eu-central-1"\naccess_key = "AKIAIOSFODNN7EXAMPLE"\nsecret_key = "{file.s3.key}"\n',
    "`[map.NAME]`": '[map.backend]\nfrom = "{host}"\nvalues = { "a.example.com" = "one", "*" = "two" }\n',
    "`[[listen]]`": '[[listen]]\naddress = ":443"\ntls = true\nhttp3 = true\n',
    "`[[site]]`": '[[site]]\nhost = ["example.com", "www.example.com"]\nroot = "/srv/www"\n',
    "`tls` of a site": '[[site]]\nhost = "example.com"\nroot = "/srv/www"\ntls = { certificate = "example.com.pem", key = "example.com.key" }\n',
    "`acme` in `tls`": '[[site]]\nhost = "example.com"\nroot = "/srv/www"\ntls = { acme = { contact = "admin@example.com" } }\n',
    "an authority in `directory`": '[[site]]\nhost = "example.com"\nroot = "/srv/www"\ntls = { acme = { contact = "admin@example.com", directory = ["https://acme-v02.api.letsencrypt.org/directory", { url = "https://acme.example.net/directory", profile = "shortlived" }] } }\n',
    "`external_account` in `acme`": '[[site]]\nhost = "example.com"\nroot = "/srv/www"\ntls = { acme = { contact = "admin@example.com", directory = [{ url = "https://acme.example.net/directory", external_account = { id = "kid-1", key = "eab.key" } }] } }\n',
    "`dns` in `acme`": '[[site]]\nhost = "*.example.com"\nroot = "/srv/www"\ntls = { acme = { contact = "admin@example.com", dns = { command = ["/usr/local/bin/add-record"] } } }\n',
    "`[[site.route]]`": '[[site.route]]\npath = "/downloads/*"\nlisting = true\nallow = ["192.0.2.0/24"]\n',
    "`when`": '[[site.route]]\npath = "/*"\nwhen = { method = "POST" }\nproxy = "http://127.0.0.1:3000"\n',
    "`redirect`": '[[site.route]]\npath = "/old/*"\nredirect = { to = "/new/{rest}", status = 301 }\n',
    "`respond`": '[[site.route]]\npath = "/robots.txt"\nrespond = { status = 200, body = "User-agent: *\\nDisallow:\\n" }\n',
    "`script`": '[[site.route]]\npath = "/app/*"\nscript = { kind = "wsgi", application = "app:app", directory = "/srv/app", processes = 2 }\n',
    "`proxy`": '[[site.route]]\npath = "/api/*"\nproxy = { to = "http://127.0.0.1:3000", strip = "/api", first_byte_timeout = "2m" }\n',
    "an upstream in `to`": '[[site.route]]\npath = "/api/*"\nproxy = { to = [{ url = "http://127.0.0.1:3000", weight = 2 }, "http://127.0.0.1:3001"] }\n',
    "an entry of `replace_location`, `replace_cookie_domain` and `replace_cookie_path`": '[[site.route]]\npath = "/api/*"\nproxy = { to = "http://a:3000", replace_location = [{ from = "http://a:3000/", to = "/" }] }\n',
    "`cookie_flags` in `proxy`": '[[site.route]]\npath = "/api/*"\nproxy = { to = "http://a:3000", cookie_flags = [{ cookie = "session", secure = true, http_only = true, same_site = "lax" }] }\n',
    "`retry` in `proxy`": '[[site.route]]\npath = "/api/*"\nproxy = { to = ["http://a:3000", "http://b:3000"], retry = { attempts = 1 } }\n',
    "`eject` in `proxy`": '[[site.route]]\npath = "/api/*"\nproxy = { to = ["http://a:3000", "http://b:3000"], eject = { failures = 5, time = "30s" } }\n',
    "`sticky` in `proxy`": '[[site.route]]\npath = "/chat/*"\nproxy = { to = ["http://a:3000", "http://b:3000"], sticky = { cookie = "server" } }\n',
    "`buffer` in `proxy`": '[[site.route]]\npath = "/api/*"\nproxy = { to = "http://127.0.0.1:3000", buffer = { request = "1MiB", response = "1MiB" } }\n',
    "`health` in `proxy`": '[[site.route]]\npath = "/api/*"\nproxy = { to = ["http://a:3000", "http://b:3000"], health = { path = "/health", interval = "5s" } }\n',
    "`hsts`": '[[site.route]]\npath = "/*"\nhsts = { age = "365d", subdomains = true }\n',
    "`auth`": '[[site.route]]\npath = "/admin/*"\nauth = { basic = "/etc/dunlin/users" }\n',
    "`jwt` in `auth`": '[[site.route]]\npath = "/api/*"\nauth = { jwt = { jwks = "https://id.example.com/keys", issuer = "https://id.example.com", audience = "api" } }\n',
    "an entry of `any`": '[[site.route]]\npath = "/intern/*"\nany = [{ allow = ["192.0.2.0/24"] }, { auth = { basic = "/etc/dunlin/users" } }]\n',
    "`cors`": '[[site.route]]\npath = "/api/*"\ncors = { origins = ["https://app.example.com"] }\n',
    "`signed`": '[[site.route]]\npath = "/files/*"\nsigned = { secret = "{file.links.key}", expires = "e" }\n',
    "`limit`": '[[site.route]]\npath = "/login"\nlimit = { requests = "5/m", burst = 5 }\n',
    "`throttle`": '[[site.route]]\npath = "/downloads/*"\nthrottle = { max_concurrent = 20, bandwidth = "10MB/s" }\n',
    "`cache` on a route": '[[site.route]]\npath = "/news/*"\nproxy = "http://127.0.0.1:3000"\ncache = { responses = true }\n',
    "`records`": '[[site.route]]\npath = "/records/*"\nrecords = { format = "vfc", control = 2 }\n',
    "`dav`": '[[site.route]]\npath = "/files/*"\ndav = { methods = ["PUT", "DELETE"] }\nauth = { basic = "/etc/dunlin/users" }\n',
    "a text in `substitute`": '[[site.route]]\npath = "/*"\nsubstitute = [{ from = "http://old.example.com", to = "https://example.com" }]\n',
    "`ssi`": '[[site.route]]\npath = "*.shtml"\nssi = { types = ["text/html"] }\n',
    "a field in `set_fields`": '[[site.route]]\npath = "/*"\nset_fields = { X-Frame-Options = "DENY", X-Error = { value = "yes", status = ["5xx"] } }\n',
}


def entries(body):
    """Each key with its doc comment."""
    text = []
    for line in map(str.strip, body.splitlines()):
        if line.startswith("///"):
            text.append(line[3:].strip())
        elif line == "#[schemars(skip)]":
            # Files do not have the key.
            text = []
        elif not line.startswith("#["):
            found = re.match(r"(?:pub )?(?:r#)?(\w+):", line)
            if found and text:
                yield found[1], " ".join(text)
            text = []


def table(name):
    if name is None:
        yield from entries(re.search(r"pub struct Route \{(.*?)\n *\}", SOURCE, re.S)[1])
        body = re.search(r"\nroute! \{(.*?)\n\}", SOURCE, re.S)[1]
    else:
        body = re.search(rf"pub struct {name} \{{(.*?)\n *\}}", SOURCE, re.S)[1]
    yield from entries(body)


def rows(pairs):
    lines = [f"| `{key}` | {meaning.replace('|', chr(92) + '|')} |\n" for key, meaning in pairs]
    return "".join(["\n| key | meaning |\n| --- | --- |\n", *lines])


def script_groups():
    """The keys of `script` by the kinds that have them."""
    source = (FOLDER.parent / "script/keys.rs").read_text()
    kinds = dict(re.findall(r"static (\w+): Group =\s*group\(\s*(&\[[^]]*\]|EVERY_KIND)", source))
    every = re.search(r"const EVERY_KIND: &\[ScriptKind\] =\s*&\[([^]]*)\]", source)[1]
    groups = {}
    for group, keys in re.findall(r"^    (\w+): ([\w, \n]+);$", re.search(r"^keys! \{(.*?)^\}", source, re.M | re.S)[1], re.M):
        names = every if kinds[group] == "EVERY_KIND" else kinds[group].strip("&[]")
        words = tuple(f"`{name.strip().lower()}`" for name in names.split(",") if name.strip())
        groups.setdefault(words, []).extend(key.strip() for key in keys.split(","))
    return groups


def script():
    """The sections of the table `script`: a section for the keys that the same kinds have."""
    meanings = dict(table("ScriptTable"))
    parts = [rows([("kind", meanings.pop("kind"))])]
    for kinds, keys in script_groups().items():
        title = "every kind" if len(kinds) == 11 else "every kind but `component`" if len(kinds) == 10 else ", ".join(kinds)
        parts += [f"\n### `script` of {title}\n", rows((key, meanings.pop(key)) for key in keys)]
    assert not meanings, meanings
    return "".join(parts)


def chapter():
    parts = [INTRODUCTION]
    for title, name in TABLES:
        example = [f"\n```toml\n{EXAMPLES[title]}```\n"] if title in EXAMPLES else []
        parts += [f"\n## {title}\n", *example, script() if name == "ScriptTable" else rows(table(name))]
        if name == "SiteTable":
            parts.append("\nA site can have every key of a route, too: for all its paths, and more general than its routes.\n")
    return "".join(parts)


if __name__ == "__main__":
    print(chapter(), end="")
