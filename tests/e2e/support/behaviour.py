#!/usr/bin/env python3
"""Says what a directory's file system answers to calls that pjdfstest and fsx do not make.

    behaviour.py DIRECTORY

Prints one line a call, without times, inode numbers or paths, so that the answers of a mount can be
compared with those of the directory underneath, line by line. Needs root for the parts that change
owners; as an ordinary user those lines say EPERM on both sides.
"""

import ctypes
import errno
import os
import shutil
import socket
import stat
import struct
import subprocess
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
libc.renameat2.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
KEEP_SIZE, PUNCH_HOLE, COLLAPSE, ZERO_RANGE, INSERT = 1, 2, 8, 16, 32
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
RWF_APPEND = 16
# io_setup(2), io_destroy(2), io_getevents(2), io_submit(2)
IO_CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}


def answer(call, *arguments, **options):
    """What a call returned, or the name of its error."""
    try:
        return call(*arguments, **options)
    except OSError as error:
        return errno.errorcode[error.errno]


def c_call(call, *arguments):
    def checked():
        if call(*arguments) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return "ok"
    return answer(checked)


def say(what, *values):
    print(f"{what}:", *values)


def facts(path):
    found = os.lstat(path)
    return stat.filemode(found.st_mode), found.st_uid, found.st_gid, found.st_nlink, found.st_size


def fill(path, size=20_000, mode=0o644):
    with open(path, "wb") as file:
        file.write(bytes(number % 251 for number in range(size)))
    os.chmod(path, mode)


def digest(path):
    with open(path, "rb") as file:
        data = file.read()
    return len(data), hash_of(data)


def hash_of(data):
    import hashlib
    return hashlib.sha256(data).hexdigest()[:16]


def removed_directory():
    """A directory that is synced after it was removed."""
    os.mkdir("to-be-removed")
    fd = os.open("to-be-removed", os.O_RDONLY | os.O_DIRECTORY)
    os.rmdir("to-be-removed")
    say("removed directory", answer(os.fsync, fd), answer(os.listdir, fd), os.fstat(fd).st_nlink,
        answer(os.mkdir, "below", dir_fd=fd))
    os.close(fd)


def unnamed_files():
    """O_TMPFILE: files that get a name later, or never."""
    os.mkdir("unnamed")
    os.chmod("unnamed", 0o2770)
    os.chown("unnamed", -1, 12)
    before = os.umask(0o027)
    for name, flags in [("linkable", 0), ("exclusive", os.O_EXCL)]:
        fd = answer(os.open, "unnamed", os.O_RDWR | os.O_TMPFILE | flags, 0o666)
        if not isinstance(fd, int):
            say(f"unnamed {name}", fd)
            continue
        say(f"unnamed {name}", os.listdir("unnamed"), os.fstat(fd).st_nlink, stat.filemode(os.fstat(fd).st_mode),
            os.fstat(fd).st_gid)
        os.write(fd, b"0123456789" * 1000)
        os.pwrite(fd, b"x", 5)
        os.fsync(fd)
        os.ftruncate(fd, 9000)
        os.fchmod(fd, 0o640)
        say(f"unnamed {name} written", os.fstat(fd).st_size, os.pread(fd, 10, 0))
        for to in ["unnamed/named", "unnamed/again", "flags-not-there/named", "unnamed/named"]:
            linked = answer(os.link, f"/proc/self/fd/{fd}", to, src_dir_fd=fd)
            say(f"unnamed {name} linked", to, linked, sorted(os.listdir("unnamed")), os.fstat(fd).st_nlink)
        os.pwrite(fd, b"y", 6)
        os.close(fd)
    if os.path.exists("unnamed/named"):
        say("unnamed named", facts("unnamed/named"), digest("unnamed/again"))
    fd = answer(os.open, "unnamed", os.O_RDONLY | os.O_TMPFILE, 0o600)
    say("unnamed read-only", fd)
    say("unnamed in a file", answer(os.open, "/proc/self/exe", os.O_RDWR | os.O_TMPFILE, 0o600))
    os.umask(before)


