#!/usr/bin/env python3
"""Calls on a writable file of a FUSE server that is in the same session: what the supervisor finds out about the file does not wait for the server.

    inner.py DIRECTORY     makes a file there, and prints the name of each call after it
"""

import ctypes
import errno
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)


def main(directory):
    fd = os.open(directory + "/written", os.O_RDWR | os.O_CREAT, 0o644)
    read, write = os.pipe()

    def fsync():
        os.fsync(fd)

    def fdatasync():
        os.fdatasync(fd)

    def receive():
        assert libc.recvmsg(fd, ctypes.create_string_buffer(64), 0) == -1
        assert ctypes.get_errno() == errno.ENOTSOCK

    def splice():
        os.write(write, b"moved")
        try:
            os.splice(read, fd, 5)
        except OSError as error:
            # A session lets nothing be moved out of a pipe.
            assert error.errno == errno.EINVAL

    def syncfs():
        assert libc.syncfs(fd) == 0

    def write_out():
        assert libc.syscall(277, fd, 0, 0, 7) == 0

    os.write(fd, b"text\n")
    for call in (fsync, fdatasync, syncfs, write_out, splice, receive):
        call()
        print(call.__name__, flush=True)
    os.close(fd)


main(sys.argv[1])
