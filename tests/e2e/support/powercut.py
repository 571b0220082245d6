"""Files that are synced, and files that are not, before a power cut; and what must be there after it.

    powercut.py write DIRECTORY
    powercut.py verify DIRECTORY

Twenty files are written and synced. Two are then written over without a sync: one asks the kernel to write it back, so
that it is in the disk's cache and not durable. After the cut the twenty are what they were, except that each sector of
the two is the old one or the new one.
"""

import ctypes
import hashlib
import os
import sys
from pathlib import Path

FILES = 20
BYTES = 1 << 16
LARGE = 8 << 20
SECTOR = 512
SYNC_FILE_RANGE_WRITE_AND_WAIT = 7


def content(name, version, size):
    """Bytes of which each sector is unlike every other."""
    sectors = (hashlib.sha256(f"{name} {version} {at}".encode()).digest() * (SECTOR // 32)
               for at in range(size // SECTOR))
    return b"".join(sectors)


def put(path, data, sync):
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    if os.pwrite(descriptor, data, 0) != len(data):
        sys.exit(f"{path}: a short write")
    if sync:
        os.fsync(descriptor)
    return descriptor


def names():
    return [(f"file-{number}", BYTES) for number in range(FILES)] + [("large", LARGE)]


def write(directory):
    for name, size in names():
        os.close(put(directory / name, content(name, 1, size), True))
    descriptor = os.open(directory, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    os.close(put(directory / "file-0", content("file-0", 2, BYTES), False))
    descriptor = put(directory / "large", content("large", 2, LARGE), False)
    # Python has no sync_file_range(2): it makes the kernel write, and the disk flush nothing.
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.sync_file_range(descriptor, ctypes.c_int64(0), ctypes.c_int64(LARGE),
                                ctypes.c_uint(SYNC_FILE_RANGE_WRITE_AND_WAIT))
    if done:
        sys.exit(f"sync_file_range: {os.strerror(ctypes.get_errno())}")


def verify(directory):
    old_or_new = {"file-0", "large"}
    changed = 0
    for name, size in names():
        data = (directory / name).read_bytes()
        old = content(name, 1, size)
        if name not in old_or_new:
            if data != old:
                sys.exit(f"{name} is not what was synced")
            continue
        new = content(name, 2, size)
        if len(data) != size:
            sys.exit(f"{name} has {len(data)} bytes and not {size}")
        for at in range(0, size, SECTOR):
            sector = slice(at, at + SECTOR)
            if data[sector] == new[sector]:
                changed += 1
            elif data[sector] != old[sector]:
                sys.exit(f"{name} at {at} is neither what it was nor what was written")
    print(f"{changed} sectors written without a sync are there")


if __name__ == "__main__":
    {"write": write, "verify": verify}[sys.argv[1]](Path(sys.argv[2]))
