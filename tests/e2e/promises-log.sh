#!/usr/bin/env bash
# Acknowledged data is there after a crash, recovery does not overwrite newer data at home, and failed syncs of home lose
# nothing.
# cases: recovery-keeps-rewritten-file recovery-keeps-truncation recovery-keeps-newer-page failed-home-sync failed-home-sync-umount failed-log-sync failed-log-no-sync failed-log-parked failed-log-made failed-log-again failed-log-at-once failed-log-dropped failed-log-in-order failed-log-ended created-and-synced
# homes: sshfs
# homes-cases: failed-log-parked failed-log-made failed-log-sync failed-log-no-sync failed-log-ended
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only

# Waits until a file is settled: nothing is dirty, SOURCE has the content that programs see, and it is durable.
settle() {
    soon settled "$1" || fail "$1 does not go home by itself: $("$WEIR" status "$MNT")"
    sync -f "$SRC"
}

settled() {
    status_is "$MNT" dirty_pages 0 && cmp -s "$SRC/$1" "$MNT/$1"
}

kill_daemon() {
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    umount -l "$MNT"
}

# recovered NAME: kills the daemon and recovers; the file in SOURCE must be unchanged.
recovered() {
    cp "$SRC/$1" "$WORK/settled"
    kill_daemon
    cmp "$SRC/$1" "$WORK/settled" || fail "the kill alone changed $1 at home"
    "$WEIR" recover "$SRC"
    cmp "$SRC/$1" "$WORK/settled" ||
        fail "recovery changed $1: $(stat -c %s "$SRC/$1") bytes instead of $(stat -c %s "$WORK/settled")"
}

# A home in an image on a full tmpfs, with a hole in the image under the file `victim`: a write there fails for lack of
# space. Unaligned data goes home by the page cache, so that the write succeeds and a sync of home fails.
failing_home() {
    local block program _
    need_command mkfs.ext4 fallocate filefrag
    mkdir "$WORK/memory"
    mount -t tmpfs -o size=64M none "$WORK/memory"
    image=$WORK/memory/image
    truncate -s 32M "$image"
    mkfs.ext4 -q -b 4096 -m 0 -E lazy_itable_init=0,lazy_journal_init=0,nodiscard "$image"
    mkdir "$WORK/disk"
    mount -o loop "$image" "$WORK/disk" || skip "cannot mount a loop device"
    mkdir "$WORK/disk/source"
    SRC=$WORK/disk/source
    head -c 300 /dev/zero >"$SRC/victim"
    head -c 1M /dev/zero >"$SRC/other"
    sync -f "$SRC"
    block=$(filefrag -v -b4096 "$SRC/victim" | awk '$1 == "0:" { sub(/\.\./, "", $4); print $4 }')
    [ -n "$block" ] || fail "cannot tell where the file is"
    mount_weir_foreground "$SRC" "$MNT" --log "$WORK/log" --log-size 2M --dirty-expire 200ms
    # Syncs the file by the log, and then another file until the log wraps around: it must not overwrite these records.
    python3 - "$MNT" "$WORK/opened" "$WORK/broken" <<'PYTHON' &
import os
import sys
import time

directory, opened, broken = sys.argv[1:]
victim = os.open(f"{directory}/victim", os.O_WRONLY)
# The first sync of a file syncs home, the others are logged.
os.fsync(victim)
os.close(os.open(opened, os.O_CREAT))
while not os.path.exists(broken):
    time.sleep(0.02)
os.pwrite(victim, b"V" * 300, 0)
os.fsync(victim)
os.close(victim)
other = os.open(f"{directory}/other", os.O_WRONLY)
failed = 0
for nth in range(600):
    os.pwrite(other, bytes([nth % 255 + 1]) * 4096, nth % 256 * 4096)
    try:
        os.fsync(other)
    except OSError:
        failed += 1
print(f"{failed} of 600 fsyncs of another file failed")
PYTHON
    program=$!
    soon exists "$WORK/opened" || fail "the program did not begin"
    # Fills the holes that mkfs left in the image.
    fallocate -l 32M "$image"
    fallocate --punch-hole -o "$((block * 4096))" -l 4096 "$image"
    dd if=/dev/zero of="$WORK/memory/ballast" bs=4K status=none 2>/dev/null || true
    touch "$WORK/broken"
    wait "$program" || fail "the file could not be synced by the log"
    # A second sync: the kernel reports the error only once.
    sleep 1
    python3 -c '
import os, sys
try:
    os.fsync(os.open(sys.argv[1], os.O_RDWR))
except OSError as error:
    print("fsync of the file:", error)' "$MNT/victim"
    "$WEIR" status "$MNT" --json | python3 "$SUPPORT/field.py" stats.sync_errors stats.destage_errors || true
}

