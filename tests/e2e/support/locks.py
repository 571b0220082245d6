#!/usr/bin/env python3
"""flock and fcntl locks between two processes. `locks.py DIRECTORY`; prints the checks made."""

import fcntl
import os
import sys
import time

checks = 0


def check(truth, what):
    global checks
    checks += 1
    if not truth:
        sys.exit(f"lock check {checks} failed: {what}")


def held_by_other(attempt):
    """Whether an attempt in another process finds the lock taken."""
    child = os.fork()
    if child == 0:
        try:
            attempt()
            os._exit(0)
        except BlockingIOError:
            os._exit(1)
        except BaseException as error:  # noqa: every failure of the child must reach its parent
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(2)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    check(status in (0, 1), "an attempt to lock failed otherwise than by being refused")
    return status == 1


def flock(path, how):
    return lambda: fcntl.flock(os.open(path, os.O_RDWR), how | fcntl.LOCK_NB)


def record(path, how, start, size):
    return lambda: fcntl.lockf(os.open(path, os.O_RDWR), how | fcntl.LOCK_NB, size, start)


def waits(path, release):
    """Whether another process, waiting for a lock, gets it when it is released and not before."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        fcntl.lockf(os.open(path, os.O_RDWR), fcntl.LOCK_EX, 10, 0)
        os.write(write, b"got")
        os._exit(0)
    os.close(write)
    time.sleep(0.2)
    os.set_blocking(read, False)
    try:
        os.read(read, 3)
        early = True
    except BlockingIOError:
        early = False
    release()
    os.waitpid(child, 0)
    os.set_blocking(read, True)
    return not early and os.read(read, 3) == b"got"


def main():
    path = f"{sys.argv[1]}/locked"
    with open(path, "wb") as file:
        file.write(bytes(1000))

    fd = os.open(path, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    check(held_by_other(flock(path, fcntl.LOCK_EX)), "an exclusive flock was given twice")
    check(held_by_other(flock(path, fcntl.LOCK_SH)), "a shared flock was given beside an exclusive one")
    fcntl.flock(fd, fcntl.LOCK_SH)
    check(not held_by_other(flock(path, fcntl.LOCK_SH)), "two shared flocks were refused")
    check(held_by_other(flock(path, fcntl.LOCK_EX)), "an exclusive flock was given beside a shared one")
    fcntl.flock(fd, fcntl.LOCK_UN)
    check(not held_by_other(flock(path, fcntl.LOCK_EX)), "a released flock is still held")

    fcntl.lockf(fd, fcntl.LOCK_EX, 10, 0)
    check(held_by_other(record(path, fcntl.LOCK_EX, 5, 10)), "an overlapping record lock was given")
    check(held_by_other(record(path, fcntl.LOCK_SH, 9, 1)), "a shared record lock was given beside an exclusive one")
    check(not held_by_other(record(path, fcntl.LOCK_EX, 10, 10)), "a neighbouring record lock was refused")
    check(waits(path, lambda: fcntl.lockf(fd, fcntl.LOCK_UN, 10, 0)), "a waiting record lock was not handed on")
    fcntl.lockf(fd, fcntl.LOCK_SH, 100, 100)
    check(not held_by_other(record(path, fcntl.LOCK_SH, 100, 100)), "two shared record locks were refused")
    check(held_by_other(record(path, fcntl.LOCK_EX, 150, 1)), "an exclusive record lock was given beside a shared one")
    # Closing any descriptor of the file gives a process's record locks back.
    os.close(os.open(path, os.O_RDONLY))
    check(not held_by_other(record(path, fcntl.LOCK_EX, 150, 1)), "a record lock outlived a close of its file")
    os.close(fd)
    print(checks)


if __name__ == "__main__":
    main()
