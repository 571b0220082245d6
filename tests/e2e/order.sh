#!/usr/bin/env bash
# `--order all`: a program that never syncs writes counters to several files in a fixed order, truncates and renames; after kill
# -9 and recovery all of it is as at one moment, not long before the kill. Where everything cannot be logged the mount is
# refused, and what the log has no records of is refused or done by reading and writing.
# cases: as-at-one-moment refused space
# seconds: 40
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only

PROGRAM="$REPO/tests/e2e/support/in_order.py"

kill_daemon() {
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    umount -l "$MNT"
}

# refused TEXT OPTION...: the mount fails, and says this.
refused() {
    local text=$1
    shift
    if "$WEIR" mount "$SRC" "$MNT" --order all "$@" >"$WORK/said" 2>&1; then
        fail "mounted with $*"
    fi
    grep -q -F -e "$text" "$WORK/said" || fail "$*: $(cat "$WORK/said")"
}

case "$1" in
as-at-one-moment)
    for seconds in 0.7 1.6 2.3 3.1; do
        rm -rf "${SRC:?}"/*
        mount_weir_foreground "$SRC" "$MNT" --order all --commit 500ms --log-size 16M --dirty-expire 100ms --memory 64M
        python3 "$PROGRAM" write "$MNT" "$WORK/progress" 2>/dev/null &
        program=$!
        sleep "$seconds"
        killed=$(date +%s.%N)
        kill_daemon
        kill "$program" 2>/dev/null || true
        wait "$program" 2>/dev/null || true
        "$WEIR" recover "$SRC" >"$WORK/said"
        ended=$(python3 "$PROGRAM" check "$SRC") || fail "after $seconds s: $ended"
        # A commit each half second, and two seconds for a slow machine.
        due=$(awk -v killed="$killed" '$2 < killed - 2.5 { round = $1 } END { print round + 0 }' "$WORK/progress")
        [ "$ended" -ge "$due" ] || fail "after $seconds s round $ended was found, and $due was long over"
    done
    ;;
refused)
    refused "leave out --log none" --log none
    refused "give --names log" --names sync
    refused "give --names log" --names behind
    refused "at least 16 MiB" --log-size 1M
    refused "unknown order" -o order=some
    ;;
space)
    mount_weir_foreground "$SRC" "$MNT" --order all --commit 100ms
    head -c 20000 /dev/urandom >"$MNT/file"
    if fallocate -p -o 0 -l 4096 "$MNT/file" 2>/dev/null; then
        fail "a hole was punched that the log does not have"
    fi
    cp "$MNT/file" "$WORK/file"
    fallocate -l 30000 "$MNT/file"
    [ "$(stat -c %s "$MNT/file")" = 30000 ] || fail "fallocate: $(stat "$MNT/file")"
    truncate -s 25000 "$MNT/file"
    cp --reflink=never "$MNT/file" "$MNT/copy"
    truncate -s 25000 "$WORK/file"
    soon cmp -s "$WORK/file" "$MNT/copy"
    sync "$MNT/copy"
    kill_daemon
    "$WEIR" recover "$SRC" >"$WORK/said"
    cmp "$WORK/file" "$SRC/file" || fail "the file is not as it was"
    cmp "$WORK/file" "$SRC/copy" || fail "the copy is not as it was"
    ;;
esac
