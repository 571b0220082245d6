#!/usr/bin/env bash
# SOURCE's disk fails for good, and the log, which is elsewhere, is full of changes of names. Programs that change names wait
# for a while, and then get SOURCE's error; all others go on at any time after that, and `weir umount --force` ends the mount.
# all
# seconds: 45
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_filesystem ext4
# With fewer inodes than this has, names would wait for SOURCE.
start_disk none 2G ext4
mount "$DISK_DEVICE" "$SRC"
echo readable >"$SRC/read"
sync -f "$SRC"
mount_weir_foreground "$SRC" "$MNT" --names log --log "$WORK/log" --log-size 1M
mkdir "$MNT/many"
cat "$MNT/read" >/dev/null
# While it is open, the mount has its data. The kernel may forget what nobody has open, and then only SOURCE has it.
exec {read}<"$MNT/read"
"$WEIR" sync "$MNT"
"$BENCH" disk cut --dir "$DISK" --seed 1 >/dev/null

# Creates files until that fails.
creates() {
    local number=0
    while [ "$number" -lt 100000 ] && : 2>"$WORK/why-$1" >"$MNT/many/$1-$number-$(printf '%0220d' 0)"; do
        number=$((number + 1))
    done
    echo "$number" >"$WORK/created-$1"
}

# More of them than the daemon has threads for requests.
programs=()
for program in $(seq 40); do
    creates "$program" 2>"$WORK/why-$program" &
    programs+=($!)
done
all_ended() {
    local program
    for program in "${programs[@]}"; do
        if kill -0 "$program" 2>/dev/null; then return 1; fi
    done
}
soon all_ended || fail "programs that create files wait for ever: $("$WEIR" status "$MNT" 2>&1 | grep names)"
created=$(cat "$WORK"/created-* | awk '{ all += $1 } END { print all }')
[ "$created" -gt 100 ] || fail "only $created files were created"
grep -qiE "read-only|input/output" "$WORK/why-1" || fail "creating a file fails with: $(cat "$WORK/why-1")"
within() { timeout --signal=KILL 10 "$@"; }
# Nobody waits for what SOURCE alone has, though it cannot be had.
ends() {
    local status=0
    within "$@" >/dev/null 2>&1 || status=$?
    [ "$status" != 137 ]
}
[ "$(within cat <&"$read")" = readable ] || fail "an open file cannot be read"
exec {read}<&-
ends cat "$MNT/read" || fail "reading a file takes for ever"
ends ls "$MNT" || fail "listing a directory takes for ever"
if within touch "$MNT/another" 2>/dev/null; then fail "a name was made that the log has no room for"; fi
if within rm "$MNT/many/1-0-$(printf '%0220d' 0)" 2>/dev/null; then fail "a name was removed"; fi
within "$WEIR" status "$MNT" >/dev/null || fail "no status"
if timeout 60 "$WEIR" umount --force "$MNT" 2>"$WORK/lost"; then fail "nothing was lost"; fi
grep -q "unmounted by force" "$WORK/lost" || fail "weir umount --force: $(cat "$WORK/lost")"
wait "$WEIR_PID" || true
umount_soon "$SRC"
stop_disk
counts "$created files were created without SOURCE before the log was full"