def open_flags():
    for name, flags in [("create excl", os.O_CREAT | os.O_EXCL), ("create excl again", os.O_CREAT | os.O_EXCL),
                        ("create trunc", os.O_CREAT | os.O_TRUNC), ("sync", os.O_SYNC), ("dsync", os.O_DSYNC),
                        ("append", os.O_APPEND), ("noatime", os.O_NOATIME), ("nofollow", os.O_NOFOLLOW),
                        ("directory", os.O_DIRECTORY), ("path", os.O_PATH)]:
        fd = answer(os.open, "flags", os.O_RDWR | flags, 0o640)
        if isinstance(fd, int):
            say(f"open {name}", answer(os.write, fd, b"0123456789"), facts("flags"))
            os.close(fd)
        else:
            say(f"open {name}", fd)
    unnamed_files()
    removed_directory()

    fd = os.open("flags", os.O_RDWR | os.O_APPEND)
    os.pwrite(fd, b"END", 0)
    say("pwrite on append", digest("flags"))
    os.close(fd)
    fill("direct", 8192)
    fd = os.open("direct", os.O_RDWR | os.O_DIRECT)
    import mmap
    buffer = mmap.mmap(-1, 4096)
    buffer.write(b"d" * 4096)
    say("direct write", answer(os.pwritev, fd, [buffer], 4096), digest("direct"))
    say("direct read", answer(os.preadv, fd, [buffer], 4096), hash_of(buffer[:]))
    os.close(fd)
    fd = os.open("direct", os.O_RDONLY)
    say("write on a read-only descriptor", answer(os.write, fd, b"x"))
    os.close(fd)


def appends():
    """Appends by a flag of the call, and by io_submit(2), to files that were written by write(2) before."""
    def written(name, flags=0):
        fd = os.open(name, os.O_RDWR | os.O_CREAT | flags, 0o644)
        for number in range(200):
            os.write(fd, b"%05d\n" % number)
        return fd

    ways = {
        "pwritev2": lambda fd: os.pwritev(fd, [b"appended\n"], 0, RWF_APPEND),
        "io_submit": lambda fd: submit(fd, [b"appended\n"], RWF_APPEND),
    }
    for name, way in ways.items():
        fd = written(name)
        say(f"{name} with RWF_APPEND", answer(way, fd), os.fstat(fd).st_size, digest(name))
        os.write(fd, b"at the position")
        say("and the position", os.lseek(fd, 0, os.SEEK_CUR), digest(name))
        os.close(fd)
        # By a description that was not used before.
        fd = written(name, os.O_TRUNC | os.O_APPEND)
        other = os.open(name, os.O_WRONLY)
        say("by another description", answer(way, other), digest(name))
        os.write(fd, b"more")
        say("and more", answer(way, other), os.fstat(fd).st_size, digest(name))
        os.close(other)
        os.close(fd)
        os.unlink(name)
    fd = written("long", os.O_APPEND)
    parts = [bytes([number]) * (5 << 20) for number in (1, 2)]
    say("long appends by io_submit", answer(submit, fd, parts), os.fstat(fd).st_size, digest("long"))
    os.close(fd)
    os.unlink("long")


