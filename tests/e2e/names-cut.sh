#!/usr/bin/env bash
# Power cuts of an emulated disk: what is changed of a directory or file in SOURCE at once, without the log (extended attributes,
# ACLs, modes with `--names sync`), is durable when an fsync(2) of it returns. Files have data in the log alone, which their
# syncs need not bring home. The same holds for a directory that is made at once. That an fdatasync(2) comes before the fsync(2)
# changes nothing. And names that SOURCE is given at once are durable there when the log has others that rely on them.
# cases: xattr removed-xattr access-acl default-acl file-xattr file-access-acl sync-file-mode data-file-access-acl made moved-and-made linked-and-moved
# seconds: 6
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command setfattr getfattr setfacl getfacl
# With fewer inodes than this has, names would wait for SOURCE.
start_disk none 2G ext4
mount "$DISK_DEVICE" "$SRC"

# power_cut: the power fails, and comes again. What SOURCE has then is recovered.
power_cut() {
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
}

case $1 in
made | moved-and-made | linked-and-moved)
    # What is changed in a directory with a default ACL goes to SOURCE at once, and so does the name of a file that has none.
    mkdir "$SRC/at-once" "$SRC/logged" "$SRC/other"
    setfacl -d -m u:1001:rwx "$SRC/at-once"
    echo old >"$SRC/logged/log"
    sync -f "$SRC"
    mount_weir_foreground "$SRC" "$MNT" --names log --dirty-expire 1h
    touch "$MNT/logged/another"
    "$WEIR" sync "$MNT"
    ;;&
made)
    # So that the tree knows both directories.
    ls "$MNT/at-once"
    mkdir "$MNT/at-once/new"
    chmod 700 "$MNT/at-once/new"
    sync "$MNT/at-once/new"
    power_cut
    expect_equal names "$(ls "$SRC/at-once")" new
    ;;&
moved-and-made)
    mv "$MNT/logged/log" "$MNT/at-once/log.1"
    echo new >"$MNT/logged/log"
    sync "$MNT/logged/log"
    power_cut
    expect_equal "names that are logged" "$(ls "$SRC/logged")" another$'\n'log
    expect_equal "names that are changed at once" "$(ls "$SRC/at-once")" log.1
    expect_equal content "$(cat "$SRC/logged/log" "$SRC/at-once/log.1")" new$'\n'old
    ;;&
linked-and-moved)
    exec 7< <(exec python3 -c '
import os, sys

at = sys.argv[1]
file = os.open(f"{at}/logged", os.O_RDWR | os.O_TMPFILE, 0o600)
os.write(file, b"content")
os.fsync(file)
os.link(f"/proc/self/fd/{file}", f"{at}/logged/linked", src_dir_fd=file)
os.rename(f"{at}/logged/linked", f"{at}/other/name")
os.fsync(os.open(f"{at}/other", os.O_RDONLY))
print("synced")
' "$MNT")
    read -r said <&7
    expect_equal program "$said" synced
    power_cut
    expect_equal names "$(ls "$SRC/other")" name
    expect_equal content "$(cat "$SRC/other/name")" content
    ;;&
made | moved-and-made | linked-and-moved)
    umount "$SRC"
    stop_disk
    exit
    ;;
esac

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
power_cut

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
