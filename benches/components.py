"""The row of components: Dunlin against `wasmtime serve`, warm CGI, FastCGI and CGIplus, and files beside a component that spins.

The server has processor 0, the load generator processor 1. `wasmtime` comes from PATH or from the environment variable WASMTIME."""

import http.client
import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import servers

ROWS = ["component"]
SOURCES = Path(__file__).resolve().parent.parent / "scripting" / "component"
HANDLERS = Path(__file__).resolve().parent.parent / "tests" / "components"
# The payload of the report of 1996: 542 bytes as a form.
PAYLOAD = "a" * 534


class Wasmtime(servers.Server):
    """`wasmtime serve`, with the interfaces that the Rust standard library needs."""

    name = "wasmtime serve"
    program = os.environ.get("WASMTIME") or shutil.which("wasmtime") or "wasmtime"

    @classmethod
    def version(cls):
        if not shutil.which(cls.program):
            return "not installed"
        return subprocess.run([cls.program, "--version"], capture_output=True, text=True).stdout.strip()

    def command(self):
        options = ["-Scli", "-Shttp", *self.variant.get("options", [])]
        return [self.program, "serve", *options, "--addr", f"127.0.0.1:{self.port}", self.variant["component"]]


servers.ALL[Wasmtime.name] = Wasmtime