def submit(fd, parts, flags=0):
    """Writes each part by io_submit(2), all at once. What each has written."""
    setup, destroy, getevents, submits = IO_CALLS[os.uname().machine]
    context, count = ctypes.c_ulong(0), len(parts)
    requests = [ctypes.create_string_buffer(struct.pack(
        "=QIIHhIQQqQII", 0, 0, flags, 1, 0, fd, ctypes.cast(part, ctypes.c_void_p).value, len(part), 0, 0, 0, 0), 64)
        for part in parts]
    pointers = (ctypes.c_void_p * count)(*map(ctypes.addressof, requests))
    events = (ctypes.c_int64 * (4 * count))()
    assert libc.syscall(ctypes.c_long(setup), ctypes.c_long(8), ctypes.byref(context)) == 0
    assert libc.syscall(ctypes.c_long(submits), context, ctypes.c_long(count), pointers) == count
    assert libc.syscall(ctypes.c_long(getevents), context, ctypes.c_long(count), ctypes.c_long(count), events, None) == count
    libc.syscall(ctypes.c_long(destroy), context)
    return sorted(events[2::4])


def renames():
    def rename(old, new, flags):
        return c_call(libc.renameat2, -100, old.encode(), -100, new.encode(), flags)
    fill("r1", 10)
    fill("r2", 20)
    say("rename noreplace onto", rename("r1", "r2", NOREPLACE), facts("r2"))
    say("rename noreplace to new", rename("r1", "r3", NOREPLACE), facts("r3"))
    say("rename exchange", rename("r2", "r3", EXCHANGE), facts("r2"), facts("r3"))
    say("rename exchange with none", rename("r2", "none", EXCHANGE))
    os.mkdir("rd")
    say("rename exchange with directory", rename("r2", "rd", EXCHANGE), facts("r2")[0], facts("rd")[0])
    say("rename both flags", rename("r3", "r4", NOREPLACE | EXCHANGE))
    say("rename directory below itself", answer(os.rename, "r2", "r2/below"))
    os.mkdir("rf")
    fill("rf/file", 1)
    say("rename onto a full directory", answer(os.rename, "r2", "rf"))
    say("rename file onto directory", answer(os.rename, "r3", "rf"))
    os.link("r3", "r5")
    say("rename onto a link to the same file", answer(os.rename, "r3", "r5"), os.path.exists("r3"))


def fallocates():
    for name, mode, offset, size in [
            ("plain inside", 0, 0, 4096), ("plain past the end", 0, 30_000, 10_000), ("keep size", KEEP_SIZE, 50_000, 9000),
            ("punch", PUNCH_HOLE | KEEP_SIZE, 5000, 10_000), ("punch whole pages", PUNCH_HOLE | KEEP_SIZE, 4096, 8192),
            ("punch without keep", PUNCH_HOLE, 0, 4096), ("zero", ZERO_RANGE, 3000, 7000),
            ("zero past the end", ZERO_RANGE, 19_000, 7000), ("zero keep size", ZERO_RANGE | KEEP_SIZE, 19_000, 7000),
            ("collapse", COLLAPSE, 4096, 8192), ("collapse unaligned", COLLAPSE, 100, 8192),
            ("insert", INSERT, 4096, 4096), ("no length", 0, 0, 0), ("negative", 0, -1, 5)]:
        fill("fa")
        fd = os.open("fa", os.O_RDWR)
        os.pwrite(fd, b"dirty before it", 6000)
        result = c_call(libc.fallocate, fd, mode, offset, size)
        os.pwrite(fd, b"dirty after it", 100)
        say(f"fallocate {name}", result, digest("fa"))
        os.close(fd)
    fd = os.open("fa", os.O_RDONLY)
    say("fallocate on a read-only descriptor", c_call(libc.fallocate, fd, 0, 0, 10))
    os.close(fd)


def holes():
    fd = os.open("holes", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"a" * 65536, 0)
    os.pwrite(fd, b"b" * 65536, 1 << 20)
    os.ftruncate(fd, 2 << 20)
    os.fsync(fd)
    for name, whence in [("data", os.SEEK_DATA), ("hole", os.SEEK_HOLE)]:
        say(f"seek {name}", *[answer(os.lseek, fd, at, whence) for at in (0, 100, 65536, 1 << 20, (1 << 20) + 65536, 2 << 20)])
    os.pwrite(fd, b"dirty", 1_600_000)
    at = os.lseek(fd, 1_200_000, os.SEEK_DATA)
    say("seek data finds what is not home yet", at <= 1_600_000 < 2 << 20 and at > 1_200_000 - 1)
    os.close(fd)


