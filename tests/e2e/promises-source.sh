#!/usr/bin/env bash
# The log of a SOURCE: synced data is found from SOURCE alone, whatever a mount's options and SOURCE's device number;
# another user's or SOURCE's log, directory or device is not used; no files are served twice.
# cases: device-renumbered log-not-named changed-log log-out-of-reach log-device-renumbered read-only-recovers nested-sources nested-by-bind-mount planted-log weir-symlink log-of-another-owner log-on-btrfs log-inside-source
# all: log-on-btrfs
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
other=$WORK/other
mkdir "$other"

# sync_records MOUNT NAME COUNT: small writes to a file of 1 MiB, each with a sync.
sync_records() {
    python3 - "$1/$2" "$3" <<'END'
import os
import sys

descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
if os.fstat(descriptor).st_size == 0:
    os.pwrite(descriptor, bytes(1 << 20), 0)
    os.fsync(descriptor)
for number in range(int(sys.argv[2])):
    os.pwrite(descriptor, b"record %057d" % number, number * 20000 + 100)
    os.fdatasync(descriptor)
END
}

# records_in DIRECTORY NAME COUNT: how many of these records are in the file.
records_in() {
    python3 - "$1/$2" "$3" <<'END'
import os
import sys

descriptor = os.open(sys.argv[1], os.O_RDONLY)
print(sum(os.pread(descriptor, 64, number * 20000 + 100) == b"record %057d" % number for number in range(int(sys.argv[2]))))
END
}

# synced TEXT FILE: writes the text at the start of a file and makes it durable.
synced() {
    python3 -c '
import os, sys
descriptor = os.open(sys.argv[2], os.O_RDWR)
os.pwrite(descriptor, sys.argv[1].encode(), 0)
os.fdatasync(descriptor)' "$1" "$2"
}

at_home() {
    head -c "$1" "$2"
}

# crash: kills the daemon and removes its mount.
crash() {
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    umount -l "$MNT"
}

# mount_to_crash OPTION...: mounts so that data goes home only by syncs.
mount_to_crash() {
    mount_weir_foreground "$SRC" "$MNT" --dirty-expire 1h --log-file "$DAEMON_LOG" "$@"
}

refused_mount() {
    local words=$1
    shift
    expect_failure "$words" "$WEIR" mount "$@" --log-file "$DAEMON_LOG"
}

loops=()
attach() {
    LOOP=$(losetup --find --show "$1") || skip "no loop device"
    loops+=("$LOOP")
}
detach_all() {
    local loop
    for loop in "${loops[@]}"; do losetup -d "$loop" 2>/dev/null || true; done
}
trap 'detach_all; at_exit' EXIT

# page_file PATH: makes a durable file of one character repeated.
page_file() {
    head -c 65536 /dev/zero | tr '\0' . >"$1"
    sync -f "$1"
}

