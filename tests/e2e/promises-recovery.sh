#!/usr/bin/env bash
# What recovery does to files: it finds them where handles are not valid across mounts, changes only what was synced, and
# goes on if a file cannot be written.
# cases: files-found-by-path renamed-files-found-by-path removed-later-and-found-by-path capabilities-stay capabilities-outlive-killed-recovery bits-outlive-killed-recovery capabilities-of-other-content-go lost-capabilities-are-told-if-another-file-fails capabilities-past-the-mount times-stay files-of-others-are-recovered reservations-are-released immutable-file-is-recovered file-that-cannot-be-opened-is-named full-source files-outside-source-are-skipped failed-write-concerns-one-file failed-unlink-keeps-records flags-outlive-killed-recovery renames-by-many-threads space-of-files-outside-stays swapped-weir-is-not-used interrupted-sync-is-not-repeated
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only

# synced FILE OFFSET TEXT...: writes at offsets, each write synced after the file's first sync, which goes home.
synced() {
    python3 - "$@" <<'END'
import os
import sys

descriptor = os.open(sys.argv[1], os.O_RDWR)
os.fsync(descriptor)
for at in range(2, len(sys.argv), 2):
    os.pwrite(descriptor, sys.argv[at + 1].encode(), int(sys.argv[at]))
    os.fdatasync(descriptor)
END
}

# at FILE OFFSET LENGTH
at() {
    python3 -c 'import os, sys; print(os.pread(os.open(sys.argv[1], os.O_RDONLY), int(sys.argv[3]), int(sys.argv[2])).decode(errors="replace"))' "$@"
}

crash() {
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    umount -l "$MNT"
}

mount_to_crash() {
    mount_weir_foreground "$SRC" "$MNT" --dirty-expire 1h "$@"
}

# SRC is `home` by sshfs, without a network: sftp-server is started directly.
mount_sshfs() {
    need_command sshfs
    mkdir -p "$WORK/remote"
    printf '#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n' >"$WORK/ssh"
    chmod +x "$WORK/ssh"
    sshfs "nobody@nowhere:$WORK/remote" "$SRC" -o "ssh_command=$WORK/ssh"
}

# Clears flags that a failed test left on files: such files cannot be removed.
clear_flags_at_exit() {
    need_command chattr lsattr
    trap 'status=$?; chattr -f -i -a "$SRC"/* "$WORK"/outside/* || true; (exit "$status"); at_exit' EXIT
}

# SRC is an overlay over a tmpfs: files there are found by path. The upper directory is $WORK/layers/upper.
mount_overlay() {
    need_filesystem overlay
    if [ ! -d "$WORK/layers" ]; then
        mkdir "$WORK/layers"
        mount -t tmpfs none "$WORK/layers"
        mkdir "$WORK/layers/lower" "$WORK/layers/upper" "$WORK/layers/scratch"
    fi
    mount -t overlay overlay "$SRC" \
        -o "lowerdir=$WORK/layers/lower,upperdir=$WORK/layers/upper,workdir=$WORK/layers/scratch"
}

# kill_recovery [OPTION...]: the kernel kills recovery when it writes past 15 MB (SIGXFSZ), to the file `far`: all files are open by then.
kill_recovery() {
    status=0
    (ulimit -c 0 -f 15000; weir recover "$SRC" "$@") >"$WORK/said" 2>&1 || status=$?
    expect_equal "recovery's end: $(cat "$WORK/said")" "$status" $((128 + $(kill -l XFSZ)))
}

# need_direct_reads FILE: skips if the file system does not say that it reads the file from the device (STATX_DIOALIGN). Recovery then
# writes also what the file has.
need_direct_reads() {
    python3 - "$1" <<'END' || skip "the file system of SOURCE does not report direct I/O (STATX_DIOALIGN)"
import ctypes
import os
import struct
import sys

STATX_DIOALIGN = 0x2000
status = ctypes.create_string_buffer(256)
if ctypes.CDLL(None).statx(-100, os.fsencode(sys.argv[1]), 0, STATX_DIOALIGN, status):
    sys.exit(1)
(mask,) = struct.unpack_from("=I", status)
aligns = struct.unpack_from("=II", status, 0x98)
sys.exit(not (mask & STATX_DIOALIGN and all(aligns)))
END
}

