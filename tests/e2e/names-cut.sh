#!/usr/bin/env bash
# `--names log` and power cuts of an emulated disk: what is changed of a directory in SOURCE at once (extended attributes, ACLs)
# is durable when an fsync(2) of the directory returns.
# cases: xattr removed-xattr access-acl default-acl
# seconds: 6
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command setfattr getfattr setfacl getfacl
# With fewer inodes than this has, names would wait for SOURCE.
start_disk none 2G ext4
mount "$DISK_DEVICE" "$SRC"
mount_weir_foreground "$SRC" "$MNT" --names log --dirty-expire 1h
mkdir "$MNT/directory"
setfattr -n user.old -v old "$MNT/directory"
"$WEIR" sync "$MNT"
# The tree knows it.
touch "$MNT/directory/file"
sync "$MNT/directory"

case "$1" in
xattr) setfattr -n user.new -v new "$MNT/directory" ;;
removed-xattr) setfattr -x user.old "$MNT/directory" ;;
access-acl) setfacl -m u:1001:rwx "$MNT/directory" ;;
default-acl) setfacl -d -m u:1001:rwx "$MNT/directory" ;;
esac
sync "$MNT/directory"
"$BENCH" disk cut --dir "$DISK" --seed 1 >/dev/null
kill -9 "$WEIR_PID"
wait "$WEIR_PID" 2>/dev/null || true
umount -l "$MNT"
umount_soon "$SRC"
soon absent "/sys/fs/ext4/${DISK_DEVICE#/dev/}" || fail "ext4 stays after umount"
"$BENCH" disk restore --dir "$DISK"
mount "$DISK_DEVICE" "$SRC"
"$WEIR" recover "$SRC"

attributes=$(getfattr -d --absolute-names "$SRC/directory")
acl=$(getfacl -p -c "$SRC/directory")
case "$1" in
xattr) [[ $attributes = *user.new=* ]] || fail "it is lost: $attributes" ;;
removed-xattr) [[ $attributes != *user.old=* ]] || fail "it is there again: $attributes" ;;
access-acl) [[ $acl = *user:1001:rwx* ]] || fail "it is lost: $acl" ;;
default-acl) [[ $acl = *default:user:1001:rwx* ]] || fail "it is lost: $acl" ;;
esac
umount "$SRC"
stop_disk
