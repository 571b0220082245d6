"""Chooses random operations for names_reference.py. What is chosen depends on the seed and the plain directory alone."""

import os
import stat

import names_sides

LETTERS = "abcdefgh"
ODD_NAMES = ["x" * 255, "a.weir-conflict-1", "new\nline", "\udcff\udc80", " ", "-", "é", ".hidden", ".weir"]
TOO_LONG = "y" * 256
MODES = [0o777, 0o777, 0o755, 0o777, 0o755, 0o700, 0o644, 0o666, 0o666, 0o600, 0o444, 0o000, 0o1777, 0o2775, 0o2755, 0o4755, 0o6755, 0o2644, 0o7777, 0o710]
USERS = [(1000, 1000, []), (1001, 1001, [1000]), (1002, 1000, [])]
OWNERS = [0, 1000, 1001, 1002, -1]
SLOTS = 6
# Holds a directory.
AT_SLOT = 6
FULL = 220
AS_ROOT = ("deep", "many", "empty", "sync", "stream", "umask", "access")
FLAGS = [os.O_RDWR | os.O_CREAT, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_RDWR | os.O_CREAT | os.O_TRUNC, os.O_RDWR,
         os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_APPEND, os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_NOFOLLOW,
         os.O_RDWR | os.O_CREAT | os.O_EXCL]

# How often, and what home must be able to do for it.
WEIGHTS = {
    "create": (14, ""), "write": (12, ""), "append": (3, ""), "read": (3, ""), "fsync": (3, ""), "fstat": (3, ""), "ftruncate": (3, ""),
    "close": (4, ""), "save": (3, ""), "mkdir": (9, ""), "rmdir": (5, ""), "symlink": (4, ""), "fifo": (2, "fifo"), "socket": (1, "socket"),
    "node": (2, "node"), "link": (6, "links"), "unlink": (9, ""), "rename": (14, ""), "noreplace": (3, "noreplace"), "exchange": (4, "exchange"),
    "truncate": (3, ""), "sync_dir": (3, ""), "chmod": (6, ""), "fchmod": (1, ""), "chown": (4, "owners"), "fchown": (1, "owners"),
    "utimens": (5, ""), "setxattr": (4, "xattrs"), "removexattr": (2, "xattrs"), "setacl": (2, "acls"), "umask": (1, ""),
    "reopen": (1, ""), "link_open": (2, "links"), "fallocate": (2, "fallocate"), "map_write": (1, ""), "copy_range": (2, "copy_range"),
    "open_dir": (2, ""), "at": (6, ""), "in_removed": (1, "in_removed"), "stream": (2, ""), "look": (6, ""), "access": (2, "users"),
    "deep": (0.5, ""), "many": (0.4, ""), "empty": (1, ""), "swap": (1, ""), "chain": (1, ""), "sync": (0.4, ""),
}


def paths_of(op):
    """The paths that an operation has, without the target of a symbolic link."""
    return [path for path in (op[2:3] if op[0] == "symlink" else op[1:3]) if isinstance(path, str) and "/" in path]


