#!/usr/bin/env python3
"""Programs for the tests of `weir run --sync external`.

    leaving.py count FILE                       counts up in FILE, synced, and prints each number after its sync
    leaving.py synchronous WAY FILE [WORD]      changes FILE by a synchronous write of this kind, prints WORD, and stays
    leaving.py by-door DIRECTORY                changes and syncs files 1000 times in DIRECTORY, which nobody outside can notice
    leaving.py answer FILE                      syncs FILE 100 times, and prints something after each sync
    leaving.py sync-on FILE                     as count, without printing
    leaving.py observe OUT COMMAND...           runs COMMAND, and keeps its last whole line in OUT, as an observer outside would see it
    leaving.py way NAME MOUNT OUTSIDE [PEER]    changes and syncs a file on MOUNT, and then does one thing, by name
    leaving.py ways                             the names, each with `outside` or `inside`: whether somebody outside can notice it
    leaving.py serve SOCKET                     accepts connections on a Unix socket and on the TCP port that it prints, and reads
    leaving.py talk HOW DIRECTORY               sends and receives by a socket whose address is in DIRECTORY; syncs a file there before each message
    leaving.py inheriting WAY COMMAND...        runs COMMAND with a TCP socket that listens and with a connection, or with a pipe, for ways that use these
"""

import array
import ctypes
import fcntl
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)


def count(path, prints=True):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    number = 0
    while True:
        number += 1
        os.pwrite(fd, b"%020d" % number, 0)
        os.fsync(fd)
        if prints:
            os.write(1, b"%d\n" % number)


def by_door(path):
    """What a member need not be stopped for: changes of files and names on the mount, locks there, and their syncs."""
    os.chdir(path)
    fd = os.open("file", os.O_RDWR | os.O_CREAT, 0o644)
    for number in range(1000):
        os.pwrite(fd, b"%020d" % number, 0)
        os.fsync(fd)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_UN)
        os.close(os.open("journal", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644))
        os.rename("journal", "old")
        os.unlink("old")


