"""Who may do what, locks, and what programs are used to."""

import fcntl
import hashlib
import os
import shutil
import socket
import stat
import struct
import subprocess

from means import *


@case
def g087_g193_who_may_set_what():
    put("f", b"x")
    os.chmod("f", 0o666)
    put("own")
    if os.getuid() == 0:
        os.chown("own", NOBODY, NOBODY)

    def other():
        return [
            told(os.utime, "f"),
            told(os.utime, "f", ns=(1, 1)),
            told(os.chmod, "f", 0o777),
            told(os.chown, "f", NOBODY, -1),
            told(os.truncate, "f", 3),
            told(os.setxattr, "f", "user.k", b"v"),
            told(os.utime, "own", ns=(1, 1)),
            told(os.chmod, "own", 0o600),
            told(os.chown, "own", NOBODY, NOBODY),
            told(os.chown, "own", 0, -1),
            told(os.chown, "own", -1, 5),
        ]

    return as_user(NOBODY, NOBODY, other), mode_of("f"), mode_of("own"), os.stat("f").st_size


@case
def g088_g126_who_may_do_what():
    """Every mode for its owner, its group and others."""
    if os.getuid() != 0:
        return "needs root"
    lines = []
    for mode in range(8):
        for who, bits in (("owner", mode << 6), ("group", mode << 3), ("other", mode)):
            put("f", b"#!/bin/sh\nexit 0\n")
            os.mkdir("d")
            put("d/in")
            for name in ("f", "d"):
                os.chown(name, NOBODY if who == "owner" else OTHER, NOBODY if who == "group" else OTHER)
                os.chmod(name, bits)

            def tries():
                return [
                    told(lambda: len(get("f"))),
                    told(put, "f", b"#!/bin/sh\nexit 0\n", "ab"),
                    told(lambda: subprocess.call(["./f"])) if mode & 4 else "",
                    told(os.listdir, "d"),
                    told(lambda: os.stat("d/in").st_size),
                    told(put, "d/new"),
                    told(os.remove, "d/in"),
                    [os.access("f", right) for right in (os.R_OK, os.W_OK, os.X_OK)],
                    [os.access("d", right) for right in (os.R_OK, os.W_OK, os.X_OK)],
                ]

            lines.append([who, mode, as_user(NOBODY, NOBODY, tries)])
            os.chmod("d", 0o700)
            shutil.rmtree("d")
            os.remove("f")
    return lines


@case
def g123_sticky_directories():
    if os.getuid() != 0:
        return "needs root"
    os.mkdir("d")
    os.chmod("d", 0o1777)
    put("d/theirs")
    os.chmod("d/theirs", 0o666)

    def other():
        put("d/mine", b"m")
        return [told(os.remove, "d/theirs"), told(os.rename, "d/theirs", "d/x"), told(put, "d/theirs", b"w"), told(os.rename, "d/mine", "d/theirs"), told(os.remove, "d/mine")]

    return as_user(NOBODY, NOBODY, other), sorted(os.listdir("d"))


@case
def g193_g314_groups_and_their_bit():
    """A directory's group is that of what is made in it, if it says so."""
    os.umask(0o022)
    os.mkdir("d")
    if os.getuid() == 0:
        os.chown("d", -1, 5)
    os.chmod("d", 0o2775)
    put("d/f")
    os.mkdir("d/sub")
    os.symlink("x", "d/l")
    return [(mode_of(f"d/{name}"), os.lstat(f"d/{name}").st_gid) for name in ("f", "sub")]


@case
def g355_g683_bits_go_when_others_write():
    """The group's bit on a file that nobody can run is no right; it stays."""
    put("f", b"x")
    os.chmod("f", 0o2664)
    if os.getuid() == 0:
        os.chown("f", NOBODY, NOBODY)
    before = mode_of("f")

    def write():
        with open("f", "ab") as file:
            file.write(b"y")
        return "ok"

    answer = as_user(NOBODY, NOBODY, write)
    return before, answer, mode_of("f")


@case
def g184_special_files():
    answers = [told(os.mkfifo, "p", 0o640)]
    with socket.socket(socket.AF_UNIX) as bound:
        answers.append(told(bound.bind, "s"))
    answers.append(told(os.mknod, "r", 0o600 | stat.S_IFREG))
    answers.append(told(os.mkfifo, "p"))
    return answers, [oct(os.lstat(name).st_mode) for name in ("p", "s", "r")]


@case
def g598_umask_and_modes():
    answers = []
    for mask in (0, 0o022, 0o077, 0o777):
        os.umask(mask)
        os.close(os.open(f"f{mask}", os.O_CREAT, 0o666))
        os.mkdir(f"d{mask}", 0o777)
        os.mkfifo(f"p{mask}", 0o666)
        answers.append([mode_of(f"{kind}{mask}") for kind in "fdp"])
    os.umask(0o022)
    return answers

@case
def g131_g484_g504_locks_of_processes():
    put("f", b"x" * 100)
    mine = os.open("f", os.O_RDWR)
    fcntl.lockf(mine, fcntl.LOCK_EX, 10, 0)

    def other():
        fd = os.open("f", os.O_RDWR)
        return [
            told(fcntl.lockf, fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0),
            told(fcntl.lockf, fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 9),
            told(fcntl.lockf, fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 10),
        ]

    first = in_child(other)
    # Closing any descriptor of the file lets go of a process's locks.
    os.close(os.open("f", os.O_RDWR))
    second = in_child(other)
    os.close(mine)
    return first, second


