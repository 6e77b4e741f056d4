"""Authentication: password files, and servers and scripts that decide."""

import base64
import http.server
import select
import subprocess
import threading

import pytest

from support.files import write
from support.http import parse, read_all
from support.server import DUNLIN
from support.waiting import wait_until


def basic(name, word):
    return "Authorization: Basic " + base64.b64encode(f"{name}:{word}".encode()).decode()


def passwd(file, user, word, *options):
    return subprocess.run(
        [DUNLIN, "passwd", *options, file, user], input=word, text=True, capture_output=True
    )


def htpasswd(file, user, word, *options):
    subprocess.run(["htpasswd", "-b", *options, file, user, word], check=True, capture_output=True)


@pytest.fixture
def users(tmp_path):
    """A file with a user of each kind of hash, as other programs write them."""
    file = tmp_path / "users"
    htpasswd(file, "bcrypt", "b", "-c", "-B", "-C", "5")
    htpasswd(file, "md5", "m", "-m")
    htpasswd(file, "sha256", "five", "-2")
    htpasswd(file, "sha512", "six", "-5")
    assert passwd(file, "argon", "a").returncode == 0
    return file


def test_every_kind_of_hash_authenticates_its_user_and_no_other(serve, site, users, tmp_path):
    write(site / "x.txt", "x")
    log = tmp_path / "access.log"
    server = serve(
        route=f'auth = {{ basic = "{users}", realm = "the site", attempts = 100 }}',
        server=f'access_log = {{ path = "{log}", format = "{{user}} {{status}}" }}',
    )
    status, fields, _ = server.get("/x.txt")
    assert status == 401 and fields["www-authenticate"] == 'Basic realm="the site", charset="UTF-8"'
    right = {"bcrypt": "b", "md5": "m", "sha256": "five", "sha512": "six", "argon": "a"}
    for name, word in right.items():
        # The second time nothing is compared.
        assert [server.get("/x.txt", basic(name, word))[0] for _ in range(2)] == [200, 200], name
        assert server.get("/x.txt", basic(name, word + "x"))[0] == 401
    for field in [basic("nobody", "x"), basic("", ""), "Authorization: Basic !", "Authorization: Bearer x",
                  basic("md5", "m") + "\r\n" + basic("md5", "m")]:
        assert server.get("/x.txt", field)[0] == 401, field
    server.stop()
    lines = log.read_text().splitlines()
    for name in right:
        assert lines.count(f"{name} 200") == 2
    assert sum(line == "- 401" for line in lines) == 11


def test_a_changed_file_takes_effect_without_a_restart_and_an_invalid_one_does_not(serve, site, users):
    write(site / "x.txt", "x")
    server = serve(route=f'auth = {{ basic = "{users}" }}')
    assert server.get("/x.txt", basic("md5", "m"))[0] == 200
    assert passwd(users, "md5", "new", "--algorithm", "bcrypt").returncode == 0
    wait_until(lambda: server.get("/x.txt", basic("md5", "new"))[0] == 200, "the new password")
    assert server.get("/x.txt", basic("md5", "m"))[0] == 401
    assert passwd(users, "md5", "", "--delete").returncode == 0
    wait_until(lambda: server.get("/x.txt", basic("md5", "new"))[0] == 401, "nobody of that name")
    users.write_text("ann:plain\n" + users.read_text())
    assert server.get("/x.txt", basic("argon", "a"))[0] == 200
    server.logged("is not hashed")
    users.unlink()

    def is_logged():
        assert server.get("/x.txt", basic("argon", "a"))[0] == 200
        return "the previous users stay in use" in server.log

    wait_until(is_logged, "that the file is gone")


def test_weak_hashes_are_accepted_where_they_are_asked_for_and_invalid_lines_do_not_lose_others(serve, site, tmp_path):
    write(site / "x.txt", "x")
    right = {"plain": "{PLAIN}p:q", "sha": "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", "ssha": "{SSHA}gVK8WC9YyFT1gMsQHTGCgT3sSv5zYWx0",
             "md5": "$1$salt$qJH7.N4xYta3aEG/dfqo/0", "des": "rqkgm0IXRZd2Y", "apr1": "$apr1$12345678$0lqb/6VUFP8JY/s/jTrIk0"}
    users = tmp_path / "users"
    users.write_text("broken:{SHA}x\nno colon\n" + "".join(f"{name}:{word}\n" for name, word in right.items()))
    server = serve(route=f'auth = {{ basic = "{users}", weak_hashes = true, attempts = 100 }}')
    for name in right:
        word = {"plain": "p", "md5": "password"}.get(name, "secret")
        assert server.get("/x.txt", basic(name, word))[0] == 200, name
        assert server.get("/x.txt", basic(name, word + "x"))[0] == 401, name
    assert server.get("/x.txt", basic("broken", "x"))[0] == 401
    config = tmp_path / "dunlin.toml"
    config.write_text(f'[[site]]\nroot = "{site}"\nauth = {{ basic = "{users}", weak_hashes = true }}\n')
    result = subprocess.run([DUNLIN, "check", "--config", config], capture_output=True, text=True)
    assert result.returncode == 0
    assert "users:2: the line is not of the form" in result.stderr and "hashed without protection" in result.stderr


