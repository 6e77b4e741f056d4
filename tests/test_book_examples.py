"""Runs the shell examples of README and book as a reader does, and compares what they print with the page.

Of each page, the blocks are used from the first to the last, in one scratch directory:

- A `toml` block with a listener becomes `dunlin.toml`. The server starts with it when a later example needs a server.
- A block behind "`NAME`:" becomes that file.
- An `sh` block is run. A `text` block directly behind it is what it prints; `…` stands for any text, a line `…` for any lines.
- A `console` block has commands behind `$ `, each with its output.

`/srv` is a directory of the test, and 8080 a free port. A block that cannot run here has a comment in front of it:
`<!-- not run: REASON -->`.
"""

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.book import PAGES, blocks
from support.files import write
from support.server import DUNLIN
from support.waiting import wait_until

# Their examples have tests of their own.
ELSEWHERE = {"recipes.md"}
RUN = [page for page in PAGES if page.name not in ELSEWHERE]

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
DIRECTORIES = ["cgi-bin", "app", "rte", "manual", "acme"]


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
        for name, text in FILES.items():
            write(folder / "srv" / name, text)
        for name in DIRECTORIES:
            (folder / "srv" / name).mkdir()
        (folder / "srv" / "app" / "venv").symlink_to(Path(sys.executable).parent.parent)
        write(folder / "public" / "index.html", "<h1>public</h1>\n")
        (folder / "bin").mkdir()
        (folder / "bin" / "dunlin").symlink_to(DUNLIN)
        # Otherwise curl shows its progress, as its output is no terminal.
        write(folder / ".curlrc", "silent\nshow-error\n")
        self.environment = os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}", "HOME": str(folder), "COLUMNS": "100"}
        self.environment.pop("XDG_DATA_HOME", None)

    def own(self, text):
        """The text of a page with the test's directory and port."""
        return re.sub(r"(?<![\w.])/srv\b", f"{self.folder}/srv", text).replace("8080", str(self.port))

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

    def run(self, text, expected=None):
        """Runs the commands of a block, and compares their output."""
        lines = text.splitlines()
        for command in [line for line in lines if line.startswith("dunlin serve")]:
            self.serve(command)
            lines.remove(command)
        text = "\n".join(lines)
        if self.server is None and re.search(r"(127\.0\.0\.1|localhost):8080|dunlin (reload|upgrade|top|watch)|--diff$", text, re.M):
            self.serve("dunlin serve --config dunlin.toml")
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", self.own(text)],
            cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, text=True, timeout=60,
        )
        output = self.shown(done.stdout)
        # Of a failure, the page shows the message.
        assert done.returncode == 0 or expected, f"{text}\n{output}"
        if expected is not None:
            output = output if output.endswith("\n") or not output else output + "\n"
            assert re.fullmatch(pattern(expected), output), f"{text}\nprints:\n{output}\nand not:\n{expected}"

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
    for n, block in enumerate(found):
        following = found[n + 1] if n + 1 < len(found) else None
        try:
            if block.file:
                write(reader.folder / reader.own(block.file), reader.own(block.text))
            elif block.language == "toml" and "[[listen]]" in block.text:
                before = (reader.folder / "dunlin.toml").exists()
                reader.configure(block.text, reload=before and is_reloaded(found[n + 1 :]))
            elif is_run(block) and block.language == "console":
                for command, output in pairs_of(block.text):
                    reader.run(command, output)
            elif is_run(block):
                shown = following and following.language == "text" and following.follows_directly
                reader.run(block.text, following.text if shown else None)
        except AssertionError as error:
            raise AssertionError(f"{page.name}:{block.line}: {error}") from None


def test_most_examples_run():
    found = [block for page in RUN for block in blocks(page) if block.language in ("sh", "console") and not block.file]
    ran = [block for block in found if is_run(block)]
    assert len(ran) >= 25 and len(ran) > len(found) / 2, f"{len(ran)} of {len(found)}"


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
