#!/usr/bin/env bash
# Promises of the FUSE side: reads after asynchronous direct writes, reads of a file that was changed in SOURCE and then truncated
# through the mount, permissions of names that appear at home, limits of descriptors, space and memory, and the mode bits that a write removes.
# cases: reads-after-asynchronous-writes reads-after-asynchronous-writes-under-run permissions-of-names-that-appeared set-group-ID-is-removed many-directories many-files-of-one-program root-reserve-stays memory-of-many-programs refused-lane-connections open-during-unlink changed-and-truncated
# all: set-group-ID-is-removed
source "${REPO:?}/tests/e2e/lib.sh"
weir_only

# Asynchronous direct writes against buffered readers: by AIO and by io_uring.
reads_after_asynchronous_writes() {
    local way
    need_command cc
    cc -O2 -w -pthread -o "$WORK/stale" "$SUPPORT/stale.c"
    mount_weir "$SRC" "$MNT"
    for way in aio uring deep; do
        "$@" "$WORK/stale" "$way" "$MNT/file-$way" 3 >"$WORK/said" || fail "by $way: $(cat "$WORK/said")"
        counts "$(cat "$WORK/said")"
    done
    umount_weir "$MNT"
}

case ${1:?} in
changed-and-truncated)
    # The kernel's pages of a file that was changed in SOURCE are not shown after another call than open(2) has found that.
    need_command python3
    head -c 8192 /dev/zero | tr '\0' A >"$SRC/file"
    mount_weir "$SRC" "$MNT"
    python3 - "$SRC/file" "$MNT/file" <<'PYTHON'
import os, sys, time
home, mount = sys.argv[1:]
# From the second open on Weir knows how the file was when it was closed.
open(mount, "rb").close()
time.sleep(1.1)
for turn, content in enumerate((b"B", b"C")):
    with open(mount, "rb") as file:
        assert file.read() == (b"A", b"B")[turn] * 8192, "before the change"
    # RELEASE comes after close(2).
    time.sleep(1.1)
    with open(home, "r+b") as file:
        file.write(content * 8192)
    # To the size that it has: the kernel keeps its pages.
    os.truncate(mount, 8192)
    with open(mount, "rb") as file:
        found = file.read()
    assert found == content * 8192, f"after the change the mount shows {found[:1]}"
PYTHON
    umount_weir "$MNT"
    ;;
open-during-unlink)
    need_command cc
    cc -O2 -Wall -Werror -pthread -o "$WORK/open" "$SUPPORT/open_beside_unlink.c"
    mount_weir "$SRC" "$MNT" --memory 64M
    "$WORK/open" "$MNT" 5000 >"$WORK/said" || fail "$(cat "$WORK/said")"
    counts "$(cat "$WORK/said")"
    umount_weir "$MNT"
    ;;
reads-after-asynchronous-writes)
    reads_after_asynchronous_writes
    ;;
reads-after-asynchronous-writes-under-run)
    reads_after_asynchronous_writes "$WEIR" run --
    ;;
permissions-of-names-that-appeared)
    need_root
    chmod 755 "$WORK"
    mkdir -m 777 "$SRC/open"
    cat >"$WORK/create.py" <<'EOF'
import os, sys
directory, source, secret = sys.argv[1:]
# The kernel caches that the names are missing.
for name in ("secret", "shared", "acl"):
    assert not os.path.exists(f"{directory}/{name}")
print("looked", flush=True)
sys.stdin.readline()
for name in ("secret", "acl"):
    for flags in (os.O_RDWR, os.O_RDONLY, os.O_WRONLY | os.O_TRUNC):
        try:
            file = os.open(f"{directory}/{name}", flags | os.O_CREAT, 0o600)
        except PermissionError:
            continue
        sys.exit(f"{name} was opened with {flags:#o}: {os.pread(file, 9, 0) if flags == os.O_RDONLY else ''}")
