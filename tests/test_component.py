"""WebAssembly components as handlers: HTTP handlers of WASI 0.2 and 0.3, and CGI programs."""

import json
import os
import platform
import re
import shutil
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from support.components import EXAMPLES, STATE, built, has_target, program, typed
from support.http import parse, post, read_all, read_until_cut
from support.server import DUNLIN
from support.upstream import Upstream, response
from support.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(not has_target(), reason="rustup target add wasm32-wasip2"),
    pytest.mark.usefixtures("orderly_stop"),
]


@pytest.fixture(scope="session")
def web():
    return built("web")


@pytest.fixture(scope="session")
def service():
    return built("service")


@pytest.fixture
def run(serve):
    """Starts a server with a component at `/app/*`."""

    def start(file, settings="", route="", more="", server="", state=STATE):
        return serve(
            server=f'state = "{state}"\n{server}',
            more=f'[[site.route]]\npath = "/app/*"\n{route}\n'
            f'script = {{ kind = "component", file = "{file}", {settings} }}\n'
            f'[[site.route]]\npath = "/status/*"\nstatus = true\n{more}',
        )

    return start


def metrics(server, name):
    """The samples of a metric, by their labels."""
    text = server.get("/status/metrics")[2].decode()
    found = re.findall(rf"^{name}(?:\{{([^}}]*)\}})? (\S+)$", text, re.M)
    return {labels: float(value) for labels, value in found}


def metric(server, name, label=""):
    return sum(value for labels, value in metrics(server, name).items() if label in labels)


def resident(server):
    fields = dict(line.split(":\t", 1) for line in open(f"/proc/{server.pid}/status") if ":\t" in line)
    return int(fields["VmRSS"].split()[0]) * 1024


def test_an_http_handler_gets_the_request_and_its_response_is_sent(run, web):
    server = run(web)
    assert server.get("/app/hello") == (200, server.get("/app/hello")[1], b"Hello\n")
    status, fields, body = server.get("/app/hello")
    assert status == 200 and fields["content-length"] == "6" and body == b"Hello\n"
    status, _, body = server.get("/app/request?a=b%20c", "Cookie: d=e", "Cookie: f=g", "X-Forwarded-For: 1.2.3.4", "Connection: x-private", "X-Private: f")
    lines = body.decode().split("\n")
    assert status == 200 and lines[0] == "Method::Get Some(Scheme::Http) x /app/request?a=b%20c"
    assert "cookie: d=e; f=g" in lines and "x-forwarded-for: 127.0.0.1" in lines and "x-forwarded-proto: http" in lines
    assert re.search(r"^x-request-id: \w+$", body.decode(), re.M) and not re.search(r"^(host|connection):", body.decode(), re.M)
    status, fields, body = server.get("/app/status?404")
    assert (status, fields["x-made"], body) == (404, "here", b"")
    status, fields, body = server.get("/app/hello", method="HEAD")
    assert status == 200 and body == b""
    assert server.get("/app/other")[0] == 404
    endpoint = Upstream(lambda *_: response(b"", "200 OK", "X-Groups: staff"))
    server = run(web, route=f'auth = {{ forward = "{endpoint.url}", copy_to_request = ["X-Groups", "X-Mail"] }}')
    lines = server.get("/app/request", "X-Groups: evil", "X_Groups: evil", "X-Mail: evil")[2].decode().split("\n")
    assert "x-groups: staff" in lines and not [line for line in lines if "evil" in line]


def test_bodies_of_any_size_pass_in_both_directions(run, web):
    server = run(web, more="", route='body_size = "64MB"')
    for size in (0, 1, 100_000, 3_000_000):
        data = os.urandom(size)
        for chunked in (False, True):
            status, fields, body = post(server, "/app/echo", data, chunked=chunked)
            assert status == 200 and fields["x-length"] == str(size) and body == data
    status, fields, body = server.get("/app/large?20000000")
    assert status == 200 and len(body) == 20_000_000
    head = f"POST /app/echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {65 << 20}\r\n\r\n"
    assert parse(server.exchange(head.encode()))[0] == 413


