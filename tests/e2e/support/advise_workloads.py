#!/usr/bin/env python3
"""The programs whose speed `weir advise` is to predict, and that of which the figures are known.

    advise_workloads.py setup NAME     makes what the program needs in the current directory, durable and, where it is to be
                                       so, not in memory
    advise_workloads.py run NAME       the program, in the current directory

`overwrites`, `syncs` and `renames` of `run known` are what they say: 40 partial overwrites of pages not used before, 7 syncs
and 11 renames.
"""

import os
import random
import sqlite3
import subprocess
import sys

PAGE = 4096


def make(name, size, cold):
    with open(name, "wb") as file:
        block = os.urandom(1 << 20)
        for _ in range(0, size, 1 << 20):
            file.write(block)
        file.truncate(size)
        file.flush()
        os.fsync(file.fileno())
        if cold:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def transactions(mode, count):
    database = sqlite3.connect("database", isolation_level=None)
    database.execute(f"pragma journal_mode = {mode}")
    database.execute("pragma synchronous = full")
    database.execute("create table if not exists of (number integer, what text)")
    for number in range(count):
        database.execute("begin immediate")
        for row in range(3):
            database.execute("insert into of values (?, ?)", (number, "x" * 80))
        database.execute("commit")
    database.close()


class Sqlite:
    def __init__(self, mode, count):
        self.mode, self.count = mode, count

    def setup(self):
        pass

    def run(self):
        transactions(self.mode, self.count)


class Records:
    """Small writes at random places of a file that is not in memory, each to a page of its own."""
    COUNT, PAGES = 6000, 16384

    def setup(self):
        make("records", self.PAGES * PAGE, cold=True)

    def run(self):
        places = random.Random(1).sample(range(self.PAGES), self.COUNT)
        fd = os.open("records", os.O_RDWR)
        for page in places:
            os.pwrite(fd, b"r" * 64, page * PAGE + 100)
        os.close(fd)


class Git:
    FILES = 200

    def setup(self):
        os.mkdir("tree")
        for number in range(self.FILES):
            os.makedirs(f"tree/{number % 10}", exist_ok=True)
            with open(f"tree/{number % 10}/{number}", "w", encoding="utf-8") as file:
                file.write(f"{number}\n" * 50)

    def run(self):
        who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
               "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent", "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory",
               "GIT_CONFIG_VALUE_0": "*"}
        environment = {**os.environ, **who}
        for words in (["init", "-q", "."], ["add", "."], ["commit", "-qm", "all"], ["status", "--porcelain"]):
            subprocess.run(["git", "-C", "tree", *words], check=True, env=environment)


class Untar:
    FILES = 1500

    def setup(self):
        os.mkdir("pack")
        for number in range(self.FILES):
            os.makedirs(f"pack/{number % 30}", exist_ok=True)
            with open(f"pack/{number % 30}/{number}", "w", encoding="utf-8") as file:
                file.write("x" * (number % 7000))
        subprocess.run(["tar", "-cf", "pack.tar", "pack"], check=True)
        subprocess.run(["rm", "-r", "pack"], check=True)

    def run(self):
        os.execvp("tar", ["tar", "-xf", "pack.tar"])


class Sequential:
    """Writes a new file in pieces of 128 KiB."""
    PIECES = 800

    def setup(self):
        pass

    def run(self):
        piece = b"s" * (128 << 10)
        fd = os.open("sequential", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for _ in range(self.PIECES):
            os.write(fd, piece)
        os.close(fd)


class RandomRead:
    COUNT, PAGES = 4000, 16384

    def setup(self):
        make("read", self.PAGES * PAGE, cold=True)

    def run(self):
        places = random.Random(2).sample(range(self.PAGES), self.COUNT)
        fd = os.open("read", os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        for page in places:
            os.pread(fd, PAGE, page * PAGE)
        os.close(fd)


class SmallWrites:
    """Writes of 64 B to a file that is in memory."""
    COUNT, PAGES = 120000, 256

    def setup(self):
        make("small", self.PAGES * PAGE, cold=False)

    def run(self):
        fd = os.open("small", os.O_RDWR)
        os.pread(fd, self.PAGES * PAGE, 0)
        generator = random.Random(3)
        places = [generator.randrange(self.PAGES * PAGE // 64) * 64 for _ in range(self.COUNT)]
        data = b"w" * 64
        for place in places:
            os.pwrite(fd, data, place)
        os.close(fd)


class SyncScript:
    """Saves a file by rename, with syncs, many times in one program."""
    COUNT = 300

    def setup(self):
        pass

    def run(self):
        for number in range(self.COUNT):
            fd = os.open("new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.write(fd, b"%d\n" % number * 100)
            os.fsync(fd)
            os.close(fd)
            os.rename("new", f"saved-{number % 10}")
            directory = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(directory)
            os.close(directory)


class Known:
    """Of which the figures are known."""

    def setup(self):
        make("known", 100 * PAGE, cold=True)

    def run(self):
        fd = os.open("known", os.O_RDWR)
        os.fstat(fd)
        for page in range(40):
            os.pwrite(fd, b"k" * 300, page * 2 * PAGE + 10)
        os.pwrite(fd, b"w" * PAGE, PAGE)
        os.pwrite(fd, b"again", 10)
        for _ in range(7):
            os.fsync(fd)
        os.close(fd)
        for number in range(11):
            os.rename("known" if number == 0 else f"known-{number - 1}", f"known-{number}")


WORKLOADS = {
    "sqlite-rollback": Sqlite("delete", 250),
    "sqlite-wal": Sqlite("wal", 1500),
    "records": Records(),
    "git": Git(),
    "untar": Untar(),
    "sequential-write": Sequential(),
    "random-read": RandomRead(),
    "small-writes": SmallWrites(),
    "sync-script": SyncScript(),
    "known": Known(),
}


def main():
    what, name = sys.argv[1:]
    getattr(WORKLOADS[name], {"setup": "setup", "run": "run"}[what])()


if __name__ == "__main__":
    main()
