# shellcheck shell=bash
# Common to all end-to-end tests: strict mode, SRC and MNT below the test's WORK directory, mounting, checks,
# and reading `weir status`. It is sourced; run the tests through tests/run.
#
# WEIR_STANDIN=bind serves SRC by a bind mount instead of Weir: for debugging the scripts alone.
# Checks that only Weir can answer (status, the daemon's memory) are then left out.

set -euo pipefail
: "${WORK:?run this through tests/run}" "${REPO:?}" "${TOOLS:?}" "${WEIR:?}"
SUPPORT=$REPO/tests/e2e/support
SRC=$WORK/src
MNT=$WORK/mnt
mkdir -p "$SRC" "$MNT"
export XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-$WORK}
# Where logs are that are not in SOURCE.
export STATE_DIRECTORY=$WORK/state

fail() {
    printf 'FAIL: %s\n' "$*" >&2
    exit 1
}

skip() {
    printf 'skip: %s\n' "$*" >&2
    exit 77
}

# A run called lane-NAME has UNDER=lane: commands after "${under[@]}", and programs given to under_lane, run under
# `weir run`.
under=()
if [ "${UNDER:-}" = lane ]; then
    [ "${WEIR_STANDIN:-}" != bind ] || { echo "skip: needs weir itself, not a stand-in" >&2; exit 77; }
    "$WEIR" run --help >/dev/null 2>&1 || { echo "skip: this weir has no 'run'" >&2; exit 77; }
    # shellcheck disable=SC2034 # used by the tests
    under=("$WEIR" run --)
fi
under_lane() {
    local name
    [ "${UNDER:-}" = lane ] || return 0
    for name in "$@"; do eval "$name() { \"\$WEIR\" run -- $name \"\$@\"; }"; done
}

# In a run called xfs-NAME or sshfs-NAME, SOURCE is on that file system. In one called bucket-NAME it is a bucket, and SRC has
# the objects as plain files. It is called when all functions are there.
make_home() {
    case ${UNDER:-} in
        xfs)
            [ "$(id -u)" = 0 ] || skip "needs root"
            need_filesystem xfs
            need_command mkfs.xfs
            loop_filesystem "$WORK/home.image" 2G "$SRC" mkfs.xfs -q
            ;;
        sshfs)
            [ "$(id -u)" = 0 ] || skip "needs root"
            need_command sshfs
            [ -x /usr/lib/openssh/sftp-server ] || skip "there is no sftp-server"
            mkdir "$WORK/remote"
            printf '#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n' >"$WORK/ssh"
            chmod +x "$WORK/ssh"
            local options=allow_other,default_permissions
            # By default newer ones tell no target that is absolute, which programs use.
            if [[ $(sshfs --help 2>&1) = *no_contain_symlinks* ]]; then options+=,no_contain_symlinks; fi
            sshfs "nobody@nowhere:$WORK/remote" "$SRC" -o "ssh_command=$WORK/ssh" -o "$options"
            ;;
        bucket)
            weir_only
            source "$SUPPORT/store.sh"
            start_store
            SRC=$OBJECTS/bucket/pre
            ;;
    esac
}

# see_home: in a run called bucket-NAME, SRC is from here on the bucket as weir-bucket shows it elsewhere, with owners, modes and times.
see_home() {
    [ "${UNDER:-}" = bucket ] || return 0
    SRC=$WORK/seen
    mkdir "$SRC"
    "$WEIR_BUCKET" mount "$SOURCE" "$SRC" --state "$WORK/seen-state" --endpoint "$ENDPOINT" --allow-other >"$WORK/seen-ready" &
    SEEN_BY=$!
    soon filled "$WORK/seen-ready" || fail "the bucket cannot be mounted elsewhere"
}

leave_home() {
    case ${UNDER:-} in
        xfs | sshfs) umount "$SRC" 2>/dev/null || umount -l "$SRC" ;;
        bucket)
            if [ -n "${SEEN_BY:-}" ]; then
                umount "$SRC"
                wait "$SEEN_BY"
            fi
            [ -z "${STORE_PID:-}" ] || stop_store
            ;;
    esac
}

# soon COMMAND...: waits until the command succeeds. What is waited for comes at once as a rule; a minute is more than it
# takes on any machine, however busy.
soon() {
    local until=$((SECONDS + 60))
    until "$@"; do
        [ "$SECONDS" -lt "$until" ] || return 1
        sleep 0.05
    done
}

# Whether a process has ended.
ended() {
    ! kill -0 "$1" 2>/dev/null
}

# Whether a file exists, is not empty, and is not there, as commands to wait for.
exists() { [ -e "$1" ]; }
filled() { [ -s "$1" ]; }
absent() { [ ! -e "$1" ]; }

# Shown beside the test's result.
counts() {
    printf 'counts: %s\n' "$*"
}

step() {
    printf -- '--- %s\n' "$*"
}

standin() {
    [ "${WEIR_STANDIN:-}" = bind ]
}

weir_only() {
    if standin; then skip "needs weir itself, not a stand-in"; fi
}

