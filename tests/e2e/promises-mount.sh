#!/usr/bin/env bash
# Mounting, unmounting and looking at a log: what the manual promises of each.
# timeout: 120
# cases: umount-names-other-namespaces
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only

# wait_for SECONDS COMMAND...: until it succeeds.
wait_for() {
    local tenths=$(($1 * 10))
    shift
    for _ in $(seq "$tenths"); do
        if "$@"; then return; fi
        sleep 0.1
    done
    fail "in vain for $((tenths / 10)) s: $*"
}

# Whether nobody has SOURCE locked.
is_unlocked() {
    [ ! -e "${1:-$SRC}/.weir/lock" ]
}

# pid of the daemon of a mount
daemon_of() {
    status "$1" pid
}

umount_names_other_namespaces() {
    local holder daemon said
    mount_weir "$SRC" "$MNT"
    daemon=$(daemon_of "$MNT")
    # A namespace of its own, whose mounts are private: the mount stays there.
    unshare --mount --propagation private sleep 300 &
    holder=$!
    wait_for 10 grep -qx sleep "/proc/$holder/comm"
    wait_for 10 grep -qF " $MNT " "/proc/$holder/mountinfo"
    echo kept >"$MNT/file"

    step "unmounted here, and returns, and says who holds it"
    if said=$(timeout 20 "$WEIR" umount "$MNT" 2>&1); then
        fail "the mount goes on elsewhere, and umount said: done"
    else
        [ $? != 124 ] || fail "weir umount did not return within 20 s"
    fi
    echo "$said"
    expect_equal "lines" "$(wc -l <<<"$said")" 1
    case $said in
        *"everything is home and durable"*"$MNT is unmounted here"*"sleep ($holder)"*"process $daemon"*) ;;
        *) fail "not all of it is told" ;;
    esac
    if is_mounted "$MNT"; then fail "still mounted here"; fi
    expect_equal "the file at home" "$(cat "$SRC/file")" kept

    step "goes on there, and ends with the last namespace"
    expect_equal "seen there" "$(nsenter --target "$holder" --mount cat "$MNT/file")" kept
    nsenter --target "$holder" --mount sh -c "echo later >'$MNT/later'"
    kill "$holder"
    wait "$holder" || true
    wait_for 20 is_unlocked
    expect_equal "written there" "$(cat "$SRC/later")" later

    step "by force it ends"
    mount_weir "$SRC" "$MNT"
    unshare --mount --propagation private sleep 300 &
    holder=$!
    wait_for 10 grep -qx sleep "/proc/$holder/comm"
    echo forced >"$MNT/file"
    timeout 20 "$WEIR" umount --force "$MNT" || fail "weir umount --force said $?"
    expect_equal "at home" "$(cat "$SRC/file")" forced
    is_unlocked || fail "SOURCE is still locked after --force"
    kill "$holder"
    wait "$holder" || true

    step "a mount that is shared is unmounted in all of them"
    local shared=$WORK/shared
    mkdir "$shared"
    mount --bind "$shared" "$shared"
    mount --make-shared "$shared"
    mkdir "$shared/mnt"
    mount_weir "$SRC" "$shared/mnt"
    unshare --mount --propagation slave sleep 300 &
    holder=$!
    wait_for 10 grep -qx sleep "/proc/$holder/comm"
    umount_weir "$shared/mnt"
    is_unlocked || fail "SOURCE is still locked"
    umount "$shared"
    kill "$holder"
    wait "$holder" || true
    counts "named, returned, ended"
}

"${1//-/_}"
