"""The response cache, with real upstreams and scripts."""

import subprocess
import threading
import time

import pytest

from support.admin import fetch, run
from support.files import write
from support.http import parse, read_all
from support.upstream import Upstream, chunked, response
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

CACHE = "cache = { responses = true }"
GET = b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def cached(upstream, keys=""):
    return f'proxy = "{upstream.url}"\n{CACHE.replace(" }", f", {keys} }}") if keys else CACHE}'


def fresh(body=b"hello", *fields):
    return response(body, "200 OK", "Cache-Control: max-age=60", *fields)


def test_a_stored_response_needs_no_upstream(serve, tmp_path):
    upstream = Upstream(lambda *_: fresh(b"hello", "ETag: \"a\"", "Date: Sun, 06 Nov 1994 08:49:37 GMT", "Age: 3"))
    log = tmp_path / "log"
    server = serve(server=f'access_log = {{ path = "{log}", format = "{{cache}}" }}', route=cached(upstream, 'heuristic = false'))
    # It was generated years ago, so it is stale at once, which the validator makes up for.
    assert "stored" in server.get("/")[1]["cache-status"]
    upstream.answer = lambda *_: fresh(b"hello", 'ETag: "a"')
    status, fields, body = server.get("/a")
    assert (status, body, fields["cache-status"]) == (200, b"hello", "dunlin; fwd=uri-miss; stored")
    status, fields, body = server.get("/a")
    assert (status, body) == (200, b"hello") and int(fields["age"]) < 30
    assert fields["cache-status"].startswith("dunlin; hit; ttl=")
    assert server.get("/a", 'If-None-Match: "a"')[0] == 304
    status, fields, body = server.get("/a", "Range: bytes=1-2")
    assert (status, body, fields["content-range"]) == (206, b"el", "bytes 1-2/5")
    assert server.get("/a", method="HEAD")[1]["content-length"] == "5"
    assert [request.target for request in upstream.requests] == ["/", "/a"]
    server.stop()
    assert log.read_text().split() == ["miss", "miss", "hit", "hit", "hit", "hit"]


def test_a_thousand_concurrent_requests_are_one_for_the_upstream(serve):
    gate = threading.Event()

    def slowly(_, connection, request):
        gate.wait(30)
        return fresh(b"x" * 100_000)

    upstream = Upstream(slowly)
    server = serve(route=cached(upstream), server="connections = 2000")
    connections = [server.connect(60) for _ in range(1000)]
    for connection in connections:
        connection.sendall(GET % b"/")
    wait_until(lambda: upstream.requests, "the request")
    gate.set()
    for connection in connections:
        assert len(parse(read_all(connection))[2]) == 100_000
    assert len(upstream.requests) == 1


def test_a_slow_client_does_not_slow_the_others(serve):
    body = b"x" * 8_000_000

    upstream = Upstream(lambda *_: fresh(body))
    server = serve(route=cached(upstream, 'response_size = "10MB"'))
    with server.connect() as slow:
        slow.sendall(GET % b"/")
        wait_until(lambda: upstream.requests, "the request")
        assert server.get("/")[2] == body
        assert len(upstream.requests) == 1
        assert parse(read_all(slow))[2] == body


def test_another_request_leads_when_the_first_client_leaves(serve):
    gate, first = threading.Event(), threading.Event()

    def once(upstream, connection, request):
        if not first.is_set():
            first.set()
            gate.wait(30)
            return None
        return fresh()

    upstream = Upstream(once)
    server = serve(route=cached(upstream))
    leader = server.connect()
    leader.sendall(GET % b"/")
    assert first.wait(15)
    with server.connect() as waiting:
        waiting.sendall(GET % b"/")
        leader.close()
        assert parse(read_all(waiting))[2] == b"hello"
    gate.set()


