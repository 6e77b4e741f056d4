"""Files of packages, made from the binary of the tests."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from support.server import DUNLIN, ROOT

PACKAGING = ROOT / "packaging"
BUILD = PACKAGING / "build.sh"
# Directories that configurations of packages and examples name.
DIRECTORIES = ["srv/www", "srv/app", "srv/cgi-bin", "run/dunlin", "var/log/dunlin", "var/lib/dunlin", "usr/share/dunlin/www"]


def build(output, *parts, binary=DUNLIN):
    """Runs the script that builds packages."""
    done = subprocess.run(
        [BUILD, "--binary", binary, *parts], env={**os.environ, "OUT": str(output), "DEB_OPTIONS": "--fast"}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return output


def beneath(folder, text):
    """The text of a configuration whose paths are beneath `folder`."""
    for directory in DIRECTORIES:
        (folder / directory).mkdir(parents=True, exist_ok=True)
    return re.sub(r"(?<![\w./-])/(?=(?:srv|run|var|usr/share/dunlin)\b)", f"{folder}/", text)


def runnable(folder, text):
    """The same with a port that the kernel chooses."""
    return re.sub(r'^address = "[^"]*:\d+"', 'address = "127.0.0.1:0"', beneath(folder, text), flags=re.M)


def stripped(folder):
    """A copy of the binary without debug information, which is small."""
    copy = folder / "dunlin"
    subprocess.run(["strip", "-o", copy, DUNLIN], check=True)
    return copy


def libraries(binary, root):
    """Copies the libraries that a binary is linked with to where it looks for them in `root`."""
    listed = subprocess.run(["ldd", binary], capture_output=True, text=True).stdout
    for library in re.findall(r"(/\S+) \(0x", listed):
        target = root / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)


def configurations():
    """All complete configurations of the project."""
    files = [*ROOT.glob("examples/*.toml"), *PACKAGING.glob("*/dunlin.toml")]
    assert len(files) > 5
    return sorted(Path(file) for file in files)
