"""Components of other languages than Rust. A function returns None where its toolchain is not installed."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from support.components import OUT, SOURCES
from support.server import ROOT

LANGUAGES = SOURCES / "languages"
WASI_LIBC = Path("/usr/lib/wasm32-wasi/libc.a")
# What ./test installs with npm.
NPM = ROOT / "target" / "npm" / "components" / "node_modules"
JAVASCRIPT = NPM / "@bytecodealliance" / "componentize-js"

HOW_C = "apt install clang-14 lld-14 wasi-libc libclang-rt-14-dev-wasm32"
HOW_PYTHON = ".venv/bin/pip install componentize-py"
HOW_JAVASCRIPT = "componentize-js or Node.js 22 is not here: ./test fetches them with npm"


def component_linker():
    """The linker of Rust's target wasm32-wasip2, which makes a component of a WASI 0.1 module of any compiler."""
    found = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True).stdout.strip()
    return next(Path(found).glob("lib/rustlib/*/bin/wasm-component-ld"), None)


def has_c():
    """Whether C can be compiled to a component."""
    return bool(shutil.which("clang-14") and shutil.which("wasm-ld-14") and WASI_LIBC.exists() and component_linker())


def c_component(source, path):
    """Compiles a CGI program in C to a component."""
    linker = [f"-fuse-ld={component_linker()}", f"-Wl,--wasm-ld-path={shutil.which('wasm-ld-14')}"]
    command = ["clang-14", "--target=wasm32-wasi", "--sysroot=/usr", "-O2", "-s", *linker, "-o", path, source]
    subprocess.run(command, check=True, timeout=120)
    return path


def componentize_py():
    """The command that makes components of programs in Python."""
    beside = Path(sys.executable).parent / "componentize-py"
    return str(beside) if beside.exists() else shutil.which("componentize-py")


def wit(folder, version=None):
    """Writes the WIT of WASI, which the crate wasip2 has, and the world of a handler of HTTP to `folder`."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", "wasm32-wasip2"]
    found = subprocess.run(command, check=True, capture_output=True, cwd=SOURCES, timeout=240)
    crate = next(package for package in json.loads(found.stdout)["packages"] if package["name"] == "wasip2")
    (folder / "deps").mkdir(parents=True, exist_ok=True)
    for file in (Path(crate["manifest_path"]).parent / "wit" / "deps").iterdir():
        text = file.read_text()
        newest = re.search(r"^package .*@(.+);", text, re.M)[1]
        if version:
            text = text.replace(f"@{newest}", f"@{version}")
            text = re.sub(r"since\(version = 0\.2\.1[0-9]\)", f"since(version = {version})", text)
        (folder / "deps" / file.name).write_text(text)
    world = f"package example:hello;\n\nworld hello {{\n    include wasi:http/proxy@{version or newest};\n}}\n"
    (folder / "world.wit").write_text(world)


def kept(name, sources, build):
    """A component that takes long to build: the one of an earlier run, if its sources are older."""
    folder = OUT / name
    made = folder / f"{name}.wasm"
    if not made.exists() or any(source.stat().st_mtime > made.stat().st_mtime for source in sources):
        folder.mkdir(parents=True, exist_ok=True)
        for source in sources:
            shutil.copy(source, folder)
        build(folder, made)
    return made


def python_component():
    """A handler in Python, built in 9 s of processor time."""

    def build(folder, made):
        wit(folder / "wit")
        command = [componentize_py(), "-d", "wit", "-w", "hello", "componentize", "app", "-o", made]
        subprocess.run(command, check=True, capture_output=True, timeout=500, cwd=folder)

    return kept("python", [LANGUAGES / "python" / "app.py"], build)


def node():
    """Node.js 22 or newer: that of the system, or the one that ./test fetches."""
    for program in (shutil.which("node"), *map(str, NPM.glob("node-linux-*/bin/node"))):
        if program:
            found = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
            if int(found.strip().lstrip("v").split(".")[0] or 0) >= 22:
                return program
    return None


def has_javascript():
    """Whether JavaScript can be compiled to a component."""
    return JAVASCRIPT.exists() and node() is not None


def javascript_component():
    """A handler in JavaScript, built in 14 s of processor time."""

    def build(folder, made):
        wit(folder / "wit", "0.2.10")  # StarlingMonkey accepts its own version only
        modules = folder / "node_modules"
        modules.unlink(missing_ok=True)
        modules.symlink_to(JAVASCRIPT.parent.parent)
        subprocess.run([node(), "componentize.mjs"], check=True, capture_output=True, timeout=500, cwd=folder)
        (folder / "hello-js.wasm").rename(made)

    sources = [LANGUAGES / "javascript" / name for name in ("hello.js", "componentize.mjs")]
    return kept("javascript", sources, build)