# count_of BYTE FILE OFFSET LENGTH: how many of these bytes are BYTE.
count_of() {
    tail -c +$(($3 + 1)) "$2" | head -c "$4" | tr -cd "$1" | wc -c
}

case $1 in
files-found-by-path)
    mount_sshfs
    mkdir "$WORK/remote/a"
    head -c 1M /dev/zero >"$WORK/remote/a/file"
    mount_to_crash --log "$WORK/log"
    for number in $(seq 50); do changes+=("$((number * 20000))" "record $number."); done
    before=$(status "$MNT" log_groups)
    synced "$MNT/a/file" "${changes[@]}"
    [ "$(status "$MNT" log_groups)" -ge "$((before + 50))" ] || fail "the syncs did not go to the log"
    crash
    umount "$SRC"
    [ "$(at "$WORK/remote/a/file" 20000 9)" != "record 1." ] || fail "it was home before the crash"
    mount_sshfs
    "$WEIR" recover "$SRC" --log "$WORK/log"
    for number in $(seq 50); do
        expect_equal "record $number" "$(at "$WORK/remote/a/file" $((number * 20000)) $((8 + ${#number})))" "record $number."
    done
    umount "$SRC"
    ;;
renamed-files-found-by-path)
    mount_sshfs
    mkdir "$WORK/remote/a" "$WORK/remote/b"
    for name in a/moved a/replaced a/removed a/below a/linked; do head -c 64K /dev/zero >"$WORK/remote/$name"; done
    mount_to_crash --log "$WORK/log"
    for name in moved replaced removed below linked; do synced "$MNT/a/$name" 8192 "of $name."; done
    ln "$MNT/a/linked" "$MNT/b/other" 2>/dev/null || true
    mv "$MNT/a/moved" "$MNT/b/new"
    mv "$MNT/b/new" "$MNT/a/replaced"
    rm "$MNT/a/removed"
    # Another file gets a name that is in the log.
    head -c 64K /dev/zero | tr '\0' n >"$MNT/a/removed"
    synced "$MNT/a/removed" 100 "anew."
    mv "$MNT/a" "$MNT/c"
    synced "$MNT/c/below" 16384 "after."
    crash
    umount "$SRC"
    mount_sshfs
    "$WEIR" recover "$SRC" --log "$WORK/log"
    expect_equal "what was moved" "$(at "$SRC/c/replaced" 8192 9)" "of moved."
    expect_equal "a file below a directory that was moved" "$(at "$SRC/c/below" 8192 9)" "of below."
    expect_equal "what was synced after" "$(at "$SRC/c/below" 16384 6)" "after."
    expect_equal "the file with the name of one that was removed" "$(at "$SRC/c/removed" 8192 4)" nnnn
    expect_equal "what was synced to it" "$(at "$SRC/c/removed" 100 5)" "anew."
    umount "$SRC"
    ;;
removed-later-and-found-by-path)
    # Home removes names after the programs did. What was synced of a removed file is nobody else's; and a file that keeps
    # another name keeps what was synced.
    need_command chattr
    mount_overlay
    mkdir "$SRC/a"
    for name in a/removed a/linked; do head -c 64K /dev/zero >"$SRC/$name"; done
    ln "$SRC/a/linked" "$SRC/other"
    mount_to_crash --log "$WORK/log" --names behind
    touch "$MNT/a/seen"
    "$WEIR" sync "$MNT"
    for name in removed linked; do synced "$MNT/a/$name" 8192 "of $name."; done
    chattr +i "$WORK/layers/upper/a"
    rm "$MNT/a/removed" "$MNT/a/linked"
    # The kernel forgets them.
    echo 2 >/proc/sys/vm/drop_caches
    [ -e "$SRC/a/removed" ] || fail "home has removed it already"
    chattr -i "$WORK/layers/upper/a"
    "$WEIR" sync "$MNT"
    [ ! -e "$SRC/a/removed" ] || fail "home has not removed it"
    head -c 64K /dev/zero | tr '\0' n >"$MNT/a/removed"
    "$WEIR" sync "$MNT"
    crash
    "$WEIR" recover "$SRC" --log "$WORK/log"
    expect_equal "another file of the name" "$(at "$SRC/a/removed" 8192 9)" nnnnnnnnn
    expect_equal "the file by its other name" "$(at "$SRC/other" 8192 9)" "of linked"
    umount "$SRC"
    umount "$WORK/layers"
    ;;
