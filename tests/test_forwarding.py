"""Trusted proxies: the one field by which they name the client, and all the others, which count for nothing."""

import subprocess

import pytest

from support.files import write
from support.server import DUNLIN
from support.upstream import Upstream

# Fields by which proxies name clients. Scripts get only those of a trusted proxy.
OTHERS = [
    "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Prefix",
    "X-Forwarded-Server", "X-Forwarded-Ssl", "X-Forwarded-User", "X-Forwarded-Uri", "X-Forwarded", "Forwarded",
    "Forwarded-For", "X-Real-IP", "X-Client-IP", "True-Client-IP", "CF-Connecting-IP", "Fastly-Client-IP",
    "X-Cluster-Client-IP", "X-Original-Forwarded-For", "X-Original-Host", "Client-IP", "Front-End-Https",
]
FAMILIES = {
    "X-Forwarded-For": {name for name in OTHERS if name.startswith("X-Forwarded-")},
    "Forwarded": {"Forwarded"},
    "X-Real-IP": {"X-Real-IP"},
    "CF-Connecting-IP": {"CF-Connecting-IP"},
    "X-My-Balancer": {"X-My-Balancer"},
}
TRUSTED = 'trusted_proxies = ["127.0.0.0/8", "10.0.0.0/8", "2001:db8:f::/48"]\n'


@pytest.fixture
def environment(serve, site):
    """Starts a server with a script that prints its environment: `environment(keys of [server])`."""
    script = write(site / "env", '#!/bin/sh\nprintf "Content-Type: text/plain\\n\\n"\nenv\n')
    script.chmod(0o755)

    def start(server=""):
        running = serve(route=f'script = {{ kind = "cgi", directory = "{site}" }}', server=server)

        def fetch(*fields):
            status, _, body = running.get("/env", *fields)
            assert status == 200
            return dict(line.split("=", 1) for line in body.decode().splitlines())

        return fetch

    return start


def variable(name):
    return "HTTP_" + name.upper().replace("-", "_")


def names_in(variables, names):
    return {name for name in names if variable(name) in variables}


@pytest.mark.parametrize("field", FAMILIES)
def test_scripts_get_only_the_field_that_trusted_proxies_set(environment, field):
    fetch = environment(TRUSTED + f'forwarded_field = "{field.lower()}"')
    names = sorted({*OTHERS, field})
    fields = [f"{name}: 6.6.6.6" for name in names if name != field] + [f"{field}: for=1.2.3.4" if field == "Forwarded" else f"{field}: 1.2.3.4"]
    variables = fetch(*fields)
    assert variables["REMOTE_ADDR"] == "1.2.3.4"
    assert names_in(variables, names) == FAMILIES[field]
    # Nothing that a script could take for one of them.
    assert "6.6.6.6" not in {value for name, value in variables.items() if variable(name) not in map(variable, FAMILIES[field])
                             and name not in map(variable, FAMILIES[field])}


@pytest.mark.parametrize("server", ["", 'trusted_proxies = ["10.0.0.0/8"]', 'trusted_proxies = ["10.0.0.0/8"]\nforwarded_field = "X-My-Balancer"'])
def test_without_a_trusted_proxy_no_forwarding_field_counts(environment, server):
    names = [*OTHERS, *(["X-My-Balancer"] if "Balancer" in server else [])]
    variables = environment(server)(*[f"{name}: 6.6.6.6" for name in names], "X_Forwarded_For: 6.6.6.6", "X-Requested-With: x")
    assert variables["REMOTE_ADDR"] == "127.0.0.1" and "HTTPS" not in variables
    assert names_in(variables, names) == set() and "6.6.6.6" not in variables.values()
    assert variables["HTTP_X_REQUESTED_WITH"] == "x"


def test_a_client_behind_a_proxy_cannot_choose_its_address_by_another_field(environment):
    fetch = environment(TRUSTED)
    spoofed = ["Forwarded: for=10.1.2.3;proto=https", "X-Real-IP: 10.1.2.3", "X_Forwarded_For: 10.1.2.3", "X-Client-IP: 10.1.2.3"]
    variables = fetch(*spoofed, "X-Forwarded-For: 6.6.6.6")
    assert variables["REMOTE_ADDR"] == "6.6.6.6" and "HTTPS" not in variables
    variables = fetch(*spoofed)
    assert variables["REMOTE_ADDR"] == "127.0.0.1" and "HTTPS" not in variables


