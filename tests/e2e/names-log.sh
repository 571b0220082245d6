#!/usr/bin/env bash
# `--names log`: what recovery does about times that programs set, and about what somebody else removed or moved in SOURCE
# between the crash and the recovery; the times of directories of a tree that is copied; and what a sync makes durable of
# other directories, of other names of a file, and of a file that takes the name of another; what syncs report that SOURCE refuses. A copy of
# SOURCE does not take its log.
# cases: set-times-stay removed-directory moved-and-removed made-again tree-times other-directories other-name replaced-size copied copy-in-the-mount directory-times-stay log-full-of-data two-names forgotten-size listing-commits-nothing number-of-a-removed-file unnamed-files removal-from-a-full-disk sync-is-refused fsync-is-refused rest-is-home force-in-use removed-in-source forced-end one-sync-of-home changes-wake-nobody unmounted-by-hand parent-into-child
# long-cases: renamed-while-removed
# seconds: 5
# all: removed-in-source
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only

mount_log() {
    mount_weir_foreground "$SRC" "$MNT" --names log --dirty-expire 1h
}

crash() {
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    umount -l "$MNT"
}

# recover TEXT...: succeeds, and says each of these.
recover() {
    "$WEIR" recover "$SRC" >"$WORK/said"
    for text in "$@"; do
        grep -q -F "$text" "$WORK/said" || fail "recovery does not say '$text': $(cat "$WORK/said")"
    done
}

# Whether no data is on its way to SOURCE.
all_clean() {
    [ "$(status "$MNT" stats.dirty_pages)" = 0 ]
}

# From then on SOURCE has what was made, and the log knows nothing of it.
settle() {
    "$WEIR" umount "$MNT"
    wait "$WEIR_PID"
    mount_log
}

modified() {
    stat -c %Y "$1"
}

# Whether SOURCE refuses a change.
refused() {
    "$WEIR" status "$MNT" | grep -q 'refused by SOURCE'
}

# Whether it is known that SOURCE has no room: a directory is not made any more.
has_no_room() {
    ! mkdir "$MNT/another-$((++made))" 2>/dev/null
}
made=0

# The directories below one, with their times.
directory_times() {
    (cd "$1" && find . -name .weir -prune -o -type d -not -name . -printf '%p %T@\n' | sort)
}

case "$1" in
parent-into-child)
    # What is made with set-group-ID goes to SOURCE at once, and the directories above it before.
    for nth in {1..20}; do mkdir -p "$SRC/parent-$nth/child/below"; done
    mount_log
    python3 - "$MNT" <<'PYTHON'
import os
import sys

os.chdir(sys.argv[1])
os.umask(0)
for nth in range(1, 21):
    os.rename(f"parent-{nth}/child", f"child-{nth}")
    os.rename(f"parent-{nth}", f"child-{nth}/below/parent")
    os.close(os.open(f"child-{nth}/below/parent/file", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o2654))
PYTHON
    "$WEIR" umount "$MNT"
    wait "$WEIR_PID"
    [ -f "$SRC/child-20/below/parent/file" ] || fail "it is not in SOURCE"
    ;;
set-times-stay)
    mount_log
    echo old >"$MNT/written-after"
    settle
    echo content >"$MNT/new"
    touch -d @1000000000 "$MNT/new" "$MNT/written-after"
    sync -d "$MNT/new" "$MNT/written-after"
    echo more >>"$MNT/written-after"
    sync "$MNT/new" "$MNT/written-after"
    crash
    recover
    [ "$(cat "$SRC/new")" = content ] || fail "the new file's data is not there"
    [ "$(modified "$SRC/new")" = 1000000000 ] || fail "new: $(stat "$SRC/new")"
    [ "$(cat "$SRC/written-after")" = $'old\nmore' ] || fail "the old file's data is not there"
    [ "$(modified "$SRC/written-after")" -gt 1500000000 ] || fail "$(stat "$SRC/written-after")"
    ;;
removed-directory)
    mount_log
    mkdir "$MNT/directory"
    settle
    mkdir "$MNT/directory/sub"
    echo acknowledged >"$MNT/directory/sub/file"
    sync "$MNT/directory/sub/file"
    crash
    rm -r "$SRC/directory"
    recover 'is in lost+weir-1'
    [ "$(cat "$SRC/lost+weir-1/sub/file")" = acknowledged ] || fail "$(find "$SRC")"
    mount_log
    [ "$(cat "$MNT/lost+weir-1/sub/file")" = acknowledged ] || fail "$(find "$MNT")"
    "$WEIR" umount "$MNT"
    ;;
moved-and-removed)
    mount_log
    mkdir "$MNT/moved" "$MNT/elsewhere"
    echo of-the-mount >"$MNT/removed"
    settle
    mv "$MNT/moved" "$MNT/renamed"
    echo acknowledged >"$MNT/renamed/file"
    mv "$MNT/removed" "$MNT/another-name"
    sync "$MNT/renamed/file"
    crash
    # What was renamed may be at home under either name.
    mv "$SRC"/moved "$SRC"/elsewhere/it 2>/dev/null || mv "$SRC"/renamed "$SRC"/elsewhere/it
    rm -f "$SRC/removed" "$SRC/another-name"
    recover 'another-name is missing' 'renamed is elsewhere/it'
    [ "$(cat "$SRC/elsewhere/it/file")" = acknowledged ] || fail "$(find "$SRC")"
    [ ! -e "$SRC/renamed" ] || fail "it was made again"
    mount_log
    "$WEIR" umount "$MNT"
    ;;
made-again)
    mount_log
    mkdir "$MNT/directory"
    echo content >"$MNT/directory/file"
    "$WEIR" sync "$MNT"
    touch "$MNT/directory/later"
    sync "$MNT/directory/later"
    crash
    rm -r "$SRC/directory"
    # The log may have it all, or none of it. SOURCE's file system may have lost it.
    recover
    find "$SRC" -name later | grep -q . || fail "$(find "$SRC"; cat "$WORK/said")"
    grep -q -e 'lost+weir-1' -e 'made again' "$WORK/said" || fail "$(cat "$WORK/said")"
    ;;
