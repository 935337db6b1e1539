"""Names, links, directories."""

import ctypes
import hashlib
import os
import random
import shutil
import socket
import stat
import subprocess
import sys
import threading

from means import *


@case
def g001_chains_of_copies():
    """Copies of copies, at random, stay what they were."""
    chance = random.Random(1)
    names = [f"f{n}" for n in range(8)]
    put(names[0], bytes_of(1, 50_000))
    there = {names[0]}
    for _ in range(150):
        source, target = chance.choice(sorted(there)), chance.choice(names)
        if source == target:
            os.rename(source, source + ".t")
            os.rename(source + ".t", target)
        elif chance.random() < 0.2 and len(there) > 1:
            os.remove(source)
            there.discard(source)
        else:
            shutil.copyfile(source, target)
            there.add(target)
    return sorted(there), sorted({digest(get(name)) for name in there})


@case
def g002_link_counts():
    put("f", b"x")
    counts = []
    for n in range(30):
        os.link("f", f"l{n}")
        counts.append(os.stat("f").st_nlink)
    for n in range(30):
        os.remove(f"l{n}")
        counts.append(os.stat("f").st_nlink)
    return counts


@case
def g005_loops_of_links():
    for n in range(45):
        os.symlink(f"s{n + 1}", f"s{n}")
    put("s45", b"end")
    os.symlink("me", "me")
    os.symlink("b", "a")
    os.symlink("a", "b")
    return [told(get, name) for name in ("s0", "s5", "s6", "me", "a")][:1] + [
        told(lambda: get("s6").decode()), told(get, "me"), told(get, "a"), told(os.mkdir, "me"), told(os.open, "me", os.O_CREAT, 0o600)]


@case
def g006_many_names_of_few_letters():
    letters = "abcd"
    names = ["".join(letters[(n >> 2 * k) & 3] for k in range(4)) for n in range(256)]
    for name in names:
        put(name)
    before = sorted(os.listdir()) == sorted(names)
    for name in names[::2]:
        os.remove(name)
    return before, sorted(os.listdir()) == sorted(names[1::2])


@case
def g007_names_at_random():
    chance = random.Random(7)
    there, log = set(), hashlib.sha256()
    for _ in range(2000):
        name = "n" * chance.randrange(1, 40) + str(chance.randrange(40))
        kind = chance.randrange(3)
        if kind == 0:
            result = told(lambda: os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)))
            there.add(name)
        elif kind == 1:
            result = told(os.remove, name)
            there.discard(name)
        else:
            result = os.path.exists(name)
        log.update(f"{name}{result}".encode())
    return log.hexdigest(), sorted(os.listdir()) == sorted(there)


@case
def g011_many_in_one_directory():
    """Several at once make, move and remove in one directory."""

    def work(who):
        for n in range(60):
            put(f"{who}-{n}", b"x")
            os.rename(f"{who}-{n}", f"{who}+{n}")
            if n % 3:
                os.remove(f"{who}+{n}")
            os.mkdir(f"{who}d{n}")
            os.rmdir(f"{who}d{n}")

    return at_once(*[lambda who=who: work(who) for who in "abcd"]), sorted(os.listdir())


@case
def g023_g024_g025_kinds_of_rename():
    """Every kind of rename over every kind of target."""

    def make(kind, name):
        if kind == "file":
            put(name, name.encode())
        elif kind == "empty":
            os.mkdir(name)
        elif kind == "full":
            os.mkdir(name)
            put(f"{name}/in", name.encode())
        elif kind == "link":
            os.symlink("elsewhere", name)
        elif kind == "pipe":
            os.mkfifo(name)

    kinds = ("none", "file", "empty", "full", "link", "pipe")
    lines = []
    for flag in (0, RENAME_NOREPLACE, RENAME_EXCHANGE):
        for one in kinds:
            for other in kinds:
                os.mkdir("w")
                make(one, "w/a")
                make(other, "w/b")
                result = told(renameat2, "w/a", "w/b", flag)
                lines.append(f"{flag} {one} {other} {result} {listing('w')}")
                shutil.rmtree("w")
    return lines, told(renameat2, "x", "y", RENAME_NOREPLACE | RENAME_EXCHANGE)


