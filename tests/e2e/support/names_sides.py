"""Operations on names, executed below one directory; names_reference.py executes each on a mount and on a plain directory.

An operation is a list: its name, then its arguments, of which paths are relative to the side's root. So operations can
be written to a file and repeated. What an operation answers is a value that can be compared, or the name of an error.
Files that stay open are in numbered slots.
"""

import ctypes
import errno
import hashlib
import mmap
import os
import random
import stat
import struct

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
libc.renameat2.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
libc.utimensat.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int]
libc.linkat.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
libc.getdents64.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
libc.getdents64.restype = ctypes.c_ssize_t
AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_SYMLINK_FOLLOW = -100, 0x100, 0x400
NOREPLACE, EXCHANGE = 1, 2
UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
# What a program that looks at times sees as "now": slack for a busy machine.
RECENT_NS = 120 * 10**9
DAY_NS = 86_400 * 10**9


def checked(result):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def error_name(error):
    return errno.errorcode.get(error.errno, str(error.errno))


def kind_of(mode):
    return {stat.S_IFREG: "f", stat.S_IFDIR: "d", stat.S_IFLNK: "l", stat.S_IFIFO: "p", stat.S_IFSOCK: "s"}.get(
        stat.S_IFMT(mode), "?")


def kind_of_entry(number):
    return {8: "f", 4: "d", 10: "l", 1: "p", 12: "s"}.get(number, f"?{number}")


