#!/usr/bin/env bash
# A server that forks workers stays in the lane, though each opens the files anew, before anybody put them into it.
# cases: user root
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command setpriv python3
user=$1
if [ "$user" = user ]; then user=nobody; fi
chmod 755 "$WORK"
chown "$user" "$SRC"
mkdir -p "$WORK/run-$user"
chown "$user" "$WORK/run-$user"

# What a report says of the total.
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
# All but what is written while others have not yet used theirs, or past what is reserved for a file that grows.
if [ "$1" = user ]; then
    [ "$lane" -ge 1200 ] || fail "only $lane of 1600 writes went by the lane: $(cat "$WORK/run-$user/report.json")"
fi

step "beside one that opens the files and does nothing with them"
serve idle

step "beside one that maps them"
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