def test_a_file_with_passwords_in_the_clear_stops_the_start_and_names_the_line(tmp_path, site):
    users = tmp_path / "users"
    users.write_text("# staff\nann:secret\n")
    config = tmp_path / "dunlin.toml"
    config.write_text(
        f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{site}"\n'
        f'[[site.route]]\npath = "/*"\nauth = {{ basic = "users" }}\n'
    )
    result = subprocess.run([DUNLIN, "check", "--config", config], capture_output=True, text=True)
    assert result.returncode == 1
    assert "dunlin.toml:7:18" in result.stderr and "users:2: user \"ann\"" in result.stderr


def test_the_command_sets_tries_and_removes_passwords_that_apache_understands(tmp_path):
    file = tmp_path / "users"
    for algorithm in ["bcrypt", "sha512"]:
        assert passwd(file, algorithm, "word", "--algorithm", algorithm).returncode == 0
        assert subprocess.run(["htpasswd", "-vb", file, algorithm, "word"]).returncode == 0
        assert subprocess.run(["htpasswd", "-vb", file, algorithm, "other"]).returncode != 0
    assert oct(file.stat().st_mode & 0o777) == "0o640"
    assert passwd(file, "bcrypt", "word\n", "--verify").returncode == 0
    assert passwd(file, "bcrypt", "wor", "--verify").returncode == 1
    assert passwd(file, "bcrypt", "", "--delete").returncode == 0
    assert passwd(file, "bcrypt", "", "--delete").returncode == 1
    assert passwd(file, "a:b", "x").returncode == 1
    assert "is not a user name" in passwd(file, "a:b", "x").stderr
    assert passwd(file, "c", "").returncode == 1
    assert len(file.read_text().splitlines()) == 1


def test_an_address_that_guesses_passwords_waits_and_others_do_not(serve, site, users):
    write(site / "x.txt", "x")
    server = serve(
        route=f'auth = {{ basic = "{users}", attempts = 5 }}', server='trusted_proxies = ["127.0.0.1"]'
    )
    eve, ann = "X-Forwarded-For: 192.0.2.66", "X-Forwarded-For: 192.0.2.1"
    statuses = [server.get("/x.txt", eve, basic("md5", str(n)))[0] for n in range(8)]
    assert statuses == [401] * 5 + [429] * 3
    status, fields, _ = server.get("/x.txt", eve, basic("md5", "m"))
    assert status == 429 and 0 < int(fields["retry-after"]) <= 60
    for _ in range(8):
        assert server.get("/x.txt", ann, basic("md5", "m"))[0] == 200
    # A request without a password is not a guess.
    assert [server.get("/x.txt", ann)[0] for _ in range(8)] == [401] * 8


def test_password_verification_does_not_delay_other_requests(serve, site, users):
    write(site / "x.txt", "x")
    write(site / "open/x.txt", "x")
    htpasswd(users, "slow", "s", "-B", "-C", "13")
    server = serve(
        more=f"""
        [[site.route]]
        path = "/x.txt"
        auth = {{ basic = "{users}", attempts = 1000 }}
        """
    )
    server.get("/open/x.txt")
    guessing = [server.connect() for _ in range(6)]
    for number, connection in enumerate(guessing):
        head = f"GET /x.txt HTTP/1.1\r\nHost: x\r\n{basic('slow', str(number))}\r\n\r\n"
        connection.sendall(head.encode())
    # A loop that compared passwords itself would serve one request between two of them.
    served, waiting = 0, list(guessing)
    while waiting:
        assert server.get("/open/x.txt")[0] == 200
        served += 1
        for connection in select.select(waiting, [], [], 0)[0]:
            assert connection.recv(100).startswith(b"HTTP/1.1 401")
            waiting.remove(connection)
    assert served > 3 * len(guessing), served
    for connection in guessing:
        connection.close()


def test_scripts_get_the_user_and_routes_can_disable_authentication(serve, site, users):
    script = write(site / "who", '#!/bin/sh\nprintf "Content-Type: text/plain\\n\\n$REMOTE_USER $AUTH_TYPE $HTTP_AUTHORIZATION."\ncat\n')
    script.chmod(0o755)
    server = serve(
        more=f"""
        [[site.route]]
        path = "/*"
        auth = {{ basic = "{users}" }}
        script = {{ kind = "cgi", directory = "{site}" }}
        [[site.route]]
        path = "/free*"
        auth = false
        respond = {{ body = "free" }}
        """
    )
    assert server.get("/who", basic("md5", "m"))[2] == b"md5 Basic ."
    assert server.get("/free")[2] == b"free"
    # The body is read after authentication.
    head = f"POST /who HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4\r\n{basic('argon', 'a')}\r\n\r\n"
    _, fields, body = parse(server.exchange(head.encode() + b"body"))
    assert body == b"argon Basic .body"
    head = f"POST /who HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n{basic('argon', 'no')}\r\n\r\n"
    assert server.exchange(head.encode()).startswith(b"HTTP/1.1 401")


