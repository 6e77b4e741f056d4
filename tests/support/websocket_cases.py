"""Cases of WebSocket (RFC 6455) for a server that sends every message back.

They are those of the Autobahn test suite, by its numbers, for which no client runs on present versions of Python: framing,
pings, reserved bits and opcodes, fragments, UTF-8, closes, limits. Those of section 9 are smaller. Sections 12 and 13 (permessage-deflate)
are not among them: `test_websocket_compression.py` tests compression."""

from dataclasses import dataclass, field

from websockets.frames import Opcode

from support.websocket import close, frame

TEXT, BINARY, CONT, PING, PONG = Opcode.TEXT, Opcode.BINARY, Opcode.CONT, Opcode.PING, Opcode.PONG


@dataclass
class Case:
    """What a client sends, the messages and pongs that it gets, and the code of the server's close. Without a code, the client
    closes the WebSocket when all have arrived; otherwise fewer may come. `chop` is the number of bytes of each write."""

    number: str
    sent: bytes
    received: list = field(default_factory=list)
    code: int | None = None
    chop: int | None = None

    def __str__(self):
        return self.number


def cases():
    made = []
    for section in (framing, pings, reserved, fragments, utf8, closes, limits):
        made += section()
    return made


def framing():
    sizes = [0, 125, 126, 127, 128, 65_535, 65_536]
    for section, opcode in ((1, TEXT), (2, BINARY)):
        byte = b"*" if opcode == TEXT else b"\xfe"
        for number, size in enumerate(sizes, 1):
            yield Case(f"1.{section}.{number}", frame(opcode, byte * size), [(opcode, byte * size)])
        yield Case(f"1.{section}.8", frame(opcode, byte * 65_536), [(opcode, byte * 65_536)], chop=997)


def pings():
    payloads = [b"", b"Hello, world!", b"\0\xff\xfe\xfd\xfc\xfb\0\xff", b"\xfe" * 125]
    for number, payload in enumerate(payloads, 1):
        yield Case(f"2.{number}", frame(PING, payload), [(PONG, payload)])
    yield Case("2.5", frame(PING, b"\xfe" * 126), code=1002)
    yield Case("2.6", frame(PING, b"\xfe" * 125), [(PONG, b"\xfe" * 125)], chop=1)
    yield Case("2.7", frame(PONG))
    yield Case("2.8", frame(PONG, b"unsolicited"))
    yield Case("2.9", frame(PONG, b"unsolicited") + frame(PING, b"ping"), [(PONG, b"ping")])
    many = [b"payload-%d" % number for number in range(10)]
    for number, chop in ((10, None), (11, 1)):
        yield Case(f"2.{number}", b"".join(frame(PING, one) for one in many), [(PONG, one) for one in many], chop=chop)


def reserved():
    hello, echo = frame(TEXT, b"Hello, world!"), [(TEXT, b"Hello, world!")]
    yield Case("3.1", frame(TEXT, b"x", reserved=1), code=1002)
    for number, (bits, chop) in enumerate([(2, None), (3, 7), (4, 1)], 2):
        yield Case(f"3.{number}", hello + frame(TEXT, b"x", reserved=bits) + frame(PING), echo, 1002, chop)
    yield Case("3.5", frame(BINARY, b"\0\xff", reserved=5), code=1002)
    yield Case("3.6", frame(PING, b"x", reserved=6), code=1002)
    yield Case("3.7", frame(Opcode.CLOSE, b"\x03\xe8", reserved=7), code=1002)
    for section, opcodes in ((1, range(3, 8)), (2, range(11, 16))):
        for number, opcode in enumerate(opcodes, 1):
            payload = b"" if number % 2 else b"reserved opcode payload"
            before, received = (hello, echo) if number > 2 else (b"", [])
            yield Case(f"4.{section}.{number}", before + frame(opcode, payload) + frame(PING), received, 1002)


def parts(opcode, payloads, between=b""):
    """A message in fragments."""
    last = len(payloads) - 1
    frames = [frame(CONT if at else opcode, part, fin=at == last) for at, part in enumerate(payloads)]
    return between.join(frames)


