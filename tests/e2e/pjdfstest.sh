#!/usr/bin/env bash
# pjdfstest through a mount: no case may fail that passes on the directory below.
# Both are on a small ext4 of their own, or on the file system that the run is named after.
# lane
# sync
# bucket
# Not on sshfs: its server follows the symbolic links of the suite into the mount, and waits for itself.
# homes: xfs
source "${REPO:?}/tests/e2e/lib.sh"

need_root
need_tool pjdfstest
need_filesystem ext4
need_command mkfs.ext4

case ${UNDER:-} in
    xfs | sshfs)
        mkdir "$WORK/disk"
        mount --bind "$SRC" "$WORK/disk"
        ;;
    *) loop_filesystem "$WORK/image" 512M "$WORK/disk" mkfs.ext4 -q ;;
esac
mkdir "$WORK/disk/source" "$WORK/disk/plain" "$WORK/other"
mount -t tmpfs -o size=64M none "$WORK/other"
chmod 755 "$WORK/disk/source" "$WORK/disk/plain"
home=$WORK/disk/source
if [ "${UNDER:-}" = bucket ]; then home=$SRC; fi
users=$(python3 -c 'import grp, pwd
print(", ".join(f"[\"{n}\", \"{grp.getgrgid(pwd.getpwnam(n).pw_gid).gr_name}\"]" for n in ("nobody", "daemon")))')

cat >"$WORK/config.toml" <<END
[features]
posix_fallocate = {}
utime_now = {}
utimensat = {}
rename_ctime = {}
secondary_fs = "$WORK/other"

[settings]
naptime = 0.01
allow_remount = false

[dummy_auth]
entries = [$users]
END

# suite DIRECTORY NAME: writes NAME.failed and NAME.passed, sorted names.
suite() {
    NO_COLOR=1 "${under[@]}" "$TOOLS/bin/pjdfstest" -c "$WORK/config.toml" -p "$1" >"$WORK/$2.out" 2>&1 || true
    grep -q ^Summary "$WORK/$2.out" || { tail -20 "$WORK/$2.out"; fail "pjdfstest did not come to its end on $2"; }
    awk '$NF == "FAILED" { print $1 }' "$WORK/$2.out" | sort >"$WORK/$2.failed"
    awk '$NF == "ok" { print $1 }' "$WORK/$2.out" | sort >"$WORK/$2.passed"
}

suite "$WORK/disk/plain" plain
mount_weir "$home" "$MNT" --allow-other
suite "$MNT" mount
umount_weir "$MNT"

# What a bucket has not, as expressions for the names of tests.
unkept=()
least=300
if [ "${UNDER:-}" = bucket ]; then
    least=200
    unkept=(
        # Devices, FIFOs and sockets.
        '::(block|char|fifo|socket)$' '^mkfifo::' '^mknod::' '^open::fifo_'
        # Hard links.
        '^link::' '^rename::(preserve_metadata|to_multiply_linked)::regular$'
        '^unlink::(unchanged_ctime_failed|update_ctime_success)::regular$'
    )
fi
for expression in "${unkept[@]}"; do
    grep -qE "$expression" "$WORK/mount.failed" || fail "a bucket has it now: $expression"
    sed -i -E "\\#$expression#d" "$WORK/mount.failed" "$WORK/plain.passed"
done

worse=$(comm -23 "$WORK/mount.failed" "$WORK/plain.failed")
# libc knows the largest number of links by the file system's type, and not for FUSE.
sed -i '/^link::link_count_max$/d' "$WORK/plain.passed"
missing=$(comm -13 <(sort -u "$WORK/mount.passed" "$WORK/mount.failed") "$WORK/plain.passed")
if [ -n "$worse" ]; then
    for name in $worse; do grep -A2 "^$name " "$WORK/mount.out" || true; done
    fail "$(wc -l <<<"$worse") tests fail through the mount and not on the directory underneath"
fi
[ -z "$missing" ] || fail "not run through the mount: $missing"
passed=$(wc -l <"$WORK/mount.passed")
[ "$passed" -ge "$least" ] || fail "only $passed tests passed"
counts "$passed passed, $(wc -l <"$WORK/mount.failed") failed as underneath"
umount "$WORK/other" "$WORK/disk"
