#!/usr/bin/env python3
"""Writes to a file whose disk fails, and says what fsync says.

    failing.py PATH write|read PAGES BROKEN HEALED

Makes partial writes through one descriptor while another is open, checks that fsync fails once for
each, makes BROKEN, waits for HEALED, checks that fsync succeeds, but once not by a descriptor that was not told, and that all reads back.
`verify-write` and `verify-read` check the file on its own.
"""

import errno
import os
import random
import sys
import time

PAGE = 4096


def content(kind, pages):
    if kind == "write":
        return bytearray(pages * PAGE)
    # As patches.py makes it for seed 1.
    source = random.Random("content 1")
    return bytearray().join(source.randbytes(PAGE) for _ in range(pages))


def changes(pages):
    source = random.Random("failing")
    # The last pages: those are past what a shortened disk still has.
    for page in source.sample(range(pages // 2, pages), 200):
        yield page * PAGE + source.randrange(3000), source.randbytes(77)


def fsync_says(fd):
    try:
        os.fsync(fd)
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]


def main():
    path, action, pages, broken, healed = sys.argv[1:6]
    pages = int(pages)
    wanted = content(action.removeprefix("verify-"), pages)
    for offset, data in changes(pages):
        wanted[offset:offset + len(data)] = data
    if action.startswith("verify"):
        with open(path, "rb") as file:
            sys.exit(0 if file.read() == wanted else "the bytes differ")

    fd = os.open(path, os.O_RDWR)
    other = os.open(path, os.O_RDWR)
    silent = os.open(path, os.O_RDWR)
    for offset, data in changes(pages):
        if os.pwrite(fd, data, offset) != len(data):
            sys.exit("a short write")
    for which, descriptor in (("the writer's", fd), ("the other", other)):
        said = fsync_says(descriptor)
        if said not in ("EIO", "ENOSPC"):
            sys.exit(f"fsync of {which} descriptor says {said} while the disk fails")
    late = os.open(path, os.O_RDWR)
    open(broken, "w").close()
    deadline = time.monotonic() + 60
    while not os.path.exists(healed):
        if time.monotonic() > deadline:
            sys.exit("never healed")
        time.sleep(0.05)
    # Data that failed is retried after a pause, or at once by the next sync.
    deadline = time.monotonic() + 60
    while (said := fsync_says(fd)) != "ok":
        if time.monotonic() > deadline:
            sys.exit(f"fsync still says {said} long after the disk works again")
        time.sleep(0.2)
    if fsync_says(silent) == "ok":
        sys.exit("a descriptor was never told of the error")
    for descriptor in (other, late, silent):
        fsync_says(descriptor)
        said = fsync_says(descriptor)
        if said != "ok":
            sys.exit(f"an error is told twice through one descriptor: {said}")
    if os.pread(fd, len(wanted), 0) != wanted:
        sys.exit("the mount does not show what was written")


if __name__ == "__main__":
    main()
