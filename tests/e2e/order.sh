#!/usr/bin/env bash
# `--order all`: a program that never syncs writes counters to several files in a fixed order, truncates and renames; after kill
# -9 and recovery all of it is as at one moment, not long before the kill. Where everything cannot be logged the mount is
# refused, and what the log has no records of is refused or done by reading and writing. What home gets at once comes after all
# that was before it, and is durable before what comes after it, and when a sync returns: it is there after a power cut. An fsync
# takes in what the lane has of other files.
# cases: as-at-one-moment refused space at-once at-once-elsewhere at-once-in-little-space at-once-and-a-cut fsync-and-the-lane size room
# seconds: 70
# all: room
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only

PROGRAM="$REPO/tests/e2e/support/in_order.py"

kill_daemon() {
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    umount -l "$MNT"
}

# refused TEXT OPTION...: the mount fails, and says this.
refused() {
    local text=$1
    shift
    if "$WEIR" mount "$SRC" "$MNT" --order all "$@" >"$WORK/said" 2>&1; then
        fail "mounted with $*"
    fi
    grep -q -F -e "$text" "$WORK/said" || fail "$*: $(cat "$WORK/said")"
}

# done_at_once WARM BEFORE CALL AFTER: in SOURCE BEFORE is run, on the mount, after a write, CALL, and after a crash AFTER succeeds in
# SOURCE, which has the write, too. If WARM is 1, the daemon knows the directory from earlier changes.
done_at_once() {
    local warm=$1 before=$2 call=$3 after=$4
    rm -rf "$SRC/dir" "$SRC/file"
    mkdir "$SRC/dir"
    echo other >"$SRC/dir/other"
    printf old >"$SRC/file"
    (cd "$SRC/dir" && eval "$before")
    mount_weir_foreground "$SRC" "$MNT" --order all --commit 5m --log-size 16M 2>>"$DAEMON_LOG"
    if [ "$warm" = 1 ]; then
        touch "$MNT/dir/early"
        rm "$MNT/dir/early"
        "$WEIR" sync "$MNT"
    fi
    printf NEW 1<>"$MNT/file"
    (cd "$MNT/dir" && eval "$call") || fail "it failed: $call"
    kill_daemon 2>/dev/null
    "$WEIR" recover "$SRC" >"$WORK/said"
    (cd "$SRC/dir" && eval "$after") >"$WORK/said" 2>&1 || fail "lost, so it was not done at once: $call"
    [ "$(cat "$SRC/file")" = NEW ] || fail "there without the write before it (warm: $warm): $call"
}

# done_at_once, for each line BEFORE|CALL|AFTER that is read.
all_done_at_once() {
    local before call after warm
    while IFS='|' read -r before call after; do
        for warm in 0 1; do
            done_at_once "$warm" "$before" "$call" "$after" </dev/null
        done
    done
}

# after_a_cut OPTIONS BEFORE CALL SYNC AFTER: on the mount CALL is run in 'dir' and then SYNC; after a power cut AFTER succeeds there.
# BEFORE is run in SOURCE.
after_a_cut() {
    local options=$1 before=$2 call=$3 sync=$4 after=$5
    mount "$DISK_DEVICE" "$SRC"
    rm -rf "$SRC/dir" "$SRC/other" "$SRC/large"
    mkdir "$SRC/dir"
    echo before >"$SRC/other"
    (cd "$SRC/dir" && eval "$before")
    sync -f "$SRC"
    # shellcheck disable=SC2086 # several options
    mount_weir_foreground "$SRC" "$MNT" --log-size 16M $options 2>>"$DAEMON_LOG"
    sync "$MNT/other"
    (cd "$MNT/dir" && eval "$call" && eval "$sync") || fail "it failed: $call; $sync"
    "$BENCH" disk cut --dir "$DISK" --seed 1 >/dev/null
    mount_after_cut 2>/dev/null
    "$WEIR" recover "$SRC" >"$WORK/said"
    (cd "$SRC/dir" && eval "$after") >"$WORK/said" 2>&1 || fail "lost in a power cut ($options): $before; $call; $sync"
    umount "$SRC"
}

# What has changes go to SOURCE at once.
little() {
    fallocate -l 280M ../large
}
acl() {
    setfacl -d -m u:1:rwx .
}

# A file that was made without a name gets one.
unnamed() {
    python3 - "$1" <<'PROGRAM'
import os
import sys

file = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
os.write(file, b"late\n")
here = os.open(".", os.O_RDONLY)
os.link(f"/proc/self/fd/{file}", sys.argv[1], src_dir_fd=here, dst_dir_fd=here)
PROGRAM
}

