#!/usr/bin/env bash
# A disk that becomes full under programs that write by the lane: what a program was told of its writes, and synced, is there. The kernel, which does
# not know what was posted, sets a file's size after a write of its own that failed. A program's own ftruncate(2) after that is done.
# cases: run session
# all: session
# seconds: 10
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command mkfs.ext4

loop_filesystem "$WORK/home.image" 48M "$SRC" mkfs.ext4 -q -m 0
cat >"$WORK/fill.py" <<'PYTHON'
"""fill.py DIRECTORY append|at BYTES: writes a file until the disk is full, BYTES bytes at a time, by appends or at offsets. Prints the file's size at the end."""
import ctypes
import os
import sys

directory, way, piece = sys.argv[1], sys.argv[2], int(sys.argv[3])
path = f"{directory}/{way}-{piece}"
flags = os.O_RDWR | os.O_CREAT | (os.O_APPEND if way == "append" else 0)
fd = os.open(path, flags, 0o644)


def content(at, length):
    """Each eight bytes say where they are."""
    first = at // 8
    return b"".join(b"%08d" % number for number in range(first, first + length // 8 + 1))[at % 8 : at % 8 + length]


total = number = 0
if way == "append":
    # A write that is the kernel's for its length, and fails before it has sent anything.
    for _ in range(100):
        total += os.write(fd, content(total, 1000))
    os.fsync(fd)
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).write(fd, ctypes.c_void_p(4096), ctypes.c_size_t(300_000))
        os._exit(0)
    os.waitpid(child, 0)
    if os.stat(path).st_size != total:
        sys.exit(f"after a write from nowhere: {os.stat(path).st_size} of {total}")
while True:
    data = content(total, piece)
    try:
        done = os.write(fd, data) if way == "append" else os.pwrite(fd, data, total)
    except OSError as error:
        print(error.strerror, end=": ")
        break
    total += done
    number += 1
    if number % 64 == 0:
        os.fsync(fd)


def expect(what, size):
    found = (os.fstat(fd).st_size, os.stat(path).st_size)
    if found != (size, size):
        sys.exit(f"{what}: the sizes are {found}, of {size}")
    at = 0
    while at < size:
        data = os.pread(fd, min(1 << 20, size - at), at)
        if data != content(at, len(data)) or not data:
            sys.exit(f"{what}: other bytes at {at}")
        at += len(data)


expect("after a write that failed", total)
os.fsync(fd)
total //= 2
os.ftruncate(fd, total)
expect("after ftruncate", total)
# There is room again.
for _ in range(10):
    data = content(total, 1000)
    total += os.write(fd, data) if way == "append" else os.pwrite(fd, data, total)
expect("after more writes", total)
os.fsync(fd)
print(total)
PYTHON

options=(--dirty-expire 100ms --log "$WORK/log")
session=()
if [ "$1" = session ]; then
    options+=(--order all --log-size 64M)
    session=("$WEIR" run --sync external --)
fi
mount_weir "$SRC" "$MNT" "${options[@]}"
for piece in 4096 1000 3000000; do
    for way in append at; do
        said=$("${session[@]}" "$WEIR" run --report="$WORK/report.json" -- python3 "$WORK/fill.py" "$MNT" "$way" "$piece") || fail "$way, $piece bytes: $said"
        lane=$(python3 "$SUPPORT/field.py" total.lane.writes <"$WORK/report.json")
        counts "$way, $piece bytes: $said, $lane by the lane"
        [ "$piece" -gt 4096 ] || [ "$lane" -gt 1000 ] || fail "$lane writes went by the lane"
        [[ $said == "No space left on device: "* ]] || fail "it says: $said"
        "$WEIR" sync "$MNT"
        expect_equal "size at home" "$(stat -c %s "$SRC/$way-$piece")" "${said##*: }"
        rm "$MNT/$way-$piece"
        "$WEIR" sync "$MNT"
    done
done
umount_weir "$MNT"
umount_soon "$SRC"
