#!/usr/bin/env bash
# The redo log: what was synced is there after kill -9 of the daemon, brought home by the next mount or by 'weir recover';
# damaged, truncated and foreign logs are refused and left unchanged; a mount that ends in order leaves none.
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
log=$SRC/.weir/log

# On a busy machine the first one takes its time.
acknowledged() {
    [ -n "$(find "$WORK/acked" -type f -size +0 2>/dev/null)" ]
}

# crash SECONDS: programs sync records through a mount until its daemon is killed.
crash() {
    rm -rf "$WORK/acked"
    rm -f "$SRC"/records-*
    mount_weir_foreground "$SRC" "$MNT" --log source --log-size 4M --dirty-expire 300ms "${options[@]}"
    python3 "$SUPPORT/records.py" write "$MNT" "$WORK/acked" 4 60 >"$WORK/load" &
    local load=$!
    soon acknowledged || fail "no record was synced"
    sleep "$1"
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    wait "$load" || fail "the load: $(cat "$WORK/load")"
    umount -l "$MNT"
    [ -s "$log" ] || fail "the daemon left no log"
}

step "kill -9, then mounted again"
total=0
for round in 1 2 3 4 5 6; do
    options=()
    if [ $((round % 2)) = 0 ]; then options=(--memory 16M --patch-memory 1M); fi
    crash "0.$((round * 2 + 3))"
    "$WEIR" log "$SRC" >"$WORK/shown" || fail "weir log: $(tail -3 "$WORK/shown")"
    grep -q '^group .* records' "$WORK/shown" || fail "weir log shows no group: $(head -5 "$WORK/shown")"
    mount_weir "$SRC" "$MNT" --log source
    synced=$(python3 "$SUPPORT/records.py" check "$MNT" "$WORK/acked") || fail "round $round: $synced"
    umount_weir "$MNT"
    python3 "$SUPPORT/records.py" check "$SRC" "$WORK/acked" >/dev/null || fail "round $round: SOURCE differs"
    [ ! -e "$SRC/.weir" ] || fail "a mount that ended in order left $(ls "$SRC/.weir")"
    total=$((total + ${synced%% *}))
done
counts "$total synced records kept over 6 kills"

step "weir recover"
options=()
crash 0.6
"$WEIR" recover --dry-run "$SRC" >"$WORK/would"
grep -q 'would be brought home' "$WORK/would" || fail "$(cat "$WORK/would")"
"$WEIR" recover "$SRC" >"$WORK/did"
python3 "$SUPPORT/records.py" check "$SRC" "$WORK/acked" >/dev/null || fail "recover left something out"
[ ! -e "$log" ] || fail "the log is still there"
expect_equal "a second time" "$("$WEIR" recover "$SRC")" "there is no log: nothing to recover"

step "mounted without a log after a crash"
crash 0.4
mount_weir "$SRC" "$MNT" --log none
python3 "$SUPPORT/records.py" check "$MNT" "$WORK/acked" >/dev/null || fail "what was synced is not there"
umount_weir "$MNT"
[ ! -e "$SRC/.weir" ] || fail "left: $(ls "$SRC/.weir")"

step "damaged logs"
crash 0.6
cp "$log" "$WORK/whole"
refused() {
    local before
    before=$(sha256sum <"$log")
    expect_failure "$1" "$WEIR" mount "$SRC" "$MNT" --log source --log-file "$DAEMON_LOG"
    expect_failure "$1" "$WEIR" recover "$SRC"
    expect_equal "the log after it was refused" "$(sha256sum <"$log")" "$before"
    if is_mounted "$MNT"; then fail "mounted over a log that was refused"; fi
}
# The first group after the checkpoint: a later one proves that it was durable.
first=$("$WEIR" log "$SRC" | sed -n 's/^group .* at byte \([0-9]*\):.*/\1/p;T;q')
printf '\377' | dd of="$log" bs=1 seek=$((first + 70)) conv=notrunc status=none
refused "is damaged at byte"
expect_failure "is damaged at byte" "$WEIR" log "$SRC"
cp "$WORK/whole" "$log"
truncate -s 1M "$log"
refused "it was cut"
cp "$WORK/whole" "$log"
printf '\11' | dd of="$log" bs=1 seek=8 conv=notrunc status=none
printf '\11' | dd of="$log" bs=1 seek=4104 conv=notrunc status=none
refused "checksum is wrong"
head -c 4194304 /dev/urandom >"$log"
refused "it is not a Weir log"
rm "$log"
mkdir "$log"
expect_failure "neither a file nor a block device" "$WEIR" mount "$SRC" "$MNT" --log source --log-file "$DAEMON_LOG"
rmdir "$log"
mkdir "$WORK/other"
cp "$WORK/whole" "$WORK/moved"
expect_failure "belongs to another SOURCE" \
    "$WEIR" mount "$WORK/other" "$MNT" --log "$WORK/moved" --log-file "$DAEMON_LOG"
