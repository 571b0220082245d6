#!/usr/bin/env bash
# Mounting, unmounting and showing a log, as documented.
# serial
# cases: umount-names-other-namespaces mount-8-has-nodev-and-nosuid remount umount-by-source umount-of-two-places mount-waits-for-former-daemon casefolded-weir-stays-hidden daemon-is-protected killed-daemon-ends-waiting-requests recovery-is-explained-by-file
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only

wait_for() {
    soon "$@" || fail "no success within a minute: $*"
}

# Whether SOURCE is not locked.
is_unlocked() {
    [ ! -e "${1:-$SRC}/.weir/lock" ]
}

# Prints the process number of a mount's daemon.
daemon_of() {
    status "$1" pid
}

umount_names_other_namespaces() {
    local holder daemon said
    mount_weir "$SRC" "$MNT"
    daemon=$(daemon_of "$MNT")
    # A mount namespace with private mounts: the mount stays there.
    unshare --mount --propagation private sleep 300 &
    holder=$!
    wait_for grep -qx sleep "/proc/$holder/comm"
    wait_for grep -qF " $MNT " "/proc/$holder/mountinfo"
    echo kept >"$MNT/file"

    step "weir umount returns and names the process that has the mount"
    if said=$(timeout 20 "$WEIR" umount "$MNT" 2>&1); then
        fail "weir umount succeeded although the mount goes on elsewhere"
    else
        [ $? != 124 ] || fail "weir umount did not return within 20 s"
    fi
    echo "$said"
    expect_equal "lines" "$(wc -l <<<"$said")" 1
    case $said in
        *"everything is home and durable"*"$MNT is unmounted here"*"sleep ($holder)"*"process $daemon"*) ;;
        *) fail "the message is incomplete" ;;
    esac
    if is_mounted "$MNT"; then fail "still mounted here"; fi
    expect_equal "the file at home" "$(cat "$SRC/file")" kept

    step "the mount goes on there, and ends with the last namespace"
    expect_equal "seen there" "$(nsenter --target "$holder" --mount cat "$MNT/file")" kept
    # A service manager that was told so would have it cut off.
    nsenter --target "$holder" --mount "$WEIR" status "$MNT" --json | grep -q '"stopping": false' || fail "it is said to be stopping"
    nsenter --target "$holder" --mount sh -c "echo later >'$MNT/later'"
    kill "$holder"
    wait "$holder" || true
    wait_for is_unlocked
    expect_equal "written there" "$(cat "$SRC/later")" later

    step "--force ends the mount"
    mount_weir "$SRC" "$MNT"
    unshare --mount --propagation private sleep 300 &
    holder=$!
    wait_for grep -qx sleep "/proc/$holder/comm"
    echo forced >"$MNT/file"
    timeout 20 "$WEIR" umount --force "$MNT" || fail "weir umount --force said $?"
    expect_equal "at home" "$(cat "$SRC/file")" forced
    is_unlocked || fail "SOURCE is still locked after --force"
    kill "$holder"
    wait "$holder" || true

    step "a shared mount is unmounted in all namespaces"
    local shared=$WORK/shared
    mkdir "$shared"
    mount --bind "$shared" "$shared"
    mount --make-shared "$shared"
    mkdir "$shared/mnt"
    mount_weir "$SRC" "$shared/mnt"
    unshare --mount --propagation slave sleep 300 &
    holder=$!
    wait_for grep -qx sleep "/proc/$holder/comm"
    umount_weir "$shared/mnt"
    is_unlocked || fail "SOURCE is still locked"
    umount "$shared"
    kill "$holder"
    wait "$holder" || true
    counts "named, returned, ended"
}

