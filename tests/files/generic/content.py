"""Reading, writing, maps; directly and asynchronously, too."""

import mmap
import os
import random
import resource
import signal
import subprocess
import threading

from means import *


@case
def g013_at_random_by_several():
    """Several work at random in one tree; each on names of its own, so that the end is known."""

    def work(seed):
        chance = random.Random(seed)
        for n in range(150):
            name = f"p{seed}-{chance.randrange(12)}"
            kind = chance.randrange(8)
            try:
                if kind == 0:
                    os.mkdir(name)
                elif kind == 1:
                    os.rmdir(name)
                elif kind == 2:
                    os.remove(name)
                elif kind == 3:
                    os.rename(name, f"p{seed}-{chance.randrange(12)}")
                elif kind == 4:
                    os.link(name, f"p{seed}-{chance.randrange(12)}")
                elif kind == 5:
                    os.symlink(f"p{seed}-t", name)
                elif kind == 6:
                    with open(name, "r+b") as file:
                        file.seek(chance.randrange(9000))
                        file.write(bytes_of(n, 500))
                else:
                    put(name, bytes_of(n, chance.randrange(9000)))
            except OSError:
                pass

    return at_once(*[lambda seed=seed: work(seed) for seed in range(4)]), listing()


@case
def g014_holes_by_truncation():
    chance = random.Random(14)
    model = bytearray()
    with open("f", "w+b") as file:
        for n in range(300):
            size = chance.randrange(100_000)
            os.ftruncate(file.fileno(), size)
            model[size:] = b""
            model.extend(bytes(size - len(model)))
            at = chance.randrange(size + 1)
            os.pwrite(file.fileno(), b"mark%03d" % n, at)
            model.extend(bytes(max(0, at + 7 - len(model))))
            model[at:at + 7] = b"mark%03d" % n
        return get("f") == model, digest(bytes(model))


@case
def g029_g030_maps_and_truncation():
    """What lies behind the end in the last page is zero when the file grows again."""
    with open("f", "w+b") as file:
        file.write(b"a" * 5000)
        file.flush()
        os.ftruncate(file.fileno(), 2 * PAGE)
        area = mmap.mmap(file.fileno(), 2 * PAGE)
        os.ftruncate(file.fileno(), 5000)
        area[5000:5010] = b"b" * 10
        os.ftruncate(file.fileno(), 4000)
        os.ftruncate(file.fileno(), 8192)
        seen = set(area[4000:8192])
        area.flush()
        area.close()
    data = get("f")
    return sorted(seen), digest(data), set(data[4000:]) == {0}


