#!/usr/bin/env python3
"""Processes that write and read one file and one directory at the same time.

    concurrent.py DIRECTORY WORKERS ROUNDS

Shared file: each worker owns every WORKERS-th 100-byte record, writes a version into it and reads it
back; records share pages, so that neighbours patch the same page. Readers check that no record is
ever torn or goes back to an older version. Appender: all workers append lines with
O_APPEND to one file; each line must be found once and whole. Prints the operations made.
"""

import os
import random
import sys

RECORD = 100
RECORDS = 4000


def record(worker, number, version):
    head = f"{worker}:{number}:{version}:".encode()
    return head + bytes([97 + version % 26]) * (RECORD - len(head))


def check(data, number):
    """The version a record holds; an exception if it is torn."""
    if data == bytes(RECORD):
        return -1
    worker, found, version, _ = data.split(b":", 3)
    if int(found) != number or data != record(int(worker), number, int(version)):
        raise ValueError(f"record {number} is torn: {data!r}")
    return int(version)


def write_records(directory, worker, workers, rounds):
    source = random.Random(f"worker {worker}")
    fd = os.open(f"{directory}/records", os.O_RDWR)
    log = os.open(f"{directory}/appended", os.O_WRONLY | os.O_APPEND)
    mine = range(worker, RECORDS, workers)
    latest = {}
    for turn in range(rounds):
        number = source.choice(mine)
        latest[number] = latest.get(number, -1) + 1
        os.pwrite(fd, record(worker, number, latest[number]), number * RECORD)
        other = source.choice(mine)
        if check(os.pread(fd, RECORD, other * RECORD), other) != latest.get(other, -1):
            raise ValueError(f"record {other} is not at the version written last")
        os.write(log, f"worker {worker} turn {turn} {'x' * source.randrange(200)}\n".encode())
        if turn % 500 == 0:
            os.fsync(fd)
    for number, version in latest.items():
        if check(os.pread(fd, RECORD, number * RECORD), number) != version:
            raise ValueError(f"record {number} lost its last version")


def read_records(directory, reader, rounds):
    source = random.Random(f"reader {reader}")
    fd = os.open(f"{directory}/records", os.O_RDONLY)
    seen = {}
    for _ in range(rounds):
        number = source.randrange(RECORDS)
        version = check(os.pread(fd, RECORD, number * RECORD), number)
        if version < seen.get(number, -1):
            raise ValueError(f"record {number} went back from {seen[number]} to {version}")
        seen[number] = version


def in_children(jobs):
    children = []
    for job in jobs:
        pid = os.fork()
        if pid == 0:
            try:
                job()
                os._exit(0)
            except BaseException as error:  # noqa: every failure of the child must reach its parent
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                os._exit(1)
        children.append(pid)
    failed = sum(os.waitpid(pid, 0)[1] != 0 for pid in children)
    if failed:
        sys.exit(f"{failed} of {len(children)} processes failed")


def main():
    directory, workers, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with open(f"{directory}/records", "wb") as file:
        file.write(bytes(RECORD * RECORDS))
    open(f"{directory}/appended", "wb").close()
    in_children(
        [lambda w=w: write_records(directory, w, workers, rounds) for w in range(workers)]
        + [lambda r=r: read_records(directory, r, rounds) for r in range(2)])

    lines = open(f"{directory}/appended").read().split("\n")[:-1]
    turns = [tuple(line.split()[1:4:2]) for line in lines]
    if len(turns) != workers * rounds or len(set(turns)) != len(turns):
        sys.exit(f"{len(turns)} appended lines, {len(set(turns))} of them different, "
                 f"wanted {workers * rounds}")
    print(workers * rounds * 3 + 2 * rounds)


if __name__ == "__main__":
    main()