# What is logged just before the log is full.
before_full() { :; }

# A mount with names in a log, in which a rename of each of these files is durable. Then the log cannot be written.
full_log() {
    local file
    mkdir "$WORK/memory"
    mount -t tmpfs -o size=8M none "$WORK/memory"
    truncate -s 64M "$WORK/memory/image"
    loop=$(losetup --find --show "$WORK/memory/image")
    mount_weir_foreground "$SRC" "$MNT" --names log --dirty-expire 1h --log "$loop"
    echo first >"$MNT/removed"
    for file in "$@"; do
        echo "$file" >"$MNT/synced-$file"
    done
    "$WEIR" sync "$MNT"
    for file in "$@"; do
        mv "$MNT/synced-$file" "$MNT/$file"
    done
    # Data is logged, too.
    python3 - "$MNT" "$@" <<'PYTHON'
import os
import sys

os.chdir(sys.argv[1])
for name in sys.argv[2:]:
    file = os.open(name, os.O_WRONLY)
    size = os.fstat(file).st_size
    for turn in "first", "again":
        os.pwrite(file, f"{name} {turn}\n".encode(), size)
        os.fsync(file)
    os.close(file)
PYTHON
    sync "$MNT"
    before_full
    # The next blocks of the log are holes, and there is no space to fill them.
    dd if=/dev/zero of="$WORK/memory/ballast" bs=4K status=none 2>/dev/null || true
}

# A mount with names in a log, in which a rename is durable that home may not have. Then the log fails.
failing_log() {
    full_log logged
    mkdir "$MNT/directory"
    expect_failure "Input/output error" sync "$MNT/directory"
}

change_names() {
    mv "$MNT/logged" "$MNT/renamed"
    rm "$MNT/removed"
    echo second >"$MNT/renamed"
    echo second >"$MNT/new"
}

expect_as_changed() {
    expect_equal "names at home" "$(ls "$SRC")" "$(printf '%s\n' directory new renamed)"
    expect_equal "data at home" "$(cat "$SRC/renamed" "$SRC/new")" "$(printf 'second\nsecond\n')"
}

log_is_void() { compgen -G "$SRC/.weir/void-*" >/dev/null; }
names_are_home() { [ "$(ls "$SRC")" = "$(ls "$MNT")" ]; }

give_back_log() {
    losetup -d "$loop"
    umount_soon "$WORK/memory"
}

heal() {
    rm "$WORK/memory/ballast"
}

expect_victim() {
    local found
    found=$(head -c 300 "$1/victim" | tr -d V | wc -c)
    [ "$found" = 0 ] && [ "$(stat -c %s "$1/victim")" = 300 ] ||
        fail "$found of 300 bytes that were synced are lost, $2"
}

# on_logged_file NAME BYTES: makes a file of zeros, mounts SRC, and runs the Python program on standard input, in which
# `file` is the open file. The program's syncs are logged.
on_logged_file() {
    head -c "$2" /dev/zero >"$SRC/$1"
    mount_weir_foreground "$SRC" "$MNT" --dirty-expire 200ms
    {
        cat <<'PYTHON'
import os
import sys

file = os.open(sys.argv[1], os.O_WRONLY)
# The first sync of a file syncs home, the others are logged.
os.fsync(file)
PYTHON
        cat
    } | python3 - "$MNT/$1"
}

case $1 in
recovery-keeps-rewritten-file)
    on_logged_file conf 4M <<'PYTHON'
os.pwrite(file, b"ten bytes.", 200 << 10)
os.fsync(file)
os.close(file)
file = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
os.write(file, b"the whole text of the configuration")
os.close(file)
PYTHON
    settle conf
    recovered conf
    expect_equal conf "$(cat "$SRC/conf")" "the whole text of the configuration"
    ;;
recovery-keeps-truncation)
    mount_weir_foreground "$SRC" "$MNT" --dirty-expire 200ms
    python3 - "$MNT/messages" <<'PYTHON'
import os
import sys

file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
for line in range(50):
    os.write(file, b"line %d\n" % line)
    os.fsync(file)
