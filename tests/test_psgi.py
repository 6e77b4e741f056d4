"""PSGI applications: what they are told, what becomes of what they say, their processes."""

import hashlib
import json
import os
import signal

import pytest

from conftest import read_response, wait_until
from test_cgi import IDENTITY, PRINT, assert_events_arrive_as_they_are_sent, get, is_alive, script
from test_fastcgi import serve, workers  # noqa: F401
from test_wsgi import post

APP = r'''
use strict;
use warnings;
use Digest::SHA ();
use JSON::PP ();

my %pages;
my $text = ['Content-Type' => 'text/plain'];
sub wait_for { my ($path) = @_; select undef, undef, undef, 0.002 until -e $path }

$pages{hello} = sub { [200, $text, ['hel', 'lo']] };
$pages{pid} = sub { [200, $text, [$$]] };
$pages{env} = sub {
    my ($env) = @_;
    my $body = '';
    1 while $env->{'psgi.input'}->read($body, 3, length $body);
    my %told = map { $_ => $env->{$_} } grep { !ref $env->{$_} } keys %$env;
    my $version = join '.', @{ $env->{'psgi.version'} };
    return [200, ['Content-Type' => 'application/json'], [JSON::PP->new->latin1->encode(
        { env => \%told, body => $body, version => $version })]];
};
$pages{total} = sub {
    my ($env) = @_;
    my ($digest, $part) = (Digest::SHA->new(256), '');
    while ($env->{'psgi.input'}->read($part, 100_000)) { $digest->add($part); $part = '' }
    return [200, $text, [$digest->hexdigest]];
};
$pages{lines} = sub {
    my ($env) = @_;
    my @lines = $env->{'psgi.input'}->getlines;
    chomp @lines;
    return [200, $text, [join '|', @lines]];
};
$pages{ignore} = sub { [200, $text, ['ignored']] };
$pages{large} = sub { [200, $text, [map { chr(65 + $_ % 26) x 10_000 } 0 .. 299]] };
$pages{file} = sub { open my $file, '<', 'app.psgi' or die $!; [200, $text, $file] };
$pages{cookies} = sub { [200, [@$text, 'Set-Cookie' => 'a=1', 'Set-Cookie' => 'b=2'], []] };
$pages{later} = sub { sub { my ($respond) = @_; $respond->([202, $text, ['later']]) } };
$pages{events} = sub {
    my ($env) = @_;
    return sub {
        my ($respond) = @_;
        my $writer = $respond->([200, ['Content-Type' => 'text/event-stream']]);
        for my $number (0 .. 2) {
            $writer->write("data: $number\n\n");
            wait_for($env->{QUERY_STRING} . $number);
        }
        $writer->close;
    };
};
$pages{endless} = sub {
    my ($env) = @_;
    return sub {
        my $writer = $_[0]->([200, $text]);
        my $ok = eval { $writer->write('x' x 1000) while 1; 1 };
        open my $file, '>', $env->{QUERY_STRING};
        die $@;
    };
};
$pages{fails} = sub { die "on purpose\n" };
$pages{fails_late} = sub {
    return sub { my $writer = $_[0]->([200, $text]); $writer->write('x' x 300_000); die "late on purpose\n" };
};
$pages{unfinished} = sub { return sub { $_[0]->([200, $text])->write('part') } };
$pages{nothing} = sub { return sub { } };
$pages{split} = sub { [200, ['X-A' => "b\r\nSet-Cookie: evil=1"], ['']] };
$pages{wide} = sub { [200, $text, ["\x{263a}"]] };
$pages{says} = sub { print { $_[0]{'psgi.errors'} } "said to the log\n"; [200, $text, ['ok']] };
$pages{spin} = sub { 1 while 1 };

sub {
    my ($env) = @_;
    my ($name) = $env->{PATH_INFO} =~ m{^/(\w+)};
    return $pages{ $name // 'hello' }->($env);
};
'''


@pytest.fixture
def psgi(serve, tmp_path):  # noqa: F811
    """Starts a server with the application: `psgi(settings)`."""
    directory = tmp_path / "app"
    directory.mkdir()
    (directory / "app.psgi").write_text(APP)

    def start(settings="processes = 1", route="", application="app.psgi", more=""):
        return serve(
            more=f'[[site.route]]\npath = "/app/*"\n{route}\nscript = {{ kind = "psgi", '
            f'application = "{application}", directory = "{directory}", {settings} }}\n{more}'
        )

    start.directory = directory
    return start


def test_an_application_is_told_what_a_cgi_program_is_told(psgi, tmp_path):
    directory = tmp_path / "cgi-bin"
    script(directory, "print", PRINT)
    server = psgi(
        'processes = 1, env = { APP = "blue" }',
        more=f'[[site.route]]\npath = "/cgi/*"\n'
        f'script = {{ kind = "cgi", directory = "{directory}", env = {{ APP = "blue" }} }}',
    )
    fields = ("Content-Type: text/x", "X-Two: 1", "X-Two: 2", "Cookie: a=b", "Proxy: http://evil/")
    told = []
    for path in ("/app/env/%C3%A4%20b?x=%41&y", "/cgi/print/env/%C3%A4%20b?x=%41&y"):
        status, _, body = post(server, path, b"a=1&b=2", *fields)
        assert status == 200, server.log
        told.append(json.loads(body.decode("latin-1") if path.startswith("/app") else body))
    seen, wanted = told[0]["env"], told[1]["env"]
    assert told[0]["body"] == told[1]["body"] == "a=1&b=2" and told[0]["version"] == "1.1"
    for name, value in {
        "url_scheme": "http", "multithread": "", "multiprocess": 1, "run_once": "", "nonblocking": "", "streaming": 1
    }.items():
        assert seen.pop(f"psgi.{name}") == value, name
    for name in ("PATH", "LC_CTYPE", "SCRIPT_FILENAME"):
        wanted.pop(name, None)
    for name in ("SCRIPT_NAME", "REQUEST_URI", "REMOTE_PORT", *IDENTITY):
        assert seen.pop(name) != wanted.pop(name)
    for name in ("PATH_INFO", "PATH_TRANSLATED"):
        wanted[name] = wanted[name].encode().decode("latin-1")
    assert seen == wanted


