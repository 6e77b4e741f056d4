"""Recipes of the book: configuration and commands of a page, in a directory of a test."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from support.files import wait_until_settled
from support.server import DUNLIN, ROOT, Server

PAGES = ROOT / "docs" / "src" / "recipes"
# Directories of the pages that stand in the directory of the test.
DIRECTORIES = r"(?<![\w./-])/(?=(?:srv|etc/dunlin|var/log|var/lib/dunlin|run/dunlin|run/php)\b)"
# Ends the output of a command; no command prints it.
END = "\x1e"


class Recipe:
    """A page whose paths are beneath `folder`, and whose ports the kernel chooses.

    `fixed` has ports that are chosen by the test, `shown` texts of the page that stand for others, and `known` parts of
    warnings that the page has not.
    """

    def __init__(self, name, folder):
        self.folder, self.servers, self.server, self.ports = folder, [], None, {}
        self.companions, self.fixed, self.shown, self.known = [], {}, {}, ["scripts run as root"]
        self.blocks = re.findall(r"^```(\w+)\n(.*?)^```", (PAGES / f"{name}.md").read_text(), re.S | re.M)
        self.srv, self.etc = folder / "srv", folder / "etc" / "dunlin"
        self.home, self.programs = folder / "home", folder / "programs"
        for directory in ("srv/www", "etc/dunlin", "var/log/dunlin", "var/lib/dunlin", "run/dunlin", "run/php", "home", "programs"):
            (folder / directory).mkdir(parents=True)
        (self.programs / "dunlin").symlink_to(DUNLIN)
        self.write_client_settings()

    def beneath(self, text):
        """A text of the page whose paths are those of the test."""
        for old, new in self.shown.items():
            text = text.replace(old, new)
        return re.sub(DIRECTORIES, f"{self.folder}/", text)

    def block(self, language, number=0):
        """A code block of the page."""
        return self.beneath([text for kind, text in self.blocks if kind == language][number])

    def venv(self, directory):
        """Makes the virtual environment of the tests that of an application."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "venv").symlink_to(Path(sys.executable).parent.parent)

    def configure(self, number=0, replace=()):
        """Writes the configuration of the page."""
        text = self.block("toml", number)
        for old, new in dict(replace).items():
            assert old in text, old
            text = text.replace(old, str(new))
        self.addresses = re.findall(r'^address = "[^"]*:(\d+)"', text, re.M)
        text = re.sub(r'^address = "[^"]*:(\d+)"', lambda found: f'address = "127.0.0.1:{self.fixed.get(found[1], 0)}"', text, flags=re.M)
        (self.etc / "dunlin.toml").write_text(text)

    def check(self):
        """Asserts that the configuration has neither errors nor warnings, but for the user of the tests and `known`."""
        done = subprocess.run([DUNLIN, "check"], cwd=self.etc, capture_output=True, text=True, timeout=20)
        warnings = [line for line in done.stderr.splitlines() if not any(known in line for known in self.known)]
        assert done.returncode == 0 and not warnings, done.stderr

    def start(self, number=0, replace=()):
        """Starts a server with the configuration of the page; curl and git connect to its ports."""
        self.configure(number, replace)
        self.check()
        self.server = Server(["--config", str(self.etc / "dunlin.toml")], self.etc)
        self.servers.append(self.server)
        actual = [self.server.port]
        while len(actual) < len(self.addresses):
            actual.append(int(self.server.process.stdout.readline().decode().rsplit(":", 1)[1].strip("/\n")))
        self.ports = dict(zip(self.addresses, actual))
        self.write_client_settings()
        wait_until_settled()
        return self.server

    def write_client_settings(self, *more):
        """The settings with which curl and git find the ports of the server for the URLs of the page."""
        lines = ["silent", "show-error", *more]
        lines += [f'connect-to = ":{stated}:127.0.0.1:{actual}"' for stated, actual in self.ports.items()]
        (self.home / ".curlrc").write_text("\n".join(lines) + "\n")
        port = self.ports.get("80")
        (self.home / ".gitconfig").write_text(
            "[user]\nname = Ann\nemail = ann@example.com\n[credential]\nhelper = store\n[advice]\ndetachedHead = false\n"
            f'[url "http://127.0.0.1:{port}/"]\ninsteadOf = http://git.example.com/\n'
            "[http]\nextraHeader = Host: git.example.com\n"
        )

    def run(self, commands):
        """Runs commands in one shell, in the directory of the configuration: the output of each."""
        script = "".join(f"{command}\nprintf '{END}'\n" for command in commands)
        done = subprocess.run(
            ["bash", "-c", f"exec 2>&1\n{script}"], cwd=self.etc, capture_output=True, timeout=60,
            env={**os.environ, "HOME": str(self.home), "CURL_HOME": str(self.home), "PATH": f"{self.programs}:{os.environ['PATH']}:/usr/sbin", "LC_ALL": "C.UTF-8"},
        )
        assert done.returncode == 0, done
        lines = done.stdout.decode().replace("\r", "").splitlines(keepends=True)
        return "".join(line for line in lines if not any(known in line for known in self.known)).split(END)[:-1]

    def follow(self, number=None):
        """Runs the commands of the page's transcripts, or of one, and compares their output."""
        transcripts = self.transcripts()
        assert transcripts, "the page has no transcript"
        for text in transcripts if number is None else [transcripts[number]]:
            steps = transcript(self.beneath(text))
            for (command, wanted), output in zip(steps, self.run(command for command, _ in steps), strict=True):
                assert matches(wanted, output), self.difference(command, wanted, output)

    def transcripts(self):
        return [text for kind, text in self.blocks if kind == "console"]

    def difference(self, command, wanted, output):
        lines = "\n".join(wanted)
        return f"$ {command}\n{output}\nexpected:\n{lines}\n{self.server and self.server.log}"

    def companion(self, *command):
        """Starts another program, which runs as long as the test."""
        log = (self.folder / "companions.log").open("a")
        program = shutil.which(command[0], path=f"{os.environ['PATH']}:/usr/sbin")
        assert program, f"{command[0]} is missing"
        self.companions.append(subprocess.Popen([program, *command[1:]], stdout=log, stderr=log))
        return self.companions[-1]

    def stop(self):
        for process in self.companions:
            process.kill()
            process.wait()
        for server in self.servers:
            server.stop()
            assert "panicked" not in server.log, server.log


def transcript(text):
    """The commands of a transcript and the lines that each prints."""
    steps = []
    for line in text.splitlines():
        if line.startswith("$ "):
            steps.append([line[2:], []])
        elif steps[-1][0].endswith("\\") and not steps[-1][1]:
            steps[-1][0] += "\n" + line
        else:
            steps[-1][1].append(line)
    return steps


def matches(wanted, output):
    """Whether output is as a page shows it, where `…` stands for a part of a line, or alone for any lines."""
    pattern = ""
    for line in wanted:
        pattern += r"(?:.*\n)*?" if line == "…" else ".*".join(map(re.escape, line.split("…"))) + r"\n"
    return re.fullmatch(pattern, output if output.endswith("\n") or not output else output + "\n") is not None
