#!/usr/bin/env bash
# SIGTERM and SIGINT write everything home, unmount and end with status 0.
# cases: TERM INT
source "${REPO:?}/tests/e2e/lib.sh"

need_root
python3 "$SUPPORT/patches.py" cold "$SRC/file" 4096 1
mount_weir_foreground "$SRC" "$MNT" --fetch lazy
writes=$(python3 "$SUPPORT/patches.py" write "$MNT/file" 4096 2)
expect_status "$MNT" dirty_pages "$writes"
kill -"$1" "$WEIR_PID"
status=0
wait "$WEIR_PID" || status=$?
expect_equal "the daemon's exit status" "$status" 0
if is_mounted "$MNT"; then fail "still mounted"; fi
python3 "$SUPPORT/patches.py" verify "$SRC/file" 4096 1 2
counts "$writes writes home"
