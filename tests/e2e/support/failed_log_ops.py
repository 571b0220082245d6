"""Random operations for failed_log.py: each is done on the mount and, if it succeeds, in the model."""

import copy
import ctypes
import errno
import os
import subprocess
import time

import failed_log_model

DEAD = (errno.ENOTCONN, errno.ECONNABORTED)
# What SOURCE and a log that failed may answer. Everything else would be wrong.
REFUSED = (errno.EIO, errno.ENOSPC, errno.EOPNOTSUPP, errno.ENOSYS)
NOREPLACE, EXCHANGE = 1, 2
FILES_MAX, SIZE_MAX = 60, 120000
LIBC = ctypes.CDLL(None, use_errno=True)
WEIGHTS = {
    "create": 10, "create_set_group": 3, "mkdir": 5, "symlink": 2, "mkfifo": 1, "link": 6, "unlink": 8, "rmdir": 4, "rename": 14,
    "rename_over": 8, "noreplace": 2, "exchange": 4, "save": 6, "write": 16, "append": 6, "truncate": 4, "fsync": 8, "sync_directory": 5,
    "sync": 1.5, "chmod": 5, "utime": 3, "hold": 3, "write_held": 4, "fsync_held": 2, "let_go": 2, "unlink_held": 2, "tmpfile": 2, "pause": 4,
}


class Wrong(Exception):
    """The mount has answered what it must not."""


