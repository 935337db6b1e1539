"""What cases are made of."""

import ctypes
import errno
import hashlib
import json
import mmap
import os
import platform
import random
import stat
import struct
import threading
import time


CASES = {}
LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
NOBODY = 65534
OTHER = 1
PAGE = mmap.PAGESIZE
RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_COLLAPSE, FALLOC_ZERO, FALLOC_INSERT = 1, 2, 8, 16, 32


def case(function):
    """A case; its name is the function's."""
    CASES[function.__name__] = function
    return function


def told(action, *arguments, **named):
    """What an action returns, or the name of its error."""
    try:
        result = action(*arguments, **named)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    return "ok" if result is None else result


def call(name, *arguments):
    """A function of the C library that sets errno."""
    ctypes.set_errno(0)
    result = getattr(LIBC, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def put(path, content=b"", mode="wb"):
    with open(path, mode) as file:
        file.write(content)


def get(path):
    with open(path, "rb") as file:
        return file.read()


def digest(data):
    return f"{len(data)} {hashlib.sha256(data).hexdigest()[:16]}"


def bytes_of(seed, length):
    return random.Random(seed).randbytes(length)


def fallocate(fd, mode, offset, length):
    call("fallocate", fd, mode, ctypes.c_long(offset), ctypes.c_long(length))


def renameat2(old, new, flags):
    call("renameat2", AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags)


def exists(*names):
    return [os.path.lexists(name) for name in names]


def mode_of(path):
    return oct(stat.S_IMODE(os.lstat(path).st_mode))


def times(path):
    found = os.lstat(path)
    return found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns


def moved(path, action):
    """Which of a path's three times an action moves."""
    before = times(path)
    # Longer than the coarsest clock of a file system here.
    time.sleep(0.02)
    result = told(action)
    after = times(path)
    return [result] + [name for name, old, new in zip(("atime", "mtime", "ctime"), before, after) if old != new]


def as_user(uid, gid, action, groups=()):
    """What an action returns for another user."""
    if os.getuid() != 0:
        return "needs root"

    def become():
        os.setgroups(list(groups))
        os.setgid(gid)
        os.setuid(uid)

    return _forked(action, become)


def in_child(action):
    """What an action returns in another process."""
    return as_user(os.getuid(), os.getgid(), action) if os.getuid() == 0 else _forked(action)


def _forked(action, become=lambda: None):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            become()
            result = json.dumps(told(action))
        except BaseException as error:
            result = json.dumps(f"raised {error!r}")
        os.write(writing, result.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


def at_once(*actions):
    """Runs actions in threads; their errors."""
    errors = []

    def guarded(action):
        try:
            action()
        except Exception as error:
            errors.append(repr(error))

    threads = [threading.Thread(target=guarded, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(errors)


def listing(path="."):
    """Everything below a directory, comparably."""
    lines = []
    for at, names, files in os.walk(path):
        for name in sorted(names + files):
            full = os.path.join(at, name)
            found = os.lstat(full)
            what = os.readlink(full) if stat.S_ISLNK(found.st_mode) else digest(get(full)) if stat.S_ISREG(found.st_mode) else ""
            lines.append(f"{full} {found.st_mode:o} {what}")
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16], len(lines)


class Aio:
    """Asynchronous input and output of the kernel, without a library."""

    NUMBERS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}

    def __init__(self, depth=32):
        self.setup, self.destroy, self.events, self.submit = self.NUMBERS[platform.machine()]
        self.context = ctypes.c_ulong(0)
        call("syscall", self.setup, depth, ctypes.byref(self.context))

    def run(self, requests):
        """Requests of (fd, write, buffer, offset); what each returned."""
        blocks, kept = [], []
        for number, (fd, write, buffer, offset) in enumerate(requests):
            address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
            block = ctypes.create_string_buffer(struct.pack("=QIIHhIQQqQII", number, 0, 0, int(write), 0, fd, address, len(buffer), offset, 0, 0, 0))
            kept.append(block)
            blocks.append(ctypes.addressof(block))
        table = (ctypes.c_ulong * len(blocks))(*blocks)
        given = call("syscall", self.submit, self.context, ctypes.c_long(len(blocks)), table)
        found = ctypes.create_string_buffer(32 * given)
        got = call("syscall", self.events, self.context, ctypes.c_long(given), ctypes.c_long(given), found, None)
        results = {}
        for n in range(got):
            number, _, result, _ = struct.unpack_from("=QQqq", found.raw, 32 * n)
            results[number] = result
        return [results.get(n) for n in range(given)]

    def close(self):
        call("syscall", self.destroy, self.context)


def aligned(length, fill=0):
    """Memory that direct input and output takes."""
    area = mmap.mmap(-1, max(length, PAGE))
    area[:length] = bytes([fill]) * length
    return memoryview(area)[:length]
