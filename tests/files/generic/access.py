"""Access lists."""

import os
import struct

from means import *


def acl(*entries):
    """An access list in the kernel's form, of (tag, rights, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, rights, number) for tag, rights, number in entries)


USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHERS, NONE = 1, 2, 4, 8, 16, 32, 0xFFFFFFFF
ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"


def shown(path, name=ACCESS):
    value = told(os.getxattr, path, name)
    return value if isinstance(value, str) else list(struct.iter_unpack("<HHI", value[4:]))


@case
def g105_g237_g307_access_lists():
    put("f", b"x")
    os.chmod("f", 0o640)
    given = acl((USER_OBJ, 6, NONE), (USER, 4, NOBODY), (GROUP_OBJ, 4, NONE), (MASK, 6, NONE), (OTHERS, 0, NONE))
    answers = [shown("f"), moved("f", lambda: os.setxattr("f", ACCESS, given)), shown("f"), mode_of("f")]
    answers += [as_user(NOBODY, NOBODY, lambda: get("f").decode()), as_user(OTHER, OTHER, lambda: get("f").decode()), as_user(NOBODY, NOBODY, lambda: put("f", b"w"))]
    os.chmod("f", 0o600)
    answers += [shown("f"), mode_of("f"), as_user(NOBODY, NOBODY, lambda: get("f").decode())]
    os.chmod("f", 0o660)
    answers += [shown("f"), as_user(NOBODY, NOBODY, lambda: get("f").decode())]
    answers += [as_user(NOBODY, NOBODY, lambda: os.setxattr("f", ACCESS, given)), told(os.setxattr, "f", ACCESS, b"nonsense"), told(os.setxattr, "f", DEFAULT, given)]
    answers += [told(os.setxattr, "f", ACCESS, acl((USER_OBJ, 7, NONE), (GROUP_OBJ, 5, NONE), (OTHERS, 1, NONE))), shown("f"), mode_of("f")]
    answers += [told(os.setxattr, "f", ACCESS, given), told(os.removexattr, "f", ACCESS), shown("f"), mode_of("f"), told(os.removexattr, "f", ACCESS)]
    return answers


@case
def g099_g319_g375_lists_that_are_passed_on():
    os.umask(0o022)
    os.mkdir("d", 0o755)
    passed = acl((USER_OBJ, 7, NONE), (USER, 6, NOBODY), (GROUP_OBJ, 5, NONE), (MASK, 7, NONE), (OTHERS, 4, NONE))
    answers = [told(os.setxattr, "d", DEFAULT, passed), shown("d", DEFAULT), mode_of("d")]
    os.close(os.open("d/f", os.O_CREAT, 0o666))
    os.close(os.open("d/narrow", os.O_CREAT, 0o600))
    os.mkdir("d/sub", 0o777)
    os.mkfifo("d/p", 0o666)
    os.symlink("f", "d/l")
    for name in ("d/f", "d/narrow", "d/sub", "d/p"):
        answers.append([name, mode_of(name), shown(name), shown(name, DEFAULT)])
    answers.append(told(os.removexattr, "d", DEFAULT))
    os.close(os.open("d/plain", os.O_CREAT, 0o666))
    answers.append([shown("d", DEFAULT), mode_of("d/plain"), shown("d/plain")])
    return answers


@case
def g026_g444_large_lists():
    put("f", b"x")
    given = acl((USER_OBJ, 6, NONE), *[(USER, 4, 1000 + n) for n in range(100)], (GROUP_OBJ, 0, NONE), *[(GROUP, 2, 2000 + n) for n in range(50)], (MASK, 6, NONE), (OTHERS, 0, NONE))
    return told(os.setxattr, "f", ACCESS, given), told(lambda: os.getxattr("f", ACCESS) == given), mode_of("f")
