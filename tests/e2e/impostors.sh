#!/usr/bin/env bash
# What other users put in a daemon's place, seen by root. planted: sockets in a directory in /tmp that would be root's: nobody connects to
# them, and nothing of them is shown. mounts: an ordinary user's own mount with a "daemon" that takes no connection, says nothing, sends a byte
# now and then, or never ends its line: each command ends, the C library says ETIMEDOUT or EPROTO in time, and other mounts are shown.
# escapes: texts that a terminal would obey are shown escaped, and metrics stay valid.
# claims: a mount that says that it serves a directory that its user does not own: root's commands do not ask its "daemon", and others mount.
# cases: planted mounts escapes claims
# serial
# timeout: 300
# seconds: 60
# all: mounts
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command cc python3
if [ -z "${IN_NAMESPACE:-}" ]; then
    # What is planted is for nobody else: its /run and /tmp are others.
    exec unshare --mount --pid --fork --kill-child --propagation private env IN_NAMESPACE=1 "$0" "$@"
fi
mount -t proc proc /proc
mount -t tmpfs none /run
mount --rbind /tmp /mnt
mount -t tmpfs -o mode=1777 none /tmp
for place in /mnt/*; do
    name=${place##*/}
    # What other tests left there is not removed from here.
    if [[ $name == weir-* && $WORK/ != "/tmp/$name/"* ]]; then continue; fi
    if [ -d "$place" ] && [ ! -L "$place" ]; then
        mkdir "/tmp/$name"
        mount --rbind "$place" "/tmp/$name"
    fi
done
FAKE=$WORK/fake
mkdir "$FAKE"
# Mounts of others are not in this test's way.
awk '$3 == "fuse.weir" { print $2 }' /proc/self/mounts | xargs -r -d '\n' -n 1 umount -l

# in_time SECONDS COMMAND...: it ends by itself. STATUS is its status; what it says is in `said` and `complained`.
in_time() {
    local seconds=$1 began=$SECONDS
    shift
    STATUS=0
    timeout -s KILL 100 "$@" >"$WORK/said" 2>"$WORK/complained" || STATUS=$?
    [ $((SECONDS - began)) -le "$seconds" ] || fail "$* took $((SECONDS - began)) s"
}

# beside NAME SECONDS COMMAND...: as in_time, in the background; what it says is in NAME/said and so on, its status in NAME/status.
beside() {
    local name=$1
    shift
    mkdir -p "$WORK/$name"
    (
        WORK=$WORK/$name
        in_time "$@"
        echo "$STATUS" >"$WORK/status"
    ) &
    BESIDE+=($!)
}

# Waits for all of these.
all_in_time() {
    local process
    for process in "${BESIDE[@]}"; do
        wait "$process" || fail "a command did not end in time"
    done
    BESIDE=()
}

# No control character but the ends of lines reaches a terminal; neither does one of two bytes.
is_harmless() {
    if LC_ALL=C grep -q $'[\x01-\x09\x0b-\x1f\x7f]\|\xc2[\x80-\x9f]' "$1"; then fail "$2: $(cat -v "$1")"; fi
}

begin_fake() {
    rm -f "$WORK/faked"
    python3 "$SUPPORT/fake_mount.py" "$@" >"$WORK/faked" 2>&1 &
    FAKER=$!
    soon grep -qs ready "$WORK/faked" || fail "fake_mount: $(cat "$WORK/faked")"
}

end_fake() {
    kill -9 "$FAKER"
    wait "$FAKER" 2>/dev/null || true
    umount -l "$FAKE" 2>/dev/null || true
    rm -rf /tmp/weir-[0-9]*
}