def test_a_streamed_body_is_read_while_it_arrives(run, web):
    server = run(web, route='body = "stream"')
    with server.connect() as connection:
        connection.sendall(b"POST /app/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\nConnection: close\r\n\r\n")
        for _ in range(4):
            connection.sendall(b"x" * 50_000)
        status, fields, body = parse(read_all(connection))
    assert status == 200 and len(body) == 200_000


def test_a_cgi_program_runs_without_a_change(run, tmp_path):
    file = program(tmp_path / "cgi.wasm", EXAMPLES / "cgi.rs")
    server = run(file)
    for _ in range(3):
        status, fields, body = post(server, "/app/x", b"payload=a+b")
        assert status == 200 and fields["content-type"] == "application/json" and b'"payload":"a b"' in body
    assert metric(server, "dunlin_component_requests_total", 'result="fresh"') == 3


PROGRAM = r"""
use std::env;
use std::io::{self, Read, Write};
fn main() {
    let mut names: Vec<_> = env::vars().collect();
    names.sort();
    let mut input = Vec::new();
    io::stdin().read_to_end(&mut input).unwrap();
    match env::var("QUERY_STRING").unwrap().as_str() {
        "redirect" => println!("Location: /app/target\r\n\r"),
        "status" => println!("Status: 418 Teapot\r\nX-A: b\r\n\r\nshort"),
        "nothing" => {}
        "fail" => { eprintln!("it fails"); std::process::exit(3) }
        "panic" => panic!("on purpose"),
        "large" => {
            println!("Content-Type: text/plain\r\n\r");
            for _ in 0..1000 { io::stdout().write_all(&[b'x'; 10_000]).unwrap(); }
        }
        "late" => {
            println!("Content-Type: text/plain\r\n\r");
            io::stdout().write_all(&[b'x'; 300_000]).unwrap();
            panic!("on purpose");
        }
        _ => {
            println!("Content-Type: text/plain\r\n\r");
            for (name, value) in names { println!("{name}={value}"); }
            println!("arguments={:?}", env::args().skip(1).collect::<Vec<_>>());
            println!("input={}", input.len());
        }
    }
}
"""


def test_a_cgi_program_has_variables_input_and_output_of_rfc_3875(run, tmp_path):
    file = program(tmp_path / "program.wasm", PROGRAM)
    server = run(file, settings='environment = { GREETING = "hello" }')
    status, _, body = post(server, "/app/a/b%20c?x=y", b"12345", "Content-Type: text/x", "X-Other: z")
    lines = body.decode().splitlines()
    for line in [
        "GATEWAY_INTERFACE=CGI/1.1", "REQUEST_METHOD=POST", "SCRIPT_NAME=/app", "PATH_INFO=/a/b c", "QUERY_STRING=x=y",
        "CONTENT_LENGTH=5", "CONTENT_TYPE=text/x", "HTTP_X_OTHER=z", "REMOTE_ADDR=127.0.0.1", "GREETING=hello", "input=5",
    ]:  # fmt: skip
        assert line in lines, body.decode()
    assert not any(line.startswith(("HOME=", "PATH=")) for line in lines), "nothing is inherited"
    assert b'arguments=["a", "b c"]' in server.get("/app/?a+b%20c")[2]
    assert post(server, "/app/", b"x" * 300_000)[2].endswith(b"input=300000\n")
    status, fields, body = server.get("/app/?status")
    assert (status, fields["x-a"], body) == (418, "b", b"short\n")
    assert server.get("/app/?redirect")[0] == 200
    assert len(server.get("/app/?large")[2]) == 10_000_000
    assert server.get("/app/?nothing")[0] == 502
    assert server.get("/app/?fail")[0] == 502 and "it fails" in server.logged("its exit status is 1")
    assert server.get("/app/?panic")[0] == 502 and "was stopped" in server.logged("unreachable")
    read_until_cut(server, "/app/?late")