tree-times)
    mkdir -p "$WORK/tree/one/two/three" "$WORK/tree/empty"
    for number in $(seq 20); do
        echo "$number" | tee "$WORK/tree/one/$number" >"$WORK/tree/one/two/three/$number"
    done
    find "$WORK/tree" -depth -type d -exec touch -d @1000000000.123456789 {} +
    for names in log behind; do
        mount_weir_foreground "$SRC" "$MNT" --names $names
        cp -a "$WORK/tree" "$MNT/copied-$names"
        mkdir "$MNT/unpacked-$names"
        tar -C "$WORK/tree" -c . | tar -C "$MNT/unpacked-$names" -x
        mkdir "$MNT/touched-$names"
        echo content >"$MNT/touched-$names/file"
        touch -d 2001-01-01 "$MNT/touched-$names"
        directory_times "$MNT" >"$WORK/seen"
        "$WEIR" sync "$MNT"
        directory_times "$SRC" >"$WORK/synced"
        "$WEIR" umount "$MNT"
        directory_times "$SRC" >"$WORK/unmounted"
        for found in synced unmounted; do
            diff "$WORK/seen" "$WORK/$found" || fail "$names, $found: times of directories differ"
        done
        [ "$(grep -c ' 1000000000\.' "$WORK/seen")" -ge 10 ] || fail "$(cat "$WORK/seen")"
    done
    ;;
other-directories)
    # A sync of anything makes all durable that was changed before, also if nothing of it is to be synced.
    for synced in . directory directory/file; do
        mkdir -p "$SRC/directory/below"
        echo content | tee "$SRC/directory/file" >"$SRC/directory/below/removed"
        mount_log
        rm "$MNT/directory/below/removed"
        sync "$MNT/$synced"
        crash
        recover
        [ ! -e "$SRC/directory/below/removed" ] || fail "it is there after a sync of $synced"
    done
    ;;
other-name)
    # On an overlay files are found by the places that the log says. It learns of other names when they are used.
    mkdir "$WORK/lower" "$WORK/upper" "$WORK/work"
    mount -t overlay overlay -o "lowerdir=$WORK/lower,upperdir=$WORK/upper,workdir=$WORK/work" "$SRC"
    mkdir "$SRC/directory"
    for file in used open; do
        echo before >"$SRC/$file"
        ln "$SRC/$file" "$SRC/directory/$file"
    done
    mount_log
    rm "$MNT/used"
    printf 'acknowledged' | dd of="$MNT/directory/used" conv=notrunc,fsync status=none
    # The other name of this one was never used.
    python3 - "$MNT" <<'EOF'
import os, sys
at = os.open(f"{sys.argv[1]}/open", os.O_RDWR)
os.pwrite(at, b"acknowl", 0)
os.fsync(at)
os.unlink(f"{sys.argv[1]}/open")
os.pwrite(at, b"acknowledged", 0)
os.fsync(at)
EOF
    sync "$MNT"
    crash
    mount_log
    for file in used open; do
        [ "$(head -c 12 "$MNT/directory/$file")" = acknowledged ] || fail "$file: $(cat "$MNT/directory/$file")"
        [ ! -e "$MNT/$file" ] || fail "$file is there again"
    done
    "$WEIR" umount "$MNT"
    umount "$SRC"
    ;;
replaced-size)
    # A name that replaced another is not recovered without the new file's size.
    mount_log
    echo old | tee "$MNT/new" >"$MNT/empty"
    sync "$MNT/new"
    python3 - "$MNT" <<'EOF'
import os, sys
for name, data in [("new", b"x" * 640), ("empty", b"")]:
    at = os.open(f"{sys.argv[1]}/{name}-to-be", os.O_CREAT | os.O_RDWR)
    os.write(at, data)
    os.ftruncate(at, 960)
    os.rename(f"{sys.argv[1]}/{name}-to-be", f"{sys.argv[1]}/{name}")
os.fsync(os.open(sys.argv[1], os.O_RDONLY))
EOF
    crash
    recover
    for file in new empty; do
        [ "$(stat -c %s "$SRC/$file")" = 960 ] || fail "$file: $(stat "$SRC/$file")"
    done
    ;;
copied)
    for place in source "$WORK/log"; do
        echo "old content, and more" >"$SRC/old"
        mount_weir_foreground "$SRC" "$MNT" --names log --log "$place"
        printf synced | dd of="$MNT/old" conv=notrunc,fsync status=none
        echo synced >"$MNT/new"
        sync "$MNT/new"
        crash
        cp -a "$SRC" "$WORK/copy"
        for command in "mount $WORK/copy $MNT --log $place" "recover $WORK/copy"; do
            # shellcheck disable=SC2086
            ! "$WEIR" $command 2>"$WORK/said" || fail "weir $command succeeds on a copy"
            grep -q 'was copied from another directory' "$WORK/said" || fail "weir $command: $(cat "$WORK/said")"
        done
        "$WEIR" recover "$SRC" >/dev/null
        [ "$(head -c 6 "$SRC/old") $(cat "$SRC/new")" = "synced synced" ] || fail "the original: $(cat "$SRC"/*)"
        # With nothing in its log a copy is a SOURCE as any.
        rm -r "$WORK/copy"
        cp -a "$SRC" "$WORK/copy"
        mount_weir "$WORK/copy" "$MNT"
        umount_weir "$MNT"
        rm -r "$WORK/copy" "$SRC/new"
    done
    ;;
directory-times-stay)
    # That home is given what was changed is no change: a directory's ctime stays, also to who asks at that moment.
    mount_weir "$SRC" "$MNT" --names log -o attr_timeout=0
    python3 - "$MNT" <<'PYTHON' || fail "the ctime of a directory changes when its names go home"
import os
import sys
import time