def test_the_others_have_the_whole_body_when_the_first_client_leaves(serve):
    gate, begun = threading.Event(), threading.Event()
    body = b"x" * 500_000

    def slowly(_, connection, request):
        whole = fresh(body)
        connection.sendall(whole[:200_000])
        begun.set()
        gate.wait(30)
        return whole[200_000:]

    upstream = Upstream(slowly)
    server = serve(route=cached(upstream))
    leader = server.connect()
    leader.sendall(GET % b"/")
    assert begun.wait(15) and leader.recv(100)
    with server.connect() as other:
        other.sendall(GET % b"/")
        assert other.recv(5) == b"HTTP/"
        leader.close()
        gate.set()
        assert parse(b"HTTP/" + read_all(other))[2] == body
    wait_until(lambda: "hit" in server.get("/")[1]["cache-status"], "the stored response")
    assert len(upstream.requests) == 1


def test_concurrent_requests_for_each_variant_are_one(serve):
    gate = threading.Event()

    def slowly(_, connection, request):
        gate.wait(30)
        return fresh(request.fields["accept-language"].encode(), "Vary: Accept-Language")

    upstream = Upstream(slowly)
    server = serve(route=cached(upstream))
    languages = ["de", "fr"] * 50
    connections = [server.connect(60) for _ in languages]
    for connection, language in zip(connections, languages):
        connection.sendall(f"GET / HTTP/1.1\r\nHost: x\r\nAccept-Language: {language}\r\nConnection: close\r\n\r\n".encode())
    wait_until(lambda: upstream.requests, "the request")
    gate.set()
    for connection, language in zip(connections, languages):
        assert parse(read_all(connection))[2] == language.encode()
    assert len(upstream.requests) == 2


def test_concurrent_requests_have_responses_of_their_own_if_none_may_be_stored(serve):
    gate = threading.Event()

    def slowly(upstream, connection, request):
        gate.wait(30)
        return response(request.fields["cookie"].encode(), "200 OK", "Cache-Control: private")

    upstream = Upstream(slowly)
    server = serve(route=cached(upstream))
    connections = [server.connect(60) for _ in range(50)]
    for number, connection in enumerate(connections):
        connection.sendall(f"GET / HTTP/1.1\r\nHost: x\r\nCookie: {number}\r\nConnection: close\r\n\r\n".encode())
    wait_until(lambda: upstream.requests, "the request")
    gate.set()
    for number, connection in enumerate(connections):
        assert parse(read_all(connection))[2] == str(number).encode()
    assert len(upstream.requests) == 50


def test_responses_for_users_are_for_them_alone(serve, tmp_path):
    upstream = Upstream(lambda _, __, request: fresh(request.fields.get("authorization", "-").encode()))
    server = serve(route=cached(upstream))
    assert server.get("/", "Authorization: Bearer a")[2] == b"Bearer a"
    assert server.get("/", "Authorization: Bearer b")[2] == b"Bearer b"
    assert server.get("/")[2] == b"-"


def test_files_come_before_the_cache(serve, site):
    upstream = Upstream(lambda *_: fresh(b"generated"))
    server = serve(route=cached(upstream) + '\ntry = ["{path}", "=proxy"]')
    assert [server.get("/a")[2] for _ in range(2)] == [b"generated"] * 2
    write(site / "a", "file")
    assert server.get("/a")[2] == b"file"
    assert len(upstream.requests) == 1


def test_a_body_without_a_stated_length_is_no_part_of_the_key(serve):
    upstream = Upstream(lambda _, __, request: fresh(b"got " + request.body))
    server = serve(route=cached(upstream))
    with server.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n")
        assert parse(read_all(connection))[2] == b"got x"
    command = ["curl", "-sSi", "--http2-prior-knowledge", "-X", "GET", "-H", "Content-Length:", "-T", "-", f"http://127.0.0.1:{server.port}/"]
    out = subprocess.run(command, capture_output=True, check=True, text=True, input="y").stdout
    assert out.endswith("got y") and "detail=body" in out
    assert server.get("/")[2] == b"got "