def test_a_service_of_wasi_0_3_handles_requests(run, service):
    server = run(service)
    for _ in range(3):
        status, fields, body = server.get("/app/hello")
        assert (status, body, fields["content-length"]) == (200, b"Hello\n", "6")
        assert server.get("/app/count")[2] == b"1\n"
    data = os.urandom(300_000)
    assert post(server, "/app/echo", data)[2] == data
    assert len(server.get("/app/large?5000000")[2]) == 5_000_000
    assert server.get("/app/error")[0] == 502 and "on purpose" in server.logged("responds with the error internal-error")
    assert server.get("/app/trap")[0] == 502
    assert server.get("/app/hello")[2] == b"Hello\n"


@pytest.mark.parametrize("kind", ["web", "service"])
def test_a_response_may_name_a_file_as_those_of_scripts_do(run, site, request, kind):
    (site / "files").mkdir()
    (site / "files/a.txt").write_text("of the site")
    settings = f'sendfile_root = "{site}/files"'
    server = run(request.getfixturevalue(kind), settings, more='[[site.route]]\npath = "/files/*"\ninternal = true')
    assert server.get("/files/a.txt")[0] == 404
    for field in ("x-accel-redirect=/files/a.txt", f"x-sendfile={site}/files/a.txt"):
        for method in ("GET", "HEAD"):
            status, fields, body = server.get(f"/app/field?{field}", method=method)
            assert (status, body) == (200, b"of the site" if method == "GET" else b"")
            assert fields["content-length"] == "11" and not {"x-accel-redirect", "x-sendfile"} & set(fields)
    assert server.get("/app/field?x-sendfile=/etc/hostname")[0] == 502
    status, fields, body = server.get("/app/field?x-accel-buffering=no")
    assert (status, body) == (200, b"own body") and "x-accel-buffering" not in fields


@pytest.mark.parametrize("kind", ["web", "service"])
def test_an_instance_is_kept_for_as_many_requests_as_the_configuration_says(run, kind, request):
    file = request.getfixturevalue(kind)
    assert [run(file).get("/app/count")[2] for _ in range(2)] == [b"1\n", b"1\n"]
    server = run(file, settings='reuse = 3, idle = "1h"')

    def count():
        body = server.get("/app/count")[2]
        # An instance is kept after its response has left.
        kept = 0 if body == b"3\n" else 1
        wait_until(lambda: metric(server, "dunlin_component_instances") == kept, f"{kept} kept instances")
        return body

    assert [count() for _ in range(7)] == [b"1\n", b"2\n", b"3\n", b"1\n", b"2\n", b"3\n", b"1\n"]
    assert metric(server, "dunlin_component_requests_total", 'result="fresh"') == 3
    assert metric(server, "dunlin_component_requests_total", 'result="reused"') == 4
    assert metric(server, "dunlin_component_instances") == 1
    # One that trapped is not used again.
    assert server.get("/app/trap")[0] == 502
    assert server.get("/app/count")[2] == b"1\n"
    server = run(file, settings='reuse = 3, idle = "1ms"')
    assert server.get("/app/count")[2] == b"1\n"
    wait_until(lambda: metric(server, "dunlin_component_instances") == 0, "no kept instance")
    assert server.get("/app/count")[2] == b"1\n"


def test_the_response_cache_stores_responses_of_a_component(run, web):
    server = run(
        web, settings='reuse = 10, idle = "1h"',
        route='cache = { responses = true }\nset_fields = { Dunlin-Cache-Control = "max-age=600" }',
    )
    # The number in the body is that of the requests that the instance has handled.
    status, fields, body = server.get("/app/count")
    assert (status, body, fields["cache-status"]) == (200, b"1\n", "dunlin; fwd=uri-miss; stored")
    status, fields, body = server.get("/app/count")
    assert (status, body) == (200, b"1\n") and fields["cache-status"].startswith("dunlin; hit; ttl=")
    _, fields, body = server.get("/app/count?other")
    assert body == b"2\n" and "fwd=uri-miss" in fields["cache-status"]