class Rows:
    """The row, for `Bench`."""

    def component(self):
        folder = self.component_programs()
        self.handlers(folder)
        self.one_program(folder)
        self.spinning(folder)

    def component_programs(self):
        """Builds the components and the programs that they are compared with."""
        folder = self.folder / "components"
        folder.mkdir()
        cargo = ["cargo", "build", "--release", "--locked", "--quiet", "--target", "wasm32-wasip2"]
        for sources, options, names in ((HANDLERS, [], ("web", "service")), (SOURCES, ["--lib"], ("echo",))):
            target = Path("target/components").absolute()
            subprocess.run([*cargo, *options, "--target-dir", target], check=True, cwd=sources)
            for name in names:
                shutil.copy(target / "wasm32-wasip2" / "release" / f"{name}.wasm", folder)
        for kind, options in (("cgi.wasm", ["--target", "wasm32-wasip2"]), ("cgi", []), ("fastcgi", []), ("cgiplus", [])):
            source = SOURCES / f"{kind.removesuffix('.wasm')}.rs"
            place = folder / kind if kind.endswith(".wasm") else folder / kind / "operation"
            place.parent.mkdir(exist_ok=True)
            subprocess.run(["rustc", "-O", "--edition", "2024", *options, "-o", place, source], check=True)
        return folder

    def linked(self, component, more=""):
        state = f'state = "{self.folder}/state"'
        return ("dunlin", {"server": state, "script": f'kind = "component", file = "{component}"{more}'})

    def handlers(self, folder):
        """A handler of WASI 0.2 with a fresh instance, and one of 0.3 that is kept, against `wasmtime serve`."""
        kinds = {
            "0.2, fresh": ("web", "", ["-Wmax-wasm-stack=524288"], 0.5),
            "0.3, kept": ("service", ", reuse = 128", [], 0.7),
        }
        for what, (name, more, options, target) in kinds.items():
            file = folder / f"{name}.wasm"
            variants = {"dunlin": self.linked(file, more), Wasmtime.name: (Wasmtime.name, {"component": file, "options": options})}
            path = lambda server: "/s/hello" if server.name == "dunlin" else "/hello"
            r = self.hello(f"component, {what}: hello, 32 connections", variants, path)
            ratio = r["dunlin"]["cpu_us"] / r[Wasmtime.name]["cpu_us"] if Wasmtime.name in r else None
            if ratio:
                self.assess(f"CPU of a component, {what}, against wasmtime serve", ratio, ratio <= target, f"≤ {target:.2f}")

    def hello(self, title, variants, path):
        def check(label, server):
            if server.get(path(server)) != (200, b"Hello\n"):
                raise RuntimeError(f"{label} sends a wrong response")

        return self.compete(title, variants, check, lambda _, server: self.wrk(server, path(server), 32))

    def one_program(self, folder):
        """The operation of the report of 1996, in each of its forms; the processor time is that of processor 0, with all processes."""
        form, call = self.post_scripts()
        own = lambda kind, more: ("dunlin", {"script": f'kind = "{kind}", {more}'})
        kinds = {
            "component, fresh": (self.linked(folder / "cgi.wasm"), "/s/x", form),
            "warm CGI": (own("warm", f'directory = "{folder}/cgi"'), "/s/operation", form),
            "FastCGI": (own("fastcgi", f'command = ["{folder}/fastcgi/operation"], processes = 1'), "/s/x", form),
            "CGIplus": (own("cgiplus", f'directory = "{folder}/cgiplus", processes = 1'), "/s/operation", form),
            "handler of WASI 0.2, kept": (self.linked(folder / "web.wasm", ", reuse = 128"), "/s/hello", None),
            "typed call, fresh": (self.linked(folder / "echo.wasm"), "/s/echo/echo", call),
            "typed call, kept": (self.linked(folder / "echo.wasm", ", reuse = 128"), "/s/echo/echo", call),
        }
        variants = {name: variant for name, (variant, _, _) in kinds.items()}

        def check(label, server):
            _, path, script = kinds[label]
            if script and PAYLOAD.encode() not in self.posted(server, path, script is call):
                raise RuntimeError(f"{label} sends a wrong response")

        run = lambda label, server: self.wrk(server, kinds[label][1], 16, script=kinds[label][2], cpu=servers.core_time)
        r = self.compete("one operation, 542 bytes, 16 connections", variants, check, run)
        for what, against, target in (
            ("component, fresh", "warm CGI", 0.25),
            ("component, fresh", "FastCGI", 1.0),
            ("handler of WASI 0.2, kept", "FastCGI", 0.5),
            ("typed call, fresh", "CGIplus", 0.5),
            ("typed call, kept", "CGIplus", 0.5),
        ):
            if what in r and against in r:
                ratio = r[what]["cpu_us"] / r[against]["cpu_us"]
                self.assess(f"CPU, {what}, against {against}", ratio, ratio <= target, f"≤ {target:.2f}")

    def post_scripts(self):
        """Scripts that have wrk send the payload: as a form, and as JSON."""
        form, call = self.folder / "form.lua", self.folder / "call.lua"
        form.write_text(f'wrk.method = "POST"\nwrk.body = "payload={PAYLOAD}"\n')
        call.write_text(
            f'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/json"\nwrk.body = \'{json.dumps({"payload": PAYLOAD})}\'\n'
        )
        return form, call

    def posted(self, server, path, is_json):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        body = json.dumps({"payload": PAYLOAD}) if is_json else f"payload={PAYLOAD}"
        connection.request("POST", path, body, {"Content-Type": "application/json"} if is_json else {})
        response = connection.getresponse().read()
        connection.close()
        return response

    def spinning(self, folder):
        """Files beside a component that spins on the only worker: throughput, and the longest time without a response."""
        server = self.start("dunlin", **{**self.linked(folder / "web.wasm", ', cpu = "1h", time = "1h"')[1]})
        try:
            alone = self.rounds({"alone": server}, lambda _, server: self.wrk(server, "/1k.bin", 32))["alone"]
            with socket.create_connection(("127.0.0.1", server.port)) as spinning:
                spinning.sendall(b"GET /s/spin HTTP/1.1\r\nHost: x\r\n\r\n")
                time.sleep(0.1)
                beside = self.rounds({"beside": server}, lambda _, server: self.wrk(server, "/1k.bin", 32))["beside"]
                longest = self.longest(server)
        finally:
            server.stop()
        self.table("1 KB, 32 connections, one worker", {"alone": alone, "beside a component that spins": beside})
        ratio = beside["rate"] / alone["rate"]
        self.assess("requests/s beside a component that spins", ratio, ratio >= 0.5, "≥ 0.5")
        self.assess("longest response time beside it, ms, of the best of 5 runs", longest, longest <= 5, "≤ 5")

    def longest(self, server):
        """The longest time of 500 responses in milliseconds, in the run that was disturbed least."""
        runs = []
        own = os.sched_getaffinity(0)
        # As the load generator: on the server's processor, this process would wait for the component, too.
        os.sched_setaffinity(0, {1})
        for _ in range(5):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
            slowest = 0
            for _ in range(500):
                began = time.perf_counter()
                connection.request("GET", "/1k.bin")
                connection.getresponse().read()
                slowest = max(slowest, time.perf_counter() - began)
            connection.close()
            runs.append(slowest * 1000)
        os.sched_setaffinity(0, own)
        return min(runs)