def copies():
    fill("from", 100_000)
    os.truncate("from", 150_000)
    source = os.open("from", os.O_RDWR)
    os.pwrite(source, b"not home yet", 50_000)
    target = os.open("to", os.O_RDWR | os.O_CREAT, 0o600)
    os.pwrite(target, b"older", 0)
    say("copy_file_range", answer(os.copy_file_range, source, target, 60_000, 45_000, 1000), digest("to"))
    say("copy_file_range past the end", answer(os.copy_file_range, source, target, 60_000, 140_000, 0), digest("to"))
    say("copy_file_range in one file", answer(os.copy_file_range, source, source, 10_000, 0, 120_000), digest("from"))
    say("copy_file_range overlapping", answer(os.copy_file_range, source, source, 10_000, 0, 5000))
    say("sendfile", answer(os.sendfile, target, source, 0, 10_000), os.fstat(target).st_size)
    os.close(source)
    os.close(target)


def attributes():
    fill("x", 100)
    say("setxattr", answer(os.setxattr, "x", "user.one", b"1"), answer(os.setxattr, "x", "user.two", b"2" * 1000))
    say("setxattr create again", answer(os.setxattr, "x", "user.one", b"3", os.XATTR_CREATE))
    say("setxattr replace none", answer(os.setxattr, "x", "user.none", b"3", os.XATTR_REPLACE))
    say("listxattr", sorted(name for name in os.listxattr("x") if name.startswith("user.")))
    say("getxattr", answer(os.getxattr, "x", "user.one"), hash_of(os.getxattr("x", "user.two")))
    say("getxattr none", answer(os.getxattr, "x", "user.none"))
    say("removexattr", answer(os.removexattr, "x", "user.one"), answer(os.removexattr, "x", "user.one"))
    say("setxattr unknown space", answer(os.setxattr, "x", "nowhere.one", b"1"))
    say("setxattr empty", answer(os.setxattr, "x", "user.empty", b""), answer(os.getxattr, "x", "user.empty"))
    os.symlink("x", "xl")
    say("setxattr on a symlink", answer(os.setxattr, "xl", "user.one", b"1", follow_symlinks=False))


def acls():
    def run(*command):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        return done.returncode, done.stdout.replace("\n", " | ")
    fill("acl", 10)
    os.mkdir("acld")
    say("setfacl", run("setfacl", "-m", "u:1:rw,g:1:r", "acl"), facts("acl"))
    say("getfacl", run("getfacl", "-cn", "acl"))
    say("chmod under an acl", answer(os.chmod, "acl", 0o600), run("getfacl", "-cn", "acl"))
    say("default acl", run("setfacl", "-d", "-m", "u:1:rwx,o::-", "acld"), run("getfacl", "-cn", "acld"))
    old = os.umask(0o022)
    os.close(os.open("acld/file", os.O_CREAT | os.O_WRONLY, 0o666))
    os.mkdir("acld/directory", 0o777)
    os.mknod("acld/node", 0o666 | stat.S_IFIFO)
    os.umask(old)
    for name in ("acld/file", "acld/directory", "acld/node"):
        say(f"inherited by {name}", run("getfacl", "-cn", name), facts(name)[:3])
    say("setfacl -b", run("setfacl", "-b", "acl"), run("getfacl", "-cn", "acl"))


