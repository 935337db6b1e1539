#!/usr/bin/env python3
"""A small internet for real clients: below FOLDER a directory per host (`registry` for registry.*), with files as they are served; a WebSocket that
echoes; git over HTTP with LFS. Prints its port as JSON, and writes a line for each request to LOG."""

import base64
import hashlib
import http.server
import json
import os
import struct
import subprocess
import sys
import threading

FOLDER, LOG = sys.argv[1], sys.argv[2]
KINDS = {".html": "text/html", ".json": "application/json", ".xml": "application/xml", ".pom": "application/xml"}
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
lock = threading.Lock()


def note(*words):
    with lock, open(LOG, "a", encoding="utf-8") as log:
        log.write(" ".join(words) + "\n")


class Internet(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def host(self):
        return (self.headers.get("host") or "").split(":")[0]

    def body(self):
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            whole = b""
            while size := int(self.rfile.readline(), 16):
                whole += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return whole
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def answer(self, status, body=b"", kind="application/octet-stream", **headers):
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def any(self):
        note(self.command, self.host(), self.path)
        path = self.path.partition("?")[0]
        if self.headers.get("upgrade", "").lower() == "websocket":
            return self.socket()
        if "/info/lfs/" in path or path.startswith("/lfs/"):
            return self.lfs(path)
        if ".git/" in path:
            return self.git()
        body = self.body()
        if self.command not in ("GET", "HEAD"):
            return self.answer(200, json.dumps({"got": len(body)}).encode(), "application/json")
        # Some registries write the slash of a name as %2f.
        host = "registry" if self.host().startswith("registry.") else self.host()
        file = os.path.join(FOLDER, host, path.lstrip("/").replace("%2f", "/"))
        if os.path.isdir(file):
            file = os.path.join(file, "index.html")
        if not os.path.isfile(file):
            return self.answer(404, b"not here")
        with open(file, "rb") as found:
            kind = KINDS.get(os.path.splitext(file)[1])
            body = found.read()
            # A document may name the host that it comes from.
            body = body.replace(b"{host}", self.host().encode()) if kind else body
            return self.answer(200, body, kind or "application/octet-stream")

    do_GET = do_HEAD = do_POST = do_PUT = any

    def socket(self):
        key = self.headers["sec-websocket-key"].encode()
        accept = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
        self.send_response(101)
        for name, value in {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-accept": accept}.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        while True:
            head = self.rfile.read(2)
            if len(head) < 2:
                return
            length = head[1] & 127
            if length == 126:
                (length,) = struct.unpack(">H", self.rfile.read(2))
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[n % 4] for n, b in enumerate(self.rfile.read(length)))
            if head[0] & 15 == 8:
                self.wfile.write(bytes([0x88, 0]))
                return
            note("MESSAGE", self.host(), data.decode("utf-8", "replace"))
            self.wfile.write(bytes([0x80 | head[0] & 15, len(data)]) + data)

    def lfs(self, path):
        store = os.path.join(FOLDER, "lfs")
        os.makedirs(store, exist_ok=True)
        if path.startswith("/lfs/"):
            file = os.path.join(store, os.path.basename(path))
            if self.command == "PUT":
                with open(file, "wb") as kept:
                    kept.write(self.body())
                return self.answer(200)
            with open(file, "rb") as kept:
                return self.answer(200, kept.read())
        asked = json.loads(self.body() or b"{}")
        if not path.endswith("/objects/batch"):
            return self.answer(404, b"{}", "application/vnd.git-lfs+json")
        objects = []
        for one in asked["objects"]:
            there = os.path.exists(os.path.join(store, one["oid"]))
            action = {asked["operation"]: {"href": f"https://{self.host()}/lfs/{one['oid']}"}}
            if asked["operation"] == "upload" and there:
                action = {}
            objects.append({**one, "authenticated": True, "actions": action})
        body = json.dumps({"transfer": "basic", "objects": objects}).encode()
        return self.answer(200, body, "application/vnd.git-lfs+json")

    def git(self):
        path, _, query = self.path.partition("?")
        environment = {
            **os.environ,
            "GIT_PROJECT_ROOT": os.path.join(FOLDER, self.host()),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REMOTE_USER": "somebody",
            "CONTENT_TYPE": self.headers.get("content-type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
            "GIT_PROTOCOL": self.headers.get("git-protocol", ""),
        }
        done = subprocess.run(["git", "http-backend"], input=self.body(), env=environment, capture_output=True, check=False)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        status = int(fields.pop("Status", "200").split()[0])
        kind = fields.pop("Content-Type", "text/plain")
        return self.answer(status, body, kind, **fields)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Internet)
print(json.dumps({"port": server.server_address[1]}), flush=True)
server.serve_forever()
