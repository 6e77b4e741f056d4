#!/usr/bin/env python3
"""Prints the request's variables and its body. With ?struct it enables struct mode, with ?callout it
shows the server's response to an unknown callout."""

import cgiplus

for request in cgiplus.requests():
    query = request.variables.get("QUERY_STRING")
    request.write("Content-Type: text/plain\n\n")
    if query == "struct":
        cgiplus.use_struct_mode()
    if query == "callout":
        request.write(f"response={cgiplus.callout('WHAT: is this?')}\n")
    for name, value in request.variables.items():
        request.write(f"{name}={value}\n")
    request.write("\n")
    while part := request.read(65536):
        request.write(part)
