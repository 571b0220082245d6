#!/usr/bin/env bash
# `--names log`: what recovery does about times that programs set, and about what somebody else removed or moved in SOURCE
# between the crash and the recovery; and the times of directories of a tree that is copied.
# cases: set-times-stay removed-directory moved-and-removed made-again tree-times
# seconds: 5
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only

mount_log() {
    mount_weir_foreground "$SRC" "$MNT" --names log --dirty-expire 1h
}

crash() {
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    umount -l "$MNT"
}

# recover TEXT...: succeeds, and says each of these.
recover() {
    "$WEIR" recover "$SRC" >"$WORK/said"
    for text in "$@"; do
        grep -q -F "$text" "$WORK/said" || fail "recovery does not say '$text': $(cat "$WORK/said")"
    done
}

# From then on SOURCE has what was made, and the log knows nothing of it.
settle() {
    "$WEIR" umount "$MNT"
    wait "$WEIR_PID"
    mount_log
}

modified() {
    stat -c %Y "$1"
}

# The directories below one, with their times.
directory_times() {
    (cd "$1" && find . -name .weir -prune -o -type d -not -name . -printf '%p %T@\n' | sort)
}

case "$1" in
set-times-stay)
    mount_log
    echo old >"$MNT/written-after"
    settle
    echo content >"$MNT/new"
    touch -d @1000000000 "$MNT/new" "$MNT/written-after"
    sync -d "$MNT/new" "$MNT/written-after"
    echo more >>"$MNT/written-after"
    sync "$MNT/new" "$MNT/written-after"
    crash
    recover
    [ "$(cat "$SRC/new")" = content ] || fail "the new file's data is not there"
    [ "$(modified "$SRC/new")" = 1000000000 ] || fail "new: $(stat "$SRC/new")"
    [ "$(cat "$SRC/written-after")" = $'old\nmore' ] || fail "the old file's data is not there"
    [ "$(modified "$SRC/written-after")" -gt 1500000000 ] || fail "$(stat "$SRC/written-after")"
    ;;
removed-directory)
    mount_log
    mkdir "$MNT/directory"
    settle
    mkdir "$MNT/directory/sub"
    echo acknowledged >"$MNT/directory/sub/file"
    sync "$MNT/directory/sub/file"
    crash
    rm -r "$SRC/directory"
    recover 'is in lost+weir-1'
    [ "$(cat "$SRC/lost+weir-1/sub/file")" = acknowledged ] || fail "$(find "$SRC")"
    mount_log
    [ "$(cat "$MNT/lost+weir-1/sub/file")" = acknowledged ] || fail "$(find "$MNT")"
    "$WEIR" umount "$MNT"
    ;;
moved-and-removed)
    mount_log
    mkdir "$MNT/moved" "$MNT/elsewhere"
    echo of-the-mount >"$MNT/removed"
    settle
    mv "$MNT/moved" "$MNT/renamed"
    echo acknowledged >"$MNT/renamed/file"
    mv "$MNT/removed" "$MNT/another-name"
    sync "$MNT/renamed/file"
    crash
    # What was renamed may be at home under either name.
    mv "$SRC"/moved "$SRC"/elsewhere/it 2>/dev/null || mv "$SRC"/renamed "$SRC"/elsewhere/it
    rm -f "$SRC/removed" "$SRC/another-name"
    recover 'another-name is missing' 'renamed is elsewhere/it'
    [ "$(cat "$SRC/elsewhere/it/file")" = acknowledged ] || fail "$(find "$SRC")"
    [ ! -e "$SRC/renamed" ] || fail "it was made again"
    mount_log
    "$WEIR" umount "$MNT"
    ;;
made-again)
    mount_log
    mkdir "$MNT/directory"
    echo content >"$MNT/directory/file"
    "$WEIR" sync "$MNT"
    touch "$MNT/directory/later"
    sync "$MNT/directory/later"
    crash
    rm -r "$SRC/directory"
    # The log may have it all, or none of it. SOURCE's file system may have lost it.
    recover
    find "$SRC" -name later | grep -q . || fail "$(find "$SRC"; cat "$WORK/said")"
    grep -q -e 'lost+weir-1' -e 'made again' "$WORK/said" || fail "$(cat "$WORK/said")"
    ;;
tree-times)
    mkdir -p "$WORK/tree/one/two/three" "$WORK/tree/empty"
    for number in $(seq 20); do
        echo "$number" | tee "$WORK/tree/one/$number" >"$WORK/tree/one/two/three/$number"
    done
    find "$WORK/tree" -depth -type d -exec touch -d @1000000000.123456789 {} +
    for names in log behind; do
        mount_weir_foreground "$SRC" "$MNT" --names $names
        cp -a "$WORK/tree" "$MNT/copied-$names"
        mkdir "$MNT/unpacked-$names"
        tar -C "$WORK/tree" -c . | tar -C "$MNT/unpacked-$names" -x
        mkdir "$MNT/touched-$names"
        echo content >"$MNT/touched-$names/file"
        touch -d 2001-01-01 "$MNT/touched-$names"
        directory_times "$MNT" >"$WORK/seen"
        "$WEIR" sync "$MNT"
        directory_times "$SRC" >"$WORK/synced"
        "$WEIR" umount "$MNT"
        directory_times "$SRC" >"$WORK/unmounted"
        for found in synced unmounted; do
            diff "$WORK/seen" "$WORK/$found" || fail "$names, $found: times of directories differ"
        done
        [ "$(grep -c ' 1000000000\.' "$WORK/seen")" -ge 10 ] || fail "$(cat "$WORK/seen")"
    done
    ;;
esac