def test_the_checks_of_the_route_come_first(serve):
    upstream = Upstream(lambda *_: fresh())
    server = serve(route=cached(upstream) + '\nlimit = { requests = "2/d", burst = 1 }')
    statuses = [server.get("/")[0] for _ in range(4)]
    assert statuses[0] == 200 and statuses[-1] == 429
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_response_that_is_cut_is_not_stored(serve, is_chunked):
    body = b"x" * 300_000

    def cut(_, connection, request):
        whole = chunked(body, fields=["Cache-Control: max-age=60"]) if is_chunked else fresh(body)
        connection.sendall(whole[:150_000])

    upstream = Upstream(cut)
    server = serve(route=cached(upstream))
    with server.connect() as connection:
        connection.sendall(GET % b"/")
        try:
            assert len(read_all(connection)) < 200_000
        except ConnectionResetError:
            pass
    upstream.answer = lambda *_: fresh(body)
    assert server.get("/")[2] == body
    assert len(upstream.requests) == 2


def test_variants_are_told_apart(serve):
    upstream = Upstream(lambda _, __, request: fresh(request.fields.get("accept-language", "-").encode(), "Vary: Accept-Language"))
    server = serve(route=cached(upstream))
    for _ in range(2):
        assert server.get("/", "Accept-Language: de, en")[2] == b"de, en"
        assert server.get("/", "Accept-Language: en,de")[2] == b"de, en"
        assert server.get("/", "Accept-Language: fr")[2] == b"fr"
        assert server.get("/")[2] == b"-"
    assert len(upstream.requests) == 3


def test_stale_responses_are_validated(serve):
    def answer(_, connection, request):
        if request.fields.get("if-none-match") == '"a"':
            return b"HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\nX: 2\r\n\r\n"
        return response(b"hello", "200 OK", 'ETag: "a"', "Cache-Control: max-age=60", "Age: 60", "X: 1")

    upstream = Upstream(answer)
    server = serve(route=cached(upstream))
    assert server.get("/")[1]["x"] == "1"
    status, fields, body = server.get("/", 'If-None-Match: "other"')
    assert (status, body, fields["x"]) == (200, b"hello", "2")
    assert fields["cache-status"] == "dunlin; fwd=stale; fwd-status=304; stored"
    assert server.get("/")[1]["cache-status"].startswith("dunlin; hit")
    assert len(upstream.requests) == 2


def test_stale_responses_are_used_while_they_are_validated_and_after_errors(serve):
    lifetime = "max-age=1, stale-while-revalidate=60, stale-if-error=600"
    upstream = Upstream(lambda *_: response(b"1", "200 OK", f"Cache-Control: {lifetime}", "Age: 5"))
    server = serve(route=cached(upstream))
    assert server.get("/")[2] == b"1"
    upstream.answer = lambda *_: response(b"2", "200 OK", "Cache-Control: max-age=1, stale-if-error=600", "Age: 1")
    assert server.get("/")[2] == b"1"
    # The next ones have the new response, which is stale at once.
    wait_until(lambda: server.get("/")[2] == b"2", "the validation")
    upstream.answer = lambda *_: response(b"no", "503 Service Unavailable")
    status, fields, body = server.get("/")
    assert (status, body) == (200, b"2") and "fwd-status=503" in fields["cache-status"]
    upstream.stop()
    assert server.get("/")[2] == b"2"


def test_unsafe_methods_invalidate(serve):
    upstream = Upstream(lambda _, __, request: fresh(str(len(upstream.requests)).encode(), *(["Location: /b"] if request.method == "POST" else [])))
    server = serve(route=cached(upstream))
    assert [server.get(path)[2] for path in ("/a", "/b", "/c", "/a")] == [b"1", b"2", b"3", b"1"]
    assert server.get("/a", "Content-Length: 0", method="POST")[0] == 200
    assert [server.get(path)[2] for path in ("/a", "/b", "/c")] == [b"5", b"6", b"3"]


