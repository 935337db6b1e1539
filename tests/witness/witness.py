#!/usr/bin/env python3
"""A witness outside the boundary: listens, answers, and writes down everything that reaches it. Standard library and `openssl`.

  --tcp ADDRESS:PORT   TCP; HTTP/1.1 is answered, TLS too (recognised by its first byte), other bytes are written down as they are
  --udp ADDRESS:PORT   UDP; every datagram, answered with the same bytes
  --dns ADDRESS:PORT   DNS over UDP; every query, answered with --answer (A and AAAA)
  --unix PATH          a Unix socket in the file system
  --abstract NAME      a Unix socket in the abstract name space
Each may be given more than once; port 0 takes a free one. When all listen, one JSON line on standard output tells the ports, in
the order given, and where the authority's root is: {"tcp": [..], "udp": [..], "dns": [..], "ca": PATH}.

The log (--log) has a record as soon as a client connects, so that a bare connection is witnessed as well as its bytes. Paths:
/bytes/N answers N bytes, /status/N that status, /slow/MS waits first, /events streams three server-sent events; all else "thanks".
"""
import argparse
import json
import os
import socket
import ssl
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from authority import Authority, looks_like_tls, server_name  # noqa: E402
from record import Log, body  # noqa: E402

METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"PATC", b"OPTI", b"PRI ", b"CONN", b"TRAC", b"PROP")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("tcp", "udp", "dns", "unix", "abstract"):
        parser.add_argument("--" + name, action="append", default=[])
    parser.add_argument("--log")
    parser.add_argument("--answer", default="127.0.0.1", help="the address that DNS answers tell")
    parser.add_argument("--answer6", default="::1")
    parser.add_argument("--ca-dir", help="the authority's folder, made when it is not there")
    parser.add_argument("--certificate-for", help="show a certificate for this name, whatever the client asks for")
    arguments = parser.parse_args()
    log, authority = Log(arguments.log), Authority(arguments.ca_dir)
    said = {"tcp": [], "udp": [], "dns": [], "ca": authority.root}
    for place in arguments.tcp:
        listener = bound(place, socket.SOCK_STREAM)
        said["tcp"].append(listener.getsockname()[1])
        start(accept, listener, log, authority, arguments.certificate_for, "tcp")
    for place in arguments.udp:
        listener = bound(place, socket.SOCK_DGRAM)
        said["udp"].append(listener.getsockname()[1])
        start(datagrams, listener, log)
    for place in arguments.dns:
        listener = bound(place, socket.SOCK_DGRAM)
        said["dns"].append(listener.getsockname()[1])
        start(queries, listener, log, arguments.answer, arguments.answer6)
    for name in [*arguments.unix, *("\0" + name for name in arguments.abstract)]:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(name)
        if not name.startswith("\0"):
            os.chmod(name, 0o777)
        listener.listen(16)
        start(accept, listener, log, authority, None, "unix")
    print(json.dumps(said), flush=True)
    threading.Event().wait()


def start(function, *arguments):
    threading.Thread(target=function, args=arguments, daemon=True).start()


def bound(place, kind):
    host, _, port = place.rpartition(":")
    host = host.strip("[]")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind)
    if kind == socket.SOCK_STREAM:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if ":" in host:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    listener.bind((host, int(port)))
    if kind == socket.SOCK_STREAM:
        listener.listen(256)
    return listener


def accept(listener, log, authority, certificate_for, kind):
    while True:
        connection, peer = listener.accept()
        log(what="connect", kind=kind, at_port=name_of(listener), peer=str(peer))
        start(one_connection, connection, log, authority, certificate_for, name_of(listener))


def name_of(listener):
    name = listener.getsockname()
    return name[1] if isinstance(name, tuple) else os.fsdecode(name).replace("\0", "@")


def one_connection(connection, log, authority, certificate_for, port):
    sni = None
    try:
        connection.settimeout(120)
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if looks_like_tls(connection):
                sni = server_name(connection)
                name = certificate_for or sni or connection.getsockname()[0]
                try:
                    connection = authority.context(name).wrap_socket(connection, server_side=True)
                except (ssl.SSLError, OSError) as error:
                    return log(what="tls-failed", port=port, sni=sni, error=str(error)[:200])
                log(what="tls", port=port, sni=sni)
        Request(connection, log, port, sni).serve()
    except (OSError, ssl.SSLError) as error:
        log(what="broken", port=port, error=str(error)[:200])
    finally:
        connection.close()


