#!/usr/bin/env python3
"""Programs that change a few files in all ways, and a check of the files after a power cut.

    powercut_mixed.py write MOUNT SOURCE NOTES SECONDS SEED rest|go-on WEIR
    powercut_mixed.py check DIRECTORY NOTES CUT

Each of three programs has a directory of its own. It writes cells of 32 bytes, each of which names its file, cell and
change; it truncates, extends, punches holes, rewrites by O_TRUNC, renames over, deletes and creates, with and
without fsync of the file and the directory. Now and then it rests until all of it is home by itself and syncs SOURCE, or
calls `weir sync`: then everything is settled. It records each change that begins, and what was acknowledged as durable,
in NOTES, which is not on the disk. It stops at the first error, or after SECONDS; with `rest` it settles before it ends.

`check` verifies that the directory has only names that it had when it was last durable, or later; and that each cell and
the size of each file are as of the last durable state, or later: no acknowledged data is lost, settled data is never
replaced by older data, and there is no data that no program wrote. CUT is the time of the power cut, in seconds since
1970. What home itself acknowledged later is not counted, fsync of a directory and syncfs: jbd2 may answer that a
transaction is durable while it aborts the journal because the disk is gone (jbd2_complete_transaction finds it neither
running nor committing any more). Syncs of files are counted whenever they were acknowledged.
"""

import ctypes
import json
import mmap
import os
import random
import subprocess
import sys
import time
from pathlib import Path

PROGRAMS = 3
NAMES = 5
CELL = 32
CELLS = 2048
KEEP_SIZE_AND_PUNCH_HOLE = 3
LIBC = ctypes.CDLL(None, use_errno=True)


def cell(node, number, version):
    return f"{node}.{number}.{version}.".encode().ljust(CELL, b"-")