capabilities-stay)
    need_command setcap getcap
    cp /bin/true "$SRC/program"
    mount_to_crash
    synced "$MNT/program" 100 "of a program"
    setcap cap_net_raw+ep "$MNT/program"
    chmod u+s "$MNT/program"
    weir sync "$MNT"
    crash
    "$WEIR" recover "$SRC"
    expect_equal "what was synced" "$(at "$SRC/program" 100 12)" "of a program"
    [[ $(getcap "$SRC/program") = *cap_net_raw* ]] || fail "the capability is gone: $(getcap "$SRC/program")"
    [ -u "$SRC/program" ] || fail "set-user-ID is gone"
    ;;
capabilities-outlive-killed-recovery)
    need_command setcap getcap
    cp /bin/true "$SRC/program"
    truncate -s 20000000 "$SRC/far"
    mount_to_crash --log "$WORK/log"
    synced "$MNT/program" 100 "of a program"
    setcap cap_net_raw+ep "$MNT/program"
    synced "$MNT/far" 18000000 "of far"
    crash
    kill_recovery --log "$WORK/log"
    "$WEIR" recover "$SRC" --log "$WORK/log"
    expect_equal "what was synced" "$(at "$SRC/program" 100 12)" "of a program"
    [[ $(getcap "$SRC/program") = *cap_net_raw* ]] || fail "the capability is gone: $(getcap "$SRC/program")"
    ;;
bits-outlive-killed-recovery)
    # An ordinary user's recovery: root's writes take none of these bits.
    mount_by nobody
    cp /bin/true "$SRC/program"
    truncate -s 20000000 "$SRC/far"
    chown nobody "$SRC/program" "$SRC/far"
    mount_weir "$SRC" "$MNT" --dirty-expire 1h
    WEIR_PID=$(pgrep -f "mount $SRC $MNT" | head -1)
    as_user nobody bash -c "$(declare -f synced); synced '$MNT/program' 100 'of a program'"
    as_user nobody chmod u+s "$MNT/program"
    as_user nobody bash -c "$(declare -f synced); synced '$MNT/far' 18000000 'of far'"
    crash
    kill_recovery
    weir recover "$SRC"
    expect_equal "what was synced" "$(at "$SRC/program" 100 12)" "of a program"
    [ -u "$SRC/program" ] || fail "set-user-ID is gone"
    ;;
capabilities-of-other-content-go)
    # As if a power cut had brought back capabilities that a write had taken: they do not get what was written.
    need_command setcap getcap
    for name in other same; do cp /bin/true "$SRC/$name"; done
    need_direct_reads "$SRC/same"
    mount_to_crash
    synced "$MNT/other" 100 "of a program"
    synced "$MNT/same" 100 "of a program"
    crash
    printf 'of a program' | dd of="$SRC/same" bs=1 seek=100 conv=notrunc status=none
    setcap cap_net_raw+ep "$SRC/other"
    setcap cap_net_raw+ep "$SRC/same"
    "$WEIR" recover "$SRC" >"$WORK/said" 2>&1
    for name in other same; do expect_equal "what was synced" "$(at "$SRC/$name" 100 12)" "of a program"; done
    expect_equal "capabilities of a file with other content" "$(getcap "$SRC/other")" ""
    grep -q "other.*capabilities" "$WORK/said" || fail "recovery does not say so: $(cat "$WORK/said")"
    [[ $(getcap "$SRC/same") = *cap_net_raw* ]] || fail "a file that was not changed has lost its capabilities"
    ;;