def test_the_content_of_query_is_a_part_of_the_key(serve):
    upstream = Upstream(lambda _, __, request: fresh(request.body + b" " + str(len(upstream.requests)).encode()))
    server = serve(route=cached(upstream))

    def query(text, *fields, path="/a"):
        lines = "".join(f"{field}\r\n" for field in ("Content-Type: text/x", *fields))
        head = f"QUERY {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {len(text)}\r\n{lines}\r\n"
        return parse(server.exchange(head.encode() + text))[2]

    assert [query(text) for text in (b"x", b"y", b"x", b"y")] == [b"x 1", b"y 2", b"x 1", b"y 2"]
    assert query(b"x", "Content-Language: de") == b"x 3"
    assert query(b"x", "Cache-Control: no-cache") == b"x 4"
    assert [query(b"x"), query(b"x", path="/b")] == [b"x 4", b"x 5"]
    large = b"x" * 100_000
    assert query(large) == large + b" 6" and query(large) == large + b" 7"
    assert server.exchange(b"POST /a HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    assert [query(b"x"), query(b"x", path="/b")] == [b"x 9", b"x 5"]


def test_responses_that_may_not_be_stored_are_not(serve):
    for number, fields in enumerate([("Cache-Control: no-store",), ("Cache-Control: private, max-age=9",), ("Cache-Control: max-age=9", "Set-Cookie: a=b"), ()]):
        upstream = Upstream(lambda *_: response(b"x", "200 OK", *fields))
        server = serve(route=cached(upstream))
        for _ in range(3):
            assert "stored" not in server.get("/")[1]["cache-status"].split("; ")
        assert len(upstream.requests) == 3, fields
    upstream = Upstream(lambda *_: fresh(b"x" * 2000))
    server = serve(route=cached(upstream, 'response_size = "1KB"'))
    assert [server.get("/")[0] for _ in range(3)] == [200] * 3
    assert len(upstream.requests) == 3


def test_a_route_sets_the_lifetime(serve):
    upstream = Upstream(lambda *_: response(b"x"))
    server = serve(route=cached(upstream) + '\nset_fields = { Dunlin-Cache-Control = "max-age=60" }')
    for _ in range(2):
        assert "dunlin-cache-control" not in server.get("/")[1]
    assert len(upstream.requests) == 1


def test_responses_are_purged(serve, tmp_path):
    admin = tmp_path / "admin.sock"
    upstream = Upstream(lambda _, __, request: fresh(str(len(upstream.requests)).encode(), f"Cache-Tag: t{request.target[1]}, all"))
    server = serve(route=cached(upstream), server=f'admin = "{admin}"')

    def bodies():
        return [int(server.get(path)[2]) for path in ("/a", "/a?q", "/b/c")]

    def purge(*arguments):
        code, out, error = run("purge", *arguments, "--admin", str(admin))
        assert code == 0, error
        return out

    assert bodies() == bodies() == [1, 2, 3]
    assert purge("/a") == "2 URLs purged\n"
    assert bodies() == [4, 5, 3]
    assert purge("/b/*") == "1 URL purged\n"
    assert bodies() == [4, 5, 6]
    assert purge("--tag", "tb") == "1 URL purged\n"
    assert bodies() == [4, 5, 7]
    assert purge("/*") == "3 URLs purged\n"
    assert bodies() == [8, 9, 10]
    # A program may name the path as it stands in the URL, without a further encoding.
    for path in ("/g%2Fn", "/a+b", "/a%25"):
        server.get(path)
        assert fetch(admin, f"/purge?path={path}", "POST")[2] == b"1 URL purged\n", path
        assert fetch(admin, f"/purge?path={path}", "POST")[2] == b"0 URLs purged\n", path
    assert "there is no site" in run("purge", "/*", "--site", "none", "--admin", str(admin))[2]
    assert "begins with" in run("purge", "a", "--admin", str(admin))[2]


def test_the_results_are_counted(serve, tmp_path):
    admin = tmp_path / "admin.sock"
    upstream = Upstream(lambda *_: fresh(b"x" * 1000))
    server = serve(route=cached(upstream), server=f'admin = "{admin}"\ncache.size = "4KB"')
    for path in "/a", "/a", "/a", "/b":
        server.get(path)
    server.get("/a", "Content-Length: 0", method="POST")
    text = fetch(admin, "/metrics")[2].decode()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("dunlin_response_cache"))
    results = {name.split('"')[1]: int(count) for name, count in values.items() if "requests_total" in name}
    assert results == {"hit": 2, "stale": 0, "revalidated": 0, "collapsed": 0, "miss": 2, "bypass": 1}
    assert values['dunlin_response_cache_removals_total{reason="purged"}'] == "1"
    assert values["dunlin_response_cache_urls"] == "1" and 1000 < int(values["dunlin_response_cache_bytes"]) < 4000
    assert values["dunlin_response_cache_in_flight"] == "0"