def answer(path):
    """A server that syncs before each answer."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    for number in range(100):
        os.pwrite(fd, b"%020d" % number, 0)
        os.fsync(fd)
        os.write(1, b"%d\n" % number)


def change(directory):
    """As count, without a sync: by a write, and by a rename."""
    os.chdir(directory)
    fd = os.open("written", os.O_RDWR | os.O_CREAT, 0o644)
    os.mkdir("renamed-0")
    number = 0
    while True:
        number += 1
        os.pwrite(fd, b"%020d" % number, 0)
        os.rename(f"renamed-{number - 1}", f"renamed-{number}")
        os.write(1, b"%d\n" % number)


def synchronous(way, path, *say):
    """FILE has 4096 bytes."""
    flags = {"o_sync": os.O_SYNC, "o_dsync": os.O_DSYNC, "direct": os.O_DIRECT | os.O_SYNC}.get(way, 0)
    fd = os.open(path, os.O_RDWR | flags)
    mapped = mmap.mmap(-1 if way != "msync" else fd, 4096)
    mapped[:3] = b"new"
    if way == "msync":
        # Python's own flush is msync with MS_SYNC.
        mapped.flush()
    elif way == "rwf_dsync":
        os.pwritev(fd, [mapped], 0, os.RWF_DSYNC)
    else:
        os.pwritev(fd, [mapped], 0)
    for word in say:
        os.write(1, word.encode())
    time.sleep(5)


def observe(out, command):
    program = subprocess.Popen(command, stdout=subprocess.PIPE)
    last = b""
    for line in program.stdout:
        if line.endswith(b"\n"):
            last = line
            with open(out + ".new", "wb") as kept:
                kept.write(last)
            os.rename(out + ".new", out)
    sys.exit(program.wait() % 256)


def serve(path):
    datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    datagrams.bind(path + "-datagrams")
    local = socket.socket(socket.AF_UNIX)
    local.bind(path)
    local.listen()
    tcp = socket.socket()
    tcp.bind(("127.0.0.1", 0))
    tcp.listen()
    print(tcp.getsockname()[1], flush=True)

    def accept(listening):
        while True:
            taken, _ = listening.accept()
            threading.Thread(target=lambda: iter(lambda: taken.recv(100), b"").__next__, daemon=True).start()
            kept.append(taken)

    def pass_connections(listening):
        while True:
            taken, _ = listening.accept()
            other = socket.socket()
            other.bind(("127.0.0.1", 0))
            other.listen()
            ends = [socket.create_connection(other.getsockname()), other.accept()[0]]
            socket.send_fds(taken, [b"x"], [end.fileno() for end in ends])
            kept.extend([taken, *ends])

    kept = []
    passing = socket.socket(socket.AF_UNIX)
    passing.bind(path + "-passes")
    passing.listen()
    threading.Thread(target=pass_connections, args=(passing,), daemon=True).start()
    threading.Thread(target=accept, args=(tcp,), daemon=True).start()
    accept(local)


def talk(how, directory):
    """Two of them talk; HOW is unix or tcp, and begins with `first-` for the one that listens."""
    first, kind = how.startswith("first-"), how.removeprefix("first-")
    place = directory + "/" + kind
    if first:
        listening = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
        listening.bind(place if kind == "unix" else ("127.0.0.1", 0))
        listening.listen()
        if kind == "tcp":
            with open(place + "-new", "w") as file:
                file.write(str(listening.getsockname()[1]))
            os.rename(place + "-new", place)
        other, _ = listening.accept()
        other.send(b"x")
    else:
        while not os.path.exists(place):
            time.sleep(0.01)
        other = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
        other.connect(place if kind == "unix" else ("127.0.0.1", int(open(place).read())))
        other.recv(1)
    fd = os.open(place + how, os.O_RDWR | os.O_CREAT, 0o644)
    for number in range(20):
        os.pwrite(fd, b"%020d" % number, 0)
        os.fsync(fd)
        other.send(b"x")
        other.recv(1)
    # An end would be noticed.
    os.kill(os.getpid(), signal.SIGKILL)


def inherit(way, command):
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    ends = [socket.create_connection(listening.getsockname()), listening.accept()[0]]
    numbers = [end.fileno() for end in (listening, *ends)]
    if "pipe" in way:
        numbers = list(os.pipe())
    environment = {**os.environ, "INHERITED": " ".join(map(str, numbers))}
    program = subprocess.Popen(command, pass_fds=numbers, env=environment)
    if "accepted_outside" in way:
        taken, _ = listening.accept()
        taken.send(b"x")
    # As a shell has it.
    sys.exit(program.wait() % 256)


class Ways:
    """Each method is one thing that a program does after a sync. Those in OUTSIDE can be noticed outside the session."""

    OUTSIDE = []
    INSIDE = []

    def __init__(self, mount, outside, peer):
        self.mount, self.outside, self.peer = mount, outside, peer
        self.read, self.write = os.pipe()
        self.left, self.right = socket.socketpair()
        self.null = os.open("/dev/null", os.O_WRONLY)
        self.served = os.open(os.environ["SERVED"] + "/file", os.O_RDWR | os.O_CREAT, 0o644)
        self.served_fifo = os.open(os.environ["SERVED"] + "/fifo", os.O_RDWR)
        self.device = os.open("/dev/fuse", os.O_RDWR)
        self.file = os.open(mount + "/synced", os.O_RDWR | os.O_CREAT, 0o644)
        self.other = os.open(mount + "/other", os.O_RDWR | os.O_CREAT, 0o644)
        self.elsewhere = os.open(outside + "/file", os.O_RDWR | os.O_CREAT, 0o644)
        self.locked = os.open(outside + "/file", os.O_RDONLY)
        fcntl.flock(self.locked, fcntl.LOCK_SH)
        self.own = os.open(outside + "/own", os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.lockf(self.own, fcntl.LOCK_EX)
        self.directory = os.open(outside, os.O_RDONLY)
        fcntl.flock(self.directory, fcntl.LOCK_SH)
        os.makedirs(outside + mount)
        if not os.path.lexists(mount + "/linked"):
            os.symlink(mount, mount + "/linked")
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(outside + "/listening")
        self.listening.listen()
        os.mkfifo(mount + "/fifo")
        self.fifo = os.open(mount + "/fifo", os.O_RDWR)
        os.unlink(mount + "/fifo")
        self.tcp = self.local = None
        if peer:
            port, path = peer.split(":", 1)
            self.tcp = socket.create_connection(("127.0.0.1", int(port)))
            self.local = socket.socket(socket.AF_UNIX)
            self.local.connect(path)

    def sync(self):
        os.pwrite(self.file, b"new", 0)
        os.fsync(self.file)

    def listen_and_connect(self, address="127.0.0.1", family=socket.AF_INET):
        """A TCP connection between members, to be accepted. What this does waits, and after it nothing is promised."""
        self.server = socket.socket(family)
        self.server.bind((address, 0))
        self.server.listen()
        client = socket.socket(family)
        client.connect(self.server.getsockname()[:2])
        # Its end would be noticed.
        self.kept = client
        return client

    def converse(self, client, server):
        for _ in range(3):
            self.sync()
            client.send(b"question")
            server.sendmsg([b"answer"])
            server.recv(100)
            client.recvmsg(100)
        self.sync()
        client.shutdown(socket.SHUT_WR)
        server.close()
        self.sync()
        client.close()

    def inherited(self):
        return [socket.socket(fileno=int(number)) for number in os.environ["INHERITED"].split()]


def submit(fd, how, opcode=1, event=None):
    """One request of asynchronous I/O (io_submit(2)): by libaio's function, which `weir run` has, or by the system call."""
    context = ctypes.c_ulong()
    assert libc.syscall(206, 8, ctypes.byref(context)) == 0
    data = ctypes.create_string_buffer(b"asynchronous")
    flags, told = (0, 0) if event is None else (1, event)
    is_sync = opcode in (2, 3)
    memory, size = (0, 0) if is_sync else (ctypes.addressof(data), 12)
    request = struct.pack("=QIIHhIQQqQII", 7, 0, 0, opcode, 0, fd, memory, size, 0, 0, flags, told)
    request = ctypes.create_string_buffer(request)
    requests = (ctypes.c_void_p * 1)(ctypes.addressof(request))
    if how == "function":
        function = libc.io_submit
        function.argtypes = ctypes.c_ulong, ctypes.c_long, ctypes.c_void_p
        assert function(context, 1, requests) == 1
    elif how == "unreadable":
        requests[0] = 1
        assert libc.io_submit(context, 1, requests) == -14
        return b""
    else:
        assert libc.syscall(209, context, 1, requests) == 1
    done = ctypes.create_string_buffer(32)
    assert libc.syscall(208, context, 1, 1, done, None) == 1
    assert struct.unpack("=QQqq", done.raw)[2] == size
    return data.raw


