"""A name server for tests."""

import socket
import struct
import threading

A, AAAA, SRV = 1, 28, 33
SERVFAIL, NXDOMAIN = 2, 3


class NameServer:
    """Answers questions from `records`: {(name, type): [value]}. The value of A and AAAA is an address, that of SRV
    (priority, weight, port, target). `is_silent` has it drop questions, `is_failing` respond SERVFAIL. `questions` has
    the names and types that were asked for."""

    def __init__(self, ttl=1):
        self.records, self.questions = {}, []
        self.ttl, self.is_silent, self.is_failing = ttl, False, False
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                question, client = self.socket.recvfrom(4096)
            except OSError:
                return
            response = self._respond(question)
            if response:
                self.socket.sendto(response, client)

    def _respond(self, question):
        labels, at = [], 12
        while length := question[at]:
            labels.append(question[at + 1 : at + 1 + length].decode())
            at += 1 + length
        name = ".".join(labels).lower()
        kind = struct.unpack_from("!H", question, at + 1)[0]
        asked = question[12 : at + 5]
        self.questions.append((name, kind))
        if self.is_silent:
            return None
        values = self.records.get((name, kind), [])
        known = any(other == name for other, _ in self.records)
        code = SERVFAIL if self.is_failing else 0 if known else NXDOMAIN
        answers = b"" if code else b"".join(self._record(kind, value) for value in values)
        count = 0 if code else len(values)
        head = question[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, count, 0, 0)
        return head + asked + answers

    def _record(self, kind, value):
        if kind == A:
            data = socket.inet_aton(value)
        elif kind == AAAA:
            data = socket.inet_pton(socket.AF_INET6, value)
        else:
            priority, weight, port, target = value
            data = struct.pack("!HHH", priority, weight, port) + encode(target)
        return b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, self.ttl, len(data)) + data


def encode(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
