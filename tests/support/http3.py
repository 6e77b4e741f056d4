"""A client of HTTP/3, by aioquic."""

import asyncio
import contextlib
import ssl

from aioquic.asyncio.client import connect as connect_quic
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamReset


class Response:
    """What has arrived of a response."""

    def __init__(self):
        self.interim, self.status, self.fields, self.body, self.trailers = [], None, {}, bytearray(), None
        self.begun, self.done = asyncio.Event(), asyncio.Event()
        self.reset = None

    def receive(self, fields, has_ended):
        fields = {name.decode(): value.decode("latin-1") for name, value in fields}
        status = int(fields.pop(":status", 0))
        if 100 <= status < 200:
            self.interim.append((status, fields))
        elif self.status is None:
            self.status, self.fields = status, fields
            self.begun.set()
        else:
            self.trailers = fields
        if has_ended:
            self.done.set()


class Client(QuicConnectionProtocol):
    """A connection. `closed` is the error code and the reason once the server has closed it."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.http = H3Connection(self._quic)
        # It would take a response to HEAD, which has the length of the body that it has not, for malformed.
        self.http._check_content_length = lambda stream: None
        self.responses, self.closed, self.gone = {}, None, asyncio.Event()

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            self.closed = event.error_code, event.reason_phrase
            self.gone.set()
            for response in self.responses.values():
                response.begun.set()
                response.done.set()
        if isinstance(event, StreamReset) and event.stream_id in self.responses:
            response = self.responses[event.stream_id]
            response.reset = event.error_code
            response.begun.set()
            response.done.set()
        for received in self.http.handle_event(event):
            response = self.responses.get(getattr(received, "stream_id", None))
            if response is None:
                continue
            if isinstance(received, HeadersReceived):
                response.receive(received.headers, received.stream_ended)
            elif isinstance(received, DataReceived):
                response.body += received.data
                if received.stream_ended:
                    response.done.set()

    def begin(self, path="/", method="GET", fields=(), host="localhost", ends=True):
        """Begins a request. Returns the number of its stream, and its response."""
        stream = self._quic.get_next_available_stream_id()
        head = [(":method", method), (":scheme", "https"), (":authority", host), (":path", path), *fields]
        encoded = [(name.encode(), value.encode("latin-1")) for name, value in head]
        response = self.responses[stream] = Response()
        self.http.send_headers(stream, encoded, end_stream=ends)
        self.transmit()
        return stream, response

    def send(self, stream, data, ends=False):
        self.http.send_data(stream, data, ends)
        self.transmit()

    async def request(self, path="/", method="GET", fields=(), body=None, host="localhost"):
        """Sends a request. Returns its response when it is complete."""
        stream, response = self.begin(path, method, fields, host, ends=body is None)
        if body is not None:
            self.send(stream, body, ends=True)
        await asyncio.wait_for(response.done.wait(), 30)
        return response


def configuration(authority=None, **options):
    made = QuicConfiguration(is_client=True, alpn_protocols=H3_ALPN, server_name="localhost", **options)
    if authority:
        made.load_verify_locations(str(authority))
    else:
        made.verify_mode = ssl.CERT_NONE
    return made


@contextlib.asynccontextmanager
async def connect(server, config=None, **options):
    """A connection to a server of the tests."""
    made = config or configuration()
    async with connect_quic("127.0.0.1", server.port, configuration=made, create_protocol=Client, **options) as client:
        yield client
