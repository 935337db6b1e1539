#!/usr/bin/env python3
"""What a program may expect of a Linux file system, case by case: `python3 tests/files/generic DIRECTORY [CASE...]`.

Each case works in a directory of its own and returns what it saw; one line a case is printed, `NAME JSON`. The test runs it on a tree
of ours and on the plain disk and compares. Topics are those of the quick group of xfstests' generic tests, whose numbers the names
have; the programs are written anew. Nothing that a case returns may depend on time, inode numbers or chance.
"""

import json
import os
import signal
import sys
import time
import traceback

import access
import content
import names
import rights
import room
from means import CASES


def main():
    root, wanted = sys.argv[1], sys.argv[2:] or list(CASES)
    root = os.path.abspath(root)
    # The whole case, and what it starts, has a known mask; and nobody waits for ever.
    signal.alarm(600)
    for name in wanted:
        os.umask(0o022)
        place = os.path.join(root, name)
        os.mkdir(place)
        os.chmod(place, 0o777)
        os.chdir(place)
        begun = time.monotonic()
        try:
            result = json.dumps(CASES[name](), sort_keys=True)
        except BaseException:
            result = "RAISED " + traceback.format_exc().strip().replace("\n", " | ")
        os.chdir(root)
        print(f"{name}: {time.monotonic() - begun:.2f} s", file=sys.stderr, flush=True)
        print(name, result, flush=True)


if __name__ == "__main__":
    main()
