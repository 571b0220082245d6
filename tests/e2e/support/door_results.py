#!/usr/bin/env python3
"""Prints the results of calls that a session may treat otherwise than the kernel.

    door_results.py FILE promised|not
"""

import ctypes
import fcntl
import os
import signal
import socket
import sys
import time


def results(path, promises):
    """Prints what calls say that may be made by the door: as without a session, whether or not a promise is not durable."""
    said = []
    signals = []
    signal.signal(signal.SIGPIPE, lambda number, _: signals.append(number))
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def say(name, act):
        if promises == "promised":
            os.pwrite(fd, b"x", 0)
            os.fsync(fd)
        del signals[:]
        try:
            result = act()
        except OSError as error:
            result = error.strerror
        said.append(f"{name}: {result} {len(signals)}")

    def reset():
        listening = socket.create_server(("127.0.0.1", 0))
        mine = socket.create_connection(listening.getsockname())
        theirs, _ = listening.accept()
        mine.send(b"unread")
        theirs.close()
        time.sleep(0.1)
        return mine

    mine = reset()
    say("send after a reset", lambda: mine.send(b"x"))
    mine = reset()
    say("write after a reset", lambda: os.write(mine.fileno(), b"x"))
    nobody = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    nobody.bind(("127.0.0.1", 0))
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.connect(nobody.getsockname())
    nobody.close()
    say("first datagram to nobody", lambda: datagrams.send(b"x"))
    time.sleep(0.1)
    say("second datagram to nobody", lambda: datagrams.send(b"x"))
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    say("empty datagram", lambda: os.write(left.fileno(), b""))
    right.setblocking(False)
    say("what is received", lambda: right.recv(10))
    right.close()
    say("datagram to who has closed", lambda: left.send(b"x"))
    left, right = socket.socketpair()
    right.close()
    say("send to who has closed", lambda: left.send(b"x"))
    reader, writer = os.pipe()
    os.close(reader)
    say("write to who has closed", lambda: os.write(writer, b"x"))
    say("closing what is closed", lambda: os.close(reader))
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    say("writing what has no room", lambda: os.write(writer, bytes(1 << 20)))
    say("writing to what is full", lambda: os.write(writer, bytes(1 << 16)))
    say("the number of a new file", lambda: os.open(path + ".new", os.O_RDWR | os.O_CREAT, 0o644))
    say("making what is there", lambda: os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    say("removing what is not there", lambda: os.unlink(path + ".none"))
    say("removing a directory", lambda: os.unlink(os.path.dirname(path)))
    say("a name that is too long", lambda: os.mkdir(path + "x" * 256))
    say("a lock without a file", lambda: fcntl.lockf(1000, fcntl.LOCK_EX))
    say("syncing a pipe", lambda: os.fsync(writer))
    one, two = path + ".one", path + ".two"
    say("linking", lambda: os.link(path, one))
    say("linking what is there", lambda: os.link(path, one))
    say("linking by a symbolic link", lambda: os.link(path + ".none", two, follow_symlinks=True))
    say("a symbolic link", lambda: os.symlink("target", two))
    say("a symbolic link that is there", lambda: os.symlink("other", two))
    say("where it leads", lambda: os.readlink(two))
    renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    at = ctypes.c_int(-100)

    def rename(old, new, flags):
        if renameat2(at, old.encode(), at, new.encode(), ctypes.c_uint(flags)) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    say("renaming to what is there", lambda: rename(one, path, 1))
    say("renaming", lambda: rename(one, path + ".three", 1))
    say("exchanging names", lambda: rename(path + ".three", two, 2))
    say("renaming with flags that are not there", lambda: rename(two, one, 1 << 20))
    say("where it leads now", lambda: os.readlink(path + ".three"))
    say("times", lambda: os.utime(fd, (1000, 2000)))
    say("what they are", lambda: os.fstat(fd).st_atime_ns)
    say("times of what is closed", lambda: os.utime(1000, (1, 2)))
    say("an attribute", lambda: os.setxattr(fd, "user.weir", b"value"))
    say("an attribute that is there", lambda: os.setxattr(fd, "user.weir", b"other", os.XATTR_CREATE))
    say("its value", lambda: os.getxattr(fd, "user.weir"))
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"0123456789", 0)
    copy = os.open(path + ".copy", os.O_RDWR | os.O_CREAT)
    say("copying a range", lambda: os.copy_file_range(fd, copy, 4, 3))
    say("where that ends", lambda: (os.lseek(copy, 0, os.SEEK_CUR), os.pread(copy, 20, 0)))
    say("copying into a pipe", lambda: os.copy_file_range(fd, os.pipe()[1], 4, 0))
    say("copying into what is open for reading", lambda: os.copy_file_range(copy, os.open(path, os.O_RDONLY), 2, 0))
    print("\n".join(said))


if __name__ == "__main__":
    results(*sys.argv[1:])