# installed SCRIPT: runs a shell script in a mount namespace of its own in which weir is installed for mount(8):
# HELPER=mount.fuse.weir as its helper, HELPER=weir as the file system type's program, which mount.fuse3 starts.
installed() {
    local sbin=$WORK/sbin-$HELPER
    mkdir -p "$sbin"
    ln -sf "$WEIR" "$sbin/$HELPER"
    ln -sf "$WEIR" "$sbin/weir"
    unshare --mount --propagation private bash -euc "
        mount -t overlay -o lowerdir='$sbin':/usr/sbin overlay /usr/sbin
        mount -t tmpfs none /var/log
        SRC='$SRC' MNT='$MNT' WEIR='$WEIR' WORK='$WORK'
        flags() { sed -n \"s|^[^ ]* [^ ]* [^ ]* [^ ]* \$MNT \\([^ ]*\\) .*|\\1|p\" /proc/self/mountinfo; }
        $1" || fail "by $HELPER: exit status $?"
    wait_for is_unlocked
}

mount_8_has_nodev_and_nosuid() {
    local asked flags
    [ -x /sbin/mount.fuse3 ] || skip "no mount.fuse3: run 'make setup'"
    need_filesystem overlay
    for HELPER in mount.fuse.weir weir; do
        step "by $HELPER"
        for asked in rw defaults memory=32M dev,suid; do
            flags=$(installed "mount -t fuse.weir -o $asked \$SRC \$MNT; flags; umount \$MNT")
            case $flags in
                *nosuid,nodev*) echo "$asked: $flags" ;;
                *) fail "mount -o $asked by $HELPER: $flags" ;;
            esac
        done
        echo "$SRC $MNT fuse.weir noauto,memory=32M 0 0" >"$WORK/fstab"
        flags=$(installed "mount --fstab \$WORK/fstab \$MNT; flags; umount \$MNT")
        case $flags in
            *nosuid,nodev*) ;;
            *) fail "from fstab by $HELPER: $flags" ;;
        esac
        # The form that mount(8) passes on.
        flags=$(installed "mount -t fuse.weir -o dev=on,suid=on \$SRC \$MNT; flags; umount \$MNT")
        case $flags in
            *nodev* | *nosuid* | '') fail "dev=on,suid=on by $HELPER: $flags" ;;
        esac
        flags=$(installed "mount -t fuse.weir -o suid=on \$SRC \$MNT; flags; umount \$MNT")
        case $flags in
            *nosuid*) fail "suid=on by $HELPER: $flags" ;;
            *nodev*) ;;
            *) fail "suid=on alone by $HELPER: $flags" ;;
        esac
    done

    step "make install installs the helper"
    make -s -C "$REPO" -o build install DESTDIR="$WORK/staged" WEIR="$WEIR" BUCKET="${WEIR_BUCKET:?}" PRELOAD="$(dirname "$WEIR")/libweir_preload.so"
    expect_equal "the link" "$(readlink "$WORK/staged/sbin/mount.fuse.weir")" /usr/local/bin/weir
    counts "by both helpers, from fstab, and asked for"
}

# The options of the mount at MNT, and of its file system.
options() {
    sed -n "s|^[^ ]* [^ ]* [^ ]* [^ ]* $1 \([^ ]*\) .*- [^ ]* [^ ]* \([^, ]*\).*|\1 \2|p" /proc/self/mountinfo
}

