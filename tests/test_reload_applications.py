"""Applications that cannot be started, and new code of applications by a reload."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from support.processes import workers
from support.scripts import script
from support.server import DUNLIN
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("orderly_stop")

# By kind: the file, the settings, the content with a version, and content that cannot be loaded.
WSGI = """
import os, helper
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"VERSION %d" % os.getpid()]
"""
ASGI = """
import os, helper
async def application(scope, receive, send):
    if scope["type"] != "http":
        raise NotImplementedError
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"VERSION %d" % os.getpid()})
"""
PSGI = """
use lib '.'; use Helper;
sub { [200, ['Content-Type' => 'text/plain'], ["VERSION $$"]] }
"""
FASTCGI = """#!/usr/bin/perl
use FCGI;
my %env;
my $request = FCGI::Request(\\*STDIN, \\*STDOUT, \\*STDERR, \\%env);
while ($request->Accept() >= 0) { print "Content-Type: text/plain\\r\\n\\r\\nVERSION $$"; }
"""
CGIPLUS = """#!/usr/bin/python3
import os, cgiplus
for request in cgiplus.requests():
    request.write("Content-Type: text/plain\\n\\nVERSION %d" % os.getpid())
"""
KINDS = {
    "wsgi": ("app.py", 'application = "app:application", directory = "{0}"', WSGI, "import no_such_module"),
    "asgi": ("app.py", 'application = "app:application", directory = "{0}"', ASGI, "import no_such_module"),
    "psgi": ("app.psgi", 'application = "app.psgi", directory = "{0}"', PSGI, "use No::Such::Module;"),
    "fastcgi": ("app.fcgi", 'command = ["{0}/app.fcgi"]', FASTCGI, "#!/usr/bin/perl\nuse No::Such::Module;"),
    "cgiplus": ("app", 'file = "{0}/app"', CGIPLUS, "#!/usr/bin/python3\nimport no_such_module"),
}
HOSTED = ["wsgi", "asgi", "psgi"]


class Application:
    def __init__(self, kind, directory):
        self.kind, self.directory = kind, directory
        self.name, self.settings, self.good, self.bad = KINDS[kind]
        directory.mkdir(exist_ok=True)
        (directory / "helper.py").write_text("")
        (directory / "Helper.pm").write_text("package Helper; 1;\n")

    def write(self, version=None):
        """Writes the application; without a version one that cannot be loaded."""
        text = self.bad if version is None else self.good.replace("VERSION", version)
        # Like a deployment: a new file replaces the old one.
        new = self.directory / "new"
        new.write_text(text)
        new.chmod(0o755)
        new.rename(self.directory / self.name)
        # Python's compiled files have a resolution of one second.
        shutil.rmtree(self.directory / "__pycache__", ignore_errors=True)

    def route(self, more="", path="/app/*"):
        settings = self.settings.format(self.directory)
        return f'[[site.route]]\npath = "{path}"\nscript = {{ kind = "{self.kind}", {settings}{more} }}\n'


@pytest.fixture(params=KINDS)
def application(request, tmp_path):
    return Application(request.param, tmp_path / "application")


@pytest.fixture(params=HOSTED)
def hosted(request, tmp_path):
    return Application(request.param, tmp_path / "application")


def reload(server, tmp_path, *words, code=0):
    done = subprocess.run(
        [DUNLIN, "reload", *words, "--admin", tmp_path / "admin.sock"], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == code, done
    return done.stdout + done.stderr


def version_and_pid(server, path="/app/"):
    """The version and the process that respond."""
    status, _, body = server.get(path)
    assert status == 200, server.log
    version, pid = body.split()
    return version.decode(), int(pid)


ADMIN = 'admin = "admin.sock"'


def test_an_application_that_cannot_start_gives_502_at_once(serve, application, tmp_path):
    application.write()
    # With the pause between attempts far longer than the test may take.
    server = serve(more=application.route(', backoff = "200s", queue_timeout = "100s"') if application.kind in HOSTED
                   else application.route(), server=ADMIN)  # fmt: skip
    statuses = [server.get("/app/")[0] for _ in range(10)]
    assert set(statuses) <= {502, 503}, statuses
    log = server.logged("cannot be started")
    reasons = len(re.findall("no_such_module|No/Such/Module.pm in", log))
    if application.kind in HOSTED:
        # From its traceback, with the module's name in the line of the code and in the message.
        assert 1 <= reasons <= 3 and log.count("ModuleNotFoundError") <= 1, log
        assert log.count("cannot be started") == 1
    application.write("one")
    text = reload(server, tmp_path)
    assert "reloaded" in text
    assert version_and_pid(server)[0] == "one"


def test_concurrent_requests_all_get_502_when_an_application_cannot_start(serve, hosted, tmp_path):
    hosted.write()
    server = serve(more=hosted.route(', processes = 4, backoff = "200s", queue_timeout = "100s"'), server=ADMIN)
    statuses = []
    threads = [threading.Thread(target=lambda: statuses.append(server.get("/app/")[0])) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(statuses) == 20 and set(statuses) <= {502, 503}
    assert server.logged("cannot be started").count("cannot be started") == 1
    hosted.write("one")
    server.process.send_signal(signal.SIGHUP)
    server.logged("reloaded")
    wait_until(lambda: server.get("/app/")[0] == 200, "the application runs")


def test_an_application_is_tried_again_without_a_reload(serve, hosted):
    hosted.write()
    server = serve(more=hosted.route())
    assert server.get("/app/")[0] in (502, 503)
    hosted.write("one")
    wait_until(lambda: server.get("/app/")[0] == 200, "it is tried again")


@pytest.mark.parametrize("settings", [
    'kind = "wsgi", application = "a:b", interpreter = "/no/such/python"',
    'kind = "psgi", application = "a.psgi", interpreter = "no-such-perl"',
    'kind = "rte", directory = ".", interpreter = "/no/such/python3"',
    'kind = "fastcgi", command = ["/no/such/program"]',
    'kind = "fastcgi", connect = ["unix:/no/such.sock"]',
    'kind = "scgi", connect = ["127.0.0.1:1"]',
])
def test_a_missing_program_or_socket_gives_502_at_once_and_is_reported_once(serve, tmp_path, settings):
    (tmp_path / "x.py").write_text("")
    server = serve(
        server='error_log = { format = "json" }',
        more=f'[[site.route]]\npath = "/app/*"\nscript = {{ {settings} }}',
    )
    for _ in range(6):
        assert server.get("/app/x.py")[0] in (502, 503)
    server.stop()
    lines = [line for line in server.log.splitlines() if '"ERROR"' in line]
    assert len(lines) == 1, server.log
    missing = re.search(r"/?no[-/]such[-./\w]*|127.0.0.1:1", settings)[0]
    assert missing in lines[0]


def test_a_new_socket_is_used_at_once(serve, tmp_path):
    path = tmp_path / "fcgi.sock"
    (tmp_path / "app.fcgi").write_text(FASTCGI.replace("VERSION", "one"))
    server = serve(more=f'[[site.route]]\npath = "/app/*"\nscript = {{ kind = "fastcgi", connect = ["unix:{path}"] }}')
    assert server.get("/app/")[0] in (502, 503)
    program = (
        "import os, socket, sys\ns = socket.socket(socket.AF_UNIX)\n"
        f"s.bind({str(path)!r})\ns.listen()\nos.dup2(s.fileno(), 0)\n"
        f"os.execvp('perl', ['perl', {str(tmp_path / 'app.fcgi')!r}])"
    )
    worker = subprocess.Popen(["python3", "-c", program])
    try:
        wait_until(path.exists, "it listens")
        wait_until(lambda: server.get("/app/")[0] == 200, "it is used")
    finally:
        worker.kill()
        worker.wait()


def test_a_reload_gives_an_application_its_new_code(serve, application, tmp_path):
    application.write("one")
    other = Application(application.kind, tmp_path / "other")
    other.write("same")
    one = ", processes = 1"
    server = serve(more=application.route(one) + other.route(one, path="/other/*"), server=ADMIN)
    version, pid = version_and_pid(server)
    unchanged = version_and_pid(server, "/other/")
    assert version == "one"
    reload(server, tmp_path)
    assert version_and_pid(server) == (version, pid), "without a change the worker stays"
    application.write("two")
    reload(server, tmp_path)
    now = version_and_pid(server)
    assert now[0] == "two" and now[1] != pid
    assert version_and_pid(server, "/other/") == unchanged
    reload(server, tmp_path)
    assert version_and_pid(server) == now
    text = reload(server, tmp_path, "--workers")
    assert version_and_pid(server)[1] != now[1] and version_and_pid(server, "/other/")[1] != unchanged[1]
    assert "replaced" in text
    server.stop()
    assert "ERROR" not in server.log, server.log


LINGERS = """
import os, pathlib, sys, time
starts = pathlib.Path(sys.argv[1])
number = len(starts.read_text()) if starts.exists() else 0
starts.write_text("x" * (number + 1))
if number < 4:
    sys.exit(1)