def test_answers_of_every_form_arrive(psgi):
    server = psgi()
    assert get(server, "/app/")[2] == b"hello"
    assert get(server, "/app/later")[::2] == (202, b"later")
    assert get(server, "/app/file")[2] == (psgi.directory / "app.psgi").read_bytes()
    assert get(server, "/app/large")[2] == b"".join(bytes([65 + at % 26]) * 10_000 for at in range(300))
    assert get(server, "/app/cookies")[1]["set-cookie"] == "a=1, b=2"
    assert post(server, "/app/lines", b"one\ntwo\nthree")[2] == b"one|two|three"
    with server.connect() as connection:
        connection.sendall(b"GET /app/ HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        rest = b""
        for _ in range(20):
            status, _, body, rest = read_response(connection, rest)
            assert (status, body) == (200, b"hello")
    status, fields, body = server.get("/app/hello", method="HEAD")
    assert (status, body, fields["content-length"]) == (200, b"", "5")
    assert len(workers(server)) == 1


@pytest.mark.parametrize("chunked", [False, True])
def test_an_upload_of_200_mb_arrives_whole(psgi, chunked):
    server = psgi(route='body_size = "300MB"')
    body = os.urandom(1 << 20) * 200
    digest = hashlib.sha256(body).hexdigest().encode()
    assert post(server, "/app/total", body, chunked=chunked)[2] == digest
    assert post(server, "/app/ignore", body[:200_000], chunked=chunked)[2] == b"ignored"
    assert get(server, "/app/")[2] == b"hello"


def test_events_arrive_as_they_are_sent(psgi, tmp_path):
    server = psgi()
    assert_events_arrive_as_they_are_sent(server, f"/app/events?{tmp_path}/gate", tmp_path)


def test_what_fails_is_told_and_seen_to_fail(psgi):
    server = psgi()
    for name in ("fails", "nothing", "split", "wide"):
        status, fields, _ = get(server, f"/app/{name}")
        assert status == 500 and "set-cookie" not in fields, name
    for reason in ("on purpose", "gave no answer", "a line break", "beyond a byte"):
        server.logged(reason)
    assert not cut(server, "fails_late").endswith(b"0\r\n\r\n")
    # It is small enough to be held back until its end, which is none.
    assert get(server, "/app/unfinished")[0] == 502
    server.logged("late on purpose")
    assert get(server, "/app/says")[2] == b"ok"
    server.logged("said to the log")
    assert get(server, "/app/")[2] == b"hello"


def cut(server, name):
    with server.connect() as connection:
        connection.sendall(f"GET /app/{name} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        data = b""
        try:
            while part := connection.recv(1 << 16):
                data += part
        except ConnectionResetError:
            pass
    return data


@pytest.mark.parametrize("application, reason", [
    ("none.psgi", "No such file"),
    ("bad.psgi", "syntax error"),
    ("number.psgi", "does not end with a PSGI application"),
])
def test_an_application_that_cannot_be_loaded_is_told_of(psgi, application, reason):
    (psgi.directory / "bad.psgi").write_text("sub {")
    (psgi.directory / "number.psgi").write_text("42;")
    server = psgi('processes = 1, queue_timeout = "1s"', application=application)
    assert get(server, "/app/")[0] in (502, 503)
    server.logged(reason)


def test_a_client_that_leaves_ends_the_answer(psgi, tmp_path):
    server = psgi()
    with server.connect() as connection:
        connection.sendall(f"GET /app/endless?{tmp_path}/left HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        connection.recv(1 << 16)
    wait_until(lambda: (tmp_path / "left").exists(), "the application hears of it")
    assert get(server, "/app/")[2] == b"hello"


def test_a_host_that_hangs_is_ended_and_replaced(psgi):
    server = psgi('processes = 1, timeout = "2s"')
    before = get(server, "/app/pid")[2]
    assert get(server, "/app/spin")[0] == 504
    wait_until(lambda: not is_alive(int(before)), "it is gone")
    status, _, after = get(server, "/app/pid")
    assert status == 200 and after != before


def test_hosts_that_die_or_have_done_enough_are_replaced(psgi):
    server = psgi('processes = 1, requests = 5, backoff = "5ms"')
    pids = [get(server, "/app/pid")[2] for _ in range(12)]
    assert len(set(pids)) == 3 and pids[0] == pids[4] != pids[5]
    os.kill(int(pids[-1]), signal.SIGKILL)
    wait_until(lambda: not is_alive(int(pids[-1])), "it is gone")
    status, _, body = get(server, "/app/pid")
    assert status == 200 and body not in pids


def test_a_host_does_not_outlive_a_server_that_was_killed(psgi):
    server = psgi()
    pid = int(get(server, "/app/pid")[2])
    server.process.kill()
    wait_until(lambda: not is_alive(pid), "the host is gone")