for turn in range(12):
    directory = f"{sys.argv[1]}/{turn}"
    os.mkdir(directory)
    for nth in range(60):
        os.close(os.open(f"{directory}/{nth}", os.O_CREAT | os.O_WRONLY))
    os.utime(directory, (1e9, 1e9))
    seen = set()
    until = time.monotonic() + 0.8
    while time.monotonic() < until:
        seen.add(os.stat(directory).st_ctime_ns)
    if len(seen) > 1:
        sys.exit(f"turn {turn}: {sorted(seen)}")
PYTHON
    # Also one that has gone home before, in which more names are made.
    python3 - "$MNT" "$WEIR" <<'PYTHON' || fail "the ctime of a directory with new names changes when they go home"
import os
import subprocess
import sys

directory = f"{sys.argv[1]}/again"
os.mkdir(directory)
for turn in range(6):
    for nth in range(60):
        os.close(os.open(f"{directory}/{turn}-{nth}", os.O_CREAT | os.O_WRONLY))
    seen = {os.stat(directory).st_ctime_ns}
    sync = subprocess.Popen([sys.argv[2], "sync", sys.argv[1]])
    while sync.poll() is None:
        seen.add(os.stat(directory).st_ctime_ns)
    if sync.returncode or len(seen | {os.stat(directory).st_ctime_ns}) > 1:
        sys.exit(f"turn {turn}: {sync.returncode}, {sorted(seen)}")
PYTHON
    umount_weir "$MNT"
    ;;
copy-in-the-mount)
    # cp(1) uses copy_file_range(2), here of files that SOURCE does not have yet; tar(1) complains if what it packs changes.
    mount_log
    mkdir "$MNT/one"
    for number in $(seq 200); do echo "content $number" >"$MNT/one/$number"; done
    cp -a "$MNT/one" "$MNT/two"
    cp "$MNT/two/7" "$MNT/two/8"
    for _ in $(seq 12); do
        tar -c -f "$WORK/packed" -C "$MNT" one two || fail "tar"
        sleep 0.1
    done
    "$WEIR" umount "$MNT"
    diff -rq "$SRC/one" "$SRC/two" >"$WORK/differ" || true
    expect_equal "files that differ" "$(grep -c . "$WORK/differ")" 1
    [ "$(cat "$SRC/two/8")" = "content 7" ] || fail "$(cat "$WORK/differ")"
    ;;
log-full-of-data)
    # Where handles do not last the log is needed from where it says where nodes are. Data that fills it is no reason to wait.
    mkdir "$WORK/lower" "$WORK/upper" "$WORK/work"
    mount -t overlay overlay -o "lowerdir=$WORK/lower,upperdir=$WORK/upper,workdir=$WORK/work" "$SRC"
    mount_weir_foreground "$SRC" "$MNT" --names log --log-size 1M --dirty-expire 1h
    for round in 1 2 3; do
        timeout 30 touch "$MNT/before-$round" || fail "round $round: a name waits for ever"
        dd if=/dev/zero of="$MNT/data" bs=4k count=1000 oflag=dsync conv=notrunc status=none
    done
    timeout 30 touch "$MNT/after" || fail "a name waits for ever"
    sync "$MNT/after"
    crash
    mount_log
    [ -e "$MNT/after" ] && [ -e "$MNT/before-1" ] || fail "$(ls "$MNT")"
    "$WEIR" umount "$MNT"
    umount "$SRC"
    ;;
removal-from-a-full-disk)
    # SOURCE's file system becomes full while names are on their way. What is removed through the mount makes room for them.
    loop_filesystem "$WORK/image" 700M "$WORK/disk" mkfs.ext4 -q -N 100000 -m 0
    SRC=$WORK/disk/src
    mkdir "$SRC"
    mount_log
    mkdir "$MNT/empty"
    head -c 50M /dev/zero >"$MNT/large"
    "$WEIR" sync "$MNT"
    python3 - "$MNT" "$WORK/disk/filling" <<'PYTHON'
import os, sys
mount, filling = sys.argv[1:]
at = os.open(filling, os.O_CREAT | os.O_RDWR)
size, step = 0, 1 << 30
while step >= 4096:
    try:
        os.posix_fallocate(at, size, step)
        size += step
    except OSError:
        step //= 2
# What was known of SOURCE's room still counts.
os.mkdir(f"{mount}/new")
os.fsync(os.open(mount, os.O_RDONLY))
PYTHON
    soon refused || fail "SOURCE refuses nothing, so the test is void: $("$WEIR" status "$MNT")"
    soon has_no_room || fail "directories are made on a full disk"
    timeout 60 rmdir "$MNT/empty" || fail "a directory cannot be removed from a full disk"
    timeout 60 rm "$MNT/large" || fail "a file cannot be removed from a full disk"
    soon "$WEIR" sync "$MNT" || fail "$("$WEIR" status "$MNT")"
    "$WEIR" umount "$MNT"
    [ -d "$SRC/new" ] && [ ! -e "$SRC/empty" ] && [ ! -e "$SRC/large" ] || fail "$(ls "$SRC")"
    umount "$WORK/disk"
    ;;
sync-is-refused)
    # `weir sync` says what SOURCE refuses as soon as all else is there, also while programs go on.
    need_command chattr
    trap 'status=$?; chattr -f -i "$SRC/full" || true; (exit "$status"); at_exit' EXIT
    mkdir "$SRC/full" "$SRC/moved" "$SRC/busy"
    mount_log
    ls "$MNT/full" "$MNT/moved" "$MNT/busy" >/dev/null
    # Changes in a directory that is found to be immutable would not be logged.
    : >"$MNT/full/changed"
    rm "$MNT/full/changed"
    "$WEIR" sync "$MNT"
    chattr +i "$SRC/full"
    for number in $(seq 100); do : >"$MNT/full/$number"; done
    mkdir "$MNT/full/new" "$MNT/others"
    sync_refused() {
        local began=$SECONDS status=0
        timeout 60 "$WEIR" sync "$MNT" >"$WORK/said" 2>&1 || status=$?
        [ "$status" = 1 ] || fail "weir sync, $1: $status, $(cat "$WORK/said")"
        grep -q "could not be made in SOURCE" "$WORK/said" || fail "weir sync, $1: $(cat "$WORK/said")"
        [ $((SECONDS - began)) -le "$2" ] || fail "weir sync, $1: took $((SECONDS - began)) s"
    }
    sync_refused "of 101 names" 3
    [ -d "$SRC/others" ] || fail "weir sync does not bring home what SOURCE takes: $(ls "$SRC")"
    python3 - "$MNT/busy" <<'PYTHON' &