lost-capabilities-are-told-if-another-file-fails)
    need_command setcap getcap
    cp /bin/true "$SRC/program"
    truncate -s 20000000 "$SRC/far"
    mount_to_crash --log "$WORK/log"
    synced "$MNT/program" 100 "of a program"
    synced "$MNT/far" 18000000 "of far"
    crash
    setcap cap_net_raw+ep "$SRC/program"
    # Writes past 15 MB fail: EFBIG.
    status=0
    (trap '' XFSZ; ulimit -f 15000; "$WEIR" recover "$SRC" --log "$WORK/log") >"$WORK/said" 2>&1 || status=$?
    [ "$status" != 0 ] || fail "recovery reports success: $(cat "$WORK/said")"
    grep -q far "$WORK/said" || fail "the file that could not be written is not named: $(cat "$WORK/said")"
    grep -q "program has lost its capabilities" "$WORK/said" || fail "recovery does not say what a file has lost: $(cat "$WORK/said")"
    "$WEIR" recover "$SRC" --log "$WORK/log"
    expect_equal "what was synced" "$(at "$SRC/program" 100 12)" "of a program"
    expect_equal "capabilities of a file with other content" "$(getcap "$SRC/program")" ""
    ;;
capabilities-past-the-mount)
    # Root sets them in SOURCE of an ordinary user's mount, who cannot give them back.
    need_command setcap getcap
    mount_by nobody
    for name in program far other; do truncate -s 20000000 "$SRC/$name"; done
    need_direct_reads "$SRC/program"
    chown nobody "$SRC/program" "$SRC/far" "$SRC/other"
    mount_weir "$SRC" "$MNT" --dirty-expire 1h
    WEIR_PID=$(pgrep -f "mount $SRC $MNT" | head -1)
    as_user nobody bash -c "$(declare -f synced)
        synced '$MNT/program' 100 'of a program'; synced '$MNT/other' 100 other; synced '$MNT/far' 18000000 'of far'"
    crash
    printf 'of a program' | dd of="$SRC/program" bs=1 seek=100 conv=notrunc status=none
    setcap cap_net_raw+ep "$SRC/program"
    setcap cap_net_raw+ep "$SRC/other"
    kill_recovery
    weir recover "$SRC"
    expect_equal "what was synced" "$(at "$SRC/far" 18000000 6)" "of far"
    expect_equal "what was synced" "$(at "$SRC/other" 100 5)" other
    [[ $(getcap "$SRC/program") = *cap_net_raw* ]] || fail "a file that was not changed has lost its capabilities"
    expect_equal "capabilities of a file with other content" "$(getcap "$SRC/other")" ""
    ;;
times-stay)
    for name in changed same; do head -c 64K /dev/zero >"$SRC/$name"; done
    mount_to_crash
    synced "$MNT/changed" 100 "new"
    synced "$MNT/same" 100 "home"
    crash
    printf home | dd of="$SRC/same" bs=1 seek=100 conv=notrunc status=none
    touch -d 2001-01-01 "$SRC/same" "$SRC/changed"
    "$WEIR" recover "$SRC"
    expect_equal "time of a file that was not changed" "$(stat -c %y "$SRC/same" | cut -c1-10)" 2001-01-01
    [ "$(stat -c %Y "$SRC/changed")" -gt 1000000000 ] || fail "a file that was changed looks old"
    ;;
files-of-others-are-recovered)
    # An ordinary user may write another user's file, and may not set its times.
    mount_by nobody
    for name in same changed; do
        head -c 64K /dev/zero >"$SRC/$name"
        chmod 666 "$SRC/$name"
    done
    mount_weir "$SRC" "$MNT" --dirty-expire 1h
    WEIR_PID=$(pgrep -f "mount $SRC $MNT" | head -1)
    as_user nobody bash -c "$(declare -f synced); synced '$MNT/same' 100 home; synced '$MNT/changed' 100 changed"
    crash
    printf home | dd of="$SRC/same" bs=1 seek=100 conv=notrunc status=none
    weir recover "$SRC"
    expect_equal "a file that had all bytes" "$(at "$SRC/same" 100 4)" home
    expect_equal "what was synced" "$(at "$SRC/changed" 100 7)" changed
    expect_equal "the owner" "$(stat -c '%U %a' "$SRC/same")" "root 666"
    mount_weir "$SRC" "$MNT"
    weir umount "$MNT"
    ;;
