"""A WSGI application: it is loaded once and then asked many times."""

import itertools
import os

asked = itertools.count(1)


def application(environ, start_response):
    text = f"Process {os.getpid()} has been asked {next(asked)} times, this time for {environ['PATH_INFO']}.\n"
    start_response("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
    return [text.encode()]
