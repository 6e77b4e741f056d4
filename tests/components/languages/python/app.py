"""A handler of wasi:http 0.2 in Python."""

from componentize_py_types import Ok
from wit_world import exports
from wit_world.imports.types import Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam


class IncomingHandler(exports.IncomingHandler):
    def handle(self, request: IncomingRequest, response_out: ResponseOutparam) -> None:
        response = OutgoingResponse(Fields.from_list([("content-type", b"text/plain")]))
        body = response.body()
        ResponseOutparam.set(response_out, Ok(response))
        with body.write() as stream:
            stream.blocking_write_and_flush(f"hello from Python: {request.path_with_query()}\n".encode())
        OutgoingBody.finish(body, None)