import os, sys
while True:
    for number in range(100):
        os.mkdir(f"{sys.argv[1]}/{number}")
    for number in range(100):
        os.rmdir(f"{sys.argv[1]}/{number}")
PYTHON
    busy=$!
    sync_refused "beside a program" 15
    kill "$busy"
    wait "$busy" 2>/dev/null || true
    # The directory's new place waits, and somebody else moves it in SOURCE.
    mv "$MNT/moved" "$MNT/full/new/moved"
    mkdir "$MNT/moved"
    mv "$SRC/moved" "$SRC/elsewhere"
    mkdir "$SRC/moved"
    sync_refused "of a directory that is not there" 3
    chattr -i "$SRC/full"
    sync_refused "of that directory alone" 3
    [ -d "$SRC/full/new" ] || fail "$(ls "$SRC/full")"
    ! timeout 60 "$WEIR" umount --force "$MNT" 2>"$WORK/said" || fail "weir umount --force loses nothing"
    soon ended "$WEIR_PID" || fail "the daemon goes on"
    ;;
fsync-is-refused)
    # An fsync of a file or directory reports once what SOURCE refused of it; what was synced is in the log nevertheless.
    need_command chattr
    trap 'status=$?; chattr -f -i "$SRC/full" || true; (exit "$status"); at_exit' EXIT
    mkdir "$SRC/full"
    echo old >"$SRC/full/old"
    mount_log
    ls "$MNT/full" >/dev/null
    # Changes in a directory that is found to be immutable would not be logged.
    : >"$MNT/full/changed"
    rm "$MNT/full/changed"
    "$WEIR" sync "$MNT"
    chattr +i "$SRC/full"
    python3 - "$WEIR" "$MNT" "$SRC" <<'PYTHON'
import errno, os, subprocess, sys, time
weir, mount, source = sys.argv[1:]
full = f"{mount}/full"

def refused(count):
    end = time.monotonic() + 60
    text = f"{count} refused by SOURCE"
    while text not in (said := subprocess.run([weir, "status", mount], capture_output=True, text=True).stdout):
        if time.monotonic() > end:
            sys.exit(f"SOURCE does not refuse {count} changes: {said}")
        time.sleep(0.05)

def expect(what, at, expected, sync=os.fsync):
    for error in expected:
        try:
            sync(at)
            got = 0
        except OSError as raised:
            got = raised.errno
        if got != error:
            sys.exit(f"a sync of {what}: {os.strerror(got)}, not {os.strerror(error)}")

old, new = os.open(f"{full}/old", os.O_RDWR), os.open(f"{full}/new", os.O_CREAT | os.O_RDWR)
second = os.open(f"{full}/new", os.O_RDONLY)
directory, root = os.open(full, os.O_RDONLY), os.open(mount, os.O_RDONLY)
refused(1)
os.write(new, b"written")
expect("the new file", new, [errno.EACCES, 0, 0])
expect("its other description", second, [errno.EACCES, 0], os.fdatasync)
expect("one that was opened later", os.open(f"{full}/new", os.O_RDONLY), [0])
expect("the directory", directory, [errno.EACCES, 0, 0])
expect("another file", old, [0])
expect("another directory", root, [0])
# It is tried again, which is no news.
time.sleep(6)
for what, at in [("the new file", new), ("the directory", directory)]:
    expect(f"{what} after another attempt", at, [0])
os.rename(f"{full}/old", f"{full}/renamed")
refused(2)
expect("the renamed file", old, [errno.EACCES, 0])
expect("the directory of the rename", directory, [errno.EACCES, 0])
expect("the new file after another change", new, [0])
subprocess.run(["chattr", "-i", f"{source}/full"], check=True)
subprocess.run([weir, "sync", mount], check=True)
os.mkdir(f"{full}/below")
subprocess.run([weir, "sync", mount], check=True)
for what, at in [("the new file", new), ("the directory", directory), ("the renamed file", old)]:
    expect(f"{what} in SOURCE", at, [0])
subprocess.run(["chattr", "+i", f"{source}/full"], check=True)
last = os.open(f"{full}/last", os.O_CREAT | os.O_RDWR)
refused(1)
os.write(last, b"synced")
expect("the last file", last, [errno.EACCES])
PYTHON
    crash
    chattr -i "$SRC/full"
    recover
    expect_equal "the last file" "$(cat "$SRC/full/last")" synced
    ;;