def outside(way):
    Ways.OUTSIDE.append(way.__name__)
    setattr(Ways, way.__name__, way)


def inside(way):
    Ways.INSIDE.append(way.__name__)
    setattr(Ways, way.__name__, way)


@outside
def write_to_inherited(self):
    os.write(1, b"x")


@outside
def raw_system_call(self):
    libc.syscall(1, 1, b"x", 1)


@outside
def write_to_file_outside(self):
    os.write(self.elsewhere, b"x")


@outside
def tcp_connected_to_another_program_again(self):
    client = self.listen_and_connect()
    accepted, _ = self.server.accept()
    self.sync()
    client.send(b"inside")
    # This waits, and after it nothing is promised.
    address = struct.pack("=H14x", socket.AF_UNSPEC)
    assert libc.connect(client.fileno(), address, len(address)) == 0
    client.connect(("127.0.0.1", self.tcp.getpeername()[1]))
    self.sync()
    client.send(b"outside")


@outside
def submit_outside(self):
    submit(self.elsewhere, "call")


@outside
def submit_outside_by_the_function(self):
    submit(self.elsewhere, "function")


@outside
def submit_what_cannot_be_read(self):
    submit(self.other, "unreadable")


@outside
def sync_a_file_of_another_server(self):
    os.fsync(self.served)