def fragments():
    two, echo = [b"fragment1", b"fragment2"], [(TEXT, b"fragment1fragment2")]
    yield Case("5.1", parts(PING, two), code=1002)
    yield Case("5.2", parts(PONG, two), code=1002)
    for number, chop in ((3, None), (4, 9), (5, 1)):
        yield Case(f"5.{number}", parts(TEXT, two), echo, chop=chop)
    for number, chop in ((6, None), (7, 9), (8, 1)):
        yield Case(f"5.{number}", parts(TEXT, two, frame(PING, b"p")), [(PONG, b"p"), *echo], chop=chop)
    for start, fin in ((9, True), (12, False)):
        for number, chop in enumerate((None, 9, 1), start):
            yield Case(f"5.{number}", frame(CONT, b"x", fin=fin) + frame(TEXT, b"y"), code=1002, chop=chop)
    yield Case("5.15", parts(TEXT, two) + frame(CONT, b"x", fin=False) + frame(TEXT, b"y"), echo, 1002)
    for number, fin in ((16, False), (17, True)):
        again = frame(CONT, b"x", fin=fin) + frame(TEXT, b"y", fin=False) + frame(CONT, b"z")
        yield Case(f"5.{number}", again * 2, code=1002)
    yield Case("5.18", frame(TEXT, b"x", fin=False) + frame(TEXT, b"y"), code=1002)
    five = [b"fragment%d" % number for number in range(1, 6)]
    frames = [frame(CONT if at else TEXT, part, fin=at == 4) for at, part in enumerate(five)]
    sent = b"".join(frames[:2]) + frame(PING, b"1") + b"".join(frames[2:4]) + frame(PING, b"2") + frames[4]
    for number, chop in ((19, 11), (20, None)):
        yield Case(f"5.{number}", sent, [(PONG, b"1"), (PONG, b"2"), (TEXT, b"".join(five))], chop=chop)


