"""Runs the shell examples of README and book as a reader does, and compares what they print with the page.

Of each page, the blocks are used from the first to the last, in one scratch directory:

- A `toml` block with a listener becomes `dunlin.toml`. The server starts with it when a later example needs a server.
- A block behind "`NAME`:" becomes that file.
- An `sh` block is run. A `text` block directly behind it is what it prints; `…` stands for any text, a line `…` for any lines.
- A `console` block has commands behind `$ `, each with its output.
- A command that ends with `&`, or that joins a run of load, runs until the end of the page. `dunlin watch` is ended by Ctrl-C.

`/srv` is a directory of the test, and 8080 a free port; `support/book_companions.py` has what a page needs beside the server.
A block that cannot run here has a comment in front of it, `<!-- not run: REASON -->`, and so has a configuration that the later
examples do not use. `NOT_RUN` has their number.
"""

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from support.book import PAGES, blocks
from support.book_companions import COMPANIONS
from support.files import write
from support.server import DUNLIN
from support.waiting import wait_until

# Their examples have tests of their own.
ELSEWHERE = {"recipes.md"}
RUN = [page for page in PAGES if page.name not in ELSEWHERE]

# The number of blocks that are not run, by page. Each has its reason in front of it. Only what needs more than a test can have is not
# run: a public name, a cluster, systemd, minutes.
NOT_RUN = {
    "README.md": 3,
    "compare.md": 1,
    "compression.md": 1,
    "components.md": 1,
    "connections.md": 1,
    "figures.md": 1,
    "from-apache.md": 1,
    "from-caddy.md": 1,
    "from-thttpd.md": 1,
    "http3.md": 1,
    "install.md": 8,
    "load.md": 2,
    "moving.md": 4,
    "running.md": 1,
    "shared-state.md": 1,
    "troubleshooting.md": 1,
    "watching.md": 2,
}

# What a reader has in /srv before the first example.
FILES = {
    "www/index.html": "<h1>front</h1>\n",
    "www/404.html": "<h1>lost</h1>\n",
    "www/api/index.html": "api\n",
    "www/private/index.html": "private\n",
    "www/static/style.css": "body { margin: 0 }\n",
    "www/files/a.txt": "a\n",
    "files/report.txt": "report\n",
}
DIRECTORIES = ["cgi-bin", "app", "rte", "manual", "acme", "state"]
# Other directories of the machine, which are beneath that of the test as well.
MACHINE = ["run/dunlin", "var/cache", "usr/local/bin"]
MOVED = re.compile(r"(?<![\w.])/(?=(?:srv|run/dunlin|var/cache/dunlin|usr/local)\b)")

# Commands, which are no `text` unless an example prints them.
COMMAND = re.compile(r"(\$|apt|cargo|curl|docker|dunlin|helm|kubectl|packaging/\S+|rustup|sudo|systemctl) ")
# Examples that need the server.
TO_SERVER = re.compile(
    r"(127\.0\.0\.1|localhost|\.example\.com):8080|dunlin (reload|upgrade|top|watch|purge|maintenance)|admin\.sock|--diff$", re.M
)


def pattern(expected):
    """The output that a page shows, as a regular expression."""
    lines = []
    for line in expected.rstrip().splitlines():
        if line.strip() == "…":
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append(".*?".join(map(re.escape, line.split("…"))) + r"[ \t]*\n")
    return "".join(lines)


