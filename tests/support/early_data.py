"""Clients that send TLS 1.3 early data."""

import socket
import subprocess
import threading

from support.waiting import wait_until

CLOSE_WAIT = 8


def early(server, trust, session, request, again=b""):
    """The response to early data of a client that resumes its session; `again` is sent after the handshake."""
    def base(port):
        return ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-servername", "localhost", "-CAfile", trust, "-tls1_3", "-ign_eof"]

    close = request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
    if not session.exists():
        first = b"GET /hello.txt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        done = subprocess.run([*base(server.port), "-sess_out", session], input=first, capture_output=True, timeout=30)
        assert b"Max Early Data: 16384" in done.stdout, done.stdout.decode()
    (session.parent / "early").write_bytes(close)
    resets = []
    port = server.port if again else withholding(server, resets)
    command = [*base(port), "-sess_in", session, "-early_data", session.parent / "early"]
    done = subprocess.run(command, input=again, capture_output=True, timeout=30)
    assert again or wait_until(lambda: resets, "the end of the handshake is handed over")[0] is False
    return done.stdout


def withholding(server, resets):
    """A port that leads to the server, but forwards nothing that a client sends after its early data until the
    server has ended: every response is sent before the end of the handshake. `resets` gets whether the
    server then resets the connection, which could overtake its response."""
    listener = socket.create_server(("127.0.0.1", 0))

    def carry():
        client, _ = listener.accept()
        listener.close()
        upstream = socket.create_connection(server.address)
        closed = threading.Event()

        def back():
            while part := upstream.recv(1 << 16):
                client.sendall(part)
            closed.set()

        threading.Thread(target=back, daemon=True).start()
        waiting, kind = b"", None
        while kind != 0x17:
            waiting += client.recv(1 << 16)
            while len(waiting) >= 5 and len(waiting) >= (end := 5 + int.from_bytes(waiting[3:5], "big")) and kind != 0x17:
                kind = waiting[0]
                upstream.sendall(waiting[:end])
                waiting = waiting[end:]
        closed.wait(20)
        client.shutdown(socket.SHUT_WR)
        while part := waiting or client.recv(1 << 16):
            upstream.sendall(part)
            waiting = b""
            resets.append(upstream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != CLOSE_WAIT)
        client.close()

    threading.Thread(target=carry, daemon=True).start()
    return listener.getsockname()[1]
