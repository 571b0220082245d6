#!/usr/bin/env python3
"""What a member of a session prepares before it promises something, and what leaves by it afterwards (`weir run --sync external`).

    armed.py cases
        prints the cases
    armed.py outside CASE WEIR MOUNT PROCESS DIRECTORY
        runs the member, kills the process (the daemon) when a number is seen outside, or is not for a while, and prints the number
    armed.py member CASE MOUNT DIRECTORY
        the member: prepares, writes 1 to MOUNT/file and syncs it, and lets it leave
"""

import array
import ctypes
import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time

# What the member inherits. Nothing else has this number.
INHERITED = 63
PATIENCE_S = 3
LIBRARY = ctypes.CDLL(None, use_errno=True)
PIDFD_OPEN, PIDFD_GETFD, IO_SETUP, IO_SUBMIT, SENDFILE, SPLICE, TEE, VMSPLICE = 434, 438, 206, 209, 40, 275, 276, 278
PR_SET_DUMPABLE = 4
ONE = ctypes.c_size_t(1)


def call(number, *arguments):
    result = LIBRARY.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), "system call")
    return result


def by_reference(into, number, *arguments):
    """Gives pages away without a copy, or writes, where that is refused."""
    try:
        call(number, *arguments)
    except OSError:
        os.write(into, b"0")


def soon(what):
    """The first result that is something."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            found = what()
        except OSError:
            found = None
        if found:
            return found
        time.sleep(0.005)
    return None


class Member:
    """`file` holds 0."""

    def __init__(self, mount, directory):
        self.file = os.open(mount + "/file", os.O_RDWR)
        self.directory = directory

    def promise(self):
        # What was done before is over.
        time.sleep(0.3)
        os.pwrite(self.file, b"1", 0)
        os.fsync(self.file)

    @staticmethod
    def stay():
        """Nothing is closed."""
        time.sleep(60)

    def path(self):
        return self.directory + "/socket"

    def stream(self):
        return socket.socket(socket.AF_UNIX)

    def received(self):
        """A descriptor from outside."""
        control = self.stream()
        control.connect(self.directory + "/control")
        _, sent, _, _ = control.recvmsg(1, socket.CMSG_SPACE(4))
        return socket.socket(fileno=array.array("i", sent[0][2])[0])

    def connect_by(self, own):
        """Sends by a connection between two sockets of members, of which somebody outside has one."""
        listening = self.stream()
        listening.bind(self.path())
        listening.listen()
        own.connect(self.path())
        taken, _ = listening.accept()
        self.promise()
        taken.send(b"1")
        self.stay()

    def unix_inherited(self):
        self.connect_by(socket.socket(fileno=INHERITED))

    def unix_received(self):
        self.connect_by(self.received())

    def unix_taken(self):
        process = call(PIDFD_OPEN, int(os.environ["OUTSIDER"]), 0)
        self.connect_by(socket.socket(fileno=call(PIDFD_GETFD, process, int(os.environ["SOCKET"]), 0)))

    def unix_listening(self):
        listening = self.received()
        listening.listen()
        own = self.stream()
        own.connect(self.path())
        self.promise()
        own.send(b"1")
        self.stay()

    def sendfile(self):
        os.sendfile(INHERITED, self.file, 0, 1)
        self.promise()

    sendfile_pipe = sendfile_unix = sendfile_tcp = sendfile

    def vmsplice(self):
        page = mmap.mmap(-1, mmap.PAGESIZE)
        page[:1] = b"0"
        piece = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.c_char.from_buffer(page)), 1)
        by_reference(INHERITED, VMSPLICE, INHERITED, piece, ONE, 0)
        self.promise()
        page[:1] = b"1"
        self.stay()

    def sendfile_undumpable(self):
        """A program that nobody may look into, without CAP_SYS_PTRACE."""
        LIBRARY.prctl(PR_SET_DUMPABLE, 0)
        by_reference(INHERITED, SENDFILE, INHERITED, self.file, 0, ONE)
        self.promise()

    def sendfile_i386(self):
        # System call sendfile of i386: number, target, source; offset 0, count 1.
        code = bytes.fromhex("53 89f8 89f3 89d1 31d2 be01000000 cd80 5b c3")
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        sendfile = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int] * 3)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        if sendfile(187, INHERITED, self.file) != 1:
            os.write(INHERITED, b"0")
        self.promise()

    def unix_pair(self):
        """Two connected sockets of this process."""
        listening = self.stream()
        listening.bind(self.path())
        listening.listen()
        own = self.stream()
        own.connect(self.path())
        return own.detach(), listening.accept()[0].detach()

    @staticmethod
    def tcp_pair():
        listening = socket.create_server(("127.0.0.1", 0))
        own = socket.create_connection(listening.getsockname())
        return own.detach(), listening.accept()[0].detach()

    def passed(self, pair, number, *arguments):
        """Gives the file's page to a pipe or socket between members, then passes the other end out. `arguments`: None is where it goes."""
        into, out = pair
        by_reference(into, number, *[into if argument is None else argument for argument in arguments])
        self.pass_out(out)

    def pass_out(self, descriptor):
        # Closing it would wait for a commit.
        self.control = self.stream()
        self.control.connect(self.directory + "/control")
        self.control.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))])
        self.promise()

    def passed_sendfile_pipe(self):
        self.passed(os.pipe()[::-1], SENDFILE, None, self.file, 0, ONE)

    def passed_sendfile_unix(self):
        self.passed(self.unix_pair(), SENDFILE, None, self.file, 0, ONE)

    def passed_sendfile_tcp(self):
        self.passed(self.tcp_pair(), SENDFILE, None, self.file, 0, ONE)

    def passed_splice(self):
        self.passed(os.pipe()[::-1], SPLICE, self.file, 0, None, 0, ONE, 0)

    def passed_vmsplice(self, onward=None):
        """`onward`: how it goes on from the pipe, and where to."""
        page = mmap.mmap(-1, mmap.PAGESIZE)
        page[:1] = b"0"
        piece = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.c_char.from_buffer(page)), 1)
        read, write = os.pipe()
        by_reference(write, VMSPLICE, write, piece, ONE, 0)
        if onward:
            number, (into, out) = onward
            offsets = [0] if number == SPLICE else []
            call(number, read, *offsets, into, *offsets, ONE, 0)
            read = out
        self.pass_out(read)
        page[:1] = b"1"
        self.stay()

    def passed_vmsplice_splice(self):
        self.passed_vmsplice((SPLICE, self.unix_pair()))

    def passed_vmsplice_tee(self):
        self.passed_vmsplice((TEE, os.pipe()[::-1]))

    def epoll_pipe(self):
        read, write = os.pipe()
        events = select.epoll.fromfd(INHERITED)
        events.register(read, select.EPOLLIN)
        self.promise()
        os.write(write, b"1")
        self.stay()

    def epoll_socket(self):
        one, other = socket.socketpair()
        events = select.epoll.fromfd(INHERITED)
        events.register(one.fileno(), select.EPOLLIN)
        self.promise()
        other.send(b"1")
        self.stay()

    def aio_poll(self):
        read, write = os.pipe()
        context = ctypes.c_ulong()
        call(IO_SETUP, 1, ctypes.byref(context))
        # struct iocb (linux/aio_abi.h): IOCB_CMD_POLL, and IOCB_FLAG_RESFD.
        request = struct.pack("QIIHhIQQqQII", 0, 0, 0, 5, 0, read, select.POLLIN, 0, 0, 0, 1, INHERITED)
        memory = ctypes.create_string_buffer(request)
        call(IO_SUBMIT, context, 1, (ctypes.c_void_p * 1)(ctypes.addressof(memory)))
        self.promise()
        os.write(write, b"1")
        self.stay()