class Reader:
    """Somebody who tries the examples of a page."""

    def __init__(self, folder, port):
        self.folder, self.port, self.server = folder, port, None
        self.stand_ins, self.copies, self.programs = {}, {}, []
        # Companions do more after the start of the server, and of a program.
        self.has_started = self.has_started_program = lambda: None
        for name, text in FILES.items():
            write(folder / "srv" / name, text)
        for name in DIRECTORIES:
            (folder / "srv" / name).mkdir()
        (folder / "srv" / "app" / "venv").symlink_to(Path(sys.executable).parent.parent)
        write(folder / "public" / "index.html", "<h1>public</h1>\n")
        for name in MACHINE:
            (folder / name).mkdir(parents=True)
        (folder / "usr" / "local" / "bin" / "dunlin").symlink_to(DUNLIN)
        # Otherwise curl shows its progress, as its output is no terminal. The names of the examples lead to this machine.
        names = "".join(f'connect-to = "{name}.example.com::127.0.0.1:"\n' for name in ("www", "a", "b"))
        write(folder / ".curlrc", f"silent\nshow-error\n{names}")
        self.environment = os.environ | {
            "PATH": f"{folder}/usr/local/bin:{os.environ['PATH']}", "HOME": str(folder), "COLUMNS": "100",
            # The compilers of the user who runs the tests.
            **{name: os.environ.get(name, str(Path.home() / tail)) for name, tail in (("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup"))},
        }
        self.environment.pop("CARGO_TARGET_DIR", None)
        self.environment.pop("XDG_DATA_HOME", None)

    def own(self, text):
        """The text of a page with the test's directories and ports, and with what stands in place of other machines."""
        own = {**self.stand_ins, "8080": str(self.port)}
        text = MOVED.sub(f"{self.folder}/", text)
        return re.sub("|".join(map(re.escape, own)), lambda found: own[found[0]], text)

    def shown(self, output):
        """The output as it stands in a page."""
        return output.replace(str(self.folder) + "/srv", "/srv").replace(str(self.folder), "").replace(str(self.port), "8080")

    def configure(self, text, reload):
        """Writes the configuration. A server that is to reload it runs with the one before."""
        if not reload:
            self.stop()
        elif self.server is None:
            self.serve("dunlin serve --config dunlin.toml")
        write(self.folder / "dunlin.toml", self.own(text))

    def serve(self, command):
        """Starts a server, and waits until it prints its address."""
        self.stop()
        # A directory is served at port 8080.
        words = shlex.split(self.own(command))
        if "--config" not in words and "--listen" not in words:
            words += ["--listen", f"127.0.0.1:{self.port}"]
        with open(self.folder / "server.log", "w") as log:
            self.server = subprocess.Popen(
                words, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=log, text=True,
                start_new_session=True,
            )
        line = self.server.stdout.readline()
        assert re.match(rf"https?://\S+:{self.port}/", line), (line, (self.folder / "server.log").read_text())
        self.has_started()

    def start(self, command):
        """Starts a program that runs on: as many times as the page has machines for it."""
        copies = next((number for start, number in self.copies.items() if command.startswith(start)), 1)
        with open(self.folder / "programs.log", "a") as log:
            for _ in range(copies):
                words = shlex.split(self.own(command.removesuffix("&")))
                program = subprocess.Popen(
                    words, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,
                )
                self.programs.append((command, program))
        self.has_started_program()

    def finish(self):
        """Waits for the programs that end by themselves."""
        for command, program in self.programs:
            if not command.endswith("&"):
                status = program.wait(30)
                assert status == 0, f"{command}: status {status}\n{(self.folder / 'programs.log').read_text()}"

    def run(self, text, expected=None):
        """Runs the commands of a block, and compares their output."""
        lines = text.splitlines()
        for command in [line for line in lines if line.startswith("dunlin serve")]:
            self.serve(command)
            lines.remove(command)
        text = "\n".join(lines)
        if self.server is None and TO_SERVER.search(text):
            self.serve("dunlin serve --config dunlin.toml")
        for command in [line for line in lines if line.endswith(" &") or line.startswith("dunlin load --join")]:
            self.start(command)
            lines.remove(command)
        # Ctrl-C ends it with this status.
        text = "\n".join(re.sub("^(dunlin watch .*)", r"timeout --preserve-status -s INT 2 \1 || [ $? = 130 ]", line) for line in lines)
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", self.own(text)],
            cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, text=True, timeout=300,
        )
        output = self.shown(done.stdout)
        # Of a failure, the page shows the message.
        assert done.returncode == 0 or expected, f"{text}\n{output}"
        if expected is not None:
            output = output if output.endswith("\n") or not output else output + "\n"
            assert re.fullmatch(pattern(expected), output), f"{text}\nprints:\n{output}\nand not:\n{expected}"

    def stop_programs(self):
        for _, program in self.programs:
            end_group(program.pid)
            program.wait(20)

    def stop(self):
        if self.server:
            end_group(self.server.pid)
            self.server.wait(20)
            self.server.stdout.close()
            # The processes of an upgrade are not children of the test.
            wait_until(lambda: not is_running(self.server.pid), "the end of the server")
            self.server = None


