#!/usr/bin/env bash
# The daemon's memory under a random small-write load that is larger than its bound: resident never above
# --memory plus 48 MiB.
# serial
# all
source "${REPO:?}/tests/e2e/lib.sh"

need_root
seconds=20
if [ -n "$LONG" ]; then seconds=60; fi
limit=$(((64 + 48) * 1024))
pages=65536
python3 "$SUPPORT/patches.py" cold "$SRC/one" "$pages" 1
python3 "$SUPPORT/patches.py" cold "$SRC/two" "$pages" 2
drop_caches
mount_weir_foreground "$SRC" "$MNT" --memory 64M --patch-memory 16M
python3 "$SUPPORT/patches.py" load "$MNT/one" "$pages" 3 "$seconds" >"$WORK/first" &
first=$!
python3 "$SUPPORT/patches.py" load "$MNT/two" "$pages" 4 "$seconds" >"$WORK/second" &
second=$!
# Many files beside the two large ones: the memory kept for each file is bounded, too.
mkdir "$MNT/many"
for number in $(seq 2000); do echo "$number" >"$MNT/many/$number"; done
wait "$first" "$second"
peak=$(awk '/^VmHWM/ { print $2 }' "/proc/$WEIR_PID/status")
used=$(status "$MNT" memory_bytes)
[ "$used" -le $((64 << 20)) ] || fail "the engine counts $used bytes in use"
kill -TERM "$WEIR_PID"
wait "$WEIR_PID" || fail "the daemon ended with $?"
counts "$(($(cat "$WORK/first") + $(cat "$WORK/second"))) writes in $seconds s, at most $((peak / 1024)) MiB resident"
[ "$peak" -le "$limit" ] || fail "resident memory reached $peak KiB, above $limit KiB"
