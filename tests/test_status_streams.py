"""Streams of the server's own status are no slow requests."""

import json
import time

import pytest

from support.waiting import wait_until

STATUS = '[[site.route]]\npath = "/status/*"\nstatus = true\n'


@pytest.mark.parametrize("path", ["/status/events", "/status/watch"])
def test_a_stream_of_the_status_counts_in_no_duration(serve, path):
    server = serve(more=STATUS)
    with server.connect() as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")
        # So long that its duration could not be that of another request here.
        time.sleep(2.5)

    def metrics():
        return server.get("/status/metrics")[2].decode().splitlines()

    def requests():
        report = json.loads(server.get("/status/status.json")[2])
        return sum(route["requests"] for route in report["routes"])

    before = requests()
    wait_until(lambda: requests() > before + 1, "requests are counted")
    slow = 0
    for line in metrics():
        if line.startswith("http_server_request_duration_seconds_sum"):
            slow += float(line.split()[-1])
    assert slow < 2
    for line in metrics():
        if line.startswith("dunlin_request_phase_seconds_sum"):
            assert float(line.split()[-1]) < 2, line
