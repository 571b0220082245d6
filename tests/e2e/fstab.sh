#!/usr/bin/env bash
# mount -t fuse.weir, as /etc/fstab uses it, with options in FUSE's form; umount(8) at the end.
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
[ -x /sbin/mount.fuse ] || [ -x /sbin/mount.fuse3 ] || skip "no mount.fuse: run 'make setup'"
# mount(8) starts its helper with a fixed PATH: the type names the program.
mount -t fuse."$WEIR" -o rw,nosuid,nodev,allow_other,fetch=lazy,memory=32M "$SRC" "$MNT" \
    || mount -t fuse -o rw,nosuid,nodev,allow_other,fetch=lazy,memory=32M "$WEIR#$SRC" "$MNT" \
    || fail "mount -t fuse.weir"
grep " $MNT " /proc/self/mounts
grep -q " $MNT fuse.weir .*nosuid" /proc/self/mounts || fail "not shown as fuse.weir, nosuid"
grep -q " $MNT fuse.weir .*allow_other" /proc/self/mounts || fail "not shown with allow_other"
echo content >"$MNT/file"
as_user nobody cat "$MNT/file" >/dev/null || fail "allow_other is not in force"
expect_equal "memory" "$(status "$MNT" memory_bytes_max)" $((32 << 20))
umount "$MNT"
expect_home_soon "$SRC/file" content
mounts_again() { mount_again=$("$WEIR" mount "$SRC" "$MNT" 2>&1); }
soon mounts_again || true
is_mounted "$MNT" || fail "cannot be mounted again after umount(8): $mount_again"
umount_weir "$MNT"
counts "mounted by mount(8), unmounted by umount(8)"