@case
def g028_current_directory_while_names_change():
    os.makedirs("a/b")
    stop = threading.Event()

    def rename():
        for n in range(200):
            os.rename("a", f"a{n}")
            os.rename(f"a{n}", "a")
        stop.set()

    # Whatever it says, it says something that was true.
    def look():
        script = "import os, sys\nos.chdir('a/b')\nfor _ in range(300):\n    assert os.getcwd().endswith('/b')"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        # The way in may be renamed just then.
        assert done.returncode == 0 or "FileNotFoundError" in done.stderr, done.stderr

    return at_once(rename, look)


@case
def g035_rename_over_what_is_open():
    put("f1", b"one")
    put("f2", b"two")
    fd = os.open("f2", os.O_RDONLY)
    os.rename("f1", "f2")
    file = os.fstat(fd).st_nlink, os.read(fd, 9).decode()
    os.mkdir("d1")
    os.mkdir("d2")
    directory = os.open("d2", os.O_RDONLY)
    os.rename("d1", "d2")
    found = file, os.fstat(directory).st_nlink, told(os.listdir, directory), told(os.mkdir, "x", dir_fd=directory)
    os.close(fd)
    os.close(directory)
    return found


@case
def g078_whiteouts():
    put("a", b"a")
    return told(renameat2, "a", "b", RENAME_WHITEOUT), exists("a", "b")


@case
def g084_unlinked_files_live_on():
    files = []
    for n in range(40):
        fd = os.open(f"u{n}", os.O_CREAT | os.O_RDWR, 0o600)
        os.write(fd, bytes_of(n, 3000))
        os.remove(f"u{n}")
        files.append(fd)
    os.sync()
    seen = []
    for n, fd in enumerate(files):
        os.pwrite(fd, b"more", 5000)
        data = os.pread(fd, 9000, 0)
        seen.append((os.fstat(fd).st_nlink, data[:3000] == bytes_of(n, 3000), len(data)))
        os.close(fd)
    return sorted(set(seen)), os.listdir()


@case
def g109_many_small_files():
    for n in range(500):
        put(f"f{n:03}", bytes_of(n, n * 7 % 4096))
    for n in range(0, 500, 3):
        os.rename(f"f{n:03}", f"r{n:03}")
    for n in range(1, 500, 3):
        os.remove(f"f{n:03}")
    return listing()


@case
def g236_a_link_moves_ctime():
    put("f")
    return moved("f", lambda: os.link("f", "g"))


@case
def g245_rename_over_a_full_directory():
    os.mkdir("a")
    os.makedirs("b/in")
    return told(os.rename, "a", "b"), exists("a", "b/in"), told(os.rename, "b", "b/in/x"), told(os.rmdir, "b"), told(os.remove, "b"), told(os.rmdir, "b/.")


@case
def g257_positions_of_a_listing():
    """Each name comes once, from any position."""
    for n in range(700):
        put(f"name{n}")
    names = sorted(os.listdir())
    with os.scandir() as entries:
        scanned = sorted(entry.name for entry in entries)
    return names == scanned, len(names), len(set(names))


@case
def g309_the_time_of_a_directory():
    os.mkdir("d")
    os.mkdir("e")
    put("d/f")
    answers = [
        moved("d", lambda: put("d/new")),
        moved("d", lambda: os.rename("d/new", "d/other")),
        moved("d", lambda: os.rename("d/other", "e/other")),
        moved("e", lambda: os.remove("e/other")),
        moved("d", lambda: os.mkdir("d/sub")),
        moved("d", lambda: os.rmdir("d/sub")),
        moved("d", lambda: os.symlink("x", "d/link")),
        moved("d", lambda: os.link("d/f", "d/hard")),
        moved("d", lambda: put("d/f", b"content")),
    ]
    return [[answer for answer in line if answer != "atime"] for line in answers]


