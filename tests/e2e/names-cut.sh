#!/usr/bin/env bash
# Power cuts of an emulated disk: what is changed of a directory or file in SOURCE at once, without the log (extended attributes,
# ACLs, modes with `--names sync`), is durable when an fsync(2) of it returns. Files have data in the log alone, which their
# syncs need not bring home. That an fdatasync(2) comes before the fsync(2) changes nothing.
# cases: xattr removed-xattr access-acl default-acl file-xattr file-access-acl sync-file-mode data-file-xattr data-file-access-acl data-sync-file-mode
# seconds: 6
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command setfattr getfattr setfacl getfacl
# With fewer inodes than this has, names would wait for SOURCE.
start_disk none 2G ext4
mount "$DISK_DEVICE" "$SRC"
names=log changed=directory
change=${1#data-}
change=${change#sync-}
case $1 in
*file-*) changed=directory/file ;;
esac
case $1 in
*sync-*) names=sync ;;
esac
mount_weir_foreground "$SRC" "$MNT" --names "$names" --dirty-expire 1h
mkdir "$MNT/directory"
setfattr -n user.old -v old "$MNT/directory"
: >"$MNT/directory/file"
"$WEIR" sync "$MNT"
# The tree knows the directory.
touch "$MNT/directory/another"
sync "$MNT/directory"
exec 7>>"$MNT/directory/file"
echo content >&7
sync "$MNT/directory/file"
echo more >&7
sync -d "$MNT/directory/file"

at=$MNT/$changed
case "$change" in
xattr | file-xattr) setfattr -n user.new -v new "$at" ;;
removed-xattr) setfattr -x user.old "$at" ;;
access-acl | file-access-acl) setfacl -m u:1001:rwx "$at" ;;
default-acl) setfacl -d -m u:1001:rwx "$at" ;;
file-mode) chmod 4711 "$at" ;;
esac
case $1 in
data-*) sync -d "$at" ;;
esac
sync "$at"
"$BENCH" disk cut --dir "$DISK" --seed 1 >/dev/null
kill -9 "$WEIR_PID"
wait "$WEIR_PID" 2>/dev/null || true
exec 7>&-
umount -l "$MNT"
umount_soon "$SRC"
soon absent "/sys/fs/ext4/${DISK_DEVICE#/dev/}" || fail "ext4 stays after umount"
"$BENCH" disk restore --dir "$DISK"
mount "$DISK_DEVICE" "$SRC"
"$WEIR" recover "$SRC"

at=$SRC/$changed
attributes=$(getfattr -d --absolute-names "$at")
acl=$(getfacl -p -c "$at")
case "$change" in
xattr | file-xattr) [[ $attributes = *user.new=* ]] || fail "it is lost: $attributes" ;;
removed-xattr) [[ $attributes != *user.old=* ]] || fail "it is there again: $attributes" ;;
access-acl | file-access-acl) [[ $acl = *user:1001:rwx* ]] || fail "it is lost: $acl" ;;
default-acl) [[ $acl = *default:user:1001:rwx* ]] || fail "it is lost: $acl" ;;
file-mode) expect_equal mode "$(stat -c %a "$at")" 4711 ;;
esac
expect_equal data "$(cat "$SRC/directory/file")" "content"$'\n'more
umount "$SRC"
stop_disk
