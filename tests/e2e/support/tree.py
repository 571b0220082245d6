#!/usr/bin/env python3
"""Random trees of files, the same for the same seed wherever they are made.

    tree.py grow DIRECTORY SEED OPERATIONS   makes and changes files; ends without any sync
    tree.py manifest DIRECTORY               one line a name: type, mode, links, size, hash
    tree.py times DIRECTORY                  one line a file: its modification time, in ns

The name `.weir` at the top is Weir's own, and left out. A modification time before 2001 was set by `grow` on
purpose and is part of the manifest.

With TREE_SFTP in the environment: trees as the SFTP protocol (version 3) knows them, with times in seconds and without
hard links.
"""

import hashlib
import os
import random
import stat
import sys

Y2001_NS = 978_307_200 * 10**9
SFTP = "TREE_SFTP" in os.environ
TIME_STEP_NS = 10**9 if SFTP else 1


class Grower:
    """Applies random operations below a directory, remembering the names it made."""

    def __init__(self, root, seed):
        self.root = root
        self.random = random.Random(f"tree {seed}")
        self.files = []
        self.directories = [root]
        self.made = 0

    def name(self, kind):
        self.made += 1
        return os.path.join(self.random.choice(self.directories), f"{kind}{self.made}")

    def create(self):
        path = self.name("file")
        with open(path, "wb") as file:
            file.write(self.random.randbytes(self.random.choice([0, 1, 100, 4096, 5000, 70_000, 300_000])))
        self.files.append(path)

    def patch(self, path):
        size = os.stat(path).st_size
        with open(path, "r+b", buffering=0) as file:
            for _ in range(self.random.randrange(1, 20)):
                file.seek(self.random.randrange(size + 1))
                file.write(self.random.randbytes(self.random.randrange(1, 9000)))

    def append(self, path):
        with open(path, "ab", buffering=0) as file:
            for _ in range(self.random.randrange(1, 10)):
                file.write(self.random.randbytes(self.random.randrange(1, 700)))

    def sparse(self, path):
        with open(path, "r+b", buffering=0) as file:
            file.seek(os.stat(path).st_size + self.random.randrange(200_000))
            file.write(self.random.randbytes(self.random.randrange(1, 5000)))

    def truncate(self, path):
        os.truncate(path, self.random.randrange(os.stat(path).st_size + 10_000))

    def rename(self, path):
        new = self.name("moved")
        os.rename(path, new)
        self.files[self.files.index(path)] = new

    def replace(self, path):
        other = self.random.choice(self.files)
        if other == path or os.stat(other).st_nlink > 1 or os.path.samefile(path, other):
            return
        os.rename(path, other)
        self.files.remove(path)

    def link(self, path):
        if SFTP:
            return
        new = self.name("link")
        os.link(path, new)
        self.files.append(new)

    def unlink(self, path):
        os.unlink(path)
        self.files.remove(path)

    def unlink_open(self, path):
        with open(path, "r+b", buffering=0) as file:
            os.unlink(path)
            self.files.remove(path)
            file.write(b"written to a file without a name")

    def old_time(self, path):
        # Chosen by the file's number, not by the clock.
        second = self.random.randrange(1, 900_000_000)
        part = self.random.randrange(10**9)
        os.utime(path, ns=(second * 10**9, second * 10**9 + part // TIME_STEP_NS * TIME_STEP_NS))

    def step(self):
        roll = self.random.random()
        if roll < 0.25 or not self.files:
            self.create()
        elif roll < 0.30:
            path = self.name("directory")
            os.mkdir(path, 0o750)
            self.directories.append(path)
        elif roll < 0.32:
            os.symlink(self.random.choice(self.files), self.name("symlink"))
        else:
            path = self.random.choice(self.files)
            change = self.random.choices(
                [self.patch, self.append, self.sparse, self.truncate, self.rename, self.replace,
                 self.link, self.unlink, self.unlink_open, self.old_time],
                [30, 10, 8, 10, 6, 4, 4, 4, 2, 6])[0]
            change(path)
            if change is self.patch and self.random.random() < 0.3:
                os.chmod(path, self.random.choice([0o600, 0o644, 0o755]))


def manifest(root):
    for top, directories, files in os.walk(root):
        directories.sort()
        if top == root and ".weir" in directories:
            directories.remove(".weir")
        for name in sorted(directories + files):
            path = os.path.join(top, name)
            facts = os.lstat(path)
            relative = os.path.relpath(path, root)
            kind = stat.filemode(facts.st_mode)
            if stat.S_ISREG(facts.st_mode):
                with open(path, "rb") as file:
                    digest = hashlib.sha256(file.read()).hexdigest()
                when = facts.st_mtime_ns if facts.st_mtime_ns < Y2001_NS else "new"
                print(kind, facts.st_nlink, facts.st_size, digest, when, relative)
            elif stat.S_ISLNK(facts.st_mode):
                target = os.readlink(path)
                print(kind, os.path.basename(target), relative)
            else:
                print(kind, relative)


def times(root):
    for top, directories, files in os.walk(root):
        if top == root and ".weir" in directories:
            directories.remove(".weir")
        for name in files:
            path = os.path.join(top, name)
            print(os.path.relpath(path, root), os.lstat(path).st_mtime_ns // TIME_STEP_NS)


def main():
    action, root = sys.argv[1:3]
    if action == "grow":
        os.umask(0o022)
        grower = Grower(root, int(sys.argv[3]))
        for _ in range(int(sys.argv[4])):
            grower.step()
        print(f"{len(grower.files)} files in {len(grower.directories)} directories")
    elif action == "manifest":
        manifest(root)
    else:
        times(root)


if __name__ == "__main__":
    main()
