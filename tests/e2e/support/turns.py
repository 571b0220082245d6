"""A program that has others come and go beside it: they open its files for writing, or map them, and close them again.

    turns.py MOUNT ROUNDS

Run under `weir run`; the others are not. Each round's writes and reads, by two descriptors of one description, some of them
appending, are held against a model of the files.
"""

import fcntl
import os
import random
import subprocess
import sys

mount, rounds = sys.argv[1], int(sys.argv[2])
PAGE, PAGES = 4096, 32
path, log_path = os.path.join(mount, "pages"), os.path.join(mount, "log")

# Has both files open, one of them mapped, until its input ends; stores to two pages that are its own.
OTHER = """
import mmap, os, sys
path, log, own, turn = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
fd, log = os.open(path, os.O_RDWR), os.open(log, os.O_RDWR)
with mmap.mmap(fd, 0) as memory:
    memory[own + turn] = turn + 1
    os.pwrite(fd, bytes([turn + 1]), own + mmap.PAGESIZE + turn)
    print(flush=True)
    sys.stdin.read()
"""
clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}

with open(path, "wb") as file:
    file.write(bytes((PAGES + 2) * PAGE))
pages, log = bytearray((PAGES + 2) * PAGE), bytearray()
first = os.open(path, os.O_RDWR)
second = os.dup(first)
logged = os.open(log_path, os.O_RDWR | os.O_CREAT, 0o644)
rng = random.Random(1)


def work(calls):
    for _ in range(calls):
        fd = rng.choice((first, second))
        offset, length = rng.randrange(PAGES * PAGE - 300), rng.randrange(1, 300)
        if rng.random() < 0.6:
            data = rng.randbytes(length)
            os.pwrite(fd, data, offset)
            pages[offset : offset + length] = data
        else:
            found = os.pread(fd, length, offset)
            assert found == pages[offset : offset + length], (offset, length)
        record = rng.randbytes(rng.randrange(1, 40))
        if fcntl.fcntl(logged, fcntl.F_GETFL) & os.O_APPEND:
            os.lseek(logged, 0, os.SEEK_SET)
            log.extend(record)
        else:
            place = rng.randrange(len(log) + 1)
            os.lseek(logged, place, os.SEEK_SET)
            log[place : place + len(record)] = record
        os.write(logged, record)
        assert os.lseek(logged, 0, os.SEEK_END) == len(log)


for turn in range(rounds):
    work(300)
    fcntl.fcntl(logged, fcntl.F_SETFL, rng.choice((0, os.O_APPEND)))
    work(100)
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER, path, log_path, str(PAGES * PAGE), str(turn)],
        env=clean,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        close_fds=True,
    )
    other.stdout.readline()
    pages[PAGES * PAGE + turn] = pages[(PAGES + 1) * PAGE + turn] = turn + 1
    work(20 + turn)
    if turn == rounds - 2:
        # While it is by the kernel for a while: it stays there.
        fcntl.fcntl(logged, fcntl.F_SETFL, rng.choice((0, os.O_APPEND)))
    work(20)
    assert not fcntl.fcntl(first, fcntl.F_GETFL) & os.O_DIRECT
    other.communicate()
    assert other.returncode == 0
    work(300)

os.lseek(logged, 0, os.SEEK_SET)
for name, model in ((path, pages), (log_path, log)):
    with open(name, "rb") as file:
        assert file.read() == model, name
