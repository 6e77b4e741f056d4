"""WebAssembly components, built by the compiler of this machine, once for all tests."""

import fcntl
import shutil
import subprocess
from pathlib import Path

from support.server import ROOT

TARGET = "wasm32-wasip2"
OUT = ROOT / "target" / "components"
# The code of components that a server has compiled, for the tests that do not need it compiled again.
STATE = OUT / "state"
# What is built of `scripting/component`, also by the examples of the book and by `dunlin compare`.
OPERATION = ROOT / "target" / "operation"
SOURCES = ROOT / "tests" / "components"
EXAMPLES = ROOT / "scripting" / "component"


def has_target():
    """Whether the compiler has the standard library for components."""
    if not shutil.which("rustc"):
        return False
    found = subprocess.run(["rustc", "--print", "target-libdir", "--target", TARGET], capture_output=True, text=True)
    return found.returncode == 0 and Path(found.stdout.strip()).is_dir()


def cargo(sources, *options, out=OUT):
    out.mkdir(parents=True, exist_ok=True)
    with open(out / ".lock", "w") as lock:
        # Tests run in several processes.
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = ["cargo", "build", "--release", "--locked", "--quiet", "--target", TARGET, "--target-dir", out, *options]
        subprocess.run(command, check=True, timeout=590, cwd=sources)


def built(name):
    """A component of `tests/components`: `web` (WASI 0.2) or `service` (WASI 0.3)."""
    cargo(SOURCES)
    return OUT / TARGET / "release" / f"{name}.wasm"


def program(path, source):
    """Compiles a CGI program, a file or a text, to the component `path`."""
    if not isinstance(source, Path):
        file = path.with_suffix(".rs")
        file.write_text(source)
        source = file
    command = ["rustc", "-O", "--edition", "2024", "--target", TARGET, "-o", path, source]
    subprocess.run(command, check=True, timeout=240)
    return path


def typed():
    """The operation of `scripting/component` as a component with typed calls."""
    cargo(EXAMPLES, "--lib", out=OPERATION)
    return OPERATION / TARGET / "release" / "echo.wasm"