need_root() {
    [ "$(id -u)" = 0 ] || skip "needs root"
}

need_command() {
    local name
    for name in "$@"; do
        command -v "$name" >/dev/null || skip "$name is not installed: run 'make setup'"
    done
}

need_tool() {
    [ -x "$TOOLS/bin/$1" ] || skip "$1 is not built: run 'make setup'"
}

need_filesystem() {
    grep -qw "$1" /proc/filesystems || skip "this kernel has no $1"
}

# Runs a command as an ordinary user, in an ordinary user's environment.
as_user() {
    local user=$1
    shift
    setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups --inh-caps=-all \
        env HOME="$WORK" XDG_RUNTIME_DIR="$WORK/run-$user" "$@"
}

# Whether a directory is a mount point. Does not access it: it may be another user's, or dead.
is_mounted() {
    grep -qF " $1 " /proc/self/mountinfo
}

# On failure the daemons' logs are printed.
DAEMON_LOG=$WORK/daemon.log
at_exit() {
    local status=$?
    if [ "$status" != 0 ] && [ "$status" != 77 ] && [ -s "$DAEMON_LOG" ]; then
        echo "the daemon's log ends with:"
        tail -15 "$DAEMON_LOG"
    fi
    leave_home
}
trap at_exit EXIT

# The command, as MOUNT_USER if that is set: users of the lane must be the user that mounted.
weir() {
    if [ -z "${MOUNT_USER:-}" ]; then
        "$WEIR" "$@"
    else
        as_user "$MOUNT_USER" "$WEIR" "$@"
    fi
}

# mount_by USER: from here on this user mounts, and owns SRC and MNT.
mount_by() {
    MOUNT_USER=$1
    mkdir -p "$WORK/run-$1"
    touch "$DAEMON_LOG"
    chown "$1" "$WORK/run-$1" "$SRC" "$MNT" "$DAEMON_LOG"
    chmod 700 "$WORK/run-$1"
}

# mount_weir SOURCE MOUNTPOINT [OPTION...]: returns when the mount answers.
mount_weir() {
    local source=$1 mountpoint=$2
    shift 2
    if standin; then
        mount --bind "$source" "$mountpoint"
        return
    fi
    [ -x "$WEIR" ] || fail "$WEIR is not built: run 'make checked'"
    # In a run called sync-NAME names wait for SOURCE.
    [ "${UNDER:-}" != sync ] || set -- --names sync "$@"
    if [ "${UNDER:-}" = bucket ] && [ "$source" = "$SRC" ]; then
        source=$SOURCE
        set -- --endpoint "$ENDPOINT" "$@"
    fi
    weir mount "$source" "$mountpoint" --log-file "$DAEMON_LOG" "$@"
    is_mounted "$mountpoint" || fail "weir mount returned, and $mountpoint is not a mount"
}

# The same in the foreground of a background job: WEIR_PID is the daemon.
mount_weir_foreground() {
    local source=$1 mountpoint=$2
    shift 2
    weir_only
    "$WEIR" mount --foreground "$source" "$mountpoint" "$@" &
    WEIR_PID=$!
    soon serves_or_ended "$mountpoint" || fail "no mount at $mountpoint after a minute"
    if ended "$WEIR_PID"; then fail "the daemon ended before it mounted"; fi
}

# The mount exists before the daemon answers commands.
serves_or_ended() {
    ended "$WEIR_PID" || { is_mounted "$1" && "$WEIR" status "$1" >/dev/null 2>&1; }
}

# The control socket of root's mount at $1.
socket_of() {
    printf '/run/weir/%s.sock\n' "$(awk -v point="$1" '$5 == point { print $3 }' /proc/self/mountinfo)"
}

# umount(8) and fusermount3(1) return before the daemon has written home: waits for content of a file of SOURCE.
expect_home_soon() {
    soon has_content "$1" "$2" || expect_equal "$1" "$(cat "$1")" "$2"
}

has_content() {
    [ "$(cat "$1" 2>/dev/null)" = "$2" ]
}

umount_weir() {
    if standin; then
        umount "$1"
        return
    fi
    weir umount "$1" || fail "weir umount said $?"
    if is_mounted "$1"; then fail "$1 is still a mount after weir umount"; fi
    [ "${UNDER:-}" != bucket ] || soon no_bucket || fail "weir-bucket goes on after weir umount"
}

# status MOUNTPOINT FIELD...: the named numbers of `weir status --json`, on one line.
status() {
    local mountpoint=$1
    shift
    weir status "$mountpoint" --json | python3 "$SUPPORT/field.py" "$@"
}

# In a run called lane-NAME: checks that writes came by the lane.
expect_lane() {
    local writes
    [ "${UNDER:-}" = lane ] || return 0
    writes=$(status "$1" lane.posted_writes)
    [ "$writes" -gt 0 ] || fail "no write has come by the lane"
    echo "$writes writes came by the lane"
}

# expect_status MOUNTPOINT FIELD WANTED
expect_status() {
    local got
    got=$(status "$1" "$2")
    [ "$got" = "$3" ] || fail "weir status says $2 is $got, wanted $3"
}

