#!/usr/bin/env bash
# Programs under `weir run` killed with SIGKILL during their writes: acknowledged writes are there, and the programs'
# resources are released. Then the daemon is killed: no program hangs, and synced data is there.
# cases: programs daemon
# seconds: 50
# all: programs
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
"$WEIR" run --help >/dev/null 2>&1 || skip "this weir has no 'run'"
[ -x "$BENCH" ] || skip "weir-bench is not built: run 'make checked'"

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
esac
