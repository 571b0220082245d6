#!/usr/bin/env bash
# Power cuts of an emulated disk under a mount with a redo log: after each the file system is mounted again, the log replayed,
# and every record that was synced is there.
# cases: ext4 xfs
# all: xfs
# seconds: 35
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_filesystem "$1"
cuts=6
if [ -n "$LONG" ]; then cuts=24; fi
start_disk none 512M "$1"
total=0
for cut in $(seq "$cuts"); do
    mount "$DISK_DEVICE" "$SRC"
    rm -rf "$WORK/acked"
    rm -f "$SRC"/records-*
    # Every other log is laid out for a rotational disk, with its groups in rows.
    turns=$((cut % 2))
    echo "$turns" >"/sys/block/${DISK_DEVICE#/dev/}/queue/rotational"
    size=2M rows=one
    if [ "$turns" = 1 ]; then size=20M rows="rows of"; fi
    mount_weir_foreground "$SRC" "$MNT" --log source --log-size "$size" --dirty-expire 200ms
    "$WEIR" log "$SRC" | grep -q "$rows" || fail "weir log: $("$WEIR" log "$SRC" | head -4)"
    python3 "$SUPPORT/records.py" write "$MNT" "$WORK/acked" 3 60 >"$WORK/load" &
    load=$!
    sleep "0.$((cut * 7 % 9 + 3))"
    "$BENCH" disk cut --dir "$DISK" --seed "$cut" >/dev/null
    wait "$load" || fail "the load: $(cat "$WORK/load")"
    mount_after_cut
    mount_weir "$SRC" "$MNT" --log source
    synced=$(python3 "$SUPPORT/records.py" check "$MNT" "$WORK/acked") || fail "cut $cut: $synced"
    umount_weir "$MNT"
    umount "$SRC"
    total=$((total + ${synced%% *}))
done
stop_disk
counts "$cuts power cuts on $1, $total synced records, 0 lost"
