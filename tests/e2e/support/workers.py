"""A server's 8 workers, forked for this: each opens its share of the files, writes to each and closes it.

    workers.py DIRECTORY FILES WRITES BYTES

Prints the files per second, and how many there were.
"""

import os
import sys
import time

directory, files, writes, size = sys.argv[1], *map(int, sys.argv[2:5])
os.makedirs(directory, exist_ok=True)
os.chdir(directory)
# What a server has open before it forks.
log = os.open("log", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
os.write(log, b"start\n")


def work(worker):
    content = b"x" * size
    for number in range(worker, files, 8):
        fd = os.open(str(number), os.O_RDWR | os.O_CREAT, 0o644)
        for _ in range(writes):
            os.write(fd, content)
        os.close(fd)


start = time.monotonic()
workers = []
for worker in range(8):
    pid = os.fork()
    if pid == 0:
        try:
            work(worker)
            os._exit(0)
        finally:
            os._exit(1)
    workers.append(pid)
if any([os.waitpid(pid, 0)[1] for pid in workers]):
    sys.exit("a worker failed")
print(files / (time.monotonic() - start), files)
