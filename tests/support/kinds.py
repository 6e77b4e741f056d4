"""One small program for every kind of script. The query string selects what it does:

`hello` responds with text, `total` with CONTENT_LENGTH and the length and SHA-256 of the request body,
`mask` with the blocked and the ignored signals of its process, `long` with 6,000 bytes, `status=NNN` with that status and a body.
"""

import hashlib
import socket
import struct

from support.scripts import script
from support.stub import StubServer

KINDS = ["cgi", "warm", "rte", "cgiplus", "fastcgi", "scgi", "uwsgi", "wsgi", "asgi", "psgi"]
# The kinds whose processes the server starts.
STARTED = [kind for kind in KINDS if kind not in ("scgi", "uwsgi")]

RESPOND = '''
import hashlib
def respond(query, length, read):
    """Status and body; `read` returns the next bytes of the request body."""
    if query == "mask":
        lines = [line for line in open("/proc/self/status") if line.startswith(("SigBlk", "SigIgn"))]
        return "200 OK", "".join(lines).encode()
    if query == "total":
        digest, count = hashlib.sha256(), 0
        while part := read(65536):
            digest.update(part)
            count += len(part)
        return "200 OK", f"{length} {count} {digest.hexdigest()}".encode()
    if query == "long":
        return "200 OK", b"hello " * 1000
    if query.startswith("status="):
        return query[7:] + " Some", b"hello"
    return "200 OK", b"hello"
'''

CGI = f'''#!/usr/bin/python3
import os, sys
{RESPOND}
status, body = respond(os.environ.get("QUERY_STRING", ""), os.environ.get("CONTENT_LENGTH"), sys.stdin.buffer.read)
sys.stdout.buffer.write(f"Status: {{status}}\\nContent-Type: text/plain\\n\\n".encode() + body)
sys.stdout.flush()
'''

CGIPLUS = f'''#!/usr/bin/python3
import os, sys
{RESPOND}
out, end, variables = sys.stdout.buffer, os.environb[b"CGIPLUSEOF"], {{}}
for line in open(os.environ["CGIPLUSIN"]):
    if line == "!\\n":
        variables = {{}}
    elif line != "\\n":
        name, _, value = line.rstrip("\\n").partition("=")
        variables[name] = value
    else:
        left = int(variables.get("CONTENT_LENGTH") or 0)
        def read(size):
            global left
            part = os.read(0, min(size, left)) if left else b""
            left -= len(part)
            return part
        status, body = respond(variables.get("QUERY_STRING", ""), variables.get("CONTENT_LENGTH"), read)
        out.write(f"Status: {{status}}\\nContent-Type: text/plain\\n\\n".encode() + body)
        out.flush()
        out.write(end)
        out.flush()
'''

WSGI = f'''
{RESPOND}
def application(environ, start_response):
    status, body = respond(environ["QUERY_STRING"], environ.get("CONTENT_LENGTH"), environ["wsgi.input"].read)
    start_response(status, [("Content-Type", "text/plain")])
    return [body]
'''

ASGI = f'''
{RESPOND}
async def application(scope, receive, send):
    if scope["type"] != "http":
        return
    query, parts = scope["query_string"].decode(), []
    if query == "total":
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                break
    length = dict(scope["headers"]).get(b"content-length")
    rest = [b"".join(parts)]
    status, body = respond(query, length and length.decode(), lambda size: rest.pop() if rest else b"")
    await send({{"type": "http.response.start", "status": int(status[:3]), "headers": [(b"content-type", b"text/plain")]}})
    await send({{"type": "http.response.body", "body": body}})
'''

PSGI = r'''
use strict;
use warnings;
use Digest::SHA ();
sub {
    my ($env) = @_;
    my ($query, $status, $body) = ($env->{QUERY_STRING}, 200, 'hello');
    if ($query eq 'mask') {
        open my $file, '<', '/proc/self/status' or die $!;
        $body = join '', grep { /^Sig(Blk|Ign)/ } <$file>;
    } elsif ($query eq 'total') {
        my ($digest, $count, $part) = (Digest::SHA->new(256), 0, '');
        while (my $read = $env->{'psgi.input'}->read($part, 65536)) { $digest->add($part); $count += $read }
        $body = join ' ', $env->{CONTENT_LENGTH} // 'None', $count, $digest->hexdigest;
    } elsif ($query eq 'long') {
        $body = 'hello ' x 1000;
    } elsif ($query =~ /^status=(\d+)/) {
        $status = $1;
    }
    return [$status, ['Content-Type' => 'text/plain'], [$body]];
};
'''

