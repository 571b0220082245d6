#!/usr/bin/env python3
"""What programs outside a session are shown of what its members do (`weir run --sync external`).

    shown.py lock HOW FILE                    a member: locks FILE, prints a line, and when it gets one writes and syncs FILE, and gives the lock back
    shown.py wait-for-lock HOW FILE PROCESS   prints a line, waits for the lock, and kills the process
    shown.py change FILE OTHER                a member: for each line that it gets writes and syncs FILE, and then changes the same page of OTHER
    shown.py look OTHER PROCESS               reads pages of OTHER that must be fetched while it has the member change them, kills the process when it is
                                              shown a change, and tells on standard error which one
    shown.py fill FILE OTHER                  a member: writes and syncs FILE, and then takes space by OTHER
    shown.py space MOUNT PROCESS              prints a line, and kills the process when there is less space on MOUNT
"""

import fcntl
import mmap
import os
import signal
import sys
import threading

PAGE = 4096
PAGES = 1 << 14


def place(number):
    """Where pages are that are far from each other: each must be fetched."""
    return number * 4099 % PAGES * PAGE


def lock_by(how, fd):
    if how.startswith("flock"):
        fcntl.flock(fd, fcntl.LOCK_EX)
    else:
        fcntl.lockf(fd, fcntl.LOCK_EX)


def lock(how, path):
    """`how`: by which call, and how the lock is given back; of the file, or for flock also of its directory."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    locked = os.open(os.path.dirname(path), os.O_RDONLY) if "directory" in how else fd
    if locked == fd and "close" in how:
        locked = os.open(path, os.O_RDWR)
    lock_by(how, locked)
    print(flush=True)
    sys.stdin.readline()
    os.pwrite(fd, b"written", 0)
    os.fsync(fd)
    if "close" in how:
        os.close(locked)
    elif "end" in how:
        os._exit(0)
    elif how.startswith("flock"):
        fcntl.flock(locked, fcntl.LOCK_UN)
    else:
        fcntl.lockf(locked, fcntl.LOCK_UN)
    sys.stdin.readline()


def wait_for_lock(how, path, process):
    fd = os.open(os.path.dirname(path) if "directory" in how else path, os.O_RDONLY if "directory" in how else os.O_RDWR)
    print(flush=True)
    lock_by(how, fd)
    os.kill(int(process), signal.SIGKILL)


def change(path, other):
    fd, other = os.open(path, os.O_RDWR | os.O_CREAT, 0o644), os.open(other, os.O_RDWR)
    for line in sys.stdin:
        number = int(line)
        os.pwrite(fd, b"%020d" % number, 0)
        os.fsync(fd)
        os.pwrite(other, b"%020d" % number, place(number))


def look(other, process):
    fd = os.open(other, os.O_RDONLY | os.O_DIRECT)
    for number in range(1, 300):
        page = mmap.mmap(-1, PAGE)
        reader = threading.Thread(target=os.preadv, args=(fd, [page], place(number)))
        reader.start()
        print(number, flush=True)
        reader.join()
        if page[:20] == b"%020d" % number:
            os.kill(int(process), signal.SIGKILL)
            print(number, file=sys.stderr)
            return
    sys.exit("nothing was shown")


def fill(path, other):
    sys.stdin.readline()
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(fd, b"%020d" % 1, 0)
    os.fsync(fd)
    fd = os.open(other, os.O_RDWR | os.O_CREAT, 0o644)
    for _ in range(64):
        os.write(fd, bytes(1 << 17))
    sys.stdin.readline()


def space(mount, process):
    def free():
        facts = os.statvfs(mount)
        return facts.f_bavail * facts.f_frsize

    before = free()
    print(flush=True)
    while free() > before - (1 << 20):
        pass
    os.kill(int(process), signal.SIGKILL)


def main(what, *rest):
    {"fill": fill, "space": space, "lock": lock, "wait-for-lock": wait_for_lock, "change": change, "look": look}[what](*rest)


main(*sys.argv[1:])
