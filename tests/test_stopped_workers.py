"""Worker processes that stop: a process in which a request has timed out gets no other one until it has responded."""

import pytest

from support.files import write

pytestmark = pytest.mark.usefixtures("orderly_stop")

WSGI = """
import os, signal, time
def application(environ, start_response):
    if environ["QUERY_STRING"] == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
        # Another thread may take the signal: this one does not go on meanwhile.
        time.sleep(60)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]
"""
ASGI = """
import os, signal, time
async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    if scope["query_string"] == b"stop":
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(60)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})
"""
PSGI = """
sub {
    if ($_[0]->{QUERY_STRING} eq 'stop') { kill 'STOP', $$; }
    [200, [], ["$$"]]
}
"""


@pytest.mark.parametrize(
    "settings",
    ['kind = "wsgi", application = "w:application"', 'kind = "wsgi", application = "w:application", threads = 3', 'kind = "asgi", application = "a:application"', 'kind = "psgi", application = "app.psgi"'],
    ids=["wsgi", "wsgi with threads", "asgi", "psgi"],
)
def test_a_stopped_process_is_replaced(serve, tmp_path, settings):
    home = tmp_path / "home"
    write(home / "w.py", WSGI)
    write(home / "a.py", ASGI)
    write(home / "app.psgi", PSGI)
    server = serve(f'script = {{ {settings}, directory = "{home}", processes = 1, timeout = "6s" }}')
    # The time limit includes the start of a process.
    status, _, before = server.get("/")
    assert status == 200
    assert server.get("/?stop")[0] == 504
    status, _, after = server.get("/")
    assert status == 200 and after != before
