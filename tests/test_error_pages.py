"""Errors and redirects of the server: fields, pages and log messages."""

import httpx
import pytest

from support.fastcgi import PHP_CGI
from support.files import write
from support.scripts import script

pytestmark = pytest.mark.usefixtures("orderly_stop")

ALWAYS = 'set_fields = { X-Frame-Options = "DENY", Content-Type = "text/x" }'


def test_errors_and_redirects_have_the_fields_of_their_route(serve, site, tmp_path):
    write(site / "x.txt", "x")
    write(site / "sub" / "index.html", "sub")
    write(site / "gone.html", "gone")
    (site / "empty").mkdir()
    (tmp_path / "users").write_text("")
    server = serve(
        route=f'{ALWAYS}\nbody_size = "10B"\nerror_pages = {{ 410 = "/gone.html" }}',
        more=f"""
        [[site.route]]
        path = "/denied/*"
        deny = ["0.0.0.0/0"]
        [[site.route]]
        path = "/closed/*"
        auth = {{ basic = "{tmp_path}/users" }}
        [[site.route]]
        path = "/post"
        methods = ["POST"]
        [[site.route]]
        path = "/limited"
        limit = {{ requests = "1/h", burst = 1 }}
        [[site.route]]
        path = "/old/*"
        redirect = {{ to = "/new/{{rest}}", status = 301 }}
        [[site.route]]
        path = "/gone"
        try = ["=410"]
        [[site.route]]
        path = "/hidden"
        internal = true
        [[site.route]]
        path = "/broken/*"
        script = {{ kind = "scgi", connect = ["127.0.0.1:1"] }}
        """,
    )
    server.get("/limited")
    for path, status, kind in [
        ("/none", 404, "text/html"),
        ("/empty/", 403, "text/html"),
        ("/sub", 301, "text/html"),
        ("/old/x", 301, "text/html"),
        ("/denied/x", 403, "text/html"),
        ("/closed/x", 401, "text/html"),
        ("/post", 405, "text/html"),
        ("/limited", 429, "text/html"),
        ("/gone", 410, "text/html"),
        ("/hidden", 404, "text/html"),
        ("/a%2fb", 404, "text/html"),
        ("/broken/x", 502, "text/html"),
    ]:
        for method in ("GET", "HEAD"):
            got, fields, _ = server.get(path, method=method)
            assert got == status and fields["x-frame-options"] == "DENY", (path, got, fields)
            assert fields["content-type"].startswith(kind), (path, fields)
            assert fields["x-content-type-options"] == "nosniff", (path, fields)
        with httpx.Client(http1=False, http2=True, base_url=server.url) as client:
            response = client.get(path)
            assert response.status_code == status and response.headers["x-frame-options"] == "DENY", path
    status, fields, _ = server.get("/x.txt", "If-None-Match: *")
    assert status == 304 and fields["x-frame-options"] == "DENY"
    status, fields, _ = server.get("/x.txt", method="DELETE")
    assert (status, fields["x-frame-options"]) == (405, "DENY")
    status, fields, _ = server.get("/x.txt", "Content-Length: 11")
    assert (status, fields["x-frame-options"]) == (413, "DENY")
    status, fields, _ = server.get("/a%")
    assert (status, fields["x-frame-options"]) == (400, "DENY")
    with httpx.Client(http1=False, http2=True, base_url=server.url) as client:
        response = client.request("GET", "/x.txt", content=b"x" * 11)
        assert response.status_code == 413 and response.headers["x-frame-options"] == "DENY"


def test_hsts_is_on_errors_and_redirects(tls_site):
    server, client = tls_site
    for path in ("/", "/none", "/hidden", "/old", "/sub", "/a%2fb", "/denied"):
        response = client.get(path)
        assert response.headers["strict-transport-security"] == "max-age=86400", (path, response)


@pytest.fixture(params=[False, True])
def tls_site(serve, site, request):
    write(site / "index.html", "front")
    write(site / "sub" / "index.html", "sub")
    server = serve(
        arguments=["--tls-self-signed"],
        route='hsts = "1d"',
        more="""
        [[site.route]]
        path = "/hidden"
        internal = true
        [[site.route]]
        path = "/old"
        redirect = { to = "/new" }
        [[site.route]]
        path = "/denied"
        deny = ["0.0.0.0/0"]
        """,
    )
    with httpx.Client(verify=False, http2=request.param, base_url=server.url) as client:
        yield server, client


def test_a_redirect_has_a_link_that_is_escaped(serve):
    server = serve('redirect = { to = "https://example.com{path}?\\"<&\'>", status = 302 }')
    body = server.get("/a%22b")[2]
    assert b'<a href="https://example.com/a%22b?&quot;&lt;&amp;&#39;&gt;">' in body


