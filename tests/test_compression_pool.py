"""Compression on the fly has threads and memory of its own, so that it delays no other work."""

import concurrent.futures
import gzip
import os
import re
import stat
from pathlib import Path

from support.waiting import wait_until

MB = 1 << 20


def text(number, size):
    """Compressible text that differs from every other number's."""
    line = b"".join(b"%d: line %d of text %d, as texts are\n" % (n * n, n, number) for n in range(2000))
    return (line * (size // len(line) + 1))[:size]


def peak_memory(server):
    """The largest resident set so far, in bytes."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def add_script(tmp_path):
    directory = tmp_path / "cgi"
    directory.mkdir()
    script = directory / "hello.sh"
    script.write_text("#!/bin/sh\nprintf 'Content-Type: text/plain\\n\\nhello'\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return directory


def test_a_flood_of_compressions_does_not_delay_other_requests(serve, site, tmp_path):
    contents = [text(number, 8 * MB) for number in range(16)]
    for number, content in enumerate(contents):
        (site / f"{number}.txt").write_bytes(content)
    (site / "list").mkdir()
    directory = add_script(tmp_path)
    server = serve(
        "listing = true",
        server="cache = { size = '32MiB' }",
        more=f"[[site.route]]\npath = '/cgi/*'\nscript = {{ kind = 'cgi', directory = '{directory}' }}\n",
    )
    requests = [(n, coding) for n in range(16) for coding in ("br", "gzip", "zstd")]

    def fetch(request):
        number, coding = request
        status, fields, body = server.get(f"/{number}.txt", f"Accept-Encoding: {coding}")
        assert status == 200 and fields["vary"] == "Accept-Encoding"
        coded = fields.get("content-encoding")
        if coded is None:
            assert body == contents[number]
        elif coded == "gzip":
            assert gzip.decompress(body) == contents[number]
        return coded

    with concurrent.futures.ThreadPoolExecutor(len(requests)) as executor:
        flood = [executor.submit(fetch, request) for request in requests]
        # Scripts and listings are served during the flood.
        for _ in range(5):
            assert b"hello" in server.get("/cgi/hello.sh")[2]
            assert server.get("/list/")[0] == 200
        codings = [future.result() for future in flood]
    assert None in codings, "no request was served the uncompressed form"
    assert peak_memory(server) < 128 * MB


def test_the_compressed_form_follows_a_response_without_it(serve, site):
    """A request that does not wait for compression starts it all the same."""
    cores = len(os.sched_getaffinity(0))
    for number in range(2 * cores + 4):
        (site / f"{number}.txt").write_bytes(text(number, 4 * MB))
    server = serve()

    def coding(number):
        return server.get(f"/{number}.txt", "Accept-Encoding: gzip")[1].get("content-encoding")

    with concurrent.futures.ThreadPoolExecutor(2 * cores + 4) as executor:
        list(executor.map(coding, range(2 * cores + 4)))
    for number in range(2 * cores + 4):
        wait_until(lambda: coding(number) == "gzip", f"the compressed form of {number}.txt", 60)


def test_one_file_is_compressed_once_for_concurrent_requests(serve, site):
    content = text(1, 2 * MB)
    (site / "a.txt").write_bytes(content)
    server = serve()
    assert server.get("/a.txt")[0] == 200

    def tag(_):
        _, fields, body = server.get("/a.txt", "Accept-Encoding: gzip")
        if "content-encoding" not in fields:
            # The compressed form takes long: requests do not wait for it.
            assert body == content
            return None
        assert gzip.decompress(body) == content
        return fields["etag"].removeprefix("W/")

    with concurrent.futures.ThreadPoolExecutor(16) as executor:
        tags = set(executor.map(tag, range(16)))
    wait_until(lambda: tag(0), "the compressed form")
    assert tags - {None} <= {tag(0)}
