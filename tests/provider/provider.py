#!/usr/bin/env python3
"""A scripted stand-in for a hosted language model. Standard library; `openssl` for TLS.

It plays the model for an unmodified agent, over four wire protocols, each with or without TLS on one port (told apart by the
first byte; the certificate is minted for whatever name the client asks for):
  OpenAI Responses            POST .../responses (server-sent events or JSON), or a WebSocket on the same path
  OpenAI chat completions     POST .../chat/completions
  Anthropic Messages          POST .../messages
  Gemini                      POST ...:streamGenerateContent, ...:generateContent
What the model says is in --script (script.py tells the form). A request that offers no tools (a title, a summary, a router) gets
a short answer and uses up no step.

When it listens, one JSON line on standard output tells {"port": P, "ca": PATH}. --log has one JSON object a request; --dump DIR
keeps every model request whole. --websocket serve|426|404 says how an upgrade is answered.
"""
import argparse
import base64
import gzip
import hashlib
import json
import os
import socket
import ssl
import sys
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, os.pardir, "witness")]
from authority import Authority, looks_like_tls, server_name  # noqa: E402
from record import Log, body  # noqa: E402
from script import Script  # noqa: E402
from wires import WIRES, Gemini, Responses, example_of, wanted_schema  # noqa: E402

