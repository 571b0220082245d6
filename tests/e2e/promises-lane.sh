#!/usr/bin/env bash
# Promises of the lane about access by other users and about PID namespaces, and about symbol lookups and
# allocations at run time.
# cases: a-worker-of-another-user-has-no-lane-memory every-call-that-changes-credentials-leaves-the-lane threads-use-the-kernel-after-one-changes-the-user rings-of-another-pid-namespace-are-not-taken-over no-symbol-is-looked-up-once-a-program-runs the-first-write-of-a-thread-allocates-nothing
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command python3
chmod 755 "$WORK"
mount_weir "$SRC" "$MNT" --allow-other --memory 64M
mkdir "$WORK/out"

# Prints fields of the report.
total() { python3 "$SUPPORT/field.py" "$@" <"$WORK/report.json"; }
under_run() { "$WEIR" run --report="$WORK/report.json" -- python3 "$SUPPORT/credentials.py" "$@"; }

# A file that only root may read: a secret, repeated over many pages.
secret=$(head -c 24 /dev/urandom | base64)
python3 -c 'import sys; sys.stdout.write((sys.argv[1] * 8192)[:262144])' "$secret" >"$SRC/secret"
chmod 600 "$SRC/secret"
: >"$SRC/anybody"
chmod 666 "$SRC/anybody"

case $1 in
    a-worker-*)
        under_run worker "$MNT" "$WORK/out" &
        server=$!
        at_work() { filled "$WORK/out/worker" || ended "$server"; }
        soon at_work || fail "the worker does not begin"
        filled "$WORK/out/worker" || fail "the server ended too early"
        step "the worker's memory"
        python3 "$SUPPORT/memory_of.py" "$(cat "$WORK/out/worker")" "$secret" || found=1
        echo done >"$WORK/out/looked"
        wait $server || fail "the server or its worker failed"
        [ -z "${found:-}" ] || fail "the worker may not open the file, but has its content in memory"
        [ "$(total total.lane.reads)" -ge 20 ] || fail "the server did not read by the lane: $(cat "$WORK/report.json")"
        expect_equal "what the worker and its server wrote" "$(cksum <"$MNT/anybody")" \
            "$(python3 -c 'print("server" * 20 + "worker" * 20, end="")' | cksum)"
        counts "$(total total.lane.reads) reads by the lane before"
        ;;
    every-call-*)
        under_run calls "$MNT" "$WORK/out"
        counts "$(cat "$WORK/out/calls") calls"
        ;;
    threads-*)
        under_run threads "$MNT" "$WORK/out"
        [ "$(total total.lane.writes)" -gt 100 ] || fail "nothing was written by the lane: $(cat "$WORK/report.json")"
        ;;
    rings-*)
        need_command cc
        cc -O2 -Wall -Werror -pthread -o "$WORK/namespaces" "$SUPPORT/namespaces.c"
        head -c $((200 * 4096)) /dev/zero >"$SRC/both"
        "$WEIR" run --report="$WORK/report.json" -- "$WORK/namespaces" "$MNT/both" || fail "see above"
        [ "$(total total.lane.writes)" -ge 1000 ] || fail "the parent is not in the lane: $(cat "$WORK/report.json")"
        # All of the child's writes go by the kernel: each ring has a living owner.
        [ "$(total total.kernel_writes_because.no_ring)" -ge 2000 ] ||
            fail "the child took over a ring of a living thread: $(cat "$WORK/report.json")"
        expect_equal "clients cut off" "$(status "$MNT" lane.refused)" 0
        umount_weir "$MNT"
        "$WORK/namespaces" "$SRC/both" look || fail "home has other bytes than were written"
        exit
        ;;
    no-symbol-* | the-first-write-*)
        need_command cc
        cc -O2 -Wall -Werror -pthread -o "$WORK/first_post" "$SUPPORT/first_post.c"
        head -c 65536 /dev/zero >"$SRC/file"
        "$WEIR" run --report="$WORK/report.json" -- \
            env LD_DEBUG=symbols LD_DEBUG_OUTPUT="$WORK/out/ld" LD_BIND_NOW=1 "$WORK/first_post" "$MNT/file" >"$WORK/allocated" ||
            fail "see above"
        [ "$(total total.lane.writes)" -ge 10 ] || fail "nothing was written by the lane: $(cat "$WORK/report.json")"
        case $1 in
            no-*)
                sed -n '/transferring control/,$p' "$WORK"/out/ld.* >"$WORK/after"
                [ -s "$WORK/after" ] || fail "the loader's log does not say when the program begins"
                if grep -o 'symbol=[a-z0-9_]*' "$WORK/after" | sort -u >"$WORK/late"; then
                    fail "looked up while the program runs: $(tr '\n' ' ' <"$WORK/late")"
                fi
                ;;
            the-*) expect_equal "allocations" "$(cat "$WORK/allocated")" 0 ;;
        esac
        ;;
esac
umount_weir "$MNT"
