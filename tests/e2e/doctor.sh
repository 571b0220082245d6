#!/usr/bin/env bash
# weir doctor: says what a mount would say, changes nothing, and its commands mend what they are for.
# machine: as root and as an ordinary user, as lines and as JSON; without /dev/fuse it is a problem, in the mount's own words;
# a MOUNTPOINT that is missing, a configuration that is wrong, and --allow-other that is not permitted;
# recovery: the daemon is killed: the dead mount and the log are told of, by SOURCE and by /etc/fstab; a damaged log is a problem;
# place: where the log would be: in SOURCE, at a path, nowhere on a full disk, on this machine for SOURCE on another.
# cases: machine recovery place
# serial: machine place
# seconds: 8
source "${REPO:?}/tests/e2e/lib.sh"

need_root
need_command unshare setpriv python3
weir_only
export XDG_CONFIG_HOME=$WORK/config
mkdir -p "$XDG_CONFIG_HOME/weir"

# What the doctor says of a check, `LEVEL: FOUND`, and of how to mend it.
found() { python3 -c 'import json, sys
for one in json.load(open(sys.argv[1]))["findings"]:
    if one["check"] == sys.argv[2]: print(one["level"] + ":", one["found"])' "$WORK/said" "$1"; }
mend() { python3 -c 'import json, sys
for one in json.load(open(sys.argv[1]))["findings"]:
    if one["check"] == sys.argv[2] and "mend" in one: print(one["mend"])' "$WORK/said" "$1"; }
ready() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["ready"])' "$WORK/said"; }

# doctor STATUS [ARGUMENT...]: its report is in $WORK/said, and its status and what it says of problems agree.
doctor() {
    local wanted=$1 got=0
    shift
    "${by[@]}" "$WEIR" doctor --json "$@" >"$WORK/said" 2>"$WORK/complaint" || got=$?
    expect_equal "status of weir doctor $* ($(cat "$WORK/complaint"))" "$got" "$wanted"
    case $wanted in
        0) expect_equal "ready" "$(ready)" True ;;
        1) expect_equal "ready" "$(ready)" False ;;
    esac
    expect_equal "lines on standard error" "$(wc -l <"$WORK/complaint")" "$wanted"
}
by=()

expect_found() {
    case $(found "$1") in
        *"$2"*) ;;
        *) fail "of $1 it says '$(found "$1")', not '$2': $(cat "$WORK/said")" ;;
    esac
}

# Everything that could have been changed: names, kinds, modes, sizes, and times of content and of status.
snapshot() { { find "$SRC" "$MNT" "$WORK/state" "$XDG_CONFIG_HOME" -printf '%p %y %m %u %s %T@ %C@\n' 2>/dev/null || true; } | sort; }

# without_fuse COMMAND...: where there is no /dev/fuse.
without_fuse() {
    unshare --mount --propagation private sh -c 'mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && exec "$@"' sh "$@"
}

# with_file PATH FILE COMMAND...: where FILE is at PATH.
with_file() {
    unshare --mount --propagation private sh -c 'mount --bind "$2" "$1" && shift 2 && exec "$@"' sh "$@"
}

if [ "$1" = machine ]; then
    echo content >"$SRC/file"
    snapshot >"$WORK/before"
    doctor 0
    for check in fuse kernel io-uring open-files memory sessions configuration mounts; do
        [ -n "$(found $check)" ] || fail "nothing is said of $check"
    done
    doctor 0 "$SRC" "$MNT"
    expect_found source "can be served"
    expect_found mountpoint "is free"
    expect_found home "files are found by"
    expect_found log "in SOURCE/.weir"
    "$WEIR" doctor "$SRC" "$MNT" >"$WORK/lines"
    [ "$(grep -c '^ok  ' "$WORK/lines")" -gt 8 ] || fail "it says little: $(cat "$WORK/lines")"
    if grep -q '^problem' "$WORK/lines"; then fail "a problem: $(cat "$WORK/lines")"; fi
    snapshot | diff "$WORK/before" - || fail "something was changed"

    step "an ordinary user"
    chown nobody "$SRC" "$MNT"
    snapshot >"$WORK/before"
    by=(as_user nobody)
    doctor 0 "$SRC" "$MNT"
    expect_found fusermount3 "mounts for this user"
    printf '# nothing\n' >"$WORK/fuse.conf"
    printf '[mount."%s"]\nallow-other = true\n' "$MNT" >"$XDG_CONFIG_HOME/weir/config.toml"
    by=(with_file /etc/fuse.conf "$WORK/fuse.conf" setpriv --reuid=nobody --regid=nogroup --clear-groups --inh-caps=-all)
    doctor 1 "$SRC" "$MNT"
    expect_found allow-other "problem: allow_other is not permitted"
    rm "$XDG_CONFIG_HOME/weir/config.toml"
    doctor 0 "$SRC" "$MNT"
    expect_found allow-other "note: "
    snapshot | grep -v "$XDG_CONFIG_HOME" | diff <(grep -v "$XDG_CONFIG_HOME" "$WORK/before") - || fail "something was changed"

    step "without /dev/fuse"
    by=(without_fuse)
    doctor 1 "$SRC" "$MNT"
    said=$(found fuse)
    expect_found fuse "problem: /dev/fuse is missing"
    case $(mend fuse) in *modprobe*) ;; *) fail "it is not said how to mend it" ;; esac
    expect_failure "${said#problem: }" without_fuse "$WEIR" mount "$SRC" "$MNT"
    by=()

    step "what mends"
    doctor 1 "$SRC" "$WORK/not there"
    expect_found mountpoint "does not exist"
    expect_equal "what mends it" "$(mend mountpoint)" "mkdir -p '$WORK/not there'"
    mkdir -p "$WORK/not there"
    doctor 0 "$SRC" "$WORK/not there"
    doctor 1 "$WORK/gone"
    expect_found source "problem: SOURCE $WORK/gone does not exist"
    echo 'memory = "1X"' >"$XDG_CONFIG_HOME/weir/config.toml"
    doctor 1 "$SRC" "$MNT"
    expect_found configuration "config.toml:1: "
    expect_failure "config.toml:1: " "$WEIR" mount "$SRC" "$MNT"
    rm "$XDG_CONFIG_HOME/weir/config.toml"
    mount_weir "$SRC" "$MNT"
    doctor 0 "$SRC" "$MNT"
    expect_found source "is served at $MNT"
    doctor 1 "$SRC" "$WORK/not there"
    expect_found source "already served at $MNT"
    umount_weir "$MNT"
    counts "$(wc -l <"$WORK/lines") lines"