SECRET_HEADERS = {"authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie", "proxy-authorization"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--script", required=True)
    parser.add_argument("--cwd", help="what relative paths of the script are below, as the agent sees it")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--log")
    parser.add_argument("--dump")
    parser.add_argument("--ca-dir", help="the authority's folder, made when it is not there")
    parser.add_argument("--websocket", default="serve", choices=["serve", "426", "404"])
    arguments = parser.parse_args()
    if arguments.dump:
        os.makedirs(arguments.dump, exist_ok=True)
    Script(arguments.script, arguments.cwd).check()
    server = Server((arguments.address, arguments.port), Handler)
    server.script, server.log, server.dump = Script(arguments.script, arguments.cwd), Log(arguments.log), arguments.dump
    server.websocket, server.authority = arguments.websocket, Authority(arguments.ca_dir)
    print(json.dumps({"port": server.server_port, "ca": server.authority.root}), flush=True)
    server.serve_forever()


class Server(ThreadingHTTPServer):
    """One port for HTTP and HTTPS; the TLS handshake is done on the connection's own thread."""
    request_queue_size = 128
    daemon_threads = True
    count, count_lock = 0, threading.Lock()

    def number(self):
        with self.count_lock:
            self.count += 1
            return self.count

    def finish_request(self, connection, address):
        sni, tls = None, False
        try:
            connection.settimeout(600)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if looks_like_tls(connection):
                sni, tls = server_name(connection), True
                connection = self.authority.context(sni or connection.getsockname()[0]).wrap_socket(connection, server_side=True)
        except (ssl.SSLError, OSError) as error:
            return self.log(what="tls-failed", sni=sni, error=str(error)[:200])
        handler = type("Connection", (self.RequestHandlerClass,), {"sni": sni, "tls": tls})
        try:
            handler(connection, address, self)
        finally:
            connection.close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    sni, tls = None, False

    def log_message(self, *arguments):
        pass

    def handle(self):
        try:
            super().handle()
        except (ConnectionError, OSError) as error:
            self.server.log(what="broken", error=str(error))

    def any(self):
        raw, encoding = self.payload()
        path = self.path.split("?")[0]
        if "://" in path:                       # absolute form, as sent to an HTTP proxy
            path = "/" + path.split("://", 1)[1].partition("/")[2]
        record = {"what": "request", "method": self.command, "host": self.headers.get("host", ""), "path": self.path,
                  "tls": self.tls, "sni": self.sni, "agent": self.headers.get("user-agent", ""),
                  "authorization": authorization(self.headers)}
        if encoding:
            record["content_encoding"] = encoding
        if (self.headers.get("upgrade") or "").lower() == "websocket":
            return self.upgrade(path, record)
        wire = next((w for w in WIRES if w.match(path)), None) if self.command == "POST" else None
        try:
            request = json.loads(raw) if raw else {}
        except ValueError:
            request = None
        if wire and isinstance(request, dict):
            return self.model(wire, request, path, record)
        if path.endswith("/count_tokens") or path.endswith(":countTokens"):
            self.server.log(**record, answer="count")
            return self.reply(200, '{"input_tokens":10,"totalTokens":10}')
        if self.command == "GET" and path.rstrip("/").endswith("/models"):
            self.server.log(**record, answer="models")
            model = {"id": "scripted", "object": "model", "owned_by": "t", "created": 1, "type": "model", "display_name": "scripted"}
            return self.reply(200, json.dumps({"object": "list", "data": [model], "models": []}))
        self.server.log(**record, answer=404, **body(raw))
        self.reply(404, '{"error":{"message":"not scripted"}}')

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = do_PATCH = do_OPTIONS = any

    def model(self, wire, request, path, record):
        number = self.server.number()
        self.keep("%04d-%s.json" % (number, wire.name), {"path": self.path, "body": request, "headers": {
            name: "<hidden>" if name.lower() in SECRET_HEADERS else value for name, value in self.headers.items()}})
        tools, events, stream = wire.parse(request)
        if wire is Gemini:
            stream = path.endswith(":streamGenerateContent")
        wanted = None if tools else wanted_schema(request)
        decision = ("text", json.dumps(example_of(wanted))) if wanted else self.decide(tools, events)
        self.server.log(**record, wire=wire.name, model=request.get("model"), stream=stream, **told(tools, events, decision))
        answer = wire.emit(request, decision, number, stream)
        if isinstance(answer, str):
            return self.reply(200, answer)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-cache")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in answer:
            event = event.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def decide(self, tools, events):
        try:
            return self.server.script.decide(tools, events)
        except LookupError as error:
            return ("text", "script error: %s" % error)

    def keep(self, name, value):
        if self.server.dump:
            with open(os.path.join(self.server.dump, name), "w", encoding="utf-8") as file:
                json.dump(value, file, indent=1)

    # -- WebSocket: the Responses protocol, one text message a request, one text message an event

    def upgrade(self, path, record):
        if self.server.websocket != "serve" or not Responses.match(path):
            code = int(self.server.websocket) if self.server.websocket.isdigit() else 404
            self.server.log(**record, answer="%d to a websocket upgrade" % code)
            return self.reply(code, '{"error":{"message":"no websocket here"}}')
        self.server.log(**record, answer="101")
        key = self.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("upgrade", "websocket")
        self.send_header("connection", "Upgrade")
        self.send_header("sec-websocket-accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        history = []
        for message in self.messages(record):
            history = self.turn(json.loads(message), history, record)

    def turn(self, request, history, record):
        """Answers one response.create; returns what this socket has seen (with previous_response_id only new items are sent)."""
        number = self.server.number()
        self.keep("%04d-ws.json" % number, request)
        new = request.get("input") or []
        history = history + new if request.get("previous_response_id") else list(new)
        if request.get("generate") is False:          # a warm-up: no output wanted
            self.server.log(**record, wire="openai-responses-ws", answer="warm-up")
            whole = {"id": "resp_%d" % number, "object": "response", "created_at": 1, "model": request.get("model"), "output": []}
            usage = {"input_tokens": 1, "output_tokens": 0, "total_tokens": 1, "input_tokens_details": {"cached_tokens": 0},
                     "output_tokens_details": {"reasoning_tokens": 0}}
            for at, event in enumerate([{"type": "response.created", "response": {**whole, "status": "in_progress"}},
                                        {"type": "response.completed", "response": {**whole, "status": "completed", "usage": usage}}]):
                self.send(1, json.dumps({**event, "sequence_number": at}).encode())
            return history
        tools, events, _ = Responses.parse({**request, "input": history})
        decision = self.decide(tools, events)
        self.server.log(**record, wire="openai-responses-ws", model=request.get("model"),
                        previous=request.get("previous_response_id"), **told(tools, events, decision))
        for event in Responses.emit(request, decision, number, True):
            self.send(1, event.split("data: ", 1)[1].strip().encode())
        return history

    def messages(self, record):
        whole = b""
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                return
            final, operation, size = head[0] & 0x80, head[0] & 15, head[1] & 127
            if size > 125:
                size = int.from_bytes(self.rfile.read(2 if size == 126 else 8), "big")
            mask = self.rfile.read(4) if head[1] & 0x80 else bytes(4)
            data = self.rfile.read(size)
            if size:
                long_mask = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
                data = (int.from_bytes(data, "big") ^ long_mask).to_bytes(size, "big")
            if operation == 8:
                self.server.log(**record, answer="close")
                return self.send(8, data[:2])
            if operation == 9:
                self.send(10, data)
            elif operation in (0, 1, 2):
                whole += data
                if final:
                    yield whole
                    whole = b""

    def send(self, operation, data):
        size = len(data)
        head = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big") if size < 65536 else b"\x7f" + size.to_bytes(8, "big")
        self.wfile.write(bytes([0x80 | operation]) + head + data)
        self.wfile.flush()

    # -- HTTP

    def payload(self):
        if "chunked" in (self.headers.get("transfer-encoding") or "").lower():
            raw = b""
            while size := int(self.rfile.readline().split(b";")[0].strip() or b"0", 16):
                raw += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline() not in (b"\r\n", b"\n", b""):
                pass
        else:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        encoding = (self.headers.get("content-encoding") or "").lower()
        try:
            raw = gzip.decompress(raw) if encoding == "gzip" else zlib.decompress(raw) if encoding == "deflate" else raw
        except (OSError, zlib.error):
            pass
        return raw, encoding

    def reply(self, code, text, kind="application/json"):
        self.send_response(code)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text.encode())


def told(tools, events, decision):
    """What the log says of one model request: what was offered, what came back from tools, what was answered."""
    results = [text for role, text in events if role == "result"]
    return {"tools": [tool.name for tool in tools], "tool_results": len(results), "last_result": results[-1] if results else None,
            "users": [text for role, text in events if role == "user"][-3:],
            "answer": decision[1] if decision[0] == "text" else {"tool": decision[1].name, "args": decision[2]}}


def authorization(headers):
    """The digest of the credential that came along: tests compare it, and no log ever holds one."""
    for name in ("authorization", "x-api-key", "x-goog-api-key", "api-key"):
        if headers.get(name):
            return name + " sha256:" + hashlib.sha256(headers[name].encode()).hexdigest()[:16]
    return None


if __name__ == "__main__":
    main()