def test_functions_are_called_with_json(run):
    server = run(typed())
    status, fields, body = post(server, "/app/echo/echo", json.dumps({"payload": "a\u00e4"}).encode())
    assert (status, fields["content-type"]) == (200, "application/json") and json.loads(body)["payload"] == "a\u00e4"
    assert post(server, "/app/example:report/echo/echo", b'{"payload":""}')[0] == 200
    status, fields, body = post(server, "/app/echo/echo", b'{"payload":1}')
    assert (status, fields["content-type"]) == (400, "application/problem+json") and b"/payload" in body
    assert post(server, "/app/echo/echo", b"no JSON")[0] == 400
    assert post(server, "/app/echo/none", b"{}")[0] == 404 and post(server, "/app/none/echo", b"{}")[0] == 404 and post(server, "/app/x", b"{}")[0] == 404
    status, fields, _ = server.get("/app/echo/echo")
    assert (status, fields["allow"]) == (405, "POST")
    status, fields, body = server.get("/app/")
    description = json.loads(body)
    assert (status, fields["content-type"]) == (200, "application/json") and description["openapi"].startswith("3.1")
    assert any(path.endswith("/echo/echo") for path in description["paths"])
    assert post(server, "/app/", b"{}")[0] == 405
    server = run(typed(), settings="reuse = 10")
    assert all(post(server, "/app/echo/echo", b'{"payload":"b"}')[0] == 200 for _ in range(12))
    assert metric(server, "dunlin_component_requests_total", 'result="reused"') == 10


def test_an_instance_is_stopped_at_its_limits(run, web):
    server = run(web, settings='cpu = "200ms", time = "1s", memory = "32MB"')
    began = time.monotonic()
    assert server.get("/app/spin")[0] == 504 and "it ran longer than `cpu`" in server.logged("was terminated")
    assert time.monotonic() - began < 5
    assert server.get("/app/sleep?60000")[0] == 504 and "it took longer than `time`" in server.logged("`time`")
    assert server.get("/app/grow")[0] == 502 and f"script={web}" in server.logged("it needs more than `memory`").replace('"', "")
    assert server.get("/app/trap")[0] == 502 and "was stopped" in server.logged("unreachable")
    assert server.get("/app/nothing")[0] == 502
    for reason in ("cpu", "time", "memory", "unreachable"):
        assert metric(server, "dunlin_component_stops_total", f'reason="{reason}"') == 1, reason
    assert 16 << 20 < metric(server, "dunlin_component_memory_peak_bytes") <= 32 << 20
    # The head was sent.
    read_until_cut(server, "/app/late-trap")
    assert "failed after the head of its response" in server.logged("after the head")
    assert server.get("/app/hello")[0] == 200
    assert metric(server, "dunlin_component_instances") == 0


def test_a_denied_growth_is_the_reason_only_of_the_stop_that_follows(run, web):
    server = run(web, settings='memory = "32MB", reuse = 3, idle = "1h"')
    assert server.get("/app/try-grow")[2] == b"denied\n"
    assert server.get("/app/trap")[0] == 502
    assert metric(server, "dunlin_component_requests_total", 'result="reused"') == 1
    assert server.get("/app/trap?try-grow")[0] == 502
    assert server.get("/app/grow")[0] == 502
    for reason, count in (("unreachable", 2), ("memory", 1)):
        assert metric(server, "dunlin_component_stops_total", f'reason="{reason}"') == count, reason


def test_a_spinning_instance_does_not_stop_the_worker(run, web, site):
    (site / "a").write_text("file")
    server = run(web, settings='cpu = "30s", time = "2s"')
    results = []
    spinning = threading.Thread(target=lambda: results.append(server.get("/app/spin")[0]))
    spinning.start()
    wait_until(lambda: metric(server, "dunlin_component_instances") == 1, "a running instance")
    answered = 0
    while spinning.is_alive():
        began = time.monotonic()
        assert server.get("/a")[2] == b"file"
        answered += 1
        assert time.monotonic() - began < 1
    assert results == [504] and answered > 20