@outside
def sync_the_file_system_of_another_server(self):
    assert libc.syncfs(self.served) == 0


@outside
def write_out_to_another_server(self):
    assert libc.syscall(277, self.served, 0, 0, 2) == 0


@outside
def submit_a_sync_to_another_server(self):
    submit(self.served, "call", opcode=2)


@outside
def submit_a_sync_to_another_server_by_the_function(self):
    submit(self.served, "function", opcode=3)


@outside
def truncate_outside(self):
    os.ftruncate(self.elsewhere, 1)


@outside
def make_outside(self):
    os.close(os.open(self.outside + "/new", os.O_CREAT | os.O_WRONLY, 0o600))


@outside
def rename_outside(self):
    os.rename(self.outside + "/file", self.outside + "/renamed")


@outside
def rename_out_of_the_mount(self):
    try:
        os.rename(self.mount + "/other", self.outside + "/other")
    except OSError:
        pass


@outside
def link_by_a_symbolic_link(self):
    with open(self.mount + "/leads-outside", "w") as file:
        file.write("x")


@outside
def lock_outside(self):
    fcntl.lockf(self.elsewhere, fcntl.LOCK_EX)


@outside
def chmod_outside(self):
    os.chmod(self.outside + "/file", 0o600)


@outside
def send_by_tcp(self):
    self.tcp.send(b"x")


@outside
def send_to_unix_socket(self):
    self.local.sendmsg([b"x"])


@outside
def close_connection(self):
    self.tcp.close()


@outside
def shut_connection_down(self):
    self.local.shutdown(socket.SHUT_WR)


@outside
def replace_connection(self):
    os.dup2(self.null, self.tcp.fileno())


@outside
def connect(self):
    socket.create_connection(("127.0.0.1", int(self.peer.split(":")[0])))


@outside
def end_with_a_connection(self):
    if os.fork() == 0:
        os._exit(0)
    os.wait()


@outside
def become_another_program(self):
    self.local.set_inheritable(False)
    if os.fork() == 0:
        os.execv("/bin/sleep", ["sleep", "0.5"])
    time.sleep(0.2)
    os._exit(0)


@outside
def signal_outside(self):
    os.kill(int(os.environ["OUTSIDER"]), 0)


@outside
def write_in_a_child(self):
    if os.fork() == 0:
        os.write(1, b"x")
        os._exit(0)
    os.wait()


@outside
def write_after_a_pipe(self):
    if os.fork() == 0:
        os.read(self.read, 1)
        os.write(1, b"x")
        os._exit(0)
    os.write(self.write, b"x")
    os.wait()


@outside
def pass_a_pipe_out(self):
    # The message itself leaves, and after it the pipe is in other hands.
    self.local.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self.write]))])
    self.sync()
    os.write(self.write, b"x")


@outside
def add_to_an_event_passed_out(self):
    event = os.eventfd(0)
    self.local.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [event]))])
    # The message itself leaves.
    self.sync()
    for _ in range(3):
        os.eventfd_write(event, 1)
        self.sync()


@outside
def write_to_a_pipe_that_was_passed_out(self):
    # While it was inside.
    os.write(self.write, b"x")
    self.local.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self.read]))])
    for _ in range(2):
        self.sync()
        os.write(self.write, b"x")


