# shellcheck shell=bash disable=SC2034
# What tests of sessions (`weir run --sync external`) have in common. It is sourced after lib.sh.

LEAVING="$REPO/tests/e2e/support/leaving.py"
COMMIT=(--order all --commit 5m)

external() {
    timeout -s KILL 60 "$WEIR" run --sync external "$@"
}

# reported FILE FIELD: a number of the report in FILE.
reported() { python3 "$SUPPORT/field.py" "$2" <"$1"; }

# Looking into the mount would be noticed: who looks waits for what was promised.
no_sessions() { "$WEIR" status "$MNT" --json | python3 -c 'import json, sys; sys.exit(json.load(sys.stdin)["sessions"] != [])'; }

# A field of the session with the most promises on the mount, or on another one: sync(2) in any session of the machine makes that one a user of all mounts.
of_session() { "$WEIR" status "${2:-$MNT}" --json | python3 "$SUPPORT/session.py" field "$1" 2>/dev/null; }
promised() { [ "$(of_session promises || echo 0)" -ge 1 ]; }

kill_daemon() {
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    umount -l "$MNT"
}
