#!/usr/bin/env bash
# Other users than the daemon's own: named users may use the lane; programs of others use the kernel, and their report says
# why.
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command setpriv python3
user=nobody
chmod 755 "$WORK"
chown "$user" "$SRC"
mkdir -p "$WORK/run-$user"
chown "$user" "$WORK/run-$user"

# Prints fields of the report's total.
total() { python3 "$SUPPORT/field.py" "$@" <"$WORK/run-$user/report.json"; }
cat >"$WORK/write.py" <<'END'
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
for line in range(1000):
    os.write(file, b"%08d\n" % line)
assert os.lseek(file, 0, os.SEEK_END) == 9000
assert os.pread(file, 9, 9 * 500) == b"%08d\n" % 500
END
write() {
    as_user "$user" "$WEIR" run --report="$WORK/run-$user/report.json" -- python3 "$WORK/write.py" "$MNT/$1"
    expect_equal "$1" "$(cksum <"$MNT/$1")" "$(seq -f %08g 0 999 | cksum)"
}

step "a user that is not named"
mount_weir "$SRC" "$MNT" --allow-other --lane-users daemon
write refused
expect_equal "by the lane" "$(total total.lane.writes total.lane.reads)" "0 0"
[ "$(total total.kernel_writes_because.refused)" -gt 900 ] || fail "the report does not say why"
umount_weir "$MNT"

step "a named user"
mount_weir "$SRC" "$MNT" -o "allow_other,lane_users=daemon:$user"
write named
posted=$(total total.lane.writes)
[ "$posted" -gt 900 ] || fail "only $posted of 1000 writes went by the lane"
# A file that the user may not open stays closed to a named user, too.
echo secret >"$MNT/secret"
chmod 600 "$MNT/secret"
expect_failure "ermission denied" as_user "$user" "$WEIR" run -- cat "$MNT/secret"
umount_weir "$MNT"
for name in refused named; do
    expect_equal "$name at home" "$(cksum <"$SRC/$name")" "$(seq -f %08g 0 999 | cksum)"
done

step "wrong users"
expect_failure "no user 'no-such-user'" "$WEIR" mount "$SRC" "$MNT" --allow-other --lane-users no-such-user
expect_failure "no user 'no-such-user'" "$WEIR" mount "$SRC" "$MNT" -o allow_other,lane_users=root:no-such-user
expect_failure "--allow-other" "$WEIR" mount "$SRC" "$MNT" --lane-users "$user"
if is_mounted "$MNT"; then fail "mounted all the same"; fi
counts "$posted of 1000 writes by the lane"
