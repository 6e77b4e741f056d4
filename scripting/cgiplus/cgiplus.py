"""CGIplus for Python: one process handles many requests. Under plain CGI the same script handles one.

    import cgiplus

    for request in cgiplus.requests():
        request.write("Content-Type: text/plain\n\nhello\n")

Code before the loop runs once.
"""

import os
import sys


class Request:
    """A request: its variables, its body (`read`), and the output of its response (`write`)."""

    def __init__(self, variables, output):
        self.variables = variables
        self._output = output
        length = variables.get("CONTENT_LENGTH", "")
        self._left = int(length) if length.isdigit() else 0

    def read(self, size=-1):
        """Reads `size` bytes of the body, or all remaining ones if negative; returns none at its end."""
        wanted = self._left if size < 0 else min(size, self._left)
        body = sys.stdin.buffer.read(wanted) if wanted else b""
        self._left = 0 if len(body) < wanted else self._left - wanted
        return body

    def write(self, data):
        """Adds text or bytes to the response."""
        self._output.write(data.encode() if isinstance(data, str) else data)

    def flush(self):
        """Sends the output so far."""
        self._output.flush()

    def _skip_body(self):
        while self.read(65536):
            pass


def is_cgiplus():
    """Whether the process may handle more than one request."""
    return bool(os.environ.get("CGIPLUSEOF"))


_stream = None


def _variables_stream():
    global _stream
    if _stream is None:
        _stream = open(os.environ["CGIPLUSIN"], "rb")
    return _stream


def callout(text):
    """Sends a callout to the server. Returns the response, or None for a text without one."""
    output = sys.stdout.buffer
    output.write(os.environb[b"CGIPLUSESC"] + b"\n" + text.encode() + b"\n" + os.environb[b"CGIPLUSEOT"])
    output.flush()
    if text.startswith(("!", "#")):
        return None
    return os.fsdecode(_variables_stream().readline().rstrip(b"\n"))


def use_struct_mode():
    """Enables struct mode from the next request on: variables have lengths, so that they can contain any byte.
    Call it while a request is handled."""
    if is_cgiplus() and "CGIPLUS_VAR_RECORD" not in os.environ:
        callout("!CGIPLUS: struct")


def _records(stream):
    variables = {}
    while (line := stream.readline()) not in (b"\n", b""):
        name, _, value = os.fsdecode(line[:-1]).partition("=")
        variables[name] = value
    return variables


def _structs(stream, size):
    data = stream.read(size)
    variables = {}
    at = 0
    while length := int.from_bytes(data[at : at + 2], "little"):
        name, _, value = os.fsdecode(data[at + 2 : at + 1 + length]).partition("=")
        variables[name] = value
        at += 2 + length
    return variables


def requests():
    """The requests, one after the other. Fetching the next one ends the response to the previous one."""
    output = sys.stdout.buffer
    if not is_cgiplus():
        yield Request(dict(os.environ), output)
        output.flush()
        return
    stream = _variables_stream()
    end = os.environb[b"CGIPLUSEOF"]
    while line := stream.readline():
        if line == b"!\n":
            variables = _records(stream)
        elif line.startswith(b"!!"):
            variables = _structs(stream, int(line[2:]))
        else:
            continue
        request = Request(variables, output)
        yield request
        request._skip_body()
        output.write(end)
        output.flush()