PYTHON
    truncate -s 0 "$MNT/messages"
    settle messages
    recovered messages
    expect_equal "bytes" "$(stat -c %s "$SRC/messages")" 0
    ;;
recovery-keeps-newer-page)
    on_logged_file page 64K <<'PYTHON'
os.pwrite(file, b"OLD." * 1024, 8192)
os.fsync(file)
os.pwrite(file, b"NEW." * 1024, 8192)
PYTHON
    settle page
    recovered page
    expect_equal "the page" "$(dd if="$SRC/page" bs=4 skip=2048 count=1 status=none)" NEW.
    ;;
failed-home-sync)
    failing_home
    kill_daemon
    heal
    # A crash of the machine loses the page cache: mounts the file system anew.
    umount_soon "$WORK/disk"
    mount -o loop "$image" "$WORK/disk"
    "$WEIR" recover "$SRC" --log "$WORK/log"
    expect_victim "$SRC" "after a crash"
    umount "$WORK/disk" "$WORK/memory"
    ;;
failed-home-sync-umount)
    failing_home
    for time in first second third; do
        expect_failure "" "$WEIR" umount "$MNT"
        is_mounted "$MNT" || fail "the $time weir umount unmounted although data is not home"
    done
    heal
    # The first attempt may still report an earlier failure.
    "$WEIR" umount "$MNT" || "$WEIR" umount "$MNT" || fail "weir umount fails although home works again"
    wait "$WEIR_PID" || true
    umount_soon "$WORK/disk"
    mount -o loop "$image" "$WORK/disk"
    expect_victim "$SRC" "after weir umount"
    umount "$WORK/disk" "$WORK/memory"
    ;;
failed-log-sync)
    failing_log
    change_names
    timeout 30 "$WEIR" sync "$MNT" || fail "weir sync fails or hangs after the log has failed"
    expect_equal "names at home" "$(ls "$SRC")" "$(ls "$MNT")"
    kill_daemon
    heal
    "$WEIR" recover "$SRC" --log "$loop"
    expect_as_changed
    give_back_log
    ;;
failed-log-no-sync)
    failing_log
    soon log_is_void || fail "nothing notes that the failed log must not be replayed"
    change_names
    soon names_are_home || fail "names do not go home after the log has failed"
    kill_daemon
    heal
    "$WEIR" recover "$SRC" --log "$loop"
    expect_equal "names at home" "$(ls "$SRC")" "$(printf '%s\n' directory new renamed)"
    give_back_log
    ;;
failed-log-parked)
    full_log {one,two,three}-{1..200}
    soon names_are_home || fail "names do not go home"
    # These changes go home together, when the log fails: a file of each circle is parked there for a moment.
    python3 - "$MNT" <<'PYTHON'
import os
import sys

os.chdir(sys.argv[1])
for nth in range(1, 201):
    for old, new in [("one", "free"), ("three", "one"), ("two", "three"), ("free", "two")]:
        os.rename(f"{old}-{nth}", f"{new}-{nth}")
PYTHON
    # Without a process for each look: all names are home some milliseconds later.
    python3 - "$SRC" "$WEIR_PID" <<'PYTHON'
import glob
import os
import signal
import sys


def is_moved():
    for path in glob.iglob("two-*"):
        try:
            with open(path) as file:
                if not file.readline().startswith("two-"):
                    return True
        except FileNotFoundError:
            pass
    return False


os.chdir(sys.argv[1])
while not glob.glob(".weir/void-*"):
    if glob.glob(".weir/parked/*") and is_moved():
        break
os.kill(int(sys.argv[2]), signal.SIGSTOP)
PYTHON
    kill_daemon
    log_is_void && skip "all names were home when the daemon was killed"
    heal
    "$WEIR" recover "$SRC" --log "$loop"
    # The names are as of one moment: each file has one, and what was moved in a circle was moved in that order.
    expect_equal "names" "$(ls "$SRC" | wc -l)" 601
    expect_equal "contents" "$(cd "$SRC" && cat -- *-* | sort)" \
        "$(for file in {one,two,three}-{1..200}; do printf '%s\n' "$file" "$file again"; done | sort)"
    for nth in {1..200}; do
        case $(cd "$SRC" && for name in *-"$nth"; do printf '%s=%s ' "${name%-*}" "$(sed -n '1s/-.*//p' "$name")"; done) in
            "one=one three=three two=two " | "free=one three=three two=two " | "free=one one=three two=two ") ;;
            "free=one one=three three=two " | "one=three three=two two=one ") ;;
            *) fail "files $nth: $(cd "$SRC" && head -n 1 -- *-"$nth")" ;;
        esac
    done
    give_back_log
    ;;