class Operations:
    def __init__(self, at, rng, model):
        self.at, self.rng, self.model = at, rng, model
        self.root = at.mount_point
        # Open files: descriptor and number.
        self.held = []
        self.sync_errors, self.log_failed = 0, False
        # libfuse keeps removed files that are open in their directory, and knows no flags of rename: what goes home at once gets its answers.
        self.not_empty = (errno.ENOTEMPTY,) if at.by_path else ()
        self.refused_by_home = (errno.ENOTEMPTY, errno.EINVAL) if at.by_path else ()
        weights = {what: weight for what, weight in WEIGHTS.items() if at.with_links or what != "link"}
        self.what, self.weights = list(weights), list(weights.values())

    def step(self):
        what = self.rng.choices(self.what, self.weights)[0]
        if what in ("create", "create_set_group", "mkdir", "link", "save") and len(self.model.entries) > FILES_MAX:
            what = "unlink"
        getattr(self, what)()

    # Choices.
    def slots(self, kinds, with_passive=True):
        return [slot for slot, number in self.model.entries.items()
                if self.model.nodes[number].kind in kinds and (with_passive or slot not in self.model.passive)]

    def some(self, kinds, with_passive=True):
        found = self.slots(kinds, with_passive)
        return self.rng.choice(found) if found else None

    def directory(self, not_below=None):
        found = [number for number in [0, *self.model.slots] if (number == 0 or self.model.entries.get(self.model.slots[number]) == number)
                 and (not_below is None or not self.model.is_inside(number, not_below))]
        return self.rng.choice(found)

    def free(self, not_below=None):
        """A slot that leads to nothing, often one that has done so before."""
        former = [slot for slot, values in self.model.history.items()
                  if slot not in self.model.entries and slot[0] in (0, *self.model.slots) and self.is_there(slot[0])
                  and (not_below is None or not self.model.is_inside(slot[0], not_below))]
        if former and self.rng.random() < 0.4:
            return self.rng.choice(former)
        slot = (self.directory(not_below), f"n{self.rng.randrange(200)}")
        return slot if slot not in self.model.entries else (slot[0], f"m{self.at.new_number()}")

    def is_there(self, directory):
        return directory == 0 or self.model.entries.get(self.model.slots[directory]) == directory

    def path(self, slot):
        return f"{self.root}/{self.model.path(slot)}"

    # One call: true if it has succeeded. If the daemon died during it, it may have been done.
    def do(self, said, call, follow=None, may_fail=()):
        try:
            result = call()
        except OSError as error:
            self.at.trace(f"{said}: {errno.errorcode.get(error.errno)}")
            if error.errno in DEAD:
                if follow:
                    follow()
                raise
            if error.errno not in REFUSED and error.errno not in may_fail:
                raise Wrong(f"{said}: {error}") from error
            return None
        self.at.trace(said)
        if follow:
            follow()
        return result if result is not None else True

    def shown(self, slot):
        return f"{self.model.nodes[self.model.entries[slot]]} {self.model.path(slot)}"

    def make(self, kind, mode, said, call, may_fail=()):
        slot, number = self.free(), self.at.new_number()
        path = self.path(slot)
        LIBC.setfsgid(failed_log_model.FIRST + number)
        try:
            fd = self.do(f"{said} {kind}{number} {self.model.path(slot)} {slot}", lambda: call(path, number),
                         lambda: self.model.make(slot, number, kind, mode), may_fail)
        finally:
            LIBC.setfsgid(0)
        if fd and self.at.by_path and kind != "l":
            # What is made at once is made by the server, which gives it its own group.
            self.do(f"chown {kind}{number}", lambda: os.chown(path, -1, failed_log_model.FIRST + number))
        return slot, number, fd

    # Names.
    def create(self, mode=None):
        mode = mode or self.rng.choice([0o644, 0o600, 0o755])
        flags = os.O_RDWR | os.O_CREAT | self.rng.choice([0, os.O_EXCL])
        slot, number, fd = self.make("f", mode, f"create {mode:o}", lambda path, _: os.open(path, flags, mode))
        if fd:
            try:
                if self.rng.random() < 0.7:
                    self.write_to(fd, number)
                if self.rng.random() < 0.3:
                    self.sync_file(fd, number)
            finally:
                self.close(fd)
        return slot

    def create_set_group(self):
        self.create(0o2654)

    def mkdir(self):
        self.make("d", 0o755, "mkdir", lambda path, _: os.mkdir(path, 0o755))

    def symlink(self):
        self.make("l", 0o777, "symlink", lambda path, number: os.symlink(f"to-{number}", path))

    def mkfifo(self):
        if not self.at.by_path:
            self.make("p", 0o644, "mkfifo", lambda path, _: os.mkfifo(path, 0o644))

    def tmpfile(self):
        if self.at.by_path:
            return
        slot, number = self.free(), self.at.new_number()
        LIBC.setfsgid(failed_log_model.FIRST + number)
        try:
            fd = self.do(f"O_TMPFILE f{number}", lambda: os.open(self.root, os.O_TMPFILE | os.O_RDWR, 0o640))
        finally:
            LIBC.setfsgid(0)
        if not fd:
            return
        self.model.nodes[number] = failed_log_model.Node(number, "f", 0o640)
        try:
            self.write_to(fd, number)
            self.do(f"link f{number} {self.model.path(slot)} {slot}",
                    lambda: os.link(f"/proc/self/fd/{fd}", self.path(slot), src_dir_fd=fd, follow_symlinks=True),
                    lambda: self.model.link(number, slot))
        finally:
            self.close(fd)

    def link(self):
        old, new = self.some("f"), self.free()
        if old:
            number = self.model.entries[old]

            def follow():
                self.model.link(number, new)
                # After the failure the server may be asked for it at once, which shows it as another file.
                if old in self.model.passive or self.at.by_path and self.log_failed:
                    self.model.passive.add(new)

            self.do(f"link {self.shown(old)} {self.model.path(new)} {new}", lambda: os.link(self.path(old), self.path(new)), follow)

    def unlink(self, slot=None):
        slot = slot or self.some("flp")
        if slot:
            self.do(f"unlink {self.shown(slot)} {slot}", lambda: os.unlink(self.path(slot)), lambda: self.model.remove(slot))

    def empty(self, number):
        return all(slot[0] != number for slot in self.model.entries)

    def rmdir(self):
        found = [slot for slot in self.slots("d") if self.empty(self.model.entries[slot])]
        if found:
            slot = self.rng.choice(found)
            self.do(f"rmdir {self.shown(slot)} {slot}", lambda: os.rmdir(self.path(slot)), lambda: self.model.remove(slot), self.not_empty)

    def rename_to(self, old, new, flags=0):
        moved = self.model.entries[old]
        if self.at.by_path and self.model.nodes[moved].had_links and moved in self.model.history.get(new, ()):
            # Of two names of one file the server moves none over the other.
            return None
        said = f"rename {flags} {self.shown(old)} {old} to {self.model.path(new)} {new}"
        follow = self.model.exchange if flags == EXCHANGE else self.model.rename
        may_fail = self.refused_by_home if flags else self.not_empty
        return self.do(said, lambda: rename(self.path(old), self.path(new), flags), lambda: follow(old, new), may_fail)

    def below(self, slot):
        number = self.model.entries[slot]
        return number if self.model.nodes[number].kind == "d" else None

    def rename(self):
        old = self.some("ffddlp")
        if old:
            self.rename_to(old, self.free(self.below(old)))

    def noreplace(self):
        old = self.some("fdl")
        if old:
            self.rename_to(old, self.free(self.below(old)), NOREPLACE)

    def rename_over(self):
        old = self.some("fffdlp")
        if not old:
            return
        moved = self.model.entries[old]
        is_directory = self.model.nodes[moved].kind == "d"
        found = [slot for slot, number in self.model.entries.items() if slot != old and not self.same_by_path(old, slot)
                 and (self.model.nodes[number].kind == "d") == is_directory
                 and not (is_directory and (not self.empty(number) or self.model.is_inside(slot[0], moved) or number == moved))]
        if found:
            self.rename_to(old, self.rng.choice(sorted(found)))

    def exchange(self):
        one, other = self.some("ffd"), self.some("ffdlp")
        if one and other and one != other and not self.same_by_path(one, other):
            first, second = self.below(one), self.below(other)
            if not (first is not None and self.model.is_inside(other[0], first) or second is not None and self.model.is_inside(one[0], second)):
                self.rename_to(one, other, EXCHANGE)

    def same_by_path(self, one, other):
        """Two names of one file, which sshfs shows as two files."""
        return self.at.by_path and self.model.entries[one] == self.model.entries[other]

    def save(self):
        target = self.some("f", False)
        if not target:
            return
        slot = self.create()
        if slot in self.model.entries:
            if self.rng.random() < 0.7:
                self.fsync(slot)
            if self.model.entries.get(target) is not None:
                self.rename_to(slot, target)

    # Data.
    def opened(self, slot, flags):
        return self.do(f"open {self.shown(slot)}", lambda: os.open(self.path(slot), flags))

    def close(self, fd):
        try:
            os.close(fd)
        except OSError:
            # Of an earlier write or, if the daemon is dead, of the next call.
            pass

    def with_file(self, action, slot=None):
        slot = slot or self.some("f", False)
        fd = slot and self.opened(slot, os.O_RDWR)
        if fd:
            try:
                action(fd, self.model.entries[slot])
            finally:
                self.close(fd)

    def write_to(self, fd, number, offset=None):
        size = len(self.model.nodes[number].contents[-1])
        if offset is None:
            offset = self.rng.choice([0, size, self.rng.randrange(size + 5000)])
        length = self.rng.choice([self.rng.randrange(1, 200), self.rng.randrange(1, 5000), self.rng.randrange(1, 20001)])
        if offset + length <= SIZE_MAX:
            data = self.rng.randbytes(length)
            self.do(f"write f{number} {offset} {length}", lambda: os.pwrite(fd, data, offset),
                    lambda: self.model.write(number, offset, data))

    def write(self):
        self.with_file(self.write_to)

    def append(self):
        self.with_file(lambda fd, number: self.write_to(fd, number, len(self.model.nodes[number].contents[-1])))

    def truncate(self):
        def action(fd, number):
            size = self.rng.choice([0, self.rng.randrange(len(self.model.nodes[number].contents[-1]) + 3000)])
            self.do(f"truncate f{number} {size}", lambda: os.ftruncate(fd, size), lambda: self.model.truncate(number, size))
        self.with_file(action)

    def sync_file(self, fd, number):
        if self.do(f"fsync f{number}", lambda: os.fsync(fd)):
            self.model.data_synced(number)
            if self.model.nodes[number].links[-1]:
                self.model.names_synced()
        else:
            self.sync_errors += 1

    def fsync(self, slot=None):
        self.with_file(self.sync_file, slot)

    def sync_directory(self):
        number = self.directory()
        path = f"{self.root}/{self.model.directory_path(number)}"
        fd = self.do(f"open d{number}", lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY))
        if fd:
            try:
                if self.do(f"fsync d{number}", lambda: os.fsync(fd)):
                    self.model.names_synced()
                else:
                    self.sync_errors += 1
            finally:
                self.close(fd)

    def sync(self):
        done = subprocess.run([self.at.weir, "sync", self.root], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100,
                              check=False)
        self.at.trace(f"weir sync: {done.returncode}: {done.stdout}")
        if done.returncode == 0:
            self.model.all_synced()
        elif not done.stdout.strip():
            raise Wrong("weir sync fails and does not say why")

    # Open files, with names and without.
    def hold(self):
        slot = self.some("f", False)
        fd = slot and len(self.held) < 6 and self.opened(slot, os.O_RDWR)
        if fd:
            self.held.append((fd, self.model.entries[slot]))

    def some_held(self):
        """Not what sshfs has by other names alone."""
        passive = {self.model.entries[slot] for slot in self.model.passive}
        active = {number for slot, number in self.model.entries.items() if slot not in self.model.passive}
        found = [(fd, number) for fd, number in self.held if number in active or number not in passive]
        return self.rng.choice(found) if found else None

    def write_held(self):
        held = self.some_held()
        if held:
            self.write_to(*held)

    def fsync_held(self):
        held = self.some_held()
        if held:
            self.sync_file(*held)

    def let_go(self):
        if self.held:
            self.close(self.held.pop(self.rng.randrange(len(self.held)))[0])

    def unlink_held(self):
        found = [slot for slot in self.slots("f") if self.model.entries[slot] in [number for _, number in self.held]]
        if found:
            self.unlink(self.rng.choice(found))

    def close_all(self):
        for fd, _ in self.held:
            self.close(fd)

    # Attributes.
    def chmod(self):
        slot = self.some("fdp", False)
        if slot:
            mode, number = self.rng.choice([0o644, 0o600, 0o755, 0o711]), self.model.entries[slot]
            self.do(f"chmod {self.shown(slot)} {mode:o}", lambda: os.chmod(self.path(slot), mode), lambda: self.model.chmod(number, mode))

    def utime(self):
        slot = self.some("fd", False)
        if slot:
            when = self.rng.randrange(10**9)
            self.do(f"utime {self.shown(slot)} {when}", lambda: os.utime(self.path(slot), (when, when)))

    def pause(self):
        time.sleep(self.rng.choice([0.01, 0.1, 0.7]) * self.rng.random())
        self.at.trace("pause")

    def compare_mount(self):
        """What the mount shows is what was done."""
        shown = copy.deepcopy(self.model)
        shown.all_synced()
        linked = self.at.linked(self.model) if self.at.by_path else ()
        problems = shown.problems(self.root, False, linked)
        if problems and self.at.by_path:
            # sshfs remembers for 20 seconds what a directory had.
            self.at.trace("the mount shows something else:\n" + "\n".join(problems))
            time.sleep(25)
            problems = shown.problems(self.root, False, linked)
        if problems:
            raise Wrong("the mount shows something else:\n" + "\n".join(problems))


def rename(old, new, flags):
    if flags == 0:
        os.rename(old, new)
    elif LIBC.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), new)
