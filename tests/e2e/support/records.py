#!/usr/bin/env python3
"""Numbered records that are synced one by one, and what of them must be there after a crash.

    records.py write DIRECTORY ACKED THREADS SECONDS
    records.py check DIRECTORY ACKED

Each thread has a file of its own in DIRECTORY. It writes record after record, each at a place that its number says,
syncs it, and only then notes the number in ACKED. It stops at the first error. Afterwards every place holds the last
record that was noted there, whole, and nothing else. One more record was written and not yet noted: of that each sector
may be there or not, because nobody had synced it when the power went. Files also grow and are cut: record 1000, 2000, ... of a file is preceded by a truncation to nothing, which the next sync covers.
"""

import os
import struct
import sys
import threading
import time
import zlib
from pathlib import Path

SLOTS = 400
STRIDE = 1500
BYTES = 96
SECTOR = 512
CUT_EVERY = 1000


def record(thread, number):
    head = struct.pack("<QQ", thread, number)
    body = (head * (BYTES // len(head) + 1))[:BYTES - 4]
    return body + struct.pack("<I", zlib.crc32(body))


def slot_of(number):
    return number * 7919 % SLOTS


def write_one(directory, acked, thread, until):
    descriptor = os.open(directory / f"records-{thread}", os.O_RDWR | os.O_CREAT, 0o644)
    noted = os.open(acked / f"acked-{thread}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    number = 0
    try:
        while time.monotonic() < until:
            number += 1
            if number % CUT_EVERY == 0:
                os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, record(thread, number), slot_of(number) * STRIDE)
            if number % 3:
                os.fdatasync(descriptor)
            else:
                os.fsync(descriptor)
            os.write(noted, b"%d\n" % number)
    except OSError as error:
        print(f"thread {thread} stopped at {number}: {error}")


def write(directory, acked, threads, seconds):
    acked.mkdir(exist_ok=True)
    until = time.monotonic() + seconds
    running = [threading.Thread(target=write_one, args=(directory, acked, thread, until))
               for thread in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def mixed(found, allowed, offset):
    """Whether each sector's part of what was found at `offset` is that of a record that may be there."""
    first = SECTOR - offset % SECTOR
    parts = [slice(start, start + SECTOR) for start in range(first - SECTOR, BYTES, SECTOR)]
    parts = [slice(max(part.start, 0), min(part.stop, BYTES)) for part in parts]
    found = found.ljust(BYTES, b"\0")
    return all(any(found[part] == record.ljust(BYTES, b"\0")[part] for record in allowed) for part in parts)


def check(directory, acked):
    total = 0
    for noted in sorted(acked.glob("acked-*")):
        thread = int(noted.name.split("-")[1])
        last = len(noted.read_text().split())
        total += last
        # What has been acknowledged since the last truncation that was.
        since = last // CUT_EVERY * CUT_EVERY
        wanted = {}
        for number in range(max(since, 1), last + 1):
            wanted[slot_of(number)] = number
        kept = directory / f"records-{thread}"
        if last == 0 and not kept.exists():
            # Nothing of it was synced, its name neither.
            continue
        content = kept.read_bytes()
        following = last + 1
        cut = following % CUT_EVERY == 0
        for slot in range(SLOTS):
            found = content[slot * STRIDE:slot * STRIDE + BYTES]
            allowed = [record(thread, wanted[slot])] if slot in wanted else [b"", bytes(BYTES)]
            if slot_of(following) == slot:
                allowed.append(record(thread, following))
            if cut:
                allowed += [b"", bytes(BYTES)]
            if slot not in wanted and found and not any(found):
                continue
            if found not in allowed and not (slot_of(following) == slot and mixed(found, allowed, slot * STRIDE)):
                number = struct.unpack_from("<QQ", found)[1] if len(found) >= 16 else None
                sys.exit(f"{noted.name}: of {last} records, place {slot} is to hold {wanted.get(slot)}, "
                         f"and holds {number} ({found[:24]!r})")
    print(f"{total} synced records")


def main():
    if len(sys.argv) == 6 and sys.argv[1] == "write":
        write(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
    elif len(sys.argv) == 4 and sys.argv[1] == "check":
        check(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        sys.exit(__doc__)


main()
