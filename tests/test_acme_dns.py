"""Certificates by DNS-01: a real authority (Pebble), and a real name server (Knot DNS) that gets dynamic updates or the records of a program."""

import os
import socket
import subprocess

import pytest

from support.acme import authority, handshake, serve_acme  # noqa: F401
from support.name_server import KNOTC, knot  # noqa: F401
from support.scripts import script
from support.server import DUNLIN
from support.waiting import wait_until

CHALLENGE = "_acme-challenge.a.example"
CONFINEMENT = pytest.mark.parametrize("confinement", ["", "seccomp = true\nlandlock = {}"], ids=["free", "confined"])


@pytest.fixture
def start(serve, site, authority, knot):
    """Starts the authority, which resolves names by the name server, and a server with these settings of `dns`."""
    authority.resolver = knot.address

    def begin(dns, hosts=("*.a.example", "a.example"), nameservers=(knot.address,), server=""):
        if not authority.process:
            authority.start()
        acme = f'directory = "{authority.directory}", authority = "{authority.trust}"'
        queried = "" if nameservers is None else f", nameservers = {list(nameservers)}"
        return serve_acme(
            serve, site, f"{acme}, dns = {{ {dns}{queried} }}", hosts, f'resolver = ["{knot.address}"]\n{server}'
        )

    return begin


def updates(knot, key="acme", secret=None, more=""):
    return f'server = "{knot.address}", key = "{key}", secret = "{secret or knot.secret}"{more}'


@CONFINEMENT
def test_a_wildcard_is_proven_by_updates(tmp_path, start, authority, knot, confinement):
    server = start(updates(knot), server=confinement)
    shown = wait_until(lambda: handshake(server, "any.a.example", authority.root()), "a certificate", 25)
    assert handshake(server, "a.example", authority.root()) == shown
    # Both names had a record of the same name, and none is left.
    assert knot.texts(CHALLENGE) == []
    assert 'challenge="dns-01"' in server.log
    done = subprocess.run([DUNLIN, "check", "-c", tmp_path / "dunlin-0.toml"], capture_output=True, text=True)
    assert done.returncode == 0 and "for *.a.example, a.example: until" in done.stdout, (done.stdout, done.stderr)


@pytest.mark.parametrize("algorithm", ["sha384", "sha512"])
def test_a_key_has_other_hash_functions_and_a_file(tmp_path, start, authority, knot, algorithm):
    (tmp_path / "acme.secret").write_text(knot.secret + "\n")
    dns = f'server = "{knot.address}", key = "{algorithm}", algorithm = "hmac-{algorithm}", secret_file = "acme.secret"'
    server = start(f'{dns}, zone = "a.example"', hosts=["*.a.example"])
    wait_until(lambda: handshake(server, "any.a.example", authority.root()), "a certificate", 25)
    assert knot.texts(CHALLENGE) == []


def test_an_alias_is_followed(start, authority, knot):
    # The key can change nothing but what the alias leads to.
    server = start(updates(knot, "narrow"), hosts=["alias.a.example"])
    wait_until(lambda: handshake(server, "alias.a.example", authority.root()), "a certificate", 25)
    assert knot.texts("alias.proofs.a.example") == []
    narrow = start(updates(knot, "narrow"))
    where = f"name server {knot.address}, zone a.example: "
    narrow.logged(f"{where}it has no key narrow for hmac-sha256, or the key may not change the record (BADKEY)")


def test_a_wrong_key_is_one_error_with_server_and_zone(start, knot):
    where = f"there is none yet: name server {knot.address}, zone a.example: "
    wrong = start(updates(knot, secret="AAAA"))
    wrong.logged(f"{where}its key acme for hmac-sha256 has another secret (BADSIG)")
    assert wrong.log.count("BADSIG") == 1 and "AAAA" not in wrong.log
    unknown = start(updates(knot, "other"))
    unknown.logged(f"{where}it has no key other for hmac-sha256, or ")
    elsewhere = start(updates(knot), hosts=["a.example", "c.example"])
    elsewhere.logged("the CNAME records of _acme-challenge.c.example: ")
    # What was published before is removed.
    wait_until(lambda: knot.texts(CHALLENGE) == [], "the record is removed")