reservations-are-released)
    mount_to_crash
    # Another program holds the file open until the daemon is killed.
    exec 9<>"$MNT/held"
    head -c 1M /dev/zero | dd bs=1k status=none >&9
    weir sync "$MNT"
    head -c 20M /dev/zero | dd bs=1k status=none >&9
    sync -f "$SRC"
    crash
    exec 9>&-
    kept=$(($(stat -c %b "$SRC/held") * 512 - $(stat -c %s "$SRC/held")))
    [ "$kept" -gt 65536 ] || fail "nothing was reserved past the end: $kept bytes, so the test is void"
    touch -d 2001-01-01 "$SRC/held"
    mount_weir "$SRC" "$MNT" --read-only --no-recovery
    umount_weir "$MNT"
    left=$(($(stat -c %b "$SRC/held") * 512 - $(stat -c %s "$SRC/held")))
    expect_equal "reserved after a mount with --no-recovery" "$left" "$kept"
    "$WEIR" recover "$SRC"
    left=$(($(stat -c %b "$SRC/held") * 512 - $(stat -c %s "$SRC/held")))
    [ "$left" -le 4096 ] || fail "$left bytes stay reserved past the end"
    expect_equal "its time" "$(stat -c %y "$SRC/held" | cut -c1-10)" 2001-01-01
    counts "$kept bytes reserved, $left left"
    ;;
interrupted-sync-is-not-repeated)
    # The server of a FUSE SOURCE can say that to a write-back, which Linux reports once.
    need_command strace
    mount_to_crash
    touch "$MNT/file"
    synced "$MNT/file" 100 synced
    crash
    if strace -f -qq -o "$WORK/calls" -P "$SRC/file" -e trace=fsync -e inject=fsync:error=EINTR:when=1 \
        "$WEIR" recover "$SRC" 2>"$WORK/said"; then
        fail "a file that could not be synced counts as recovered: $(cat "$WORK/calls" "$WORK/said")"
    fi
    grep -q EINTR "$WORK/calls" || fail "nothing was interrupted: $(cat "$WORK/calls" "$WORK/said")"
    grep -qi "interrupted" "$WORK/said" || fail "it does not say why: $(cat "$WORK/said")"
    "$WEIR" recover "$SRC"
    expect_equal "what was synced" "$(at "$SRC/file" 100 6)" synced
    ;;
space-of-files-outside-stays)
    mount_to_crash
    # Another program holds the file open until the daemon is killed.
    exec 9<>"$MNT/moved"
    head -c 1M /dev/zero | dd bs=1k status=none >&9
    weir sync "$MNT"
    head -c 20M /dev/zero | dd bs=1k status=none >&9
    sync -f "$SRC"
    crash
    exec 9>&-
    mkdir "$WORK/outside"
    mv "$SRC/moved" "$WORK/outside"
    kept=$(($(stat -c %b "$WORK/outside/moved") * 512 - $(stat -c %s "$WORK/outside/moved")))
    [ "$kept" -gt 65536 ] || fail "nothing was reserved past the end: $kept bytes, so the test is void"
    "$WEIR" recover "$SRC"
    left=$(($(stat -c %b "$WORK/outside/moved") * 512 - $(stat -c %s "$WORK/outside/moved")))
    expect_equal "space past the end of a file outside SOURCE" "$left" "$kept"
    ;;
swapped-weir-is-not-used)
    mkdir "$WORK/victim"
    mount_to_crash
    # As the owner of SOURCE may do.
    mv "$SRC/.weir" "$SRC/.old"
    ln -s "$WORK/victim" "$SRC/.weir"
    head -c 4M /dev/zero | dd of="$MNT/grows" bs=64k status=none
    sync -f "$MNT"
    expect_equal "what the daemon made where the link leads" "$(ls -A "$WORK/victim")" ""
    rm "$SRC/.weir"
    mv "$SRC/.old" "$SRC/.weir"
    crash
    "$WEIR" recover "$SRC"
    ;;
immutable-file-is-recovered)
    clear_flags_at_exit
    for name in locked other; do head -c 64K /dev/zero >"$SRC/$name"; done
    mount_to_crash
    synced "$MNT/locked" 100 locked
    synced "$MNT/other" 100 other
    crash
    chattr +i "$SRC/locked"
    mount_weir "$SRC" "$MNT"
    expect_equal "the immutable file" "$(at "$MNT/locked" 100 6)" locked
    expect_equal "another file" "$(at "$MNT/other" 100 5)" other
    umount_weir "$MNT"
    [[ $(lsattr "$SRC/locked") = *i*locked ]] || fail "$SRC/locked is not immutable any more"
    chattr -i "$SRC/locked"
    ;;
