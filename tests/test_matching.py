"""How a request finds its route: lists of patterns, regular expressions, conditions, settings of the site, and rewriting."""

import random
import subprocess

import httpx
import pytest

from support.files import write
from support.server import DUNLIN
from support.tls import certificate
from support.upstream import Upstream, response

pytestmark = pytest.mark.usefixtures("orderly_stop")


def respond(text):
    return f'respond = {{ body = "{text}" }}'


def routes(*entries):
    return "".join(f"[[site.route]]\n{entry}\n" for entry in entries)


def body(server, path, *fields, **more):
    return server.get(path, *fields, **more)[2].decode()


def check(tmp_path, text, *arguments):
    file = tmp_path / "check.toml"
    file.write_text(text)
    run = subprocess.run([DUNLIN, "check", "--config", str(file), *arguments], capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr


def test_a_list_of_patterns_is_one_route(serve):
    limited = 'limit = { requests = "1/h", burst = 2 }'
    server = serve(more=routes(f'path = ["/a/*", "/b", "*.css"]\n{respond("list")}\n{limited}', f'path = "/*"\n{respond("all")}'))
    assert [server.get(path)[0] for path in ("/a/x", "/b", "/b")] == [200, 200, 429]
    assert server.get("/x/y.css")[0] == 429 and body(server, "/b/") == "all"


def test_regular_expressions_stand_between_patterns_and_paths(serve):
    server = serve(
        more=routes(
            f'path = "/user/*"\n{respond("pattern")}\nset_fields = {{ X-Pattern = "1" }}',
            f'regex = "^/user/(?<name>[a-z]+)$"\n{respond("first")}\nset_fields = {{ X-First = "1" }}',
            f'regex = "^/user/a"\n{respond("second")}\nset_fields = {{ X-Second = "1" }}',
            f'path = "/user/abc"\n{respond("path")}',
        )
    )
    assert [body(server, f"/user/{name}") for name in ("abc", "ab", "a1", "1")] == ["path", "first", "second", "pattern"]
    # Settings of all routes that apply are merged, but of one regular expression only.
    own = {"x-first", "x-second", "x-pattern"}
    names = lambda path: sorted(name.title() for name in own.intersection(server.get(path)[1]))
    assert names("/user/ab") == ["X-First", "X-Pattern"] and names("/user/a1") == ["X-Pattern", "X-Second"]
    assert "X-First" in names("/user/abc")
    # An encoded slash neither enters a regular expression nor leaves it.
    assert server.get("/user%2Fab")[0] == 404 and server.get("/user/a%2Fb")[0] in (200, 404)


def test_groups_are_encoded_for_the_place_where_they_stand(serve):
    server = serve(
        more=routes(
            'regex = "^/old/(?<name>.+)/(.*)$"\nredirect = "https://new.test/{2}/{name}?q={name}&{query}"',
            'regex = "^/go(.*)$"\nredirect = "/x/{1}"',
            'regex = "^/to(.*)$"\nredirect = "/{1}"',
        )
    )
    location = lambda path: server.get(path)[1]["location"]
    assert location("/old/a%20b&c/d?z=1") == "https://new.test/d/a%20b&c?q=a%20b%26c&z=1"
    assert location("/go//evil.example") == "/x//evil.example"
    assert location("/to//evil.example") == "/evil.example"


def test_a_regular_expression_cannot_choose_the_host(tmp_path, site):
    text = f'[[listen]]\naddress = ":0"\n[[site]]\nroot = "{site}"\n[[site.route]]\nregex = "^/(.*)$"\nredirect = "https://a.test{{1}}"\n'
    status, output = check(tmp_path, text)
    assert status == 1 and "a client could choose" in output


def test_conditions_choose_a_route(serve):
    server = serve(
        more=routes(
            f'path = "/*"\n{respond("all")}',
            f'path = "/*"\nwhen = {{ method = "POST" }}\n{respond("post")}',
            f'path = "/*"\nwhen = {{ method = "POST", header = {{ X-Kind = "*json*" }} }}\n{respond("json")}',
            f'when = {{ query = {{ page = true }}, not = {{ cookie = {{ old = "1" }} }} }}\n{respond("page")}',
            f'when = {{ client = "192.0.2.0/24" }}\n{respond("elsewhere")}',
        )
    )
    assert body(server, "/") == "all" and body(server, "/", "Content-Length: 0", method="POST") == "post"
    assert body(server, "/", "Content-Length: 0", "X-Kind: a-json", method="POST") == "json"
    assert body(server, "/?page=2") == "page" and body(server, "/?page=2", "Cookie: a=b; old=1") == "all"
    with httpx.Client(http1=False, http2=True, base_url=server.url) as client:
        assert [client.get("/?page").text, client.post("/").text, client.get("/").text] == ["page", "post", "all"]


def test_files_of_a_path_with_conditions_are_cached_by_condition(serve, site, tmp_path):
    write(site / "f.txt", "plain")
    other = tmp_path / "mobile"
    write(other / "f.txt", "mobile")
    server = serve(
        more=routes(
            f'path = "/f.txt"\nwhen = {{ header = {{ User-Agent = "*Mobile*" }} }}\nroot = "{other}"\nset_fields = {{ X-M = "1" }}',
            'path = "/f.txt"\nset_fields = { X-All = "1" }',
        )
    )
    for _ in range(4):
        plain, mobile = server.get("/f.txt"), server.get("/f.txt", "User-Agent: a Mobile b")
        assert (plain[2], mobile[2]) == (b"plain", b"mobile")
        assert "x-m" not in plain[1] and mobile[1]["x-m"] == "1" and mobile[1]["x-all"] == "1"


def test_cached_responses_are_those_of_the_conditions(serve):
    made = []

    def answer(upstream, connection, request):
        made.append(request)
        return response(str(len(made)).encode(), "200 OK", "Cache-Control: max-age=60")

    upstream = Upstream(answer)
    server = serve(
        more=routes(
            f'path = "/*"\nproxy = "{upstream.url}"\ncache = {{ responses = true }}',
            'when = { cookie = { session = true } }\ncache = false',
            'when = { header = { X-Beta = true } }\nset_fields = { X-B = "1" }',
        )
    )
    assert [body(server, "/a") for _ in range(2)] == ["1", "1"]
    assert [body(server, "/a", "Cookie: session=x") for _ in range(2)] == ["2", "3"]
    assert body(server, "/a") == "1"
    assert [body(server, "/a", "X-Beta: 1") for _ in range(2)] == ["4", "4"]
    # An unsafe request makes all of them invalid.
    assert body(server, "/a", "Content-Length: 0", method="POST") == "5"
    assert body(server, "/a", "X-Beta: 1") == "6" and body(server, "/a") == "7"


def test_an_encoded_slash_does_not_bypass_a_condition(serve):
    server = serve(
        more=routes(
            f'path = "/*"\n{respond("open")}',
            'path = "/private/*"\nwhen = { header = { X-Key = false } }\ndeny = ["0.0.0.0/0", "::/0"]',
        )
    )
    assert server.get("/private/x")[0] == 403 and server.get("/private/x", "X-Key: 1")[0] == 200
    assert server.get("/private%2Fx")[0] == 404 and server.get("/a%2Fb")[0] == 200


def test_rewritten_requests_are_routed_again(serve, site):
    write(site / "page.txt", "page")
    write(site / "secret" / "x.txt", "secret")
    upstream = Upstream(reflect)
    server = serve(
        more=routes(
            'path = "/p/*"\nrewrite = "/{rest}.txt"',
            'path = "/in/*"\nrewrite = "/secret/{rest}"',
            'path = "/secret/*"\ninternal = true',
            'regex = "^/api/v(\\\\d+)/(.*)$"\nrewrite = "/up/{2}?version={1}&{query}"',
            f'path = "/up/*"\nproxy = "{upstream.url}"',
            'path = "/loop/*"\nrewrite = "/loop/a{rest}"',
        )
    )
    assert body(server, "/p/page") == "page" and server.get("/p/none")[0] == 404
    assert body(server, "/in/x.txt") == "secret" and server.get("/secret/x.txt")[0] == 404
    assert body(server, "/api/v2/a%20b?x=1") == "GET /up/a%20b?version=2&x=1"
    upload = b"POST /api/v2/u HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"
    assert b"POST /up/u?version=2" in server.exchange(upload) and upstream.requests[-1].body == b"abc"
    assert server.get("/loop/x")[0] == 500
    server.logged("more than 10 internal redirects")
    assert server.get("/p/..%2Fsecret/x")[0] in (400, 404)


def test_rewriting_ends_whatever_leads_where(serve):
    """Random graphs of routes, against a walk through each."""
    choose = random.Random(38)
    graphs = [[choose.choice([None, *range(12)]) for _ in range(12)] for _ in range(8)]
    edges = {(graph, node): target for graph, nodes in enumerate(graphs) for node, target in enumerate(nodes)}
    # A long chain that ends: of 12 routes, 11 lead to another one.
    edges |= {("c", node): node + 1 if node < 11 else None for node in range(12)}
    to = lambda place, target: respond("{}-{}".format(*place)) if target is None else f'rewrite = "/{place[0]}/{target}/{{rest}}a"'
    server = serve(more=routes(*[f'path = "/{place[0]}/{place[1]}/*"\n{to(place, target)}' for place, target in edges.items()]))
    for graph, node in edges:
        place, steps = (graph, node), 0
        while edges[place] is not None and steps <= 10:
            place, steps = (graph, edges[place]), steps + 1
        status, _, content = server.get(f"/{graph}/{node}/x")
        expected = (500, None) if steps > 10 else (200, "{}-{}".format(*place).encode())
        assert (status, content if status == 200 else None) == expected, (graph, node, steps)


def reflect(upstream, connection, request):
    return response(f"{request.method} {request.target}".encode())


def test_settings_of_a_site_are_for_all_its_paths(serve, site):
    write(site / "a" / "x.txt", "x")
    server = serve(
        text=f'[server]\nthreads = 1\n[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "{site}"\nlisting = true\n'
        'set_fields = { X-Site = "1", X-Both = "site" }\n'
        + routes('path = "/*"\nset_fields = { X-Route = "1", X-Both = "route" }', 'path = "/a/*"\nlisting = false')
    )
    assert server.get("/")[0] == 200 and server.get("/a/")[0] == 403
    fields = server.get("/a/x.txt")[1]
    assert (fields["x-site"], fields["x-route"], fields["x-both"]) == ("1", "1", "route")


def test_a_proxied_site_is_two_lines(serve):
    upstream = Upstream(reflect)
    text = f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nhost = "x"\nproxy = "{upstream.url}"\n'
    server = serve(text=text)
    assert body(server, "/x?y") == "GET /x?y"


@pytest.mark.parametrize(
    "route, what",
    [
        ("listing = true", "lacks the key `path`"),
        ('path = "/a"\nregex = "^/a"', "either `path` or `regex`"),
        ('regex = "("', "unclosed group"),
        ("path = []", "the list of patterns is empty"),
        ('path = ["/a", "/a"]', "two routes have the path"),
        ('path = "/a"\nwhen = {}', "no condition"),
        ('path = "/a"\nwhen = { method = "post" }', "is not a method"),
        ('path = "/a"\nwhen = { header = { X = 1 } }', "true, false, a text or a list of texts"),
        ('path = "/a"\nwhen = { metod = "GET" }', "did you mean `method`"),
        ('path = "/a"\nrewrite = "a"', "begins neither with"),
        ('path = "/a"\nrewrite = "/{1}"', "there is no placeholder {1}"),
        ('regex = "^/(a)"\nrewrite = "/$1"', "write {1}"),
        ('path = "/a"\nrewrite = "/b"\nproxy = "http://a"', "either `proxy` or `rewrite`"),
    ],
)
def test_errors_name_the_line(tmp_path, site, route, what):
    text = f'[[listen]]\naddress = ":0"\n[[site]]\nroot = "{site}"\n[[site.route]]\n{route}\n'
    status, output = check(tmp_path, text)
    assert status == 1 and what in output and "check.toml:" in output, output


def test_two_routes_that_tie_are_an_error_that_names_both_lines(tmp_path, site):
    text = (
        f'[[listen]]\naddress = ":0"\n[[site]]\nroot = "{site}"\n'
        '[[site.route]]\npath = "/a"\nwhen = { method = "GET" }\n[[site.route]]\npath = "/a"\nwhen = { method = "GET" }\n'
    )
    status, output = check(tmp_path, text)
    assert status == 1 and "check.toml:9:" in output and "first in line 6" in output, output


def test_listeners_may_be_left_out(tmp_path, site):
    """Port 80, and port 443 with a redirect to it if there is a certificate."""
    status, output = check(tmp_path, f'[[site]]\nroot = "{site}"\n')
    assert status == 0 and "1 listener" in output, output
    pair, key = certificate(tmp_path, "own")
    text = f'[[site]]\nhost = "localhost"\nroot = "{site}"\ntls = {{ certificate = "{pair}", key = "{key}" }}\n'
    status, output = check(tmp_path, text)
    assert status == 0 and "2 listeners" in output, output
    explained = lambda text: check(tmp_path, text, "--explain", "http://localhost/x?y")[1]
    assert "setting   redirect_https from" in explained(text), explained(text)
    assert "redirect_https" not in explained(text + "redirect_https = false\n")


def test_cached_responses_of_rewritten_requests_are_those_of_the_conditions(serve):
    upstream = Upstream(lambda upstream, connection, request: response(request.target.encode(), "200 OK", "Cache-Control: max-age=60"))
    cached = f'proxy = "{upstream.url}"\ncache = {{ responses = true }}'
    server = serve(
        more=routes(
            f'path = "/user"\n{cached}',
            f'path = "/admin"\ninternal = true\n{cached}',
            'path = "/page"\nrewrite = "/user"',
            'path = "/page"\nwhen = { cookie = { role = "admin" } }\nrewrite = "/admin"',
        )
    )
    assert body(server, "/page", "Cookie: role=admin") == "/admin"
    assert [body(server, "/page") for _ in range(2)] == ["/user", "/user"]
    assert body(server, "/page", "Cookie: role=admin") == "/admin" and server.get("/admin")[0] == 404


def test_patterns_and_conditions_that_need_too_many_settings_are_an_error(tmp_path, site):
    many = lambda form: ", ".join(f'"{form.format(at)}"' for at in range(600))
    text = f'[[listen]]\naddress = ":0"\n[[site]]\nroot = "{site}"\n' + routes(
        f'path = [{many("/p{}/*")}]\ndeny = ["0.0.0.0/0"]',
        f'path = [{many("*.s{}")}]\nwhen = {{ query = {{ z = true }} }}\nlisting = true',
    )
    status, output = check(tmp_path, text)
    assert status == 1 and "pairs" in output, output
    few = lambda form: ", ".join(f'"{form.format(at)}"' for at in range(60))
    text = f'[[listen]]\naddress = ":0"\n[[site]]\nroot = "{site}"\n' + routes(
        f'path = [{few("/p{}/*")}]\ndeny = ["0.0.0.0/0"]',
        f'path = [{few("*.s{}")}]\nlisting = true',
        *(f'when = {{ query = {{ q{at} = true }} }}\nlisting = true' for at in range(12)),
    )
    status, output = check(tmp_path, text)
    assert status == 1 and "routes with `when`" in output, output


def test_routes_that_look_alike_have_limits_of_their_own(serve):
    server = serve(
        more=routes(
            f'regex = "/lim"\nlimit = {{ requests = "1/h" }}\n{respond("regex")}',
            f'path = "/lim"\nlimit = {{ requests = "100/s", burst = 100 }}\n{respond("path")}',
        )
    )
    assert [server.get("/xx/lim")[0] for _ in range(2)] == [200, 429]
    assert [server.get("/lim")[0] for _ in range(3)] == [200] * 3


def test_the_route_of_the_rewritten_path_bounds_the_body(serve):
    upstream = Upstream(reflect)
    server = serve(
        more=routes(
            'path = "/w"\nrewrite = "/x"\nbody_size = "1MB"', f'path = "/x"\nbody_size = "10B"\nproxy = "{upstream.url}"'
        )
    )
    upload = lambda size: b"POST /w HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (size, b"a" * size)
    assert b" 200 " in server.exchange(upload(10))[:20] and b" 413 " in server.exchange(upload(11))[:20]


@pytest.mark.parametrize("to", ["https:/{path}", "https:{1}", "HTTP:/{1}"])
def test_a_url_without_a_host_is_no_target(tmp_path, site, to):
    text = f'[[listen]]\naddress = ":0"\n[[site]]\nroot = "{site}"\n[[site.route]]\nregex = "^/a(.*)$"\nredirect = "{to}"\n'
    status, output = check(tmp_path, text)
    assert status == 1 and "a client could choose" in output, output


def test_groups_have_no_names_of_other_values(tmp_path, site):
    text = f'[[listen]]\naddress = ":0"\n[[site]]\nroot = "{site}"\n[[site.route]]\nregex = "^/(?<path>.*)$"\nrewrite = "/{{path}}"\n'
    status, output = check(tmp_path, text)
    assert status == 1 and "cannot be named path" in output, output


def test_many_patterns_stand_beside_many_regular_expressions(serve):
    """More pairs of them than the server makes settings for before the first request."""
    patterns = [f'path = "/s{n}/*"\nset_fields = {{ X-S = "{n}" }}' for n in range(60)]
    expressions = [f"regex = '/p{n}(\\.|$)'\nrespond = {{ body = \"p{n}\" }}" for n in range(60)]
    limited = "regex = '/limited$'\nrespond = { body = \"few\" }\nlimit = [{ requests = \"2/h\", burst = 1 }]"
    server = serve(more=routes(*patterns, *expressions, limited))
    for s, p in [(0, 0), (59, 59), (7, 31), (31, 7), (7, 31)]:
        status, fields, content = server.get(f"/s{s}/a/p{p}.gif")
        assert (status, fields["x-s"], content) == (200, str(s), f"p{p}".encode())
        assert server.get(f"/a/p{p}")[2] == f"p{p}".encode()
    # The first expression of the file applies, and its limit is one for all paths.
    assert body(server, "/s1/p5/p4.x") == "p4"
    assert [server.get(f"/s{n}/limited")[0] for n in range(4)] == [200, 429, 429, 429]