failed-log-made)
    # These are in the log and not at home when it fails, and get their data there.
    before_full() {
        python3 - "$MNT" <<'PYTHON'
import os
import sys

os.chdir(sys.argv[1])
for nth in range(1, 301):
    file = os.open(f"made-{nth}", os.O_WRONLY | os.O_CREAT)
    os.write(file, f"made-{nth}\n".encode())
    os.fsync(file)
    os.close(file)
PYTHON
    }
    has_data() { [ -n "$(find "$SRC" -name 'made-*' -size +0c -print -quit)" ] || log_is_void; }
    full_log logged
    "$WEIR" sync "$MNT" &
    until has_data; do sleep 0.001; done
    kill_daemon
    log_is_void && skip "all names were home when the daemon was killed"
    wait "$!" || true
    heal
    "$WEIR" recover "$SRC" --log "$loop"
    for nth in {1..300}; do
        expect_equal "content" "$(cat "$SRC/made-$nth")" "made-$nth"
    done
    expect_equal "names" "$(ls "$SRC" | wc -l)" 302
    give_back_log
    ;;
failed-log-again)
    failing_log
    soon log_is_void || fail "nothing notes that the failed log must not be replayed"
    # What is made with set-group-ID goes home at once, where these names have been removed just now.
    touch "$MNT/directory/"{made,linked}
    soon names_are_home || fail "names do not go home after the log has failed"
    python3 - "$MNT/directory" <<'PYTHON'
import os
import sys
import time

os.chdir(sys.argv[1])
os.umask(0)
for name in "made", "linked":
    os.unlink(name)
time.sleep(1)
os.close(os.open("made", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o2654))
at = os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o654)
os.link(f"/proc/self/fd/{at}", "linked", src_dir_fd=at, follow_symlinks=True)
os.close(at)
# The kernel asks for them again.
time.sleep(1.2)
for name in "made", "linked":
    os.stat(name)
assert sorted(os.listdir(".")) == ["linked", "made"], os.listdir(".")
PYTHON
    soon names_are_home || fail "names do not go home after the log has failed"
    kill_daemon
    give_back_log
    ;;
failed-log-at-once)
    # What was made there first has left this name. Home is given a link at once, and only then it is noticed that the log has failed.
    before_full() {
        echo made >"$MNT/made"
        sync "$MNT/made"
        mv "$MNT/made" "$MNT/moved"
    }
    full_log logged
    mv "$MNT/moved" "$MNT/renamed"
    python3 - "$MNT" <<'PYTHON'
import os
import sys

os.chdir(sys.argv[1])
file = os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o644)
os.write(file, b"linked\n")
os.link(f"/proc/self/fd/{file}", "made", src_dir_fd=file, follow_symlinks=True)
os.close(file)
PYTHON
    kill_daemon
    heal
    "$WEIR" recover "$SRC" --log "$loop"
    expect_equal "names" "$(ls "$SRC")" "$(printf '%s\n' logged made removed renamed)"
    give_back_log
    ;;
failed-log-dropped)
    # A file that has replaced another one is removed, and its data dropped: no recovery may end between the two.
    full_log logged
    python3 - "$MNT" <<'PYTHON'
import os
import sys

os.chdir(sys.argv[1])
for nth in range(2000):
    file = os.open("new", os.O_WRONLY | os.O_CREAT)
    os.write(file, b"new" * 1000)
    os.close(file)
    os.rename("new", "logged")
PYTHON
    kill_daemon
    heal
    "$WEIR" recover "$SRC" --log "$loop"
    case $(head -c 3 "$SRC/logged") in
        new) expect_equal "size" "$(stat -c %s "$SRC/logged")" 3000 ;;
        *) expect_equal "content" "$(cat "$SRC/logged")" "$(printf 'logged\nlogged again\n')" ;;
    esac
    give_back_log
    ;;
failed-log-in-order)
    # All names are durable in the log when a sync of data finds that it fails. What follows goes home in its order, too:
    # a daemon that is killed as soon as SOURCE has a later change leaves nothing undone that was made before it.
    full_log file-{1..40}
    python3 - "$MNT" "$SRC" "$WEIR_PID" <<'PYTHON'