case $1 in
    device-renumbered)
        # XFS derives its file system ID from the device number.
        need_filesystem xfs
        need_command mkfs.xfs losetup
        truncate -s 400M "$WORK/image"
        mkfs.xfs -q "$WORK/image"
        attach "$WORK/image"
        mount "$LOOP" "$SRC"
        mount_to_crash
        sync_records "$MNT" data 50
        crash
        umount_soon "$SRC"
        # Another device number, as after a disk was added.
        truncate -s 1M "$WORK/between"
        losetup -d "$LOOP"
        attach "$WORK/between"
        attach "$WORK/image"
        mount "$LOOP" "$SRC"
        "$WEIR" recover "$SRC" >"$WORK/said" || fail "weir recover: $(cat "$WORK/said")"
        expect_equal "records after recovery" "$(records_in "$SRC" data 50)" 50
        umount "$SRC"
        ;;
    log-not-named)
        page_file "$SRC/file"
        mount_to_crash --log "$WORK/log" --log-size 1M
        synced FIRST- "$MNT/file"
        crash
        mount_to_crash
        expect_equal "what a mount without --log shows" "$(at_home 6 "$MNT/file")" FIRST-
        synced SECOND "$MNT/file"
        "$WEIR" umount "$MNT"
        wait "$WEIR_PID"
        expect_equal "at home" "$(at_home 6 "$SRC/file")" SECOND
        mount_weir "$SRC" "$MNT" --log "$WORK/log"
        umount_weir "$MNT"
        expect_equal "after the first log was used again" "$(at_home 6 "$SRC/file")" SECOND
        step "weir recover, and --log none"
        for way in recover none; do
            mount_to_crash --log "$WORK/log"
            synced "$way!" "$MNT/file"
            crash
            if [ "$way" = recover ]; then
                "$WEIR" recover "$SRC" >/dev/null
            else
                mount_weir "$SRC" "$MNT" --log none
                umount_weir "$MNT"
            fi
            expect_equal "brought home" "$(at_home $((${#way} + 1)) "$SRC/file")" "$way!"
        done
        step "a log is not replayed twice"
        cp "$WORK/log" "$WORK/saved"
        mount_to_crash --log "$WORK/log"
        synced THIRD- "$MNT/file"
        cp "$WORK/log" "$WORK/saved"
        "$WEIR" umount "$MNT"
        wait "$WEIR_PID"
        mount_weir "$SRC" "$MNT"
        synced FOURTH "$MNT/file"
        umount_weir "$MNT"
        chmod 600 "$WORK/saved"
        refused_mount "may be older than what is in SOURCE" "$SRC" "$MNT" --log "$WORK/saved"
        expect_failure "may be older than what is in SOURCE" "$WEIR" recover --log "$WORK/saved" "$SRC"
        expect_equal "at home" "$(at_home 6 "$SRC/file")" FOURTH
        ;;
    changed-log)
        page_file "$SRC/file"
        mount_to_crash --log source
        synced one "$MNT/file"
        crash
        mount_to_crash --log "$WORK/a" --log-size 1M
        expect_equal "shown" "$(at_home 3 "$MNT/file")" one
        [ ! -e "$SRC/.weir/log" ] || fail "two logs"
        synced two "$MNT/file"
        crash
        mount_to_crash --log "$WORK/b" --log-size 1M
        expect_equal "shown" "$(at_home 3 "$MNT/file")" two
        synced six "$MNT/file"
        crash
        mount_to_crash --log source
        expect_equal "shown" "$(at_home 3 "$MNT/file")" six
        synced ten "$MNT/file"
        crash
        mount_weir "$SRC" "$MNT" --log "$WORK/a"
        expect_equal "shown" "$(at_home 3 "$MNT/file")" ten
        umount_weir "$MNT"
        "$WEIR" recover "$SRC" >/dev/null
        expect_equal "at home" "$(at_home 3 "$SRC/file")" ten
        ;;
    log-out-of-reach)
        page_file "$SRC/file"
        mount_to_crash --log "$WORK/log" --log-size 1M
        synced kept "$MNT/file"
        crash
        mv "$WORK/log" "$WORK/moved"
        for options in "" "--log=none" "--log=source" "--log=$WORK/new" "--read-only"; do
            # shellcheck disable=SC2086 # none or one
            refused_mount "$WORK/log, which cannot be used" "$SRC" "$MNT" $options
        done
        expect_failure "$WORK/log, which cannot be used" "$WEIR" recover "$SRC"
        mount_weir "$SRC" "$MNT" --read-only --no-recovery
        expect_equal "shown as it is" "$(at_home 4 "$MNT/file")" ....
        umount_weir "$MNT"
        refused_mount "give --read-only as well" "$SRC" "$MNT" --no-recovery
        mount_weir "$SRC" "$MNT" --log "$WORK/moved"
        expect_equal "shown" "$(at_home 4 "$MNT/file")" kept
        umount_weir "$MNT"
        mount_weir "$SRC" "$MNT"
        umount_weir "$MNT"
        ;;
    log-device-renumbered)
        need_command losetup
        page_file "$SRC/file"
        truncate -s 4M "$WORK/image"
        truncate -s 4M "$WORK/between"
        attach "$WORK/image"
        mount_to_crash --log "$LOOP"
        synced kept "$MNT/file"
        crash
        losetup -d "$LOOP"
        # Another device is now where the log was.
        attach "$WORK/between"
        attach "$WORK/image"
        mount_weir "$SRC" "$MNT"
        expect_equal "shown" "$(at_home 4 "$MNT/file")" kept
        umount_weir "$MNT"
        expect_equal "at home" "$(at_home 4 "$SRC/file")" kept
        cmp -s "$WORK/between" <(head -c 4M /dev/zero) || fail "the other device was written"
        ;;
    read-only-recovers)
        need_filesystem ext4
        loop_filesystem "$WORK/ext4" 64M "$SRC" mkfs.ext4 -q
        page_file "$SRC/file"
        mount_to_crash --log source --log-size 1M
        synced kept "$MNT/file"
        crash
        mount -o remount,ro "$SRC"
        refused_mount "cannot be brought home because SOURCE cannot be written" "$SRC" "$MNT" --read-only
        mount_weir "$SRC" "$MNT" -o ro,norecovery
        umount_weir "$MNT"
        mount -o remount,rw "$SRC"
        mount_weir "$SRC" "$MNT" --read-only
        expect_equal "shown" "$(at_home 4 "$MNT/file")" kept
        umount_weir "$MNT"
        umount_soon "$SRC"
        ;;
    nested-sources)
        mkdir -p "$SRC/a/b" "$WORK/second"
        for options in "" "-o fsname=other"; do
            # shellcheck disable=SC2086 # none or two
            mount_weir "$SRC/a" "$MNT" $options
            refused_mount "two mounts of the same files" "$SRC/a/b" "$WORK/second"
            refused_mount "two mounts of the same files" "$SRC" "$WORK/second"
            ln -sfn "$SRC/a/b" "$WORK/link"
            refused_mount "two mounts of the same files" "$WORK/link" "$WORK/second"
            expect_failure "two mounts of the same files" "$WEIR" recover "$SRC/a/b"
            umount_weir "$MNT"
        done
        step "a name that is the path of another directory"
        refused_mount "begins with / is taken for the directory" "$SRC/a" "$MNT" -o "fsname=$WORK/elsewhere"
        ln -sfn "$SRC/a" "$WORK/link"
        mount_weir "$WORK/link" "$MNT" -o "fsname=$WORK/link"
        refused_mount "two mounts of the same files" "$SRC" "$WORK/second"
        umount_weir "$MNT"
        step "in another mount namespace"
        unshare -m sh -c 'echo >"$4"; exec "$0" mount --foreground "$1" "$2" --log-file "$3"' \
            "$WEIR" "$SRC/a" "$MNT" "$DAEMON_LOG" "$WORK/begun" &
        pid=$!
        soon filled "$SRC/a/.weir/lock" || fail "no daemon in the other namespace"
        soon grep -qF " $MNT " "/proc/$pid/mountinfo" || fail "no mount in the other namespace"
        refused_mount "two mounts of the same files" "$SRC/a/b" "$WORK/second"
        kill "$pid"
        wait "$pid" || fail "the daemon in the other namespace"
        step "directories side by side"
        mkdir "$SRC/ab"
        mount_weir "$SRC/a" "$MNT"
        mount_weir "$SRC/ab" "$WORK/second"
        umount_weir "$WORK/second"
        umount_weir "$MNT"
        ;;
    nested-by-bind-mount)
        mkdir -p "$SRC/a/b" "$WORK/second" "$WORK/bound"
        mount --bind "$SRC/a/b" "$WORK/bound"
        mount_weir "$SRC/a" "$MNT"
        refused_mount "two mounts of the same files" "$WORK/bound" "$WORK/second"
        umount_weir "$MNT"
        mount_weir "$WORK/bound" "$MNT"
        refused_mount "two mounts of the same files" "$SRC" "$WORK/second"
        umount_weir "$MNT"
        umount "$WORK/bound"
        ;;
    planted-log)
        need_command setpriv
        # An ordinary user who owns SOURCE plants a log there, in the format of the previous version. It has a record
        # for a file of root outside SOURCE.
        page_file "$SRC/secret"
        chmod 600 "$SRC/secret"
        mkdir "$SRC/home"
        mount_weir_foreground "$SRC/home" "$MNT" --log source --log-size 1M
        crash
        cp "$SRC/home/.weir/log" "$WORK/named"
        rm -r "$SRC/home/.weir"
        mount_to_crash --log source --log-size 1M
        synced EVIL "$MNT/secret"
        crash
        mv "$SRC/.weir" "$SRC/home/.weir"
        rm -f "$SRC/home/.weir/lock"
        python3 - "$WORK/named" "$SRC/home/.weir/log" <<'END'
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


