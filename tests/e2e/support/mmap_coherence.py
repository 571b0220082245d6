#!/usr/bin/env python3
"""Shared mappings against read(2) and write(2) on the same file, in one process and in two.

    mmap_coherence.py PATH ROUNDS SEED

Each round writes at a random place either through the mapping or by pwrite, then checks that the
other side, another descriptor and another process's mapping show it. Prints the checks made.
"""

import mmap
import os
import random
import sys

SIZE = 256 * 1024


def main():
    path, rounds, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    source = random.Random(f"mmap {seed}")
    model = bytearray(source.randbytes(SIZE))
    with open(path, "wb") as file:
        file.write(model)

    fd = os.open(path, os.O_RDWR)
    other = os.open(path, os.O_RDONLY)
    shared = mmap.mmap(fd, SIZE, mmap.MAP_SHARED)
    private = mmap.mmap(fd, SIZE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)

    ask_read, ask_write = os.pipe()
    tell_read, tell_write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ask_write)
        mine = mmap.mmap(os.open(path, os.O_RDONLY), SIZE, mmap.MAP_SHARED, mmap.PROT_READ)
        while True:
            request = os.read(ask_read, 16)
            if len(request) < 16:
                os._exit(0)
            at, size = int.from_bytes(request[:8], "little"), int.from_bytes(request[8:], "little")
            os.write(tell_write, mine[at:at + size])
    os.close(ask_read)
    os.close(tell_write)

    checks = 0

    def check(what, at, got):
        nonlocal checks
        checks += 1
        if got != model[at:at + len(got)]:
            sys.exit(f"{what} shows other bytes at {at}, {len(got)} bytes, after {checks} checks")

    for turn in range(rounds):
        size = source.choice([1, 7, 64, 512, 4096, 10_000])
        at = source.randrange(SIZE - size)
        data = source.randbytes(size)
        model[at:at + size] = data
        way = source.randrange(3)
        if way == 0:
            shared[at:at + size] = data
            if source.random() < 0.3:
                shared.flush(at - at % mmap.PAGESIZE, size + at % mmap.PAGESIZE)
        elif way == 1:
            os.pwrite(fd, data, at)
        else:
            again = os.open(path, os.O_WRONLY)
            os.pwrite(again, data, at)
            if source.random() < 0.3:
                os.fsync(again)
            os.close(again)
        check("the mapping", at, shared[at:at + size])
        check("another descriptor", at, os.pread(other, size, at))
        # A pipe holds more than this much.
        os.write(ask_write, at.to_bytes(8, "little") + min(size, 4096).to_bytes(8, "little"))
        check("another process's mapping", at, os.read(tell_read, 4096))
        if turn % 50 == 0:
            where = source.randrange(SIZE - 100)
            check("a read elsewhere", where, os.pread(other, 100, where))

    private[0:4] = b"mine"
    check("the file under a private mapping", 0, os.pread(other, 4, 0))
    shared.flush()
    os.close(ask_write)
    os.waitpid(child, 0)

    # A file grown and shrunk under its mapping.
    os.ftruncate(fd, SIZE + 8192)
    wider = mmap.mmap(fd, SIZE + 8192, mmap.MAP_SHARED)
    wider[SIZE + 10:SIZE + 14] = b"tail"
    if os.pread(other, 8, SIZE + 8) != b"\0\0tail\0\0":
        sys.exit("bytes mapped past the old end are not what was written there")
    wider.close()
    os.ftruncate(fd, SIZE)
    os.ftruncate(fd, SIZE + 4096)
    if os.pread(other, 4096, SIZE) != bytes(4096):
        sys.exit("a file shrunk and grown again does not read as zeros past the cut")
    os.ftruncate(fd, SIZE)
    shared.close()
    os.close(fd)

    with open(path, "rb") as file:
        check("the file, opened anew", 0, file.read())
    print(checks)


if __name__ == "__main__":
    main()
