#!/usr/bin/env bash
# A server that forks workers stays in the lane, although each worker opens the files before any of them entered it. A worker
# whose lease was revoked regains it when the other programs are gone.
# cases: user root turns
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command setpriv python3
if [ "$1" = turns ]; then
    mount_weir "$SRC" "$MNT"
    "$WEIR" run --report="$WORK/report.json" -- python3 "$SUPPORT/turns.py" "$MNT" 8
    lane=$(python3 "$SUPPORT/field.py" total.lane.writes <"$WORK/report.json")
    # Of 9,527: the lease is regained when the others are gone, later each time. Without regaining there are 623.
    [ "$lane" -ge 2000 ] || fail "only $lane writes went by the lane: $(cat "$WORK/report.json")"
    umount_weir "$MNT"
    counts "$lane writes by the lane, beside 8 others"
    exit
fi
user=$1
if [ "$user" = user ]; then user=nobody; fi
chmod 755 "$WORK"
chown "$user" "$SRC"
mkdir -p "$WORK/run-$user"
chown "$user" "$WORK/run-$user"

# Prints fields of the report's total.
total() { python3 "$SUPPORT/field.py" "$@" <"$WORK/run-$user/report.json"; }
# serve [BESIDE]: four workers, 200 rounds of two writes.
serve() {
    as_user "$user" "$WEIR" run --report="$WORK/run-$user/report.json" -- python3 "$SUPPORT/forks.py" "$MNT" 4 200 "$@"
    lane=$(total total.lane.writes)
    expect_equal "writes in all" $((lane + $(total total.kernel.writes))) $((4 * 200 * 2 + 1))
    rm "$MNT/data" "$MNT/journal"
}

as_user "$user" python3 -c 'print("setting = value\n" * 40)' >"$SRC/settings"
mount_weir "$SRC" "$MNT" --allow-other --lane-users "daemon,$user"

step "workers alone"
serve
posted=$lane
# All writes but those made before the other workers used their files, and those past the reservation of a growing file.
if [ "$1" = user ]; then
    [ "$lane" -ge 1000 ] || fail "only $lane of 1600 writes went by the lane: $(cat "$WORK/run-$user/report.json")"
fi

step "beside a process that has the files open without using them"
serve idle

step "beside a process that maps the files"
serve mapped

if [ "$1" = root ]; then
    step "what root forks may become another user's, who sees nothing of the lane"
    cat >"$WORK/drop.py" <<'END'
import os, sys
with open(sys.argv[1], "rb", buffering=0) as settings:
    settings.read(16)
if os.fork() == 0:
    os.setuid(65534)
    with open("/proc/self/maps") as maps:
        os._exit("memfd:weir" in maps.read())
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
END
    "$WEIR" run -- python3 "$WORK/drop.py" "$MNT/settings" || fail "another user has the lane's memory"
fi

umount_weir "$MNT"
counts "$posted of 1600 writes by the lane"
