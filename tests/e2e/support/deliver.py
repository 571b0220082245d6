"""Delivers mail as maildir(5) asks, into directories that are there already, and makes files that are resized and dated before
anybody else has seen them.

    deliver.py DIRECTORY COUNT
"""

import os
import sys

directory, count = sys.argv[1], int(sys.argv[2])

for number in range(count):
    new = f"{directory}/tmp/{number}"
    fd = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    os.write(fd, b"mail %d\n" % number)
    os.fsync(fd)
    os.close(fd)
    os.link(new, f"{directory}/new/{number}")
    os.unlink(new)

for number in range(count // 10):
    name = f"{directory}/cur/{number}"
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY, 0o644))
    os.truncate(name, number + 1)
    os.utime(name, (10**9, 10**9 + number))
    seen = os.stat(name)
    if (seen.st_size, seen.st_mtime) != (number + 1, 10**9 + number):
        sys.exit(f"{name} has {seen.st_size} bytes and the time {seen.st_mtime}")