file-that-cannot-be-opened-is-named)
    # Recovery runs as an ordinary user, who cannot open another user's file.
    mount_by nobody
    for name in taken other; do head -c 64K /dev/zero >"$SRC/$name"; chown nobody "$SRC/$name"; done
    mount_weir "$SRC" "$MNT" --dirty-expire 1h
    WEIR_PID=$(pgrep -f "mount $SRC $MNT" | head -1)
    as_user nobody python3 - "$MNT/taken" taken "$MNT/other" other <<'END'
import os
import sys

for at in range(1, len(sys.argv), 2):
    descriptor = os.open(sys.argv[at], os.O_RDWR)
    os.fsync(descriptor)
    os.pwrite(descriptor, sys.argv[at + 1].encode(), 100)
    os.fdatasync(descriptor)
END
    crash
    chown root "$SRC/taken"
    chmod 600 "$SRC/taken"
    status=0
    weir recover "$SRC" >"$WORK/said" 2>&1 || status=$?
    [ "$status" != 0 ] || fail "recovery reports success: $(cat "$WORK/said")"
    grep -q taken "$WORK/said" || fail "the file is not named: $(cat "$WORK/said")"
    expect_equal "the other file" "$(at "$SRC/other" 100 5)" other
    [ -s "$SRC/.weir/log" ] || fail "the log is gone"
    # A finished file is not replayed again: it was changed since.
    printf later | dd of="$SRC/other" bs=1 seek=100 conv=notrunc status=none
    status=0
    weir mount "$SRC" "$MNT" >"$WORK/said" 2>&1 || status=$?
    [ "$status" != 0 ] || fail "it was mounted without the synced data"
    grep -q taken "$WORK/said" || fail "mount does not name the file: $(cat "$WORK/said")"
    chown nobody "$SRC/taken"
    weir recover "$SRC"
    expect_equal "the file, once it can be opened" "$(at "$SRC/taken" 100 5)" taken
    expect_equal "the other file" "$(at "$SRC/other" 100 5)" later
    ;;
full-source)
    need_filesystem ext4
    truncate -s 64M "$WORK/image"
    mkfs.ext4 -q -m 5 "$WORK/image"
    mkdir "$WORK/disk"
    mount -o loop "$WORK/image" "$WORK/disk"
    SRC=$WORK/disk/source
    mkdir "$SRC"
    # Filling a hole takes space.
    truncate -s 4M "$SRC/sparse"
    head -c 64K /dev/zero >"$SRC/plain"
    mount_to_crash --log "$WORK/log" --log-size 4M
    synced "$MNT/plain" 100 plain
    synced "$MNT/sparse" 1000000 sparse 2000000 sparse 3000000 sparse
    crash
    # The space that the mount had reserved for the hole goes to somebody else.
    fallocate --punch-hole -o 0 -l 4M "$SRC/sparse"
    # All the space that ordinary users may use.
    mkdir -m 777 "$WORK/disk/ballast"
    as_user nobody dd if=/dev/zero of="$WORK/disk/ballast/file" bs=64k 2>/dev/null && fail "the disk is not full" || true
    # And all that root may use.
    dd if=/dev/zero of="$WORK/disk/all" bs=4k 2>/dev/null && fail "the disk is not full" || true
    # As after a reboot: the kernel knows no path of a file that is opened by its handle.
    umount_soon "$WORK/disk"
    mount -o loop "$WORK/image" "$WORK/disk"
    "$WEIR" recover --dry-run "$SRC" --log "$WORK/log" >"$WORK/said"
    for name in sparse plain; do grep -qw "$name" "$WORK/said" || fail "$name is not named: $(cat "$WORK/said")"; done
    if "$WEIR" recover "$SRC" --log "$WORK/log" 2>"$WORK/said"; then fail "recover succeeded on a full disk"; fi
    grep -q 'sparse.*18 bytes' "$WORK/said" || fail "the file that needs space is not named: $(cat "$WORK/said")"
    expect_equal "a file that took none, on a full disk" "$(at "$SRC/plain" 100 5)" plain
    # Now the space that is reserved for root is free.
    rm "$WORK/disk/all"
    "$WEIR" recover "$SRC" --log "$WORK/log"
    expect_equal "a file that took space" "$(at "$SRC/sparse" 2000000 6)" sparse
    expect_equal "a file that took none" "$(at "$SRC/plain" 100 5)" plain
    umount "$WORK/disk"
    ;;