remount() {
    local writer
    [ -x /sbin/mount.fuse3 ] || skip "no mount.fuse3: run 'make setup'"
    # Whether mount(8) runs the helper depends on what is installed: so this calls the helper itself, as mount(8) does.
    ln -s "$WEIR" "$WORK/mount.fuse.weir"
    change() {
        "$WORK/mount.fuse.weir" "$SRC" "$MNT" -o "$1,nosuid,nodev,relatime,remount,user_id=0,group_id=0,default_permissions"
    }
    mount_weir "$SRC" "$MNT" --dirty-expire 1h
    for page in $(seq 300); do echo "$page" >"$MNT/file$page"; done

    step "refused while a file is open for writing"
    exec 7>"$MNT/open"
    expect_failure "open for writing" change ro
    echo more >&7
    exec 7>&-

    step "remount,ro: earlier writes are accepted and home"
    change ro || fail "remount,ro said $?"
    expect_equal "options" "$(options "$MNT")" "ro,nosuid,nodev,relatime ro"
    for page in $(seq 300); do expect_equal "file$page at home" "$(cat "$SRC/file$page")" "$page"; done
    expect_equal "the open file at home" "$(cat "$SRC/open")" more
    expect_failure "Read-only" touch "$MNT/new"
    expect_failure "Read-only" sh -c "echo x >>'$MNT/file1'"
    expect_status "$MNT" read_only True
    expect_status "$MNT" stats.dirty_pages 0

    step "remount,rw"
    change rw || fail "remount,rw said $?"
    expect_equal "options" "$(options "$MNT")" "rw,nosuid,nodev,relatime rw"
    echo again >"$MNT/file1"
    expect_status "$MNT" read_only False

    step "by mount(8)"
    HELPER=mount.fuse.weir installed "
        mount -o remount,ro \$MNT
        grep -q \" \$MNT ro,nosuid,nodev\" /proc/self/mountinfo
        mount -o remount,rw \$MNT
        grep -q \" \$MNT rw,nosuid,nodev\" /proc/self/mountinfo
        umount \$MNT
        touch \$WORK/changed" &
    writer=$!
    wait_for sh -c "! kill -0 $writer 2>/dev/null || [ -e $WORK/changed ]"
    # The mount in the namespace ends; the one here stays and keeps SOURCE locked.
    wait_for sh -c "! kill -0 $writer 2>/dev/null || ! grep -q 'lowerdir=$WORK' /proc/[0-9]*/mountinfo 2>/dev/null"
    umount_weir "$MNT"
    wait "$writer" || fail "by mount(8): $?"
    expect_equal "file1" "$(cat "$SRC/file1")" again

    step "a mount that was read-only from the start stays read-only"
    mount_weir "$SRC" "$MNT" --read-only
    expect_failure "mounted read-only" change rw
    expect_failure "no weir mount is there" "$WORK/mount.fuse.weir" "$SRC" "$WORK" -o remount,ro
    umount_weir "$MNT"
    counts "ro and rw, refused when busy"
}

umount_by_source() {
    mkdir "$SRC/inside"
    mount_weir "$SRC" "$MNT"
    expect_equal "source of $SRC" "$(status "$SRC" mountpoint)" "$MNT"
    expect_equal "as the kernel shows it" "$(findmnt -n -o SOURCE "$MNT")" "$SRC"
    "$WEIR" sync "$SRC" || fail "weir sync SOURCE said $?"
    expect_failure "nor the SOURCE of one" "$WEIR" umount "$SRC/inside"
    ln -s "$SRC" "$WORK/link"
    "$WEIR" umount "$WORK/link" || fail "weir umount SOURCE said $?"
    if is_mounted "$MNT"; then fail "still mounted"; fi
    expect_failure "nor the SOURCE of one" "$WEIR" umount "$SRC"
    # umount(8) treats a directory as a mount point, unless an option makes it read the mount table.
    mount_weir "$SRC" "$MNT"
    umount -l "$SRC" || fail "umount -l SOURCE said $?"
    wait_for is_unlocked
    counts "status, sync, umount"
}

