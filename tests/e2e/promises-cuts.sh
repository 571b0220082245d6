#!/usr/bin/env bash
# Power cuts of an emulated disk under programs that truncate, rewrite by O_TRUNC, rename over, punch holes, delete and
# rest between their synced writes. After each cut the disk gets another device number, as after a reboot, and SOURCE
# is recovered by `weir recover SOURCE` and `weir mount SOURCE` in turn: no acknowledged data is lost, data that was settled
# at home is never replaced by older data, and there is no data that no program wrote. Those with `sync` have names wait for
# SOURCE.
# cases: ext4 xfs sync-ext4 sync-xfs
# all: xfs sync-xfs sync-ext4 ext4
# seconds: 35
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
filesystem=${1#sync-}
names=()
[ "$filesystem" = "$1" ] || names=(--names sync)
need_filesystem "$filesystem"
cuts=6
if [ -n "$LONG" ]; then cuts=100; fi
# With fewer inodes than this has, names would wait for SOURCE.
start_disk none 2G "$filesystem"
blockdev --flushbufs "$DISK_DEVICE"

# renumber: gives the disk another loop device, DEVICE.
DEVICE=$DISK_DEVICE
renumber() {
    local former=$DEVICE
    DEVICE=$(losetup --find --show --direct-io=on "$(cat "/sys/block/${DISK_DEVICE#/dev/}/loop/backing_file")")
    [ "$(stat -c %t:%T "$DEVICE")" != "$(stat -c %t:%T "$former")" ] || fail "$DEVICE has the number it had before"
    # An earlier disk with this device number may have failed to write; the kernel reports that to the device's next
    # sync. Take the report here.
    blockdev --flushbufs "$DEVICE" 2>/dev/null || true
    # The first loop device belongs to the disk.
    [ "$former" = "$DISK_DEVICE" ] || losetup -d "$former"
}

# Waits until the kernel has released the file system, which happens shortly after umount while a killed daemon's last
# files are being closed. Until then, mounting it on another device is refused as a duplicate.
gone() {
    soon absent "/sys/fs/$filesystem/${DEVICE#/dev/}" || fail "$filesystem on $DEVICE stays after umount"
}

# checked WHERE: compares the files below a directory with what was promised.
checked() {
    python3 "$SUPPORT/powercut_mixed.py" check "$1" "$WORK/notes" "$(cat "$WORK/cut")" >"$WORK/found" 2>&1 ||
        fail "cut $cut ($how), in $1: $(cat "$WORK/found")"
}

renumber
promises=0
of_names=0
for cut in $(seq "$cuts"); do
    mount "$DEVICE" "$SRC"
    rm -rf "$WORK/notes" "$SRC"/program-*
    sync -f "$SRC"
    mount_weir_foreground "$SRC" "$MNT" --log-size "$((cut % 2 * 6 + 2))M" --dirty-expire 150ms "${names[@]}"
    # Every third cut comes when the programs rest and everything is home.
    how="in the middle"
    if [ $((cut % 3)) = 0 ]; then how="after a rest"; fi
    if [ "$how" = "after a rest" ]; then
        python3 "$SUPPORT/powercut_mixed.py" write "$MNT" "$SRC" "$WORK/notes" 0.7 "$cut" rest "$WEIR" ||
            fail "the load"
        grep -q stopped "$WORK"/notes/* && fail "the load: $(grep -h stopped "$WORK"/notes/*)"
        date +%s.%N >"$WORK/cut"
        "$BENCH" disk cut --dir "$DISK" --seed "$cut" >/dev/null
    else
        python3 "$SUPPORT/powercut_mixed.py" write "$MNT" "$SRC" "$WORK/notes" 20 "$cut" go-on "$WEIR" &
        load=$!
        sleep "$((cut * 7 % 3)).$((cut * 3 % 9 + 1))"
        date +%s.%N >"$WORK/cut"
        "$BENCH" disk cut --dir "$DISK" --seed "$cut" >/dev/null
        # Programs that only write to memory notice the power cut when they sync.
        wait "$load" || fail "the load"
    fi
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    umount -l "$MNT"
    umount_soon "$SRC"
    gone
    "$BENCH" disk restore --dir "$DISK"
    renumber
    mount "$DEVICE" "$SRC"
    "$WEIR" log "$SRC" >"$WORK/records" || fail "cut $cut: the log cannot be read"
    of_names=$((of_names + $(grep -cE 'node [0-9]+ (make|rename|remove|set|link)' "$WORK/records" || true)))
    if [ $((cut % 2)) = 0 ]; then
        "$WEIR" recover "$SRC" >"$WORK/recovered" || fail "cut $cut: weir recover on another device: $?"
        checked "$SRC"
    else
        mount_weir "$SRC" "$MNT" --log-size 2M
        checked "$MNT"
        umount_weir "$MNT"
        checked "$SRC"
    fi
    read -r found _ <"$WORK/found"
    promises=$((promises + found))
    umount "$SRC"
done
losetup -d "$DEVICE"
stop_disk
[ "${names[*]}" != "" ] || [ "$of_names" -gt 0 ] || fail "no log had a record of names"
counts "$cuts power cuts on $1, each on another device, $of_names records of names: $promises promises kept, 0 lost, 0 taken back"