def test_the_record_is_removed_when_the_authority_rejects_it(start, authority, knot):
    # It resolves names elsewhere, where they have no texts.
    authority.resolver = "127.0.0.1:%d" % authority.names.server_address[1]
    server = start(updates(knot))
    server.logged("the certificate was not obtained, there is none yet: ")
    assert "No TXT record" in server.log
    assert knot.log.count("DDNS, finished") == 4
    assert knot.texts(CHALLENGE) == []


def test_a_record_has_to_reach_the_name_servers(start, knot):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % silent.getsockname()[1]
        server = start(updates(knot, more=', propagation_timeout = "1s"'), nameservers=[address])
        server.logged(f"the record {CHALLENGE} is not published after 1 s: ")
        assert silent.recv(4096)
    wait_until(lambda: knot.texts(CHALLENGE) == [], "the record is removed")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can listen on port 53")
def test_the_name_servers_of_the_zone_are_queried(start, authority, knot):
    quick = ', propagation_timeout = "1s"'
    failing = start(updates(knot, more=quick), nameservers=None)
    failing.logged(f"the record {CHALLENGE} is not published after 1 s: name server {knot.ns}:53: ")
    failing.stop()
    knot.close()
    knot.start(f"{knot.ns}@53")
    server = start(updates(knot), nameservers=None)
    wait_until(lambda: handshake(server, "a.example", authority.root()), "a certificate", 25)


def test_the_wait_for_name_servers_can_be_omitted(start, authority, knot):
    server = start(updates(knot), nameservers=[])
    wait_until(lambda: handshake(server, "a.example", authority.root()), "a certificate", 25)


def hook(tmp_path, knot):
    """A program that changes the zone by the control socket of the name server, and notes its arguments."""
    program = f'{KNOTC} -s {knot.socket}'
    script(
        tmp_path, "hook",
        f'echo "$*|$ACME_ACTION $ACME_RECORD $ACME_VALUE|$ACME_DOMAIN" >> {tmp_path}/calls\n'
        f"exec >&2; {program} zone-begin a.example || exit 1\n"
        f'case $2 in add) {program} zone-set a.example $3. 60 TXT $4;; remove) {program} zone-unset a.example $3. TXT $4;; esac\n'
        f"{program} zone-commit a.example\n",
    )
    return tmp_path / "hook"


@CONFINEMENT
def test_a_program_publishes_the_records(tmp_path, start, authority, knot, confinement):
    server = start(f'command = ["{hook(tmp_path, knot)}", "extra"]', server=confinement)
    wait_until(lambda: handshake(server, "any.a.example", authority.root()), "a certificate", 25)
    assert knot.texts(CHALLENGE) == []
    calls = [line.split("|") for line in (tmp_path / "calls").read_text().splitlines()]
    actions = [arguments.split()[1] for arguments, _, _ in calls]
    assert actions == ["add", "add", "remove", "remove"], calls
    for arguments, environment, domain in calls:
        assert arguments == f"extra {environment}" and domain == "a.example"
        assert environment.split()[1] == CHALLENGE and len(environment.split()[2]) == 43


def test_a_program_that_fails_or_hangs_is_reported(tmp_path, start):
    script(tmp_path, "fail", "echo the token has expired >&2; exit 3")
    failing = start(f'command = ["{tmp_path}/fail"]')
    failing.logged(f"dns command {tmp_path}/fail add {CHALLENGE}: exit status: 3: the token has expired")
    script(tmp_path, "hang", f"echo $$ >> {tmp_path}/pids; echo waiting >&2; sleep 600")
    hanging = start(f'command = ["{tmp_path}/hang"], timeout = "500ms"')
    hanging.logged(f"dns command {tmp_path}/hang add {CHALLENGE}: it has not ended within 0.5 s: waiting")
    for pid in (tmp_path / "pids").read_text().split()[:2]:
        wait_until(lambda: subprocess.run(["kill", "-0", pid], capture_output=True).returncode, "the program is killed")


