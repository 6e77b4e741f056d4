"""The processes that a server has started, as /proc shows them."""

import os
import signal
from pathlib import Path

from support.waiting import wait_until


def children(server):
    """Every child of the server with its state, except the fork servers."""
    found = family(server)
    excluded = fork_server_pids(found)
    return {pid: fields[0] for pid, (_, fields) in found.items() if pid not in excluded}


def workers(server):
    """The children of the server that have not ended."""
    return {pid: state for pid, state in children(server).items() if state != "Z"}


def none_left(server):
    """Waits until no child of the server is left, not even a zombie."""
    wait_until(lambda: not children(server), "every process is gone and none is a zombie")


def fork_servers(server):
    """The fork servers of the server by the name of their program."""
    found = family(server)
    return {found[pid][0]: pid for pid in fork_server_pids(found)}


def fork_server_pids(family):
    """The processes that are fork servers.

    A fork server has its socket to the server at a descriptor that no program uses. So does each process that it creates,
    until that closes the socket; such a process is younger than its fork server."""
    oldest = {}
    for pid, (_, fields) in family.items():
        if fields[0] != "Z" and (socket := fork_server_socket(pid)):
            age = (int(fields[19]), pid)
            oldest[socket] = min(oldest.get(socket, age), age)
    return {pid for _, pid in oldest.values()}


def fork_server_socket(pid):
    """The socket between a fork server and the server, if a process has it."""
    try:
        target = os.readlink(f"/proc/{pid}/fd/100")
    except OSError:
        return None
    return target if target.startswith("socket:") else None


def family(server):
    """The children of the server: the name of each, and the fields of /proc/PID/stat from the state on."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        if int(fields[1]) == server.pid:
            found[int(entry.name)] = name, fields
    return found


def is_alive(pid):
    """Whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def end(pid, how=signal.SIGTERM):
    os.kill(pid, how)
    wait_until(lambda: not is_alive(pid), f"process {pid} to end", 40)


def rss(server):
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0
