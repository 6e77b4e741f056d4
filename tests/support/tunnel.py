"""A client of extended CONNECT (RFC 8441), with the package h2."""

import socket

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, ResponseReceived, StreamEnded, StreamReset

class Connection:
    """A connection of HTTP/2 whose settings are exchanged."""

    def __init__(self, server, timeout=30):
        self.socket = server.connect(timeout)
        self.h2 = H2Connection(H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self.flush()
        self.tunnels = {}
        # Waits for the announcement (RFC 8441 §3).
        while self.h2.remote_settings.enable_connect_protocol != 1:
            self.receive()

    def open(self, path="/chat", *fields, protocol="websocket"):
        """Requests a tunnel."""
        stream = self.h2.get_next_available_stream_id()
        head = [(":method", "CONNECT"), (":protocol", protocol), (":scheme", "http"), (":path", path), (":authority", "example.org")]
        self.h2.send_headers(stream, [*head, ("sec-websocket-version", "13"), *fields])
        self.flush()
        self.tunnels[stream] = tunnel = Tunnel(self, stream)
        return tunnel

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def receive(self):
        """Processes what arrives."""
        data = self.socket.recv(1 << 16)
        assert data, "the connection was closed"
        for event in self.h2.receive_data(data):
            tunnel = self.tunnels.get(getattr(event, "stream_id", None))
            if tunnel:
                tunnel.note(event)
        self.flush()

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Tunnel:
    """A tunnel. `opens_window` is false for a client that does not receive."""

    def __init__(self, connection, stream):
        self.connection, self.stream = connection, stream
        self.status, self.fields = None, {}
        self.data, self.ended, self.reset = bytearray(), False, None
        self.opens_window, self.withheld = True, 0

    def note(self, event):
        h2 = self.connection.h2
        if isinstance(event, ResponseReceived):
            self.fields = dict(event.headers)
            self.status = int(self.fields[":status"])
        elif isinstance(event, DataReceived):
            self.data += event.data
            if self.opens_window and event.flow_controlled_length and not self.ended:
                h2.acknowledge_received_data(event.flow_controlled_length, self.stream)
        elif isinstance(event, StreamEnded):
            self.ended = True
        elif isinstance(event, StreamReset):
            self.reset = event.error_code

    def wait(self, condition):
        while not condition():
            self.connection.receive()

    def head(self):
        """Waits for the response; returns its status."""
        self.wait(lambda: self.status or self.reset is not None)
        return self.status

    def read(self, count):
        """Waits for `count` bytes, and removes them from those received."""
        self.wait(lambda: len(self.data) >= count or self.ended or self.reset is not None)
        assert len(self.data) >= count, (bytes(self.data[:100]), self.ended, self.reset)
        taken = bytes(self.data[:count])
        del self.data[:count]
        return taken

    def read_rest(self):
        self.wait(lambda: self.ended or self.reset is not None)
        return bytes(self.data)

    def send(self, data=b"", end=False):
        """Sends bytes as the windows allow, and receives meanwhile."""
        h2, data = self.connection.h2, memoryview(data)
        while data:
            room = min(h2.local_flow_control_window(self.stream), h2.max_outbound_frame_size)
            if room == 0:
                self.connection.receive()
                continue
            h2.send_data(self.stream, bytes(data[:room]))
            data = data[room:]
            self.connection.flush()
            self.poll()
        if end:
            h2.end_stream(self.stream)
        self.connection.flush()

    def poll(self):
        """Receives what is there."""
        self.connection.socket.settimeout(0)
        try:
            while True:
                self.connection.receive()
        except (BlockingIOError, socket.timeout):
            pass
        finally:
            self.connection.socket.settimeout(30)

    def cancel(self):
        self.connection.h2.reset_stream(self.stream, ErrorCodes.CANCEL)
        self.connection.flush()