os.close(0)
time.sleep(1000)
"""


def test_a_worker_that_rejects_requests_and_does_not_end_delays_none(serve, tmp_path):
    program, starts = tmp_path / "app.py", tmp_path / "starts"
    program.write_text(LINGERS)
    server = serve(
        more='[[site.route]]\npath = "/app/*"\nscript = { kind = "fastcgi", processes = 1, backoff = "1ms", '
        f'command = ["{sys.executable}", "{program}", "{starts}"] }}'
    )

    def has_tried_again():
        assert server.get("/app/")[0] == 502, server.log
        return len(starts.read_text()) > 6

    # The first four workers end at once, so that the pool is given up. A request that then waits for a worker that is
    # being ended has another one tried, or the client times out.
    wait_until(has_tried_again, "other workers")


def test_a_reload_notices_a_module_that_was_loaded_late(serve, tmp_path):
    directory = tmp_path / "late"
    directory.mkdir()
    (directory / "app.py").write_text(
        "def application(environ, start_response):\n    import late\n"
        "    start_response('200 OK', [])\n    return [late.text]\n"
    )
    (directory / "late.py").write_text("text = b'one'")
    server = serve(
        server=ADMIN, more='[[site.route]]\npath = "/app/*"\n'
        f'script = {{ kind = "wsgi", application = "app:application", directory = "{directory}", processes = 1 }}',
    )  # fmt: skip
    assert server.get("/app/")[2] == b"one"
    (directory / "late.py").write_text("text = b'three'")
    reload(server, tmp_path)
    assert server.get("/app/")[2] == b"three"


def test_a_reload_follows_a_release_that_was_switched_by_a_symlink(serve, hosted, tmp_path):
    for version in ("one", "two"):
        hosted.directory = tmp_path / version
        hosted.directory.mkdir()
        (hosted.directory / "helper.py").write_text("")
        (hosted.directory / "Helper.pm").write_text("package Helper; 1;\n")
        hosted.write(version)
    current = tmp_path / "current"
    current.symlink_to("one")
    hosted.directory = current
    server = serve(more=hosted.route(), server=ADMIN)
    assert version_and_pid(server)[0] == "one"
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").rename(current)
    reload(server, tmp_path)
    assert version_and_pid(server)[0] == "two"


def test_a_release_that_cannot_start_leaves_the_old_workers(serve, tmp_path):
    """The release is switched by a symlink, under requests."""
    for name, text in (("one", WSGI.replace("VERSION", "one")), ("two", WSGI.replace("VERSION", "two")), ("broken", "import no_such_module\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "helper.py").write_text("")
        (tmp_path / name / "app.py").write_text(text)
    current = tmp_path / "current"
    current.symlink_to("one")
    server = serve(
        server=ADMIN, more='[[site.route]]\npath = "/app/*"\n'
        f'script = {{ kind = "wsgi", application = "app:application", directory = "{current}", processes = 1 }}',
    )  # fmt: skip

    def switch(name):
        (tmp_path / "next").symlink_to(name)
        (tmp_path / "next").rename(current)

    before = version_and_pid(server)
    assert before[0] == "one"
    switch("broken")
    text = reload(server, tmp_path, code=1)
    assert "now resolves to" in text and "not replaced and keep running" in text
    assert version_and_pid(server) == before
    switch("two")
    text = reload(server, tmp_path)
    assert "are replaced" in text
    # The new worker was ready when the reload returned.
    workers_then = workers(server)
    version, pid = version_and_pid(server)
    assert version == "two" and pid in workers_then


def test_a_reload_with_broken_code_keeps_the_old_workers(serve, hosted, tmp_path):
    hosted.write("one")
    server = serve(more=hosted.route(", processes = 1"), server=ADMIN)
    before = version_and_pid(server)
    hosted.write()
    text = reload(server, tmp_path, code=1)
    assert "not replaced" in text
    assert version_and_pid(server) == before
    hosted.write("two")
    reload(server, tmp_path)
    assert version_and_pid(server)[0] == "two"


SLOW = """
import os, time
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    if environ["QUERY_STRING"]:
        open(environ["QUERY_STRING"] + ".began", "w").close()
        while not os.path.exists(environ["QUERY_STRING"]):
            time.sleep(0.002)
    return [b"VERSION %d" % os.getpid()]
