"""Allocation, holes, copies of ranges; attributes and times."""

import ctypes
import os
import shutil

from means import *


@case
def g008_g009_g033_zeroing():
    put("f", b"x" * 20_000)
    fd = os.open("f", os.O_RDWR)
    answers = [told(fallocate, fd, FALLOC_ZERO, 100, 5000), told(fallocate, fd, FALLOC_ZERO | FALLOC_KEEP_SIZE, 19_000, 9000), os.fstat(fd).st_size, told(fallocate, fd, FALLOC_ZERO, 19_000, 9000), os.fstat(fd).st_size]
    os.close(fd)
    return answers, digest(get("f"))


@case
def g031_g060_collapse_and_insert():
    """Either done right or refused, and then nothing has changed."""
    put("f", bytes_of(31, 4 * PAGE))
    before = get("f")
    fd = os.open("f", os.O_RDWR)
    collapsed, inserted = told(fallocate, fd, FALLOC_COLLAPSE, PAGE, PAGE), None
    middle = get("f")
    right = middle == (before if collapsed != "ok" else before[:PAGE] + before[2 * PAGE:])
    inserted = told(fallocate, fd, FALLOC_INSERT, PAGE, PAGE)
    right = right and get("f") == (middle if inserted != "ok" else middle[:PAGE] + bytes(PAGE) + middle[PAGE:])
    os.close(fd)
    return right


@case
def g071_g092_allocation_beyond_the_end():
    fd = os.open("f", os.O_CREAT | os.O_RDWR, 0o600)
    os.write(fd, b"head")
    answers = [told(fallocate, fd, FALLOC_KEEP_SIZE, 0, 100_000), os.fstat(fd).st_size, told(fallocate, fd, 0, 0, 100_000), os.fstat(fd).st_size, told(fallocate, fd, 0, 0, 0), told(fallocate, fd, 0, -1, 5), told(fallocate, fd, FALLOC_PUNCH_HOLE, 0, 5)]
    os.close(fd)
    fd = os.open("f", os.O_RDONLY)
    answers.append(told(fallocate, fd, 0, 0, 10))
    os.close(fd)
    os.mkfifo("p")
    fd = os.open("p", os.O_RDWR)
    answers.append(told(fallocate, fd, 0, 0, 10))
    os.close(fd)
    return answers, digest(get("f"))


@case
def g124_g125_allocated_and_written():
    fd = os.open("f", os.O_CREAT | os.O_RDWR, 0o600)
    fallocate(fd, 0, 0, 1 << 20)
    for n in range(0, 1 << 20, 1 << 16):
        os.pwrite(fd, bytes_of(n, 1 << 15), n)
    for n in range(20):
        os.ftruncate(fd, (1 << 20) - n * 5000)
        os.pwrite(fd, b"end", (1 << 20) - n * 5000 - 3)
    os.close(fd)
    return digest(get("f"))


@case
def g255_g316_holes_are_zeros():
    put("f", b"x" * 40_000)
    fd = os.open("f", os.O_RDWR)
    for offset, length in ((0, 10), (4096, 4096), (10_001, 8000), (39_990, 5000)):
        fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, offset, length)
    os.close(fd)
    return os.stat("f").st_size, digest(get("f"))


@case
def g285_g286_g448_g490_seeking_data_and_holes():
    fd = os.open("f", os.O_CREAT | os.O_RDWR, 0o600)
    empty = told(os.lseek, fd, 0, os.SEEK_DATA), told(os.lseek, fd, 0, os.SEEK_HOLE)
    os.pwrite(fd, b"d" * 100, 0)
    small = told(os.lseek, fd, 0, os.SEEK_DATA), told(os.lseek, fd, 50, os.SEEK_DATA), told(os.lseek, fd, 0, os.SEEK_HOLE), told(os.lseek, fd, 100, os.SEEK_DATA), told(os.lseek, fd, 100, os.SEEK_HOLE), told(os.lseek, fd, -1, os.SEEK_DATA)
    os.pwrite(fd, b"e" * 100, 1 << 20)
    os.ftruncate(fd, 3 << 20)
    data = os.lseek(fd, 65536, os.SEEK_DATA)
    hole = os.lseek(fd, 0, os.SEEK_HOLE)
    # Where they begin depends on the size of blocks; that data is found does not.
    large = 65536 <= data <= 1 << 20, 100 <= hole <= 65536, told(os.lseek, fd, 2 << 20, os.SEEK_DATA), told(os.lseek, fd, 2 << 20, os.SEEK_HOLE) == 2 << 20, told(os.lseek, fd, 4 << 20, os.SEEK_HOLE)
    os.close(fd)
    return empty, small, large