files-outside-source-are-skipped)
    # A file that was moved out of SOURCE: its handle is still valid, but recovery must not write it.
    mkdir "$WORK/outside"
    for name in moved stays; do head -c 64K /dev/zero >"$SRC/$name"; done
    mount_to_crash
    synced "$MNT/moved" 100 moved
    synced "$MNT/stays" 100 stays
    crash
    mv "$SRC/moved" "$WORK/outside/moved"
    # Drops the kernel's cached names.
    sync
    echo 2 >/proc/sys/vm/drop_caches
    "$WEIR" recover "$SRC" >"$WORK/said"
    [ "$(at "$WORK/outside/moved" 100 5)" != moved ] || fail "a file outside SOURCE was written"
    expect_equal "the other file" "$(at "$SRC/stays" 100 5)" stays
    ;;
failed-write-concerns-one-file)
    # More data than recovery buffers at once: the writes of 'far' fail while recovery is given those of 'near'.
    truncate -s 23000000 "$SRC/far"
    head -c 9000000 /dev/zero >"$SRC/near"
    mount_to_crash --log "$WORK/log"
    python3 - "$MNT" <<'END'
import os
import sys

far = os.open(f"{sys.argv[1]}/far", os.O_WRONLY)
near = os.open(f"{sys.argv[1]}/near", os.O_WRONLY)
os.fsync(far)
os.fsync(near)
for nth in range(10):
    os.pwrite(far, b"F" * 200000, 20000000 + nth * 200000)
    os.fsync(far)
for nth in range(40):
    os.pwrite(near, b"N" * 200000, nth * 200000)
    os.fsync(near)
END
    crash
    [ "$(count_of F "$SRC/far" 20000000 2000000)" -lt 2000000 ] || fail "it was home before the crash"
    # Writes past 15 MB fail: EFBIG.
    status=0
    (trap '' XFSZ; ulimit -f 15000; "$WEIR" recover "$SRC" --log "$WORK/log") >"$WORK/said" 2>&1 || status=$?
    cat "$WORK/said"
    [ "$status" != 0 ] || fail "recovery reports success"
    grep -q 'far' "$WORK/said" || fail "the file that could not be written is not named"
    if grep -q 'near' "$WORK/said"; then fail "the file that was written is named"; fi
    expect_equal "bytes of the file that was written" "$(count_of N "$SRC/near" 0 8000000)" 8000000
    "$WEIR" recover "$SRC" --log "$WORK/log"
    expect_equal "bytes of the other one, once it can be" "$(count_of F "$SRC/far" 20000000 2000000)" 2000000
    expect_equal "bytes of the first one" "$(count_of N "$SRC/near" 0 8000000)" 8000000
    ;;
failed-unlink-keeps-records)
    need_command chattr
    mount_overlay
    mkdir "$SRC/a"
    head -c 1M /dev/zero >"$SRC/a/file"
    mount_to_crash --log "$WORK/log"
    synced "$MNT/a/file" 100 "before" 300000 "and this"
    chattr +i "$WORK/layers/upper/a"
    if rm -f "$MNT/a/file"; then fail "it was removed, so the test is void"; fi
    # After that, syncs go to the log again.
    synced "$MNT/a/file" 500000 "after"
    crash
    chattr -i "$WORK/layers/upper/a"
    [ "$(at "$SRC/a/file" 100 6)" != before ] || fail "it was home before the crash"
    umount "$SRC"
    mount_overlay
    "$WEIR" recover "$SRC" --log "$WORK/log"
    expect_equal "what was synced before" "$(at "$SRC/a/file" 100 6)" before
    expect_equal "what else was synced before" "$(at "$SRC/a/file" 300000 8)" "and this"
    expect_equal "what was synced after" "$(at "$SRC/a/file" 500000 5)" after
    umount "$SRC"
    umount "$WORK/layers"
    ;;