"""


def test_a_request_in_progress_ends_on_the_old_code(serve, tmp_path):
    application = Application("wsgi", tmp_path / "application")
    application.good = SLOW
    application.write("one")
    server = serve(more=application.route(", processes = 2"), server=ADMIN)
    pid = version_and_pid(server)[1]
    responses = []
    gate = tmp_path / "gate"
    slow = threading.Thread(target=lambda: responses.append(server.get(f"/app/?{gate}")))
    slow.start()
    wait_until((tmp_path / "gate.began").exists, "the request is under way")
    application.write("two")
    reload(server, tmp_path)
    assert version_and_pid(server)[0] == "two"
    gate.touch()
    slow.join()
    assert responses[0][0] == 200 and responses[0][2].startswith(b"one")
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), "the old worker ends")


def test_an_additional_worker_that_cannot_start_fails_no_request(serve, tmp_path):
    application = Application("wsgi", tmp_path / "application")
    application.good = SLOW
    application.write("one")
    server = serve(more=application.route(", processes = 2"), server=ADMIN)
    before = version_and_pid(server)
    gate = tmp_path / "gate"
    responses = []
    visitors = [threading.Thread(target=lambda path=path: responses.append(server.get(path))) for path in (f"/app/?{gate}", "/app/")]
    visitors[0].start()
    wait_until((tmp_path / "gate.began").exists, "the one worker is busy")
    # The second worker, for the second request, cannot load it.
    application.write()
    visitors[1].start()
    server.logged("a worker ended with exit status 1; another is started after a pause")
    gate.touch()
    for visitor in visitors:
        visitor.join()
    assert [(status, body) for status, _, body in responses] == [(200, b"one %d" % before[1])] * 2
    # Once it can be loaded again, there are two.
    application.write("two")
    assert "are replaced" in reload(server, tmp_path)
    assert version_and_pid(server)[0] == "two"


def test_no_request_fails_while_workers_are_replaced(serve, hosted, tmp_path):
    hosted.write("v0")
    server = serve(more=hosted.route(", processes = 2"), server=ADMIN)
    wrong, count, stop = [], [0], threading.Event()

    def fetch():
        while not stop.is_set():
            status, _, body = server.get("/app/")
            count[0] += 1
            if status != 200:
                wrong.append((status, body))

    threads = [threading.Thread(target=fetch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(1, 4):
        hosted.write(f"v{number}")
        reload(server, tmp_path)
        before = count[0]
        wait_until(lambda: count[0] > before + 10, "more requests")
        assert version_and_pid(server)[0] == f"v{number}"
    reload(server, tmp_path, "--workers")
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong, (wrong[:3], server.log)
    server.stop()
    assert "ERROR" not in server.log, server.log


def test_new_code_of_a_module_for_scripts_of_an_interpreter(serve, tmp_path):
    directory = tmp_path / "rte"
    directory.mkdir()
    (directory / "part.py").write_text("text = 'one'")
    (directory / "x.py").write_text("import os, part\nprint('Content-Type: text/plain\\n')\nprint(part.text, os.getpid(), end='')\n")
    server = serve(
        server=ADMIN, more=f'[[site.route]]\npath = "/app/*"\nscript = {{ kind = "rte", directory = "{directory}", processes = 1 }}'
    )
    first = version_and_pid(server, "/app/x.py")
    assert first[0] == "one" and version_and_pid(server, "/app/x.py") == first
    reload(server, tmp_path)
    assert version_and_pid(server, "/app/x.py") == first
    (directory / "part.py").write_text("text = 'three'")
    reload(server, tmp_path)
    assert version_and_pid(server, "/app/x.py")[0] == "three"
    reload(server, tmp_path, "--workers")
    assert version_and_pid(server, "/app/x.py")[0] == "three"


@pytest.mark.parametrize("words", [[], ["--workers"]])
def test_a_reload_replaces_warm_hosts(serve, tmp_path, words):
    program = script(tmp_path / "bin", "p", "#!/usr/bin/python3\nimport json\nprint('Content-Type: text/plain\\n\\none', end='')")
    server = serve(server=ADMIN, more=f'[[site.route]]\npath = "/b/*"\nscript = {{ kind = "warm", directory = "{tmp_path}/bin" }}')
    assert server.get("/b/p")[2] == b"one"
    program.write_text(program.read_text().replace("one", "two"))
    reload(server, tmp_path, *words)
    assert server.get("/b/p")[2] == b"two"
    server.stop()
    assert "ERROR" not in server.log, server.log