PHP = r'''<?php
$query = $_SERVER['QUERY_STRING'];
header('Content-Type: text/plain');
if ($query === 'mask') {
    echo implode('', preg_grep('/^Sig(Blk|Ign)/', file('/proc/self/status')));
} elseif ($query === 'total') {
    $hash = hash_init('sha256');
    $in = fopen('php://input', 'r');
    $count = 0;
    while (($part = fread($in, 65536)) !== false && $part !== '') { hash_update($hash, $part); $count += strlen($part); }
    echo $_SERVER['CONTENT_LENGTH'] ?? 'None', ' ', $count, ' ', hash_final($hash);
} elseif ($query === 'long') {
    echo str_repeat('hello ', 1000);
} elseif (str_starts_with($query, 'status=')) {
    http_response_code((int)substr($query, 7));
    echo 'hello';
} else {
    echo 'hello';
}
'''


class Worker(StubServer):
    """An SCGI or uWSGI server for any number of concurrent connections."""

    def __init__(self, path, kind):
        self.kind = kind
        self.respond = {}
        exec(RESPOND, self.respond)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(256)
        super().__init__(listener)

    def variables(self, stream):
        if self.kind == "uwsgi":
            _, size, _ = struct.unpack("<BHB", stream.read(4))
            data, found = stream.read(size), []
            while data:
                length = struct.unpack("<H", data[:2])[0]
                found.append(data[2 : 2 + length].decode("latin-1"))
                data = data[2 + length :]
            return dict(zip(found[::2], found[1::2]))
        size = b""
        while not size.endswith(b":"):
            byte = stream.read(1)
            if not byte:
                return {}
            size += byte
        parts = stream.read(int(size[:-1])).decode("latin-1").split("\0")
        stream.read(1)
        return dict(zip(parts[:-1:2], parts[1::2]))

    def serve(self, connection):
        with connection, connection.makefile("rb") as stream:
            variables = self.variables(stream)
            if not variables:
                return
            left = [int(variables.get("CONTENT_LENGTH") or 0)]

            def read(size):
                part = stream.read(min(size, left[0]))
                left[0] -= len(part)
                return part

            length = variables.get("CONTENT_LENGTH")
            status, body = self.respond["respond"](variables.get("QUERY_STRING", ""), length, read)
            connection.sendall(f"Status: {status}\nContent-Type: text/plain\n\n".encode() + body)


def expected(body, length="same"):
    """The response of `total` to this body."""
    length = len(body) if length == "same" else length
    return f"{length} {len(body)} {hashlib.sha256(body).hexdigest()}".encode()


class Programs:
    """The programs in a directory, and the routes of a configuration that run them."""

    def __init__(self, directory):
        self.directory = directory
        directory.mkdir()
        for kind in ("cgi", "warm", "rte"):
            script(directory / kind, "run.py", CGI)
        script(directory / "cgiplus", "run.py", CGIPLUS)
        (directory / "wsgi_app.py").write_text(WSGI)
        (directory / "asgi_app.py").write_text(ASGI)
        (directory / "app.psgi").write_text(PSGI)
        (directory / "php/fastcgi").mkdir(parents=True)
        (directory / "php/fastcgi/run.php").write_text(PHP)
        self.workers = {}

    def path(self, kind):
        """The path of the program of that kind."""
        if kind == "fastcgi":
            return "/fastcgi/run.php"
        return f"/{kind}/run.py" if kind in ("cgi", "warm", "rte", "cgiplus") else f"/{kind}/run"

    def route(self, kind, settings="", route=""):
        """One route; `settings` are added to its `script`, `route` to the route."""
        own = f'kind = "{kind}"'
        if kind in ("cgi", "warm", "rte", "cgiplus"):
            own += f', directory = "{self.directory}/{kind}"'
        elif kind == "wsgi":
            own += f', application = "wsgi_app:application", directory = "{self.directory}"'
        elif kind == "asgi":
            own += f', application = "asgi_app:application", directory = "{self.directory}"'
        elif kind == "psgi":
            own += f', application = "app.psgi", directory = "{self.directory}"'
        elif kind == "fastcgi":
            own += f', command = ["php-cgi"], root = "{self.directory}/php"'
        else:
            socket_path = self.directory / f"{kind}.sock"
            if kind not in self.workers:
                self.workers[kind] = Worker(socket_path, kind)
            own += f', connect = ["unix:{socket_path}"]'
        settings = f", {settings}" if settings else ""
        return f'[[site.route]]\npath = "/{kind}/*"\n{route}\nscript = {{ {own}{settings} }}\n'