def as_other(call):
    """Runs a call as uid and gid 1 in a child, which prints for itself."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        if os.getuid() == 0:
            os.setgroups([])
            os.setresgid(1, 1, 1)
            os.setresuid(1, 1, 1)
        call()
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)


def set_id_bits():
    def change(name, path, change_it):
        fill(path, 5000, 0o777)
        os.chmod(path, 0o6777)
        as_other(lambda: say(f"set-id after {name}", change_it(path), facts(path)[0]))

    def write(path):
        fd = os.open(path, os.O_WRONLY)
        return answer(os.pwrite, fd, b"changed", 10)

    def allocate(path):
        fd = os.open(path, os.O_WRONLY)
        return c_call(libc.fallocate, fd, PUNCH_HOLE | KEEP_SIZE, 0, 4096)

    change("write", "s1", write)
    change("truncate", "s2", lambda path: answer(os.truncate, path, 100))
    change("open trunc", "s3", lambda path: isinstance(answer(os.open, path, os.O_WRONLY | os.O_TRUNC), int))
    change("fallocate", "s4", allocate)
    fill("s5", 5, 0o755)
    os.chmod("s5", 0o6755)
    say("set-id after chown", answer(os.chown, "s5", 1, 1), facts("s5"))
    fill("s6", 5, 0o755)
    os.chmod("s6", 0o6755)
    say("set-id after a write by root", write("s6"), facts("s6")[0])
    fill("s7", 5, 0o644)
    os.chmod("s7", 0o2644)
    say("set-gid without execute after chown", answer(os.chown, "s7", 1, 1), facts("s7"))
    fill("cap", 5, 0o755)
    # cap_net_raw=ep, as setcap writes it.
    say("file capability", answer(os.setxattr, "cap", "security.capability",
                                  bytes.fromhex("0100000200200000000000000000000000000000")))
    say("file capability after a write", write("cap"), "security.capability" in os.listxattr("cap"))


def owners():
    os.mkdir("own", 0o777)
    os.chmod("own", 0o777)
    os.mkdir("group")
    answer(os.chown, "group", -1, 1)
    os.chmod("group", 0o2777)

    def make(directory):
        os.umask(0o027)
        os.close(os.open(f"{directory}/file", os.O_CREAT | os.O_WRONLY, 0o666))
        os.mkdir(f"{directory}/directory")
        os.symlink("nowhere", f"{directory}/symlink")
        os.mkfifo(f"{directory}/fifo")
        endpoint = socket.socket(socket.AF_UNIX)
        endpoint.bind(f"{directory}/socket")
        for name in ("file", "directory", "symlink", "fifo", "socket"):
            say(f"owner of {directory}/{name}", facts(f"{directory}/{name}")[:4])
        say("mknod of a device by an ordinary user", answer(os.mknod, f"{directory}/device", 0o600 | stat.S_IFCHR, os.makedev(1, 3)))
        say("chown by an ordinary user", answer(os.chown, f"{directory}/file", 2, 2))

    as_other(lambda: make("own"))
    as_other(lambda: make("group"))
    os.mkdir("sticky")
    os.chmod("sticky", 0o1777)
    fill("sticky/roots", 1)
    as_other(lambda: say("unlink in a sticky directory", answer(os.unlink, "sticky/roots")))
    fill("private", 10, 0o600)
    as_other(lambda: say("open of a private file", isinstance(answer(os.open, "private", os.O_RDONLY), int) and os.getuid() != 0))


def times():
    fill("t", 10)
    os.utime("t", ns=(1_000_000_000_123_456_789, 1_234_567_890_987_654_321))
    found = os.stat("t")
    say("utime", found.st_atime_ns, found.st_mtime_ns)
    fd = os.open("t", os.O_RDWR)
    os.pwrite(fd, b"x", 3)
    say("mtime moves with a write", os.fstat(fd).st_mtime_ns > 1_700_000_000 * 10**9)
    os.utime(fd, ns=(5, 7))
    os.fsync(fd)
    say("mtime set after a write, and a sync", os.fstat(fd).st_mtime_ns)
    os.close(fd)
    say("and after a close", os.stat("t").st_mtime_ns)
    before = os.stat("t").st_ctime_ns
    os.chmod("t", 0o600)
    say("ctime moves with chmod", os.stat("t").st_ctime_ns >= before)
    say("utime before 1970", answer(os.utime, "t", ns=(-5_000_000_000, -5_000_000_000)), os.stat("t").st_mtime_ns)
    os.mkdir("td")
    os.utime("td", ns=(1, 1))
    fill("td/new", 1)
    say("a directory's mtime moves", os.stat("td").st_mtime_ns > 1)


def sizes():
    fill("z", 10_000)
    fd = os.open("z", os.O_RDWR)
    os.pwrite(fd, b"dirty tail", 9_995)
    say("size after a write past the end", os.fstat(fd).st_size, os.stat("z").st_size)
    os.ftruncate(fd, 9_998)
    say("truncate inside dirty data", digest("z"))
    os.ftruncate(fd, 20_000)
    say("truncate beyond", digest("z"))
    os.truncate("z", 5)
    say("truncate by path", digest("z"))
    say("truncate negative", answer(os.ftruncate, fd, -1))
    os.unlink("z")
    os.pwrite(fd, b"no name", 100)
    say("an unlinked open file", os.fstat(fd).st_size, os.fstat(fd).st_nlink, hash_of(os.pread(fd, 200, 0)))
    os.close(fd)
    fd = os.open("far", os.O_RDWR | os.O_CREAT)
    say("a write far out", answer(os.pwrite, fd, b"x", 1 << 36), os.fstat(fd).st_size,
        # Room held ahead of an appender may show, the hole must not.
        os.fstat(fd).st_blocks < 100_000)
    say("a read far out", os.pread(fd, 10, (1 << 36) - 3))
    say("a write out of range", answer(os.pwrite, fd, b"x", (1 << 63) - 1))
    os.close(fd)
    os.unlink("far")


def names():
    say("a long name", answer(os.mkdir, "n" * 255), answer(os.mkdir, "n" * 256))
    os.rmdir("n" * 255)
    odd = b"bytes \xff\xfe\n\t'\""
    say("an odd name", answer(os.mkdir, odd), odd in os.listdir(b"."))
    os.rmdir(odd)
    say("a long symlink", answer(os.symlink, "t" * 4000, "long"), len(os.readlink("long")))
    os.mknod("fifo", 0o600 | stat.S_IFIFO)
    say("nodes", facts("fifo")[0])
    say("a device", answer(os.mknod, "null", 0o600 | stat.S_IFCHR, os.makedev(1, 3)))
    if os.path.lexists("null"):
        say("its number", os.lstat("null").st_rdev)
    say("rmdir of a full directory", answer(os.rmdir, "td"))
    say("unlink of a directory", answer(os.unlink, "td"))
    say("link of a directory", answer(os.link, "td", "tdl"))
    say("statvfs", os.statvfs(".").f_namemax, os.statvfs(".").f_blocks > 0)
    fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    say("fsync of a directory", answer(os.fsync, fd))
    say("read of a directory", answer(os.read, fd, 10))
    os.close(fd)
    say("sync", answer(os.sync))


def running():
    """A program that runs is not written to, and above all not cut off."""
    answers = set()
    for number in range(40):
        name = f"sleep{number}"
        shutil.copyfile(shutil.which("sleep"), name)
        os.chmod(name, 0o755)
        program = subprocess.Popen([f"./{name}", "60"])
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC):
            answers.add(answer(os.open, name, flags))
        answers.add(answer(os.truncate, name, 0))
        answers.add(("runs", program.poll() is None))
        program.kill()
        program.wait()
        os.unlink(name)
    say("writing to a program that runs", sorted(map(str, answers)))


def main():
    os.chdir(sys.argv[1])
    os.umask(0o022)
    for part in (open_flags, appends, renames, fallocates, holes, copies, attributes, acls, set_id_bits, owners,
                 times, sizes, names, running):
        say(f"== {part.__name__}")
        part()


if __name__ == "__main__":
    main()