def test_the_date_is_that_of_the_upstream(serve):
    date, later = "Sun, 06 Nov 1994 08:49:37 GMT", "Mon, 07 Nov 1994 08:49:37 GMT"
    forever = "Cache-Control: max-age=2000000000"

    def answer(_, __, request):
        name = request.target[1:].split("?")[0]
        if request.method == "POST" or name == "private":
            return response(b"x", "200 OK", f"Date: {date}")
        if "if-none-match" in request.fields:
            return response(b"", "304 Not Modified", f"Date: {later}", forever, length=False)
        fields = {"none": [], "invalid": ["Date: yesterday"]}.get(name, [f"Date: {date}"])
        return response(b"hello", "200 OK", 'ETag: "a"', "Cache-Control: no-cache" if name == "stale" else forever, *fields)

    server = serve(route=cached(Upstream(answer)))

    def dates(path, *fields, method="GET"):
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + "".join(f"{field}\r\n" for field in fields)
        received = server.exchange(f"{head}\r\n".encode()).partition(b"\r\n\r\n")[0].decode()
        return [line.partition(": ")[2] for line in received.split("\r\n") if line.lower().startswith("date: ")]

    assert dates("/a") == dates("/a") == dates("/a", 'If-None-Match: "a"') == dates("/a", "Range: bytes=0-1") == [date]
    assert dates("/a", method="HEAD") == dates("/private") == [date]
    assert dates("/a", "Content-Length: 0", method="POST") == [date]
    assert dates("/stale") == [date] and dates("/stale") == [later]
    for path in ("/none", "/invalid"):
        [first] = dates(path)
        wait_until(lambda: int(server.get(path)[1]["age"]) > 0, "another second")
        assert dates(path) == [first] and first.startswith(time.strftime("%a, %d %b %Y", time.gmtime()))
    # Without stored fields: the server generates the response.
    dates("/a")
    [now] = dates("/a", "Range: bytes=99-")
    assert now not in (date, later)
    assert int(server.get("/a")[1]["age"]) > 900_000_000
    for path, expected in (("/a", date), ("/none", *dates("/none")), ("/private", date)):
        curl = ["curl", "-sSi", "-H", "Host: x", "--http2-prior-knowledge", f"{server.url}{path}"]
        out = subprocess.run(curl, capture_output=True, check=True, text=True).stdout
        assert [line for line in out.splitlines() if line.startswith("date: ")] == [f"date: {expected}"]


