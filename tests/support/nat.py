"""A network address translator for UDP, in a process of its own: each client has an address towards the server, which changes.

`python nat.py PORT` prints its own port. A line `N` on the standard input gives N clients, the longest without a change first, another
address with their next datagram of an established connection: during the handshake, a client keeps its address (RFC 9000 §9).
Clients that have sent nothing since the line before may have ended, and keep theirs. What is under way to the old one still
arrives: a client that waits for a response would otherwise have no reason to send, and the server no way to learn its address.
It ends with its standard input, and prints the number of changes.
"""

import select
import socket
import subprocess
import sys


class Nat:
    def __init__(self, server):
        command = [sys.executable, __file__, str(server)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def rebind(self, clients=1):
        self.process.stdin.write(f"{clients}\n")
        self.process.stdin.flush()

    def end(self):
        """Ends it. Returns how many clients have had another address."""
        out, _ = self.process.communicate()
        return int(out)


SIZE = 65536
# Old addresses that still receive.
KEPT = 100


def opened(server):
    outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    outside.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    outside.setblocking(False)
    outside.connect(("127.0.0.1", server))
    return outside


def main(server):
    inside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
        inside.setsockopt(socket.SOL_SOCKET, option, 4 << 20)
    # The generator first looks whether a server is there, by TCP.
    door = socket.create_server(("127.0.0.1", 0))
    inside.bind(door.getsockname())
    inside.setblocking(False)
    print(inside.getsockname()[1], flush=True)
    events = select.epoll()
    events.register(inside, select.EPOLLIN)
    events.register(sys.stdin, select.EPOLLIN)
    by_client, by_number, old, due, heard, changes = {}, {}, [], set(), set(), 0

    def translate(client):
        outside = opened(server)
        events.register(outside, select.EPOLLIN)
        by_client[client], by_number[outside.fileno()] = outside, (outside, client)
        return outside

    while True:
        for number, _ in events.poll():
            if number == inside.fileno():
                for _ in range(64):
                    try:
                        data, client = inside.recvfrom(SIZE)
                        heard.add(client)
                        is_established = not data[0] & 0x80
                        if client in due and is_established:
                            due.remove(client)
                            # It is behind all others now.
                            old.append(by_client.pop(client))
                            translate(client)
                            changes += 1
                            if len(old) > KEPT:
                                before = old.pop(0)
                                del by_number[before.fileno()]
                                before.close()
                        (by_client.get(client) or translate(client)).send(data)
                    except BlockingIOError:
                        break
                    except ConnectionError:
                        pass
            elif number == sys.stdin.fileno():
                line = sys.stdin.readline()
                if not line:
                    print(changes, flush=True)
                    return
                candidates = heard - due
                due.update([client for client in by_client if client in candidates][: int(line)])
                heard.clear()
            elif number in by_number:
                outside, client = by_number[number]
                for _ in range(64):
                    try:
                        inside.sendto(outside.recv(SIZE), client)
                    except BlockingIOError:
                        break
                    except ConnectionError:
                        pass


if __name__ == "__main__":
    main(int(sys.argv[1]))
