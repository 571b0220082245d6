#!/usr/bin/env bash
# Programs under `weir run` killed with SIGKILL during their writes: acknowledged writes are there, and the programs'
# resources are released. Then the daemon is killed: no program hangs, and synced data is there. cut-off: programs that write are cut off by
# `weir umount --force` and by two signals: what was acknowledged until then is home.
# cases: programs daemon cut-off
# seconds: 50
# all: programs cut-off
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
"$WEIR" run --help >/dev/null 2>&1 || skip "this weir has no 'run'"
[ -x "$BENCH" ] || skip "weir-bench is not built: run 'make checked'"

is_detached() { ! is_mounted "$MNT"; }

case $1 in
    programs)
        kills=400
        if [ -n "$LONG" ]; then kills=10000; fi
        mount_weir "$SRC" "$MNT"
        seed=${SEED:-$$}
        echo "seed $seed"
        said=$(python3 "$SUPPORT/killed.py" writers "$WEIR" "$BENCH" "$MNT" "$kills" "$seed") || fail "seed $seed"
        soon status_is "$MNT" lane.files 0 || true
        expect_status "$MNT" lane.files 0
        through=$(hash_of_tree "$MNT")
        umount_weir "$MNT"
        drop_caches
        expect_equal "the files at home" "$(hash_of_tree "$SRC")" "$through"
        counts "$said"
        ;;
    daemon)
        rounds=3
        if [ -n "$LONG" ]; then rounds=30; fi
        for round in $(seq "$rounds"); do
            step "round $round"
            mount_weir_foreground "$SRC" "$MNT"
            said=$(python3 "$SUPPORT/killed.py" daemon "$WEIR" "$BENCH" "$MNT" "$WORK/notes" 1.5 "$WEIR_PID") ||
                fail "after kill -9 of the daemon"
            wait "$WEIR_PID" 2>/dev/null || true
            fusermount3 -uz "$MNT"
            mount_weir "$SRC" "$MNT"
            python3 "$SUPPORT/killed.py" check "$MNT" "$WORK/notes" || fail "what was synced is not there"
            umount_weir "$MNT"
            rm -f "$SRC"/lane* "$SRC"/fuse*
        done
        counts "$rounds rounds; $said"
        ;;
    cut-off)
        rounds=2
        if [ -n "$LONG" ]; then rounds=60; fi
        for round in $(seq "$rounds"); do
            mount_weir "$SRC" "$MNT" --memory 16M --patch-memory 1M
            daemon=$(status "$MNT" pid)
            writers=()
            for writer in 1 2 3 4; do
                rm -f "$WORK/note-$writer"
                "$WEIR" run -- python3 "$SUPPORT/cut_off.py" write "$MNT/$writer" "$WORK/note-$writer" &
                writers+=($!)
            done
            soon status_is "$MNT" lane.files 4 || fail "no writes by the lane"
            case $((round % 2)) in
                0) weir umount --force "$MNT" || fail "weir umount --force said $?" ;;
                1)
                    kill "$daemon"
                    soon is_detached || fail "it is mounted after SIGTERM"
                    kill "$daemon"
                    soon ended "$daemon" || fail "the daemon goes on after a second signal"
                    ;;
            esac
            wait "${writers[@]}" || fail "a writer ended with status $?"
            for writer in 1 2 3 4; do
                python3 "$SUPPORT/cut_off.py" check "$SRC/$writer" "$WORK/note-$writer" || fail "acknowledged writes are lost in round $round"
            done
            rm "$SRC"/[1-4]
        done
        counts "$rounds rounds"
        ;;
esac