import os
import signal
import sys

mount, source, daemon = sys.argv[1:]
os.chdir(mount)
file = os.open("removed", os.O_WRONLY)
# The first sync of a file syncs home, the others are logged.
os.fsync(file)
os.write(file, b"second")
try:
    os.fsync(file)
    sys.exit("fsync succeeds although the log cannot be written")
except OSError:
    pass
names = [f"file-{nth}" for nth in range(1, 41)]
for name in names:
    with open("new", "w") as new:
        new.write("new")
    os.rename("new", name)
os.rename("removed", "later")
while not os.path.exists(f"{source}/later"):
    pass
os.kill(int(daemon), signal.SIGKILL)
PYTHON
    wait "$WEIR_PID" 2>/dev/null || true
    umount -l "$MNT"
    heal
    "$WEIR" recover "$SRC" --log "$loop"
    expect_equal "names" "$(ls "$SRC" | sort)" "$(printf '%s\n' file-{1..40} later | sort)"
    expect_equal "contents" "$(cat "$SRC"/file-* | sed 's/new/new\n/g' | sort | uniq -c | tr -d ' ')" 40new
    give_back_log
    ;;
failed-log-ended)
    # SOURCE has all that the log had. A daemon that dies leaves nothing undone: each change is one step there, made before the call returns.
    failing_log
    "$WEIR" sync "$MNT"
    raw=$SRC
    [ "${UNDER:-}" != sshfs ] || raw=$WORK/remote
    python3 - "$MNT" "$raw" <<'PYTHON'
import os
import sys

mount, raw = sys.argv[1:]


def is_in_source(names):
    shown = sorted(os.path.relpath(os.path.join(at, name), raw) for at, below, files in os.walk(raw) for name in below + files)
    # libfuse keeps what is removed and open, and sshfs closes files later.
    if [name for name in shown if not name.startswith((".weir", ".fuse_hidden"))] != sorted(names):
        sys.exit(f"SOURCE has {shown}, and not {names}")


os.chdir(mount)
names = [os.path.relpath(os.path.join(at, name)) for at, below, files in os.walk(".") for name in below + files]
for nth in range(20):
    os.mkdir(f"outer-{nth}")
    os.mkdir(f"outer-{nth}/inner")
    names += [f"outer-{nth}", f"outer-{nth}/inner"]
    is_in_source(names)
    # The one below goes above the other.
    os.rename(f"outer-{nth}/inner", f"top-{nth}")
    os.rename(f"outer-{nth}", f"top-{nth}/below")
    names[-2:] = [f"top-{nth}", f"top-{nth}/below"]
    is_in_source(names)
    with open("new", "w") as new:
        new.write(f"{nth}")
    os.rename("new", "replaced")
    names = sorted({*names, "replaced"})
    is_in_source(names)
PYTHON
    kill_daemon
    heal
    "$WEIR" recover "$SRC" --log "$loop"
    expect_equal "what is parked" "$(ls "$raw/.weir/parked" 2>/dev/null || true)" ""
    give_back_log
    ;;
created-and-synced)
    # The disk is taken as it is after the fsync of a directory, before ext4 writes by itself.
    need_command mkfs.ext4
    # With room for all that the tree may have.
    loop_filesystem "$WORK/image" 800M "$SRC" mkfs.ext4 -qF -N 120000
    mount -o remount,commit=300 "$SRC"
    mkdir "$SRC/directory"
    sync -f "$SRC"
    mount_weir_foreground "$SRC" "$MNT" --names log --log "$WORK/log" --log-size 16M
    # The log has these. Files with set-group-ID are made at home at once.
    mkdir "$MNT/directory/inside"
    touch "$MNT/directory/inside/logged"
    sync "$MNT/directory/inside" "$MNT/directory"
    python3 -c 'import os, sys; os.umask(0); os.open(sys.argv[1], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o2654)' "$MNT/directory/inside/home"
    sync "$MNT/directory/inside"
    cp --sparse=always "$WORK/image" "$WORK/kept"
    kill_daemon
    umount_soon "$SRC"
    mount -o loop "$WORK/kept" "$SRC"
    "$WEIR" recover "$SRC" --log "$WORK/log"
    expect_equal "what was synced" "$(ls "$SRC/directory/inside")" $'home\nlogged'
    umount "$SRC"
    ;;
*) fail "no case $1" ;;
esac