def acl(entries):
    """A POSIX ACL as the kernel takes it in an xattr. Entries are (tag, permissions, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, bits, number & 0xFFFFFFFF)
                                           for tag, bits, number in entries)


class Seen:
    """What stat says of one file, as far as it can be compared with another file system."""

    def __init__(self, found, dir_links):
        self.kind = kind_of(found.st_mode)
        self.facts = {"kind": self.kind, "mode": oct(stat.S_IMODE(found.st_mode)), "uid": found.st_uid, "gid": found.st_gid}
        if self.kind != "d":
            self.facts["size"] = found.st_size
        if self.kind != "d" or dir_links:
            self.facts["nlink"] = found.st_nlink
        self.mtime_ns, self.ctime_ns, self.number = found.st_mtime_ns, found.st_ctime_ns, found.st_ino

    def __repr__(self):
        return f"{self.facts} mtime {self.mtime_ns}"


def times_differ(mount, plain):
    """A time that was set must be the same; one that is recent must be recent."""
    if abs(plain.mtime_ns - plain.ctime_ns) > DAY_NS:
        return mount.mtime_ns != plain.mtime_ns
    return abs(mount.mtime_ns - plain.mtime_ns) > RECENT_NS


class Side:
    """One directory below which operations are executed."""

    def __init__(self, root, dir_links=True):
        self.root, self.dir_links = root, dir_links
        self.files = {}

    def run(self, op):
        try:
            return getattr(self, "do_" + op[0])(*op[1:])
        except OSError as error:
            return error_name(error)

    def path(self, name):
        return f"{self.root}/{name}"

    def fd(self, slot):
        if slot not in self.files:
            raise OSError(errno.EBADF, "the slot is empty")
        return self.files[slot]

    def keep(self, slot, fd):
        self.do_close(slot)
        self.files[slot] = fd
        return "ok"

    def close_all(self):
        for slot in list(self.files):
            self.do_close(slot)

    # As another user: the effective user alone changes, so that root comes back.
    def do_as(self, uid, gid, groups, op):
        os.setgroups(groups)
        os.setegid(gid)
        os.seteuid(uid)
        try:
            return self.run(op)
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups([])

    def do_umask(self, mask):
        os.umask(mask)
        return "ok"

    # Files that are open.
    def do_open(self, slot, path, flags, mode):
        return self.keep(slot, os.open(self.path(path), flags | os.O_NONBLOCK | os.O_CLOEXEC, mode))

    def do_reopen(self, slot, other, flags):
        return self.keep(slot, os.open(f"/proc/self/fd/{self.fd(other)}", flags | os.O_NONBLOCK | os.O_CLOEXEC))

    def do_close(self, slot):
        if slot in self.files:
            os.close(self.files.pop(slot))
        return "ok"

    def do_pwrite(self, slot, offset, size, seed):
        return os.pwrite(self.fd(slot), random.Random(seed).randbytes(size), offset)

    def do_append(self, slot, size, seed):
        fd = self.fd(slot)
        os.lseek(fd, 0, os.SEEK_END)
        return os.write(fd, random.Random(seed).randbytes(size))

    def do_pread(self, slot, offset, size):
        return digest(os.pread(self.fd(slot), size, offset))

    def do_ftruncate(self, slot, size):
        os.ftruncate(self.fd(slot), size)
        return "ok"

    def do_fallocate(self, slot, mode, offset, size):
        return checked(libc.fallocate(self.fd(slot), mode, offset, size))

    def do_map_write(self, slot, offset, size, seed):
        fd = self.fd(slot)
        found = os.fstat(fd)
        # The size of a directory is its file system's own affair, and depends on how many names it has had.
        if not stat.S_ISREG(found.st_mode):
            return "no file"
        if found.st_size < offset + size:
            return "beyond the end"
        with mmap.mmap(fd, offset + size) as area:
            area[offset:offset + size] = random.Random(seed).randbytes(size)
            area.flush()
        return "ok"

    def do_copy_range(self, source, target, from_offset, to_offset, size):
        done = 0
        while done < size:
            count = os.copy_file_range(self.fd(source), self.fd(target), size - done, from_offset + done, to_offset + done)
            if count == 0:
                break
            done += count
        return done

    def do_fsync(self, slot):
        os.fsync(self.fd(slot))
        return "ok"

    def do_fdatasync(self, slot):
        os.fdatasync(self.fd(slot))
        return "ok"

    def do_fstat(self, slot):
        return Seen(os.fstat(self.fd(slot)), self.dir_links)

    def do_fchmod(self, slot, mode):
        os.fchmod(self.fd(slot), mode)
        return "ok"

    def do_fchown(self, slot, uid, gid):
        os.fchown(self.fd(slot), uid, gid)
        return "ok"

    def do_link_open(self, slot, path):
        return checked(libc.linkat(AT_FDCWD, f"/proc/self/fd/{self.fd(slot)}".encode(), AT_FDCWD,
                                   os.fsencode(self.path(path)), AT_SYMLINK_FOLLOW))

    # Relative to a directory that is open, wherever it is now.
    def do_at(self, slot, what, name, other):
        at = self.fd(slot)
        if what == "create":
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW, 0o666, dir_fd=at))
        elif what == "mkdir":
            os.mkdir(name, 0o777, dir_fd=at)
        elif what == "unlink":
            os.unlink(name, dir_fd=at)
        elif what == "rmdir":
            os.rmdir(name, dir_fd=at)
        elif what == "rename":
            os.rename(name, other, src_dir_fd=at, dst_dir_fd=at)
        elif what == "stat":
            return Seen(os.stat(name, dir_fd=at, follow_symlinks=False), self.dir_links)
        elif what == "list":
            return listing(at)
        return "ok"

    def do_in_removed(self, path):
        """In a directory that was removed nothing can be made, and nothing is found."""
        back = os.open(".", os.O_RDONLY)
        try:
            os.chdir(self.path(path))
            os.rmdir(self.path(path))
            answers = []
            for call in (lambda: os.close(os.open("x", os.O_CREAT | os.O_WRONLY)), lambda: os.mkdir("y"), os.getcwd,
                         lambda: sorted(os.listdir(".")), lambda: os.stat(".").st_nlink, lambda: os.symlink("a", "z"),
                         lambda: os.stat("x").st_size, lambda: os.chmod(".", 0o700)):
                try:
                    answers.append(call())
                except OSError as error:
                    answers.append(error_name(error))
            return answers
        finally:
            os.fchdir(back)
            os.close(back)

    # Names.
    def do_mkdir(self, path, mode):
        os.mkdir(self.path(path), mode)
        return "ok"

    def do_rmdir(self, path):
        os.rmdir(self.path(path))
        return "ok"

    def do_symlink(self, target, path):
        os.symlink(target, self.path(path))
        return "ok"

    def do_mknod(self, path, mode):
        os.mknod(self.path(path), mode)
        return "ok"

    def do_link(self, source, path):
        os.link(self.path(source), self.path(path), follow_symlinks=False)
        return "ok"

    def do_unlink(self, path):
        os.unlink(self.path(path))
        return "ok"

    def do_rename(self, source, path, flags):
        checked(libc.renameat2(AT_FDCWD, os.fsencode(self.path(source)), AT_FDCWD, os.fsencode(self.path(path)), flags))
        return "ok"

    def do_truncate(self, path, size):
        os.truncate(self.path(path), size)
        return "ok"

    def do_sync_dir(self, path):
        fd = os.open(self.path(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        return "ok"

    # Attributes.
    def do_chmod(self, path, mode):
        os.chmod(self.path(path), mode)
        return "ok"

    def do_chown(self, path, uid, gid, follow):
        os.chown(self.path(path), uid, gid, follow_symlinks=follow)
        return "ok"

    def do_utimens(self, path, access, change, follow):
        """Times in nanoseconds, or "now" or "omit"."""
        words = []
        for time_ns in (access, change):
            special = {"now": UTIME_NOW, "omit": UTIME_OMIT}.get(time_ns)
            words += [0, special] if special else divmod(time_ns, 10**9)
        checked(libc.utimensat(AT_FDCWD, os.fsencode(self.path(path)), struct.pack("<4q", *words),
                               0 if follow else AT_SYMLINK_NOFOLLOW))
        return "ok"

    def do_setxattr(self, path, name, seed, size, flags):
        os.setxattr(self.path(path), name, random.Random(seed).randbytes(size), flags)
        return "ok"

    def do_removexattr(self, path, name):
        os.removexattr(self.path(path), name)
        return "ok"

    def do_setacl(self, path, name, entries):
        os.setxattr(self.path(path), f"system.posix_acl_{name}", acl(entries))
        return "ok"

    # Looking.
    def do_stat(self, path):
        return Seen(os.stat(self.path(path), follow_symlinks=False), self.dir_links)

    def do_stat_through(self, path):
        return Seen(os.stat(self.path(path)), self.dir_links)

    def do_list(self, path):
        with os.scandir(self.path(path)) as found:
            return sorted((entry.name, kind_of_direntry(entry)) for entry in found)

    def do_readlink(self, path):
        return os.readlink(self.path(path))

    def do_content(self, path):
        fd = os.open(self.path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            return content(fd)
        finally:
            os.close(fd)

    def do_xattrs(self, path):
        return xattrs(self.path(path))

    def do_access(self, path, mode):
        return os.access(self.path(path), mode, effective_ids=True)


def kind_of_direntry(entry):
    for kind, is_kind in (("l", entry.is_symlink()), ("d", entry.is_dir(follow_symlinks=False)),
                          ("f", entry.is_file(follow_symlinks=False))):
        if is_kind:
            return kind
    return "other"


def listing(fd):
    """Of a directory that is open, from its beginning."""
    os.lseek(fd, 0, os.SEEK_SET)
    with os.scandir(fd) as found:
        return sorted((entry.name, kind_of_direntry(entry)) for entry in found)


def next_entries(fd, size):
    """One getdents64: a list of (name, kind, position behind it)."""
    buffer = ctypes.create_string_buffer(size)
    got = checked(libc.getdents64(fd, buffer, size))
    entries, at = [], 0
    while at < got:
        _, position, length, kind = struct.unpack_from("<QqHB", buffer.raw, at)
        name = buffer.raw[at + 19:at + length].split(b"\0", 1)[0]
        if name not in (b".", b".."):
            entries.append((os.fsdecode(name), kind_of_entry(kind), position))
        at += length
    return got, entries


def digest(data):
    return len(data), hashlib.blake2b(data, digest_size=8).hexdigest()


def content(fd):
    whole = hashlib.blake2b(digest_size=8)
    at = 0
    while data := os.pread(fd, 1 << 18, at):
        whole.update(data)
        at += len(data)
    return at, whole.hexdigest()


def xattrs(path):
    return sorted((name, os.getxattr(path, name, follow_symlinks=False).hex())
                  for name in os.listxattr(path, follow_symlinks=False)
                  if name.startswith(("user.", "system.posix_acl")))


class Tree:
    """Everything below a directory, by path: what stat says, content, target, attributes, and which are one file."""

    def __init__(self, root, dir_links, with_xattrs, wanted=lambda path: True):
        self.entries, self.groups = {}, {}
        self.walk(root, "", dir_links, with_xattrs, wanted)

    def walk(self, root, below, dir_links, with_xattrs, wanted):
        path = f"{root}/{below}" if below else root
        names = sorted(os.listdir(path))
        for name in names:
            relative = f"{below}/{name}" if below else name
            if not wanted(relative):
                continue
            path = f"{root}/{relative}"
            seen = Seen(os.lstat(path), dir_links)
            seen.more = {}
            if seen.kind == "f":
                fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
                seen.more["content"] = content(fd)
                os.close(fd)
            elif seen.kind == "l":
                seen.more["target"] = os.readlink(path)
            if with_xattrs:
                seen.more["xattrs"] = xattrs(path)
            self.entries[relative] = seen
            self.groups.setdefault(seen.number, []).append(relative)
            if seen.kind == "d":
                self.walk(root, relative, dir_links, with_xattrs, wanted)

    def differences(self, plain, with_numbers=True):
        """Lines that say how this tree differs from a plain one."""
        lines = []
        for path in sorted(self.entries.keys() | plain.entries.keys()):
            here, there = self.entries.get(path), plain.entries.get(path)
            if here is None or there is None:
                lines.append(f"{path!r}: {'missing' if here is None else 'too many'}: {here or there}")
            elif here.facts != there.facts or here.more != there.more:
                wrong = {key: (value, there.facts[key]) for key, value in here.facts.items() if there.facts[key] != value}
                wrong |= {key: (value, there.more.get(key)) for key, value in here.more.items() if there.more.get(key) != value}
                lines.append(f"{path!r} ({here.kind}): {wrong}, the plain directory's are second")
            elif times_differ(here, there):
                lines.append(f"{path!r} ({here.kind}): mtime {here.mtime_ns}, plain {there.mtime_ns}")
            elif with_numbers and self.groups[here.number] != plain.groups[there.number]:
                lines.append(f"{path!r}: one file with {self.groups[here.number]}, plain {plain.groups[there.number]}")
        return lines