@pytest.mark.parametrize(
    "lines, address, https",
    [
        (["for=192.0.2.9"], "192.0.2.9", False),
        (['for="192.0.2.9:4711";proto=https'], "192.0.2.9", True),
        (['For="[2001:db8::5]:99";PROTO="https";by=_x'], "2001:db8::5", True),
        (["for=6.6.6.6, for=192.0.2.9;proto=https, for=10.2.3.4;proto=http"], "192.0.2.9", True),
        (["for=192.0.2.9", 'for="[2001:db8:f::1]"'], "192.0.2.9", False),
        (["for=6.6.6.6", "for=192.0.2.9"], "192.0.2.9", False),
        # Malformed or without an address: as if there were no such field.
        (["for=10.1.2.3;for=6.6.6.6"], "127.0.0.1", False),
        (["for=192.0.2.9;FOR=192.0.2.9"], "127.0.0.1", False),
        (["for=192.0.2.9;proto=https;proto=https"], "127.0.0.1", False),
        (["for=192.0.2.9;secret=a;secret=b, for=10.2.3.4"], "127.0.0.1", False),
        (["for=unknown"], "127.0.0.1", False),
        (['for="192.0.2.9'], "127.0.0.1", False),
        # The scheme counts without an address.
        (["for=unknown;proto=https"], "127.0.0.1", True),
        (["for=_hidden;proto=https"], "127.0.0.1", True),
        (["proto=https"], "127.0.0.1", True),
        # Elements that a client sends before its proxy's have no effect.
        (['for="x, for=192.0.2.9'], "192.0.2.9", False),
        (["for=7.7.7.7;for=6.6.6.6, for=192.0.2.9"], "192.0.2.9", False),
    ],
)
def test_forwarded_is_read_by_its_grammar(environment, lines, address, https):
    fetch = environment(TRUSTED + 'forwarded_field = "Forwarded"')
    variables = fetch(*[f"Forwarded: {line}" for line in lines], "X-Forwarded-For: 7.7.7.7", "X-Forwarded-Proto: https")
    assert (variables["REMOTE_ADDR"], "HTTPS" in variables) == (address, https)


@pytest.mark.parametrize(
    "lines, address",
    [
        (["X-Forwarded-For: 6.6.6.6, 192.0.2.9, 10.2.3.4"], "192.0.2.9"),
        (["X-Forwarded-For: 6.6.6.6", "x-forwarded-for: 192.0.2.9:80"], "192.0.2.9"),
        (["X-Forwarded-For: [2001:db8::5]:80,2001:db8:f::1"], "2001:db8::5"),
        (["X-Forwarded-For: unknown"], "127.0.0.1"),
        (["X-Forwarded-For: 192.0.2.9, _x"], "127.0.0.1"),
        (["X-Forwarded-For:"], "127.0.0.1"),
    ],
)
def test_x_forwarded_for_is_read_from_its_end(environment, lines, address):
    fetch = environment(TRUSTED)
    assert fetch(*lines)["REMOTE_ADDR"] == address
    assert "HTTPS" in fetch(*lines, "X-Forwarded-Proto: https"), "whether or not there is an address"
    assert "HTTPS" not in fetch(*lines, "X-Forwarded-Proto: http")


