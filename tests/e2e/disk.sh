#!/usr/bin/env bash
# An emulated disk with a real file system on it: synced data survives a power cut, other data is old, new or torn at sector
# boundaries, and the file system is intact. The disk counts its requests, refuses bad input, and leaves nothing behind,
# even when its server is killed.
# cases: ext4 xfs
source "${REPO:?}/tests/e2e/lib.sh"

need_root
filesystem=$1
need_filesystem "$filesystem"
need_command losetup "mkfs.$filesystem"
bench=${WEIR_BENCH:?}
[ -x "$bench" ] || skip "weir-bench is not built: run 'make checked'"
disk=$WORK/disk
image=$WORK/image
mkdir "$disk"

# start MODEL: RUNNER is the process that holds the disk, DEVICE its loop device.
start() {
    : >"$WORK/held"
    "$bench" disk run --model "$1" --size 512M --image "$image" --dir "$disk" >"$WORK/held" &
    RUNNER=$!
    soon disk_or_ended "$RUNNER" || fail "the disk is not there after a minute"
    DEVICE=$(grep -o '^/dev/loop[0-9]*' "$WORK/held") || fail "the disk did not start"
}

stop() {
    kill "$RUNNER"
    wait "$RUNNER" || true
    nothing_left
}

nothing_left() {
    if losetup -a | grep -qF "$disk"; then fail "a loop device is left: $(losetup -a)"; fi
    if is_mounted "$disk/fuse"; then fail "the disk's mount is left"; fi
}

stat_of() {
    "$bench" disk stat --dir "$disk" | python3 "$SUPPORT/field.py" "$@"
}

for model in none hdd; do
    step "$model: write, sync, cut the power"
    rm -f "$image"
    start "$model"
    "mkfs.$filesystem" -q "$DEVICE"
    mount "$DEVICE" "$MNT"
    # The hard disk may have written all of its cache back by then. Without a model the cache is kept until a flush; one by
    # somebody else (sync(2), ext4's lazy initialization of inode tables) can come between the writes and the cut.
    for attempt in 1 2 3 4 5; do
        python3 "$SUPPORT/powercut.py" write "$MNT"
        reads=$(stat_of reads)
        "$bench" disk cut --dir "$disk" --seed 7 >"$WORK/lost"
        lost=$(python3 "$SUPPORT/field.py" lost_sectors <"$WORK/lost")
        if [ "$model" = hdd ] || [ "$lost" -gt 0 ]; then break; fi
        [ "$attempt" -lt 5 ] || fail "five power cuts lost nothing: $(cat "$WORK/lost")"
        umount "$MNT"
        "$bench" disk restore --dir "$disk"
        mount "$DEVICE" "$MNT"
    done
    if dd if="$DEVICE" of="$WORK/void" bs=4096 count=1 iflag=direct 2>"$WORK/said"; then
        fail "the disk answers without power"
    fi
    umount "$MNT"
    step "$model: restore, remount, verify"
    "$bench" disk restore --dir "$disk"
    mount "$DEVICE" "$MNT"
    python3 "$SUPPORT/powercut.py" verify "$MNT" || fail "synced data is not there after a power cut"
    umount "$MNT"
    case $filesystem in
        ext4) fsck.ext4 -fn "$DEVICE" >"$WORK/fsck" 2>&1 || fail "fsck: $(tail -5 "$WORK/fsck")" ;;
        xfs) xfs_repair -n "$DEVICE" >"$WORK/fsck" 2>&1 || fail "xfs_repair: $(tail -5 "$WORK/fsck")" ;;
    esac
    [ "$reads" -gt 0 ] || fail "no reads were counted"
    [ "$(stat_of flushes)" -ge 20 ] || fail "20 syncs made $(stat_of flushes) flushes"
    [ "$(stat_of written_bytes)" -ge $((20 * 65536)) ] || fail "only $(stat_of written_bytes) bytes were counted"
    if [ "$model" = hdd ]; then [ "$(stat_of seeks)" -gt 0 ] || fail "the arm never moved"; fi
    counts "$model reads $(stat_of reads) writes $(stat_of writes) flushes $(stat_of flushes) lost sectors $lost"
    if [ "$model" = none ]; then stop; fi
done

step "bad input"
mkdir "$WORK/other"
expect_failure "another emulated disk uses" \
    "$bench" disk run --model none --size 512M --image "$image" --dir "$WORK/other"
expect_failure "has 536870912 bytes and not" \
    "$bench" disk run --model none --size 1G --image "$image" --dir "$WORK/other"
expect_failure "cannot have 1000 bytes" \
    "$bench" disk run --model none --size 1000 --image "$WORK/small" --dir "$WORK/other"
expect_failure "as root" as_user nobody "$bench" disk run --model none --size 1G --image "$WORK/x" --dir "$WORK/other"
expect_failure "no emulated disk runs" "$bench" disk restore --dir "$WORK/other"
if is_mounted "$WORK/other/fuse"; then fail "a disk that did not start left its mount"; fi

step "a killed server"
server=$(grep -o 'process [0-9]*' "$WORK/held" | cut -d' ' -f2)
kill -KILL "$server"
if dd if="$DEVICE" of="$WORK/void" bs=4096 count=1 iflag=direct 2>"$WORK/said"; then
    fail "a disk without a server answers"
fi
stop