rest-is-home)
    # What SOURCE refuses keeps nothing else from it: `weir sync`, `weir umount` and `weir umount --force` bring the rest home.
    need_command chattr
    trap 'status=$?; chattr -f -i "$SRC/full" || true; (exit "$status"); at_exit' EXIT
    mkdir "$SRC/full" "$SRC/well"
    head -c 100000 /dev/zero >"$SRC/well/old"
    mount_log
    ls "$MNT/full" "$MNT/well" >/dev/null
    # Changes in a directory that is found to be immutable would not be logged.
    : >"$MNT/full/changed"
    rm "$MNT/full/changed"
    "$WEIR" sync "$MNT"
    chattr +i "$SRC/full"
    mkdir "$MNT/full/new"
    echo kept >"$MNT/full/new/file"
    # written TEXT: into an old file and many new ones, at once before the command that is to bring them home.
    written() {
        printf %s "$1" | dd of="$MNT/well/old" bs=1 seek=50000 conv=notrunc status=none
        for number in $(seq 100); do echo "$1 $number" >"$MNT/well/$number"; done
    }
    # brings_home TEXT COMMAND...: fails for what is refused, and SOURCE has all else.
    brings_home() {
        local text=$1 status=0 began=$SECONDS
        shift
        timeout 60 "$WEIR" "$@" 2>"$WORK/said" || status=$?
        [ "$status" = 1 ] || fail "weir $*: $status, $(cat "$WORK/said")"
        grep -q full/new "$WORK/said" || fail "weir $* says: $(cat "$WORK/said")"
        [ $((SECONDS - began)) -le 10 ] || fail "weir $* took $((SECONDS - began)) s"
        tail -c +50001 "$SRC/well/old" | grep -q -a "^$text" || fail "weir $*: the old file"
        for number in $(seq 100); do
            [ "$(cat "$SRC/well/$number")" = "$text $number" ] || fail "weir $*: new file $number"
        done
    }
    for turn in 1 2; do
        written "sync $turn"
        brings_home "sync $turn" sync "$MNT"
        written "umount $turn"
        brings_home "umount $turn" umount "$MNT"
    done
    written force
    brings_home force umount --force "$MNT"
    soon ended "$WEIR_PID" || fail "the daemon goes on"
    chattr -i "$SRC/full"
    recover
    [ -d "$SRC/full/new" ] || fail "the log does not keep what was refused: $(find "$SRC/full")"
    ;;
force-in-use)
    # A program makes files until the mount ends by force: SOURCE has each that it has closed.
    mkdir "$SRC/made"
    : >"$WORK/closed"
    mount_log
    python3 - "$MNT/made" "$WORK/closed" <<'PYTHON' &
import os, sys
made, closed = sys.argv[1], open(sys.argv[2], "w", buffering=1)
inside = os.open(made, os.O_RDONLY)
try:
    for number in range(10**9):
        with open(f"{made}/{number}", "wb") as file:
            file.write(b"%d\n" % number * 1000)
        closed.write(f"{number}\n")
except OSError:
    pass
