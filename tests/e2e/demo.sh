#!/usr/bin/env bash
# `weir-bench demo`, scene by scene: it ends with its verdict, and leaves nothing behind. The session's scene is also killed in the
# middle: `weir-bench clean` removes what it left.
# cases: network session
# long-cases: cold
# all: network
# seconds: 15
source "${REPO:?}/tests/e2e/lib.sh"

weir_only
need_root
need_command sqlite3
[ -x "$BENCH" ] || skip "weir-bench is not built: run 'make checked'"

demo=("$BENCH" demo --weir "$WEIR" --dir "$WORK/demo" --scene "${1:?}")

# The scene says this once everything has been compared.
case $1 in
cold) verdict="every byte is" ;;
network)
    need_command sshfs
    verdict="The server has the same 200 files from both sides."
    ;;
session) verdict="are in the database, which has" ;;
esac
"${demo[@]}" >"$WORK/said" || { cat "$WORK/said"; fail "the demo failed"; }
grep -qF "$verdict" <(tr '\n' ' ' <"$WORK/said" | tr -s ' ') || { cat "$WORK/said"; fail "it does not say '$verdict'"; }
expect_equal "left by the demo" "$(ls -A "$WORK/demo")" ""

if [ "$1" = session ]; then
    "${demo[@]}" >"$WORK/said" 2>&1 &
    soon is_mounted "$WORK/demo/weir-bench-work/mount" || fail "the demo mounts nothing"
    kill -KILL $!
    wait $! || true
    "$BENCH" clean --dir "$WORK/demo"
    expect_equal "left of the killed demo" "$(ls -A "$WORK/demo")" ""
fi
