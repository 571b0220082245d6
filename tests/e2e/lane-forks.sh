#!/usr/bin/env bash
# A server that forks a worker for each client stays in the lane, though each opens the files anew; its user is let in
# by name.
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command setpriv python3
user=nobody
chmod 755 "$WORK"
chown "$user" "$SRC"
mkdir -p "$WORK/run-$user"
chown "$user" "$WORK/run-$user"

# What a report says of the total.
total() { python3 "$SUPPORT/field.py" "$@" <"$WORK/run-$user/report.json"; }
serve() { as_user "$user" "$WEIR" run --report="$WORK/run-$user/report.json" -- python3 "$SUPPORT/forks.py" "$MNT" 4 200; }

as_user "$user" python3 -c 'print("setting = value\n" * 40)' >"$SRC/settings"

step "a user who is not let in"
mount_weir "$SRC" "$MNT" --allow-other
serve
expect_equal "by the lane" "$(total total.lane.writes total.lane.reads)" "0 0"
[ "$(total total.kernel_writes_because.refused)" -gt 1000 ] || fail "the report does not say why"
umount_weir "$MNT"
rm "$SRC/data" "$SRC/journal"

step "a user who is let in"
mount_weir "$SRC" "$MNT" --allow-other --lane-users "daemon,$user"
serve
lane=$(total total.lane.writes)
kernel=$(total total.kernel.writes)
expect_equal "writes in all, and the one that made the file" $((lane + kernel)) $((4 * 200 * 2 + 1))
# All but what is written while a worker's thread takes a ring, or past what is reserved for a file that grows.
[ "$lane" -ge 1400 ] || fail "only $lane of 1600 writes went by the lane: $(cat "$WORK/run-$user/report.json")"
umount_weir "$MNT"

step "wrong users"
expect_failure "no user 'no-such-user'" "$WEIR" mount "$SRC" "$MNT" --allow-other --lane-users no-such-user
expect_failure "no user 'no-such-user'" "$WEIR" mount "$SRC" "$MNT" -o allow_other,lane_users=root:no-such-user
expect_failure "allow-other" "$WEIR" mount "$SRC" "$MNT" --lane-users "$user"
if is_mounted "$MNT"; then fail "mounted all the same"; fi
counts "$lane of 1600 writes by the lane"