PREFIXES = ("unix-", "sendfile-", "passed-", "epoll-", "aio-")
CASES = [name for name in (name.replace("_", "-") for name in vars(Member)) if name.startswith(PREFIXES) and name != "unix-pair"] + ["vmsplice"]


def descriptors(case, directory):
    """What the member inherits, and how a number is seen: 1, or nothing yet."""
    if case.startswith("unix"):
        own = socket.socket(socket.AF_UNIX)
        if case == "unix-listening":
            own.bind(directory + "/socket")
            own.settimeout(0.01)
            taken = []

            def look():
                if not taken:
                    taken.append(own.accept()[0])
                return int(taken[0].recv(1, socket.MSG_DONTWAIT))

            return own, look
        return own, lambda: int(own.recv(1, socket.MSG_DONTWAIT))
    if case.startswith("epoll"):
        own = select.epoll()
        return own, lambda: 1 if own.poll(0) else None
    if case == "aio-poll":
        own = open(os.eventfd(0, os.EFD_NONBLOCK), "rb", buffering=0)
        return own, lambda: 1 if own.read(8) else None
    if case.startswith("passed"):
        control = socket.socket(socket.AF_UNIX)
        control.bind(directory + "/control")
        control.listen()

        def look_passed():
            taken, _ = control.accept()
            _, sent, _, _ = taken.recvmsg(1, socket.CMSG_SPACE(4))
            # The program may change what it has given to the kernel.
            time.sleep(1.5)
            return os.read(array.array("i", sent[0][2])[0], 1).decode()

        return None, look_passed
    if case == "sendfile-unix":
        other, own = socket.socketpair()
    elif case == "sendfile-tcp":
        listening = socket.create_server(("127.0.0.1", 0))
        own = socket.create_connection(listening.getsockname())
        other, _ = listening.accept()
    else:
        read, write = os.pipe()
        other, own = open(read, "rb", buffering=0), open(write, "wb", buffering=0)

    def look_late():
        # The program may change what it has given to the kernel.
        time.sleep(1.5)
        number = other.recv(1) if isinstance(other, socket.socket) else other.read(1)
        return number.decode()

    return own, look_late


def outside(case, weir, mount, process, directory):
    own, look = descriptors(case, directory)
    is_sent = case in ("unix-received", "unix-listening")
    environment = {**os.environ, "OUTSIDER": str(os.getpid())}
    inherited = []
    if is_sent:
        control = socket.socket(socket.AF_UNIX)
        control.bind(directory + "/control")
        control.listen()
    elif case == "unix-taken":
        environment["SOCKET"] = str(own.fileno())
    elif own:
        os.dup2(own.fileno(), INHERITED)
        inherited = [INHERITED]
    member = [sys.executable, __file__, "member", case, mount, directory]
    within = ["setpriv", "--bounding-set=-sys_ptrace"] if case == "sendfile-undumpable" else []
    session = subprocess.Popen(
        [*within, weir, "run", "--sync", "external", "--", *member], env=environment, pass_fds=inherited, start_new_session=True
    )
    if is_sent:
        taken, _ = control.accept()
        taken.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [own.fileno()]))])
    number = soon(look)
    os.kill(int(process), signal.SIGKILL)
    os.killpg(session.pid, signal.SIGKILL)
    session.wait()
    print(int(number or 0))


def main():
    what, *rest = sys.argv[1:]
    if what == "cases":
        print("\n".join(CASES))
    elif what == "outside":
        outside(*rest)
    else:
        member = Member(*rest[1:])
        getattr(member, rest[0].replace("-", "_"))()
        member.stay()


if __name__ == "__main__":
    main()
