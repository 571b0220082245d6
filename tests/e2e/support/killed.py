#!/usr/bin/env python3
"""Writers under `weir run` that are killed at random moments, and what of their records must be there.

    killed.py writers WEIR BENCH MOUNTPOINT KILLS SEED
    killed.py daemon WEIR BENCH MOUNTPOINT NOTES SECONDS PID
    killed.py check MOUNTPOINT NOTES

writers: some programs write numbered records, each by one call, into files of their own, and tell each
number when its call has returned. One after the other they are killed with SIGKILL and begun again. Then every place holds
the record that was told last of those that go there, or the next, which was under way: whole, but for the first ones of
a program, which the kernel writes page by page. That is read through FUSE
and, now and then, under `weir run`. No client is left in `weir status` at the end.

daemon: such writers sync now and then; the daemon is killed. Each must find all its calls fail within a second. What was
synced is noted in NOTES, for check.
"""

import json
import os
import random
import select
import signal
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

WRITERS = 4
PLACES = 200
# Records of a program that may have been written by the kernel's way, at its begin.
BY_KERNEL = 32
STRIDE = 4400
STEP = 7919
SYNCED = 1 << 63


def record(writer, number):
    size = 64 + (number * 2654435761 % 2**32) % (4096 - 64 + 1)
    head = struct.pack("<QQ", writer, number)
    body = (head * (size // len(head) + 1))[:size - 4]
    return body + struct.pack("<I", zlib.crc32(body))


class Writer:
    """One program, begun again each time it was killed. Its numbers go on."""

    def __init__(self, under, bench, number, path, options=()):
        self.under, self.bench, self.options = under, bench, options
        self.number, self.path = number, path
        self.told, self.synced, self.places = 0, 0, {}
        self.begun = 0
        # Places of records that were under way when it was killed: nobody was told what is there.
        self.unsure = set()
        self.child, self.rest = None, b""

    def begin(self):
        self.begun = self.told
        command = [*self.under, self.bench, "trial", "writer", self.path, "--writer", str(self.number),
                   "--places", str(PLACES), "--from", str(self.told + 1), *self.options]
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.set_blocking(self.child.stdout.fileno(), False)

    def hear(self, wait=0.0):
        """Takes note of what it told; false at the end of it."""
        fd = self.child.stdout.fileno()
        if not select.select([fd], [], [], wait)[0]:
            return True
        try:
            said = os.read(fd, 1 << 20)
        except BlockingIOError:
            return True
        self.rest += said
        whole = len(self.rest) // 8 * 8
        for (number,) in struct.iter_unpack("<Q", self.rest[:whole]):
            if number & SYNCED:
                self.synced = number & ~SYNCED
            else:
                self.told = number
                self.places[number * STEP % PLACES] = number
                self.unsure.discard(number * STEP % PLACES)
        self.rest = self.rest[whole:]
        return bool(said)

    def kill(self):
        self.child.send_signal(signal.SIGKILL)
        while self.hear(1.0):
            pass
        self.rest = b""
        self.child.wait()
        self.child.stdout.close()
        self.child.stderr.close()

    def check(self, read):
        """Every place, by a function that reads (offset, size). The record under way may be there, and then counts."""
        following = self.told + 1
        for place in range(PLACES):
            wanted = self.places.get(place)
            if wanted is None and (following * STEP % PLACES != place or place in self.unsure):
                continue
            found = read(place * STRIDE, 4096)
            if wanted is not None and found[:len(record(self.number, wanted))] == record(self.number, wanted):
                continue
            if following * STEP % PLACES == place:
                data = record(self.number, following)
                if found[:len(data)] == data:
                    continue
                if wanted is None and not any(found[:16]):
                    continue
                if self.is_torn_by_the_kernel(found, data, place, wanted):
                    continue
            self.fail(place, wanted, found, read)

    def is_torn_by_the_kernel(self, found, data, place, wanted):
        """Programs begin by the kernel's way, where a kill ends a write between two pages, as on any file system."""
        end = -(place * STRIDE) % 4096
        before = record(self.number, wanted) if wanted is not None else bytes(len(data))
        return (self.told - self.begun < BY_KERNEL and 0 < end < len(data) and found[:end] == data[:end]
                and found[end:len(before)] == before[end:])

    def fail(self, place, wanted, found, read):
        """Says what is there, and whether it is still there a moment later and for others."""
        def kind(data):
            for number in (wanted, self.told + 1):
                if number and data[:len(record(self.number, number))] == record(self.number, number):
                    return f"record {number}"
            return "neither"

        said = []
        for seconds in (0, 0.5):
            time.sleep(seconds)
            with open(self.path, "rb", buffering=0) as file:
                anew = os.pread(file.fileno(), 4096, place * STRIDE)
            said.append(f"after {seconds} s {kind(read(place * STRIDE, 4096))}, opened anew {kind(anew)}")
        number = struct.unpack_from("<QQ", found)[1] if len(found) >= 16 else None
        data = record(self.number, number or 0)
        same = next((at for at in range(len(data)) if found[at:at + 1] != data[at:at + 1]), len(data))
        sys.exit(f"{self.path}: place {place} is to hold record {wanted} of writer {self.number}, and begins like {number}, of which "
                 f"{same} of {len(data)} bytes are there (the page ends after {-(place * STRIDE) % 4096}); record {self.told} was "
                 f"told last, {self.told - self.begun} since its begin; {'; '.join(said)}")


def status(weir, mountpoint):
    said = subprocess.run([weir, "status", mountpoint, "--json"], stdout=subprocess.PIPE, check=True).stdout
    return json.loads(said)


READER = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
while (line := sys.stdin.readline()):
    at, size = map(int, line.split())
    for _ in range(int(sys.argv[2])):
        data = os.pread(fd, size, at)
    sys.stdout.buffer.write(len(data).to_bytes(4, "little") + data)
    sys.stdout.buffer.flush()
"""


class Reader:
    """A program under `weir run` that reads, often enough to do so by the lane."""

    def __init__(self, under, path):
        command = [*under, sys.executable, "-c", READER, path, "3"]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=False)

    def read(self, at, size):
        self.child.stdin.write(f"{at} {size}\n".encode())
        self.child.stdin.flush()
        size = int.from_bytes(self.child.stdout.read(4), "little")
        return self.child.stdout.read(size)

    def end(self):
        self.child.stdin.close()
        if self.child.wait():
            sys.exit("a reader under weir run ended badly")


def writers(weir, bench, mountpoint, kills, seed):
    source = random.Random(seed)
    under = [weir, "run", "--"]
    all_writers = [Writer(under, bench, number, f"{mountpoint}/own{number}") for number in range(WRITERS)]
    before = status(weir, mountpoint)["lane"]["posted_writes"]
    for writer in all_writers:
        writer.begin()
    # Whoever is killed before that has no file yet.
    for writer in all_writers:
        while writer.told == 0 and writer.child.poll() is None:
            writer.hear(0.05)
    for kill in range(kills):
        writer = source.choice(all_writers)
        deadline = time.monotonic() + source.uniform(0, 0.02)
        # Some are killed at their start, while they join the lane; most when they write.
        begun = writer.told
        if source.random() < 0.8:
            while writer.told == begun and writer.child.poll() is None:
                writer.hear(0.05)
            deadline = time.monotonic() + source.uniform(0, 0.02)
        while (left := deadline - time.monotonic()) > 0:
            for other in all_writers:
                other.hear()
            time.sleep(min(left, 0.002))
        writer.kill()
        with open(writer.path, "rb") as file:
            writer.check(lambda at, size: os.pread(file.fileno(), size, at))
        if kill % 10 == 0:
            reader = Reader(under, writer.path)
            writer.check(reader.read)
            reader.end()
        # What was under way may be there: its number is not given again.
        writer.told += 1
        writer.places.pop(writer.told * STEP % PLACES, None)
        writer.unsure.add(writer.told * STEP % PLACES)
        writer.begin()
        for other in all_writers:
            other.hear()
            if other is not writer and other.child.poll() is not None:
                sys.exit(f"writer {other.number} ended by itself: {other.child.stderr.read().decode()}")
    for writer in all_writers:
        writer.kill()
        with open(writer.path, "rb") as file:
            writer.check(lambda at, size: os.pread(file.fileno(), size, at))
    posted = status(weir, mountpoint)["lane"]["posted_writes"] - before
    deadline = time.monotonic() + 60
    while (lane := status(weir, mountpoint)["lane"])["clients"]:
        if time.monotonic() > deadline:
            sys.exit(f"after the end of all programs the lane has {lane['clients']} clients")
        time.sleep(0.05)
    if posted == 0:
        sys.exit("no write came by the lane")
    print(f"{kills} kills, {sum(writer.told for writer in all_writers)} records, {posted} by the lane")


def daemon(weir, bench, mountpoint, notes, seconds, pid):
    under = [weir, "run", "--"]
    options = ["--sync-every", "50", "--stubborn"]
    every = [Writer(under, bench, 0, f"{mountpoint}/lane0", options), Writer(under, bench, 1, f"{mountpoint}/lane1", options),
             Writer([], bench, 2, f"{mountpoint}/fuse2", options)]
    for writer in every:
        writer.begin()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for writer in every:
            writer.hear(0.01)
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    noted = {}
    for writer in every:
        while writer.hear(0.1):
            if time.monotonic() > killed + 60:
                writer.child.kill()
                sys.exit(f"writer {writer.number} hangs after the daemon is gone")
        status_of = writer.child.wait(60)
        said = writer.child.stderr.read().decode().strip()
        if status_of or "failed as it must" not in said:
            sys.exit(f"writer {writer.number}: status {status_of}: {said}")
        if writer.synced == 0:
            sys.exit(f"writer {writer.number} synced nothing")
        noted[writer.path.rsplit("/", 1)[1]] = (writer.number, writer.synced, writer.told)
    Path(notes).write_text(json.dumps(noted))
    print(f"{sum(synced for _, synced, _ in noted.values())} records synced, all calls failed at once")


def check(mountpoint, notes):
    """Places hold the last record that was synced, or a later one."""
    for name, (number, synced, told) in json.loads(Path(notes).read_text()).items():
        content = Path(f"{mountpoint}/{name}").read_bytes()
        for place in range(PLACES):
            there = [n for n in range(max(1, synced - PLACES + 1), told + 2) if n * STEP % PLACES == place]
            if not (must := [n for n in there if n <= synced]):
                continue
            allowed = [record(number, n) for n in there if n >= max(must)]
            at = place * STRIDE
            if not any(content[at:at + len(data)] == data for data in allowed):
                # A record that was not synced may have gone home in part.
                later = len(allowed) > 1
                if later and content[at:at + 8] == struct.pack("<Q", number):
                    continue
                sys.exit(f"{name}: place {place} does not hold record {max(must)} or a later one")


def main():
    if len(sys.argv) == 7 and sys.argv[1] == "writers":
        writers(*sys.argv[2:5], int(sys.argv[5]), sys.argv[6])
    elif len(sys.argv) == 8 and sys.argv[1] == "daemon":
        daemon(*sys.argv[2:6], float(sys.argv[6]), int(sys.argv[7]))
    elif len(sys.argv) == 4 and sys.argv[1] == "check":
        check(*sys.argv[2:4])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