class Chooser:
    """Chooses for one process: it has directory OWN to itself, and in SHARED the names that begin with OWN-."""

    def __init__(self, rng, plain, own, can, kill=False):
        self.rng, self.plain, self.own, self.can, self.kill = rng, plain, own, can, kill
        self.modes = MODES if can["setid"] else sorted({mode & 0o1777 for mode in MODES})
        # All its names have this at their beginning, so that a link in SHARED leads to a name of its own.
        self.names = [f"{own}-{letter}" for letter in LETTERS]
        self.kinds = {own: "d"}
        weights = {name: weight for name, (weight, needs) in WEIGHTS.items() if not needs or can.get(needs)}
        if kill:
            weights |= {"fsync": 10, "sync_dir": 10, "save": 10, "sync": 0.2}
        self.what, self.weights = list(weights), list(weights.values())
        self.steps, self.at_top = 0, False

    # What there is. The list follows what succeeds on the plain directory, and is made anew now and then.
    def look_anew(self):
        self.kinds = {self.own: "d"}
        roots = [self.own] + sorted(f"shared/{name}" for name in os.listdir(self.plain.path("shared")) if name.startswith(self.own + "-"))
        while roots:
            path = roots.pop()
            kind = names_sides.kind_of(os.lstat(self.plain.path(path)).st_mode)
            self.kinds[path] = kind
            if kind == "d":
                roots += sorted((f"{path}/{name}" for name in os.listdir(self.plain.path(path))), reverse=True)

    def follow(self, op):
        """After an operation that succeeded."""
        if op[0] == "as":
            op = op[4]
        if op[0] == "rename":
            source, target, flags = op[1].rstrip("/"), op[2].rstrip("/"), op[3]
            moved = {path: self.kinds.pop(path) for path in list(self.kinds) if path == source or path.startswith(source + "/")}
            if flags & names_sides.EXCHANGE:
                other = {path: self.kinds.pop(path) for path in list(self.kinds) if path == target or path.startswith(target + "/")}
                self.kinds.update((source + path[len(target):], kind) for path, kind in other.items())
            self.kinds.update((target + path[len(source):], kind) for path, kind in moved.items())
        for path in paths_of(op):
            if os.path.normpath(path) == path:
                self.refresh(path)

    def refresh(self, path):
        try:
            self.kinds[path] = names_sides.kind_of(os.lstat(self.plain.path(path)).st_mode)
        except OSError:
            for gone in [other for other in self.kinds if other == path or other.startswith(path + "/")]:
                del self.kinds[gone]

    # Paths.
    def some(self, kinds):
        found = [path for path, kind in self.kinds.items()
                 if kind in kinds and path != self.own and not (self.at_top and path.count("/") > 1)]
        return self.rng.choice(found) if found else self.fresh()

    def directory(self):
        if self.at_top:
            return self.own
        return self.rng.choice([path for path, kind in self.kinds.items() if kind == "d"])

    def directory_or_shared(self):
        return "shared" if self.rng.random() < 0.1 else self.directory()

    def fresh(self):
        if self.rng.random() < 0.12:
            return f"shared/{self.rng.choice(self.names)}"
        name = self.rng.choice(self.names) if self.rng.random() < 0.93 else self.rng.choice(ODD_NAMES)
        if name == ".weir":
            return f"{self.own}/{name}"
        return f"{self.directory()}/{name}"

    def any(self):
        draw = self.rng.random()
        if draw < 0.62:
            return self.some("dflps")
        if draw < 0.93:
            return self.fresh()
        odd = self.rng.randrange(6)
        if odd == 0:
            return f"{self.directory()}/{TOO_LONG}"
        if odd == 1:
            return f"{self.some('fps')}/{self.rng.choice(self.names)}"
        if odd == 2:
            return f"{self.some('l')}/{self.rng.choice(self.names)}"
        if odd == 3:
            return self.some("dfl") + "/"
        return f"{self.some('d')}/{self.rng.choice(['.', 'missing/x', f'{self.names[0]}/../{self.names[1]}'])}"

    def slot(self):
        return self.rng.randrange(SLOTS)

    def filled(self):
        """A slot, mostly one that has a file."""
        found = sorted(slot for slot in self.plain.files if slot < SLOTS)
        return self.rng.choice(found) if found and self.rng.random() < 0.9 else self.slot()

    def size(self):
        return self.rng.choice([0, 1, 10, 100, 511, 4096, 5000, 20_000, 65_536, 100_000])

    def offset(self):
        return self.rng.choice([0, 0, 1, self.rng.randrange(200), self.rng.randrange(10_000), self.rng.randrange(150_000), 1_000_000])

    def time(self):
        draw = self.rng.random()
        if draw < 0.15:
            return "now"
        if draw < 0.25:
            return "omit"
        second = self.rng.randrange(0 if self.can.get("nanoseconds") else 1, 1_500_000_000)
        if self.can.get("old_times") and draw < 0.35:
            second = -second
        return second * 10**9 + (self.rng.randrange(10**9) if self.can.get("nanoseconds") else 0)

    # Operations; several where one needs others.
    def operations(self):
        self.steps += 1
        if self.steps % 300 == 0:
            self.look_anew()
        what = self.rng.choices(self.what, self.weights)[0]
        if len(self.kinds) > FULL and self.rng.random() < 0.4:
            what = "empty"
        other_user = self.can["users"] and self.rng.random() < 0.12 and what not in AS_ROOT
        # Where every user may make names.
        self.at_top = other_user and self.rng.random() < 0.7
        found = getattr(self, "choose_" + what)()
        self.at_top = False
        if not self.can["unlinked"]:
            # Files that are open keep a name of another kind when theirs is removed.
            found = [one for op in found for one in
                     ([["close", slot] for slot in range(SLOTS + 1)] if op[0] in ("unlink", "rmdir", "rename", "at") else []) + [op]]
        if other_user:
            # What stays open may be used by any user.
            found = [["as", *self.rng.choice(USERS), op] for op in found]
        return found

    def looks(self, op):
        """What to compare after an operation."""
        if op[0] == "as":
            op = op[4]
        found = []
        for path in paths_of(op):
            draw, parent = self.rng.random(), os.path.dirname(path.rstrip("/"))
            if draw < 0.75:
                found.append(["stat", path])
            if draw < 0.25:
                found.append(["list", parent])
            if 0.15 < draw < 0.35:
                found += self.of(path)
            if draw > 0.9 and parent != "shared":
                found.append(["stat", parent])
        if len(op) > 1 and isinstance(op[1], int) and op[0] in ("pwrite", "append", "ftruncate", "fallocate", "copy_range", "fchmod"):
            if self.rng.random() < 0.5:
                found.append(["fstat", op[1]])
        return found

    def of(self, path):
        kind = self.kinds.get(path)
        found = [["stat_through", path]]
        if kind == "f":
            found.append(["content", path])
        elif kind == "d":
            found.append(["list", path])
        elif kind == "l":
            found.append(["readlink", path])
        if self.can.get("xattrs"):
            found.append(["xattrs", path])
        return found

    def choose_look(self):
        path = self.any()
        return [["stat", path], *self.of(path)]

    def choose_create(self):
        path = self.fresh() if self.rng.random() < 0.6 else self.any()
        return [["open", self.slot(), path, self.rng.choice(FLAGS), self.rng.choice(self.modes)]]

    def choose_write(self):
        return [["pwrite", self.filled(), self.offset(), self.size(), self.rng.randrange(10**6)]]

    def choose_append(self):
        return [["append", self.filled(), self.size(), self.rng.randrange(10**6)]]

    def choose_read(self):
        return [["pread", self.filled(), self.offset(), self.size()]]

    def choose_fsync(self):
        return [[self.rng.choice(["fsync", "fsync", "fdatasync"]), self.filled()]]

    def choose_fstat(self):
        return [["fstat", self.filled()]]

    def choose_ftruncate(self):
        return [["ftruncate", self.filled(), self.rng.choice([0, 1, 100, 5000, 70_000, 300_000])]]

    def choose_close(self):
        return [["close", self.slot()]]

    def choose_save(self):
        """A document, as editors save it."""
        path, slot = self.some("f"), self.slot()
        new = f"{os.path.dirname(path)}/{self.own}-new"
        found = [["open", slot, new, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644], ["pwrite", slot, 0, self.size(), self.rng.randrange(10**6)]]
        if self.rng.random() < 0.7:
            found.append(["fsync", slot])
        found.append(["rename", new, path, 0])
        if self.rng.random() < 0.4:
            found.append(["sync_dir", os.path.dirname(path)])
        return found + [["close", slot]]

    def choose_mkdir(self):
        return [["mkdir", self.fresh() if self.rng.random() < 0.8 else self.any(), self.rng.choice([0o777, 0o777, 0o777, 0o755, 0o700, 0o1777, 0o2775 if self.can["setid"] else 0o775])]]

    def choose_rmdir(self):
        return [["rmdir", self.some("d") if self.rng.random() < 0.8 else self.any()]]

    def choose_symlink(self):
        one, two = self.rng.choice(self.names), self.rng.choice(self.names)
        target = self.rng.choice([one, two, f"../{one}", f"{one}/{two}", f"./{one}/../{two}", f"{self.own}-missing", "t" * 1000])
        if ".." in target and not self.can["links_up"]:
            # An sshfs may refuse to say where they lead.
            target = one
        return [["symlink", target, self.fresh() if self.rng.random() < 0.8 else self.any()]]

    def choose_fifo(self):
        return [["mknod", self.fresh(), stat.S_IFIFO | self.rng.choice(self.modes)]]

    def choose_socket(self):
        return [["mknod", self.fresh(), stat.S_IFSOCK | self.rng.choice(self.modes)]]

    def choose_node(self):
        return [["mknod", self.fresh(), stat.S_IFREG | self.rng.choice(self.modes)]]

    def choose_link(self):
        kinds = "fps" if self.rng.random() < 0.8 else "fdlps"
        return [["link", self.some(kinds), self.fresh() if self.rng.random() < 0.8 else self.any()]]

    def choose_unlink(self):
        return [["unlink", self.some("flps") if self.rng.random() < 0.9 else self.any()]]

    def two(self):
        source = self.some("dflps") if self.rng.random() < 0.9 else self.any()
        draw = self.rng.random()
        if draw < 0.06:
            return source, f"{source}/{self.rng.choice(self.names)}"
        if draw < 0.1:
            return source, source
        return source, self.any() if draw < 0.6 else self.fresh()

    def choose_rename(self):
        return [["rename", *self.two(), 0]]

    def choose_noreplace(self):
        return [["rename", *self.two(), names_sides.NOREPLACE]]

    def choose_exchange(self):
        source, target = self.some("dflps"), self.some("dflps")
        return [["rename", source, target, names_sides.EXCHANGE]]

    def choose_swap(self):
        """Three renames that exchange two names, as programs did before there was a call for it."""
        one, two = self.some("dfl"), self.some("dfl")
        between = f"{self.own}/between"
        return [["rename", one, between, 0], ["rename", two, one, 0], ["rename", between, two, 0]]

    def choose_chain(self):
        """Names move up by one: each is free only when the one before has moved."""
        where = self.directory_or_shared()
        names = [f"{where}/{self.own}-chain{number}" for number in range(self.rng.randrange(3, 7))]
        found = [["rename", old, new, 0] for old, new in zip(names[-2::-1], names[:0:-1])]
        slot = self.slot()
        return [*found, ["open", slot, names[0], os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666], ["append", slot, 100, self.rng.randrange(10**6)]]

    def choose_truncate(self):
        return [["truncate", self.some("fl") if self.rng.random() < 0.9 else self.any(), self.rng.choice([0, 1, 1000, 5000, 90_000])]]

    def choose_sync_dir(self):
        return [["sync_dir", self.directory()]]

    def choose_chmod(self):
        return [["chmod", self.any(), self.rng.choice(self.modes)]]

    def choose_fchmod(self):
        return [["fchmod", self.filled(), self.rng.choice(self.modes)]]

    def choose_chown(self):
        # Homes that set the times of what a symbolic link leads to do so with owners.
        return [["chown", self.any(), *self.owners(), self.rng.random() < 0.6 or not self.can.get("link_times")]]

    def owners(self):
        # With neither, it removes set-id bits; the kernel does not tell FUSE of that.
        uid = self.rng.choice(OWNERS)
        return uid, self.rng.choice(OWNERS[:-1] if uid == -1 else OWNERS)

    def choose_fchown(self):
        return [["fchown", self.filled(), *self.owners()]]

    def choose_utimens(self):
        follow = self.rng.random() < 0.7 or not self.can.get("link_times")
        return [["utimens", self.any(), self.time(), self.time(), follow]]

    def choose_setxattr(self):
        return [["setxattr", self.any(), self.rng.choice(["user.a", "user.b", "user.long" + "n" * 60]), self.rng.randrange(10**6),
                 self.rng.choice([0, 1, 20, 300]), self.rng.choice([0, 0, os.XATTR_CREATE, os.XATTR_REPLACE])]]

    def choose_removexattr(self):
        return [["removexattr", self.any(), self.rng.choice(["user.a", "user.b"])]]

    def choose_setacl(self):
        user, group, named, mask, others = (self.rng.choice([0, 4, 5, 6, 7]) for _ in range(5))
        entries = [(1, user | 4, -1), (2, named, self.rng.choice([1000, 1001])), (4, group, -1), (16, mask, -1), (32, others, -1)]
        if self.rng.random() < 0.2:
            entries = [(1, user, -1), (4, group, -1), (32, others, -1)]
        if self.rng.random() < 0.75:
            return [["setacl", self.some("d"), "default", entries]]
        return [["setacl", self.any(), "access", entries]]

    def choose_umask(self):
        return [["umask", self.rng.choice([0o022, 0o002, 0o077, 0, 0, 0])]]

    def choose_reopen(self):
        return [["reopen", self.slot(), self.filled(), self.rng.choice([os.O_RDWR, os.O_RDONLY, os.O_RDWR | os.O_TRUNC])]]

    def choose_link_open(self):
        return [["link_open", self.filled(), self.fresh()]]

    def choose_fallocate(self):
        mode = self.rng.choice([0, names_sides.KEEP_SIZE, names_sides.KEEP_SIZE | names_sides.PUNCH_HOLE, names_sides.ZERO_RANGE])
        return [["fallocate", self.filled(), mode, self.offset(), self.size()]]

    def choose_map_write(self):
        return [["map_write", self.filled(), self.offset(), self.rng.choice([1, 100, 5000]), self.rng.randrange(10**6)]]

    def choose_copy_range(self):
        return [["copy_range", self.filled(), self.filled(), self.offset(), self.offset(), self.size()]]

    def choose_open_dir(self):
        return [["open", self.slot(), self.some("d"), os.O_RDONLY | os.O_DIRECTORY, 0]]

    def choose_at(self):
        """Names in a directory that is open, whatever becomes of it meanwhile."""
        found, path = [], self.some("d")
        if AT_SLOT not in self.plain.files or self.rng.random() < 0.2:
            found.append(["open", AT_SLOT, path, os.O_RDONLY | os.O_DIRECTORY, 0])
            if self.rng.random() < 0.4:
                found.append(["rename", path, self.fresh(), 0] if self.rng.random() < 0.7 else ["rmdir", path])
        for _ in range(self.rng.randrange(1, 5)):
            what = self.rng.choice(["create", "create", "mkdir", "unlink", "rmdir", "rename", "stat", "list"])
            found.append(["at", AT_SLOT, what, self.rng.choice(self.names), self.rng.choice(self.names)])
        return found

    def choose_in_removed(self):
        path = self.fresh()
        return [["mkdir", path, 0o777], ["in_removed", path]]

    def choose_stream(self):
        """A directory is read in parts while its entries change."""
        where = self.directory_or_shared()
        names = self.names + [f"{self.own}-n{number}" for number in range(60)]
        found = [["stream", where]]
        for _ in range(self.rng.randrange(1, 12)):
            found.append(["next", self.rng.choice([300, 600, 3000])])
            for _ in range(self.rng.randrange(4)):
                name, other = (f"{where}/{self.rng.choice(names)}" for _ in range(2))
                found.append(self.rng.choice([["open", 0, name, os.O_RDWR | os.O_CREAT, 0o644], ["unlink", name], ["mkdir", name, 0o755],
                                              ["rename", name, other, 0], ["rmdir", name]]))
            if self.rng.random() < 0.1:
                found.append(["again"])
        return [*found, ["finish"]]

    def choose_access(self):
        return [["as", *self.rng.choice(USERS), ["access", self.any(), self.rng.choice([os.R_OK, os.W_OK, os.X_OK])]]]

    def choose_deep(self):
        path, found = f"{self.directory()}/{self.rng.choice(self.names)}", []
        for _ in range(self.rng.randrange(5, 25)):
            found.append(["mkdir", path, 0o777])
            path += f"/{self.rng.choice(self.names)}"
        top = found[0][1]
        slot = self.slot()
        found += [["open", slot, path, os.O_RDWR | os.O_CREAT, 0o666], ["append", slot, 100, self.rng.randrange(10**6)]]
        if self.rng.random() < 0.5:
            found.append(["rename", top, self.fresh(), 0])
        return found

    def choose_many(self):
        """Enough names for several answers of a directory, and in the end most of them removed."""
        where = self.directory()
        count = self.rng.randrange(20, 60)
        found = [["open", 0, f"{where}/{self.own}-n{number}", os.O_RDWR | os.O_CREAT, 0o644] for number in range(count)]
        return [*found, *self.choose_stream_of(where), *(["unlink", f"{where}/{self.own}-n{number}"] for number in range(count) if number % 10)]

    def choose_stream_of(self, where):
        return [["stream", where], ["next", 300], ["unlink", f"{where}/{self.own}-n{self.rng.randrange(20)}"], ["next", 300],
                ["rename", f"{where}/{self.own}-n{self.rng.randrange(20)}", f"{where}/{self.own}-n{self.rng.randrange(20, 40)}", 0], ["next", 600], ["finish"]]

    def choose_empty(self):
        """A directory with all that is in it is removed."""
        top = self.some("d")
        below = [path for path in self.kinds if path.startswith(top + "/")]
        found = [["rmdir" if self.kinds[path] == "d" else "unlink", path] for path in sorted(below, reverse=True)]
        if self.kinds.get(top) == "d":
            found.append(["rmdir", top])
        return found

    def choose_sync(self):
        return [["sync"]]
