#!/usr/bin/env bash
# FUSE over io_uring: used without being asked for where it is turned on, suggested where it is off, and not used on demand;
# no program waits for a killed daemon; many writers and readers on all CPUs see what they wrote.
# serial
source "${REPO:?}/tests/e2e/lib.sh"

weir_only
need_root
need_command fusermount3
SETTING=/sys/module/fuse/parameters/enable_uring
[ -w "$SETTING" ] || skip "this kernel has no FUSE over io_uring"
before=$(cat "$SETTING")
restore() {
    echo "$before" >"$SETTING"
}
trap 'restore; at_exit' EXIT

# The transport of the mount, from both forms of its status.
expect_transport() {
    local name=$1 words=$2
    "$WEIR" status "$MNT" --json | grep -q "\"transport\": *\"$name\"" || fail "status --json does not say $name"
    "$WEIR" status "$MNT" | grep -qF "$words" || fail "status does not say $words"
}

step "turned off"
echo 0 >"$SETTING"
mount_weir "$SRC" "$MNT" 2>"$WORK/said"
grep -qF "echo 1 > $SETTING" "$WORK/said" || fail "weir mount does not say how to turn it on: $(cat "$WORK/said")"
expect_equal "lines said" "$(wc -l <"$WORK/said")" 1
expect_equal "the setting after a mount" "$(cat "$SETTING")" N
expect_transport device "FUSE over /dev/fuse"
umount_weir "$MNT"
mount_weir "$SRC" "$MNT" --transport device 2>"$WORK/said"
expect_equal "said when the device is asked for" "$(cat "$WORK/said")" ""
umount_weir "$MNT"
expect_failure "echo 1 > $SETTING" "$WEIR" mount "$SRC" "$MNT" --transport io-uring
if is_mounted "$MNT"; then fail "mounted over what was refused"; fi

step "turned on"
echo 1 >"$SETTING"
mount_weir "$SRC" "$MNT" --memory 64M 2>"$WORK/said"
expect_equal "said when it is on" "$(cat "$WORK/said")" ""
expect_transport io-uring "FUSE over io_uring"
restore
for writer in 1 2 3 4 5 6 7 8; do
    dd if=/dev/urandom of="$WORK/random-$writer" bs=1M count=6 status=none
    { cp "$WORK/random-$writer" "$MNT/copy-$writer" && cmp "$WORK/random-$writer" "$MNT/copy-$writer"; } &
done
for _ in 1 2 3 4 5 6 7 8; do wait -n || fail "a copy differs"; done
mkdir "$MNT/names"
for number in $(seq 500); do echo "$number" >"$MNT/names/file-$number"; done
expect_equal "names listed" "$(find "$MNT/names" -type f | wc -l)" 500
mkdir "$MNT/steady"
python3 "$SUPPORT/steady.py" "$MNT/steady" 2 "$$" --sync "$WEIR" "$MNT" || fail "a listing, with seed $$"
umount_weir "$MNT"
for writer in 1 2 3 4 5 6 7 8; do cmp "$WORK/random-$writer" "$SRC/copy-$writer"; done

step "the device on demand"
echo 1 >"$SETTING"
mount_weir "$SRC" "$MNT" -o transport=device
expect_transport device "FUSE over /dev/fuse"
umount_weir "$MNT"

step "killed"
mount_weir_foreground "$SRC" "$MNT"
# The mount exists before it is served.
stat "$MNT" >/dev/null
expect_transport io-uring "FUSE over io_uring"
restore
dd if=/dev/zero of="$MNT/busy" bs=512 count=100M status=none 2>"$WORK/load" &
load=$!
soon status_passes "$MNT" stats.writes 2000 || fail "the load does not get on"
kill -9 "$WEIR_PID"
wait "$WEIR_PID" 2>/dev/null || true
soon ended "$load" || { kill -9 "$load"; fail "a writer hangs after the daemon died"; }
if wait "$load"; then fail "a writer noticed nothing"; fi
expect_failure "" timeout 10 stat "$MNT/busy"
fusermount3 -uz "$MNT"
counts "both transports, 8 copies, 500 names"