PYTHON
    program=$!
    long_enough() { [ "$(wc -l <"$WORK/closed")" -gt 100 ]; }
    soon long_enough || fail "the program does not begin"
    timeout 60 "$WEIR" umount --force "$MNT" 2>"$WORK/said" || fail "weir umount --force: $(cat "$WORK/said")"
    wait "$program"
    soon ended "$WEIR_PID" || fail "the daemon goes on"
    while read -r number; do
        [ "$(wc -c <"$SRC/made/$number")" = $(((${#number} + 1) * 1000)) ] || fail "file $number of $(wc -l <"$WORK/closed")"
    done <"$WORK/closed"
    counts "$(wc -l <"$WORK/closed") files"
    ;;
removed-in-source)
    # Somebody removes directories and a file in SOURCE with which the mount has plans. What is new is kept, and nothing is refused for
    # ever: also what is in a directory that is to be moved.
    need_command chattr
    trap 'status=$?; chattr -f -i "$SRC/stays" || true; (exit "$status"); at_exit' EXIT
    mkdir "$SRC/gone" "$SRC/moved" "$SRC/stays"
    echo old >"$SRC/file"
    mount_log
    ls "$MNT/gone" "$MNT/moved" "$MNT/stays" >/dev/null
    : >"$MNT/stays/changed"
    rm "$MNT/stays/changed"
    : >"$MNT/gone/removed"
    "$WEIR" sync "$MNT"
    # The moves wait.
    chattr +i "$SRC/stays"
    python3 - "$MNT" "$SRC" <<'EOF'
import os, shutil, sys

mount, source = sys.argv[1:]
os.rename(f"{mount}/moved", f"{mount}/stays/moved")
os.rename(f"{mount}/file", f"{mount}/stays/file")
moved, gone = (os.open(f"{mount}/{name}", os.O_RDONLY) for name in ["stays/moved", "gone"])
for directory in "moved", "gone":
    shutil.rmtree(f"{source}/{directory}")
os.unlink(f"{source}/file")


def make(name, directory, content):
    at = os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=directory)
    os.write(at, content)
    os.close(at)


make("new", moved, b"moved/new")
make("new", gone, b"gone/new")
os.mkdir("directory", dir_fd=gone)
make("directory/new", gone, b"gone/directory/new")
EOF
    chattr -i "$SRC/stays"
    synced() { timeout 60 "$WEIR" sync "$MNT" 2>"$WORK/said"; }
    soon synced || fail "$(cat "$WORK/said")"
    for name in moved/new gone/new gone/directory/new; do
        found=$(find "$SRC" -path "$SRC/lost+weir-*/new" -exec grep -l -x -F "$name" {} +) || fail "$name: $(find "$SRC")"
        [ "$(wc -l <<<"$found")" = 1 ] || fail "$name: $found"
        cmp "$found" "$MNT/${found#"$SRC/"}"
    done
    expect_equal "what was given up" "$(ls "$SRC/stays")" ""
    timeout 60 "$WEIR" status "$MNT" | grep -q "conflicts.*names changed in SOURCE" || fail "$("$WEIR" status "$MNT")"
    umount_weir "$MNT"
    ;;
forced-end)
    # SOURCE refuses a new directory, and what is in it has no place there. The mount ends by force, and says what SOURCE does not
    # have. The log keeps it.
    need_command chattr
    trap 'status=$?; chattr -f -i "$SRC/full" || true; (exit "$status"); at_exit' EXIT
    mkdir "$SRC/full"
    mount_log
    ls "$MNT/full" >/dev/null
    # Changes in a directory that is found to be immutable would not be logged.
    : >"$MNT/full/changed"
    rm "$MNT/full/changed"
    "$WEIR" sync "$MNT"
    chattr +i "$SRC/full"
    mkdir "$MNT/full/new" "$MNT/full/new/moved"
    echo new >"$MNT/full/new/moved/file"
    ! timeout 60 "$WEIR" sync "$MNT" 2>"$WORK/said" || fail "weir sync succeeds"
    ! timeout 60 "$WEIR" umount "$MNT" 2>"$WORK/said" || fail "weir umount succeeds"
    status=0
    timeout 60 "$WEIR" umount --force "$MNT" 2>"$WORK/said" || status=$?
    [ "$status" = 1 ] || fail "weir umount --force: $status, $(cat "$WORK/said")"
    # Three of seven are named: which, is not said.
    for text in "full/new" "they are in the redo log" "of 4 KiB of written data"; do
        grep -q -F "$text" "$WORK/said" || fail "weir umount --force does not say '$text': $(cat "$WORK/said")"
    done
    soon ended "$WEIR_PID" || fail "the daemon goes on"
    chattr -i "$SRC/full"
    recover
    [ -f "$SRC/full/new/moved/file" ] || fail "$(cat "$WORK/said"): $(find "$SRC")"
    ;;
unmounted-by-hand)
    # After umount(8) the daemon goes on until SOURCE has taken what it refused, or a signal or `weir umount --force` ends it: it says
    # so, and is found by SOURCE or mount point. A signal loses nothing, also of what was not synced.
    need_command chattr
    trap 'status=$?; chattr -f -i "$SRC/full" || true; (exit "$status"); at_exit' EXIT
    mkdir "$SRC/full" "$WORK/other" "$WORK/other-mnt"
    says() { grep -q -F -e "$1" "$WORK/said" || fail "it does not say '$1': $(cat "$WORK/said")"; }
    for round in taken signalled forced; do
        mount_weir_foreground "$SRC" "$MNT" --names log --log-file "$WORK/$round.log"
        ls "$MNT/full" >/dev/null
        # Changes in a directory that is found to be immutable would not be logged.
        : >"$MNT/full/changed"
        rm "$MNT/full/changed"
        "$WEIR" sync "$MNT"
        chattr +i "$SRC/full"
        mkdir "$MNT/full/$round"
        echo synced >"$MNT/full/$round/file"
        sync "$MNT/full/$round/file"
        soon refused || fail "SOURCE refuses nothing: $("$WEIR" status "$MNT")"
        [ "$round" != signalled ] || echo "not synced" >>"$MNT/full/$round/file"
        umount "$MNT"
        soon grep -q "unmounted, but" "$WORK/$round.log" || fail "$(cat "$WORK/$round.log")"
        # It gets the device number that the other had, as a rule.
        "$WEIR" mount "$WORK/other" "$WORK/other-mnt" 2>/dev/null
        cp "$WORK/$round.log" "$WORK/said"
        says "full/$round: Operation not permitted"
        says "tried again by process $WEIR_PID"
        says "'weir umount --force $SRC'"
        says "redo log, $SRC/.weir/log"
        for path in "$SRC" "$MNT"; do
            timeout 60 "$WEIR" status "$path" >"$WORK/said"
            says "1 refused by SOURCE (full/$round"
        done
        # It fails if any other mount of this machine does not answer.
        "$WEIR" status >"$WORK/said" 2>/dev/null || true
        says "process $WEIR_PID"
        ! timeout 60 "$WEIR" umount "$MNT" 2>"$WORK/said" || fail "weir umount succeeds"
        says "unmounted, but 1 changes"
        ! timeout 60 "$WEIR" mount "$SRC" "$MNT" 2>"$WORK/said" || fail "weir mount succeeds"
        says "'weir umount --force $SRC'"
        "$WEIR" umount "$WORK/other-mnt"
        expect_equal "the times that it was told" "$(grep -c "unmounted, but" "$WORK/$round.log")" 1
        if [ "$round" = taken ]; then
            chattr -i "$SRC/full"
            soon ended "$WEIR_PID" || fail "the daemon goes on: $(cat "$WORK/$round.log")"
            expect_equal "what SOURCE has" "$(cat "$SRC/full/taken/file")" synced
        elif [ "$round" = signalled ]; then
            kill -TERM "$WEIR_PID"
            soon ended "$WEIR_PID" || fail "the daemon goes on after SIGTERM: $(cat "$WORK/$round.log")"
            cp "$WORK/$round.log" "$WORK/said"
            says "unmounted, and nothing is lost, but"
            says "full/signalled/file"
            says "they are in the redo log"
            chattr -i "$SRC/full"
            recover
            expect_equal "what SOURCE has" "$(cat "$SRC/full/signalled/file")" "synced
not synced"
        fi
    done
    ! timeout 60 "$WEIR" umount --force "$SRC" 2>"$WORK/said" || fail "weir umount --force loses nothing"
    says "they are in the redo log"
    soon ended "$WEIR_PID" || fail "the daemon goes on"
    chattr -i "$SRC/full"
    recover
    expect_equal "what SOURCE has" "$(cat "$SRC/full/forced/file")" synced
    ;;
number-of-a-removed-file)
    # An ordinary user's daemon finds files by path. Home has few inodes free, so that names are changed there at once, and gives
    # the inode number of the removed file to the next one.
    need_command setpriv fusermount3 mkfs.ext4
    loop_filesystem "$WORK/image" 512M "$WORK/under" mkfs.ext4 -q -N 512
    SRC=$WORK/under/src
    mkdir "$SRC"
    head -c 65536 /dev/zero >"$SRC/old"
    chown nobody "$SRC/old"
    chmod 755 "$WORK"
    mount_by nobody
    weir mount "$SRC" "$MNT" --names log --dirty-expire 1h --fetch lazy --log-file "$DAEMON_LOG"
    as_user nobody python3 - "$MNT" >"$WORK/reused" <<'EOF'
import os, sys, time
mount = sys.argv[1]
old = os.open(f"{mount}/old", os.O_RDWR)
for number in range(0, 16, 2):
    os.pwrite(old, b"of the removed file", number * 4096 + 100)
os.fsync(old)
inode = os.fstat(old).st_ino
os.unlink(f"{mount}/old")
os.close(old)
directory = os.open(mount, os.O_RDONLY)
os.fsync(directory)
time.sleep(1)
for number in range(8):
    new = os.open(f"{mount}/new{number}", os.O_CREAT | os.O_RDWR)
    os.write(new, b"n" * 200)
    os.fsync(new)
    os.pwrite(new, b"mine", 20)
    os.fsync(new)
    if os.fstat(new).st_ino == inode:
        print("reused")
