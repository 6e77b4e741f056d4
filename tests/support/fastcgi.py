"""PHP's FastCGI worker, and FastCGI records as bytes."""

import shutil
import struct

PHP_CGI = shutil.which("php-cgi")


def php_route(directory, more=""):
    """The settings of a route that one PHP worker serves."""
    return f'script = {{ kind = "fastcgi", command = ["php-cgi"], root = "{directory}", processes = 1, {more} }}'


def record(kind, data=b"", padding=0, request=1):
    return struct.pack(">BBHHBx", 1, kind, request, len(data), padding) + data + bytes(padding)


def end_request(status=0, protocol=0):
    return record(3, struct.pack(">IB3x", status, protocol), 3)
