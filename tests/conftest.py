"""Fixtures of all tests: they start real servers and stop them again."""

import signal
import sys
from pathlib import Path

import pytest

# A shell that starts the tests in the background has them ignore these, and servers and scripts would inherit that.
for number in (signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

# Each worker collects all tests. Programs that they start do not inherit this.
sys.dont_write_bytecode = False
sys.pycache_prefix = str(Path(__file__).parent.parent / "target" / "pycache")

pytest.register_assert_rewrite("support")

from support import files, quick, retry  # noqa: E402
from support.confinement import begin, place  # noqa: E402, F401
from support.dictionaries import client  # noqa: E402, F401
from support.kinds import Programs  # noqa: E402
from support.psgi import psgi  # noqa: E402, F401
from support.scripts import script  # noqa: E402
from support.server import DUNLIN, Server  # noqa: E402
from support.stub import StubServer  # noqa: E402
from support.tls import tls  # noqa: E402, F401
from support.users import reachable  # noqa: E402, F401


@pytest.fixture
def site(tmp_path):
    """An empty directory to be served."""
    directory = tmp_path / "site"
    directory.mkdir()
    return directory


@pytest.fixture
def serve(tmp_path, site):
    """Starts a server: `serve(route="...", server="...")` with TOML for those tables."""
    running = []

    def start(route="", server="", more="", text=None, arguments=(), preexec=None, program=DUNLIN):
        if text is None:
            routes = f'[[site.route]]\npath = "/*"\n{route}\n' if route else ""
            text = (
                f'[server]\nthreads = 1\n{server}\n[[listen]]\naddress = "127.0.0.1:0"\n'
                f'[[site]]\nroot = "{site}"\n{routes}{more}\n'
            )
        file = tmp_path / f"dunlin-{len(running)}.toml"
        file.write_text(text)
        server = Server(["--config", str(file), *arguments], tmp_path, preexec, program)
        running.append(server)
        files.wait_until_settled()
        return server

    start.running = running
    yield start
    for server in running:
        server.kill()
    for server in running:
        # What scripts write to their standard error is no panic of the server.
        own = [line for line in server.log.splitlines() if "stderr: " not in line and not line.startswith("  ")]
        assert not any("panicked" in line for line in own), server.log


@pytest.fixture(autouse=True)
def end_of_stubs():
    """Closes the listening sockets of stub servers: a run has thousands."""
    yield
    StubServer.end_all()


@pytest.fixture
def orderly_stop(serve):
    """Stops the servers by SIGTERM at the end of the test, so that they end their workers."""
    yield
    for server in serve.running:
        server.stop()


@pytest.fixture
def kind():
    """The kind of the scripts that `cgi` runs. Tests choose others by `parametrize`."""
    return "cgi"


@pytest.fixture
def cgi(tmp_path, serve, kind):
    """Starts a server with scripts: `cgi({"name": "sh text"}, settings)`."""
    directory = tmp_path / "cgi-bin"
    directory.mkdir()

    def start(scripts=(), settings="", route="", server="", more=""):
        for name, text in dict(scripts).items():
            script(directory, name, text)
        return serve(
            server=server,
            more=f'[[site.route]]\npath = "/cgi-bin/*"\n{route}\n'
            f'script = {{ kind = "{kind}", directory = "{directory}", {settings} }}\n{more}',
        )

    start.directory = directory
    start.serve = serve
    return start


@pytest.fixture
def programs(tmp_path):
    """One small program for every kind of script."""
    return Programs(tmp_path / "programs")


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="run the tests of `./test quick` only")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--quick"):
        chosen = [item for item in items if quick.is_quick(item)]
        config.hook.pytest_deselected(items=list(set(items) - set(chosen)))
        items[:] = chosen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Shows the end of the servers' error logs with a failure."""
    report = yield
    start = getattr(item, "funcargs", {}).get("serve")
    if report.failed and start:
        for server in start.running:
            report.sections.append((f"error log on port {server.port}", server.log[-4000:]))
    return report


def pytest_runtest_protocol(item, nextitem):
    """Repeats a failed test that measures time where other programs have disturbed it."""
    if not item.get_closest_marker("serial") and not item.get_closest_marker("paced"):
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in retry.run(item, nextitem):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter):
    for line in retry.retried:
        terminalreporter.write_line(f"retried {line}")