cp "$WORK/whole" "$log"
"$WEIR" recover "$SRC" >/dev/null
python3 "$SUPPORT/records.py" check "$SRC" "$WORK/acked" >/dev/null || fail "the whole log was not recovered"

step "a log of its own"
# What is checked is what is written from here on.
rm "$SRC"/records-*
mount_weir "$SRC" "$MNT" --log "$WORK/own" --log-size 2M
mkdir "$WORK/elsewhere"
expect_failure "in use by another mount" \
    "$WEIR" mount "$WORK/other" "$WORK/elsewhere" --log "$WORK/own" --log-file "$DAEMON_LOG"
python3 "$SUPPORT/records.py" write "$MNT" "$WORK/acked2" 2 1
[ "$(status "$MNT" stats.log_groups)" -gt 0 ] || fail "nothing was logged"
umount_weir "$MNT"
"$WEIR" log "$WORK/own" | grep -q 'clean: nothing is replayed' || fail "the log is not clean"
mount_weir "$SRC" "$MNT" --log "$WORK/own"
python3 "$SUPPORT/records.py" check "$MNT" "$WORK/acked2" >/dev/null || fail "records are missing"
umount_weir "$MNT"

step "the cost of a small fsync"
python3 "$SUPPORT/patches.py" cold "$SRC/cold" 4096 1
drop_caches
mount_weir "$SRC" "$MNT" --log source --fetch lazy --dirty-expire 1h
python3 - "$MNT/cold" <<'END'
import os
import sys

descriptor = os.open(sys.argv[1], os.O_WRONLY)
for number in range(300):
    os.pwrite(descriptor, b"%064d" % number, number * 7919 % 4096 * 4096 + 100)
    os.fdatasync(descriptor)
END
expect_status "$MNT" stats.fetched_pages 0
groups=$(status "$MNT" stats.log_groups)
expect_equal "blocks of $groups groups" "$(status "$MNT" stats.log_blocks)" "$groups"
expect_equal "groups of 300 fsyncs" "$groups" 300
umount_weir "$MNT"
python3 - "$SRC/cold" <<'END' || fail "SOURCE lacks synced bytes"
import os
import sys

descriptor = os.open(sys.argv[1], os.O_RDONLY)
for number in range(300):
    if os.pread(descriptor, 64, number * 7919 % 4096 * 4096 + 100) != b"%064d" % number:
        sys.exit(1)
END
counts "300 small fsyncs of cold pages: 0 fetches, 300 blocks"

step "a log that fails"
memory=$WORK/memory
mkdir "$memory"
mount -t tmpfs -o size=48M none "$memory"
truncate -s 64M "$memory/image"
loop=$(losetup --find --show "$memory/image")
mount_weir "$SRC" "$MNT" --log "$loop"
python3 "$SUPPORT/records.py" write "$MNT" "$WORK/acked3" 1 0.1 >"$WORK/load"
expect_equal "the load on a good log" "$(cat "$WORK/load")" ""
# The next blocks of the log are holes, and there is no space to fill them.
dd if=/dev/zero of="$memory/ballast" bs=64K status=none 2>/dev/null || true
python3 "$SUPPORT/records.py" write "$MNT" "$WORK/acked4" 1 30 >"$WORK/load"
grep -q 'Input/output error\|No space' "$WORK/load" || fail "no fsync failed: $(cat "$WORK/load")"
echo kept >"$MNT/later"
expect_equal "a read after it" "$(cat "$MNT/later")" kept
expect_failure "error" python3 -c 'import os, sys; os.fsync(os.open(sys.argv[1], os.O_RDWR))' "$MNT/later"
mkdir "$MNT/directory"
expect_failure "Input/output error" sync "$MNT/directory"
"$WEIR" status "$MNT" | grep -q 'the log failed' || fail "weir status does not say that the log failed"
before=$(hash_of "$MNT/records-0")
umount_weir "$MNT"
expect_equal "at home" "$(cat "$SRC/later") $(hash_of "$SRC/records-0")" "kept $before"
# The log still holds older bytes: they must not come back.
rm "$memory/ballast"
mount_weir "$SRC" "$MNT" --log "$loop"
expect_equal "mounted again" "$(hash_of "$MNT/records-0")" "$before"
umount_weir "$MNT"
losetup -d "$loop"
umount "$memory"

step "wrong options"
expect_failure "too small" "$WEIR" mount "$SRC" "$MNT" --log source --log-size 4K
expect_failure "absolute path" "$WEIR" mount "$SRC" "$MNT" --log here