umount_of_two_places() {
    mkdir "$WORK/other" "$WORK/third"
    for other in "$WORK/other" "$MNT"; do
        mount_weir "$SRC" "$MNT"
        echo "$other" >"$MNT/file"
        mount --bind "$MNT" "$other"
        expect_failure "also mounted at $other: unmount that, too" timeout -s KILL 30 "$WEIR" umount "$other"
        expect_equal "what is there" "$(cat "$other/file" "$SRC/file")" "$other
$other"
        timeout -s KILL 30 "$WEIR" umount "$other" || fail "weir umount of the last place said $?"
        wait_for is_unlocked
    done
    # By force it ends at all of them.
    mount_weir "$SRC" "$MNT"
    echo text >"$MNT/file"
    for other in "$WORK/other" "$WORK/third"; do mount --bind "$MNT" "$other"; done
    timeout -s KILL 30 "$WEIR" umount --force "$MNT" || fail "weir umount --force said $?"
    wait_for is_unlocked
    for place in "$MNT" "$WORK/other" "$WORK/third"; do
        if is_mounted "$place"; then fail "still mounted at $place"; fi
    done
    expect_equal "what is at home" "$(cat "$SRC/file")" text
    # What comes to a second place by itself goes with the first one.
    mkdir -p "$WORK/shared/mount" "$WORK/copy"
    mount --bind "$WORK/shared" "$WORK/shared"
    mount --make-shared "$WORK/shared"
    mount --bind "$WORK/shared" "$WORK/copy"
    mount_weir "$SRC" "$WORK/shared/mount"
    is_mounted "$WORK/copy/mount" || fail "it is not at the second place"
    timeout -s KILL 30 "$WEIR" umount "$WORK/shared/mount" || fail "weir umount of a shared mount said $?"
    wait_for is_unlocked
    umount "$WORK/copy" "$WORK/shared"
    counts "beside it and over it; three by force; shared"
}

mount_waits_for_former_daemon() {
    local daemon waiting
    mount_weir "$SRC" "$MNT" --dirty-expire 1h
    daemon=$(daemon_of "$MNT")
    echo last >"$MNT/file"
    # The stopped daemon cannot write home until it is continued.
    kill -STOP "$daemon"
    python3 -c 'import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
sys.exit(0 if libc.umount2(sys.argv[1].encode(), 0) == 0 else ctypes.get_errno())' "$MNT" || fail "umount2: $?"

    step "interrupted"
    status=0
    timeout --signal=INT 1 "$WEIR" mount "$SRC" "$MNT" --log-file "$DAEMON_LOG" >"$WORK/said" 2>&1 || status=$?
    cat "$WORK/said"
    expect_equal "exit status of the interrupted command" "$status" 124
    grep -q "waiting for process $daemon" "$WORK/said" || fail "it does not name the process that it waits for"
    if is_mounted "$MNT"; then fail "mounted"; fi

    step "waits and then mounts"
    "$WEIR" mount "$SRC" "$MNT" --log-file "$DAEMON_LOG" >"$WORK/said" 2>&1 &
    waiting=$!
    wait_for grep -q "waiting for process $daemon" "$WORK/said"
    kill -0 "$waiting" || fail "it does not wait"
    kill -CONT "$daemon"
    wait "$waiting" || fail "weir mount said $?: $(cat "$WORK/said")"
    is_mounted "$MNT" || fail "not mounted"
    expect_equal "what was written before" "$(cat "$MNT/file")" last

    step "does not wait for a mounted SOURCE"
    mkdir "$WORK/other"
    expect_failure "already mounted at $MNT" timeout 10 "$WEIR" mount "$SRC" "$WORK/other"
    umount_weir "$MNT"
    counts "interrupted, waited, mounted"
}

