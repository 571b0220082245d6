#!/usr/bin/env bash
# A power cut of an xfs on which names were removed and files made since its last sync: recovery makes files that get the inode
# numbers, and the generations, of files which xfs lost and the log names. What the log has of those does not go into them.
# cases: sync all
# all: all
# seconds: 7
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_filesystem xfs
files=100
start_disk none 2G xfs
mount "$DISK_DEVICE" "$SRC"
mkdir "$SRC/directory"
for number in $(seq "$files"); do mkdir "$SRC/directory/new-$number"; done
sync -f "$SRC"
# On the same disk each write of the log would bring home what is to be lost.
mount_weir_foreground "$SRC" "$MNT" --log "$WORK/log" --log-size 64M --order "$1"
python3 - "$MNT/directory" "$files" <<'PYTHON' || fail "the load ended"
import os, sys, time
directory, files = sys.argv[1], range(1, int(sys.argv[2]) + 1)
HOME_HAS_IT = 1.2   # seconds


def make(name, content):
    file = os.open(f"{directory}/{name}", os.O_CREAT | os.O_RDWR)
    os.write(file, content)
    os.fsync(file)
    os.close(file)


for number in files:
    os.rmdir(f"{directory}/new-{number}")
time.sleep(HOME_HAS_IT)
for number in files:
    make(f"old-{number}", b"what was removed\n" * 1000)
time.sleep(HOME_HAS_IT)
for number in files:
    os.unlink(f"{directory}/old-{number}")
for number in files:
    make(f"new-{number}", b"new %d\n" % number)
PYTHON
"$BENCH" disk cut --dir "$DISK" --seed 1 >/dev/null
mount_after_cut
"$WEIR" recover --log "$WORK/log" "$SRC"
lost=0
for number in $(seq "$files"); do
    if [ "$(cat "$SRC/directory/new-$number")" != "new $number" ]; then lost=$((lost + 1)); fi
done
[ "$lost" = 0 ] || fail "$lost of $files synced files have another content"
[ "$(find "$SRC/directory" -type f | wc -l)" = "$files" ] || fail "$(ls "$SRC/directory")"
umount "$SRC"
stop_disk
counts "$files files, with --order $1"