case ${1:?} in
planted)
    for how in escapes full silent trickle; do
        begin_fake plant "$how"
        in_time 20 "$WEIR" status
        expect_equal "the status with $how" "$STATUS $(cat "$WORK/said" "$WORK/complained")" "0 no weir mounts"
        in_time 20 "$WEIR" status --prometheus
        expect_equal "metrics with $how" "$STATUS $(cat "$WORK/said" "$WORK/complained")" "0 "
        in_time 20 "$WEIR" top --once
        expect_equal "top with $how" "$STATUS $(cat "$WORK/said" "$WORK/complained")" "0 no weir mounts"
        if grep -q 'connected\|asked' "$WORK/faked"; then fail "somebody connected to $how: $(cat "$WORK/faked")"; fi
        end_fake
    done
    step "a link to a directory of root"
    mkdir -m 700 /tmp/roots
    python3 "$SUPPORT/answers.py" /tmp/roots/process-1.sock /dev/null &
    answers=$!
    setpriv --reuid=nobody --regid=nogroup --clear-groups ln -s /tmp/roots /tmp/weir-0
    in_time 20 "$WEIR" status
    expect_equal "the status with a link" "$STATUS $(cat "$WORK/said" "$WORK/complained")" "0 no weir mounts"
    kill "$answers"
    wait "$answers" 2>/dev/null || true
    rm /tmp/weir-0

    step "weir umount in another namespace, whose mount is the last one"
    mount_weir "$SRC" "$MNT"
    unshare --mount --propagation private sleep 300 &
    holder=$!
    soon grep -qx sleep "/proc/$holder/comm"
    soon grep -qF " $MNT " "/proc/$holder/mountinfo"
    in_time 30 "$WEIR" umount "$MNT"
    expect_equal "the exit status here" "$STATUS" 1
    nsenter --target "$holder" --mount sh -c "echo there >'$MNT/file'"
    setpriv --reuid=nobody --regid=nogroup --clear-groups mkdir -m 700 /tmp/weir-0
    in_time 30 nsenter --target "$holder" --mount "$WEIR" umount "$MNT"
    expect_equal "the exit status there" "$STATUS $(cat "$WORK/complained")" "0 "
    expect_equal "written there" "$(cat "$SRC/file")" there
    rmdir /tmp/weir-0
    kill "$holder"
    wait "$holder" || true
    ;;
mounts)
    cc -O2 -Wall -Wextra -Werror -pthread -I "$REPO/library" -o "$WORK/ask_c" "$SUPPORT/ask.c" "$REPO/library/weir.c" "$REPO/library/control.c"
    mount_weir "$SRC" "$MNT"
    for how in full silent trickle endless; do
        step "$how"
        begin_fake "$how" "$FAKE"
        BESIDE=()
        beside status 40 "$WEIR" status
        beside metrics 40 "$WEIR" status --prometheus
        beside top 20 "$WEIR" top --once
        beside doctor 40 "$WEIR" doctor
        beside library 15 "$WORK/ask_c" status "$FAKE"
        all_in_time
        expect_equal "the exit status" "$(cat "$WORK/status/status")" 1
        grep -q "$FAKE" "$WORK/status/complained" || fail "it does not name the mount: $(cat "$WORK/status/complained")"
        grep -qx "$MNT" "$WORK/status/said" || fail "the other mount is not shown: $(cat "$WORK/status/said")"
        grep -qF "weir_up{mountpoint=\"$FAKE\"" "$WORK/metrics/said" || fail "no metric says that it is down"
        wanted=ETIMEDOUT
        [ "$how" != endless ] || wanted=EPROTO
        expect_equal "what the library says" "$(cat "$WORK/library/said")" "$wanted"
        end_fake
    done
    step "full, and what takes as long as it takes"
    begin_fake full "$FAKE"
    in_time 15 "$WORK/ask_c" sync-mount "$FAKE"
    expect_equal "what the library says" "$(cat "$WORK/said")" ETIMEDOUT
    in_time 20 "$WEIR" umount "$FAKE"
    expect_equal "the exit status" "$STATUS" 1
    grep -q "did not answer" "$WORK/complained" || fail "$(cat "$WORK/complained")"
    end_fake

    step "others can enter the directory"
    begin_fake escapes "$FAKE"
    chmod 755 /tmp/weir-[0-9]*
    in_time 20 "$WEIR" status "$FAKE"
    grep -q "can be entered by others" "$WORK/complained" || fail "$(cat "$WORK/complained")"
    in_time 15 "$WORK/ask_c" status "$FAKE"
    expect_equal "what the library says" "$(cat "$WORK/said")" EPERM
    if grep -q 'connected\|asked' "$WORK/faked"; then fail "somebody connected: $(cat "$WORK/faked")"; fi
    end_fake
    umount_weir "$MNT"
    ;;