GREEK = "κόσμε".encode()
VALID = {
    "6.5": [GREEK + b"\0", "$¢€𤭢".encode(), "Hello-µ@ßöäüàá-UTF-8!!".encode(), b"\xef\xbb\xbfx", bytes(range(128))],
    "6.7": [b"\0", b"\xc2\x80", b"\xe0\xa0\x80", b"\xf0\x90\x80\x80"],
    "6.9": [b"\x7f", b"\xdf\xbf", b"\xef\xbf\xbf", b"\xf4\x8f\xbf\xbf"],
    "6.11": [b"\xed\x9f\xbf", b"\xee\x80\x80", b"\xef\xbf\xbd", b"\xf4\x8f\xbf\xbf"],
    "6.22": [chr(plane << 16 | 0xFFFE | low).encode() for plane in range(17) for low in (0, 1)],
    "6.23": ["\ufff9\ufffa\ufffb\ufffc\ufffd\ufffe\uffff".encode(), *(chr(0xFFF9 + at).encode() for at in range(7))],
}
INVALID = {
    "6.8": [b"\xf8\x88\x80\x80\x80", b"\xfc\x84\x80\x80\x80\x80"],
    "6.10": [b"\xf7\xbf\xbf\xbf", b"\xfb\xbf\xbf\xbf\xbf", b"\xfd\xbf\xbf\xbf\xbf\xbf", b"\xf4\x90\x80\x80"],
    "6.12": [b"\x80", b"\xbf", *(bytes([0x80, 0xBF] * 4)[:length] for length in range(2, 8)), bytes(range(0x80, 0xC0))],
    "6.13": [b"".join(b"%c " % at for at in group) for group in (range(0xC0, 0xE0), range(0xE0, 0xF0), range(0xF0, 0xF8), range(0xF8, 0xFC), (0xFC, 0xFD))],
    "6.14": [b"\xc0", b"\xe0\x80", b"\xf0\x80\x80", b"\xf8\x80\x80\x80", b"\xfc\x80\x80\x80\x80", b"\xdf", b"\xef\xbf", b"\xf7\xbf\xbf", b"\xfb\xbf\xbf\xbf", b"\xfd\xbf\xbf\xbf\xbf"],
    "6.15": [b"\xc0\xe0\x80\xf0\x80\x80\xf8\x80\x80\x80\xfc\x80\x80\x80\x80\xdf\xef\xbf\xf7\xbf\xbf\xfb\xbf\xbf\xbf\xfd\xbf\xbf\xbf\xbf"],
    "6.16": [b"\xfe", b"\xff", b"\xfe\xfe\xff\xff"],
    "6.17": [b"\xc0\xaf", b"\xe0\x80\xaf", b"\xf0\x80\x80\xaf", b"\xf8\x80\x80\x80\xaf", b"\xfc\x80\x80\x80\x80\xaf"],
    "6.18": [b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xf8\x87\xbf\xbf\xbf", b"\xfc\x83\xbf\xbf\xbf\xbf"],
    "6.19": [b"\xc0\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xf8\x80\x80\x80\x80", b"\xfc\x80\x80\x80\x80\x80"],
    "6.20": [b"\xed\xa0\x80", b"\xed\xad\xbf", b"\xed\xae\x80", b"\xed\xaf\xbf", b"\xed\xb0\x80", b"\xed\xbe\x80", b"\xed\xbf\xbf"],
    "6.21": [first + second for first in (b"\xed\xa0\x80", b"\xed\xad\xbf", b"\xed\xae\x80", b"\xed\xaf\xbf") for second in (b"\xed\xb0\x80", b"\xed\xbf\xbf")],
}


def utf8():
    yield Case("6.1.1", frame(TEXT), [(TEXT, b"")])
    yield Case("6.1.2", parts(TEXT, [b"", b"", b""]), [(TEXT, b"")])
    yield Case("6.1.3", parts(TEXT, [b"", b"middle frame payload", b""]), [(TEXT, b"middle frame payload")])
    text = "Hello-µ@ßöäüàá-UTF-8!!".encode()
    octets = [bytes([byte]) for byte in text]
    yield Case("6.2.1", frame(TEXT, text), [(TEXT, text)])
    yield Case("6.2.2", parts(TEXT, [text[:12], text[12:]]), [(TEXT, text)])
    yield Case("6.2.3", parts(TEXT, octets), [(TEXT, text)])
    yield Case("6.2.4", parts(TEXT, [bytes([byte]) for byte in GREEK]), [(TEXT, GREEK)])
    wrong = GREEK + b"\xed\xa0\x80edited"
    yield Case("6.3.1", frame(TEXT, wrong), code=1007)
    yield Case("6.3.2", parts(TEXT, [bytes([byte]) for byte in wrong]), code=1007)
    late = [GREEK, b"\xf4\x90\x80\x80", b"edited"]
    yield Case("6.4.1", parts(TEXT, late), code=1007)
    yield Case("6.4.2", parts(TEXT, [GREEK + b"\xf4", b"\x90", b"\x80\x80edited"]), code=1007)
    yield Case("6.4.3", frame(TEXT, b"".join(late)), code=1007, chop=20)
    yield Case("6.4.4", frame(TEXT, b"".join(late)), code=1007, chop=1)
    for length in range(1, len(GREEK) + 1):
        start = GREEK[:length]
        try:
            start.decode()
            yield Case(f"6.6.{length}", frame(TEXT, start), [(TEXT, start)])
        except UnicodeDecodeError:
            yield Case(f"6.6.{length}", frame(TEXT, start), code=1007)
    for section, texts in VALID.items():
        for number, text in enumerate(texts, 1):
            yield Case(f"{section}.{number}", frame(TEXT, text), [(TEXT, text)])
    for section, texts in INVALID.items():
        for number, text in enumerate(texts, 1):
            yield Case(f"{section}.{number}", frame(TEXT, text), code=1007)


def closes():
    hello, echo = frame(TEXT, b"Hello World!"), [(TEXT, b"Hello World!")]
    yield Case("7.1.1", hello + close(1000), echo, 1000)
    yield Case("7.1.2", close(1000) * 2, code=1000)
    yield Case("7.1.3", close(1000) + frame(PING, b"behind"), code=1000)
    yield Case("7.1.4", close(1000) + hello, code=1000)
    yield Case("7.1.5", frame(TEXT, b"x", fin=False) + close(1000) + frame(CONT, b"y"), code=1000)
    large = b"BAsd7&jh23" * 26_214
    yield Case("7.1.6", frame(TEXT, large) + close(1000) + frame(PING), [(TEXT, large)], 1000)
    yield Case("7.3.1", close(), code=1005)
    yield Case("7.3.2", frame(Opcode.CLOSE, b"a"), code=1002)
    yield Case("7.3.3", close(1000), code=1000)
    yield Case("7.3.4", close(1000, b"Hello World!"), code=1000)
    yield Case("7.3.5", close(1000, b"*" * 123), code=1000)
    yield Case("7.3.6", close(1000, b"*" * 124), code=1002)
    yield Case("7.5.1", close(1000, wrong_reason()), code=1007)
    for number, code in enumerate((1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999), 1):
        yield Case(f"7.7.{number}", close(code), code=code)
    for number, code in enumerate((0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999), 1):
        yield Case(f"7.9.{number}", close(code), code=1002)
    for number, code in enumerate((5000, 65_535), 1):
        yield Case(f"7.13.{number}", close(code), code=1002)


def wrong_reason():
    return GREEK + b"\xed\xa0\x80edited"


def limits():
    for section, opcode in ((1, TEXT), (2, BINARY)):
        byte = b"*" if opcode == TEXT else b"\xfe"
        for number, size in enumerate((1 << 16, 1 << 18, 1 << 20, 1 << 22), 1):
            yield Case(f"9.{section}.{number}", frame(opcode, byte * size), [(opcode, byte * size)])
        for number, size in enumerate((512, 1 << 12, 1 << 14, 1 << 16, 1 << 18), 1):
            payload = byte * (1 << 20)
            pieces = [payload[at : at + size] for at in range(0, len(payload), size)]
            yield Case(f"9.{section + 2}.{number}", parts(opcode, pieces), [(opcode, payload)])
        for number, size in enumerate((64, 128, 256, 512, 1024, 2048), 1):
            payload = byte * (1 << 17)
            yield Case(f"9.{section + 4}.{number}", frame(opcode, payload), [(opcode, payload)], chop=size)
        for number, size in enumerate((0, 16, 64, 256, 1024, 4096), 1):
            yield Case(f"9.{section + 6}.{number}", frame(opcode, byte * size) * 300, [(opcode, byte * size)] * 300)
    payload = b"*" * 65_536
    yield Case("10.1.1", parts(TEXT, [payload[at : at + 1300] for at in range(0, 65_536, 1300)]), [(TEXT, payload)])