def test_settings_are_shown_without_the_secret(tmp_path):
    def run(*arguments):
        done = subprocess.run([DUNLIN, "check", *arguments], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        # No listener has to be reachable.
        assert "connects to port" not in done.stderr
        assert "c2VjcmV0" not in done.stdout + done.stderr and "b3RoZXI" not in done.stdout + done.stderr
        return done.stdout

    for name, secret in (("new", "c2VjcmV0"), ("old", "b3RoZXI=")):
        (tmp_path / f"{name}.toml").write_text(
            '[[listen]]\naddress = "127.0.0.1:0"\ntls = true\n[[site]]\nhost = "*.example.com"\nroot = "."\n'
            f'tls.acme.dns = {{ server = "192.0.2.53", key = "acme", secret = "{secret}", zone = "example.com" }}\n'
        )
    shown = run("-c", "new.toml", "--explain", "https://a.example.com/")
    assert "proven by DNS-01 with updates of example.com at 192.0.2.53 port 53 with the key acme" in shown
    assert 'tls.acme.dns.secret: "hidden-' in run("-c", "new.toml", "--diff", "old.toml")


def test_settings_that_do_not_fit_are_errors_with_their_location(tmp_path):
    def problem(acme, host="a.example", listen="tls = true"):
        file = tmp_path / "bad.toml"
        file.write_text(f'[[listen]]\naddress = "127.0.0.1:0"\n{listen}\n[[site]]\nhost = "{host}"\nroot = "."\ntls.acme = {{ {acme} }}\n')
        done = subprocess.run([DUNLIN, "check", "-c", file], capture_output=True, text=True)
        assert done.returncode == 1, (acme, done.stdout)
        return done.stderr

    server, key = 'server = "192.0.2.1"', 'key = "acme"'
    wildcard = problem("", host="*.example.com")
    assert ":7:12: acme: *.example.com: a wildcard needs DNS-01; write dns = { server = " in wildcard
    assert "an address cannot be proven by DNS-01" in problem(f"dns = {{ {server} }}", host="192.0.2.7")
    assert "there is no `dns`" in problem('challenge = "dns-01"')
    assert "`dns` is for dns-01" in problem(f'challenge = "http-01", dns = {{ {server} }}')
    assert "either `server`, which gets updates, or `command`" in problem("dns = {}")
    assert "either `server`, which gets updates, or `command`" in problem(f'dns = {{ {server}, command = ["a"] }}')
    assert "`zone` is for updates" in problem('dns = { command = ["a"], zone = "b" }')
    assert "command has no program" in problem("dns = { command = [] }")
    assert "`timeout` is for `command`" in problem(f'dns = {{ {server}, timeout = "1s" }}')
    assert "timeout is 0" in problem('dns = { command = ["a"], timeout = "0s" }')
    assert "`key` needs either `secret` or `secret_file`" in problem(f"dns = {{ {server}, {key} }}")
    assert "`secret` needs `key`" in problem(f'dns = {{ {server}, secret = "AAAA" }}')
    assert "is not a server such as" in problem('dns = { server = "http://192.0.2.1" }')
    assert "is not a domain name" in problem(f'dns = {{ {server}, zone = "a b" }}')
    assert "did you mean `hmac-sha256`" in problem(f'dns = {{ {server}, {key}, secret = "AAAA", algorithm = "hmac-sha25" }}')
    secret = problem(f'dns = {{ {server}, {key}, secret = "n0t base64" }}')
    assert "`secret` is not in Base64" in secret and "n0t" not in secret
    (tmp_path / "acme.secret").write_text("n0t base64!\n")
    secret = problem(f'dns = {{ {server}, {key}, secret_file = "acme.secret" }}')
    assert "acme.secret: it is not in Base64" in secret and "n0t" not in secret
    assert "No such file" in problem(f'dns = {{ {server}, {key}, secret_file = "none" }}')
