#!/usr/bin/env bash
# Hostile clients of the lane: garbage in the shared memory, writes posted without ringing the doorbell, endless
# descriptors, another user, invented messages. Meanwhile other programs on the same mount see correct data.
# cases: garbage silent sockets uid chatter forbidden
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
"$WEIR" run --help >/dev/null 2>&1 || skip "this weir has no 'run'"
[ -x "$BENCH" ] || skip "weir-bench is not built: run 'make checked'"
seconds=6
steps=3000
if [ -n "$LONG" ]; then
    seconds=60
    steps=30000
fi

mount_weir "$SRC" "$MNT"
adversary() { "$BENCH" trial adversary "$1" "$MNT/adversary-$1" --seconds "$seconds" --seed "${SEED:-7}"; }
pid=$(status "$MNT" pid)
adversary "$1" >"$WORK/adversary" 2>&1 &
running=$!
if [ "$1" = silent ]; then
    soon grep -q '^posted ' "$WORK/adversary" || true
    posted=$(sed -n 's/^posted //p' "$WORK/adversary")
    [ "${posted:-0}" -gt 100000 ] || fail "only ${posted:-nothing} was posted: $(cat "$WORK/adversary")"
    # The next request sees it, although the doorbell was not rung.
    expect_equal "bytes that are not what was posted" "$(head -c "$posted" "$MNT/adversary-silent" | tr -d U | wc -c)" 0
fi
mkdir "$MNT/others"
operations=$(python3 "$SUPPORT/fronts.py" "$MNT/others" 11 "$steps" "$WEIR") || fail "others beside it"
wait "$running" || fail "$(cat "$WORK/adversary")"
expect_status "$MNT" pid "$pid"
soon status_is "$MNT" lane.clients 0 || true
expect_status "$MNT" lane.clients 0
if grep -i panicked "$DAEMON_LOG"; then fail "the daemon panicked"; fi
through=$(hash_of_tree "$MNT")
umount_weir "$MNT"
drop_caches
expect_equal "the files at home" "$(hash_of_tree "$SRC")" "$through"
counts "$(tail -1 "$WORK/adversary") doings, $operations operations beside them"
