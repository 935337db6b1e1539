"""What RFC 9113 and RFC 7541 forbid, sent by hand to whatever serves HTTP/2 over TLS; run by scripts/conformance.

  witness      a server that answers everything; prints its port
  client HOST  sends every case to HOST:443; prints one JSON object a line
"""
import json
import socket
import ssl
import struct
import sys
import time

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, WITH_PRIORITY, ACK = 1, 4, 8, 32, 1
CODES = ["NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT", "STREAM_CLOSED", "FRAME_SIZE_ERROR",
         "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR", "ENHANCE_YOUR_CALM"]
PROTOCOL, FLOW, CLOSED, SIZE, REFUSED, COMPRESSION, CALM = 1, 3, 5, 6, 7, 9, 11


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def text(value):
    raw = value if isinstance(value, bytes) else value.encode()
    return (bytes([len(raw)]) if len(raw) < 127 else b"\x7f" + var(len(raw) - 127)) + raw


def var(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def packed(*fields):
    return b"".join(b"\0" + text(name) + text(value) for name, value in fields)


def request(method="GET", *more, leave=(), swap={}):
    fields = [(":method", method), (":scheme", "https"), (":path", "/"), (":authority", HOST)]
    return packed(*[(name, swap.get(name, value)) for name, value in fields if name not in leave], *more)


def head(stream=1, end=True, block=None, flags=END_HEADERS):
    return frame(HEADERS, flags | (END_STREAM if end else 0), stream, request() if block is None else block)


def setting(identifier, value):
    return frame(SETTINGS, payload=struct.pack(">HI", identifier, value))


class Connection:
    """One connection, its preface and settings exchanged unless told otherwise."""

    def __init__(self, preface=PREFACE, settings=b"", polite=True):
        context = ssl.create_default_context()
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection((HOST, 443), timeout=10)
        self.socket = context.wrap_socket(plain, server_hostname=HOST)
        self.rest, self.seen = b"", []
        if polite:
            self.send(preface + frame(SETTINGS, payload=settings))
            self.until(lambda f: f[0] == SETTINGS and not f[1] & ACK)
            self.send(frame(SETTINGS, ACK))
            self.until(lambda f: f[0] == SETTINGS and f[1] & ACK)

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (OSError, ssl.SSLError):
            pass

    def next(self, patience):
        """The next frame, `closed`, or None when there is silence."""
        end = time.monotonic() + patience
        while len(self.rest) < 9 or len(self.rest) < 9 + int.from_bytes(self.rest[:3], "big"):
            self.socket.settimeout(max(0.001, end - time.monotonic()))
            try:
                piece = self.socket.recv(65536)
            except (TimeoutError, ssl.SSLWantReadError):
                return None
            except (OSError, ssl.SSLError):
                return "closed"
            if not piece:
                return "closed"
            self.rest += piece
        length = int.from_bytes(self.rest[:3], "big")
        got = (self.rest[3], self.rest[4], int.from_bytes(self.rest[5:9], "big") & 0x7fffffff, self.rest[9:9 + length])
        self.rest = self.rest[9 + length:]
        self.seen.append(got)
        return got

    def until(self, wanted, patience=5):
        while True:
            got = self.next(patience)
            if got is None or got == "closed":
                return got
            if wanted(got):
                return got

    def how(self, patience=2.5):
        """What ended the case: a code on the connection or a stream, an answer, a pong, silence."""
        while True:
            got = self.next(patience)
            if got is None:
                return "silence"
            if got == "closed":
                return "closed"
            kind, flags, stream, payload = got
            if kind == GOAWAY:
                code = int.from_bytes(payload[4:8], "big")
                if code:
                    return "connection " + CODES[code] if code < len(CODES) else "connection %d" % code
            elif kind == RST:
                code = int.from_bytes(payload[:4], "big")
                return "stream " + (CODES[code] if code < len(CODES) else str(code))
            elif kind == HEADERS:
                # Static entries 8 to 14 are the usual answers; 12 and 13 refuse.
                first = payload[0] if payload else 0
                if first in (0x8c, 0x8d, 0x8e) or b"4" == payload[2:3] or first in (0x48, 0x08) and payload[2:3] in (b"4", b"h", b"\x68"):
                    return "refused by an answer"
                return "answered"
            elif kind == PING and flags & ACK:
                return "pong"


def error(*codes, stream=True):
    """The connection ends with one of these codes or without a word; where RFC 9113 lets it, the stream alone does."""
    good = ["closed"] + ["connection " + CODES[code] for code in codes]
    if stream:
        good += ["stream " + CODES[code] for code in codes]
    return good


MALFORMED = error(PROTOCOL) + ["refused by an answer"]
PONG, ANSWERED = ["pong"], ["answered"]
PING_BYTES = frame(PING, payload=b"kairos!!")


def cases():
    """Name, what is expected, and what is sent on a connection that is set up."""
    block = request()
    dependency = struct.pack(">IB", 1, 15)
    yield "4.1 a frame of an unknown kind is ignored", PONG, frame(0xff, 0xff, 0, b"x" * 8) + PING_BYTES
    yield "4.1 unknown flags are ignored", PONG, frame(PING, 0x16, 0, b"kairos!!")
    yield "4.1 the reserved bit is ignored", PONG, frame(PING, 0, 0x80000000, b"kairos!!")
    yield "4.2 DATA of 16,384 bytes", ANSWERED, head(end=False, block=request("POST")) + frame(DATA, END_STREAM, 1, b"x" * 16384)
    yield "4.2 DATA larger than allowed", error(SIZE), head(end=False, block=request("POST")) + frame(DATA, END_STREAM, 1, b"x" * 16385)
    yield "4.2 HEADERS larger than allowed", error(SIZE, stream=False), head(block=block + packed(("x", "y" * 16385)))
    yield "4.3 a header block that cannot be read", error(COMPRESSION, stream=False), head(block=b"\x40\x01\x88\x44\x0f\xff")
    yield "4.3 PRIORITY within a header block", error(PROTOCOL, stream=False), head(flags=0) + frame(PRIORITY, 0, 1, dependency)
    yield "4.3 HEADERS of another stream within a header block", error(PROTOCOL, stream=False), head(flags=0) + head(3)
    yield "5.1 idle: DATA", error(PROTOCOL, CLOSED, stream=False), frame(DATA, END_STREAM, 1, b"x")
    yield "5.1 idle: RST_STREAM", error(PROTOCOL, stream=False), frame(RST, 0, 1, b"\0\0\0\x08")
    yield "5.1 idle: WINDOW_UPDATE", error(PROTOCOL, stream=False), frame(WINDOW, 0, 1, b"\0\0\0\x64")
    yield "5.1 idle: CONTINUATION", error(PROTOCOL, stream=False), frame(CONTINUATION, END_HEADERS, 1, block)
    yield "5.1 half closed: DATA", error(CLOSED), head() + frame(DATA, END_STREAM, 1, b"x")
    yield "5.1 half closed: HEADERS", error(CLOSED, PROTOCOL), head() + head()
    yield "5.1 half closed: CONTINUATION", error(CLOSED, PROTOCOL), head() + frame(CONTINUATION, END_HEADERS, 1, block)
    reset = head(end=False) + frame(RST, 0, 1, b"\0\0\0\x08")
    yield "5.1 closed by RST_STREAM: DATA", error(CLOSED), reset + frame(DATA, END_STREAM, 1, b"x")
    yield "5.1 closed by RST_STREAM: HEADERS", error(CLOSED), reset + head()
    yield "5.1 closed by RST_STREAM: CONTINUATION", error(CLOSED, PROTOCOL), reset + frame(CONTINUATION, END_HEADERS, 1, block)
    yield "5.1.1 a stream of even number", error(PROTOCOL, stream=False), head(2)
    yield "5.1.1 a stream of lower number", error(PROTOCOL, CLOSED, stream=False), head(5) + head(3)
    yield "5.3.1 HEADERS that depend on themselves", MALFORMED + ANSWERED, frame(HEADERS, END_HEADERS | END_STREAM | WITH_PRIORITY, 1, dependency + block)
    yield "5.5 an unknown frame within a header block", error(PROTOCOL, stream=False), head(flags=0) + frame(0xff, 0, 1, b"x")
    yield "6.1 DATA of stream 0", error(PROTOCOL, stream=False), frame(DATA, END_STREAM, 0, b"x")
    yield "6.1 DATA padded beyond its end", error(PROTOCOL, stream=False), head(end=False) + frame(DATA, END_STREAM | PADDED, 1, b"\x06Test")
    yield "6.2 HEADERS of stream 0", error(PROTOCOL, stream=False), head(0)
    yield "6.2 HEADERS padded beyond their end", error(PROTOCOL, stream=False), frame(HEADERS, END_STREAM | END_HEADERS | PADDED, 1, b"\xff" + block)
    yield "6.3 PRIORITY of stream 0", error(PROTOCOL, stream=False), frame(PRIORITY, 0, 0, b"\x80\0\0\x01\x0a")
    yield "6.3 PRIORITY of another length", error(SIZE), frame(PRIORITY, 0, 1, b"\x80\0\0\x01")
    yield "6.4 RST_STREAM of stream 0", error(PROTOCOL, stream=False), frame(RST, 0, 0, b"\0\0\0\x08")
    yield "6.4 RST_STREAM of another length", error(SIZE, stream=False), head(end=False) + frame(RST, 0, 1, b"\0\0\0")
    yield "6.5 an acknowledgement with a payload", error(SIZE, stream=False), frame(SETTINGS, ACK, 0, b"\0")
    yield "6.5 SETTINGS of a stream", error(PROTOCOL, stream=False), frame(SETTINGS, 0, 1, b"\0\x03\0\0\0\x64")
    yield "6.5 SETTINGS of another length", error(SIZE, stream=False), frame(SETTINGS, 0, 0, b"\0\x03\0")
    yield "6.5.2 ENABLE_PUSH is 2", error(PROTOCOL, stream=False), setting(2, 2)
    yield "6.5.2 a window that is too large", error(FLOW, stream=False), setting(4, 1 << 31)
    yield "6.5.2 frames that are too small", error(PROTOCOL, stream=False), setting(5, (1 << 14) - 1)
    yield "6.5.2 frames that are too large", error(PROTOCOL, stream=False), setting(5, 1 << 24)
    yield "6.5.2 an unknown setting is ignored", PONG, setting(0xff, 1) + PING_BYTES
    yield "6.7 PING is answered", PONG, PING_BYTES
    yield "6.7 PING of a stream", error(PROTOCOL, stream=False), frame(PING, 0, 1, b"kairos!!")
    yield "6.7 PING of another length", error(SIZE, stream=False), frame(PING, 0, 0, b"kairos")
    yield "6.8 GOAWAY of a stream", error(PROTOCOL, stream=False), frame(GOAWAY, 0, 1, b"\0" * 8)
    yield "6.9 WINDOW_UPDATE by 0", error(PROTOCOL, stream=False), frame(WINDOW, 0, 0, b"\0" * 4)
    yield "6.9 WINDOW_UPDATE of a stream by 0", error(PROTOCOL), head(end=False) + frame(WINDOW, 0, 1, b"\0" * 4)
    yield "6.9 WINDOW_UPDATE of another length", error(SIZE, stream=False), frame(WINDOW, 0, 0, b"\0\0\x01")
    most = struct.pack(">I", (1 << 31) - 1)
    yield "6.9.1 a window of the connection that overflows", error(FLOW, stream=False), frame(WINDOW, 0, 0, most) * 2
    yield "6.9.1 a window of a stream that overflows", error(FLOW), head(end=False) + frame(WINDOW, 0, 1, most) * 2
    # As large as a window can be; one byte more would already be 6.9.1.
    room = struct.pack(">I", (1 << 31) - 1 - 65535)
    yield "6.9.2 a window made to overflow by SETTINGS", error(FLOW, stream=False), head(end=False) + frame(WINDOW, 0, 1, room) + setting(4, 65536)
    yield "6.10 a head in three pieces", ANSWERED, frame(HEADERS, END_STREAM, 1, block[:5]) + frame(CONTINUATION, 0, 1, block[5:9]) + \
        frame(CONTINUATION, END_HEADERS, 1, block[9:])
    yield "6.10 CONTINUATION, then another frame", error(PROTOCOL, stream=False), head(flags=0) + frame(CONTINUATION, 0, 1, packed(("x", "y"))) + \
        frame(DATA, END_STREAM, 1, b"x")
    yield "6.10 CONTINUATION of stream 0", error(PROTOCOL, stream=False), head(flags=0) + frame(CONTINUATION, END_HEADERS, 0, b"")
    yield "6.10 CONTINUATION of a whole head", error(PROTOCOL, CLOSED, stream=False), head(end=False) + frame(CONTINUATION, END_HEADERS, 1, b"")
    yield "6.10 CONTINUATION behind DATA", error(PROTOCOL, stream=False), head(end=False) + frame(DATA, 0, 1, b"x") + frame(CONTINUATION, END_HEADERS, 1, b"")
    yield "7 an unknown error code on a stream", PONG, head(end=False) + frame(RST, 0, 1, b"\0\0\0\xff") + PING_BYTES
    yield "8.1 trailers that do not end the stream", error(PROTOCOL), head(end=False, block=request("POST")) + head(end=False, block=packed(("x", "y")))
    for words, fields in [
        ("8.2 a name in upper case", request("GET", ("X-Test", "y"))), ("8.2.2 Connection", request("GET", ("connection", "keep-alive"))),
        ("8.2.2 Transfer-Encoding", request("GET", ("transfer-encoding", "chunked"))), ("8.2.2 TE that is not trailers", request("GET", ("te", "gzip"))),
        ("8.3 an unknown pseudo field", request("GET", (":test", "y"))), ("8.3 a pseudo field of answers", request("GET", (":status", "200"))),
        ("8.3 a pseudo field behind others", packed(("x", "y")) + block), ("8.3.1 an empty :path", request(swap={":path": ""})),
        ("8.3.1 no :method", request(leave=(":method",))), ("8.3.1 no :scheme", request(leave=(":scheme",))),
        ("8.3.1 no :path", request(leave=(":path",))), ("8.3.1 :method twice", request("GET", (":method", "GET"))),
        ("8.3.1 :scheme twice", request("GET", (":scheme", "https"))), ("8.3.1 :path twice", request("GET", (":path", "/"))),
        ("8.2.1 a line end in a value", request("GET", ("x", "a\r\nb"))), ("8.2.1 a zero in a value", request("GET", ("x", "a\0b"))),
        ("8.2.1 a colon in a name", request("GET", ("x:y", "a"))), ("8.2.1 white space in a name", request("GET", ("x y", "a"))),
    ]:
        yield words, MALFORMED, head(block=fields)
    yield "8.1 pseudo fields in trailers", error(PROTOCOL), head(end=False, block=request("POST")) + head(block=packed((":path", "/")))
    short = request("POST", ("content-length", "1"))
    yield "8.1.1 more bytes than its length", MALFORMED, head(end=False, block=short) + frame(DATA, END_STREAM, 1, b"test")
    yield "8.1.1 more bytes than its length, in two frames", MALFORMED, head(end=False, block=short) + frame(DATA, 0, 1, b"te") + frame(DATA, END_STREAM, 1, b"st")
    yield "8.4 PUSH_PROMISE of a client", error(PROTOCOL, stream=False), head(end=False) + frame(PUSH, END_HEADERS, 1, b"\0\0\0\x02" + block)
    yield "RFC 7541 2.3.3 an index that is not there", error(COMPRESSION, stream=False), head(block=block + b"\xff\x46")
    yield "RFC 7541 4.2 a table size at the end of a block", error(COMPRESSION, stream=False), head(block=block + b"\x21")
    yield "RFC 7541 5.2 padding longer than 7 bits", error(COMPRESSION, stream=False), head(block=block + b"\0\x85\xf2\xb2\x4a\x84\xff\x84\x49\x50\x9f\xff")
    yield "RFC 7541 5.2 padding by zeros", error(COMPRESSION, stream=False), head(block=block + b"\0\x85\xf2\xb2\x4a\x84\xff\x83\x49\x50\x90")
    yield "RFC 7541 5.2 the end symbol", error(COMPRESSION, stream=False), head(block=block + b"\0\x85\xf2\xb2\x4a\x84\xff\x87\xf2\xb2\x4a\xff\xff\xff\xfc")
    yield "RFC 7541 6.1 index 0", error(COMPRESSION, stream=False), head(block=block + b"\x80")
    yield "RFC 7541 6.3 a table larger than allowed", error(COMPRESSION, stream=False), head(block=b"\x3f\xe1\xff\x03" + block)
    yield "limits: streams opened and reset at once, ten thousand", error(CALM, stream=False), \
        b"".join(head(2 * n + 1) + frame(RST, 0, 2 * n + 1, b"\0\0\0\x08") for n in range(10000))
    yield "limits: a head that never ends", error(CALM, PROTOCOL, COMPRESSION) + ["refused by an answer"], \
        frame(HEADERS, 0, 1, block) + frame(CONTINUATION, 0, 1, packed(("x", "y" * 16000))) * 200
    yield "limits: more streams than allowed", error(PROTOCOL, REFUSED), b"".join(head(2 * n + 1, end=False) for n in range(300))
    yield "limits: ten thousand SETTINGS", error(CALM, stream=False) + PONG, setting(3, 100) * 10000 + PING_BYTES


def client():
    def tell(name, expected, how):
        verdict = "OK" if how in expected else "FAILED"
        if verdict == "FAILED" and how.startswith("connection ") and any(one.startswith("connection ") for one in expected):
            verdict = "OTHER CODE"
        print(json.dumps({"case": name, "verdict": verdict, "why": "" if verdict == "OK" else "got: %s" % how}), flush=True)

    odd = Connection(polite=False)
    odd.send(b"INVALID CONNECTION PREFACE\r\n\r\n" + frame(SETTINGS))
    tell("3.4 a wrong preface", error(PROTOCOL, stream=False) + ["silence"], odd.how(2))
    first = Connection(polite=False)
    first.send(PREFACE + frame(SETTINGS))
    got = first.next(5)
    tell("3.4 SETTINGS come first", ["settings"], "settings" if got not in (None, "closed") and got[0] == SETTINGS else str(got))
    small = Connection(settings=struct.pack(">HI", 4, 1))
    small.send(head())
    got = small.until(lambda f: f[0] == DATA)
    tell("6.9.1 no more DATA than the window", ["1"], str(len(got[3])) if isinstance(got, tuple) else str(got))
    small.send(setting(4, 2))
    got = small.until(lambda f: f[0] == DATA)
    tell("6.9.2 a window made larger by SETTINGS", ["1"], str(len(got[3])) if isinstance(got, tuple) else str(got))
    for name, expected, data in cases():
        connection = Connection()
        connection.send(data)
        how = connection.how()
        # An answer that was under way, or the end of the stream, may come before the end of the connection.
        while how not in expected and (how in ("answered", "refused by an answer") or how.startswith("stream ")):
            after = connection.how()
            if after == "silence":
                break
            how = after
        tell(name, expected, how)
        connection.socket.close()


def witness():
    import http.server

    class Answer(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            length = int(self.headers.get("content-length") or 0)
            self.rfile.read(length)
            self.send_response(200)
            self.send_header("content-length", "12")
            self.end_headers()
            self.wfile.write(b"it answered\n")

        do_GET = do_POST = answer

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "witness":
        witness()
    else:
        HOST = sys.argv[2]
        client()
