#!/usr/bin/env bash
# A disk that becomes full under programs that write by the lane: what a program was told of its writes, and synced, is there. The kernel, which does
# not know what was posted, sets a file's size after a write of its own that failed. A program's own ftruncate(2) after that is done.
# New files on a full disk: what was written before the disk said so is kept, and is there once there is room.
# cases: run session new
# all: session
# seconds: 10
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command mkfs.ext4

# Where less than 256 MiB are free, new files are made in SOURCE at once.
size=48M
if [ "$1" = new ]; then size=400M; fi
loop_filesystem "$WORK/home.image" "$size" "$SRC" mkfs.ext4 -q -m 0
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

if [ "$1" = new ]; then
    cat >"$WORK/new.py" <<'PYTHON'
"""new.py DIRECTORY make|check FILE: fills the disk, writes new files until it is told so, and notes how many records of each were taken."""
import errno
import json
import os
import sys
import time

directory, doing, notes = sys.argv[1:]


def record(number, at):
    return b"%04d-%04d" % (number, at) * 400


if doing == "make":
    taken = {}
    old = os.open(f"{directory}/old", os.O_RDWR)
    for at in range(20):
        os.pwrite(old, b"connected", at)
    # Weir asks once a second how much room there is, and makes no files that home does not have once it knows.
    os.close(os.open(f"{directory}/first", os.O_RDWR | os.O_CREAT))
    full = os.open(os.environ["FULL"], os.O_RDWR | os.O_CREAT)
    size, piece = 0, 32 << 20
    while piece >= 4096:
        try:
            os.posix_fallocate(full, size, piece)
            size += piece
        except OSError:
            piece //= 2
    for number in range(60):
        try:
            fd = os.open(f"{directory}/new-{number}", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        except OSError as error:
            # A second has passed.
            if error.errno != errno.ENOSPC:
                raise
            break
        taken[number] = 0
        for at in range(100):
            try:
                if number % 2:
                    os.lseek(fd, 0, os.SEEK_END)
                    os.write(fd, record(number, at))
                else:
                    os.pwrite(fd, record(number, at), at * 3600)
            except OSError:
                break
            taken[number] += 1
            # Home gets the file meanwhile.
            if at % 8 == 7:
                time.sleep(0.001)
        os.close(fd)
    json.dump(taken, open(notes, "w"))
    print(sum(taken.values()))
else:
    for number, count in json.load(open(notes)).items():
        with open(f"{directory}/new-{number}", "rb") as file:
            found = file.read()
        expected = b"".join(record(int(number), at) for at in range(count))
        if found != expected:
            sys.exit(f"new-{number}: {len(found)} bytes, or others, of {len(expected)}")
PYTHON
    head -c 65536 /dev/zero >"$SRC/old"
    for ((number = 0; number < 60; number++)); do : >"$SRC/room-for-names-$number"; done
    rm "$SRC"/room-for-names-*
    mount_weir "$SRC" "$MNT" --log "$WORK/log"
    taken=$(FULL=$SRC/full weir run --report="$WORK/report.json" -- python3 "$WORK/new.py" "$MNT" make "$WORK/notes") || fail "no file was made"
    rm "$SRC/full"
    "$WEIR" sync "$MNT" || "$WEIR" sync "$MNT"
    umount_weir "$MNT"
    python3 "$WORK/new.py" "$SRC" check "$WORK/notes" || fail "what was taken is not there"
    lane=$(python3 "$SUPPORT/field.py" total.lane.writes <"$WORK/report.json")
    umount_soon "$SRC"
    [ "$lane" -ge 100 ] || fail "$lane writes by the lane"
    [ "$taken" -ge 100 ] || fail "only $taken records were taken"
    counts "$taken records of 60 files were taken, $lane writes by the lane"
    exit
fi

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