def is_running(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def end_group(group):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)


@pytest.fixture
def reader(tmp_path):
    # The page has a fixed port, and so has its copy.
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    reader = Reader(tmp_path, port)
    yield reader
    reader.stop_programs()
    reader.stop()


def pairs_of(console):
    """The commands of a `console` block, with what each prints."""
    for part in re.split(r"^\$ ", console, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def is_run(block):
    return block.language in ("sh", "console") and not block.file and not block.not_run


def is_reloaded(later):
    """Whether the first example behind a configuration reloads it, and starts no server."""
    first = next(filter(is_run, later), None)
    return first is not None and re.search(r"\A(\$ )?dunlin (check --diff|reload)", first.text)


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_the_examples_of_a_page_do_what_it_shows(page, reader):
    found = list(blocks(page))
    if not any(map(is_run, found)):
        pytest.skip("no example that can run here")
    with COMPANIONS.get(page.name, contextlib.nullcontext)(reader):
        try:
            for n, block in enumerate(found):
                follow(reader, block, found[n + 1 :])
            reader.finish()
        except AssertionError as error:
            log = reader.folder / "server.log"
            end = log.read_text()[-2000:] if log.exists() else ""
            raise AssertionError(f"{page.name}:{block.line}: {error}\n{end}") from None
        finally:
            reader.stop()


def follow(reader, block, later):
    """Does what a block shows. `later` are the blocks behind it."""
    if block.file:
        write(reader.folder / reader.own(block.file), reader.own(block.text))
    elif block.language == "toml" and "[[listen]]" in block.text and not block.not_run:
        before = (reader.folder / "dunlin.toml").exists()
        reader.configure(block.text, reload=before and is_reloaded(later))
    elif is_run(block) and block.language == "console":
        for command, output in pairs_of(block.text):
            reader.run(command, output)
    elif is_run(block):
        shown = later and later[0].language == "text" and later[0].follows_directly
        reader.run(block.text, later[0].text if shown else None)


def test_all_examples_run_but_those_that_are_listed():
    reasons = [(page.name, block) for page in RUN for block in blocks(page) if block.not_run]
    found = Counter(name for name, _ in reasons)
    assert dict(found) == NOT_RUN, "\n".join(f"{name}:{block.line}: {block.not_run}" for name, block in reasons)
    assert set(COMPANIONS) <= {page.name for page in RUN}
    texts = [(page.name, block) for page in RUN for block in blocks(page) if block.language == "text" and not block.follows_directly]
    hidden = [f"{name}:{block.line}" for name, block in texts if COMMAND.match(block.text)]
    assert not hidden, f"commands have to be in blocks of `sh` or `console`: {hidden}"


def test_a_difference_is_found(reader):
    reader.configure('[[listen]]\naddress = "127.0.0.1:8080"\n[[site]]\nroot = "/srv/www"\n', reload=False)
    curl = "curl -w '%{http_code}\\n' -o /dev/null http://127.0.0.1:8080/none"
    reader.run(curl, "404\n")
    reader.run(f"echo a; echo b; {curl}", "…\n4…\n")
    for wrong in ("200\n", "404\n404\n", ""):
        with pytest.raises(AssertionError):
            reader.run(curl, wrong)
    with pytest.raises(AssertionError):
        reader.run("false")