try:
    os.open(f"{directory}/secret", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
except FileExistsError:
    pass
else:
    sys.exit("created a name that exists")
file = os.open(f"{directory}/shared", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
os.write(file, b"new")
assert os.pread(file, 9, 0) == b"new"
EOF
    mount_weir "$SRC" "$MNT" --allow-other -o negative_timeout=60
    # The kernel looks the name up again and checks permissions, although it cached that the name is missing.
    coproc USER { as_user nobody python3 "$WORK/create.py" "$MNT/open" "$SRC/open" secret; }
    user=$USER_PID
    read -r _ <&"${USER[0]}"
    for name in secret shared acl; do
        echo old >"$WORK/$name" && chmod 600 "$WORK/$name"
    done
    chmod 666 "$WORK/shared" "$WORK/acl"
    if setfacl -m u:nobody:- "$WORK/acl" 2>/dev/null; then :; else chmod 600 "$WORK/acl"; fi
    mv "$WORK/secret" "$WORK/shared" "$WORK/acl" "$SRC/open"
    echo >&"${USER[1]}"
    wait "$user" || fail "opened against its permissions, or not opened"
    expect_equal "the secret" "$(cat "$SRC/open/secret")" old
    umount_weir "$MNT"
    expect_equal "the shared file" "$(cat "$SRC/open/shared")" new
    ;;
set-group-ID-is-removed)
    need_root
    chmod 755 "$WORK"
    cat >"$WORK/change.py" <<'EOF'
import os, sys
way, path = sys.argv[1:]
if way == "truncate":
    os.truncate(path, 1)
    sys.exit()
if way == "chown":
    os.chown(path, -1, 4321)
    sys.exit()
file = os.open(path, os.O_RDWR)
if way == "write":
    os.write(file, b"x")
elif way == "append":
    os.pwrite(file, b"x", 10000)
else:
    os.posix_fallocate(file, 0, 10000)
EOF
    # In the smaller one changes of names and attributes go to SOURCE at once.
    for size in 64M 800M; do
        loop_filesystem "$WORK/image" "$size" "$WORK/ext4" mkfs.ext4 -qF -N 120000
        chmod 777 "$WORK/ext4"
        mkdir "$WORK/ext4/src" "$WORK/ext4/beside"
        mount_weir "$WORK/ext4/src" "$MNT" --allow-other
        for mode in 2666 2676 6666 6777; do
            for way in write append truncate fallocate chown; do
                for who in outside member; do
                    groups=--clear-groups
                    owner=root
                    if [ "$way" = chown ]; then owner=nobody; fi
                    if [ "$who" = member ]; then groups=--groups=4321; fi
                    for directory in "$WORK/ext4/beside" "$MNT"; do
                        file=$directory/$mode-$way-$who
                        echo text >"$file"
                        chown "$owner:4321" "$file"
                        chmod "$mode" "$file"
                        setpriv --reuid=nobody --regid=nogroup "$groups" --inh-caps=-all \
                            python3 "$WORK/change.py" "$way" "$file"
                    done
                done
            done
        done
        for file in "$WORK"/ext4/beside/*; do
            name=$(basename "$file")
            expect_equal "mode after $name" "$(stat -c %a "$MNT/$name")" "$(stat -c %a "$file")"
        done
        expect_equal "mode of a file written by somebody outside its group" "$(stat -c %a "$MNT/2666-write-outside")" 666
        expect_equal "mode of a file whose owner is not in its group" "$(stat -c %a "$MNT/2666-chown-outside")" 666
        umount_weir "$MNT"
        umount "$WORK/ext4"
        rm "$WORK/image"
    done
    ;;
many-directories)
    need_root
    need_command setpriv fusermount3
    chmod 755 "$WORK"
    mount_by nobody
    # An ordinary user may not raise the limit.
    (ulimit -n 1024 && mount_weir "$SRC" "$MNT")
    step "directories are created, walked, and used again"
    as_user nobody python3 - "$MNT" "$SRC" <<'EOF'
import os, subprocess, sys
mount, source = sys.argv[1:]
for a in range(40):
    for b in range(100):
        os.makedirs(f"{mount}/{a}/{b}")
        if b % 10 == 0:
            with open(f"{mount}/{a}/{b}/file", "w") as file:
                file.write(f"{a} {b}")
os.makedirs(f"{mount}/3/3/in/it")
os.chdir(f"{mount}/3/3/in/it")
seen = subprocess.run(["find", mount, "-printf", "%y"], stdout=subprocess.PIPE, check=True).stdout
assert seen.count(b"d") == 1 + 40 + 4000 + 2 and seen.count(b"f") == 400, (seen.count(b"d"), seen.count(b"f"))
# An idle working directory is found again, even after it was moved.
with open("here", "w") as file:
    file.write("text")
os.rename(f"{mount}/3", f"{mount}/moved")
for a in range(4, 40):
    for b in range(100):
        assert os.path.exists(f"{mount}/{a}/{b}/file") == (b % 10 == 0)
assert os.listdir(".") == ["here"] and open("here").read() == "text"
os.chdir("..")
os.mkdir("beside")
assert os.path.isdir(f"{mount}/moved/3/in/beside")
# Removed and created anew at home, possibly with the same inode number: the new one is seen.
os.rmdir(f"{source}/5/5")
os.mkdir(f"{source}/5/5")
os.mkdir(f"{source}/5/5/new")
os.mkdir(f"{mount}/seen")
EOF
    step "the mount answers, and ends"
    weir status "$MNT" >/dev/null || fail "no status"
    sleep 0.2
    [ "$(as_user nobody ls "$MNT" | wc -l)" = 41 ] || fail "not listed: $(as_user nobody ls "$MNT" | wc -l)"
    expect_equal "a file's text" "$(as_user nobody cat "$MNT/39/90/file")" "39 90"
    as_user nobody rm -r "$MNT/7"
    umount_weir "$MNT"
    expect_equal "directories at home" "$(find "$SRC" -name .weir -prune -o -type d -print | wc -l)" 3945
    ;;
many-files-of-one-program)
    need_root
    need_command setpriv fusermount3
    chmod 755 "$WORK"
    mount_by nobody
    (ulimit -n 1024 && mount_weir "$SRC" "$MNT")
    as_user nobody mkdir "$MNT/files"
    cat >"$WORK/hold.py" <<'EOF'
import errno, os, sys
directory, role = sys.argv[1:]
def hold(most):
    held = []
    try:
        for number in range(most):
            held.append(os.open(f"{directory}/{role}-{number}", os.O_RDWR | os.O_CREAT, 0o600))
            os.write(held[-1], b"text")
    except OSError as error:
        assert error.errno == errno.EMFILE, error
    return held
first = hold(900)
print(len(first), flush=True)
sys.stdin.readline()
for file in first:
    os.close(file)
again = hold(50)
print(len(again), flush=True)
EOF
    coproc HOG { as_user nobody python3 "$WORK/hold.py" "$MNT/files" first; }
    hog=$HOG_PID
    read -r held <&"${HOG[0]}" || fail "the program got an unexpected error"
    if [ "$held" = 900 ] || [ "$held" -lt 100 ]; then fail "one program could open $held files"; fi
    step "other programs are not affected"
    as_user nobody mkdir "$MNT/other"
    for number in $(seq 30); do
        as_user nobody sh -c "echo $number >'$MNT/other/$number'"
    done
    expect_equal "what another program made" "$(as_user nobody find "$MNT/other" -type f | wc -l)" 30
    weir status "$MNT" >/dev/null || fail "no status"
    weir sync "$MNT" || fail "no sync"
    second=$(as_user nobody python3 "$WORK/hold.py" "$MNT/files" second </dev/null | head -1) || true
    [ "$second" -ge 50 ] || fail "a second program could open $second files"
    step "the program can open files again after closing some"
    echo >&"${HOG[1]}"
    read -r again <&"${HOG[0]}"
    expect_equal "files open again" "$again" 50
    wait "$hog"
    umount_weir "$MNT"
    counts "$held files by one program, $second by another"
    ;;
root-reserve-stays)
    need_root
    chmod 755 "$WORK"
    truncate -s 96M "$WORK/image"
    mkfs.ext4 -q -m 25 "$WORK/image"
    mkdir "$WORK/ext4"
    mount -o loop "$WORK/image" "$WORK/ext4"
    mkdir -m 777 "$WORK/ext4/src"
    mount_weir "$WORK/ext4/src" "$MNT" --allow-other
    cat >"$WORK/fill.py" <<'EOF'
import errno, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
block, written = b"x" * 65536, 0
try:
    while True:
        written += os.write(file, block)
except OSError as error:
    assert error.errno == errno.ENOSPC, error
try:
    os.posix_fallocate(file, 1 << 30, 8 << 20)
    sys.exit("allocated space reserved for root")
except OSError as error:
    assert error.errno == errno.ENOSPC, error
os.fsync(file)
print(written >> 20)
EOF
    written=$(as_user nobody python3 "$WORK/fill.py" "$MNT/file")
    kept=$(($(stat -f -c '%f * %S' "$WORK/ext4") >> 20))
    counts "$written MiB written by an ordinary user, $kept MiB left for root"
    [ "$kept" -ge 20 ] || fail "an ordinary user used root's reserve: $kept MiB of 24 are left"
    [ "$written" -ge 40 ] || fail "only $written MiB could be written"
    step "root may use it"
    dd if=/dev/zero of="$MNT/root" bs=1M count=10 conv=fsync status=none
    umount_weir "$MNT"
    expect_equal "the file's size at home" "$(($(stat -c %s "$WORK/ext4/src/file") >> 20))" "$written"
    umount "$WORK/ext4"
    ;;
memory-of-many-programs)
    mount_weir_foreground "$SRC" "$MNT" --memory 128M
    cat >"$WORK/post.py" <<'EOF'
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
page = os.urandom(4096)
for turn in sys.stdin:
    if turn == "pages\n":
        for at in range(400):
            os.pwrite(file, page, at * 4096)
    else:
        # Each write takes 64 bytes of the ring; together they take more than the whole ring.
        for at in range(17000):
            os.pwrite(file, b"x", 399 * 4096)
    print(turn, end="", flush=True)
EOF
    cat >"$WORK/programs.py" <<'EOF'
import subprocess, sys
weir, script, mount, count = sys.argv[1:]
programs = [
    subprocess.Popen(
        [weir, "run", "--", "python3", script, f"{mount}/{number}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    )
    for number in range(int(count))
]
# Together the programs fill the memory for pages; then each uses its whole ring. No program ends before all are done.
for turn in ("pages\n", "small\n"):
    for program in programs:
        program.stdin.write(turn)
    for program in programs:
        assert program.stdout.readline() == turn
print("done", flush=True)
sys.stdin.readline()
for program in programs:
    program.stdin.close()
sys.exit(max(program.wait() for program in programs))
EOF
    coproc PROGRAMS { python3 "$WORK/programs.py" "$WEIR" "$WORK/post.py" "$MNT" 100; }
    programs=$PROGRAMS_PID
    { read -r _ <&"${PROGRAMS[0]}"; } 2>/dev/null || fail "a program ended early"
    posted=$(status "$MNT" lane.posted_bytes)
    writes=$(status "$MNT" lane.posted_writes)
    clients=$(status "$MNT" lane.clients)
    peak=$(awk '/^VmHWM/ { print $2 }' "/proc/$WEIR_PID/status")
    echo >&"${PROGRAMS[1]}"
    wait "$programs" || fail "a program failed"
    counts "$writes writes, $((posted >> 20)) MiB, posted by $clients programs, at most $((peak >> 10)) MiB resident"
    expect_equal "programs in the lane" "$clients" 100
    [ "$posted" -ge $((100 << 20)) ] || fail "only $posted bytes came by the lane"
    [ "$writes" -ge 1650000 ] || fail "only $writes writes came by the lane"
    kill -TERM "$WEIR_PID"
    wait "$WEIR_PID" || fail "the daemon ended with $?"
    [ "$peak" -le $(((128 + 48) << 10)) ] || fail "resident memory reached $peak KiB, more than 128 and 48 MiB"
    ;;
refused-lane-connections)
    need_root
    chmod 755 "$WORK"
    mount_weir_foreground "$SRC" "$MNT" --allow-other
    cat >"$WORK/knock.py" <<'EOF'
import os, socket, sys, time
name, seconds = sys.argv[1:]
until, count = time.time() + float(seconds), 0
while time.time() < until:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
        end.settimeout(1)
        try:
            end.connect("\0" + name)
            count += 1
            end.recv(1)
        except OSError:
            pass
EOF
    inodes=$(find "/proc/$WEIR_PID/fd" -lname 'socket:*' -printf '%l\n' | tr -dc '0-9\n')
    name=$(awk 'NR == FNR { ours[$1]; next } $7 in ours && $8 ~ /^@weir-lane-/ { print substr($8, 2) }' \
        <(echo "$inodes") /proc/net/unix)
    [ -n "$name" ] || fail "the lane has no socket"
    knockers=()
    for _ in 1 2 3 4 5 6; do
        as_user nobody python3 "$WORK/knock.py" "$name" 4 &
        knockers+=($!)
    done
    sleep 0.5
    before=$(awk '{ print $14 + $15 }' "/proc/$WEIR_PID/stat")
    refused=$(status "$MNT" lane.refused)
    sleep 2
    ticks=$(($(awk '{ print $14 + $15 }' "/proc/$WEIR_PID/stat") - before))
    refused=$(($(status "$MNT" lane.refused) - refused))
    step "the daemon's own user can connect"
    timeout 10 "$WEIR" run -- python3 -c 'import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for _ in range(100): os.write(file, b"line\n")' "$MNT/mine" || fail "the daemon's own user waits behind refused connections"
    posted=$(status "$MNT" lane.posted_writes)
    for knocker in "${knockers[@]}"; do wait "$knocker"; done
    counts "$((refused / 2)) connections refused a second, $((ticks / 2)) % of a CPU, $posted writes by the lane"
    [ "$refused" -gt 0 ] || fail "no connection was refused"
    [ "$refused" -le 2400 ] || fail "$refused connections were refused in 2 s"
    # Ticks are hundredths of a second.
    [ "$ticks" -le 30 ] || fail "the daemon used $((ticks / 2)) % of a CPU for refused connections"
    [ "$posted" -ge 90 ] || fail "the daemon's own user was kept out: $posted writes by the lane"
    kill -TERM "$WEIR_PID"
    wait "$WEIR_PID" || fail "the daemon ended with $?"
    ;;
*) fail "no such case: $1" ;;
esac