@pytest.mark.parametrize("server", ["", 'forwarded_field = "X-Real-IP"'])
@pytest.mark.parametrize("address", [[], ["X-Forwarded-For: unknown", "X-Real-IP: unknown"], ["X-Forwarded-For: 1.2.3.4", "X-Real-IP: 1.2.3.4"]])
def test_the_scheme_of_a_trusted_proxy_reaches_scripts_and_upstreams(environment, serve, server, address):
    fetch = environment(TRUSTED + server)
    upstream = Upstream()
    behind = serve(route=f'proxy = "{upstream.url}"\nredirect_https = true', server=TRUSTED + server)
    for scheme, name in [("https", "https"), ("HTTPS", "https"), ("wss", "https"), ("WSS", "https"), ("http", "http"), ("ws", "http")]:
        variables = fetch(*address, f"X-Forwarded-Proto: {scheme}")
        assert (variables["REQUEST_SCHEME"], variables.get("HTTPS")) == (name, "on" if name == "https" else None), scheme
        status, _, _ = behind.get("/", *address, f"X-Forwarded-Proto: {scheme}")
        assert status == (200 if name == "https" else 308), scheme
    assert len(upstream.requests) == 4
    for request in upstream.requests:
        assert request.fields["x-forwarded-proto"] == "https" and request.fields["forwarded"].endswith("proto=https")


# Fields that only a trusted proxy or the server may set.
GUARDED = [
    "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Prefix", "X-Forwarded-Port", "X-Forwarded-User",
    "X-Forwarded-Client-Cert", "X-Real-IP", "X-Client-IP", "True-Client-IP", "Early-Data", "Proxy-Authorization", "Proxy-Connection",
    "Proxy-Anything", "Remote-User", "Client-Cert", "Client-Cert-Chain", "X-Sendfile-Type", "X-Accel-Mapping", "Transfer-Encoding", "Keep-Alive",
]


def spellings(name):
    """Names that programs may take for this one."""
    first, _, rest = name.partition("-")
    yield from (name.replace("-", other) for other in "_.~!")
    yield first + "_" + rest
    yield name.lower().replace("-", "_")


@pytest.mark.parametrize("server", ["", TRUSTED, TRUSTED + 'forwarded_field = "X-Real-IP"', TRUSTED + 'forwarded_field = "Forwarded"'])
def test_other_spellings_reach_neither_upstreams_nor_scripts(environment, serve, server):
    upstream = Upstream()
    behind = serve(route=f'proxy = "{upstream.url}"', server=server)
    others = [f"{other}: 6.6.6.6" for name in GUARDED for other in spellings(name)]
    fetch = environment(server)
    for at in range(0, len(others), 60):
        assert behind.get("/", *others[at : at + 60], "X_Customer: 7", "X-Kept: 7")[0] == 200
        request = upstream.requests[-1]
        assert b"6.6.6.6" not in request.head, request.head
        assert request.fields["x_customer"] == request.fields["x-kept"] == "7"
        assert "6.6.6.6" not in fetch(*others[at : at + 60]).values()
    # The plain names of what no proxy sets.
    plain = ["Proxy", "Proxy-Authorization", "Proxy-Anything", "X-Sendfile-Type", "X-Accel-Mapping"]
    behind.get("/", *(f"{name}: 6.6.6.6" for name in [*plain, "Early-Data", "Remote-User", "Client-Cert", "Client-Cert-Chain"]))
    assert b"6.6.6.6" not in upstream.requests[-1].head
    assert "6.6.6.6" not in fetch(*(f"{name}: 6.6.6.6" for name in plain)).values()
    if not server:
        assert "6.6.6.6" not in fetch("Remote-User: 6.6.6.6", "Client-Cert: 6.6.6.6", "Client-Cert-Chain: 6.6.6.6").values()


@pytest.mark.parametrize(
    "keys, problem",
    [
        ('forwarded_field = "Forwarded"', "forwarded_field does nothing without `trusted_proxies`"),
        (TRUSTED + 'forwarded_field = "X_Real_IP"', "is not a field such as"),
        (TRUSTED + 'forwarded_field = ""', "is not a field such as"),
    ],
)
def test_a_field_that_cannot_be_meant_is_an_error(tmp_path, site, keys, problem):
    file = tmp_path / "dunlin.toml"
    file.write_text(f'[server]\n{keys}\n[[listen]]\naddress = ":0"\n[[site]]\nroot = "{site}"\n')
    done = subprocess.run([DUNLIN, "check", "-c", str(file)], capture_output=True, text=True)
    assert done.returncode == 1 and problem in done.stderr
