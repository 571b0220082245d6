#!/usr/bin/env bash
# The writer learns of a full disk: what write() accepted is home after the unmount, byte for byte.
# cases: append holes
source "${REPO:?}/tests/e2e/lib.sh"

need_root
need_filesystem ext4
case=$1
loop_filesystem "$WORK/image" 64M "$WORK/disk" mkfs.ext4 -q -m 0
mkdir "$WORK/disk/source"
mount_weir "$WORK/disk/source" "$MNT" --dirty-expire 2s
python3 "$SUPPORT/fill.py" "$case" "$MNT" "$WORK/model" || fail "see above"
if ! standin; then
    errors=$(status "$MNT" destage_errors)
    expect_equal "destages that failed" "$errors" 0
fi

step "room again"
python3 "$SUPPORT/fill.py" room "$MNT" "$WORK/model"
umount_weir "$MNT"
drop_caches
python3 "$SUPPORT/fill.py" verify "$WORK/disk/source" "$WORK/model" || fail "what was accepted is not all home"
umount "$WORK/disk"
fsck.ext4 -fn "$WORK/image" >/dev/null 2>&1 || fail "the disk's own file system is damaged"
