"""A run-time environment: runs one Python script after the other, named by SCRIPT_FILENAME, for the
web server that has started this process.

Scripts are written as CGI programs. The global variables of a script keep their values until it runs
again in this process or its file changes; loaded modules stay loaded. A script's code is
compiled once for each state of its file.
"""

import importlib.util
import io
import os
import sys
import traceback

END = os.environb[b"CGIPLUSEOF"]
BEGIN_CALLOUT, END_CALLOUT = os.environb[b"CGIPLUSESC"], os.environb[b"CGIPLUSEOT"]


class Body(io.RawIOBase):
    """The request's body: CONTENT_LENGTH bytes of standard input."""

    def __init__(self, length):
        self.left = length

    def readable(self):
        return True

    def readinto(self, buffer):
        data = os.read(0, min(len(buffer), self.left)) if self.left else b""
        self.left = self.left - len(data) if data else 0
        buffer[: len(data)] = data
        return len(data)

    def skip(self):
        while self.left:
            self.readinto(bytearray(65536))


class Output(io.RawIOBase):
    """Standard output until the end of the response; records whether bytes were sent."""

    sent = ended = False

    def writable(self):
        return True

    def write(self, data):
        if self.ended:
            return len(data)
        count = os.write(1, data)
        self.sent = self.sent or count > 0
        return count


class Script:
    """A script in one version of its file."""

    def __init__(self, path, state):
        self.state = state
        with open(path, "rb") as file:
            self.code = compile(file.read(), path, "exec", dont_inherit=True)
        self.names = {"__name__": "__main__", "__file__": path, "__builtins__": __builtins__}


# Maximum length of a report in bytes: a callout is shorter than 64 KiB.
REPORT = 60 * 1024

scripts, reported = {}, 0


def load(path):
    metadata = os.stat(path)
    state = (metadata.st_mtime_ns, metadata.st_size, metadata.st_ino)
    script = scripts.get(path)
    if script is None or script.state != state:
        script = scripts[path] = Script(path, state)
    return script


def run(variables):
    """Handles one request."""
    path = variables[b"SCRIPT_FILENAME"].decode(errors="surrogateescape")
    length = variables.get(b"CONTENT_LENGTH", b"")
    body = Body(int(length) if length.isdigit() else 0)
    output = Output()
    buffer = io.BufferedWriter(output, 65536)
    sys.stdin = io.TextIOWrapper(io.BufferedReader(body, 65536), "utf-8", "surrogateescape")
    sys.stdout = io.TextIOWrapper(buffer, "utf-8", "surrogateescape", write_through=True)
    sys.argv = [path]
    folder = os.path.dirname(path)
    sys.path[0] = folder
    os.chdir(folder)
    for name in [name for name in os.environb if name not in inherited]:
        del os.environb[name]
    for name, value in {**inherited, **variables}.items():
        if os.environb.get(name) != value:
            os.environb[name] = value
    try:
        script = load(path)
        exec(script.code, script.names)
        failed = False
    except SystemExit as end:
        # As with CGI, the client does not get the exit status.
        failed = False
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        traceback.print_exc()
        failed = True
        reason = " ".join(traceback.format_exception_only(type(error), error)[-1].split())
        reason = "".join([char if char.isprintable() else "?" for char in reason])
    if failed and not output.sent:
        # Nothing was sent: the output before the failure is discarded.
        os.write(1, b"Status: 500\nDunlin-Failed: %s\n\n" % (reason[:300].encode("utf-8", "replace") or b"1"))
    elif failed:
        # The response has begun and must not appear complete.
        sys.stderr.flush()
        os._exit(1)
    elif not buffer.closed:
        buffer.flush()
    output.ended = True
    body.skip()
    data = report() + END
    while data:
        data = data[os.write(1, data) :]
    sys.stdin, sys.stdout = sys.__stdin__, sys.__stdout__
    sys.stderr.flush()


def report():
    """A callout with the files of all modules, if they have changed."""
    global reported
    if len(sys.modules) == reported:
        return b""
    reported = len(sys.modules)
    return BEGIN_CALLOUT + b"!LOADED: " + loading.loaded_files(REPORT) + END_CALLOUT


def shared_module():
    """The shared module, which is beside this file."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dunlin_loading.py")
    spec = importlib.util.spec_from_file_location("dunlin_loading", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def structs(data):
    variables = {}
    at = 0
    while length := int.from_bytes(data[at : at + 2], "little"):
        name, _, value = data[at + 2 : at + 1 + length].partition(b"=")
        variables[name] = value
        at += 2 + length
    return variables


def records(stream):
    variables = {}
    while (line := stream.readline()) not in (b"\n", b""):
        name, _, value = line[:-1].partition(b"=")
        variables[name] = value
    return variables


inherited = {
    name: value
    for name, value in os.environb.items()
    if name not in (b"CGIPLUSIN", b"CGIPLUSEOF", b"CGIPLUSESC", b"CGIPLUSEOT")
}


def main():
    stream = open(os.environ["CGIPLUSIN"], "rb")
    # From the second request on, variables can contain any byte.
    os.write(1, BEGIN_CALLOUT + b"!CGIPLUS: struct" + END_CALLOUT)
    while line := stream.readline():
        if line == b"!\n":
            run(records(stream))
        elif line.startswith(b"!!"):
            run(structs(stream.read(int(line[2:]))))


loading = shared_module()
main()