case "$1" in
as-at-one-moment)
    for seconds in 0.7 1.6 2.3 3.1; do
        rm -rf "${SRC:?}"/* "$WORK/progress"
        mount_weir_foreground "$SRC" "$MNT" --order all --commit 500ms --log-size 16M --dirty-expire 100ms --memory 64M
        python3 "$PROGRAM" write "$MNT" "$WORK/progress" 2>/dev/null &
        program=$!
        soon filled "$WORK/progress" || fail "the program did not begin"
        # Its files are there from then on.
        "$WEIR" sync "$MNT"
        sleep "$seconds"
        killed=$(date +%s.%N)
        kill_daemon
        kill "$program" 2>/dev/null || true
        wait "$program" 2>/dev/null || true
        "$WEIR" recover "$SRC" >"$WORK/said"
        ended=$(python3 "$PROGRAM" check "$SRC") || fail "after $seconds s: $ended"
        # A commit each half second, and two seconds for a slow machine.
        due=$(awk -v killed="$killed" '$2 < killed - 2.5 { round = $1 } END { print round + 0 }' "$WORK/progress")
        [ "$ended" -ge "$due" ] || fail "after $seconds s round $ended was found, and $due was long over"
    done
    ;;
refused)
    refused "leave out --log none" --log none
    refused "give --names log" --names sync
    refused "give --names log" --names behind
    refused "at least 16 MiB" --log-size 1M
    refused "unknown order" -o order=some
    ;;
space)
    mount_weir_foreground "$SRC" "$MNT" --order all --commit 100ms
    head -c 20000 /dev/urandom >"$MNT/file"
    if fallocate -p -o 0 -l 4096 "$MNT/file" 2>/dev/null; then
        fail "a hole was punched that the log does not have"
    fi
    cp "$MNT/file" "$WORK/file"
    fallocate -l 30000 "$MNT/file"
    [ "$(stat -c %s "$MNT/file")" = 30000 ] || fail "fallocate: $(stat "$MNT/file")"
    truncate -s 25000 "$MNT/file"
    cp --reflink=never "$MNT/file" "$MNT/copy"
    truncate -s 25000 "$WORK/file"
    soon cmp -s "$WORK/file" "$MNT/copy"
    sync "$MNT/copy"
    kill_daemon
    "$WEIR" recover "$SRC" >"$WORK/said"
    cmp "$WORK/file" "$SRC/file" || fail "the file is not as it was"
    cmp "$WORK/file" "$SRC/copy" || fail "the copy is not as it was"
    ;;
at-once)
    need_command setfattr setfacl chattr
    all_done_at_once <<'END'
:|setfattr -n user.late -v 1 other|getfattr -n user.late other
setfattr -n user.old -v 1 other|setfattr -x user.old other|! getfattr -n user.old other
:|setfacl -m u:1:rwx other|getfacl other | grep ^user:.*:rwx
:|setfacl -d -m u:1:rwx .|getfacl . | grep default:user:
setfacl -d -m u:1:rwx .|touch late|test -e late
setfacl -d -m u:1:rwx .|mkdir late|test -d late
setfacl -d -m u:1:rwx .|mv other late|test -e late
setfacl -d -m u:1:rwx .|rm other|test ! -e other
setfacl -d -m u:1:rwx .|ln other late|test -e late
chattr +S .|touch late|test -e late
chattr +S .|mv other late|test -e late
chattr +S .|rm other|test ! -e other
:|python3 -c 'import os; os.mknod("late", 0o102755)'|test -e late
END
    ;;
at-once-in-little-space)
    need_command mkfs.ext4
    loop_filesystem "$WORK/image" 200M "$SRC" mkfs.ext4 -qF
    all_done_at_once <<'END'
:|touch late|test -e late
:|mkdir late|test -d late
:|mv other late|test -e late
:|rm other|test ! -e other
:|ln other late|test -e late
:|ln -s other late|test -L late
mkdir sub|rmdir sub|test ! -e sub
END
    umount "$SRC"
    ;;
at-once-elsewhere)
    # All of another file system is changed at home at once.
    mkdir "$SRC/dir"
    loop_filesystem "$WORK/image" 20M "$WORK/elsewhere" mkfs.ext4 -qF
    touch "$WORK/elsewhere/other"
    all_done_at_once <<'END'
mkdir sub; mount --bind "$WORK/elsewhere" sub; chmod 644 sub/other|chmod 600 sub/other|[ "$(stat -c %a sub/other)" = 600 ] && umount sub
END
    umount "$WORK/elsewhere"
    ;;
at-once-and-a-cut)
    need_command mkfs.ext4 setfacl setfattr
    start_disk none 512M ext4
    tested=0
    while IFS='|' read -r options before call sync after; do
        after_a_cut "$options" "$before" "$call" "$sync" "$after" </dev/null
        tested=$((tested + 1))
    done <<'END'
--order all|little|echo late >late|sync ../other|[ "$(cat late)" = late ]
--order all|little|mkdir late|sync -d ../other|test -d late
--order all|acl|echo late >late|echo after >../other; sync ../other|[ "$(cat ../other late)" = "after"$'\n'"late" ]
--order all|acl|mkdir late|sync ..|test -d late
--order all|acl|mkdir late|dd if=/dev/zero of=../other bs=1 count=1 oflag=dsync conv=notrunc status=none|test -d late
--order all|:|unnamed late|sync ../other|[ "$(cat late)" = late ]
--order all|:|unnamed early; mv early late|sync ../other|[ "$(cat late)" = late ]
--order all|:|setfattr -n user.late -v 1 ../other|sync ..|getfattr -n user.late ../other
--order all --commit 100ms|acl|mkdir late; echo after >../other|for _ in {1..15}; do sleep 0.1; done|[ "$(cat ../other)" = after ] && test -d late
|little|echo late >late|sync late|[ "$(cat late)" = late ]
|little|mkdir late|sync .|test -d late
|acl|echo late >late|sync late|[ "$(cat late)" = late ]
|:|unnamed late|sync late|[ "$(cat late)" = late ]
|:|unnamed early; mv early late|sync late|[ "$(cat late)" = late ]
END
    stop_disk
    counts "$tested power cuts, nothing lost"
    ;;
fsync-and-the-lane)
    for synced in other .; do
        head -c 8192 /dev/zero >"$SRC/file"
        echo other >"$SRC/other"
        mount_weir_foreground "$SRC" "$MNT" --order all --commit 5m
        "$WEIR" run -- python3 "$PROGRAM" post "$MNT/file" "$MNT/$synced"
        [ "$(status "$MNT" lane.posted_writes)" -gt 40 ] || fail "the lane was not used"
        kill_daemon
        "$WEIR" recover "$SRC" >"$WORK/said"
        expect_equal "the last write before the fsync of $synced" "$(tail -c 4096 "$SRC/file" | head -c 4)" last
    done
    ;;
room)
    # Data fills the log while a name keeps its end, and waits for the name to be settled at home, and for nothing else.
    mount_weir_foreground "$SRC" "$MNT" --order all --log-size 32M
    slowest=$(python3 - "$MNT" <<'PYTHON'
import os
import sys
import time

os.chdir(sys.argv[1])
os.mkdir("a")
os.mkdir("b")
file = os.open("a/file", os.O_RDWR | os.O_CREAT)
os.pwrite(file, bytes(16 << 20), 0)
os.fsync(file)
# Until whoever brings names home has nothing to do.
time.sleep(6)
os.close(os.open("b/name", os.O_RDWR | os.O_CREAT))
time.sleep(0.2)
slowest = 0
for nth in range(8000):
    began = time.monotonic()
    os.pwrite(file, b"x" * 16384, nth % 1000 * 16384)
    if nth % 4 == 0:
        os.fdatasync(file)
    slowest = max(slowest, time.monotonic() - began)
print(int(slowest * 1000))
PYTHON
    )
    [ "$slowest" -lt 3000 ] || fail "a write waited $slowest ms for room in the log"
    # A name that is not durable yet is made so when data needs the room, and not only after its 500 ms. The best of five tries.
    unsynced=$(python3 - "$MNT" <<'PYTHON'
import os
import sys
import time

os.chdir(sys.argv[1])
file = os.open("a/file", os.O_RDWR)
slowest = []
for nth in range(5):
    os.fsync(file)
    time.sleep(1)
    os.close(os.open(f"b/name-{nth}", os.O_RDWR | os.O_CREAT))
    took = []
    for at in range(40):
        began = time.monotonic()
        os.pwrite(file, b"y" * (1 << 20), at % 16 << 20)
        took.append(time.monotonic() - began)
    slowest.append(max(took))
print(int(min(slowest) * 1000))
PYTHON
    )
    [ "$unsynced" -lt 250 ] || fail "a write waited $unsynced ms for a name"
    umount_weir "$MNT"
    counts "the slowest of 8000 writes took $slowest ms; of 40 without a sync $unsynced ms"
    ;;
size)
    mount_weir_foreground "$SRC" "$MNT" --log-size 1M
    echo synced >"$MNT/file"
    sync "$MNT/file"
    kill_daemon
    refused "give --log-size at least 16 MiB"
    mount_weir_foreground "$SRC" "$MNT" --order all --log-size 16M
    expect_equal "the size of the log" "$(stat -c %s "$SRC/.weir/log")" 16777216
    expect_equal "what was synced" "$(cat "$MNT/file")" synced
    umount_weir "$MNT"
    ;;
esac
