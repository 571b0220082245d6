#!/usr/bin/env bash
# The door of a session (`weir run --sync external`): calls that nobody outside can notice are made by the library without being stopped. They have the
# results of a run without a session, errors and signals too, also when a mount comes or goes, and what stdio has buffered is whole and in order.
# cases: calls results remount streams
source "${REPO:?}/tests/e2e/lib.sh"
source "$SUPPORT/sessions.sh"

need_root
weir_only

case ${1:?} in
calls)
    # What nobody outside can notice is not stopped; without the library it is, and the result is the same.
    mount_weir "$SRC" "$MNT" "${COMMIT[@]}"
    mkdir "$MNT/d"
    external --report="$WORK/report.json" -- python3 "$LEAVING" by-door "$MNT/d"
    stopped=$(reported "$WORK/report.json" stopped_calls)
    [ "$stopped" -lt 500 ] || fail "$stopped calls of 8000 were stopped"
    expect_equal "promises" "$(reported "$WORK/report.json" promises)" 1000
    expect_equal "content" "$(cat "$MNT/d/file")" 00000000000000000999
    expect_equal "names" "$(ls "$MNT/d")" file
    external --report="$WORK/report.json" -- env -u LD_PRELOAD python3 "$LEAVING" by-door "$MNT/d"
    [ "$(reported "$WORK/report.json" stopped_calls)" -ge 7000 ] || fail "calls by a program without the library were not stopped: $(cat "$WORK/report.json")"
    expect_equal "promises without the library" "$(reported "$WORK/report.json" promises)" 1000
    # A server's syncs are commits: a promise would only have all others wait.
    external --report="$WORK/report.json" -- python3 "$LEAVING" answer "$MNT/file" | cat >"$WORK/said"
    expect_equal "answers" "$(wc -l <"$WORK/said")" 100
    [ "$(reported "$WORK/report.json" promises)" -le 10 ] || fail "a server's syncs are promises: $(cat "$WORK/report.json")"
    [ "$(reported "$WORK/report.json" syncs_committed)" -ge 90 ] || fail "its syncs are not counted: $(cat "$WORK/report.json")"
    umount_weir "$MNT"
    ;;
results)
    need_command cc
    mount_weir "$SRC" "$MNT" "${COMMIT[@]}"
    mkdir "$MNT/d"
    python3 "$SUPPORT/door_results.py" "$MNT/d/file" promised >"$WORK/without"
    for promised in promised not; do
        rm "$MNT/d"/*
        external -- python3 "$SUPPORT/door_results.py" "$MNT/d/file" "$promised" >"$WORK/within"
        diff "$WORK/without" "$WORK/within" || fail "results with $promised"
    done
    python3 "$SUPPORT/sends.py" outside "$MNT/d" python3 >"$WORK/without"
    timeout -s KILL 60 python3 "$SUPPORT/sends.py" outside "$MNT/d" "$WEIR" run --sync external -- python3 >"$WORK/within"
    diff "$WORK/without" "$WORK/within" || fail "results of sendfile"
    cc -o "$WORK/cancelled" "$SUPPORT/cancelled.c" -pthread
    external -- "$WORK/cancelled" "$MNT/d" 2>"$WORK/said" || fail "a thread is not cancelled after: $(cat "$WORK/said")"
    umount_weir "$MNT"
    ;;
remount)
    # A mount that is another one by now, at the same place and with the same number: what is promised there is its daemon's.
    mount_weir "$SRC" "$MNT" "${COMMIT[@]}"
    external -- python3 -c '
import os, sys, time
def put(text):
    fd = os.open(sys.argv[1] + "/file", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, text, 0)
    os.fsync(fd)
    os.close(fd)
put(b"before")
while not os.path.exists(sys.argv[2] + "/again"):
    time.sleep(0.05)
put(b"behind")
while not os.path.exists(sys.argv[2] + "/go"):
    time.sleep(0.05)
' "$MNT" "$WORK" &
    runner=$!
    soon promised || fail "nothing was promised"
    umount_weir "$MNT"
    mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}"
    touch "$WORK/again"
    soon promised || fail "nothing was promised after the mount"
    # Whoever looks waits.
    expect_equal "content" "$(cat "$MNT/file")" behind
    touch "$WORK/go"
    status=0
    wait "$runner" || status=$?
    expect_equal "status" "$status" 0
    kill_daemon
    "$WEIR" recover "$SRC" >"$WORK/recovered"
    expect_equal "what was seen" "$(cat "$SRC/file")" behind
    ;;
streams)
    # What the C library's streams have for pipes and sockets: the same as without a session, and nobody is stopped for each flush.
    need_command cc
    mount_weir "$SRC" "$MNT" "${COMMIT[@]}"
    cc -o "$WORK/streams" "$SUPPORT/streams.c" -pthread
    "$WORK/streams" results "$SRC/other" promised >"$WORK/without"
    for promised in promised not; do
        external -- "$WORK/streams" results "$MNT/file" "$promised" >"$WORK/within"
        diff "$WORK/without" "$WORK/within" || fail "results with $promised"
    done
    external --report="$WORK/report.json" -- "$WORK/streams" lines "$MNT/file" 500
    stopped=$(reported "$WORK/report.json" stopped_calls)
    [ "$stopped" -lt 100 ] || fail "$stopped calls were stopped for 1,000 flushes of pipes inside"
    # What the C library opens and closes by itself, outside of the mount.
    echo line >"$WORK/elsewhere"
    external --report="$WORK/report.json" -- "$WORK/streams" closes "$MNT/file" "$WORK/elsewhere" 500
    closed=$(reported "$WORK/report.json" stopped_calls)
    [ "$closed" -lt 100 ] || fail "$closed calls were stopped for 1,000 closes by the C library"
    counts "$stopped stopped calls for 1,000 flushes, $closed for 1,000 closes"
    # Somebody outside notices such a close: what was promised before is durable first.
    committed() { [ "$(of_session commits.for_output || echo 0)" -ge 1 ]; }
    for kind in lock queue namespace removed; do
        for by in "env" "env -u LD_PRELOAD"; do
            echo line >"$WORK/elsewhere"
            # shellcheck disable=SC2086
            external -- $by "$WORK/streams" noticed "$MNT/file" "$WORK/elsewhere" "$kind" &
            runner=$!
            soon committed || fail "$kind, $by: closed before the promise was durable"
            pkill -f "streams noticed $MNT/file"
            wait "$runner" || true
            soon no_sessions || fail "the session does not end"
        done
    done
    umount_weir "$MNT"
    ;;
esac