with open(sys.argv[1], "rb") as named, open(sys.argv[2], "r+b") as planted:
    named.seek(0)
    mount = named.read(512)[32:48]
    for place in (0, 4096):
        planted.seek(place)
        block = bytearray(planted.read(512))
        if block[:8] != b"WEIR-LOG":
            continue
        block[32:48] = mount
        block[508:512] = crc32c(block[:508]).to_bytes(4, "little")
        planted.seek(place)
        planted.write(block)
END
        chown -R nobody "$SRC/home"
        before=$(hash_of "$SRC/secret")
        refused_mount "belongs to user $(id -u nobody)" "$SRC/home" "$MNT"
        refused_mount "belongs to user $(id -u nobody)" "$SRC/home" "$MNT" --log none
        expect_failure "belongs to user $(id -u nobody)" "$WEIR" recover "$SRC/home"
        step "in a directory that belongs to root"
        chown root "$SRC/home/.weir"
        refused_mount "belongs to user $(id -u nobody)" "$SRC/home" "$MNT"
        expect_failure "belongs to user $(id -u nobody)" "$WEIR" recover "$SRC/home"
        step "in a directory that other users may write"
        chown -R root "$SRC/home/.weir"
        chmod 777 "$SRC/home/.weir"
        refused_mount "may be changed by other users" "$SRC/home" "$MNT"
        expect_failure "may be changed by other users" "$WEIR" recover "$SRC/home"
        expect_equal "root's file" "$(hash_of "$SRC/secret")" "$before"
        ;;
    weir-symlink)
        mkdir "$WORK/elsewhere"
        ln -s "$WORK/elsewhere" "$SRC/.weir"
        refused_mount "symbolic link" "$SRC" "$MNT"
        expect_failure "symbolic link" "$WEIR" recover "$SRC"
        expect_equal "where the link leads" "$(ls -A "$WORK/elsewhere")" ""
        rm "$SRC/.weir"
        step "links in .weir"
        mkdir -m 700 "$SRC/.weir"
        for name in log id log-at lock; do
            ln -s "$WORK/elsewhere/x" "$SRC/.weir/$name"
            refused_mount "$SRC" "$SRC" "$MNT" --log source
            expect_equal "where the link leads" "$(ls -A "$WORK/elsewhere")" ""
            rm "$SRC/.weir/$name"
        done
        ;;
    log-of-another-owner)
        need_command setpriv
        mkdir -m 700 "$SRC/.weir"
        truncate -s 2M "$SRC/.weir/log"
        chmod 666 "$SRC/.weir/log"
        refused_mount "others may write it (mode 0666)" "$SRC" "$MNT"
        expect_failure "others may write it (mode 0666)" "$WEIR" recover "$SRC"
        chmod 600 "$SRC/.weir/log"
        chown nobody "$SRC/.weir/log"
        refused_mount "belongs to user $(id -u nobody)" "$SRC" "$MNT"
        rm -r "$SRC/.weir"
        truncate -s 2M "$WORK/log"
        chmod 600 "$WORK/log"
        chown nobody "$WORK/log"
        refused_mount "belongs to user $(id -u nobody)" "$SRC" "$MNT" --log "$WORK/log"
        chown root "$WORK/log"
        ln "$WORK/log" "$WORK/log2"
        refused_mount "has 2 names" "$SRC" "$MNT" --log "$WORK/log"
        rm "$WORK/log2"
        mount_weir "$SRC" "$MNT" --log "$WORK/log"
        umount_weir "$MNT"
        step "a directory made by an earlier build"
        rm -rf "$SRC/.weir" "$WORK/log"
        mkdir -m 755 "$SRC/.weir"
        mount_weir "$SRC" "$MNT"
        expect_equal "its mode" "$(stat -c %a "$SRC/.weir")" 700
        umount_weir "$MNT"
        ;;
    log-on-btrfs)
        need_filesystem btrfs
        need_command mkfs.btrfs losetup blkid
        truncate -s 256M "$WORK/image"
        mkfs_btrfs -q "$WORK/image" 2>/dev/null
        attach "$WORK/image"
        chmod 600 "$WORK/image"
        before=$(hash_of "$WORK/image")
        refused_mount "of type btrfs" "$SRC" "$MNT" --log "$LOOP"
        refused_mount "of type btrfs" "$SRC" "$MNT" --log "$WORK/image"
        expect_failure "of type btrfs" "$WEIR" log --format "$LOOP"
        expect_equal "the file system" "$(hash_of "$WORK/image")" "$before"
        mkdir "$WORK/btrfs"
        mount "$LOOP" "$WORK/btrfs"
        refused_mount "is mounted" "$SRC" "$MNT" --log "$LOOP"
        expect_failure "is mounted" "$WEIR" log --format --force "$LOOP"
        echo kept >"$WORK/btrfs/file"
        umount "$WORK/btrfs"
        mount "$LOOP" "$WORK/btrfs"
        expect_equal "its file" "$(cat "$WORK/btrfs/file")" kept
        umount "$WORK/btrfs"
        step "by an explicit command"
        "$WEIR" log --format --force "$LOOP"
        expect_equal "what blkid finds" "$(blkid -p -o value -s TYPE "$LOOP" || true)" ""
        mount_weir "$SRC" "$MNT" --log "$LOOP"
        mkdir "$WORK/elsewhere"
        refused_mount "in use" "$other" "$WORK/elsewhere" --log "$LOOP"
        umount_weir "$MNT"
        expect_failure "is a log already" "$WEIR" log --format "$LOOP"
        ;;
    log-inside-source)
        mkdir "$SRC/sub"
        for path in "$SRC/log" "$SRC/sub/log" "$SRC/.weir/other"; do
            mkdir -p "$SRC/.weir"
            refused_mount "would lie in SOURCE" "$SRC" "$MNT" --log "$path"
            [ ! -e "$path" ] || fail "$path was made"
        done
        ln -s "$SRC/sub" "$WORK/link"
        refused_mount "would lie in SOURCE" "$SRC" "$MNT" --log "$WORK/link/log"
        ln -s "$SRC/sub/log" "$WORK/link-to-log"
        : >"$SRC/sub/log"
        refused_mount "would lie in SOURCE" "$SRC" "$MNT" --log "$WORK/link-to-log"
        mkdir "$WORK/bound"
        mount --bind "$SRC/sub" "$WORK/bound"
        refused_mount "would lie in SOURCE" "$SRC" "$MNT" --log "$WORK/bound/log"
        umount "$WORK/bound"
        step "the default place"
        page_file "$SRC/file"
        mount_to_crash --log "$SRC/.weir/log" --log-size 1M
        synced kept "$MNT/file"
        crash
        "$WEIR" recover --log "$SRC/.weir/log" "$SRC" >/dev/null
        expect_equal "at home" "$(at_home 4 "$SRC/file")" kept
        ;;
    *)
        fail "no such case: $1"
        ;;
esac
