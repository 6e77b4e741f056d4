#!/usr/bin/env python3
"""Writes the reference of the statuses that the server itself sends.

    docs/status_codes.py > docs/src/status-codes.md

The phrases, the reasons of rejected messages and those of failed scripts come from the code. The first table explains
statuses; the script fails if the code sends one that the table lacks.
"""

import re

from program import ROOT, sources

PAGE = """# Status codes

The statuses of responses that Dunlin generates itself. Scripts can send others. The access log has 499 for a request
whose client disconnected before anything was sent, and 444 for one whose connection was closed by [`close`](routes.md#closing-the-connection).

| status | sent when |
| --- | --- |
{rows}
[`error_pages`](files.md#error-pages) replaces the pages of errors, except that of a message rejected before its target has been read.

## Rejected messages

A message that breaks the protocol or a limit gets one of these responses. The error log has the reason at level `debug`. With HTTP/2, a malformed
request resets its stream instead.

| status | reason in the log |
| --- | --- |
{messages}
## Failed scripts

| status | what happened |
| --- | --- |
{failures}"""

STATUSES = {
    100: "the client expects `100-continue`, and the server starts to read the body",
    103: "`early_hints`, or a script sends Early Hints",
    200: "a file, a listing, the status page, `respond`",
    201: "[WebDAV](webdav.md) has created a file or a collection",
    204: "OPTIONS for a file; a preflight of [`cors`](access.md#cors-scripts-from-other-origins); WebDAV has changed or removed a file",
    206: "a range of a file",
    207: "WebDAV: properties, or the members of a collection that were not changed",
    301: "a directory without its slash, `/status` and `/app` without theirs; `redirect` with this status",
    302: "`redirect`; also 303, 307",
    304: "the client's copy of a file or listing is current",
    308: "`redirect_https`; `redirect` with this status",
    400: "the message or its path is malformed or ambiguous; a request without TLS to a port with TLS; `redirect_https` without a valid host",
    401: "`auth`: no password or token, or a wrong one",
    403: "`allow`, `deny` and `any`; a link without the signature that [`signed`](access.md#signed-links) needs; a directory without index and listing; a file that may not be opened; a script that is not executable",
    404: "there is no such file, script or object, or no such page of a listing; a hidden or protected file; a path with `%2F` where files are served; an `internal` route; `=404` of `try`",
    405: "`methods`, or a method that files do not support",
    406: "the client accepts no available content coding, not even the file itself",
    408: "head or body did not arrive in time",
    409: "a command on the admin socket failed; WebDAV: the collection of the file does not exist, or no such lock",
    410: "a [signed link](access.md#signed-links) that has expired",
    412: "a condition of the request (`If-Match`, `If-Unmodified-Since`, `If`) is false; WebDAV does not replace a file (`Overwrite: F`)",
    413: "the body is larger than `body_size`",
    414: "the target is longer than `target_size`",
    415: "MKCOL with a body",
    416: "no requested range lies within the file",
    417: "an expectation other than `100-continue`",
    421: "no site has this host, or the TLS handshake did not meet the policy of its site; see [HTTPS](tls.md#several-sites-on-one-listener)",
    422: "a function of a [component](components.md#typed-calls) has returned an error; a configuration to compare has an error",
    423: "WebDAV: a lock prevents the change",
    425: "early data with a request that is not safe, or for a site without `early_data`",
    426: "a WebSocket of a version other than 13, for an [ASGI application](applications.md#websocket)",
    429: "`limit`; too many wrong passwords from an address; configurations are compared too often on the admin socket",
    431: "the head is larger than `head_size` or has more than `fields` headers; variables of a script exceed its protocol",
    500: "a script or application failed; a file cannot be read; too many internal redirects",
    501: "an unknown method for a file; an unsupported transfer coding",
    502: "an upstream of a [proxy](proxy-errors.md) cannot be reached, ends its response too early, or its response is invalid; a script's response is invalid, its worker cannot be reached or was lost; forward authentication failed",
    503: "all connections to the upstreams of a proxy are in use; there are no keys for [tokens](access.md#tokens); `throttle` or the queue of a script is full; [`dunlin maintenance`](running.md) has closed the site; a path with `readiness` while the server [drains](running.md#readiness); an [object store](object-storage.md) does not respond; `spool_size`; [`memory`](limits.md#memory); no descriptor is free; too many password checks or viewers. With `Retry-After`",
    504: "`connect_timeout`, `first_byte_timeout` or `idle_timeout` of a [proxy](proxy-errors.md); `timeout`, `first_byte_timeout` or `idle_timeout` of a script; `time` or `cpu` of a component; a request with `Cache-Control: only-if-cached` for which [no response is stored](response-cache.md)",
    505: "a version of HTTP other than 1.0, 1.1, 2 and 3",
    507: "WebDAV: the file system has no room for the file or its properties, or a tree is too deep or too large",
}