@case
def g315_g469_room_goes_with_truncation():
    fd = os.open("f", os.O_CREAT | os.O_RDWR, 0o600)
    fallocate(fd, FALLOC_KEEP_SIZE, 0, 1 << 20)
    more = os.fstat(fd).st_blocks
    os.ftruncate(fd, 0)
    less = os.fstat(fd).st_blocks
    os.close(fd)
    return more * 512 >= 1 << 20, less


@case
def g430_to_g434_copying_ranges():
    put("f", bytes_of(430, 50_000))
    source, target = os.open("f", os.O_RDWR), os.open("g", os.O_CREAT | os.O_RDWR, 0o600)
    answers = [
        told(os.copy_file_range, source, target, 50_000, 0, 0),
        told(os.copy_file_range, source, target, 1000, 49_500, 60_000),
        told(os.copy_file_range, source, target, 10, 50_000, 0),
        told(os.copy_file_range, source, source, 1000, 0, 30_000),
        told(os.copy_file_range, source, source, 1000, 0, 500),
        told(os.copy_file_range, source, target, 0, 0, 0),
    ]
    reading, appending = os.open("f", os.O_RDONLY), os.open("g", os.O_WRONLY | os.O_APPEND)
    directory = os.open(".", os.O_RDONLY)
    answers += [
        told(os.copy_file_range, source, reading, 10, 0, 0),
        told(os.copy_file_range, appending, target, 10, 0, 0),
        told(os.copy_file_range, source, appending, 10, 0, 0),
        told(os.copy_file_range, source, directory, 10, 0, 0),
        told(os.copy_file_range, directory, target, 10, 0, 0),
    ]
    for fd in (source, target, reading, appending, directory):
        os.close(fd)
    return answers, digest(get("f")), digest(get("g"))


@case
def g564_g565_copying_between_file_systems():
    put("f", bytes_of(564, 10_000))
    source = os.open("f", os.O_RDONLY)
    memory = os.memfd_create("m")
    # Which pairs the kernel copies between depends on both; no wrong bytes is what counts.
    answer = told(os.copy_file_range, source, memory, 10_000, 0, 0)
    right = answer == "EXDEV" or os.pread(memory, answer, 0) == get("f")[:answer]
    os.close(source)
    os.close(memory)
    return right

@case
def g020_g037_g062_g117_attributes():
    put("f")
    os.mkdir("d")
    answers = []
    for path in ("f", "d"):
        # All of it fits where a file system has one block for it.
        for n in range(40):
            os.setxattr(path, f"user.n{n:02}", bytes_of(n, n))
        answers.append(sorted(os.listxattr(path)) == [f"user.n{n:02}" for n in range(40)])
        answers.append(all(os.getxattr(path, f"user.n{n:02}") == bytes_of(n, n) for n in range(40)))
        answers += [
            told(os.setxattr, path, "user.n00", b"again", os.XATTR_CREATE),
            told(os.setxattr, path, "user.new", b"", os.XATTR_REPLACE),
            told(os.setxattr, path, "user.n00", b"again", os.XATTR_REPLACE),
            os.getxattr(path, "user.n00").decode(),
            told(os.removexattr, path, "user.n00"),
            told(os.removexattr, path, "user.n00"),
            told(os.getxattr, path, "user.n00"),
            told(os.setxattr, path, "user.", b"v"),
            told(os.setxattr, path, "plain", b"v"),
            told(os.setxattr, path, "user." + "x" * 251, b"v"),
            told(os.setxattr, path, "user." + "x" * 250, b"v"),
            told(os.setxattr, path, "user.empty", b""),
            len(os.getxattr(path, "user.empty")),
            told(os.setxattr, path, "user.too-large", bytes(65537)),
        ]
    os.link("f", "g")
    answers.append(os.getxattr("g", "user.n05") == bytes_of(5, 5))
    os.rename("f", "h")
    answers.append(len(os.listxattr("h")))
    return answers


