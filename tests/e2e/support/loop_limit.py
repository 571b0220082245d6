#!/usr/bin/env python3
"""A log's disk, a loop device, that takes no more writes: it ends behind the log's superblocks.

    loop_limit.py break DEVICE
    loop_limit.py heal DEVICE

A full tmpfs under the device would not do. Of a write for which the backing file has room in part, Linux's loop driver says that all of it was
done (seen with Linux 6.18): the disk would lose what it has acknowledged.
"""

import fcntl
import os
import struct
import sys

SUPERBLOCKS = 8192
# linux/loop.h: the place of lo_sizelimit in struct loop_info64, and its size.
LOOP_SET_STATUS64, LOOP_GET_STATUS64, LO_SIZELIMIT, LOOP_INFO_BYTES = 0x4C04, 0x4C05, 32, 232


def limit(path, size):
    """The device ends after `size` bytes; 0 gives it back its full size."""
    device = os.open(path, os.O_RDWR)
    status = bytearray(LOOP_INFO_BYTES)
    fcntl.ioctl(device, LOOP_GET_STATUS64, status)
    struct.pack_into("=Q", status, LO_SIZELIMIT, size)
    fcntl.ioctl(device, LOOP_SET_STATUS64, bytes(status))
    os.close(device)


def main():
    what, device = sys.argv[1:]
    limit(device, {"break": SUPERBLOCKS, "heal": 0}[what])


if __name__ == "__main__":
    main()