@case
def g310_listing_while_names_come_and_go():
    for n in range(200):
        put(f"stays{n}")
    seen = []

    def change():
        for n in range(400):
            put(f"comes{n}")
            os.remove(f"comes{n}")

    def look():
        for _ in range(30):
            names = os.listdir()
            seen.append(len([name for name in names if name.startswith("stays")]))
            assert len(names) == len(set(names))

    return at_once(change, look), sorted(set(seen))


@case
def g360_links_of_any_length():
    lengths = (1, 59, 60, 255, 1000, 4095)
    for length in lengths:
        os.symlink("x" * length, f"l{length}")
    too_long = told(os.symlink, "x" * 4096, "l4096"), told(os.symlink, "", "none")
    return [len(os.readlink(f"l{length}")) for length in lengths], [os.lstat(f"l{length}").st_size for length in lengths], too_long


@case
def g401_kinds_in_a_listing():
    put("file")
    os.mkdir("dir")
    os.symlink("file", "link")
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("sock")
    with os.scandir() as entries:
        return sorted((e.name, e.is_file(follow_symlinks=False), e.is_dir(follow_symlinks=False), e.is_symlink(), oct(stat.S_IFMT(e.stat(follow_symlinks=False).st_mode))) for e in entries)


@case
def g637_a_listing_sees_what_was_added():
    os.mkdir("d")
    put("d/a")
    fd = os.open("d", os.O_RDONLY)
    first = sorted(os.listdir(fd))
    put("d/b")
    os.remove("d/a")
    os.lseek(fd, 0, os.SEEK_SET)
    second = sorted(os.listdir(fd))
    os.close(fd)
    return first, second


class Directory:
    """The C library's directory stream."""

    class Entry(ctypes.Structure):
        _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("length", ctypes.c_ushort), ("kind", ctypes.c_ubyte), ("name", ctypes.c_char * 256)]

    def __init__(self, path):
        LIBC.opendir.restype = ctypes.c_void_p
        LIBC.readdir.restype = ctypes.POINTER(self.Entry)
        LIBC.telldir.restype = ctypes.c_long
        self.stream = ctypes.c_void_p(LIBC.opendir(os.fsencode(path)))

    def next(self):
        entry = LIBC.readdir(self.stream)
        return entry.contents.name.decode() if entry else None

    def tell(self):
        return LIBC.telldir(self.stream)

    def seek(self, position):
        LIBC.seekdir(self.stream, ctypes.c_long(position))

    def close(self):
        LIBC.closedir(self.stream)


@case
def g676_seekdir_goes_back_to_where_it_was():
    for n in range(300):
        put(f"f{n}")
    stream = Directory(".")
    places = []
    while True:
        position = stream.tell()
        name = stream.next()
        if name is None:
            break
        places.append((position, name))
    random.Random(676).shuffle(places)
    wrong = 0
    for position, name in places:
        stream.seek(position)
        wrong += stream.next() != name
    # What is removed does not move what stays.
    for position, name in places[:100]:
        if name.startswith("f"):
            os.remove(name)
    for position, name in places[100:]:
        stream.seek(position)
        wrong += stream.next() != name
    stream.close()
    return len(places), wrong


@case
def g736_renaming_what_is_listed_ends():
    """A loop that renames each name it is given comes to an end."""
    for n in range(400):
        put(f"{n}")
    stream = Directory(".")
    count = 0
    while (name := stream.next()) is not None:
        if name not in (".", ".."):
            os.rename(name, "TEMP")
            os.rename("TEMP", name)
        count += 1
        if count > 40_000:
            return "does not end"
    stream.close()
    return len(os.listdir())