def test_a_client_that_leaves_stops_the_instance(run, web):
    server = run(web, settings='cpu = "1h", time = "1h"')
    with server.connect() as connection:
        connection.sendall(b"GET /app/spin HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: metric(server, "dunlin_component_instances") == 1, "a running instance")
    wait_until(lambda: metric(server, "dunlin_component_instances") == 0, "its end")
    # A client that does not read holds the instance, and no memory.
    with server.connect() as connection:
        connection.sendall(b"GET /app/large?1000000000 HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: metric(server, "dunlin_component_instances") == 1, "a running instance")
        assert resident(server) < 400 << 20
    wait_until(lambda: metric(server, "dunlin_component_instances") == 0, "its end")


def test_a_thousand_traps_leave_memory_as_it_was(run, web):
    server = run(web, settings='stderr = "none"')
    for _ in range(100):
        assert server.get("/app/trap")[0] == 502
    before = resident(server)
    for _ in range(1000):
        assert server.get("/app/trap")[0] == 502
    assert resident(server) < before + (8 << 20)
    assert metric(server, "dunlin_component_stops_total", 'reason="unreachable"') == 1100


def test_instances_are_limited(run, web):
    server = run(web, settings='instances = 2, time = "1h", cpu = "1h"')
    with server.connect() as a, server.connect() as b:
        for connection in (a, b):
            connection.sendall(b"GET /app/sleep?3600000 HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: metric(server, "dunlin_component_instances") == 2, "two instances")
        assert server.get("/app/hello")[0] == 503
    assert metric(server, "dunlin_component_requests_total", 'result="rejected"') == 1
    wait_until(lambda: server.get("/app/hello")[0] == 200, "room")


def test_nothing_is_granted_that_is_not_listed(run, web, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a").write_text("content")
    server = run(web)
    assert server.get("/app/environment")[2] == b""
    assert server.get("/app/file?/data/a")[2].startswith(b"error") and server.get("/app/file?/etc/passwd")[2].startswith(b"error")
    assert server.get(f"/app/connect?127.0.0.1:{server.port}")[2].startswith(b"error")
    assert b"Denied" in server.get(f"/app/fetch?127.0.0.1:{server.port}/")[2]
    assert "`outbound` does not list" in server.logged("outbound")
    files = f'files = [{{ path = "{tmp_path}/data", as = "/data" }}]'
    server = run(web, settings=f'environment = {{ A = "b" }}, {files}')
    assert server.get("/app/environment")[2] == b"A=b\n"
    assert server.get("/app/file?/data/a")[2] == b"content"
    assert server.get("/app/file?/data/../secret")[2].startswith(b"error")
    assert server.get("/app/write?/data/b")[2].startswith(b"error") and not (tmp_path / "data" / "b").exists()
    server = run(web, settings=files.replace("}", ", write = true }"))
    assert server.get("/app/write?/data/b")[2] == b"written" and (tmp_path / "data" / "b").read_text() == "written"


def test_requests_to_listed_hosts_are_sent(run, web):
    received = []

    class Upstream(BaseHTTPRequestHandler):
        def do_POST(self):
            length = self.headers.get("Content-Length")
            body = self.rfile.read(int(length)) if length else dechunk_file(self.rfile)
            received.append((self.path, self.headers["Host"], body))
            self.send_response(201)
            self.send_header("Content-Length", "4")
            self.end_headers()
            self.wfile.write(b"done")

        def log_message(self, *_):
            pass

    upstream = HTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    try:
        port = upstream.server_port
        server = run(web, settings=f'outbound = ["127.0.0.1:{port}"]')
        assert server.get(f"/app/fetch?127.0.0.1:{port}/path")[2] == b"201 done"
        assert received == [("/path", f"127.0.0.1:{port}", b"from a component")]
        assert b"Denied" in server.get("/app/fetch?127.0.0.1:1/")[2]
        assert b"Denied" in server.get(f"/app/fetch?localhost:{port}/")[2]
    finally:
        upstream.shutdown()
        upstream.server_close()


def dechunk_file(file):
    body = b""
    while size := int(file.readline(), 16):
        body += file.read(size)
        file.readline()
    file.readline()
    return body


def test_standard_error_is_in_the_log(run, web):
    server = run(web)
    assert server.get("/app/log")[0] == 200
    assert "a line of standard error" in server.logged("a line of standard output")
    server = run(web, settings='stderr = "none"')
    assert server.get("/app/log")[0] == 200 and server.get("/app/trap")[0] == 502
    assert "a line of" not in server.logged("was stopped")


def test_a_directory_has_components_by_name(serve, tmp_path, web):
    folder = tmp_path / "components"
    folder.mkdir()
    shutil.copy(web, folder / "one.wasm")
    (folder / "broken.wasm").write_bytes(b"\0asm\x0d\0\x01\0broken")
    (folder / "other.txt").write_text("no component")
    server = serve(
        server=f'state = "{tmp_path}/state"',
        more=f'[[site.route]]\npath = "/app/*"\nscript = {{ kind = "component", directory = "{folder}" }}\n',
    )
    assert server.get("/app/one/hello")[2] == b"Hello\n"
    assert server.get("/app/two/hello")[0] == 404 and server.get("/app/other")[0] == 404 and server.get("/app/")[0] == 404
    assert server.get("/app/broken/hello")[0] == 500
    server.logged("broken.wasm")
    shutil.copy(web, folder / "part")
    (folder / "part").rename(folder / "two.wasm")
    wait_until(lambda: server.get("/app/two/hello")[0] == 200, "a new component")
    (folder / "one.wasm").unlink()
    wait_until(lambda: server.get("/app/one/hello")[0] == 404, "the end of a component")


def test_a_changed_component_is_replaced_while_requests_run(run, web, service, tmp_path):
    file = tmp_path / "app.wasm"
    shutil.copy(web, file)
    server = run(file)
    failed, stop = [], threading.Event()

    def load():
        while not stop.is_set():
            status, _, body = server.get("/app/hello")
            if (status, body) != (200, b"Hello\n"):
                failed.append((status, body))

    threads = [threading.Thread(target=load) for _ in range(3)]
    [thread.start() for thread in threads]
    try:
        swaps = 0
        for source in (service, web, service):
            shutil.copy(source, tmp_path / "next")
            (tmp_path / "next").rename(file)
            swaps += 1
            wait_until(lambda: metric(server, "dunlin_component_swaps_total") == swaps, f"swap {swaps}", 60)
        # A broken one keeps the old.
        (tmp_path / "next").write_bytes(b"\0asm\x0d\0\x01\0broken")
        (tmp_path / "next").rename(file)
        wait_until(lambda: metric(server, "dunlin_component_stale") == 1, "a report")
        assert "the version before stays in use" in server.logged("cannot be loaded")
        assert "error" in server.get("/status/status.json")[2].decode()
        assert server.get("/app/hello")[2] == b"Hello\n"
    finally:
        stop.set()
        [thread.join() for thread in threads]
    assert not failed


def calls(server, thread):
    """The system call that a thread of the server is in: its number and arguments."""
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        if (task / "comm").read_text().strip() == thread:
            return (task / "syscall").read_text().split()
    # It begins with the first request, or has not got its name yet.
    return [None] * 4


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the number of the system call is that of x86-64")
def test_files_are_looked_at_only_when_they_change(run, web, service, tmp_path):
    for version, source in (("1", web), ("2", service)):
        (tmp_path / version).mkdir()
        shutil.copy(source, tmp_path / version / "app.wasm")
    (tmp_path / "current").symlink_to("1")
    server = run(tmp_path / "current" / "app.wasm")
    ppoll, no_limit = "271", "0x0"
    is_idle = lambda: (call := calls(server, "components"))[0] == ppoll and call[3] == no_limit
    wait_until(is_idle, "a wait without a limit")
    # A link on the way to the file, and the file itself, written in place.
    (tmp_path / "next").symlink_to("2")
    (tmp_path / "next").rename(tmp_path / "current")
    wait_until(lambda: metric(server, "dunlin_component_swaps_total") == 1, "the other version", 60)
    shutil.copy(web, tmp_path / "2" / "app.wasm")
    wait_until(lambda: metric(server, "dunlin_component_swaps_total") == 2, "the new content", 60)
    wait_until(is_idle, "a wait without a limit")
    assert server.get("/app/hello")[2] == b"Hello\n"


def test_the_compiler_is_another_process_and_its_cache_is_private(run, web, tmp_path):
    server = run(web, state=tmp_path / "state")
    cache = tmp_path / "state" / "components"
    assert cache.stat().st_mode & 0o777 == 0o700
    files = sorted(cache.iterdir())
    assert [file.suffix for file in files] == [".cwasm", ".sha256"] and all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    assert metric(server, "dunlin_component_compile_seconds_total") > 0
    assert server.stop() == 0
    # It is found there again.
    done = subprocess.run([DUNLIN, "compile", "--state", tmp_path / "state", web], capture_output=True, text=True)
    assert done.returncode == 0 and "was compiled before" in done.stdout, done
    server = run(web, state=tmp_path / "state")
    assert metric(server, "dunlin_component_compile_seconds_total") == 0 and server.get("/app/hello")[0] == 200
    assert server.stop() == 0
    # Damaged code is not executed.
    code = files[0].read_bytes()
    files[0].write_bytes(code[:-100] + b"x" * 100)
    server = run(web, state=tmp_path / "state")
    server.logged("the file is damaged")
    assert server.get("/app/hello")[0] == 200
    assert files[0].read_bytes() == code
    assert server.stop() == 0
    cache.chmod(0o777)
    with pytest.raises(AssertionError, match="other users can write to it"):
        run(web, state=tmp_path / "state")


def test_a_file_that_is_no_component_prevents_the_start(run, tmp_path):
    for content, why in [
        (b"\0asm\x01\0\0\0", "it is a WebAssembly module, not a component"),
        (b"#!/bin/sh\n", "it is not a WebAssembly component"),
        (b"\0asm\x0d\0\x01\0broken", "app.wasm"),
        (b"\0asm\x0d\0\x01\0", "it exports nothing"),
    ]:
        (tmp_path / "app.wasm").write_bytes(content)
        with pytest.raises(AssertionError, match=why):
            run(tmp_path / "app.wasm")
    with pytest.raises(AssertionError, match="No such file"):
        run(tmp_path / "none.wasm")


def test_keys_of_the_configuration_are_checked(run, web):
    for settings, why in [
        ('memory = "1KB"', "memory is not between 64KB and 4GB"),
        ("reuse = 0", "reuse is less than 1"),
        ('outbound = ["http://a/"]', "is not a host"),
        ('files = [{ path = "/tmp", as = "x" }]', "is not an absolute path"),
        ("processes = 2", "belongs to scripts in processes"),
        ('env = { A = "b" }', "write `environment`"),
        ('user = "nobody"', "belongs to processes that are started here"),
    ]:
        with pytest.raises(AssertionError, match=why):
            run(web, settings=settings)


def test_server_timing_has_the_phases_of_an_instance(run, web):
    server = run(web, route="server_timing = true")
    timing = server.get("/app/hello")[1]["server-timing"]
    found = {name: float(value) for name, value in re.findall(r"(\w+);dur=([\d.]+)", timing)}
    assert {"wait", "instantiate", "guest"} <= set(found) and 0 < found["guest"] < 1000, timing
