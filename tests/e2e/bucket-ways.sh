#!/usr/bin/env bash
# The ways to mount a bucket, each with what is written there, in the bucket after the unmount and as another mount shows it:
# fstab: `mount -t fuse.weir`, as /etc/fstab uses it, and umount(8);
# config: `weir mount MOUNTPOINT`, all else from a configuration file;
# user: an ordinary user's mount, and its files;
# names: all names wait for the bucket, by `--names sync`.
# cases: fstab config user names
source "${REPO:?}/tests/e2e/lib.sh"
source "$SUPPORT/store.sh"

need_root
weir_only
# What a bucket keeps of a tree is what SFTP does, and more.
export TREE_SFTP=1
user=nobody

# The same tree on a plain directory and in the mount, made by `as`.
as() { if [ "$case" = user ]; then as_user "$user" "$@"; else "$@"; fi; }
grow() {
    mkdir "$WORK/plain"
    if [ "$case" = user ]; then chown "$user" "$WORK/plain"; fi
    for there in "$WORK/plain" "$MNT"; do as python3 "$SUPPORT/tree.py" grow "$there" 21 500 >"$WORK/grown"; done
    as python3 "$SUPPORT/tree.py" manifest "$WORK/plain" >"$WORK/wanted"
    expect_tree "the mount"
}
expect_tree() {
    as python3 "$SUPPORT/tree.py" manifest "$MNT" | diff - "$WORK/wanted" || fail "$1 has another tree"
}

# The names and bytes of files alone, and those of symbolic links.
contents() {
    (cd "$1" && find . -name '.weir*' -prune -o -type f -exec sha256sum {} + | LC_ALL=C sort -k 2)
}
expect_objects() {
    # An object has a symbolic link's target as its content.
    find "$WORK/plain" -type l | while read -r link; do
        target=$(readlink "$link")
        rm "$link"
        printf %s "${target/#"$WORK/plain"/"$MNT"}" >"$link"
    done
    diff <(contents "$OBJECTS/bucket/pre") <(contents "$WORK/plain") || fail "the objects are not the files"
}

# see_again: all that this machine has noted is lost, and another mount shows the same.
see_again() {
    soon no_bucket || fail "weir-bucket goes on after the unmount"
    expect_objects
    rm -rf "$STATE_DIRECTORY"
    mount_weir "$SOURCE" "$MNT" --endpoint "$ENDPOINT"
    expect_tree "another mount"
    umount_weir "$MNT"
    soon no_bucket || fail "weir-bucket goes on after weir umount"
}

case=$1
start_store
case $case in
    fstab)
        [ -x /sbin/mount.fuse ] || [ -x /sbin/mount.fuse3 ] || skip "no mount.fuse: run 'make setup'"
        # mount(8) starts its helper with a fixed PATH: the type names the program.
        options=rw,nosuid,nodev,allow_other,endpoint=$ENDPOINT,region=us-east-1,part_size=16,path_style
        mount -t fuse."$WEIR" -o "$options" "$SOURCE" "$MNT" || fail "mount -t fuse.weir"
        grep -q "^$SOURCE $MNT fuse.weir .*allow_other" /proc/self/mounts || fail "$(grep "$MNT" /proc/self/mounts)"
        pgrep -f "weir-bucket mount $SOURCE .*--endpoint=$ENDPOINT .*--part-size=16" >/dev/null || fail "the options are not in force"
        grow
        umount "$MNT"
        see_again
        mounts_again() { mount_again=$("$WEIR" mount "$SOURCE" "$MNT" --endpoint "$ENDPOINT" 2>&1); }
        soon mounts_again || true
        is_mounted "$MNT" || fail "cannot be mounted again after umount(8): $mount_again"
        umount_weir "$MNT"
        ;;
    config)
        cat >"$WORK/weir.toml" <<END
region = "us-east-1"
requests-per-second = 5000

[mount."$MNT"]
source = "$SOURCE"
endpoint = "$ENDPOINT"
listing-ttl = 5

[mount."$WORK/other"]
source = "s3://absent"
endpoint = "http://127.0.0.1:1"
END
        weir mount --config "$WORK/weir.toml" "$MNT"
        arguments=$(pgrep -af "weir-bucket mount $SOURCE .*--endpoint=$ENDPOINT")
        for option in --region=us-east-1 --requests-per-second=5000 --listing-ttl=5; do
            [[ $arguments = *$option* ]] || fail "$option is not in force: $arguments"
        done
        grow
        umount_weir "$MNT"
        see_again
        printf 'part-size = 4\n' >"$WORK/wrong.toml"
        expect_failure "wrong.toml:1: " weir mount --config "$WORK/wrong.toml" "$SOURCE" "$MNT"
        ;;
    user)
        need_command setpriv
        export STATE_DIRECTORY=$WORK/run-$user/state
        mount_by "$user"
        mount_weir "$SOURCE" "$MNT" --endpoint "$ENDPOINT"
        grow
        as sh -c "echo mine >'$MNT/file'; chmod 640 '$MNT/file'; mkdir -m 700 '$MNT/directory'"
        step "kept out"
        expect_failure "denied" as_user daemon ls "$MNT"
        expect_failure "denied" ls "$MNT"
        expect_failure "not permitted" as chown daemon "$MNT/file"
        expect_failure "" as_user daemon "$WEIR" umount "$MNT"
        umount_weir "$MNT"
        expect_equal "an object" "$(cat "$OBJECTS/bucket/pre/file")" mine
        step "kept"
        soon no_bucket || fail "weir-bucket goes on after weir umount"
        rm -rf "$STATE_DIRECTORY"
        mount_weir "$SOURCE" "$MNT" --endpoint "$ENDPOINT"
        expect_equal "a file" "$(as stat -c '%U %a' "$MNT/file")" "$user 640"
        expect_equal "a directory" "$(as stat -c '%U %a' "$MNT/directory")" "$user 700"
        as rm -r "$MNT/file" "$MNT/directory"
        umount_weir "$MNT"
        see_again
        ;;
    names)
        mount_weir "$SOURCE" "$MNT" --endpoint "$ENDPOINT" --names sync
        grow
        umount_weir "$MNT"
        see_again
        ;;
esac
counts "$(cat "$WORK/grown" 2>/dev/null)"
stop_store