def test_an_unknown_host_is_named_on_the_page_and_in_the_log(serve, site, tmp_path):
    server = serve(text=f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nhost = "a.example"\nroot = "{site}"\n')
    status, _, body = server.get("/")
    assert status == 421 and b"This server has no site for x." in body
    assert 'no site for host "x"' in server.logged("no site for host")
    with httpx.Client(http1=False, http2=True, base_url=server.url) as client:
        response = client.get("/", headers={"Host": "b.example"})
        assert response.status_code == 421 and "no site for b.example." in response.text


def test_a_directory_without_index_is_named_on_the_page_and_in_the_log(serve, site):
    (site / "a<b").mkdir()
    server = serve(route='index = ["start.html"]')
    status, _, body = server.get("/a%3Cb/")
    assert status == 403 and b"/a&lt;b/ has no index page" in body and str(site).encode() not in body
    log = server.logged("there is no index file")
    assert str(site) in log and "start.html" in log and "listing" in log


def test_a_failed_script_is_named_on_the_page_and_in_the_log(serve, tmp_path):
    directory = tmp_path / "cgi-bin"
    script(directory, "broken", "echo nonsense\n")
    server = serve(more=f'[[site.route]]\npath = "/run/*"\nscript = {{ kind = "cgi", directory = "{directory}" }}')
    status, _, body = server.get("/run/broken")
    assert status == 502 and b"/run/broken gave no valid response" in body
    assert str(tmp_path).encode() not in body
    assert str(directory / "broken") in server.logged("the response is invalid")


PAGE = """<?php
if (isset($_GET['status'])) http_response_code((int) $_GET['status']);
header('X-Page: made');
$reported = [];
foreach (['REDIRECT_STATUS', 'REDIRECT_URL', 'REDIRECT_QUERY_STRING', 'REQUEST_METHOD', 'REQUEST_URI', 'SCRIPT_NAME', 'QUERY_STRING'] as $name)
    $reported[$name] = $_SERVER[$name] ?? null;
echo json_encode($reported);
"""


@pytest.fixture
def pages(serve, site, tmp_path):
    assert PHP_CGI, "php-cgi is missing"
    write(site / "err.php", PAGE)
    write(site / "x.txt", "x")
    directory = tmp_path / "cgi-bin"
    script(directory, "broken", "echo nonsense\n")
    return serve(
        route=f"""
        error_pages = {{ 404 = "/err.php", 403 = "/err.php?status=410", 405 = "/err.php", 502 = "/err.php", 500 = "/none.php", 451 = "/err.php?status=404" }}
        script = {{ kind = "fastcgi", command = ["php-cgi"], root = "{site}", processes = 1 }}
        """,
        more=f"""
        [[site.route]]
        path = "/files/*"
        root = "{site}"
        [[site.route]]
        path = "/denied"
        deny = ["0.0.0.0/0"]
        [[site.route]]
        path = "/law"
        try = ["=451"]
        [[site.route]]
        path = "/run/*"
        script = {{ kind = "cgi", directory = "{directory}" }}
        [[site.route]]
        path = "/loop/*"
        root = "{site}"
        try = ["=500"]
        """,
    )


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
def test_an_error_page_can_be_a_script(pages, version):
    with httpx.Client(http1=version == "HTTP/1.1", http2=version == "HTTP/2", base_url=pages.url) as client:
        for path in ("/none", "/files/none", "/none.php", "/files/a%20b"):
            for method in ("GET", "POST"):
                # A page is generated for each request, independent of its conditions.
                response = client.request(method, path + "?a=b", headers={"If-None-Match": "*"}, content=b"x" * (method == "POST"))
                assert response.status_code == 404 and response.headers["x-page"] == "made", (path, method, response)
                reported = response.json()
                assert reported["REDIRECT_STATUS"] == "404" and reported["REDIRECT_QUERY_STRING"] == "a=b"
                assert reported["REDIRECT_URL"] == path.replace("%20", " ") and reported["REQUEST_URI"] == path + "?a=b"
                assert reported["REQUEST_METHOD"] == "GET" and reported["SCRIPT_NAME"] == "/err.php"
        response = client.request("HEAD", "/none")
        assert response.status_code == 404 and response.headers["x-page"] == "made" and not response.content
        # A script may set another status.
        assert client.get("/denied").status_code == 410
        assert client.get("/law").status_code == 404
        response = client.get("/run/broken")
        assert response.status_code == 502 and response.json()["REDIRECT_STATUS"] == "502"
        assert client.get("/x.txt").text == "x"


def test_a_missing_error_page_is_logged_and_replaced_by_the_plain_one(pages):
    status, _, body = pages.get("/loop/x")
    assert status == 500 and b"<h1>500</h1>" in body
    log = pages.logged("is not there")
    assert "/none.php" in log and "/loop/*" in log and "default" in log


def test_a_missing_file_as_error_page_is_named(serve, site):
    server = serve('error_pages = { 404 = "/e404.html" }')
    assert server.get("/none")[0] == 404
    # The start has warned of the file already.
    log = server.logged('"/*"')
    assert "/e404.html" in log and "default" in log and "404" in log


def test_an_error_page_that_may_not_be_read_is_not_called_missing(serve, site):
    write(site / "404.html", "page")
    (site / "link.html").symlink_to(site / "404.html")
    server = serve('error_pages = { 404 = "/link.html" }')
    assert server.get("/none")[0] == 404
    log = server.logged("the error page /link.html of route")
    assert "may not be sent" in log and "is not there" not in log
    assert "has a symlink that is absolute" in server.logged("403")


def test_a_directory_without_index_of_a_site_without_routes_is_named(serve, site, tmp_path):
    (site / "d").mkdir()
    text = f'[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nhost = "x"\nroot = "{site}"\n'
    server = serve(text=text)
    assert server.get("/d/")[0] == 403
    log = server.logged("`listing` is off in site x")
    assert 'route ""' not in log


def test_an_error_page_of_any_other_route(serve, site, tmp_path):
    directory = tmp_path / "cgi-bin"
    script(directory, "page", "printf 'Content-Type: text/plain\\n\\n'; echo page $REDIRECT_STATUS $REDIRECT_URL")
    script(directory, "broken", "exit 1\n")
    server = serve(
        route='error_pages = { 404 = "/run/page", 403 = "/fixed", 410 = "/run/broken" }',
        more=f"""
        [[site.route]]
        path = "/run/*"
        internal = true
        script = {{ kind = "cgi", directory = "{directory}" }}
        [[site.route]]
        path = "/fixed"
        respond = {{ body = "fixed" }}
        [[site.route]]
        path = "/denied"
        deny = ["0.0.0.0/0"]
        [[site.route]]
        path = "/gone"
        try = ["=410"]
        """,
    )
    assert server.get("/none")[::2] == (404, b"page 404 /none\n")
    assert server.get("/denied")[::2] == (403, b"fixed")
    status, _, body = server.get("/gone")
    assert status == 410 and b"<h1>410</h1>" in body


def test_a_page_can_have_another_status(serve, site, tmp_path):
    directory = tmp_path / "cgi-bin"
    script(directory, "page", "printf 'Status: 207 Many\\nContent-Type: text/plain\\n\\n'; echo page $REDIRECT_STATUS $PATH_INFO $QUERY_STRING")
    write(site / "sorry.html", "sorry")
    server = serve(
        route='''error_pages = { 404 = { to = "/run/page{path}?{query}", status = "page" }, 403 = { to = "/sorry.html", status = 200 }, '''
        '''410 = { to = "/run/page", status = 502 }, 401 = "https://login.example.com/?next={target}", 405 = { to = "/home", status = 303 } }''',
        more=f"""
        [[site.route]]
        path = "/run/*"
        internal = true
        script = {{ kind = "cgi", directory = "{directory}" }}
        [[site.route]]
        path = "/denied"
        deny = ["0.0.0.0/0"]
        [[site.route]]
        path = "/gone"
        try = ["=410"]
        [[site.route]]
        path = "/closed"
        try = ["=401"]
        """,
    )
    assert server.get("/none?a=b")[::2] == (207, b"page 404 /none a=b\n")
    assert server.get("/denied")[::2] == (200, b"sorry")
    assert server.get("/gone")[::2] == (502, b"page 410\n")
    status, fields, _ = server.get("/closed?a=1")
    assert (status, fields["location"]) == (302, "https://login.example.com/?next=/closed%3Fa=1")
    status, fields, _ = server.get("/sorry.html", method="DELETE")
    assert (status, fields["location"]) == (303, "/home")


def test_another_route_responds_for_an_upstream_that_fails(serve):
    server = serve(
        route='proxy = "http://127.0.0.1:9"\nerror_pages = { 502 = { to = "/spare{path}?{query}", status = "page" } }',
        more="""
        [[site.route]]
        path = "/spare/*"
        internal = true
        respond = { template = "spare {rest} {query}" }
        """,
    )
    assert server.get("/x?a=1")[::2] == (200, b"spare x a=1")
    assert server.get("/spare/x")[0] == 404


RETRY = 'set_fields = { Retry-After = "600" }'


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
def fetched(serve, site, tmp_path, request):
    """The response of each path of a site whose errors have pages with and without `Retry-After`."""
    write(site / "busy.html", "<h1>Busy</h1>")
    write(site / "plain.html", "<h1>Plain</h1>")
    directory = tmp_path / "cgi-bin"
    script(directory, "busy", "printf 'Content-Type: text/plain\\nRetry-After: 77\\n\\nbusy'")
    server = serve(
        more=f"""
        [[site.route]]
        path = "/busy.html"
        internal = true
        {RETRY}
        [[site.route]]
        path = "/busy"
        respond = {{ body = "busy" }}
        {RETRY}
        [[site.route]]
        path = "/cgi-bin/*"
        script = {{ kind = "cgi", directory = "{directory}" }}
        [[site.route]]
        path = "/default"
        try = ["=503"]
        [[site.route]]
        path = "/own"
        try = ["=503"]
        {RETRY}
        [[site.route]]
        path = "/date"
        try = ["=503"]
        set_fields = {{ Retry-After = "Fri, 31 Dec 2100 23:59:59 GMT" }}
        [[site.route]]
        path = "/without"
        try = ["=503"]
        remove_fields = ["Retry-After"]
        [[site.route]]
        path = "/other"
        try = ["=404"]
        {RETRY}
        [[site.route]]
        path = "/by-file"
        try = ["=503"]
        error_pages = {{ 503 = "/busy.html" }}
        [[site.route]]
        path = "/by-route"
        try = ["=503"]
        error_pages = {{ 503 = "/busy" }}
        [[site.route]]
        path = "/by-script"
        try = ["=503"]
        error_pages = {{ 503 = "/cgi-bin/busy" }}
        [[site.route]]
        path = "/own-by-plain-file"
        try = ["=503"]
        error_pages = {{ 503 = "/plain.html" }}
        {RETRY}
        [[site.route]]
        path = "/gone"
        try = ["=410"]
        error_pages = {{ 410 = "/busy.html" }}
        [[site.route]]
        path = "/limited"
        limit = {{ requests = "1/h", burst = 1 }}
        try = ["/plain.html"]
        [[site.route]]
        path = "/limited-own"
        limit = {{ requests = "1/h", burst = 1 }}
        try = ["/plain.html"]
        {RETRY}
        """,
    )
    with httpx.Client(http1=request.param == "HTTP/1.1", http2=request.param == "HTTP/2", base_url=server.url) as client:
        yield client.get


@pytest.mark.parametrize(
    "path, status, value, text",
    [
        ("/default", 503, "1", "Try again in a moment."),
        ("/own", 503, "600", "Try again in 600 seconds."),
        ("/date", 503, "Fri, 31 Dec 2100 23:59:59 GMT", "Try again after Fri, 31 Dec 2100 23:59:59 GMT."),
        ("/without", 503, None, "Try again in a moment."),
        ("/other", 404, None, "404"),
        ("/by-file", 503, "600", "<h1>Busy</h1>"),
        ("/by-route", 503, "600", "busy"),
        ("/by-script", 503, "77", "busy"),
        ("/own-by-plain-file", 503, "600", "<h1>Plain</h1>"),
        ("/gone", 410, None, "<h1>Busy</h1>"),
    ],
)
def test_retry_after_of_an_error_is_that_of_its_route_or_page(fetched, path, status, value, text):
    response = fetched(path)
    assert response.status_code == status and text in response.text, response.text
    assert response.headers.get_list("Retry-After") == ([value] if value else [])


def test_retry_after_replaces_the_time_of_a_rate_limit(fetched):
    for path, values in (("/limited", range(3000, 3601)), ("/limited-own", [600])):
        assert fetched(path).status_code == 200
        response = fetched(path)
        assert response.status_code == 429 and int(response.headers["retry-after"]) in values


def test_the_page_of_an_error_is_not_cached_for_the_path_with_the_error(serve, site):
    """The page is a file that the route of a proxy tries first."""
    write(site / "lost.html", "lost")
    server = serve(
        route='proxy = "http://127.0.0.1:9"\ntry = ["{path}", "=proxy"]\nerror_pages = { 404 = "/lost.html" }',
        more=f"""
        [[site.route]]
        path = "/files/*"
        root = "{site}"
        try = ["{{path}}", "=404"]
        """,
    )
    for _ in range(4):
        status, _, body = server.get("/files/none")
        assert (status, body) == (404, b"lost")