@case
def g089_flock():
    put("f")
    one, two = os.open("f", os.O_RDWR), os.open("f", os.O_RDWR)
    fcntl.flock(one, fcntl.LOCK_SH)
    answers = [told(fcntl.flock, two, fcntl.LOCK_SH | fcntl.LOCK_NB), told(fcntl.flock, two, fcntl.LOCK_EX | fcntl.LOCK_NB)]
    fcntl.flock(one, fcntl.LOCK_UN)
    answers.append(told(fcntl.flock, two, fcntl.LOCK_EX | fcntl.LOCK_NB))
    os.close(two)
    answers.append(told(fcntl.flock, one, fcntl.LOCK_EX | fcntl.LOCK_NB))
    os.close(one)
    return answers


@case
def g478_locks_of_open_files():
    put("f", b"x" * 100)
    set_lock = 37
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 10, 0)
    one, two = os.open("f", os.O_RDWR), os.open("f", os.O_RDWR)
    answers = [told(lambda: fcntl.fcntl(one, set_lock, lock) and "ok"), told(lambda: fcntl.fcntl(two, set_lock, lock) and "ok")]
    os.close(one)
    answers.append(told(lambda: fcntl.fcntl(two, set_lock, lock) and "ok"))
    os.close(two)
    return answers


@case
def g571_leases():
    put("f")
    fd = os.open("f", os.O_RDONLY)
    answer = told(fcntl.fcntl, fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    os.close(fd)
    return answer


@case
def g010_a_small_data_base():
    import dbm.dumb

    with dbm.dumb.open("db", "c") as base:
        for n in range(200):
            base[str(n)] = bytes_of(n, 50)
        for n in range(0, 200, 3):
            del base[str(n)]
    with dbm.dumb.open("db", "r") as base:
        return len(base), all(base[str(n)] == bytes_of(n, 50) for n in range(200) if n % 3)


@case
def g004_g389_g509_files_without_a_name():
    """Made or refused; Python's `tempfile` works in any case."""
    import tempfile

    with tempfile.TemporaryFile(dir=".") as file:
        file.write(b"hidden")
        file.seek(0)
        works = file.read().decode(), os.listdir()
    answer = told(lambda: os.close(os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)))
    return works, answer


@case
def g100_an_archive_and_back():
    os.makedirs("from/deep/er")
    for n in range(30):
        put(f"from/deep/{n}", bytes_of(n, n * 300))
    os.link("from/deep/1", "from/hard")
    os.symlink("deep/2", "from/soft")
    os.chmod("from/deep/3", 0o4 << 3)
    subprocess.check_call(["tar", "-cf", "x.tar", "from"])
    os.mkdir("to")
    subprocess.check_call(["tar", "-xpf", "x.tar", "-C", "to"])
    return listing("from")[0] == (os.chdir("to") or listing("from")[0]), os.stat("from/hard").st_nlink


@case
def g420_g339_deep_trees():
    path = "."
    for n in range(100):
        path += f"/d{n}"
        os.mkdir(path)
    put(path + "/leaf", b"deep")
    os.rename("d0", "moved")
    deep = path.replace("./d0", "./moved")
    content = get(deep + "/leaf").decode()
    shutil.rmtree("moved")
    return content, os.listdir()


@case
def g453_g454_names_of_any_bytes():
    names = [b"\xc3\xa4", b"a\xcc\x88", b"\xff\xfe", b"A", b"a", b" ", b"\n", b"...", b"-rf", b"*", b"n" * 255]
    for name in names:
        put(name, name)
    wrong = [name for name in names if get(name) != name]
    return [name.hex()[:8] for name in sorted(os.listdir(b"."))], wrong, told(put, b"n" * 256), told(put, b"a" * 4096)


@case
def g488_g531_many_open_and_unlinked():
    files = []
    for n in range(400):
        fd = os.open("same", os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600)
        os.write(fd, str(n).encode())
        os.remove("same")
        files.append(fd)
    right = all(os.pread(fd, 9, 0) == str(n).encode() for n, fd in enumerate(files))
    for fd in files:
        os.close(fd)
    return right, os.listdir()


@case
def g524_a_large_file_read_by_pieces():
    put("f", bytes_of(524, 3 << 20))
    with open("f", "rb", buffering=0) as file:
        pieces = hashlib.sha256()
        for size in (1, 4095, 4096, 131_073) * 40:
            pieces.update(file.read(size))
        file.seek(-1000, os.SEEK_END)
        pieces.update(file.read())
    return pieces.hexdigest()


@case
def g632_directories_of_the_process_go_away():
    os.makedirs("a/b")

    def inside():
        os.chdir("a/b")
        os.rmdir("../b")
        return [told(os.listdir), told(put, "x"), told(os.mkdir, "y"), told(os.listdir, ".."), told(os.getcwd)]

    return in_child(inside), exists("a/b")


@case
def g732_a_place_is_made_again():
    """What was removed does not come back with its name."""
    seen = []
    for n in range(20):
        os.makedirs("d/sub")
        put("d/sub/f", str(n).encode())
        put("d/old" if n % 2 else "d/new", b"x")
        seen.append((sorted(os.listdir("d")), get("d/sub/f").decode()))
        shutil.rmtree("d")
    return seen[0], seen[1], seen[-1]
