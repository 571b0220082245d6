#!/usr/bin/env bash
# Missing names: the kernel remembers them, and drops that as soon as the name is created through the mount.
# cases: device io-uring
# serial
# all
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
case $1 in
    device) mount_weir "$SRC" "$MNT" --transport device ;;
    io-uring)
        setting=/sys/module/fuse/parameters/enable_uring
        [ -w "$setting" ] || skip "this kernel has no FUSE over io_uring"
        before=$(cat "$setting")
        trap 'echo "$before" >"$setting"; at_exit' EXIT
        echo 1 >"$setting"
        mount_weir "$SRC" "$MNT" --transport io-uring
        ;;
esac
missing() { [ ! -e "$1" ] || fail "$1 is there"; }
there() { [ -e "$1" ] || fail "$1 is missing"; }

step "created through the mount, in every way"
mkdir "$MNT/from"
for name in file directory link symlink fifo moved copied; do missing "$MNT/$name"; done
echo content >"$MNT/file"
mkdir "$MNT/directory"
ln "$MNT/file" "$MNT/link"
ln -s file "$MNT/symlink"
mkfifo "$MNT/fifo"
echo content >"$MNT/from/moved"
mv "$MNT/from/moved" "$MNT/moved"
missing "$MNT/from/moved"
cp "$MNT/file" "$MNT/copied"
for name in file directory link symlink fifo moved copied; do there "$MNT/$name"; done

step "gone and back"
for _ in 1 2 3; do
    rm "$MNT/file"
    missing "$MNT/file"
    echo again >"$MNT/file"
    expect_equal "the file" "$(cat "$MNT/file")" again
done
rmdir "$MNT/directory"
missing "$MNT/directory"
mkdir "$MNT/directory"
missing "$MNT/directory/inside"
mv "$MNT/directory" "$MNT/elsewhere"
missing "$MNT/directory"
missing "$MNT/elsewhere/inside"
touch "$MNT/elsewhere/inside"
there "$MNT/elsewhere/inside"

step "made in SOURCE behind the mount"
missing "$MNT/behind"
touch "$SRC/behind"
soon exists "$MNT/behind" || true
there "$MNT/behind"
umount_weir "$MNT"

step "for an hour, and not at all"
mount_weir "$SRC" "$MNT" --transport "$1" -o negative_timeout=3600
missing "$MNT/hour"
echo home >"$SRC/hour"
missing "$MNT/hour"
# A program that tries to create the name finds it.
cat /dev/null >>"$MNT/hour"
expect_equal "what was made in SOURCE" "$(cat "$MNT/hour")" home
umount_weir "$MNT"
mount_weir "$SRC" "$MNT" --transport "$1" -o negative_timeout=0
missing "$MNT/later"
touch "$SRC/later"
there "$MNT/later"
umount_weir "$MNT"
expect_failure "negative_timeout" "$WEIR" mount "$SRC" "$MNT" -o negative_timeout=soon
