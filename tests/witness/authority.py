"""A private certificate authority for tests, and servers that mint a leaf for whatever name a client asks for.

Uses the `openssl` command, so that nothing beyond Python's standard library is needed. `ca.pem` in the authority's folder is
the root that a test hands to its policy.
"""
import ipaddress
import os
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
import time


class Authority:
    """Makes its root in `folder` when there is none; mints leaves on demand and keeps them."""

    def __init__(self, folder=None):
        self.folder = folder or tempfile.mkdtemp(prefix="authority-")
        os.makedirs(self.folder, exist_ok=True)
        self.root, self.key = os.path.join(self.folder, "ca.pem"), os.path.join(self.folder, "ca.key")
        self.leaf_key = os.path.join(self.folder, "leaf.key")
        self.leaves, self.lock = {}, threading.Lock()
        if not os.path.exists(self.root):
            openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.key)
            openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.leaf_key)
            openssl("req", "-x509", "-new", "-key", self.key, "-days", "30", "-subj", "/CN=Test authority", "-out", self.root,
                    "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def context(self, name):
        """A server context whose certificate is for `name` (a host name or an address)."""
        with self.lock:
            if name not in self.leaves:
                self.leaves[name] = self.mint(name)
            return self.leaves[name]

    def mint(self, name):
        base = os.path.join(self.folder, "leaf-" + "".join(c if c.isalnum() or c in ".-" else "_" for c in name))
        with open(base + ".ext", "w", encoding="ascii") as file:
            file.write("subjectAltName=%s:%s\nextendedKeyUsage=serverAuth\nkeyUsage=critical,digitalSignature\n"
                       "basicConstraints=critical,CA:FALSE\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
                       % ("IP" if is_address(name) else "DNS", name))
        request = openssl("req", "-new", "-key", self.leaf_key, "-subj", "/CN=" + name[:60])
        leaf = openssl("x509", "-req", "-CA", self.root, "-CAkey", self.key, "-set_serial", str(time.time_ns()), "-days", "7",
                       "-extfile", base + ".ext", stdin=request)
        with open(base + ".pem", "wb") as file:
            file.write(leaf)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(base + ".pem", self.leaf_key)
        context.set_alpn_protocols(["http/1.1"])
        return context


def is_address(name):
    try:
        ipaddress.ip_address(name)
        return True
    except ValueError:
        return False


def openssl(*arguments, stdin=None):
    done = subprocess.run(["openssl", *arguments], input=stdin, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError("openssl %s: %s" % (arguments[0], done.stderr.decode("utf-8", "replace").strip()))
    return done.stdout


def looks_like_tls(connection):
    """True when the first byte that the client sent opens a TLS handshake; waits for it."""
    return connection.recv(1, socket.MSG_PEEK) == b"\x16"


def server_name(connection):
    """The SNI of the ClientHello that waits on `connection`, or None. Reads nothing away; the hello may come in pieces."""
    hello = b""
    for _ in range(200):
        hello = connection.recv(16384, socket.MSG_PEEK)
        if not hello or len(hello) >= 5 and len(hello) >= 5 + struct.unpack(">H", hello[3:5])[0]:
            break
        time.sleep(0.005)
    try:
        at = 43
        at += 1 + hello[at]
        at += 2 + struct.unpack(">H", hello[at:at + 2])[0]
        at += 1 + hello[at]
        end = at + 2 + struct.unpack(">H", hello[at:at + 2])[0]
        at += 2
        while at + 4 <= min(end, len(hello)):
            kind, length = struct.unpack(">HH", hello[at:at + 4])
            if kind == 0:
                return hello[at + 9:at + 4 + length].decode("ascii", "replace")
            at += 4 + length
    except (IndexError, struct.error):
        pass
    return None
