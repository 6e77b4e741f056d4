"""Servers that drop privileges, and a script that tries to use them."""

import os
import pwd
import re
import shutil
import signal
import tempfile

import pytest

from support.files import write
from support.server import Server


@pytest.fixture
def place(tmp_path):
    """Directories that another user can reach, which pytest's own are not."""
    # Not beneath /tmp, which every server may use.
    folders = [folder for folder in ("/srv", os.path.expanduser("~")) if os.access(folder, os.W_OK)]
    directory = tempfile.mkdtemp(prefix="dunlin-test-", dir=folders[0] if folders else None)
    os.chmod(directory, 0o755)
    yield type(tmp_path)(directory)
    shutil.rmtree(directory)
    shutil.rmtree(directory + "-outside", ignore_errors=True)


@pytest.fixture
def begin(tmp_path):
    """Starts a server with a configuration file in place; `preexec` runs in its process before."""
    running = []

    def start(file, preexec=None):
        running.append(Server(["--config", str(file)], tmp_path, preexec))
        return running[-1]

    yield start
    for server in running:
        server.stop(signal.SIGKILL)


def configuration(place, server, outside):
    write(place / "site" / "a", "x" * 1000)
    script = write(place / "cgi" / "probe", PROBE)
    script.chmod(0o755)
    (place / "log").mkdir(exist_ok=True)
    env = f'env = {{ PROBE_FILE = "{outside}/secret", PROBE_DIR = "{outside}" }}'
    return f"""
[server]
threads = 2
admin = "{place}/admin.sock"
access_log = "{place}/log/access.log"
{server}
[[listen]]
address = "127.0.0.1:0"
[[site]]
root = "{place}/site"
[[site.route]]
path = "/cgi/*"
script = {{ kind = "cgi", directory = "{place}/cgi", {env} }}
[[site.route]]
path = "/link/*"
symlinks = "follow"
"""


def without_scripts(place, server):
    """A configuration without programs to start, in a directory that an ordinary user can access."""
    text = configuration(place, server, place)
    text = re.sub(r'\[\[site.route\]\]\npath = "/cgi/\*"\nscript = .*\n', "", text)
    for path in [place, place / "log", place / "site", place / "site" / "a"]:
        if os.geteuid() == 0:
            os.chown(path, pwd.getpwnam("nobody").pw_uid, -1)
    file = place / "dunlin.toml"
    file.write_text(text)
    os.chmod(file, 0o644)
    return file


def outside_of(place):
    # Beside the configuration's own folder, which may be used.
    directory = place.with_name(place.name + "-outside")
    write(directory / "secret", "secret")
    os.chmod(directory, 0o777)
    return directory


# Prints the restricted actions that succeed.
PROBE = """#!/bin/sh
echo "Content-Type: text/plain"
echo
echo "user=$(id -u) group=$(id -g) groups=$(id -G)"
grep NoNewPrivs /proc/self/status
for file in /etc/shadow "$PROBE_FILE"; do cat "$file" >/dev/null 2>&1 && echo "read $file"; done
echo x 2>/dev/null >"$PROBE_DIR/written" && echo "wrote $PROBE_DIR"
mount -t tmpfs none /mnt 2>/dev/null && echo "mounted"
python3 - <<END
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print("ptrace", libc.ptrace(0, 0, 0, 0), ctypes.get_errno())
END
echo done
"""
