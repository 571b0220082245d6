"""Change times of nodes of each kind that lose one of two names. Usage: change_times.py MNT WEIR PREFIX."""

import os
import socket
import stat
import subprocess
import sys
import time

mnt, weir, prefix = sys.argv[1:]
wrong = []


def make(kind, path):
    if kind == "file":
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    elif kind == "symlink":
        os.symlink("nowhere", path)
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path)


def change_time(path):
    return os.lstat(path).st_ctime_ns


def loses(what, kept, lose):
    """`kept` is a name that remains."""
    before = change_time(kept)
    time.sleep(0.02)
    lose()
    after = change_time(kept)
    if after <= before:
        wrong.append(f"{what}: not changed")
    subprocess.run([weir, "sync", mnt], check=True)
    if change_time(kept) != after:
        wrong.append(f"{what}: changed once more at home")


def check(kind, at_home):
    one, two, other, replacing = (f"{mnt}/{prefix}-{kind}-{at_home}-{name}" for name in "abcd")
    make(kind, one)
    os.link(one, two, follow_symlinks=False)
    os.link(one, other, follow_symlinks=False)
    make("file", replacing)
    if at_home:
        subprocess.run([weir, "sync", mnt], check=True)
    what = f"{kind}, {'at home' if at_home else 'not at home'}"
    loses(f"{what}, removed", two, lambda: os.unlink(one))
    loses(f"{what}, replaced", two, lambda: os.rename(replacing, other))
    if os.lstat(two).st_nlink != 1:
        wrong.append(f"{what}: {os.lstat(two).st_nlink} links")


for kind in ("file", "symlink", "fifo", "device", "socket"):
    for at_home in (True, False):
        check(kind, at_home)
print("\n".join(wrong), end="")
sys.exit(bool(wrong))