os.fsync(directory)
EOF
    grep -q reused "$WORK/reused" || fail "home gave no new file the removed file's inode number, so the test is void"
    kill -9 "$(pgrep -o -f "mount $SRC $MNT")"
    soon umount -l "$MNT" 2>/dev/null
    weir recover "$SRC"
    for number in 0 1 2 3 4 5 6 7; do
        ! grep -q "of the removed file" "$SRC/new$number" || fail "new$number has the removed file's data"
    done
    soon umount "$WORK/under" 2>/dev/null
    ;;
two-names)
    # On an overlay, files with two names, of which one is removed: what is done by the other one, and synced, is recovered.
    mkdir "$WORK/lower" "$WORK/upper" "$WORK/work"
    mount -t overlay overlay -o "lowerdir=$WORK/lower,upperdir=$WORK/upper,workdir=$WORK/work" "$SRC"
    mkdir "$SRC/removed" "$SRC/kept"
    for file in unlinked replaced open chmod link; do
        echo before >"$SRC/removed/$file"
        chmod 644 "$SRC/removed/$file"
        ln "$SRC/removed/$file" "$SRC/kept/$file"
    done
    mount_log
    python3 - "$MNT" "$SRC" <<'EOF'
import ctypes, os, sys, time

def sync(path):
    at = os.open(path, os.O_RDONLY)
    os.fsync(at)
    os.close(at)

mount, source = sys.argv[1:]
removed, kept = f"{mount}/removed", f"{mount}/kept"
for file in "unlinked", "replaced":
    # It is known by both; the last is how it is found.
    os.stat(f"{kept}/{file}"), os.stat(f"{removed}/{file}")
    if file == "unlinked":
        os.unlink(f"{removed}/{file}")
    else:
        open(f"{mount}/new", "w").close()
        os.rename(f"{mount}/new", f"{removed}/{file}")
    at = os.open(f"{kept}/{file}", os.O_RDWR)
    os.pwrite(at, b"acknowledged", 0)
    os.fsync(at)
at = os.open(f"{removed}/open", os.O_RDWR)
os.pwrite(at, b"acknowl", 0)
os.fsync(at)
os.unlink(f"{removed}/open")
os.close(os.open(f"{kept}/open", os.O_RDONLY))
os.pwrite(at, b"acknowledged", 0)
os.fsync(at)
for file in "chmod", "link":
    at = os.open(f"{kept}/{file}", os.O_RDONLY)
    os.stat(f"{removed}/{file}")
    os.unlink(f"{removed}/{file}")
    os.fchmod(at, 0o640)
    until = time.monotonic() + 30
    while os.path.exists(f"{source}/removed/{file}"):
        assert time.monotonic() < until, "home does not get it"
        time.sleep(0.001)
    time.sleep(0.03)
    if file == "chmod":
        os.fchmod(at, 0o600)
    else:
        follow, here = 0x400, -100
        linked = ctypes.CDLL(None, use_errno=True).linkat(here, b"/proc/self/fd/%d" % at, here, f"{kept}/linked".encode(), follow)
        assert linked == 0, os.strerror(ctypes.get_errno())
for directory in kept, removed, mount:
    sync(directory)
EOF
    crash
    mount_log
    for file in unlinked replaced open; do
        [ "$(head -c 12 "$MNT/kept/$file")" = acknowledged ] || fail "$file: $(cat "$MNT/kept/$file")"
    done
    [ "$(stat -c %a "$MNT/kept/chmod")" = 600 ] || fail "$(stat "$MNT/kept/chmod")"
    [ "$MNT/kept/link" -ef "$MNT/kept/linked" ] || fail "$(ls -li "$MNT/kept")"
    expect_equal "names that were removed" "$(ls "$MNT/removed")" replaced
    "$WEIR" umount "$MNT"
    umount "$SRC"
    ;;
forgotten-size)
    # The size of a file that home does not have yet is there when the kernel has forgotten the file.
    mount_log
    for number in $(seq 10); do
        : >"$MNT/file-$number"
        truncate -s "$((4000 + number))" "$MNT/file-$number"
        echo 2 >/proc/sys/vm/drop_caches
        expect_equal "size of file $number" "$(stat -c %s "$MNT/file-$number")" "$((4000 + number))"
    done
    "$WEIR" umount "$MNT"
    expect_equal "size of the first in SOURCE" "$(stat -c %s "$SRC/file-1")" 4001
    ;;
listing-commits-nothing)
    # Directories that nothing is to be done in are listed and removed without a write of the log for each: it is written twice
    # a second.
    for number in $(seq 100); do mkdir "$SRC/$number"; : >"$SRC/$number/file"; done
    mount_log
    before=$(status "$MNT" log_groups)
    began=$(date +%s%N)
    rm -r "$MNT"/[1-9]*
    # Of these many milliseconds.
    took=$((($(date +%s%N) - began) / 1000000))
    groups=$(($(status "$MNT" log_groups) - before))
    [ "$groups" -le "$((2 + took / 400))" ] || fail "$groups groups of the log in $took ms"
    "$WEIR" umount "$MNT"
    expect_equal "left in SOURCE" "$(ls "$SRC")" ""
    counts "$groups groups for 100 directories"
    ;;
