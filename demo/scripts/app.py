"""A WSGI application: it is loaded once and handles many requests."""

import itertools
import os

requests = itertools.count(1)


def application(environ, start_response):
    text = f"Process {os.getpid()}: request {next(requests)} since it started, for {environ['PATH_INFO']}.\n"
    start_response("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
    return [text.encode()]