flags-outlive-killed-recovery)
    clear_flags_at_exit
    mkdir "$WORK/outside"
    for name in locked appended moved; do head -c 64K /dev/zero >"$SRC/$name"; done
    truncate -s 20000000 "$SRC/far"
    mount_to_crash --log "$WORK/log"
    for name in locked appended moved; do synced "$MNT/$name" 100 "of $name"; done
    synced "$MNT/far" 18000000 "of far"
    crash
    chattr +i "$SRC/locked" "$SRC/moved"
    chattr +a "$SRC/appended"
    has_flags() { [[ $(lsattr "$1" | cut -d' ' -f1) = *$2* ]]; }
    kill_recovery --log "$WORK/log"
    if has_flags "$SRC/locked" i; then fail "it still has its flag, so the test is void"; fi
    # Outside SOURCE, so recovery must not change it.
    mv "$SRC/moved" "$WORK/outside/moved"
    "$WEIR" recover "$SRC" --log "$WORK/log"
    expect_equal "the immutable file" "$(at "$SRC/locked" 100 9)" "of locked"
    expect_equal "the append-only file" "$(at "$SRC/appended" 100 11)" "of appended"
    has_flags "$SRC/locked" i || fail "the file is not immutable any more"
    has_flags "$SRC/appended" a || fail "the file is not append-only any more"
    if has_flags "$WORK/outside/moved" i; then fail "a file outside SOURCE got a flag"; fi
    # Later recoveries do not set the flags.
    chattr -i "$SRC/locked"
    chattr -a "$SRC/appended"
    "$WEIR" recover "$SRC" >/dev/null
    if has_flags "$SRC/locked" i; then fail "a flag that was taken away later is set again"; fi
    ;;
renames-by-many-threads)
    # Where files are found by path, a rename waits for home and for the log, and meanwhile no file is attached. More
    # threads rename and open files than serve the mount.
    mount_overlay
    mount_to_crash --log "$WORK/log"
    mkdir "$MNT/opened"
    timeout -k 1 20 python3 - "$MNT" >"$WORK/counts" <<'END' || fail "$(cat "$WORK/counts")"
import os
import sys
import threading
import time

root = sys.argv[1]
THREADS = 16
counts = {"renames": [0] * THREADS, "opens": [0] * THREADS}


def rename(nth):
    directory = f"{root}/d{nth}"
    os.mkdir(directory)
    while True:
        new = os.open(f"{directory}/new", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.write(new, b"z" * 150000)
        os.fsync(new)
        # In the log.
        os.pwrite(new, b"y" * 100, 1000)
        os.fsync(new)
        os.close(new)
        os.rename(f"{directory}/new", f"{directory}/file")
        if counts["renames"][nth] % 8 == 7:
            os.rename(directory, f"{directory}x")
            os.rename(f"{directory}x", directory)
        counts["renames"][nth] += 1


def open_new(nth):
    # Each open attaches a file for the first time.
    while True:
        name = f"{root}/opened/{nth}-{counts['opens'][nth] % 50}"
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC))
        os.unlink(name)
        counts["opens"][nth] += 1


def run(work, nth):
    try:
        work(nth)
    except BaseException as error:
        print(f"{work.__name__} {nth}: {error}", flush=True)
        os._exit(1)


for nth in range(THREADS):
    for work in rename, open_new:
        threading.Thread(target=run, args=(work, nth), daemon=True).start()
before, stood, second = [0, 0], 0, 0
# Six seconds, and longer while it seems to stand: a disk that others use, too, may take its time.
while second < 6 or stood:
    time.sleep(1)
    second += 1
    now = [sum(counts["renames"]), sum(counts["opens"])]
    print(*now, flush=True)
    stood = stood + 1 if now[0] == before[0] or now[1] == before[1] else 0
    if stood == 30:
        print("no rename or no open for half a minute", flush=True)
        os._exit(1)
    before = now
os._exit(0)
END
    counts "$(tail -1 "$WORK/counts" | awk '{ print $1 " renames, " $2 " opens and removals" }')"
    crash
    umount "$SRC"
    mount_overlay
    "$WEIR" recover "$SRC" --log "$WORK/log"
    for nth in $(seq 0 15); do
        for directory in "$SRC/d$nth" "$SRC/d${nth}x"; do
            [ ! -e "$directory/file" ] || expect_equal "the size of $directory/file" "$(stat -c %s "$directory/file")" 150000
        done
    done
    umount "$SRC"
    umount "$WORK/layers"
    ;;
esac