@case
def g337_g377_g403_attributes_that_look_alike():
    put("f")
    for name in ("user.a", "user.aa", "user.aaa", "user.a.b", "user.a b", "user.ä"):
        os.setxattr("f", name, name.encode())
    size = call("listxattr", b"f", None, 0)
    short = told(call, "listxattr", b"f", ctypes.create_string_buffer(3), 3)
    value = told(call, "getxattr", b"f", b"user.aaa", ctypes.create_string_buffer(3), 3)
    return sorted(os.listxattr("f")), size, short, value, os.getxattr("f", "user.aa").decode()


@case
def g489_g533_attributes_of_what_is_no_file():
    os.symlink("nowhere", "l")
    os.mkfifo("p")
    return [told(os.setxattr, name, "user.k", b"v", 0, follow_symlinks=False) for name in ("l", "p")] + [told(os.listxattr, name, follow_symlinks=False) for name in ("l", "p")]


@case
def g523_attributes_with_slashes():
    put("f")
    names = ("user.a/b", "user./", "user.a/../b", "user.\\x")
    for name in names:
        os.setxattr("f", name, name.encode())
    return sorted(os.listxattr("f")), [os.getxattr("f", name).decode() for name in names]


@case
def g621_attributes_survive_copies():
    put("f", b"x")
    os.setxattr("f", "user.k", b"v")
    os.utime("f", ns=(1_000_000_001, 2_000_000_002))
    os.chmod("f", 0o641)
    shutil.copy2("f", "g")
    return os.getxattr("g", "user.k").decode(), os.stat("g").st_mtime_ns, mode_of("g")


@case
def g192_times_of_access():
    """Reading never takes them back, and a set one stays until it is read."""
    put("f", b"x")
    os.utime("f", ns=(10**18, 10**18))
    stays = os.stat("f").st_atime_ns
    get("f")
    return stays, os.stat("f").st_atime_ns >= stays


@case
def g221_setting_times_moves_ctime():
    put("f")
    return [
        moved("f", lambda: os.utime("f", ns=(5, 7))),
        os.stat("f").st_atime_ns,
        os.stat("f").st_mtime_ns,
        moved("f", lambda: os.utime("f", ns=(5, 7))),
        moved("f", lambda: os.utime("f")),
    ]


@case
def g258_g402_times_at_the_edges():
    put("f")
    seen = []
    for seconds in (-1, 0, 1, 2**31 - 1, 2**31, 2**32, 1 - 2**31):
        for nanos in (0, 1, 999_999_999):
            wanted = seconds * 10**9 + nanos
            os.utime("f", ns=(wanted, wanted))
            seen.append(os.stat("f").st_mtime_ns == wanted == os.stat("f").st_atime_ns)
    return all(seen)


@case
def g313_truncation_moves_times():
    put("f", b"x" * 100)

    def by_handle(size):
        with open("f", "r+b") as file:
            os.ftruncate(file.fileno(), size)

    return [
        moved("f", lambda: os.truncate("f", 50)),
        moved("f", lambda: by_handle(200)),
        moved("f", lambda: by_handle(200)),
        moved("f", lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC))),
        moved("f", lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC))),
    ]


@case
def g423_g528_everything_stat_tells():
    os.umask(0o022)
    put("f", b"x" * 10)
    os.mkdir("d")
    os.symlink("f", "l")
    found = [os.lstat(name) for name in ("f", "d", "l")]
    size = [s.st_size for s, name in zip(found, "fdl") if name != "d"]
    return [oct(s.st_mode) for s in found], [s.st_nlink for s, name in zip(found, "fdl") if name != "d"], size, len({s.st_ino for s in found}), len({s.st_dev for s in found}), [s.st_uid == os.getuid() for s in found]


@case
def g755_unlinking_moves_ctime():
    put("f")
    os.link("f", "g")
    return moved("f", lambda: os.remove("g"))
