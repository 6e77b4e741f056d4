"""Certificates, and servers and clients with TLS."""

import socket
import ssl
import subprocess

import pytest

from support.files import write
from support.http import read_response


@pytest.fixture
def tls(tmp_path, serve, site):
    """Starts a server with TLS: `tls(extra keys of tls, sites=more TOML)`; it has the first certificate."""
    own = certificate(tmp_path, "own")
    write(site / "hello.txt", b"hello\n")

    def start(keys="", more="", route="", server="", pair=own):
        routes = f'[[site.route]]\npath = "/*"\n{route}\n' if route else ""
        return serve(
            text=f'[server]\nthreads = 1\n{server}\n[[listen]]\naddress = "127.0.0.1:0"\ntls = true\n'
            f'[[site]]\nroot = "{site}"\ntls = {{ certificate = ["{pair[0]}"], key = ["{pair[1]}"], {keys} }}\n'
            f"{routes}{more}\n"
        )

    start.own = own
    start.folder = tmp_path
    return start


def certificate(folder, name, hosts=("localhost",), kind="ec", issuer=None, days=30):
    """A key and a certificate, signed by itself or by `issuer`: the paths of both."""
    key, file = folder / f"{name}.key", folder / f"{name}.pem"
    algorithm = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"] if kind == "ec" else ["rsa:2048"]
    names = ",".join(f"DNS:{host}" for host in hosts) + ",IP:127.0.0.1"
    signed = ["-CA", issuer[0], "-CAkey", issuer[1]] if issuer else []
    openssl(
        "req", "-x509", "-newkey", *algorithm, "-nodes", "-keyout", key, "-out", file, "-days", days,
        "-subj", f"/CN={name}", "-addext", f"subjectAltName={names}",
        "-addext", f"basicConstraints=critical,CA:{'FALSE' if issuer else 'TRUE'}", *signed,
    )
    return file, key


def certificate_of_version_1(folder, name):
    """A key and a certificate as old instructions make them, without extensions: the paths of both."""
    key, file = folder / f"{name}.key", folder / f"{name}.pem"
    settings = folder / "version1.cnf"
    settings.write_text("[req]\ndistinguished_name = name\n[name]\n")
    openssl("req", "-x509", "-config", settings, "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", file, "-days", 30, "-subj", f"/CN={name}")
    assert "Version: 1 " in openssl("x509", "-in", file, "-noout", "-text")
    return file, key


def openssl(*arguments, **options):
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, timeout=60, **options)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def context(authority, version=None, client=None):
    made = ssl.create_default_context(cafile=str(authority))
    if version:
        made.minimum_version = made.maximum_version = version
    if client:
        made.load_cert_chain(*map(str, client))
    return made


def connect(server, made, name="localhost", session=None):
    plain = socket.create_connection(server.address, timeout=15)
    return made.wrap_socket(plain, server_hostname=name, session=session)


def fetch(connection, path="/hello.txt", more=""):
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode())
    return read_response(connection)
