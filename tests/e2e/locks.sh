#!/usr/bin/env bash
# flock and record locks between processes.
source "${REPO:?}/tests/e2e/lib.sh"

need_root
mount_weir "$SRC" "$MNT"
checks=$(python3 "$SUPPORT/locks.py" "$MNT")
umount_weir "$MNT"
counts "$checks checks"