claims)
    chmod 755 "$SRC"
    begin_fake obeys "$FAKE" nobody "$SRC"
    for command in sync status umount; do
        in_time 20 "$WEIR" "$command" "$SRC"
        expect_equal "the exit status of $command" "$STATUS" 1
        grep -q "neither in a weir mount" "$WORK/complained" || fail "$command: $(cat "$WORK/complained")"
    done
    if grep -q 'connected\|asked' "$WORK/faked"; then fail "somebody connected: $(cat "$WORK/faked")"; fi
    step "it was mounted later than the mount of root"
    end_fake
    mount_weir "$SRC" "$MNT"
    begin_fake obeys "$FAKE" nobody "$SRC"
    echo away >"$MNT/file"
    weir sync "$SRC"
    expect_equal "what is home after a sync" "$(cat "$SRC/file")" away
    weir umount "$SRC"
    if is_mounted "$MNT"; then fail "it is still mounted"; fi
    end_fake
    step "whose source is above everything, or below"
    mkdir "$SRC/below"
    for claimed in / "$SRC/below"; do
        begin_fake obeys "$FAKE" nobody "$claimed"
        mount_weir "$SRC" "$MNT"
        umount_weir "$MNT"
        end_fake
    done
    step "the owner of a directory is believed"
    chown nobody "$SRC/below"
    begin_fake obeys "$FAKE" nobody "$SRC/below"
    expect_failure "two mounts of the same files" "$WEIR" mount "$SRC" "$MNT"
    end_fake
    ;;
escapes)
    evil=$FAKE/$(printf 'm\033]0;taken\007;reboot')
    mkdir "$evil"
    FAKE=$evil
    begin_fake escapes "$evil"
    for command in "status" "status --requests" "status --json" "status --prometheus" "top --once" "top --once --json" "doctor" "sync" "umount"; do
        # shellcheck disable=SC2086 # some words
        case $command in
            sync | umount) in_time 40 "$WEIR" $command "$evil" ;;
            *) in_time 40 "$WEIR" $command ;;
        esac
        is_harmless "$WORK/said" "$command"
        is_harmless "$WORK/complained" "$command"
        [ "$command" != status ] || expect_equal "its source" "$(grep -c '^  source  *x.u{1b}.0;taken' "$WORK/said")" 1
        if [ "$command" = "status --prometheus" ]; then
            grep -q '^# weir: left out: it is there already: weir_session_promises_total' "$WORK/said" || fail "$(cat "$WORK/said")"
            expect_equal "samples twice" "$(grep -v '^#' "$WORK/said" | sed 's/ [^ ]*$//' | sort | uniq -d)" ""
            ! command -v promtool >/dev/null || promtool check metrics <"$WORK/said" || fail "promtool does not like it"
        fi
    done
    end_fake

    step "a mending command is what a shell can be given"
    begin_fake mount "$evil"
    in_time 20 "$WEIR" doctor
    mend=$(sed -n 's/^ *to mend: \(umount .*\)/\1/p' "$WORK/said")
    [ -n "$mend" ] || fail "it says nothing to mend: $(cat "$WORK/said")"
    is_harmless "$WORK/said" doctor
    bash -c "${mend/#umount/umount -l}" || fail "the shell cannot do '$mend'"
    if grep -q taken /proc/self/mounts; then fail "'$mend' does not unmount it"; fi
    end_fake
    ;;
esac