class Decides(http.server.BaseHTTPRequestHandler):
    seen = []
    # Set when the server has stopped waiting.
    late = threading.Event()

    def do_GET(self):
        Decides.seen.append((self.path, dict(self.headers)))
        token = self.headers.get("Authorization", "")
        if token == "Bearer right":
            self.send_response(204)
            self.send_header("X-Name", "ann")
        elif token == "Bearer late":
            Decides.late.wait(20)
            self.send_response(200)
        elif token == "Bearer broken":
            self.send_response(500)
        elif token == "":
            self.send_response(302)
            self.send_header("Location", "https://login.example/")
            self.send_header("Set-Cookie", "a=b")
        else:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Bearer")
        body = b"" if token == "Bearer right" else b"who are you?"
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_another_server_decides(serve, site, tmp_path):
    Decides.seen.clear()
    Decides.late.clear()
    decides = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Decides)
    threading.Thread(target=decides.serve_forever, daemon=True).start()
    port = decides.server_address[1]
    write(site / "x.txt", "x")
    log = tmp_path / "access.log"
    server = serve(
        route=f'auth = {{ forward = "http://127.0.0.1:{port}/check?a=b", user_field = "X-Name", timeout = "1s" }}',
        server=f'access_log = {{ path = "{log}", format = "{{user}} {{status}}" }}',
    )
    bearer = "Authorization: Bearer "
    assert server.get("/x.txt?q", bearer + "right", "X-Forwarded-For: 6.6.6.6", "Range: bytes=0-0")[0] == 206
    path, fields = Decides.seen[0]
    assert path == "/check?a=b" and fields["X-Forwarded-Uri"] == "/x.txt?q"
    assert fields["X-Forwarded-For"] == "127.0.0.1" and fields["X-Original-Method"] == "GET"
    assert "Range" not in fields
    status, fields, body = server.get("/x.txt", bearer + "wrong")
    assert (status, fields["www-authenticate"], body) == (401, "Bearer", b"who are you?")
    status, fields, _ = server.get("/x.txt")
    assert (status, fields["location"], fields["set-cookie"]) == (302, "https://login.example/", "a=b")
    assert server.get("/x.txt", bearer + "broken")[0] == 502
    assert server.get("/x.txt", bearer + "late")[0] == 502
    server.logged("the exchange took too long")
    Decides.late.set()
    decides.shutdown()
    decides.server_close()
    assert server.get("/x.txt", bearer + "right")[0] == 502
    server.logged("forward authentication at http://127.0.0.1")
    server.stop()
    assert log.read_text().split("\n")[0] == "ann 206"


def test_a_script_of_the_same_site_decides(serve, site):
    write(site / "files/x.txt", "x")
    script = write(
        site / "bin/check",
        '#!/bin/sh\ncase "$HTTP_COOKIE" in\n'
        'in=*) printf "Remote-User: ${HTTP_COOKIE#in=}\\n\\n" ;;\n'
        '*) printf "Status: 403\\nContent-Type: text/plain\\n\\nnot you: $HTTP_X_ORIGINAL_URI" ;;\nesac\n',
    )
    script.chmod(0o755)
    who = write(site / "bin/who", '#!/bin/sh\nprintf "Content-Type: text/plain\\n\\n$REMOTE_USER"\n')
    who.chmod(0o755)
    server = serve(
        more=f"""
        [[site.route]]
        path = "/*"
        auth = {{ forward = "/bin/check" }}
        [[site.route]]
        path = "/bin/*"
        script = {{ kind = "cgi", directory = "{site}/bin" }}
        """
    )
    assert server.get("/files/x.txt", "Cookie: in=bob")[2] == b"x"
    assert server.get("/bin/who", "Cookie: in=bob")[2] == b"bob"
    assert server.get("/files/x.txt")[0] == 403
    # Not from the cache either.
    assert server.get("/files/x.txt")[0] == 403


def test_a_correct_password_on_concurrent_connections_authenticates_all(serve, site, users):
    write(site / "x.txt", "x")
    server = serve(route=f'auth = {{ basic = "{users}", attempts = 3 }}')
    fetch = f"GET /x.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{basic('argon', 'a')}\r\n\r\n"
    wrong = fetch.replace(basic("argon", "a"), basic("argon", "b"))

    def all_of(request):
        connections = [server.connect() for _ in range(32)]
        for connection in connections:
            connection.sendall(request.encode())
        responses = [parse(read_all(connection))[0] for connection in connections]
        for connection in connections:
            connection.close()
        return set(responses)

    # More than the allowed failures, and none of them is cached.
    assert all_of(fetch) == {200}
    # Each wrong password counts; some requests may start when the first are complete.
    assert all_of(wrong) <= {401, 429}
    for number in range(4):
        status, _, _ = server.get("/x.txt", basic("argon", f"guess {number}"))
    assert status == 429
    assert server.get("/x.txt", basic("argon", "a"))[0] == 200
