"""Servers with a component, and what they report of it."""

import re

from support.components import STATE


def component_server(serve, file, path="/app/*", settings="", route="", more=""):
    """Starts a server with the component at `path`, and its status and metrics at `/status/`."""
    return serve(
        server=f'state = "{STATE}"',
        more=f'[[site.route]]\npath = "{path}"\n{route}\n'
        f'script = {{ kind = "component", file = "{file}", {settings} }}\n'
        f'[[site.route]]\npath = "/status/*"\nstatus = true\n{more}',
    )


def metric(server, name, label=""):
    """The sum of the samples of a metric whose labels contain `label`."""
    text = server.get("/status/metrics")[2].decode()
    found = re.findall(rf"^{name}(?:\{{([^}}]*)\}})? (\S+)$", text, re.M)
    return sum(float(value) for labels, value in found if label in labels)


def resident(server):
    """Resident memory of the server's process in bytes."""
    with open(f"/proc/{server.pid}/status") as file:
        fields = dict(line.split(":\t", 1) for line in file if ":\t" in line)
    return int(fields["VmRSS"].split()[0]) * 1024