def test_files_and_responses_share_one_bound(serve, site, tmp_path):
    admin = tmp_path / "admin.sock"
    upstream = Upstream(lambda _, __, request: fresh(request.target.encode().ljust(20_000, b"x")))
    for number in range(60):
        write(site / "files" / str(number), "x" * 20_000)
    server = serve(
        server=f'admin = "{admin}"\ncache.size = "600KB"',
        more=f'[[site.route]]\npath = "/app/*"\n{cached(upstream)}\n',
    )

    def used():
        text = fetch(admin, "/metrics")[2].decode()
        values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and line[0] != "#")
        files, responses = int(values["dunlin_cache_bytes"]), int(values["dunlin_response_cache_bytes"])
        assert files + responses <= 600_000
        return files, responses

    for number in range(60):
        assert server.get(f"/files/{number}")[0] == 200
        used()
    files, responses = used()
    assert files > 500_000 and responses == 0
    # Responses that are requested often displace files, which are not.
    for number in range(1200):
        assert server.get(f"/app/{number % 12}")[0] == 200
    files, responses = used()
    assert responses > 200_000 and files > 200_000
    requests = len(upstream.requests)
    for number in range(12):
        assert "hit" in server.get(f"/app/{number}")[1]["cache-status"]
    assert len(upstream.requests) == requests
    # And the other way round.
    for number in range(12_000):
        assert server.get(f"/files/{number % 24}")[0] == 200
        if number % 1000 == 0:
            used()
    files, responses = used()
    assert files > 450_000 > 200_000 > responses


def test_http2_has_the_same_responses(serve):
    upstream = Upstream(lambda *_: fresh(b"hello"))
    server = serve(route=cached(upstream))
    command = ["curl", "-sSi", "--http2-prior-knowledge", f"http://127.0.0.1:{server.port}/"]
    for word in ("stored", "hit"):
        out = subprocess.run(command, capture_output=True, check=True, text=True).stdout
        assert out.startswith("HTTP/2 200") and out.endswith("hello")
        assert word in next(line for line in out.splitlines() if line.startswith("cache-status: "))
    assert len(upstream.requests) == 1


def test_a_reload_keeps_the_responses_of_sites_that_do_not_change(serve, tmp_path, site):
    admin = tmp_path / "admin.sock"
    upstream = Upstream(lambda *_: fresh())
    server = serve(route=cached(upstream), server=f'admin = "{admin}"')
    server.get("/")
    assert run("reload", "--admin", str(admin))[0] == 0
    assert "hit" in server.get("/")[1]["cache-status"]
    file = tmp_path / "dunlin-0.toml"
    file.write_text(file.read_text().replace(CACHE, f"{CACHE}\nranges = 1"))
    assert run("reload", "--admin", str(admin))[0] == 0
    assert "uri-miss" in server.get("/")[1]["cache-status"]


def test_scripts_run_once(cgi, tmp_path):
    count = tmp_path / "count"
    text = f"""
echo x >> "{count}"
echo "Content-Type: text/plain"
echo "Cache-Control: max-age=60"
echo
echo "hello $QUERY_STRING"
"""
    server = cgi({"a": text}, "", route="cache = { responses = true }\nserver_timing = true")
    for _ in range(3):
        assert server.get("/cgi-bin/a?1")[2] == b"hello 1\n"
    assert server.get("/cgi-bin/a?2")[2] == b"hello 2\n"
    assert count.read_text().count("x") == 2
    timing = server.get("/cgi-bin/a?2")[1].get("server-timing", "")
    assert "handler" in timing and "exec" not in timing
    assert server.get("/cgi-bin/a?1", "Content-Length: 0", method="POST")[0] == 200
    assert server.get("/cgi-bin/a?1")[2] == b"hello 1\n"
    assert count.read_text().count("x") == 4


def test_the_configuration_names_its_mistakes(serve, site, tmp_path):
    file = tmp_path / "dunlin.toml"
    file.write_text(f'[[listen]]\naddress = ":0"\n[[site]]\nroot = "{site}"\n[[site.route]]\npath = "/*"\ncache = {{ heuristic = true }}\n')
    code, _, error = run("check", "--config", str(file))
    assert code == 1 and "`heuristic` needs `responses = true`" in error