# How the code names a status that it sends.
SENT = [
    r"\b(?:Rejection|RequestError)::new\(\s*(\d{3})\b",
    r"\b(?:error_response|plain_page|Response::new|with_text|reject)\(\s*(\d{3})\b",
    r"\berror_reply\([\w&]+, [\w&.]+, [\w&]+, (\d{3})\b",
    r"\berror\((\d{3})\)",
    r"\bOutcome::(?:of|error)\((\d{3})\b",
    r"\bRequestError \{\s*status: (\d{3}),",
    r"\bSelf::\w+(?:\(_\))? => (\d{3}),",
]


# Crates of programs that are clients.
CLIENTS = {"bench", "cli", "client"}


def code():
    crates = sorted(folder.name for folder in (ROOT / "crates").iterdir() if folder.name not in CLIENTS)
    return list(sources(*crates))


def phrases(files):
    [text] = [text for file, text in files if file.name == "status.rs" and "fn reason(" in text]
    return {int(status): phrase for status, phrase in re.findall(r'^        (\d{3}) => "(.*)",$', text, re.M)}


def sent(files):
    """Every status that the code of the server names as one that it sends."""
    found = {int(status) for _, text in files for form in SENT for status in re.findall(form, text)}
    assert {400, 403, 404, 413, 421, 429, 502, 503, 504} <= found, f"the code has other forms now: {sorted(found)}"
    return found


def messages(files):
    """Status and reason of each error of a request."""
    for _, text in files:
        for status, reason in re.findall(r'RequestError(?:::new\(\s*| \{\s*status: )(\d{3}),\s*(?:reason: )?"([^"]+)"', text):
            yield int(status), reason
        for reason in re.findall(r'RequestError::bad\(\s*"([^"]+)"', text):
            yield 400, reason


def failures(files):
    """Status and meaning of each failure of a script."""
    [text] = [text for file, text in files if "enum Failure {" in text and "fn status(&self)" in text]
    meanings = {}
    for comment, name in re.findall(r"((?:^    ///.*\n)+)    (\w+)[,(]", text, re.M):
        meanings[name] = " ".join(line.strip()[3:].strip() for line in comment.strip().splitlines())
    body = re.search(r"fn status\(&self\).*?match self \{(.*?)\n        \}", text, re.S)[1]
    for names, status in re.findall(r"((?:Self::\w+(?:\([_\w]\))?[\s|]*)+)=> (\d{3}),", body):
        for name in re.findall(r"Self::(\w+)", names):
            yield int(status), meanings[name]


def rows(pairs):
    return "".join(f"| {status} | {text} |\n" for status, text in sorted(set(pairs)))


def page():
    files = code()
    known = phrases(files)
    missing = sent(files) - set(STATUSES)
    assert not missing, f"docs/status_codes.py does not explain {sorted(missing)}"
    first = "".join(f"| {status} {known[status]} | {text} |\n" for status, text in STATUSES.items())
    return PAGE.format(rows=first, messages=rows(messages(files)), failures=rows(failures(files)))


if __name__ == "__main__":
    print(page(), end="")
