#!/usr/bin/env python3
"""What sendfile(2) gives to pipes and sockets that lead outside, and to those of the program itself.

    sends.py outside DIRECTORY COMMAND...
        runs `COMMAND... sends.py inside DIRECTORY`, reads what it sends, and prints both what it says and how much came
    sends.py inside DIRECTORY
        makes files in DIRECTORY, sends them, and prints each result, error, offset and position
"""

import ctypes
import errno
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

LIBRARY = ctypes.CDLL(None, use_errno=True)
LIBRARY.sendfile.restype = ctypes.c_ssize_t
BIG = 300_000
# What the program inherits: numbers from here on, in the order of KINDS; then full ones, then those that nobody reads.
FIRST = 40
KINDS = ["unix", "tcp", "pipe", "fifo", "seqpacket", "datagram"]
STREAMS = KINDS[:4]


def tcp():
    listening = socket.create_server(("127.0.0.1", 0))
    own = socket.create_connection(listening.getsockname())
    other = listening.accept()[0].detach()
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return other, own.detach()


def unix(kind):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    return one.detach(), other.detach()


def pair(kind, directory):
    """The end to read, and the end to write."""
    if kind == "fifo":
        path = directory + "/fifo"
        os.mkfifo(path)
        read = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        write = os.open(path, os.O_WRONLY)
        os.set_blocking(read, True)
        os.unlink(path)
        return read, write
    if kind == "pipe":
        return os.pipe()
    if kind == "tcp":
        return tcp()
    return unix({"unix": socket.SOCK_STREAM, "seqpacket": socket.SOCK_SEQPACKET, "datagram": socket.SOCK_DGRAM}[kind])


def number(group, kind):
    return FIRST + group * len(KINDS) + KINDS.index(kind)


def fill(descriptor):
    os.set_blocking(descriptor, False)
    try:
        while True:
            os.write(descriptor, bytes(4096))
    except OSError:
        os.set_blocking(descriptor, True)


def outside(directory, command):
    readers, came, given = [], {}, []
    for group in range(3):
        for kind in KINDS if group == 0 else STREAMS:
            read, write = pair(kind, directory)
            os.dup2(write, number(group, kind))
            os.close(write)
            given.append(number(group, kind))
            if group == 0:
                # Whole packets.
                readers.append((kind, read))
            elif group == 1:
                fill(number(group, kind))
                readers.append((None, read))
            else:
                os.close(read)

    def drain(kind, read):
        content, packets = hashlib.sha256(), []
        while piece := os.read(read, 1 << 17):
            content.update(piece)
            packets.append(len(piece))
        came[kind] = (content.hexdigest()[:16], sum(packets), packets if kind in ("seqpacket", "datagram") else "")

    threads = [threading.Thread(target=drain, args=reader, daemon=True) for reader in readers if reader[0]]
    for thread in threads:
        thread.start()
    program = subprocess.Popen([*command, __file__, "inside", directory], pass_fds=given)
    status = program.wait()
    # Nobody else has them any more; a datagram socket's reader is not told.
    for descriptor in given:
        os.close(descriptor)
    for thread in threads:
        thread.join(2)
    for kind in KINDS:
        print("came by", kind, came.get(kind))
    sys.exit(status)


