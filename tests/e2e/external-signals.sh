#!/usr/bin/env bash
# Calls that the kernel lets no signal interrupt are interrupted by none in a session either, although most of them are stopped there: changes of
# names and attributes, writes to files, closing, locks that are not waited for, signals, and the ends of programs. While something is promised on another
# mount, those are stopped that the program makes by itself otherwise (promised).
# cases: calls promised ends
# all: calls promised
source "${REPO:?}/tests/e2e/lib.sh"
source "$SUPPORT/sessions.sh"

need_root
need_command cc
cc -O1 -o "$WORK/interrupted_calls" "$SUPPORT/interrupted_calls.c"
mount_weir "$SRC" "$MNT" "${COMMIT[@]}"
mkdir "$MNT/plain" "$MNT/session"

what=calls plain=$MNT/plain session=$MNT/session times=300
case ${1:?} in
calls) ;;
promised)
    mkdir "$WORK/other" "$WORK/at"
    "$WEIR" mount "$WORK/other" "$WORK/at" "${COMMIT[@]}"
    export PROMISED=$WORK/at/promised
    times=100
    ;;
ends) what=ends plain=/bin/true session=/bin/true times=600 ;;
esac

# Without a session the program's own sums are right.
timeout -s KILL 60 "$WORK/interrupted_calls" "$what" "$plain" 50 >"$WORK/plain"
expect_equal "calls that failed without a session" "$(cat "$WORK/plain")" ""
timeout -s KILL 120 "$WEIR" run --sync external -- "$WORK/interrupted_calls" "$what" "$session" "$times" >"$WORK/found"
expect_equal "calls that failed in a session" "$(cat "$WORK/found")" ""
if [ "$1" = promised ]; then "$WEIR" umount "$WORK/at"; fi
umount_weir "$MNT"
