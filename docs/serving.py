"""A server for pages that show what a running one reports."""

import contextlib
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from program import dunlin

SITE = '[[listen]]\naddress = "127.0.0.1:0"\n[[site]]\nroot = "."\n'


@contextlib.contextmanager
def serving(folder, server="", routes=""):
    """A server with a configuration in `folder`: its URL. It has ended after the block."""
    file = Path(folder) / "dunlin.toml"
    file.write_text(f"{server}{SITE}{routes}")
    process = subprocess.Popen(
        [dunlin(), "serve", "--config", file], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield re.match(r"\S+", process.stdout.readline())[0].rstrip("/")
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def get(server, path):
    """The body of a response, whatever its status."""
    try:
        with urllib.request.urlopen(server + path, timeout=20) as response:
            return response.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()
