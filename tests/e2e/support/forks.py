"""A server that forks: workers which write, append to and read the same files, each by descriptors of its own, opened
by all before one of them is used.

    forks.py MOUNT WORKERS ROUNDS [idle | mapped]

With `idle` one more process opens the files, and does nothing with them until the others are done; with `mapped` it also
maps them shared, and stores and reads through that, as the others do.
"""

import mmap
import os
import sys

mount, workers, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
beside = sys.argv[4] if len(sys.argv) > 4 else None
SIZE, PAGE = 8192, 4096
data, journal = os.path.join(mount, "data"), os.path.join(mount, "journal")

# What a server reads as it starts, and closes.
with open(os.path.join(mount, "settings"), "rb", buffering=0) as settings:
    settings.read(16)
with open(data, "wb") as empty:
    empty.write(bytes(workers * rounds * SIZE + PAGE))


def content(worker, turn):
    return (b"%08d %08d;" % (worker, turn)) * (SIZE // 18) + b"." * (SIZE % 18)


def open_both():
    fd = os.open(data, os.O_RDWR)
    log = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    # Not before all have them.
    os.write(opened[1], b"x")
    os.read(begin[0], 1)
    return fd, log


def watch():
    """The process beside the workers."""
    fd, log = open_both()
    if beside == "mapped":
        with mmap.mmap(fd, workers * rounds * SIZE + PAGE) as memory:
            # A page of its own, after the workers'.
            for turn in range(20 * rounds):
                memory[-PAGE:] = bytes([turn % 251 + 1]) * PAGE
                assert memory[-1] == turn % 251 + 1
                found = memory[turn % (workers * rounds) * SIZE]
                assert found in b"0\0", found
    os.read(end[0], 1)
    os.close(fd)
    os.close(log)


def work(worker):
    fd, log = open_both()
    for turn in range(rounds):
        place = (turn * workers + worker) * SIZE
        os.pwrite(fd, content(worker, turn), place)
        os.write(log, b"%08d %08d\n" % (worker, turn))
        if turn % 16 == 0:
            os.fdatasync(log)
        assert os.lseek(fd, 0, os.SEEK_END) == workers * rounds * SIZE + PAGE
        assert os.lseek(log, 0, os.SEEK_END) >= 18 * (turn + 1)
        assert os.pread(fd, SIZE, place) == content(worker, turn)
        # What a neighbour has written, or not yet; the kernel's page cache may have half of it.
        neighbour = (worker + 1) % workers
        found = os.pread(fd, SIZE, (turn * workers + neighbour) * SIZE)
        written = content(neighbour, turn)
        assert all(a in (b, 0) for a, b in zip(found, written)), (worker, turn)
    # To the end, whatever else happens to it meanwhile.
    os.close(fd)
    os.close(log)


def fork(run):
    child = os.fork()
    if child == 0:
        run()
        os._exit(0)
    return child


opened, begin, end = os.pipe(), os.pipe(), os.pipe()
children = [fork(lambda: work(worker)) for worker in range(workers)]
watching = fork(watch) if beside else None
processes = workers + (watching is not None)
for _ in range(processes):
    os.read(opened[0], 1)
os.write(begin[1], b"x" * processes)
for child in children:
    assert os.waitpid(child, 0)[1] == 0, "a worker failed"
if watching:
    os.write(end[1], b"x")
    assert os.waitpid(watching, 0)[1] == 0, "the process beside the workers failed"

with open(data, "rb") as file:
    for turn in range(rounds):
        for worker in range(workers):
            assert file.read(SIZE) == content(worker, turn), (worker, turn)
    last = bytes([(20 * rounds - 1) % 251 + 1]) if beside == "mapped" else b"\0"
    assert file.read() == last * PAGE
with open(journal, "rb") as file:
    lines = sorted(file.read().split(b"\n")[:-1])
assert lines == sorted(b"%08d %08d" % (w, t) for w in range(workers) for t in range(rounds))