@case
def g069_append_by_several():
    def work(who):
        fd = os.open("log", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        for n in range(200):
            os.write(fd, f"{who}{n:04}\n".encode())
        os.close(fd)

    errors = at_once(*[lambda who=who: work(who) for who in "abcdef"])
    lines = get("log").decode().split()
    return errors, len(lines), len(set(lines)), {who: [line for line in lines if line[0] == who] == sorted(line for line in lines if line[0] == who) for who in "abcdef"}


@case
def g169_append_and_size():
    put("f", b"12345")
    fd = os.open("f", os.O_APPEND | os.O_RDWR)
    with mmap.mmap(fd, 5) as area:
        area[0:1] = b"X"
        os.write(fd, b"67")
        # Linux appends whatever the offset.
        os.pwrite(fd, b"8", 0)
        size = os.fstat(fd).st_size
    os.close(fd)
    return size, get("f").decode()


def _random_file(seed, direct=False, maps=False, operations=400):
    """One file at random against a model in memory."""
    chance = random.Random(seed)
    limit, model = 256 << 10, bytearray()
    unit = PAGE if direct else 1
    fd = os.open("f", os.O_CREAT | os.O_RDWR | (os.O_DIRECT if direct else 0), 0o600)
    side = os.open("f", os.O_RDWR)
    area = None

    def grow(to):
        model.extend(bytes(max(0, to - len(model))))

    for number in range(operations):
        offset = chance.randrange(limit // unit) * unit
        length = chance.randrange(1, 32_000 // unit + 2) * unit
        kind = chance.choice(("write", "write", "read", "read", "truncate", "punch", "zero", "grow", "map", "copy", "reopen"))
        if kind == "write":
            buffer = aligned(length, number % 251 + 1)
            os.pwritev(fd, [buffer], offset)
            grow(offset + length)
            model[offset:offset + length] = buffer
        elif kind == "read":
            buffer = aligned(length)
            got = os.preadv(fd, [buffer], offset)
            if bytes(buffer[:got]) != bytes(model[offset:offset + length]):
                return f"differs at operation {number}: {kind} {offset} {length} {got}"
        elif kind == "truncate":
            os.ftruncate(fd, offset)
            del model[offset:]
            grow(offset)
        elif kind == "punch" and offset < len(model):
            fallocate(fd, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, offset, length)
            end = min(len(model), offset + length)
            model[offset:end] = bytes(end - offset)
        elif kind == "zero" and told(fallocate, fd, FALLOC_ZERO, offset, length) == "ok":
            grow(offset + length)
            model[offset:offset + length] = bytes(length)
        elif kind == "grow":
            fallocate(fd, 0, offset, length)
            grow(offset + length)
        elif kind == "map" and maps and len(model) > offset:
            with mmap.mmap(side, len(model)) as area:
                end = min(len(model), offset + length)
                if area[offset:end] != bytes(model[offset:end]):
                    return f"a map differs at operation {number}: {offset} {length}"
                area[offset:end] = bytes([number % 251 + 1]) * (end - offset)
                model[offset:end] = bytes([number % 251 + 1]) * (end - offset)
        elif kind == "copy" and not direct:
            target = chance.randrange(limit)
            if target + length <= offset or target >= offset + length:
                copied = os.copy_file_range(fd, fd, length, offset, target) if offset < len(model) else 0
                if copied:
                    grow(target + copied)
                    model[target:target + copied] = model[offset:offset + copied]
        elif kind == "reopen":
            os.close(fd)
            fd = os.open("f", os.O_RDWR | (os.O_DIRECT if direct else 0))
        if os.fstat(fd).st_size != len(model):
            return f"size differs at operation {number}: {kind} {offset} {length}: {os.fstat(fd).st_size} {len(model)}"
    os.close(fd)
    os.close(side)
    return get("f") == bytes(model), digest(bytes(model))


@case
def g075_a_file_at_random():
    return _random_file(75)


@case
def g091_a_file_at_random_directly():
    return _random_file(91, direct=True)


@case
def g127_a_file_at_random_with_maps():
    return _random_file(127, maps=True)


@case
def g263_a_file_at_random_directly_with_maps():
    return _random_file(263, direct=True, maps=True)


@case
def g080_g215_writing_through_a_map_moves_times():
    put("f", b"x" * 100)
    os.utime("f", ns=(0, 0))

    def write():
        with open("f", "r+b") as file:
            with mmap.mmap(file.fileno(), 100) as area:
                area[5] = 1
                area.flush()

    return [name for name in moved("f", write) if name != "atime"], get("f")[5]


@case
def g086_direct_and_mapped():
    """What is written directly is seen in a map, and the other way round."""
    put("f", bytes(4 * PAGE))
    direct = os.open("f", os.O_RDWR | os.O_DIRECT)
    plain = os.open("f", os.O_RDWR)
    seen = []
    with mmap.mmap(plain, 4 * PAGE) as area:
        for n in range(20):
            os.pwritev(direct, [aligned(PAGE, n + 1)], n % 4 * PAGE)
            seen.append(area[n % 4 * PAGE] == n + 1 and os.pread(plain, 1, n % 4 * PAGE) == bytes([n + 1]))
            area[n % 4 * PAGE + 7] = 200
            area.flush()
            buffer = aligned(PAGE)
            os.preadv(direct, [buffer], n % 4 * PAGE)
            seen.append(buffer[7] == 200)
    os.close(direct)
    os.close(plain)
    return all(seen), digest(get("f"))


@case
def g129_g130_vectors():
    fd = os.open("f", os.O_CREAT | os.O_RDWR, 0o600)
    written = os.writev(fd, [b"a" * 1000, b"", b"b" * 3, b"c" * 5000])
    os.pwritev(fd, [b"x", b"y"], 998)
    one, two = bytearray(999), bytearray(10)
    got = os.preadv(fd, [one, two], 0)
    end = os.preadv(fd, [bytearray(10)], written), os.pread(fd, 10, written + 100)
    os.close(fd)
    return written, got, bytes(two).decode(), len(end[1]), end[0]


@case
def g141_g749_a_map_ends_with_its_file():
    """Behind the last page there is nothing: SIGBUS."""
    put("f", b"x" * 100)

    def touch(at):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGBUS, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with open("f", "r+b") as file:
                os.ftruncate(file.fileno(), 2 * PAGE)
                area = mmap.mmap(file.fileno(), 2 * PAGE)
                os.ftruncate(file.fileno(), 100)
                _ = area[at]
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    return touch(50), touch(PAGE - 1), touch(PAGE)


@case
def g246_g247_g248_from_a_map_of_itself():
    """Writing from a map of the same file, the same page even."""
    with open("f", "w+b") as file:
        file.write(bytes_of(248, 4 * PAGE))
        file.flush()
        area = mmap.mmap(file.fileno(), 4 * PAGE)
        view = memoryview(area)
        os.pwrite(file.fileno(), view[:PAGE], 2 * PAGE)
        os.pwrite(file.fileno(), view[100:600], 100)
        os.pwrite(file.fileno(), view[PAGE:PAGE + 50], 0)
        view.release()
        area.close()
    return digest(get("f"))


@case
def g249_sendfile_and_splice():
    put("f", bytes_of(249, 300_000))
    source = os.open("f", os.O_RDONLY)
    target = os.open("g", os.O_CREAT | os.O_RDWR, 0o600)
    sent = 0
    while (now := os.sendfile(target, source, sent, 300_000)) > 0:
        sent += now
    reading, writing = os.pipe()
    spliced = 0
    third = os.open("h", os.O_CREAT | os.O_RDWR, 0o600)
    while (now := os.splice(source, writing, 65536, offset_src=spliced)) > 0:
        spliced += now
        while now:
            now -= os.splice(reading, third, now)
    for fd in (source, target, third, reading, writing):
        os.close(fd)
    return sent, spliced, get("f") == get("g") == get("h")


@case
def g394_limits_of_size():
    def write():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        fd = os.open("f", os.O_CREAT | os.O_RDWR, 0o600)
        return [told(os.pwrite, fd, b"x" * 6000, 0), told(os.pwrite, fd, b"x" * 6000, 6000), told(os.pwrite, fd, b"x", 10_000), told(os.ftruncate, fd, 10_001), told(os.ftruncate, fd, 10_000), told(fallocate, fd, 0, 0, 20_000), os.fstat(fd).st_size]

    return in_child(write)


@case
def g412_g525_far_offsets():
    fd = os.open("f", os.O_CREAT | os.O_RDWR, 0o600)
    far = (1 << 40) - 1
    found = told(os.pwrite, fd, b"far", far), os.fstat(fd).st_size == far + 3, os.pread(fd, 10, far).decode()
    negative = told(os.lseek, fd, -1, os.SEEK_SET), told(os.ftruncate, fd, -1)
    os.close(fd)
    # A terabyte, sparse, is nothing to copy.
    os.truncate("f", 5)
    return found, negative, len(get("f"))


@case
def g437_private_maps():
    put("f", b"original")
    with open("f", "r+b") as file:
        area = mmap.mmap(file.fileno(), 8, flags=mmap.MAP_PRIVATE)
        area[0:4] = b"mine"
        mine = area[:].decode()
        os.pwrite(file.fileno(), b"AL", 6)
        area.close()
    return mine, get("f").decode()


@case
def g443_writing_nothing():
    fd = os.open("f", os.O_CREAT | os.O_RDWR, 0o600)
    os.utime("f", ns=(0, 0))
    found = os.write(fd, b""), os.writev(fd, [b"", b""]), os.pwrite(fd, b"", 100), os.fstat(fd).st_size, os.stat("f").st_mtime
    os.close(fd)
    return found


@case
def g452_a_program_is_run_as_it_is_now():
    put("p", b"#!/bin/sh\necho one\n")
    os.chmod("p", 0o755)
    first = subprocess.check_output(["./p"])
    put("p", b"#!/bin/sh\necho two\n")
    second = subprocess.check_output(["./p"])
    put("q", b"#!/bin/sh\necho three\n")
    os.chmod("q", 0o755)
    os.rename("q", "p")
    third = subprocess.check_output(["./p"])
    os.chmod("p", 0o644)
    return [text.decode() for text in (first, second, third)], told(subprocess.check_output, ["./p"])


@case
def g471_reading_without_waiting():
    put("f", b"x" * 100)
    fd = os.open("f", os.O_RDONLY)
    os.pread(fd, 100, 0)
    buffer = bytearray(10)
    answer = told(os.preadv, fd, [buffer], 0, os.RWF_NOWAIT)
    os.close(fd)
    return answer in (10, "EAGAIN", "ENOTSUP")


@case
def g591_splice_leaves_the_rest():
    put("f", b"abcdefgh")
    fd = os.open("f", os.O_RDONLY)
    reading, writing = os.pipe()
    os.splice(fd, writing, 8)
    first = os.read(reading, 3)
    rest = os.read(reading, 10)
    for one in (fd, reading, writing):
        os.close(one)
    return first.decode(), rest.decode()


@case
def g609_direct_around_the_end():
    put("f", b"x" * 100)
    fd = os.open("f", os.O_RDWR | os.O_DIRECT)
    buffer = aligned(2 * PAGE)
    got = os.preadv(fd, [buffer], 0), told(os.preadv, fd, [buffer], PAGE)
    os.pwritev(fd, [aligned(PAGE, 7)], 0)
    size = os.fstat(fd).st_size
    os.pwritev(fd, [aligned(PAGE, 8)], 3 * PAGE)
    os.close(fd)
    return got, size, digest(get("f"))


@case
def g615_what_was_written_takes_room():
    put("f", b"x" * 200_000)
    return os.stat("f").st_blocks > 0


@case
def g638_g647_maps_of_one_file_by_two():
    """Two processes share a map."""
    put("f", bytes(2 * PAGE))
    with open("f", "r+b") as file:
        area = mmap.mmap(file.fileno(), 2 * PAGE)

        def write():
            with open("f", "r+b") as again:
                with mmap.mmap(again.fileno(), 2 * PAGE) as other:
                    other[10:15] = b"child"
            return "done"

        answer = in_child(write)
        seen = area[10:15].decode()
        area[20:26] = b"parent"
        area.close()
    return answer, seen, get("f")[10:26].replace(b"\0", b".").decode()

@case
def g112_g113_g207_g210_g211_g212_asynchronous():
    fd = os.open("f", os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600)
    queue = Aio()
    wrote = queue.run([(fd, True, aligned(PAGE, n + 1), n * PAGE) for n in range(20)])
    size = os.fstat(fd).st_size
    buffers = [aligned(PAGE) for _ in range(22)]
    read = queue.run([(fd, False, buffer, n * PAGE) for n, buffer in enumerate(buffers)])
    right = all(bytes(buffers[n]) == bytes([n + 1]) * PAGE for n in range(20))
    queue.close()
    os.close(fd)
    return wrote, size, read, right


@case
def g239_g240_asynchronous_into_holes():
    fd = os.open("f", os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600)
    os.ftruncate(fd, 64 * PAGE)
    queue = Aio()
    queue.run([(fd, True, aligned(PAGE, 5), n * 3 * PAGE) for n in range(20)])
    queue.close()
    os.close(fd)
    return digest(get("f"))


@case
def g465_growing_while_it_is_read():
    """A reader sees only what was written."""
    stop = threading.Event()
    fd = os.open("f", os.O_CREAT | os.O_RDWR, 0o600)

    def write():
        for _ in range(200):
            os.write(fd, b"k" * 1000)
        stop.set()

    def read():
        other = os.open("f", os.O_RDONLY)
        while not stop.is_set():
            data = os.pread(other, 1 << 20, 0)
            assert set(data) <= {ord("k")}, "bytes that nobody wrote"
        os.close(other)

    errors = at_once(write, read)
    os.close(fd)
    return errors, os.stat("f").st_size