# status_is MOUNTPOINT FIELD WANTED, and status_passes MOUNTPOINT FIELD MORE_THAN: to wait for.
status_is() {
    [ "$(status "$1" "$2")" = "$3" ]
}

status_passes() {
    [ "$(status "$1" "$2")" -gt "$3" ]
}

expect_equal() {
    [ "$2" = "$3" ] || fail "$1: got '$2', wanted '$3'"
}

# expect_failure WORDS COMMAND...: the command fails and one of its lines contains the words.
expect_failure() {
    local words=$1 output
    shift
    if output=$("$@" 2>&1); then fail "succeeded, and must not: $*"; fi
    case $output in
        *"$words"*) ;;
        *) fail "'$*' failed without saying '$words': $output" ;;
    esac
}

drop_caches() {
    sync
    if [ "$(id -u)" = 0 ]; then echo 3 >/proc/sys/vm/drop_caches; fi
}

hash_of() {
    sha256sum <"$1" | cut -d' ' -f1
}

# A hash over every name, type, mode and content below a directory.
hash_of_tree() {
    python3 "$SUPPORT/tree.py" manifest "$1" | sha256sum | cut -d' ' -f1
}

# expect_same_tree WHAT GOT WANTED: fails, with the lines that differ, if the two directories hold other trees.
expect_same_tree() {
    local difference
    difference=$(diff <(python3 "$SUPPORT/tree.py" manifest "$2") <(python3 "$SUPPORT/tree.py" manifest "$3")) ||
        fail "$1 is not as wanted (<: got, >: wanted):"$'\n'"$(head -n 20 <<<"$difference")"
}

# mkfs_btrfs [OPTION...] IMAGE: mkfs.btrfs looks for the backing files of all loop devices that are mounted, and fails if one has
# no path here, as those of emulated disks, which other tests may have at the moment. So it is run where none is mounted.
mkfs_btrfs() {
    # shellcheck disable=SC2016 # expanded by the inner shell
    unshare --mount sh -c 'awk "\$1 ~ /^.dev.loop/ { print \$2 }" /proc/self/mounts | xargs -r -n 1 umount -l; exec mkfs.btrfs "$@"' sh "$@"
}

# loop_filesystem IMAGE SIZE DIRECTORY MKFS [OPTION...]: makes a file system in a file and mounts it.
loop_filesystem() {
    local image=$1 size=$2 directory=$3
    shift 3
    truncate -s "$size" "$image"
    "$@" "$image" >/dev/null 2>&1 || fail "$1 failed on $image"
    mkdir -p "$directory"
    mount -o loop "$image" "$directory" || skip "cannot mount a loop device"
}

# start_disk MODEL SIZE FILESYSTEM: an emulated disk below WORK with an empty file system. DISK is for 'weir-bench disk',
# DISK_DEVICE the loop device, and stop_disk ends it.
BENCH=${WEIR_BENCH:?}
DISK=$WORK/disk
start_disk() {
    [ -x "$BENCH" ] || skip "weir-bench is not built: run 'make checked'"
    need_command losetup "mkfs.$3"
    mkdir "$DISK"
    : >"$WORK/held"
    "$BENCH" disk run --model "$1" --size "$2" --image "$WORK/image" --dir "$DISK" >"$WORK/held" &
    DISK_RUNNER=$!
    soon disk_or_ended "$DISK_RUNNER" || fail "the disk is not there after a minute"
    DISK_DEVICE=$(grep -o '^/dev/loop[0-9]*' "$WORK/held") || fail "the disk did not start"
    "mkfs.$3" -q "$DISK_DEVICE"
}

disk_or_ended() {
    ended "$1" || grep -q '^/dev/loop[0-9]' "$WORK/held"
}

# The kernel releases a killed daemon's files a moment after its end.
umount_soon() {
    soon umount "$1" 2>/dev/null || umount "$1"
}

# Whether the kernel has no file system of this device any more. Namespaces of mounts, which other tests have, keep it after its unmount here,
# and a mount would find it as the power cut left it in memory.
is_released() { ! compgen -G "/sys/fs/*/${1##*/}" >/dev/null; }

# After a power cut: the daemon of mount_weir_foreground is killed, and the disk is mounted again with what it kept.
mount_after_cut() {
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    umount -l "$MNT"
    umount_soon "$SRC"
    soon is_released "$DISK_DEVICE" || fail "the file system on $DISK_DEVICE is mounted in another namespace"
    "$BENCH" disk restore --dir "$DISK"
    mount "$DISK_DEVICE" "$SRC" && return
    # A cut may tear a write between two sectors, and ext4 writes its superblock, which has two, in place.
    e2fsck -fy "$DISK_DEVICE" || [ $? = 1 ] || fail "the file system cannot be repaired"
    mount "$DISK_DEVICE" "$SRC"
}

stop_disk() {
    kill "$DISK_RUNNER"
    wait "$DISK_RUNNER" || true
}

make_home