unnamed-files)
    # O_TMPFILE. By a power cut: what got a name and was synced after that is there under it, whether its data was synced before
    # or not; of what got none nothing is left.
    start_disk none 512M ext4
    mount "$DISK_DEVICE" "$SRC"
    mkdir "$SRC/d"
    sync -f "$SRC"
    cut=0
    for name in early late changed data early late changed data; do
        cut=$((cut + 1))
        rm -f "$SRC"/d/*
        mount_weir_foreground "$SRC" "$MNT" --log-size 2M
        inodes=$(stat -f -c %d "$MNT")
        exec 7> >(exec python3 -c '
import os, sys, time

at = sys.argv[1]

def unnamed(content):
    fd = os.open(at, os.O_RDWR | os.O_TMPFILE, 0o600)
    os.write(fd, content)
    return fd

def name(fd, name):
    os.link(f"/proc/self/fd/{fd}", f"{at}/{name}", src_dir_fd=fd)

never, file = unnamed(b"never" * 5000), unnamed(b"content" * 1000)
os.fsync(never)
# The sync of another file would make names durable, too.
if sys.argv[3] != "late":
    os.fsync(file)
name(file, sys.argv[3])
if sys.argv[3] == "changed":
    os.pwrite(file, b"x" * 3, 1)
if sys.argv[3] == "data":
    os.fdatasync(file)
os.fsync(file)
print("synced", file=open(sys.argv[2], "w"), flush=True)
sys.stdin.read()
' "$MNT/d" "$WORK/synced-$cut" "$name")
        program=$!
        soon test -s "$WORK/synced-$cut" || fail "cut $cut: the program does not get on"
        "$BENCH" disk cut --dir "$DISK" --seed "$cut" >/dev/null
        kill -9 "$WEIR_PID"
        wait "$WEIR_PID" 2>/dev/null || true
        exec 7>&-
        wait "$program" || true
        umount -l "$MNT"
        umount_soon "$SRC"
        "$BENCH" disk restore --dir "$DISK"
        mount "$DISK_DEVICE" "$SRC"
        recover
        expect_equal "cut $cut: names" "$(ls "$SRC/d")" "$name"
        case $name in changed) start=cxxxent ;; *) start=content ;; esac
        expect_equal "cut $cut: $name" "$(head -c 7 "$SRC/d/$name") $(stat -c %s "$SRC/d/$name")" "$start 7000"
    done
    # None is left when nobody has it open any more, home or in memory.
    mount_log
    python3 -c '
import os, sys
for _ in range(300):
    fd = os.open(sys.argv[1], os.O_RDWR | os.O_TMPFILE, 0o600)
    os.write(fd, b"x" * 100000)
    os.close(fd)
' "$MNT/d"
    soon all_clean || fail "data of files without names is kept: $("$WEIR" status "$MNT")"
    "$WEIR" umount "$MNT"
    [ "$(stat -f -c %d "$SRC")" -ge "$inodes" ] || fail "inodes of files without names are left: $(stat -f "$SRC")"
    umount "$SRC"
    stop_disk
    ;;
one-sync-of-home)
    # A sync of everything syncs SOURCE when all is there, not again and again while it is brought there.
    need_command strace
    mkdir "$SRC/tree"
    (cd "$SRC/tree" && seq 1000 | xargs touch)
    # SOURCE takes 100 ms to remove a file.
    strace -f --seccomp-bpf -qq -o "$WORK/calls" -e trace=syncfs,unlinkat -e inject=unlinkat:delay_enter=100000 \
        "$WEIR" mount --foreground "$SRC" "$MNT" &
    WEIR_PID=$!
    soon serves_or_ended "$MNT" || fail "no mount"
    before=$(grep -c 'syncfs(' "$WORK/calls" || true)
    rm -r "$MNT/tree"
    "$WEIR" sync "$MNT"
    syncs=$(($(grep -c 'syncfs(' "$WORK/calls") - before))
    # One for the names and one for the data; one more a second while it lasts.
    [ "$syncs" -le 4 ] || fail "$syncs syncs of SOURCE, at most 4 are expected"
    [ ! -e "$SRC/tree" ] || fail "the tree is still in SOURCE"
    "$WEIR" umount "$MNT"
    wait
    counts "$syncs syncs of SOURCE"
    ;;
changes-wake-nobody)
    # Home is given changes half a second later: meanwhile no thread is woken for each.
    mount_log
    switches() {
        grep -l weir-names /proc/"$WEIR_PID"/task/*/comm | sed 's/comm$/status/' | xargs sed -n 's/^voluntary_ctxt_switches:\s*//p' |
            paste -sd+ | bc
    }
    touch "$MNT/first"
    before=$(switches)
    python3 -c '
import os, sys
for _ in range(1000):
    os.close(os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY))
    os.unlink(sys.argv[1])
' "$MNT/passing"
    woken=$(($(switches) - before))
    [ "$woken" -le 500 ] || fail "threads were woken $woken times for 2,000 changes, at most 500 are expected"
    "$WEIR" umount "$MNT"
    wait
    counts "woken $woken times for 2,000 changes"
    ;;
renamed-while-removed)
    # On an overlay, files with two names: one is renamed while SOURCE removes the other, half a second after it was removed.
    mkdir "$WORK/lower" "$WORK/upper" "$WORK/work"
    mount -t overlay overlay -o "lowerdir=$WORK/lower,upperdir=$WORK/upper,workdir=$WORK/work" "$SRC"
    for try in $(seq 25); do
        mkdir "$SRC/renamed" "$SRC/removed"
        for number in $(seq 30); do
            echo before >"$SRC/removed/$number"
            ln "$SRC/removed/$number" "$SRC/renamed/$number"
        done
        mount_log
        python3 - "$MNT" "$try" <<'EOF'
import os, sys, time

def sync(path):
    at = os.open(path, os.O_RDONLY)
    os.fsync(at)
    os.close(at)

renamed, removed = f"{sys.argv[1]}/renamed", f"{sys.argv[1]}/removed"
os.listdir(renamed), os.listdir(removed)
for number in range(1, 31):
    os.unlink(f"{removed}/{number}")
sync(removed)
time.sleep(0.35 + 0.01 * int(sys.argv[2]))
for number in range(1, 31):
    os.rename(f"{renamed}/{number}", f"{renamed}/new-{number}")
sync(renamed)
EOF
        crash
        recover
        expect_equal "try $try: renamed" "$(find "$SRC/renamed" -name 'new-*' | wc -l)" 30
        rm -r "$SRC/renamed" "$SRC/removed"
    done
    umount "$SRC"
    ;;
esac
