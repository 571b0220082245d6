#!/usr/bin/env bash
# kill -9 of the daemon: programs get errors instead of hanging, files in SOURCE are ordinary files with all that was
# synced once the redo log is recovered, and the same SOURCE can be mounted on the same place again.
source "${REPO:?}/tests/e2e/lib.sh"

need_root
need_command fusermount3
pages=4096
python3 "$SUPPORT/patches.py" cold "$SRC/synced" "$pages" 1
python3 "$SUPPORT/patches.py" cold "$SRC/busy" "$pages" 1
mount_weir_foreground "$SRC" "$MNT"
python3 "$SUPPORT/patches.py" write "$MNT/synced" "$pages" 2 --fsync >/dev/null
python3 "$SUPPORT/patches.py" load "$MNT/busy" "$pages" 3 60 >/dev/null 2>"$WORK/load" &
load=$!
# In the middle of it.
soon status_passes "$MNT" stats.writes 5000 || fail "the load does not get on"
kill -9 "$WEIR_PID"
wait "$WEIR_PID" 2>/dev/null || true

step "programs get errors"
soon ended "$load" || { kill -9 "$load"; fail "a writer hangs after the daemon died"; }
if wait "$load"; then fail "a writer noticed nothing"; fi
expect_failure "" timeout 10 stat "$MNT/synced"

step "SOURCE"
"$WEIR" recover "$SRC" >"$WORK/recovered" || fail "weir recover: $(cat "$WORK/recovered")"
python3 "$SUPPORT/patches.py" verify "$SRC/synced" "$pages" 1 2
expect_equal "size of the other file" "$(stat -c %s "$SRC/busy")" "$((pages * 4096))"
echo ordinary >>"$SRC/busy"
truncate -s "$((pages * 4096))" "$SRC/busy"

step "mounted again"
fusermount3 -uz "$MNT"
if is_mounted "$MNT"; then fail "the dead mount is still there"; fi
mount_weir "$SRC" "$MNT"
python3 "$SUPPORT/patches.py" verify "$MNT/synced" "$pages" 1 2
python3 "$SUPPORT/patches.py" write "$MNT/synced" "$pages" 2 >/dev/null
umount_weir "$MNT"
python3 "$SUPPORT/patches.py" verify "$SRC/synced" "$pages" 1 2
step "another mount at the same place"
# The guard of the killed daemon runs late: the mount with that place and number is another one by then.
mount_weir_foreground "$SRC" "$MNT"
guard=$(pgrep -P "$WEIR_PID" -x weir-guard)
device=$(stat -c %d "$MNT")
kill -STOP "$guard"
kill -9 "$WEIR_PID"
wait "$WEIR_PID" 2>/dev/null || true
umount -l "$MNT"
mount_weir "$SRC" "$MNT"
# Another test may have got the number.
for _ in {1..10}; do
    [ "$(stat -c %d "$MNT")" != "$device" ] || break
    umount_weir "$MNT"
    mount_weir "$SRC" "$MNT"
done
kill -CONT "$guard"
soon ended "$guard" || fail "the guard does not end"
python3 "$SUPPORT/patches.py" verify "$MNT/synced" "$pages" 1 2
umount_weir "$MNT"
counts "1000 synced writes kept"