casefolded_weir_stays_hidden() {
    local way name
    if [ -e /sys/fs/ext4/features/casefold ]; then
        way="ext4 with casefold"
        loop_filesystem "$WORK/image" 64M "$WORK/folding" mkfs.ext4 -O casefold -E encoding=utf8
        SRC=$WORK/folding/src
        mkdir "$SRC"
        chattr +F "$SRC"
        mount_weir "$SRC" "$MNT"
    else
        # Without casefold support in the kernel: a second name of the directory by other means.
        way="a second name by a bind mount"
        mount_weir "$SRC" "$MNT"
        mkdir "$SRC/.WEIR"
        mount --bind "$SRC/.weir" "$SRC/.WEIR"
    fi
    for name in .weir .WEIR; do
        [ -e "$SRC/$name/lock" ] || fail "$name is not Weir's directory at home"
        expect_failure "No such file" ls "$MNT/$name"
        expect_failure "No such file" cat "$MNT/$name/lock"
        expect_failure "" touch "$MNT/$name"
        expect_failure "not permitted" mkdir "$MNT/$name"
        expect_failure "No such file" rmdir "$MNT/$name"
        expect_failure "No such file" mv "$MNT/$name" "$MNT/moved"
    done
    mkdir "$MNT/directory"
    expect_failure "not permitted" mv -T "$MNT/directory" "$MNT/.WEIR"
    expect_equal "the listing" "$(ls -A "$MNT")" directory
    # In other directories, and on case-sensitive file systems, it is an ordinary name.
    mkdir "$MNT/directory/.WEIR" "$MNT/.Weird"
    if [ "$way" != "ext4 with casefold" ]; then mkdir "$MNT/.wEIR"; fi
    if is_mounted "$SRC/.WEIR"; then umount "$SRC/.WEIR"; fi
    umount_weir "$MNT"
    if is_mounted "$WORK/folding"; then umount "$WORK/folding"; fi
    counts "$way"
}

# A thread of the daemon that waits for an unreachable SOURCE cannot be killed, and keeps the connection's descriptors.
killed_daemon_ends_waiting_requests() {
    local daemon server reader waiting
    need_command sshfs
    mkdir -p "$WORK/remote"
    printf '#!/bin/sh\necho $$ >"%s"\nexec /usr/lib/openssh/sftp-server\n' "$WORK/server" >"$WORK/ssh"
    chmod +x "$WORK/ssh"
    sshfs "nobody@nowhere:$WORK/remote" "$SRC" -o "ssh_command=$WORK/ssh"
    head -c 1M /dev/zero >"$WORK/remote/slow"
    mount_weir "$SRC" "$MNT"
    stat "$MNT/slow" >/dev/null
    daemon=$(daemon_of "$MNT")
    server=$(cat "$WORK/server")
    expect_equal "the server" "$(cat "/proc/$server/comm")" sftp-server
    kill -STOP "$server"
    cat "$MNT/slow" >"$WORK/read" 2>"$WORK/read-errors" &
    reader=$!
    # The daemon waits for the server, in the kernel.
    mkdir "$WORK/connections"
    mount -t fusectl none "$WORK/connections"
    waiting=$WORK/connections/$(stat -c %Ld "$SRC")/waiting
    wait_for grep -qx '[1-9][0-9]*' "$waiting"
    kill -9 "$daemon"
    wait_for ended "$reader"
    if wait "$reader"; then fail "a read without a daemon succeeded"; fi
    grep -E 'not connected|abort' "$WORK/read-errors" || fail "not the error of a mount without a daemon"
    if touch "$MNT/new" 2>"$WORK/errors"; then fail "a file was made without a daemon"; fi
    grep -E 'not connected|abort' "$WORK/errors" || fail "not the error of a mount without a daemon"
    kill -CONT "$server"
    umount "$WORK/connections"
    umount -l "$MNT"
    wait_for ended "$daemon"
    umount "$SRC"
}

# Whether a process has ended, waited for or not.
ended() {
    ! grep -q '^State:.[^Z]' "/proc/$1/status" 2>/dev/null
}

