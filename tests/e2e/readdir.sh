#!/usr/bin/env bash
# Listing a directory that changes while it is read.
# sync
source "${REPO:?}/tests/e2e/lib.sh"

need_root
mount_weir "$SRC" "$MNT"
mkdir "$MNT/listed" "$MNT/large"
listed=$(python3 "$SUPPORT/listing.py" "$MNT/listed" 500 20)
step "a large one, removed while it is listed"
python3 - "$MNT/large" <<'END'
import os, sys
directory = sys.argv[1]
for number in range(20_000):
    os.mknod(f"{directory}/name-{number:06}-{'x' * (number % 100)}")
seen = 0
with os.scandir(directory) as entries:
    for entry in entries:
        seen += 1
        os.unlink(entry.path)
assert seen == 20_000, seen
assert os.listdir(directory) == [], len(os.listdir(directory))
os.rmdir(directory)
END
umount_weir "$MNT"
expect_equal "what is left" "$(find "$SRC" -mindepth 1 ! -path "$SRC/.weir*")" ""
counts "$((listed + 20000)) names"
