"""The access log, and the names in it."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from support.files import lines, write
from support.http import read_response
from support.server import DUNLIN
from support.waiting import wait_until


def test_each_request_has_its_line(serve, site, tmp_path):
    write(site / "a.txt", "x" * 100)
    write(site / "big", "x" * 500_000)
    log = tmp_path / "access.log"
    server = serve(server=f'access_log = {{ path = "{log}", format = "combined" }}')
    server.get("/a.txt?q=1", 'User-Agent: a "b"\\', "Referer: http://x/\xe4")
    server.get("/big")
    server.get("/none", method="HEAD")
    server.exchange(b"nonsense\r\n\r\n")
    server.exchange(b"GET /%0d%0aforged HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    wait_until(lambda: len(lines(log)) == 5, "five lines", 3)
    date = r"\[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d \+0000\]"
    for line, expected in zip(
        lines(log),
        [
            r'"GET /a\.txt\?q=1 HTTP/1\.1" 200 100 "http://x/\\xE4" "a \\x22b\\x22\\x5C"',
            r'"GET /big HTTP/1\.1" 200 500000 "-" "-"',
            r'"HEAD /none HTTP/1\.1" 404 0 "-" "-"',
            r'"-" 400 \d+ "-" "-"',
            r'"GET /%0d%0aforged HTTP/1\.1" 404 \d+ "-" "-"',
        ],
    ):
        assert re.fullmatch(rf"127\.0\.0\.1 - - {date} {expected}", line), line


def test_json_and_templates(serve, site, tmp_path):
    write(site / "a.txt", "x" * 100)
    log = tmp_path / "access.log"
    server = serve(server=f'access_log = {{ path = "{log}", format = "json" }}')
    server.get("/a.txt")
    server.get("/a.txt")
    wait_until(lambda: len(lines(log)) == 2, "two lines", 3)
    entries = [json.loads(line) for line in lines(log)]
    assert entries[0]["status"] == 200 and entries[0]["target"] == "/a.txt"
    assert [entry["cache"] for entry in entries] == ["miss", "hit"]
    other = tmp_path / "other.log"
    server = serve(server=f'access_log = {{ path = "{other}", format = "{{status}} {{path}} {{{{x}}}}" }}')
    server.get("/a.txt?y")
    wait_until(lambda: lines(other) == ["200 /a.txt {x}"], "the line", 3)


def test_requests_are_in_several_logs(serve, site, tmp_path):
    write(site / "a.txt", "x")
    one, two, three, four = (tmp_path / f"{name}.log" for name in ("one", "two", "three", "four"))
    form = '"{path} {duration_s} {time_unix}"'
    server = serve(
        server=f'access_log = {{ path = "{one}", format = "{{status}}", also = ["{two}"] }}',
        more=f'[[site.route]]\npath = "/none"\naccess_log = {{ path = "{three}", also = [{{ path = "{four}", format = {form} }}, "{two}"] }}\n',
    )
    server.get("/a.txt")
    server.get("/none")
    counts = [1, 2, 1, 1]
    wait_until(lambda: [len(lines(log)) for log in (one, two, three, four)] == counts, "the lines", 3)
    assert lines(one) == ["200"]
    assert re.fullmatch(r"/none 0\.\d{3} \d{10}\.\d{3}", lines(four)[0])


def test_rotation_loses_no_line(serve, site, tmp_path):
    write(site / "a.txt", "x")
    log = tmp_path / "access.log"
    server = serve(server=f'access_log = {{ path = "{log}", format = "{{target}}" }}')
    stop = threading.Event()
    sent = []

    def load():
        with server.connect() as connection:
            n = 0
            while not stop.is_set():
                connection.sendall(f"GET /a.txt?{n} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                assert read_response(connection)[0] == 200
                sent.append(f"/a.txt?{n}")
                n += 1

    thread = threading.Thread(target=load)
    thread.start()
    for n in range(5):
        wait_until(lambda: len(lines(log)) > 10, "lines")
        log.rename(tmp_path / f"access.log.{n}")
        if n % 2:
            server.process.send_signal(signal.SIGUSR1)
        wait_until(log.exists, "the new file")
    stop.set()
    thread.join()
    assert server.stop() == 0
    logged = []
    for n in range(5):
        logged += lines(tmp_path / f"access.log.{n}")
    assert logged + lines(log) == sent


def test_a_full_disk_costs_lines_only(serve, site):
    write(site / "a.txt", "x")
    server = serve(server='access_log = "/dev/full"')
    for _ in range(50):
        assert server.get("/a.txt")[0] == 200
    wait_until(lambda: "No space left" in server.log, "the logged loss")
    assert server.stop() == 0
    assert server.log.count("No space left") == 1


def test_a_dead_pipe_harms_nothing(site, tmp_path):
    write(site / "a.txt", "x")
    process = subprocess.Popen(
        [DUNLIN, "serve", str(site), "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    port = int(process.stdout.readline().decode().rsplit(":", 1)[1].strip("/\n"))
    process.stdout.close()
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n")
            assert read_response(connection)[0] == 200
    process.terminate()
    assert process.wait(20) == 0


def test_reverse_dns_never_delays_a_response():
    """In a network namespace, where clients have addresses that are looked up."""
    inside = Path(__file__).parent / "namespace" / "dns_inside.py"
    script = "ip link set lo up && ip addr add 192.0.2.1/32 dev lo && exec \"$@\""
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(inside)]
    result = subprocess.run(
        ["unshare", "--net", "sh", "-c", script, "sh", *pytest_command],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 passed" in result.stdout


def test_a_route_has_a_log_of_its_own(serve, site, tmp_path):
    write(site / "a.txt", "x")
    write(site / "own" / "b.txt", "x")
    main, own = tmp_path / "main.log", tmp_path / "own.log"
    template = '{path} {header.X-Kind} {response.Content-Type} \\"{response.X-Set}\\"'
    more = (
        f'[[site.route]]\npath = "/own/*"\nset_fields = {{ X-Set = "a b" }}\naccess_log = {{ path = "{own}", format = "{template}" }}\n'
        '[[site.route]]\npath = "/off/*"\naccess_log = false\nrespond = { body = "x" }\n'
    )
    server = serve(server=f'access_log = {{ path = "{main}", format = "{{path}}" }}', more=more)
    for path in ("/a.txt", "/own/b.txt", "/own/b.txt", "/off/x", "/own/none", "/a.txt"):
        server.get(path, "X-Kind: one two")
    wait_until(lambda: len(lines(own)) == 3 and len(lines(main)) == 2, "the lines", 3)
    assert lines(main) == ["/a.txt", "/a.txt"]
    line = '/own/b.txt one\\x20two text/plain;\\x20charset=utf-8 "a b"'
    assert lines(own)[:2] == [line, line] and lines(own)[2].startswith("/own/none one\\x20two text/html")
    # Both are opened again, and a reload with other settings closes the log.
    own.rename(tmp_path / "own.old")
    server.process.send_signal(signal.SIGUSR1)
    server.logged("reopened")
    server.get("/own/b.txt")
    wait_until(lambda: own.exists() and len(lines(own)) == 1, "the line in the new file", 3)


def test_a_log_has_some_statuses_or_a_share(serve, site, tmp_path):
    write(site / "a.txt", "x")
    log = tmp_path / "errors.log"
    more = (
        f'[[site.route]]\npath = "/*"\naccess_log = {{ path = "{log}", format = "{{status}}", status = [404, "5xx"] }}\n'
        f'[[site.route]]\npath = "/some/*"\naccess_log = {{ path = "{tmp_path}/some.log", format = "{{status}}", sample = "25%" }}\nrespond = {{}}\n'
        '[[site.route]]\npath = "/503"\nrespond = { status = 503 }\n'
    )
    server = serve(more=more)
    for path in ("/a.txt", "/none", "/503", "/a.txt"):
        server.get(path)
    for _ in range(8):
        server.get("/some/x")
    wait_until(lambda: lines(log) == ["404", "503"], "the lines of errors", 3)
    wait_until(lambda: lines(tmp_path / "some.log") == ["200", "200"], "a quarter of the lines", 3)


def test_errors_of_logs_name_the_place(tmp_path, site):
    for entry, words in (
        ('{ path = "/l", status = "9xx" }', '"9xx" is not a status'),
        ('{ path = "/l", sample = "2" }', '"2" is not a share'),
        ('{ path = "/l", format = "{header.Cookie}" }', "has secrets"),
        ("3", "true, false, a path or a table"),
    ):
        file = tmp_path / "c.toml"
        file.write_text(f'[[site]]\nroot = "{site}"\naccess_log = {entry}\n')
        run = subprocess.run([DUNLIN, "check", "--config", str(file)], capture_output=True, text=True)
        assert run.returncode == 1 and words in run.stdout + run.stderr and "c.toml:3" in run.stdout + run.stderr