fi

if [ "$1" = recovery ]; then
    mount_weir_foreground "$SRC" "$MNT" --log-file "$DAEMON_LOG" --dirty-expire 1h
    for file in 1 2 3; do
        echo "content $file" >"$MNT/file$file"
        sync "$MNT/file$file"
    done
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    doctor 1 "$SRC" "$MNT"
    expect_found mounts "note: $MNT: the daemon of $MNT has died"
    expect_found mountpoint "problem: "
    expect_equal "what mends it" "$(mend mountpoint)" "weir umount $MNT"
    # It says that what was not home is lost, by its status, too.
    unmounted() { "$WEIR" umount "$MNT" >"$WORK/unmounted" 2>&1 || true; ! is_mounted "$MNT"; }
    soon unmounted || fail "it does not mend: $(cat "$WORK/unmounted")"
    snapshot >"$WORK/before"
    doctor 0 "$SRC" "$MNT"
    expect_found recovery "note: $SRC lacks what its log $SRC/.weir/log holds"
    expect_equal "what mends it" "$(mend recovery)" "weir recover $SRC"
    snapshot | diff "$WORK/before" - || fail "something was changed"

    step "by /etc/fstab"
    printf '%s %s fuse.weir nofail 0 0\n' "$SRC" "$MNT" >"$WORK/fstab"
    by=(with_file /etc/fstab "$WORK/fstab")
    doctor 0
    expect_found recovery "note: $SRC lacks"
    by=()

    step "a damaged log"
    cp -a "$SRC" "$WORK/kept"
    # The first group: later ones prove that it was whole.
    first=$("$WEIR" log "$SRC" | sed -n 's/^group .* at byte \([0-9]*\):.*/\1/p;T;q')
    printf '\377' | dd of="$SRC/.weir/log" bs=1 seek=$((first + 70)) conv=notrunc status=none
    doctor 1 "$SRC" "$MNT"
    expect_found recovery "problem: "
    expect_failure "damaged" "$WEIR" mount "$SRC" "$MNT"
    cp "$WORK/kept/.weir/log" "$SRC/.weir/log"

    step "mended"
    "$WEIR" recover "$SRC"
    expect_equal "a file" "$(cat "$SRC/file3")" "content 3"
    doctor 0 "$SRC" "$MNT"
    case $(found recovery) in note* | problem*) fail "still: $(found recovery)" ;; esac
fi

if [ "$1" = place ]; then
    doctor 0 "$SRC"
    expect_found log "ok: 64 MiB in SOURCE/.weir"
    printf 'log = "%s/elsewhere/log"\n' "$WORK" >"$XDG_CONFIG_HOME/weir/config.toml"
    doctor 1 "$SRC"
    expect_found log "problem: $WORK/elsewhere/log cannot be made"
    expect_equal "what mends it" "$(mend log)" "mkdir -p $WORK/elsewhere"
    mkdir "$WORK/elsewhere"
    doctor 0 "$SRC"
    expect_found log "ok: $WORK/elsewhere/log, 64 MiB to be made"
    rm "$XDG_CONFIG_HOME/weir/config.toml"

    step "a full disk"
    mount -t tmpfs -o size=4M none "$SRC"
    doctor 0 "$SRC" "$MNT"
    expect_found log "note: none: SOURCE has too little space"
    mount_weir "$SRC" "$MNT"
    [ ! -e "$SRC/.weir/log" ] || fail "the mount has a log, and the doctor said that there would be none"
    umount_weir "$MNT"
    umount "$SRC"

    step "SOURCE on another machine"
    need_command sshfs
    mkdir "$WORK/remote"
    printf '#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n' >"$WORK/ssh"
    chmod +x "$WORK/ssh"
    sshfs "nobody@nowhere:$WORK/remote" "$SRC" -o "ssh_command=$WORK/ssh"
    doctor 0 "$SRC" "$MNT"
    expect_found home "on another machine"
    expect_found log "in $STATE_DIRECTORY, as SOURCE is on another machine"
    [ ! -e "$STATE_DIRECTORY" ] || fail "it made the directory of logs"
    mount_weir_foreground "$SRC" "$MNT" --log-file "$DAEMON_LOG" --dirty-expire 1h
    [ -n "$(ls "$STATE_DIRECTORY")" ] || fail "the mount has no log there"
    doctor 0
    case $(found recovery) in *"$STATE_DIRECTORY"*) fail "a log in use: $(found recovery)" ;; esac
    echo content >"$MNT/file"
    sync "$MNT/file"
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    umount -l "$MNT"
    doctor 0
    expect_found recovery "note: the log $STATE_DIRECTORY/log-"
    "$WEIR" recover "$SRC"
    expect_equal "the file" "$(cat "$WORK/remote/file")" content
    doctor 0
    umount "$SRC"
fi
