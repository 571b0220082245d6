#!/usr/bin/env python3
"""One set of files by every front end at once, against a model of bytes.

    fronts.py MOUNTPOINT SEED STEPS [WEIR]

A process for each front end: pread and pwrite through FUSE, the same with O_APPEND, shared mappings, and, where WEIR is
given, pread and pwrite, the same from a second program, and O_APPEND under `WEIR run`. This process tells one of them at a time
what to do and knows what must come of it: what one writes is what the next read of any other shows, and so are sizes. Then
all of them write at once, each bytes of its own, and the files are compared in the end. Prints the steps made.
"""

import ctypes
import mmap
import os
import pickle
import random
import subprocess
import sys
import time

FILES = 3
SIZE_MAX = 300_000
# Bytes that one front end owns when all write at once: not a divisor of a page, so that pages are shared.
STRIPE = 1000
STRIPED = 200_000
AT_ONCE = 1500
PUNCH, KEEP_SIZE = 2, 1
LIBC = ctypes.CDLL(None, use_errno=True)


def fallocate(fd, mode, offset, size):
    if LIBC.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(size)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"fallocate: {os.strerror(number)}")


class Front:
    """What a process of one kind does when it is told."""

    def __init__(self, kind, directory):
        self.kind, self.directory = kind, directory
        self.fds, self.maps = {}, {}

    def fd(self, name):
        if name not in self.fds:
            append = os.O_APPEND if self.kind == "append" else 0
            self.fds[name] = os.open(f"{self.directory}/{name}", os.O_RDWR | os.O_CREAT | append, 0o644)
        return self.fds[name]

    def map(self, name, need):
        """A mapping of the file, which is at least so long."""
        have = self.maps.get(name)
        if have is None or len(have) < need:
            self.unmap(name)
            self.maps[name] = mmap.mmap(self.fd(name), os.fstat(self.fd(name)).st_size, mmap.MAP_SHARED)
        return self.maps[name]

    def unmap(self, name):
        if name in self.maps:
            self.maps.pop(name).close()

    def do(self, what, name, *rest):
        return getattr(self, what)(name, *rest)

    def write(self, name, offset, data):
        if self.kind == "map":
            self.map(name, offset + len(data))[offset:offset + len(data)] = data
        elif self.kind == "append":
            return os.write(self.fd(name), data)
        else:
            done = 0
            while done < len(data):
                done += os.pwrite(self.fd(name), data[done:], offset + done)
        return None

    def read(self, name, offset, size):
        if self.kind == "map":
            return self.map(name, offset + size)[offset:offset + size]
        out = b""
        while len(out) < size:
            got = os.pread(self.fd(name), size - len(out), offset + len(out))
            if not got:
                break
            out += got
        return out

    def size(self, name):
        fd = self.fd(name)
        return os.fstat(fd).st_size, os.lseek(fd, 0, os.SEEK_END), os.stat(f"{self.directory}/{name}").st_size

    def truncate(self, name, size):
        # A mapping of pages that are gone is of no use.
        self.unmap(name)
        os.ftruncate(self.fd(name), size)

    def punch(self, name, offset, size):
        fallocate(self.fd(name), PUNCH | KEEP_SIZE, offset, size)

    def allocate(self, name, offset, size):
        fallocate(self.fd(name), 0, offset, size)

    def sync(self, name):
        if name in self.maps:
            self.maps[name].flush()
        os.fsync(self.fd(name))

    def reopen(self, name):
        self.unmap(name)
        if name in self.fds:
            os.close(self.fds.pop(name))

    def at_once(self, name, number, of, seed):
        """Writes its own stripes at random, reads them back, and answers what they hold in the end."""
        source = random.Random(seed)
        mine = {}
        for turn in range(AT_ONCE):
            stripe = source.randrange(STRIPED // STRIPE // of) * of + number
            start, held = stripe * STRIPE, mine.setdefault(stripe, None)
            if held is None or source.random() < 0.6:
                at, size = (0, STRIPE) if held is None else (source.randrange(STRIPE), source.randrange(1, 200))
                size = min(size, STRIPE - at)
                data = source.randbytes(size)
                self.write(name, start + at, data)
                held = bytearray(held or bytes(STRIPE))
                held[at:at + size] = data
                mine[stripe] = bytes(held)
            if (found := self.read(name, start, STRIPE)) != mine[stripe]:
                differ = [at for at in range(STRIPE) if found[at:at + 1] != mine[stripe][at:at + 1]]
                time.sleep(0.2)
                later = "is there later" if self.read(name, start, STRIPE) == mine[stripe] else "is lost"
                what = "zeros" if not any(found[at] for at in differ if at < len(found)) else "other bytes"
                raise ValueError(f"bytes {start + differ[0]} to {start + differ[-1]} of {name} ({len(differ)} of them) are {what}, "
                                 f"not what was written; it {later}; turn {turn}")
            if self.kind == "map" and turn % 300 == 299:
                self.unmap(name)
        return mine

    def append_at_once(self, name, number, seed):
        source = random.Random(seed)
        for turn in range(AT_ONCE):
            os.write(self.fd(name), f"{number} {turn} {'x' * source.randrange(100)}\n".encode())


def worker(kind, directory):
    front = Front(kind, directory)
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = ("ok", front.do(*request))
        except Exception as error:
            answer = ("failed", f"{type(error).__name__}: {error}")
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


class Process:
    """A front end in a process of its own."""

    def __init__(self, name, kind, directory, under):
        self.name, self.kind = name, kind
        command = [*under, sys.executable, __file__, "--worker", kind, directory]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def begin(self, *request):
        pickle.dump(request, self.child.stdin)
        self.child.stdin.flush()

    def end(self):
        how, answer = pickle.load(self.child.stdout)
        if how != "ok":
            raise ValueError(f"{self.name}: {answer}")
        return answer

    def ask(self, *request):
        self.begin(*request)
        return self.end()


class Model:
    """What the files hold, and what was done to them."""

    def __init__(self, fronts, seed):
        self.fronts, self.source = fronts, random.Random(f"fronts {seed}")
        self.files = {f"file{number}": bytearray() for number in range(FILES)}
        self.log, self.checks = [], 0
        # Who is at work on a file: few for a while, so that each way of sharing lasts.
        self.active = {}

    def note(self, front, *what):
        self.log.append((front.name, *what))
        del self.log[:-25]

    def fail(self, why):
        for line in self.log:
            print("   ", *line, file=sys.stderr)
        sys.exit(f"after {self.checks} checks: {why}")

    def check(self, front, name, offset, size):
        """A read by a front end, which shows what the model has."""
        content = self.files[name]
        size = max(0, min(size, len(content) - offset))
        if size == 0:
            return
        self.note(front, "read", name, offset, size)
        found = front.ask("read", name, offset, size)
        self.checks += 1
        wanted = content[offset:offset + size]
        if found != wanted:
            at = next((at for at in range(size) if found[at:at + 1] != wanted[at:at + 1]), 0)
            self.fail(f"{front.name} reads {found[at:at + 8]!r} at {offset + at} of {name}, and there is {bytes(wanted[at:at + 8])!r}")

    def check_size(self, front, name):
        self.note(front, "size", name)
        found, wanted = front.ask("size", name), len(self.files[name])
        self.checks += 1
        if any(size != wanted for size in found):
            self.fail(f"{front.name} says {name} has {found} bytes (fstat, SEEK_END, stat), and it has {wanted}")

    def step(self):
        source = self.source
        name = source.choice(list(self.files))
        fronts, left = self.active.get(name, ([], 0))
        if left == 0:
            fronts, left = source.sample(self.fronts, source.choice([1, 1, 2, 3, len(self.fronts)])), source.randrange(10, 80)
        self.active[name] = (fronts, left - 1)
        front, content = source.choice(fronts), self.files[name]
        offset = source.randrange(len(content) + 1) if content else 0
        size = source.choice([1, 7, 64, 64, 128, 512, 4096, 5000, 70_000])
        what = source.choices(
            ["write", "read", "beyond", "truncate", "punch", "allocate", "sync", "reopen", "unmap"],
            [50, 20, 8, 3, 3, 2, 2, 2, 3])[0]
        if what == "write" or (what == "beyond" and len(content) < SIZE_MAX):
            self.write(front, name, len(content) + source.randrange(3000) if what == "beyond" else offset, size)
        elif what == "read":
            self.check(front, name, offset, size)
        elif what == "truncate":
            cut = source.randrange(len(content) + 1)
            cut = source.choice([cut, cut, len(content), 0, min(len(content) + 5000, SIZE_MAX)])
            # A mapping must not be used past the end.
            for other in self.fronts:
                if other.kind == "map":
                    other.ask("unmap", name)
            self.note(front, "truncate", name, cut)
            front.ask("truncate", name, cut)
            del content[cut:]
            content.extend(bytes(cut - len(content)))
        elif what == "punch" and content:
            self.note(front, "punch", name, offset, size)
            front.ask("punch", name, offset, size)
            end = min(offset + size, len(content))
            content[offset:end] = bytes(end - offset)
        elif what == "allocate" and offset + size <= SIZE_MAX:
            self.note(front, "allocate", name, offset, size)
            front.ask("allocate", name, offset, size)
            content.extend(bytes(max(0, offset + size - len(content))))
        elif what in ("sync", "reopen", "unmap"):
            self.note(front, what, name)
            front.ask(what, name)
        # Whoever is asked next must know of it.
        others = self.fronts if source.random() < 0.1 else source.sample(self.fronts, source.choice([0, 0, 1, 2]))
        for other in others:
            self.check(other, name, max(0, offset - 10), size + 20)
            self.check_size(other, name)

    def write(self, front, name, offset, size):
        content, data = self.files[name], self.source.randbytes(size)
        if front.kind == "append":
            if len(content) + size > SIZE_MAX:
                return
            offset = len(content)
        elif front.kind == "map":
            size = min(size, len(content) - offset)
            if size <= 0:
                return
            data = data[:size]
        elif offset + size > SIZE_MAX:
            return
        self.note(front, "write", name, offset, size)
        front.ask("write", name, offset, data)
        content.extend(bytes(max(0, offset + size - len(content))))
        content[offset:offset + size] = data


def all_at_once(fronts, seed, directory):
    """All front ends write stripes of one file, and append to another; what is there in the end is compared."""
    striped = [front for front in fronts if front.kind != "append"]
    appending = [front for front in fronts if front.kind == "append"]
    with open(f"{directory}/striped", "wb") as file:
        file.write(bytes(STRIPED))
    for number, front in enumerate(striped):
        front.begin("at_once", "striped", number, len(striped), f"{seed} {number}")
    for number, front in enumerate(appending):
        front.begin("append_at_once", "appended", number, f"{seed} append {number}")
    wanted = bytearray(STRIPED)
    for front in striped:
        for stripe, held in front.end().items():
            wanted[stripe * STRIPE:(stripe + 1) * STRIPE] = held
    for front in appending:
        front.end()
    for front in [*striped, None]:
        found = front.ask("read", "striped", 0, STRIPED) if front else open(f"{directory}/striped", "rb").read()
        if found != wanted:
            at = next(at for at in range(STRIPED) if found[at:at + 1] != wanted[at:at + 1])
            who = front.name if front else "a new process"
            sys.exit(f"{who} reads other bytes at {at} of striped, of {striped[at // STRIPE % len(striped)].name}'s")
    lines = open(f"{directory}/appended").read().split("\n")[:-1]
    seen = {tuple(line.split(" ")[:2]) for line in lines}
    if len(lines) != len(seen) or len(lines) != AT_ONCE * len(appending):
        sys.exit(f"{len(lines)} appended lines, {len(seen)} of them different, wanted {AT_ONCE * len(appending)}")
    last = {}
    for number, turn in (line.split(" ")[:2] for line in lines):
        if int(turn) != last.get(number, -1) + 1:
            sys.exit(f"line {turn} of appender {number} stands after its line {last.get(number)}")
        last[number] = int(turn)
    return AT_ONCE * len(fronts)


def main():
    if sys.argv[1] == "--worker":
        worker(sys.argv[2], sys.argv[3])
        return
    directory, seed, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    kinds = [("FUSE", "calls", []), ("mapping", "map", []), ("appender", "append", [])]
    if len(sys.argv) > 4:
        under = [sys.argv[4], "run", "--"]
        kinds += [("lane", "calls", under), ("second lane", "calls", under), ("lane appender", "append", under)]
    fronts = [Process(name, kind, directory, under) for name, kind, under in kinds]
    model = Model(fronts, seed)
    try:
        for _ in range(steps):
            model.step()
        for name, content in model.files.items():
            for front in fronts:
                model.check(front, name, 0, len(content))
                model.check_size(front, name)
        done = all_at_once(fronts, seed, directory)
    except ValueError as error:
        model.fail(str(error))
    for front in fronts:
        front.child.stdin.close()
    if failed := [front.name for front in fronts if front.child.wait()]:
        sys.exit(f"ended badly: {failed}")
    print(steps + model.checks + done)


if __name__ == "__main__":
    main()
