"""Real application servers and frameworks, and names and responses of applications."""

import contextlib
import shutil
import signal
import socket
import subprocess
import threading

import pytest

from support.http import parse, post, read_all
from support.scripts import script
from support.server import DUNLIN, Server
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

@pytest.fixture
def raw_server(tmp_path):
    """An external worker that sends the given bytes on each connection: `raw_server(data)` is its address."""
    listeners = []

    def start(data):
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(data)

        threading.Thread(target=run, daemon=True).start()
        return "127.0.0.1:%d" % listener.getsockname()[1]

    yield start
    for listener in listeners:
        listener.close()


@pytest.mark.parametrize("kind", ["uwsgi", "scgi"])
@pytest.mark.parametrize("line, status", [
    ("HTTP/1.1 200 OK", 200),
    ("HTTP/1.0 404 Not Found", 404),
    ("HTTP/1.1 201", 201),
    ("HTTP/1.1 500 ", 500),
    ("HTTP/1.1 200OK", 502),
    ("HTTP/1.1 20 OK", 502),
    ("HTTP/1.1", 502),
    ("HTTP/1.1 100 Continue", 502),
    ("HTTP/1.1 200 OK\r\nHTTP/1.1 200 OK", 502),
    ("HTTPS 200 OK", 502),
])
def test_a_worker_may_begin_with_a_status_line(serve, raw_server, kind, line, status):
    address = raw_server(f"{line}\r\nContent-Type: text/plain\r\nX-A: b\r\n\r\nhello".encode())
    server = serve(route=f'script = {{ kind = "{kind}", connect = ["{address}"] }}')
    got, fields, body = server.get("/")
    assert got == status
    if status != 502:
        assert (fields["x-a"], body) == ("b", b"hello")


@pytest.mark.parametrize("kind", ["cgi", "warm"])
def test_a_cgi_program_may_begin_with_a_status_line(serve, tmp_path, kind):
    directory = tmp_path / "bin"
    script(directory, "line", "printf 'HTTP/1.1 404 Gone\\r\\nContent-Type: text/plain\\r\\n\\r\\nno'")
    script(directory, "bad", "printf 'HTTP/1.1 4o4 Gone\\r\\nContent-Type: text/plain\\r\\n\\r\\nno'")
    server = serve(more=f'[[site.route]]\npath = "/b/*"\nscript = {{ kind = "{kind}", directory = "{directory}" }}')
    assert server.get("/b/line")[::2] == (404, b"no")
    assert server.get("/b/bad")[0] == 502
    server.logged("status line is malformed")


UWSGI_APP = """
def application(environ, start_response):
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    status = "404 Not Found" if environ["PATH_INFO"].endswith("/missing") else "200 OK"
    start_response(status, [("Content-Type", "text/plain")])
    return [environ["REQUEST_METHOD"].encode(), b" ", body]
"""