class Files:
    def __init__(self, directory):
        self.directory = directory
        for name, content in {"small": bytes(range(250)), "big": b"".join(b"%09d\n" % at for at in range(BIG // 10)), "empty": b""}.items():
            with open(f"{directory}/{name}", "wb") as file:
                file.write(content)

    def open(self, name, flags=os.O_RDONLY):
        return os.open(f"{self.directory}/{name}", flags)


def sendfile(to, source, at, count):
    """`at`: an offset, None, or a pointer. Returns the result, or the error's name, and the offset afterwards. Success leaves errno."""
    place = ctypes.c_int64(at) if isinstance(at, int) else at
    pointer = ctypes.byref(place) if isinstance(at, int) else place
    ctypes.set_errno(errno.EXFULL)
    sent = LIBRARY.sendfile(to, source, pointer, ctypes.c_size_t(count))
    result = errno.errorcode[ctypes.get_errno()] if sent < 0 else sent
    if sent >= 0 and ctypes.get_errno() != errno.EXFULL:
        print("errno was changed to", ctypes.get_errno())
    return result, place.value if isinstance(at, int) else None


def position(descriptor):
    try:
        return os.lseek(descriptor, 0, os.SEEK_CUR)
    except OSError as error:
        return errno.errorcode[error.errno]


def send_whole(to, source):
    """As programs do."""
    total = 0
    while (sent := sendfile(to, source, None, 1 << 40)[0]) != 0:
        if isinstance(sent, str):
            return total, sent
        total += sent
    return total, position(source)


def inside(directory):
    files = Files(directory)
    signals = []
    signal.signal(signal.SIGPIPE, lambda *_: signals.append("SIGPIPE"))
    write_only = files.open("small", os.O_WRONLY)
    path_only = files.open("small", os.O_PATH)
    small = files.open("small")
    pipe_to_read, pipe_to_write = os.pipe()
    os.write(pipe_to_write, b"hello")
    read_only_memory = ctypes.cast(LIBRARY.sendfile, ctypes.c_void_p)
    own = {"own pipe": os.pipe()[::-1], "own unix": unix(socket.SOCK_STREAM)[::-1], "own tcp": tcp()[::-1]}
    targets = {kind: number(0, kind) for kind in KINDS} | {kind: ends[0] for kind, ends in own.items()}

    def say(*what):
        # Handlers run between steps of Python.
        print(*what, *signals, flush=True)
        signals.clear()

    for kind, to in targets.items():
        for count, at in [(10, None), (10, 5), (0, None), (0, 3), (10, 245), (10, 250), (10, 900), (5, -1), (1 << 63, 0), (3000, None), (250, 0)]:
            os.lseek(small, 7, os.SEEK_SET)
            say(kind, count, at, sendfile(to, small, at, count), position(small))
        for name in ["empty", "missing", "."]:
            source = files.open(name) if name != "missing" else 999
            say(kind, "from", name, sendfile(to, source, None, 10))
        for name, source in {"write-only": write_only, "path": path_only, "pipe": pipe_to_read, "end to write": pipe_to_write}.items():
            say(kind, "from", name, sendfile(to, source, None, 10), sendfile(to, source, 0, 10))
        say(kind, "from a device", sendfile(to, os.open("/dev/zero", os.O_RDONLY), None, 10))
        for name, pointer in {"bad": ctypes.c_void_p(8), "read-only": read_only_memory}.items():
            say(kind, name, "address", sendfile(to, small, pointer, 5))
    for kind in STREAMS:
        say(kind, "whole", send_whole(number(0, kind), files.open("big")))
        full = number(1, kind)
        os.set_blocking(full, False)
        say(kind, "full", sendfile(full, small, 0, 10), sendfile(full, small, None, 10))
        os.set_blocking(full, True)
        ended = number(2, kind)
        for at, count in [(0, 10), (None, 10), (0, 0)]:
            os.lseek(small, 0, os.SEEK_SET)
            say(kind, "without a reader", sendfile(ended, small, at, count), position(small))
    fifo_read, fifo_write = pair("fifo", directory)
    say("blocking FIFO", sendfile(fifo_write, files.open("big"), None, 40_000), sendfile(fifo_write, files.open("big"), None, BIG))
    os.set_blocking(fifo_write, False)
    say("then", sendfile(fifo_write, files.open("big"), None, BIG))
    # Several writers wait for room in turn.
    read, write = os.pipe()
    fails = []

    def send_much():
        source = files.open("big")
        fails.extend(result for result, _ in (sendfile(write, source, 0, 4096) for _ in range(300)) if result != 4096)

    def read_slowly():
        left = 4 * 300 * 4096
        while left:
            left -= len(os.read(read, 4096))
            time.sleep(0.0001)

    threads = [threading.Thread(target=work) for work in [read_slowly, *[send_much] * 4]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say("several writers", fails)
    # A pipe takes what it has room for.
    write, read = own["own pipe"]
    os.set_blocking(read, False)
    try:
        while os.read(read, 1 << 17):
            pass
    except OSError:
        pass
    say("blocking pipe", sendfile(write, files.open("big"), None, BIG))
    os.set_blocking(write, False)
    say("then", sendfile(write, files.open("big"), None, BIG))
    say("after a page", len(os.read(read, 4096)), sendfile(write, files.open("big"), None, BIG))
    big = files.open("big", os.O_RDONLY | os.O_DIRECT)
    say("O_DIRECT", sendfile(targets["unix"], big, None, 65536), position(big))
    say("no target", sendfile(999, small, 0, 10), sendfile(pipe_to_read, small, 0, 10), sendfile(small, small, 0, 10))


if __name__ == "__main__":
    what, where, *rest = sys.argv[1:]
    if what == "outside":
        outside(where, rest)
    else:
        inside(where)
