#!/usr/bin/env bash
# Random operations on names by four processes, each made on the mount and on a plain directory: the same results and
# errors, the same files afterwards, and after `weir sync` and at the end the same in SOURCE. Those with `kill`: kill -9 of the
# daemon, and what was synced is there. WEIR_NAMES_OPERATIONS sets how many operations, SEED which, WEIR_NAMES_TRANSPORT the
# transport (io-uring is turned on for the run, which must be alone), and WEIR_NAMES_TOLERATE words of
# `names_reference.py --tolerate`, to look for differences beside those that are known.
# cases: sync behind log sshfs kill log-kill
# long-cases: log-sshfs log-sshfs-kill
# long
# seconds: 20
source "${REPO:?}/tests/e2e/lib.sh"

need_root
case=$1
seed=${SEED:-$$}
operations=${WEIR_NAMES_OPERATIONS:-}
if [ -z "$operations" ] && [ -n "$LONG" ]; then operations=400000; fi
PLAIN=$WORK/plain
mkdir "$PLAIN" "$WORK/traces"
chmod 755 "$SRC" "$MNT" "$PLAIN"

tolerate=()
for word in ${WEIR_NAMES_TOLERATE:-}; do tolerate+=(--tolerate "$word"); done
reference() {
    python3 "$SUPPORT/names_reference.py" "$@" --can "$WORK/can" "${tolerate[@]}"
}

names=()
if [ "$case" != sync ]; then
    weir_only
    names=(--names behind)
    case $case in log*) names=(--names log) ;; esac
fi
if [ -n "${WEIR_NAMES_TRANSPORT:-}" ]; then
    names+=(--transport "$WEIR_NAMES_TRANSPORT")
    if [ "$WEIR_NAMES_TRANSPORT" = io-uring ]; then
        setting=/sys/module/fuse/parameters/enable_uring
        before=$(cat "$setting")
        trap 'echo "$before" >"$setting"; at_exit' EXIT
        echo 1 >"$setting"
    fi
fi
if ! standin; then
    if "$WEIR" mount --help | grep -q -e '--names '; then
        [ "$case" != sync ] || names+=(--names sync)
    elif [ "$case" != sync ]; then
        skip "this weir has no --names"
    fi
fi
# Without names in the log recovered data has the time of its last logged write (docs/SEMANTICS.md).
check=()
[ "$case" != kill ] || check=(--tolerate mtime)
sync=()
if ! standin; then sync=(--weir "$WEIR"); fi
echo "seed $seed"

# What is in SOURCE when nothing is mounted on it.
HOME_OF=$SRC
case $case in *sshfs*)
    need_command sshfs
    HOME_OF=$WORK/remote
    mkdir "$HOME_OF"
    chmod 755 "$HOME_OF"
    printf '#!/bin/sh\numask 0\nexec /usr/lib/openssh/sftp-server\n' >"$WORK/ssh"
    chmod +x "$WORK/ssh"
    sshfs "nobody@nowhere:$HOME_OF" "$SRC" -o "ssh_command=$WORK/ssh" -o allow_other,default_permissions
    ;;
esac
python3 "$SUPPORT/names_reference.py" can "$SRC" "$PLAIN" >"$WORK/can"
echo "home against the plain directory: $(cat "$WORK/can")"

# one_round ROUND OPERATIONS [OPTION...]: mounts with these options, and compares all in the end.
total=0
one_round() {
    local round=$1 count=$2 said
    shift 2
    step "round $round: $*"
    mount_weir "$SRC" "$MNT" --allow-other "${names[@]}" "$@"
    said=$(reference run "$round" "$MNT" "$PLAIN" "$HOME_OF" --seed "$seed" --operations "$count" --traces "$WORK/traces" \
        "${sync[@]}") || { echo "$said"; fail "the mount answers otherwise with SEED=$seed, in round $round"; }
    total=$((total + said))
    umount_weir "$MNT"
    reference compare "$round" "$HOME_OF" "$PLAIN" || fail "the tree at home is another with SEED=$seed, in round $round"
}

# One round in which the daemon is killed; the next mount has what was synced, and so has SOURCE after that.
kept=0
killed_round() {
    local round=$1 runner said
    step "round $round"
    mount_weir_foreground "$SRC" "$MNT" --allow-other --log-file "$DAEMON_LOG" "${names[@]}"
    reference run "$round" "$MNT" "$PLAIN" "$HOME_OF" --seed "$seed" --operations 100000000 --kill "$WORK/notes" \
        --traces "$WORK/traces" "${sync[@]}" >"$WORK/said" &
    runner=$!
    soon exists "$PLAIN/$round" || fail "the load does not begin"
    sleep "$(printf '0.%03d' $((RANDOM % 1000)))"
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    wait "$runner" || { cat "$WORK/said"; fail "before the kill, with SEED=$seed, in round $round"; }
    total=$((total + $(cat "$WORK/said")))
    fusermount3 -uz "$MNT"
    if [ $((RANDOM % 3)) = 0 ]; then
        # What the next mount does first can be cut off, too.
        mount_weir_foreground "$SRC" "$MNT" --allow-other --log-file "$DAEMON_LOG" "${names[@]}"
        kill -9 "$WEIR_PID"
        wait "$WEIR_PID" 2>/dev/null || true
        fusermount3 -uz "$MNT"
    fi
    step "mounted again"
    mount_weir "$SRC" "$MNT" --allow-other "${names[@]}"
    said=$(reference check "$round" "$MNT" "$WORK/notes" "${check[@]}") || { find "$SRC/.weir" -ls; echo "$said"; fail "what was synced, with SEED=$seed, in round $round"; }
    kept=$((kept + said))
    umount_weir "$MNT"
    step "unmounted"
    reference check "$round" "$SRC" "$WORK/notes" "${check[@]}" >"$WORK/said" ||
        { cat "$WORK/said"; fail "in SOURCE, what was synced, with SEED=$seed, in round $round"; }
    step "mounted again, and all removed"
    mount_weir "$SRC" "$MNT" --allow-other "${names[@]}"
    rm -rf "${MNT:?}/$round" || fail "what is left of round $round cannot be removed, with SEED=$seed"
    umount_weir "$MNT"
    [ ! -e "$SRC/$round" ] || fail "what was removed of round $round is at home, with SEED=$seed"
    rm -r "${PLAIN:?}/$round"
}

case $case in
    kill | log-kill | log-sshfs-kill)
        need_command fusermount3
        # The moments of the kills, too, but for what the machine does.
        RANDOM=$((seed % 32768))
        for ((round = 1; total < ${operations:-0} || round <= 6; round++)); do killed_round "r$round"; done
        case $case in *sshfs*) umount "$SRC" ;; esac
        counts "$total operations, $((round - 1)) kills, $kept promises kept"
        ;;
    sshfs | log-sshfs)
        one_round r1 "${operations:-4000}"
        umount "$SRC"
        counts "$total operations"
        ;;
    *)
        # In the second, the kernel remembers nothing, and data goes home at once.
        each=$((${operations:-16000} / 2))
        one_round r1 "$each"
        one_round r2 "$each" -o entry_timeout=0,attr_timeout=0 --memory 16M --dirty-expire 100ms
        counts "$total operations"
        ;;
esac