@outside
def answer_who_asks_by_fanotify(self):
    # FAN_CLASS_CONTENT; FAN_MARK_ADD; FAN_OPEN_PERM: a child opens the file, and is let through.
    notified = libc.fanotify_init(4, os.O_RDONLY)
    libc.fanotify_mark(notified, 1, ctypes.c_uint64(0x10000), -100, (self.outside + "/file").encode())
    if os.fork() == 0:
        os.open(self.outside + "/file", os.O_RDONLY)
        # An end would be noticed.
        os.kill(os.getpid(), signal.SIGKILL)
    asked = os.read(notified, 24)
    fd = int.from_bytes(asked[16:20], "little")
    os.write(notified, fd.to_bytes(4, "little") + (1).to_bytes(4, "little"))


@outside
def chmod_by_a_symbolic_link(self):
    os.chmod(self.mount + "/leads-outside", 0o600)


@outside
def truncate_by_a_symbolic_link(self):
    os.truncate(self.mount + "/leads-outside", 1)


@outside
def make_by_a_dangling_link(self):
    os.close(os.open(self.mount + "/dangles", os.O_CREAT | os.O_WRONLY, 0o600))


@outside
def chmod_by_dots(self):
    os.chdir(self.mount)
    os.chmod("..", os.stat("..").st_mode & 0o7777)


@outside
def truncate_by_proc(self):
    with open(f"/proc/self/fd/{self.elsewhere}", "w"):
        pass


@outside
def release_a_lock_outside(self):
    # Locked before the sync.
    os.close(self.locked)


@outside
def end_a_lock_by_another_descriptor(self):
    # fcntl_locking(2): closing any descriptor of a file ends the locks of the process.
    os.close(os.open(self.outside + "/own", os.O_RDONLY))


@outside
def unlock_a_directory_by_closing_it(self):
    os.close(self.directory)


@outside
def close_inherited_file_that_was_opened_again(self):
    os.close(os.open("/proc/self/fd/1", os.O_WRONLY))


@outside
def close_an_inherited_pipe_that_was_opened_again(self):
    written = os.environ["INHERITED"].split()[1]
    os.close(os.open("/proc/self/fd/" + written, os.O_WRONLY))


@outside
def make_in_a_linked_directory(self):
    # Somebody may change where the link leads, until the file is made.
    os.close(os.open(self.mount + "/linked/new", os.O_CREAT | os.O_WRONLY, 0o600))


@outside
def make_in_another_root(self):
    how = struct.pack("3Q", os.O_CREAT | os.O_WRONLY, 0o600, 0x10)  # RESOLVE_IN_ROOT
    libc.syscall(437, self.directory, f"{self.mount}/new".encode(), how, len(how))


@outside
def close_written_file_outside(self):
    os.close(self.elsewhere)


@outside
def stop_listening(self):
    self.listening.close()


@outside
def name_a_socket_between_members(self):
    self.left.bind(self.outside + "/named")


@outside
def send_a_datagram_elsewhere(self):
    left, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    left.sendto(b"x", self.peer.split(":", 1)[1] + "-datagrams")


@outside
def have_signals_sent(self):
    fcntl.fcntl(self.read, fcntl.F_SETOWN, int(os.environ["OUTSIDER"]))


@outside
def uncork(self):
    self.tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)


@outside
def set_a_semaphore(self):
    # semget and semctl (IPC_RMID) of System V.
    libc.semctl(libc.semget(0, 1, 0o1600), 0, 0)


@outside
def limit_another(self):
    import resource

    resource.prlimit(int(os.environ["OUTSIDER"]), resource.RLIMIT_NOFILE, (1024, 4096))


@outside
def nice_another(self):
    os.setpriority(os.PRIO_PROCESS, int(os.environ["OUTSIDER"]), 5)


@outside
def splice_that_waits(self):
    # A pipe of members into one that is not: what comes later would leave with it.
    try:
        os.splice(self.read, 1, 10)
    except OSError:
        pass
    os.write(self.write, b"x")
    os.write(1, os.read(self.read, 1))


