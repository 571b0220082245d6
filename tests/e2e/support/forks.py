"""A server that forks: workers which write, append to and read the same files, each by descriptors of its own.

    forks.py MOUNT WORKERS ROUNDS
"""

import os
import sys

mount, workers, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
SIZE, PAGE = 8192, 4096
data, journal = os.path.join(mount, "data"), os.path.join(mount, "journal")

# What a server reads as it starts, and closes.
with open(os.path.join(mount, "settings"), "rb", buffering=0) as settings:
    while settings.read(16):
        pass
with open(data, "wb") as empty:
    empty.write(bytes(workers * rounds * SIZE))


def content(worker, turn):
    return (b"%08d %08d;" % (worker, turn)) * (SIZE // 18) + b"." * (SIZE % 18)


def work(worker):
    fd = os.open(data, os.O_RDWR)
    log = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for turn in range(rounds):
        place = (turn * workers + worker) * SIZE
        os.pwrite(fd, content(worker, turn), place)
        os.write(log, b"%08d %08d\n" % (worker, turn))
        if turn % 16 == 0:
            os.fdatasync(log)
        assert os.lseek(fd, 0, os.SEEK_END) == workers * rounds * SIZE
        assert os.lseek(log, 0, os.SEEK_END) >= 18 * (turn + 1)
        assert os.pread(fd, SIZE, place) == content(worker, turn)
        # What a neighbour has written, or not yet: for each page.
        beside = (worker + 1) % workers
        found = os.pread(fd, SIZE, (turn * workers + beside) * SIZE)
        for page in range(0, SIZE, PAGE):
            part = slice(page, page + PAGE)
            assert found[part] in (content(beside, turn)[part], bytes(PAGE)), (worker, turn, page)
    # To the end, whatever else happens to it meanwhile.
    os.close(fd)
    os.close(log)


children = []
for worker in range(workers):
    child = os.fork()
    if child == 0:
        work(worker)
        os._exit(0)
    children.append(child)
for child in children:
    assert os.waitpid(child, 0)[1] == 0, "a worker failed"

with open(data, "rb") as file:
    for turn in range(rounds):
        for worker in range(workers):
            assert file.read(SIZE) == content(worker, turn), (worker, turn)
with open(journal, "rb") as file:
    lines = sorted(file.read().split(b"\n")[:-1])
assert lines == sorted(b"%08d %08d" % (w, t) for w in range(workers) for t in range(rounds))
