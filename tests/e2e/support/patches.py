#!/usr/bin/env python3
"""Cold files and small writes to them, all recomputable from seeds.

    patches.py cold PATH PAGES SEED               a file of random content, out of the page cache
    patches.py write PATH PAGES SEED [OPTION...]  partial writes, each to another page
    patches.py verify PATH PAGES CONTENT_SEED WRITE_SEED [OPTION...]
    patches.py load PATH PAGES SEED SECONDS       random small writes for that long

`write` prints how many writes it made. Options say what one page gets: --count pages, --bytes a
write, --pieces writes that together cover a page from its start, --fsync at the end, --direct opens with
O_DIRECT, --read-back reads each written run at once through the same descriptor.
"""

import argparse
import os
import random
import sys
import time

PAGE = 4096


def content(pages, seed):
    source = random.Random(f"content {seed}")
    return bytearray().join(source.randbytes(PAGE) for _ in range(pages))


def writes(pages, seed, options):
    """Yields (offset, bytes): `count` distinct pages, each with a run or with covering pieces."""
    source = random.Random(f"writes {seed}")
    for page in source.sample(range(pages), options.count):
        if options.pieces:
            piece = PAGE // options.pieces
            order = list(range(options.pieces))
            source.shuffle(order)
            for index in order:
                yield page * PAGE + index * piece, source.randbytes(piece)
        else:
            # Never the whole page, and never from its first byte to its last.
            start = source.randrange(1, PAGE - options.bytes)
            yield page * PAGE + start, source.randbytes(options.bytes)


def cold(path, pages, seed):
    with open(path, "wb") as file:
        file.write(content(pages, seed))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def write(path, pages, seed, options):
    flags = os.O_RDWR if options.read_back else os.O_WRONLY
    fd = os.open(path, flags | (os.O_DIRECT if options.direct else 0))
    done = 0
    for offset, data in writes(pages, seed, options):
        if os.pwrite(fd, data, offset) != len(data):
            sys.exit(f"short write at {offset}")
        done += 1
        if options.read_back and os.pread(fd, len(data), offset) != data:
            sys.exit(f"what was read at {offset} is not what was written there")
    if options.fsync:
        os.fsync(fd)
    os.close(fd)
    print(done)


def verify(path, pages, content_seed, write_seed, options):
    wanted = content(pages, content_seed)
    for offset, data in writes(pages, write_seed, options):
        wanted[offset:offset + len(data)] = data
    with open(path, "rb") as file:
        got = file.read()
    if len(got) != len(wanted):
        sys.exit(f"{path}: {len(got)} bytes, wanted {len(wanted)}")
    if got != wanted:
        bad = [page for page in range(pages)
               if got[page * PAGE:(page + 1) * PAGE] != wanted[page * PAGE:(page + 1) * PAGE]]
        sys.exit(f"{path}: {len(bad)} pages differ, the first is {bad[0]}")


def load(path, pages, seed, seconds):
    source = random.Random(f"load {seed}")
    fd = os.open(path, os.O_WRONLY)
    end = time.monotonic() + seconds
    done = 0
    data = source.randbytes(PAGE)
    while time.monotonic() < end:
        for _ in range(256):
            size = source.randrange(1, 256)
            start = source.randrange(0, PAGE - size)
            os.pwrite(fd, data[:size], source.randrange(pages) * PAGE + start)
        done += 256
    os.close(fd)
    print(done)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["cold", "write", "verify", "load"])
    parser.add_argument("path")
    parser.add_argument("pages", type=int)
    parser.add_argument("seed", nargs="+", type=int)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--bytes", type=int, default=64)
    parser.add_argument("--pieces", type=int, default=0)
    parser.add_argument("--fsync", action="store_true")
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("--read-back", action="store_true")
    options = parser.parse_args()
    if options.action == "cold":
        cold(options.path, options.pages, options.seed[0])
    elif options.action == "write":
        write(options.path, options.pages, options.seed[0], options)
    elif options.action == "verify":
        verify(options.path, options.pages, options.seed[0], options.seed[1], options)
    else:
        load(options.path, options.pages, options.seed[0], options.seed[1])


if __name__ == "__main__":
    main()