@outside
def write_to_a_fifo(self):
    os.write(self.fifo, b"x")


@outside
def sync_a_device(self):
    # Its node's file system is a plain one.
    libc.fsync(self.device)


@outside
def sync_the_file_system_of_a_fifo(self):
    libc.syncfs(self.served_fifo)


@outside
def queue(self):
    # msgget, msgsnd, msgctl of System V.
    number = libc.msgget(0, 0o1600)
    libc.msgsnd(number, (ctypes.c_long * 2)(1, 1), 8, 0)
    libc.msgctl(number, 0, None)


@outside
def tcp_before_it_is_accepted(self):
    client = self.listen_and_connect()
    self.sync()
    client.send(b"x")


@outside
def tcp_to_a_member_that_passed_it_out(self):
    client = self.listen_and_connect()
    server, _ = self.server.accept()
    self.sync()
    socket.send_fds(self.local, [b"x"], [server.fileno()])
    self.sync()
    client.send(b"x")


@outside
def tcp_received_from_outside(self):
    passing = socket.socket(socket.AF_UNIX)
    passing.connect(self.peer.split(":", 1)[1] + "-passes")
    _, ends, _, _ = socket.recv_fds(passing, 1, 2)
    self.sync()
    os.write(ends[0], b"x")
    # Their end would be noticed, too.
    self.kept = passing, ends


@outside
def tcp_inherited_at_both_ends(self):
    self.kept = self.inherited()
    self.kept[1].send(b"x")


@outside
def tcp_accepted_outside_by_an_inherited_socket(self):
    client = socket.create_connection(self.inherited()[0].getsockname())
    self.kept = client
    client.recv(1)
    self.sync()
    client.send(b"x")


@outside
def tcp_of_another_network(self):
    # unshare: CLONE_NEWNET. The addresses of this connection may be another's where the supervisor is.
    libc.unshare(0x40000000)
    self.kept = client = socket.socket()
    self.server = socket.socket()
    if os.system("ip link set lo up") == 0:
        self.server.bind(("127.0.0.1", 0))
        self.server.listen()
        client.connect(self.server.getsockname())
    self.sync()
    client.send(b"x")


@inside
def tcp_in_one_program(self):
    client = self.listen_and_connect()
    self.converse(client, self.server.accept()[0])


@inside
def tcp_by_ipv6(self):
    client = self.listen_and_connect("::1", socket.AF_INET6)
    self.converse(client, self.server.accept()[0])


@inside
def tcp_by_an_own_address(self):
    asks = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        asks.connect(("192.0.2.1", 9))
    except OSError:
        pass
    own = asks.getsockname()[0]
    asks.close()
    client = self.listen_and_connect("127.0.0.1" if own == "0.0.0.0" else own)
    self.converse(client, self.server.accept()[0])


@inside
def tcp_to_a_child(self):
    client = self.listen_and_connect()
    if os.fork() == 0:
        server, _ = self.server.accept()
        client.close()
        self.sync()
        server.send(server.recv(100))
        server.close()
        os.kill(os.getpid(), signal.SIGKILL)
    self.sync()
    # Before it is accepted it would wait.
    time.sleep(0.2)
    client.send(b"x")
    client.recv(100)
    self.sync()
    client.close()
    os.wait()


@inside
def tcp_accepted_by_an_inherited_socket(self):
    listening, *_ = self.inherited()
    client = socket.create_connection(listening.getsockname())
    server, _ = listening.accept()
    self.sync()
    client.send(b"x")
    server.close()


@inside
def receive_messages(self):
    for _ in range(3):
        self.left.send(b"x")
        self.right.recvmsg(100, 100)
        self.sync()


@inside
def write_to_a_pipe(self):
    os.write(self.write, b"x")


@inside
def write_to_a_socket_pair(self):
    self.left.send(b"x")


@inside
def write_to_nobody(self):
    os.write(self.null, b"x")


