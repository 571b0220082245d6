#!/usr/bin/env bash
# Calls that the kernel lets no signal interrupt are interrupted by none in a session either, although most of them are stopped there: changes of
# names and attributes, writes to files, closing, locks that are not waited for, signals, and the ends of programs.
# cases: calls ends
# all: calls
source "${REPO:?}/tests/e2e/lib.sh"
source "$SUPPORT/sessions.sh"

need_root
need_command cc
cc -O1 -o "$WORK/interrupted_calls" "$SUPPORT/interrupted_calls.c"
mount_weir "$SRC" "$MNT" "${COMMIT[@]}"
mkdir "$MNT/plain" "$MNT/session"

# Without a session the program's own sums are right.
case ${1:?} in
calls) plain=$MNT/plain session=$MNT/session times=300 ;;
ends) plain=/bin/true session=/bin/true times=600 ;;
esac
timeout -s KILL 60 "$WORK/interrupted_calls" "$1" "$plain" 50 >"$WORK/plain"
expect_equal "calls that failed without a session" "$(cat "$WORK/plain")" ""
timeout -s KILL 120 "$WEIR" run --sync external -- "$WORK/interrupted_calls" "$1" "$session" "$times" >"$WORK/found"
expect_equal "calls that failed in a session" "$(cat "$WORK/found")" ""
umount_weir "$MNT"