def syncfs(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if LIBC.syncfs(descriptor):
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        os.close(descriptor)


def punch(descriptor, start, end):
    mode, start, length = KEEP_SIZE_AND_PUNCH_HOLE, ctypes.c_int64(start), ctypes.c_int64(end - start)
    if LIBC.fallocate(descriptor, mode, start, length):
        raise OSError(ctypes.get_errno(), "fallocate")


def read_directly(path):
    """A file's bytes by direct I/O. Buffered reads of SOURCE would collide with direct writes to it, and Linux reports
    such a collision as an I/O error of the file (dio_warn_stale_pagecache)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, CELLS * CELL + mmap.PAGESIZE) as memory:
            count = os.readv(descriptor, [memory])
            return memory[:count]
    finally:
        os.close(descriptor)


def sync_directory(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Program:
    """One program, with its directory and its notes."""

    def __init__(self, mount, source, notes, seed, weir):
        self.mount, self.source, self.root = mount, source, mount.parent
        self.weir = weir
        self.notes = open(notes, "w", buffering=1)
        self.random = random.Random(seed)
        self.version = 0
        self.nodes = 0
        # For each name: its file's number, the size in cells, and a descriptor.
        self.files = {}

    def note(self, *what):
        self.notes.write(json.dumps(what) + "\n")

    def change(self, *what):
        """Records a change that begins now."""
        self.version += 1
        self.note(what[0], self.version, *what[1:])
        return self.version

    def new_node(self):
        self.nodes += 1
        return self.nodes

    def write(self, node, descriptor, start, count):
        version = self.change("write", node, start, count)
        data = b"".join(cell(node, number, version) for number in range(start, start + count))
        if os.pwrite(descriptor, data, start * CELL) != len(data):
            raise OSError("a short write")

    def sync(self, node, descriptor):
        if self.random.random() < 0.7:
            os.fdatasync(descriptor)
        else:
            os.fsync(descriptor)
        self.note("synced", self.version, node)

    def sync_names(self):
        sync_directory(self.mount)
        self.note("names", self.version, time.time())

    def create(self, name):
        node = self.new_node()
        self.change("name", name, node)
        descriptor = os.open(self.mount / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        self.files[name] = [node, 0, descriptor]

    def some_cells(self):
        count = self.random.choice((1, 2, 3, 10, 64, 200))
        return self.random.randrange(CELLS - count), count

    def step(self):
        name = f"file-{self.random.randrange(NAMES)}"
        if name not in self.files:
            self.create(name)
            if self.random.random() < 0.5:
                self.sync_names()
            return
        file = self.files[name]
        node, size, descriptor = file
        what = self.random.choices(
            ("write", "append", "truncate", "rewrite", "punch", "rename", "delete", "sync"),
            (40, 15, 5, 4, 4, 3, 1, 12))[0]
        sync = self.random.random() < 0.5
        if what in ("write", "append"):
            start, count = self.some_cells()
            if what == "append" and size + count < CELLS:
                start = size
            self.write(node, descriptor, start, count)
            file[1] = max(size, start + count)
        elif what == "truncate":
            to = self.random.choice((0, self.random.randrange(CELLS)))
            self.change("size", node, to)
            os.ftruncate(descriptor, to * CELL)
            file[1] = to
        elif what == "rewrite":
            os.close(descriptor)
            self.change("size", node, 0)
            descriptor = file[2] = os.open(self.mount / name, os.O_RDWR | os.O_TRUNC)
            count = self.random.randrange(1, 100)
            self.write(node, descriptor, 0, count)
            file[1] = count
            sync = self.random.random() < 0.4
        elif what == "punch" and size > 1:
            start = self.random.randrange(size)
            end = self.random.randrange(start + 1, size + 1)
            self.change("zero", node, start, end)
            punch(descriptor, start * CELL, end * CELL)
        elif what == "rename":
            new, count = self.new_node(), self.random.randrange(1, 300)
            temporary = self.mount / f"{name}.new"
            fresh = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            self.write(new, fresh, 0, count)
            self.sync(new, fresh)
            self.change("name", name, new)
            os.rename(temporary, self.mount / name)
            os.close(descriptor)
            self.files[name] = [new, count, fresh]
            if self.random.random() < 0.5:
                self.sync_names()
            return
        elif what == "delete":
            self.change("name", name, None)
            os.unlink(self.mount / name)
            os.close(descriptor)
            del self.files[name]
            if self.random.random() < 0.5:
                self.sync_names()
            return
        if sync or what == "sync":
            self.sync(node, descriptor)

    def is_home(self):
        for name in self.files:
            try:
                if (self.mount / name).read_bytes() != read_directly(self.source / name):
                    return False
            except FileNotFoundError:
                # Names go home behind the program, too.
                return False
        return True

    def settle(self):
        """Rests until write-back has brought everything home, and then syncs home."""
        for _ in range(60):
            time.sleep(0.05)
            if self.is_home():
                syncfs(self.source)
                self.note("settled", self.version, time.time())
                return
        raise OSError("what was written does not go home by itself")

    def sync_everything(self):
        done = subprocess.run([self.weir, "sync", self.root], stdin=subprocess.DEVNULL, capture_output=True,
                              check=False)
        if done.returncode != 0:
            raise OSError(f"weir sync: {done.stderr.decode(errors='replace').strip()}")
        self.note("settled", self.version, time.time())

    def live(self, seconds, rest):
        try:
            until = time.monotonic() + seconds
            for number in range(NAMES):
                self.create(f"file-{number}")
            self.sync_everything()
            while time.monotonic() < until:
                for _ in range(self.random.randrange(10, 60)):
                    self.step()
                choice = self.random.random()
                if choice < 0.15:
                    self.settle()
                elif choice < 0.25:
                    self.sync_everything()
            if rest:
                self.settle()
        except OSError as error:
            self.note("stopped", self.version, str(error))


def write(mount, source, notes, seconds, seed, rest, weir):
    notes.mkdir()
    for number in range(PROGRAMS):
        (mount / f"program-{number}").mkdir()
    sync_directory(mount)
    children = []
    for number in range(PROGRAMS):
        name = f"program-{number}"
        if (child := os.fork()) == 0:
            program = Program(mount / name, source / name, notes / name, seed * 10 + number, weir)
            program.live(seconds, rest)
            program.notes.flush()
            os._exit(0)
        children.append(child)
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    sys.exit("a program failed" if failed else 0)


class Wrong(Exception):
    """A violated promise."""


class Node:
    """One file's changes, and the last one that is durable."""

    def __init__(self, number):
        self.number = number
        self.cells = [[(0, False)] for _ in range(CELLS)]
        self.sizes = [(0, 0)]
        self.durable = 0

    def write(self, version, start, count):
        for at in range(start, start + count):
            self.cells[at].append((version, True))
        self.sizes.append((version, max(self.sizes[-1][1], start + count)))

    def zero(self, version, start, end):
        for at in range(start, end):
            self.cells[at].append((version, False))

    def size(self, version, size):
        self.zero(version, size, CELLS)
        self.sizes.append((version, size))

    def since_durable(self, changes):
        """The last change that is durable, and those after it."""
        first = max(nth for nth, change in enumerate(changes) if change[0] <= self.durable)
        return changes[first:]

    def check(self, content):
        """The number of cells compared."""
        sizes = [size for _, size in self.since_durable(self.sizes)]
        if len(content) % CELL or not min(sizes) <= len(content) // CELL <= max(sizes):
            raise Wrong(f"{len(content)} bytes, and it had between {min(sizes) * CELL} and {max(sizes) * CELL} since "
                        f"change {self.durable}, which is durable")
        for at in range(len(content) // CELL):
            found = content[at * CELL:(at + 1) * CELL]
            allowed = self.since_durable(self.cells[at])
            data = [version for version, is_data in allowed if is_data]
            if not any(found):
                if all(is_data for _, is_data in allowed):
                    raise Wrong(f"cell {at} is zeros, and should be of change {data}")
                continue
            if not any(found == cell(self.number, at, version) for version in data):
                raise Wrong(f"cell {at} is {found!r}, and should be of change {data}; change {self.durable} is durable")
        return len(content) // CELL


def check_program(directory, notes, cut):
    """Checks what was promised to one program. Returns the numbers of promises and of compared cells."""
    nodes, names, names_durable, promises = {}, {}, 0, 0
    for line in notes.read_text().splitlines():
        what, version, *rest = json.loads(line)
        if what == "name":
            name, node = rest
            names.setdefault(name, [(0, None)]).append((version, node))
            if node is not None:
                nodes.setdefault(node, Node(node))
        elif what == "write":
            nodes.setdefault(rest[0], Node(rest[0])).write(version, *rest[1:])
        elif what == "size":
            nodes[rest[0]].size(version, rest[1])
        elif what == "zero":
            nodes[rest[0]].zero(version, *rest[1:])
        elif what == "synced":
            nodes[rest[0]].durable = version
        elif what in ("names", "settled") and rest[0] > cut:
            continue
        elif what == "names":
            names_durable = version
        elif what == "settled":
            names_durable = version
            for node in nodes.values():
                node.durable = version
        promises += what in ("synced", "names", "settled")
    cells = 0
    for name, changes in names.items():
        first = max(nth for nth, change in enumerate(changes) if change[0] <= names_durable)
        possible = [node for _, node in changes[first:]]
        try:
            content = (directory / name).read_bytes()
        except FileNotFoundError:
            if None not in possible:
                sys.exit(f"{notes.name}: {name} is gone, and should be one of the files {possible}")
            continue
        wrong = ["there should be none"]
        for node in filter(None, possible):
            try:
                cells += nodes[node].check(content)
                break
            except Wrong as error:
                wrong.append(f"as file {node}: {error}")
        else:
            sys.exit(f"{notes.name}: {name}: {'; '.join(wrong[len(wrong) > 1:])}")
    return promises, cells


def check(directory, notes, cut):
    promises, cells = 0, 0
    for noted in sorted(notes.iterdir()):
        kept, compared = check_program(directory / noted.name, noted, cut)
        promises, cells = promises + kept, cells + compared
    print(f"{promises} promises, {cells} cells")


def main():
    arguments = sys.argv[1:]
    if len(arguments) == 8 and arguments[0] == "write":
        mount, source, notes = (Path(path) for path in arguments[1:4])
        write(mount, source, notes, float(arguments[4]), int(arguments[5]), arguments[6] == "rest", arguments[7])
    elif len(arguments) == 4 and arguments[0] == "check":
        check(Path(arguments[1]), Path(arguments[2]), float(arguments[3]))
    else:
        sys.exit(__doc__)


main()