@inside
def write_to_the_mount(self):
    os.pwrite(self.other, b"x", 0)


@inside
def rename_in_the_mount(self):
    os.rename(self.mount + "/other", self.mount + "/renamed")
    os.rename(self.mount + "/renamed", self.mount + "/other")


@inside
def make_and_remove_in_the_mount(self):
    os.mkdir(self.mount + "/made")
    os.rmdir(self.mount + "/made")


@inside
def make_by_a_relative_path(self):
    os.chdir(self.mount)
    os.close(os.open("made", os.O_CREAT | os.O_WRONLY, 0o600))
    os.unlink("made")


@inside
def close_a_duplicate_of_what_was_inherited(self):
    os.close(os.dup(1))


@inside
def close_an_inherited_pipe(self):
    for number in os.environ["INHERITED"].split():
        os.close(int(number))


@inside
def sync_what_cannot_be(self):
    for fd in (-1, 1000, self.right.fileno(), self.read, self.served_fifo, self.null):
        libc.fsync(fd)


@inside
def lock_in_the_mount(self):
    fcntl.lockf(self.other, fcntl.LOCK_EX)
    fcntl.flock(self.other, fcntl.LOCK_UN)


@inside
def submit_to_the_mount(self):
    submit(self.other, "function")
    assert os.pread(self.other, 12, 0) == b"asynchronous"
    self.sync()
    submit(self.other, "call")
    self.sync()
    submit(self.other, "call", event=os.eventfd(0))


@inside
def sync_elsewhere(self):
    submit(self.other, "function", opcode=2)
    os.fsync(self.own)
    libc.syncfs(self.own)
    submit(self.own, "call", opcode=3)


@inside
def submit_a_read(self):
    os.pwrite(self.other, b"twelve bytes", 0)
    for how in ("function", "call"):
        assert submit(self.other, how, opcode=0)[:12] == b"twelve bytes"


@inside
def signal_a_child(self):
    child = os.fork()
    if child == 0:
        time.sleep(10)
        os._exit(0)
    os.kill(child, signal.SIGKILL)
    os.wait()


@inside
def sync_again(self):
    for _ in range(10):
        self.sync()


@inside
def event(self):
    fd = os.eventfd(0)
    os.eventfd_write(fd, 1)
    os.close(fd)


@inside
def close_a_pipe(self):
    os.close(self.write)


@inside
def close_files(self):
    os.close(self.other)
    os.close(os.open("/etc/passwd", os.O_RDONLY))


@inside
def local_server(self):
    path = self.mount + "/socket"
    listening = socket.socket(socket.AF_UNIX)
    # Others may see the socket: these two wait.
    listening.bind(path)
    listening.listen()
    self.kept = listening
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(path)
    accepted, _ = listening.accept()
    os.unlink(path)
    self.sync()
    connected.send(b"question")
    accepted.send(b"answer")
    accepted.close()
    connected.close()


def main():
    what, *rest = sys.argv[1:]
    if what == "count":
        count(*rest)
    elif what == "by-door":
        by_door(*rest)
    elif what == "answer":
        answer(*rest)
    elif what == "change":
        change(*rest)
    elif what == "synchronous":
        synchronous(*rest)
    elif what == "sync-on":
        count(*rest, prints=False)
    elif what == "observe":
        observe(rest[0], rest[1:])
    elif what == "serve":
        serve(*rest)
    elif what == "talk":
        talk(*rest)
    elif what == "inheriting":
        inherit(rest[0], rest[1:])
    elif what == "ways":
        for name in Ways.OUTSIDE:
            print("outside", name)
        for name in Ways.INSIDE:
            print("inside", name)
    elif what == "way":
        name, mount, elsewhere, *peer = rest
        ways = Ways(mount, elsewhere, peer[0] if peer else None)
        ways.sync()
        getattr(ways, name)()
        # An end would be noticed: files outside are open, and a socket listens.
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