def test_uwsgi_itself_serves_an_application(serve, tmp_path):
    program = shutil.which("uwsgi_python3") or shutil.which("uwsgi-core") or shutil.which("uwsgi")
    assert program, "uwsgi-core and uwsgi-plugin-python3 are missing"
    (tmp_path / "uapp.py").write_text(UWSGI_APP)
    path = tmp_path / "u.sock"
    uwsgi = subprocess.Popen(
        [program, "--plugin", "python3", "-s", str(path), "--module", "uapp", "--need-app", "--master", "--die-on-term"],
        cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        wait_until(lambda: path.exists() or uwsgi.poll() is not None, "uWSGI listens", 60)
        assert uwsgi.poll() is None, uwsgi.stderr.read()
        server = serve(route=f'script = {{ kind = "uwsgi", connect = ["unix:{path}"] }}')
        assert server.get("/")[::2] == (200, b"GET ")
        assert server.get("/missing")[::2] == (404, b"GET ")
        assert post(server, "/x", b"body")[::2] == (200, b"POST body")
    finally:
        uwsgi.kill()
        uwsgi.communicate()


MOJO = """
use Mojolicious::Lite -signatures;
get '/' => { text => 'hello' };
get '/mode' => sub ($c) { $c->render(text => $ENV{PLACK_ENV}) };
get '/stream' => sub ($c) {
    $c->res->headers->content_type('text/plain');
    $c->write_chunk('Hello ' => sub ($c, @) {
        $c->write_chunk('World!' => sub ($c, @) { $c->finish });
    });
};
app->start;
"""


def test_mojolicious_runs_without_settings(psgi):
    assert subprocess.run(["perl", "-MMojolicious", "-e1"]).returncode == 0, "libmojolicious-perl is missing"
    (psgi.directory / "moj.pl").write_text(MOJO)
    server = psgi("processes = 1", application="moj.pl")
    assert server.get("/app/")[::2] == (200, b"hello")
    assert server.get("/app/mode")[2] == b"deployment"
    assert server.get("/app/stream")[::2] == (200, b"Hello World!")
    assert server.get("/app/stream", method="HEAD")[0] == 200


def test_the_environment_of_plack_can_be_set(psgi):
    (psgi.directory / "e.psgi").write_text("sub { [200, ['Content-Type' => 'text/plain'], [$ENV{PLACK_ENV}]] }")
    server = psgi('processes = 1, env = { PLACK_ENV = "development" }', application="e.psgi")
    assert server.get("/app/")[2] == b"development"


CHUNKED = {
    "whole": ("5\\r\\nhello\\r\\n6;a=b\\r\\n world\\r\\n0\\r\\nX-T: 1\\r\\n\\r\\n", b"hello world"),
    "empty": ("0\\r\\n\\r\\n", b""),
    "excess": ("2\\r\\nok\\r\\n0\\r\\n\\r\\nmore", b"ok"),
    "cut": ("5\\r\\nhel", None),
    "no_end": ("5\\r\\nhello\\r\\n", None),
    "plain": ("hello", None),
}


@pytest.mark.parametrize("kind", ["cgi", "warm"])
def test_a_chunked_body_of_a_script_is_decoded(serve, tmp_path, kind):
    directory = tmp_path / "bin"
    head = "Content-Type: text/plain\\r\\nTransfer-Encoding: Chunked\\r\\n"
    for name, (body, _) in CHUNKED.items():
        script(directory, name, f"printf '{head}\\r\\n{body}'")
    script(directory, "both", f"printf '{head}Content-Length: 5\\r\\n\\r\\n5\\r\\nhello\\r\\n0\\r\\n\\r\\n'")
    script(directory, "gzip", "printf 'Transfer-Encoding: gzip\\r\\n\\r\\nx'")
    script(directory, "slow", f"printf '{head}\\r\\n5\\r\\nhel'; read -r line < {tmp_path}/gate; printf 'lo\\r\\n0\\r\\n\\r\\n'")
    subprocess.run(["mkfifo", tmp_path / "gate"], check=True)
    server = serve(more=f'[[site.route]]\npath = "/b/*"\nscript = {{ kind = "{kind}", directory = "{directory}" }}')
    for name, (_, expected) in CHUNKED.items():
        if expected is not None:
            assert server.get(f"/b/{name}")[::2] == (200, expected), name
            continue
        # A response that has begun when the script ends is aborted.
        with contextlib.suppress(ConnectionResetError):
            assert server.get(f"/b/{name}")[0] == 502, name
    assert server.get("/b/both")[0] == 502
    assert server.get("/b/gzip")[0] == 502
    assert server.get("/b/whole", method="HEAD")[0] == 200
    # A client of HTTP/1.0 does not support chunks.
    data = server.exchange(b"GET /b/whole HTTP/1.0\r\n\r\n")
    assert data.endswith(b"\r\n\r\nhello world") and b"chunked" not in data.lower()
    # Chunks are forwarded as they arrive.
    with server.connect() as connection:
        connection.sendall(b"GET /b/slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        seen = b""
        while b"hel" not in seen.partition(b"\r\n\r\n")[2]:
            seen += connection.recv(4096)
        (tmp_path / "gate").write_text("\n")
        seen += read_all(connection)
    status, fields, body = parse(seen)
    assert (status, body) == (200, b"hello")


HOP_BY_HOP = '''
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("Transfer-Encoding", "chunked")])
    return [b"hel", b"lo"]

async def asgi(scope, receive, send):
    if scope["type"] == "http":
        headers = [(b"content-type", b"text/plain"), (b"transfer-encoding", b"chunked")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"hello"})
'''


@pytest.mark.parametrize("kind, name", [("wsgi", "application"), ("asgi", "asgi")])
def test_a_transfer_encoding_of_a_python_application_is_dropped(serve, tmp_path, kind, name):
    (tmp_path / "hop.py").write_text(HOP_BY_HOP)
    server = serve(route=f'script = {{ kind = "{kind}", application = "hop:{name}" }}')
    assert server.get("/")[::2] == (200, b"hello")


FACTORIES = '''
class Made:
    def create(self, *arguments, **named):
        return create_app(*arguments, **named)

made = Made()

def create_app(*arguments, **named):
    text = repr((arguments, sorted(named.items()))).encode()
    def application(environ, start_response):
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [text]
    return application

def create_asgi(*arguments, **named):
    text = repr((arguments, sorted(named.items()))).encode()
    async def application(scope, receive, send):
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": text})
    return application

def nothing():
    pass
'''


@pytest.mark.parametrize("kind, factory", [("wsgi", "create_app"), ("asgi", "create_asgi"), ("wsgi", "made.create")])
@pytest.mark.parametrize("arguments, wanted", [
    ("", ((), [])),
    ("'prod', 1, debug=True", (("prod", 1), [("debug", True)])),
    ("x={'a': [1, None]}", ((), [("x", {"a": [1, None]})])),
])
def test_an_application_factory(serve, tmp_path, kind, factory, arguments, wanted):
    (tmp_path / "fac.py").write_text(FACTORIES)
    server = serve(route=f'script = {{ kind = "{kind}", application = "fac:{factory}({arguments})" }}')
    assert server.get("/")[::2] == (200, repr(wanted).encode())


@pytest.mark.parametrize("application, reason", [
    ("fac:nothing()", "is not an application"),
    ("fac:create_app(open('x'))", "malformed node"),
    ("fac:FACTORY", "no attribute 'FACTORY'"),
    ("fac:__name__", "is not an application"),
])
def test_an_invalid_application_is_rejected_with_the_reason(serve, tmp_path, application, reason):
    (tmp_path / "fac.py").write_text(FACTORIES)
    server = serve(route=f'script = {{ kind = "wsgi", application = "{application}" }}')
    assert server.get("/")[0] in (502, 503)
    server.logged(reason)


@pytest.mark.parametrize("application", ["app", "app:", ":app", "app:f(", "app:f()x", "app:f)(", "app:1f", "a-b:c", "app:f(1)\\u0000"])
def test_a_malformed_name_of_an_application_is_rejected(tmp_path, application):
    file = tmp_path / "c.toml"
    file.write_text(
        f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\n[[site.route]]\npath = "/*"\n'
        f'script = {{ kind = "wsgi", application = "{application}" }}'
    )
    done = subprocess.run([DUNLIN, "check", "--config", file], capture_output=True, text=True)
    assert done.returncode == 1 and "is not an application" in done.stderr + done.stdout


@pytest.mark.parametrize("kind, application, text", [
    ("wsgi", "here:application", HOP_BY_HOP),
    ("asgi", "here:asgi", HOP_BY_HOP),
    ("psgi", "here.psgi", "sub { [200, ['Content-Type' => 'text/plain'], ['hello']] }"),
])
def test_a_configuration_named_without_a_folder_stands_in_its_folder(tmp_path, kind, application, text):
    (tmp_path / application.split(":")[0]).with_suffix(".psgi" if kind == "psgi" else ".py").write_text(text)
    (tmp_path / "page.txt").write_text("page")
    (tmp_path / "dunlin.toml").write_text(
        '[server]\nthreads = 1\nadmin = "admin.sock"\naccess_log = "access.log"\n[[listen]]\naddress = "127.0.0.1:0"\n'
        f'[[site]]\nroot = "."\n[[site.route]]\npath = "/app/*"\n'
        f'script = {{ kind = "{kind}", application = "{application}" }}'
    )
    check = subprocess.run([DUNLIN, "check", "-c", "dunlin.toml"], cwd=tmp_path, capture_output=True, text=True)
    assert check.returncode == 0, check
    server = Server(["-c", "dunlin.toml"], tmp_path)
    try:
        assert server.get("/app/")[::2] == (200, b"hello")
        assert server.get("/page.txt")[2] == b"page"
        server.process.send_signal(signal.SIGHUP)
        server.logged("reloaded")
        assert server.get("/app/")[::2] == (200, b"hello")
        assert (tmp_path / "admin.sock").exists() and (tmp_path / "access.log").exists()
    finally:
        server.stop()


@pytest.mark.parametrize("field, wanted", [
    ("Authorization: Bearer token", "Bearer"),
    ("Authorization: Basic YTpi", "Basic"),
    ("Cookie: session=1", "none"),
])
def test_the_authentication_type_is_that_of_the_request(serve, tmp_path, raw_server, field, wanted):
    directory = tmp_path / "bin"
    script(directory, "who", 'printf "Content-Type: text/plain\\n\\n${AUTH_TYPE-none} $REMOTE_USER"')
    script(directory, "decide", 'printf "Status: 204\\nRemote-User: ann\\n\\n"')
    server = serve(more=f"""
        [[site.route]]
        path = "/b/*"
        auth = {{ forward = "/decide" }}
        script = {{ kind = "cgi", directory = "{directory}" }}
        [[site.route]]
        path = "/decide"
        auth = false
        script = {{ kind = "cgi", directory = "{directory}" }}
        """)
    assert server.get("/b/who", field)[::2] == (200, f"{wanted} ann".encode())


def test_a_wish_for_a_websocket_is_reported_once(serve, tmp_path):
    (tmp_path / "hop.py").write_text(HOP_BY_HOP)
    server = serve(route='script = { kind = "wsgi", application = "hop:application" }')
    fields = ("Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13")
    for _ in range(3):
        assert server.get("/", *fields)[0] == 200
    server.logged("WebSocket")
    server.stop()
    assert server.log.count("WebSocket") == 1


def test_a_normal_stop_reports_no_error_of_warm_hosts(serve, tmp_path):
    directory = tmp_path / "bin"
    for number in range(6):
        script(directory, f"p{number}", "#!/usr/bin/python3\nprint('Content-Type: text/plain\\n\\nhello', end='')")
    for _ in range(3):
        server = serve(more=f'[[site.route]]\npath = "/b/*"\nscript = {{ kind = "warm", directory = "{directory}" }}')
        for number in range(6):
            assert server.get(f"/b/p{number}")[2] == b"hello"
        server.stop()
        assert "ERROR" not in server.log and "has ended" not in server.log, server.log
