"""A witness's log: one JSON object a line, each written whole before the next, so that a reader may look at any time."""
import base64
import hashlib
import json
import sys
import threading
import time


class Log:
    def __init__(self, path):
        self.file = open(path, "a", buffering=1, encoding="utf-8") if path else sys.stderr
        self.lock = threading.Lock()

    def __call__(self, **record):
        line = json.dumps({"at": round(time.time(), 4), **record}, ensure_ascii=False) + "\n"
        with self.lock:
            self.file.write(line)


def body(raw):
    """What a witness says about bytes: how many, their digest, and all of them (as text where they are text)."""
    said = {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    try:
        said["text"] = raw.decode("utf-8")
    except UnicodeDecodeError:
        said["base64"] = base64.b64encode(raw).decode()
    return said