daemon_is_protected() {
    local daemon thread flags way count=0
    if setpriv --dump | grep -q '^Capability bounding set:.*sys_resource'; then
        mount_weir "$SRC" "$MNT"
        daemon=$(daemon_of "$MNT")
        echo x >"$MNT/file"
        "$WEIR" sync "$MNT"
        expect_equal "oom_score_adj" "$(cat "/proc/$daemon/oom_score_adj")" -900
        expect_equal "that of a program under weir run" \
            "$("$WEIR" run -- cat /proc/self/oom_score_adj)" "$(cat /proc/self/oom_score_adj)"
        # PF_MEMALLOC_NOIO, which PR_SET_IO_FLUSHER sets (proc_pid_stat(5), field 9).
        for thread in /proc/"$daemon"/task/*/stat; do
            flags=$(sed 's/.*) //' "$thread" | cut -d' ' -f7)
            [ $((flags & 0x80000)) != 0 ] || fail "a thread without PR_SET_IO_FLUSHER: $(cat "$thread")"
            count=$((count + 1))
        done
        way="in force for $count threads"
    else
        # Root without CAP_SYS_RESOURCE, as in a container: the request is refused, and nothing else changes.
        need_command strace
        strace -f -qq -o "$WORK/calls" -e trace=prctl,write "$WEIR" mount "$SRC" "$MNT" --log-file "$DAEMON_LOG" &
        wait_for "$WEIR" status "$MNT" >/dev/null
        wait_for grep -q '"-900", 4' "$WORK/calls"
        grep -q 'prctl(PR_SET_IO_FLUSHER, 1' "$WORK/calls" || fail "PR_SET_IO_FLUSHER is not requested"
        way="requested without the capability"
    fi
    umount_weir "$MNT"
    wait

    step "a score that was set before stays"
    choom -n 100 -- "$WEIR" mount "$SRC" "$MNT" --log-file "$DAEMON_LOG"
    expect_equal "oom_score_adj" "$(cat "/proc/$(daemon_of "$MNT")/oom_score_adj")" 100
    umount_weir "$MNT"
    counts "$way"
}

recovery_is_explained_by_file() {
    local before
    mkdir "$SRC/directory"
    head -c 100000 /dev/zero >"$SRC/directory/synced"
    mount_weir_foreground "$SRC" "$MNT" --names sync --log source --log-size 4M --dirty-expire 1h
    # Data goes home only by syncs; they are small, so that each is logged.
    python3 - "$MNT" <<'END'
import os, sys
os.chdir(sys.argv[1])
def synced(name, *writes):
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT)
    for offset, content in writes:
        os.pwrite(descriptor, content, offset)
    os.fdatasync(descriptor)
    os.close(descriptor)
for _ in range(3):
    synced("directory/synced", (10, b"one"), (50000, b"twoo"))
    synced("new\nline", (0, b"x" * 35))
    synced("gone", (0, b"y" * 10))
END
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    umount -l "$MNT"
    rm "$SRC/gone"
    before=$(hash_of_tree "$SRC")

    step "weir recover --dry-run"
    "$WEIR" recover --dry-run "$SRC" | tee "$WORK/would"
    explained "$WORK/would"
    expect_equal "lines of files" "$(grep -c '^  ' "$WORK/would")" 3
    expect_equal "SOURCE after it" "$(hash_of_tree "$SRC")" "$before"

    step "weir log"
    "$WEIR" log "$SRC" >"$WORK/log"
    explained "$WORK/log"
    grep -q '^  [0-9]* file [0-9]* is [0-9a-f]*: directory/synced$' "$WORK/log" || fail "a record's file has no name"
    cp "$SRC/.weir/log" "$WORK/copy"
    "$WEIR" log "$WORK/copy" --source "$SRC" >"$WORK/log"
    explained "$WORK/log"

    step "recovery does what --dry-run reported"
    "$WEIR" recover "$SRC"
    expect_equal "bytes" "$(dd if="$SRC/directory/synced" bs=1 skip=50000 count=4 status=none)" twoo
    expect_equal "size" "$(stat -c %s "$SRC/new"$'\n'line)" 35
    counts "three files, by name"
}

# Checks the lines that tell what recovery would do.
explained() {
    grep -qx '  directory/synced: write 7 bytes in 2 places between byte 10 and byte 50004' "$1" \
        || fail "directory/synced is not explained: $(cat "$1")"
    grep -q '^  new.nline: write 35 bytes from byte 0 on' "$1" || fail "the new file is not explained: $(cat "$1")"
    grep -q '^  a file that is gone: leave out [0-9]* records\? with 10 bytes$' "$1" \
        || fail "the file that is gone is not explained: $(cat "$1")"
}

"${1//-/_}"