class Request:
    """Serves one connection by hand, so that what is not HTTP is written down as well."""

    def __init__(self, connection, log, port, sni):
        self.connection, self.log, self.port, self.sni, self.buffer = connection, log, port, sni, b""

    def serve(self):
        while True:
            while b"\r\n\r\n" not in self.buffer and (len(self.buffer) < 4 or self.buffer[:4] in METHODS):
                if not self.more():
                    break
            if not self.buffer:
                return
            if b"\r\n\r\n" not in self.buffer:
                while self.more():
                    pass
                self.log(what="bytes", port=self.port, sni=self.sni, **body(self.buffer))
                return
            head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
            lines = head.decode("latin-1").split("\r\n")
            method, path, _ = (lines[0].split(" ") + ["", ""])[:3]
            headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
            if headers.get("expect", "").lower() == "100-continue":
                self.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            raw = self.payload(headers)
            self.log(what="request", port=self.port, sni=self.sni, method=method, path=path, headers=headers, **body(raw))
            self.answer(method, path)
            if headers.get("connection", "").lower() == "close":
                return

    def more(self):
        try:
            piece = self.connection.recv(65536)
        except (TimeoutError, ConnectionError):
            piece = b""
        self.buffer += piece
        return bool(piece)

    def payload(self, headers):
        if "chunked" in headers.get("transfer-encoding", "").lower():
            whole = b""
            while True:
                while b"\r\n" not in self.buffer and self.more():
                    pass
                line, _, self.buffer = self.buffer.partition(b"\r\n")
                size = int(line.split(b";")[0] or b"0", 16)
                while len(self.buffer) < size + 2 and self.more():
                    pass
                whole += self.buffer[:size]
                self.buffer = self.buffer[size + 2:]
                if size == 0:
                    return whole
        size = int(headers.get("content-length") or 0)
        while len(self.buffer) < size and self.more():
            pass
        whole, self.buffer = self.buffer[:size], self.buffer[size:]
        return whole

    def answer(self, method, path):
        parts, status, content = path.split("?")[0].strip("/").split("/"), "200 OK", b"thanks\n"
        if parts[0] == "bytes":
            content = b"x" * int(parts[1])
        elif parts[0] == "status":
            status = parts[1] + " Scripted"
        elif parts[0] == "slow":
            time.sleep(int(parts[1]) / 1000)
        elif parts[0] == "events":
            self.connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            for number in range(3):
                event = b"data: %d\n\n" % number
                self.connection.sendall(b"%x\r\n%s\r\n" % (len(event), event))
                time.sleep(0.3)
            return self.connection.sendall(b"0\r\n\r\n")
        head = "HTTP/1.1 %s\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n" % (status, len(content))
        self.connection.sendall(head.encode() + (b"" if method == "HEAD" else content))


def datagrams(listener, log):
    while True:
        raw, peer = listener.recvfrom(65536)
        log(what="datagram", port=listener.getsockname()[1], peer=str(peer), **body(raw))
        listener.sendto(raw, peer)


def queries(listener, log, answer, answer6):
    kinds = {1: "A", 28: "AAAA", 65: "HTTPS", 16: "TXT", 10: "NULL", 33: "SRV"}
    while True:
        query, peer = listener.recvfrom(4096)
        try:
            at, labels = 12, []
            while query[at]:
                labels.append(query[at + 1:at + 1 + query[at]].decode("latin-1"))
                at += 1 + query[at]
            kind = struct.unpack(">H", query[at + 1:at + 3])[0]
        except (IndexError, struct.error):
            log(what="datagram", port=listener.getsockname()[1], peer=str(peer), **body(query))
            continue
        log(what="query", port=listener.getsockname()[1], name=".".join(labels), kind=kinds.get(kind, str(kind)))
        record = b""
        if kind == 1:
            record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(answer)
        elif kind == 28:
            record = b"\xc0\x0c\0\x1c\0\1\0\0\0\x3c\0\x10" + socket.inet_pton(socket.AF_INET6, answer6)
        count = b"\0\1" if record else b"\0\0"
        listener.sendto(query[:2] + b"\x81\x80\0\1" + count + b"\0\0\0\0" + query[12:at + 5] + record, peer)


if __name__ == "__main__":
    main()
