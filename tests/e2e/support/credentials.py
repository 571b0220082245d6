"""Programs that use the lane and change their users, groups or namespaces.

    credentials.py worker | calls | threads MOUNT DIRECTORY

They leave their results for the test in DIRECTORY.
"""

import ctypes
import errno
import os
import sys
import threading
import time

part, mount, out = sys.argv[1:4]
libc = ctypes.CDLL(None, use_errno=True)
NOBODY = 65534


def note(name, text):
    with open(os.path.join(out, name + ".new"), "w") as file:
        file.write(str(text))
    os.rename(os.path.join(out, name + ".new"), os.path.join(out, name))


def is_mapped():
    with open("/proc/self/maps") as maps:
        return "memfd:weir" in maps.read()


def read_secret():
    """Reads the secret by the lane, and clears the buffer."""
    fd = os.open(os.path.join(mount, "secret"), os.O_RDONLY)
    buffer = bytearray(4096)
    for turn in range(64):
        assert os.preadv(fd, [buffer], turn % 64 * 4096) == 4096
    buffer[:] = bytes(len(buffer))
    return fd


def in_child(child):
    """Runs a function in a forked child, whose status is 0 if the function returns."""
    pid = os.fork()
    if pid == 0:
        try:
            child()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001: any failure is reported.
            print(f"child: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
    return pid


def wait_for(pid):
    assert os.waitpid(pid, 0)[1] == 0, "a child failed"


def worker():
    read_secret()
    fd = os.open(os.path.join(mount, "anybody"), os.O_RDWR | os.O_APPEND)
    for _ in range(20):
        os.write(fd, b"server")
    assert is_mapped(), "the server is not in the lane"

    def work():
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        assert not is_mapped(), "the worker has the lane's memory"
        try:
            os.open(os.path.join(mount, "secret"), os.O_RDONLY)
            raise AssertionError("the worker may open the file")
        except PermissionError:
            pass
        # An inherited description, and one that the worker opens itself.
        assert os.pread(fd, 6, 0) == b"server"
        for _ in range(10):
            os.write(fd, b"worker")
        own = os.open(os.path.join(mount, "anybody"), os.O_RDWR | os.O_APPEND)
        for turn in range(10):
            os.write(own, b"worker")
            assert os.pread(own, 6, 120 + 6 * turn) == b"worker"
        assert os.lseek(own, 0, os.SEEK_CUR) == 240
        assert os.lseek(fd, 0, os.SEEK_END) == 240
        assert not is_mapped(), "the worker has the lane's memory again"
        note("worker", os.getpid())
        while not os.path.exists(os.path.join(out, "looked")):
            time.sleep(0.02)

    os.chmod(out, 0o777)
    child = in_child(work)
    wait_for(child)
    # The server stays in the lane, and its own descriptions work.
    assert is_mapped()
    assert os.pread(fd, 240, 0) == b"server" * 20 + b"worker" * 20


def calls():
    """Makes each call so that it changes nothing or fails: with the same result as outside the lane."""
    secret = read_secret()
    space = os.open("/proc/self/ns/uts", os.O_RDONLY)
    none = ctypes.c_uint(-1 & 0xFFFFFFFF)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    gid_list = (ctypes.c_uint32 * 1)(0)
    numbers = {"setuid": 105, "setgid": 106, "setreuid": 113, "setregid": 114, "setgroups": 116, "setresuid": 117,
               "setresgid": 119, "setfsuid": 122, "setfsgid": 123, "capset": 126, "chroot": 161, "unshare": 272,
               "setns": 308}
    wanted = [
        ("setuid", (0,), 0), ("seteuid", (0,), 0), ("setreuid", (none, none), 0), ("setresuid", (none, none, none), 0),
        ("setfsuid", (0,), 0), ("setgid", (0,), 0), ("setegid", (0,), 0), ("setregid", (none, none), 0),
        ("setresgid", (none, none, none), 0), ("setfsgid", (0,), 0), ("setgroups", (1, gid_list), 0),
        ("initgroups", (b"root", 0), 0), ("capset", (header, sets), 0), ("chroot", (b"/",), 0),
        ("unshare", (0x200,), 0), ("setns", (space, 0), 0),
        # These calls fail with their usual errors.
        ("setgroups", (1 << 20, gid_list), errno.EINVAL), ("chroot", (b"/no/such/directory",), errno.ENOENT),
        ("setns", (-1, 0), errno.EBADF), ("unshare", (1,), errno.EINVAL),
    ]
    done = 0
    for name, arguments, error in wanted:
        forms = [lambda: getattr(libc, name)(*arguments)]
        if name in numbers:
            forms.append(lambda: libc.syscall(numbers[name], *arguments))
        for form in forms:
            def one():
                assert is_mapped(), "the child is not in the lane"
                ctypes.set_errno(0)
                result = form()
                assert (result, ctypes.get_errno()) == ((-1, error) if error else (0, 0)), \
                    f"{name}: {result}, {ctypes.get_errno()}"
                assert not is_mapped(), f"{name}: the lane's memory is mapped"
                assert len(os.pread(secret, 100, 7)) == 100
            wait_for(in_child(one))
            done += 1
    note("calls", done)


def threads():
    """Three threads read and write while a fourth changes the user of the whole process."""
    paths = [os.path.join(mount, f"data-{number}") for number in range(3)]
    fds = [os.open(path, os.O_RDWR | os.O_CREAT, 0o666) for path in paths]
    for fd in fds:
        os.pwrite(fd, bytes(64 * 512), 0)
    failures, rounds, stop = [], [0, 0, 0], threading.Event()

    def use(number):
        fd, turn = fds[number], 0
        try:
            while not stop.is_set():
                block = b"%07d:" % turn * 64
                place = turn % 64 * 512
                assert os.pwrite(fd, block, place) == 512
                assert os.pread(fd, 512, place) == block, "read other data than was written"
                turn += 1
                rounds[number] = turn
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    users = [threading.Thread(target=use, args=(number,), daemon=True) for number in range(3)]
    for user in users:
        user.start()
    time.sleep(0.5)
    assert is_mapped(), "the program is not in the lane"
    os.setresuid(NOBODY, NOBODY, NOBODY)
    assert not is_mapped(), "the lane's memory is mapped"
    before = list(rounds)
    time.sleep(0.5)
    stop.set()
    for user in users:
        user.join()
    assert not failures, failures
    assert all(now > then for now, then in zip(rounds, before)), "a thread made no progress"


{"worker": worker, "calls": calls, "threads": threads}[part]()
