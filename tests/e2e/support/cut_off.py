#!/usr/bin/env python3
"""cut_off.py write FILE NOTE: writes numbered records to FILE, each by one call, until a call fails; NOTE has the number of the last one then.

cut_off.py check FILE NOTE: that record is in FILE.
"""

import os
import struct
import sys

PLACES = 4096
BYTES = 4096


def main():
    how, path, note = sys.argv[1:4]
    if how == "write":
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        number = 0
        try:
            while True:
                os.pwrite(file, struct.pack("<Q", number + 1) * (BYTES // 8), number % PLACES * BYTES)
                number += 1
        except OSError as error:
            print(f"after {number} records: {error}")
        with open(note, "w", encoding="ascii") as told:
            told.write(str(number))
        return
    with open(note, encoding="ascii") as told:
        number = int(told.read())
    with open(path, "rb") as file:
        file.seek((number - 1) % PLACES * BYTES)
        found = struct.unpack(f"<{BYTES // 8}Q", file.read(BYTES))
    if set(found) != {number}:
        raise SystemExit(f"{path}: record {number} was acknowledged, and its place has {sorted(set(found))}")


if __name__ == "__main__":
    main()
