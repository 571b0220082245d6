#!/usr/bin/env python3
"""Calls on a writable file of a FUSE server that is in the same session, and calls whose arguments are in its files: what the supervisor finds
out does not wait for the server.

    inner.py DIRECTORY                       writes `written` there, maps `address` and `numbers`, and prints the name of each call after it
    inner.py over MOUNT PROGRAM DIRECTORY    has PROGRAM serve DIRECTORY over MOUNT, syncs a file below it, and says so
"""

import ctypes
import errno
import mmap
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time

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

    def mapped(name):
        """A page of a file that nobody has read; what is written to it stays in this process."""
        with open(os.path.join(directory, name), "rb") as file:
            maps.append(mmap.mmap(file.fileno(), 4096, access=mmap.ACCESS_COPY))
        return ctypes.byref(ctypes.c_char.from_buffer(maps[-1]))

    def connect():
        # The address of a Unix socket that is not there.
        at = socket.socket(socket.AF_UNIX)
        assert libc.connect(at.fileno(), mapped("address"), 20) == -1
        assert ctypes.get_errno() == errno.ENOENT

    def pipe():
        assert libc.pipe(mapped("numbers")) == 0
        ends = struct.unpack("ii", maps[-1][:8])
        os.write(ends[1], b"x")
        assert os.read(ends[0], 1) == b"x"

    def pipe_over_it():
        # The page is in a file of an overlay, which asks the server.
        with tempfile.TemporaryDirectory() as there, tempfile.TemporaryDirectory() as empty:
            layers = f"lowerdir={directory}:{empty}".encode()
            assert libc.mount(b"overlay", there.encode(), b"overlay", 1, layers) == 0, ctypes.get_errno()
            child = os.fork()
            if child == 0:
                at = mapped(there + "/numbers")
                os._exit(libc.pipe(at))
            assert os.waitpid(child, 0)[1] == 0
            assert libc.umount2(there.encode(), 0) == 0

    maps = []
    os.write(fd, b"text\n")
    for call in (fsync, fdatasync, syncfs, write_out, splice, receive, connect, pipe_over_it, pipe):
        call()
        print(call.__name__, flush=True)
    os.close(fd)


def over(mount, program, directory):
    fd = os.open(mount + "/file", os.O_RDWR | os.O_CREAT, 0o644)
    device = os.stat(mount).st_dev
    subprocess.Popen([program, "passthrough", directory, mount])
    while os.stat(mount).st_dev == device:
        time.sleep(0.05)
    os.pwrite(fd, b"new", 0)
    os.fsync(fd)
    os.write(1, b"seen")


if sys.argv[1] == "over":
    over(*sys.argv[2:])
else:
    main(sys.argv[1])
