#!/usr/bin/env bash
# weir top. once: one sample for scripts, held against weir status, under load and with a home that stands still. view: the program
# in a terminal: keys, sizes, colours, signals, a mount that ends and a daemon that does not answer.
# gone: the terminal is closed, or takes nothing: the program ends.
# cases: once view gone
# all: view
# seconds: 30
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command fsfreeze mkfs.ext4

HOME_IS_FROZEN=
thaw() {
    if [ -n "$HOME_IS_FROZEN" ]; then fsfreeze --unfreeze "$SRC"; fi
    HOME_IS_FROZEN=
}
freeze() {
    fsfreeze --freeze "$SRC"
    HOME_IS_FROZEN=yes
}
trap 'thaw; at_exit' EXIT

# Other tests have mounts beside these, so every mount is named, or looked for among all.
of_mount() {
    python3 -c 'import json, sys
print(json.dumps([one for one in json.load(sys.stdin) if one["mountpoint"] == sys.argv[1]][0]))' "$1"
}

once() {
    weir top --once --json "$@"
}

loop_filesystem "$WORK/home.image" 64M "$SRC" mkfs.ext4 -q
case $1 in
once)
    # Without a log a sync goes home, and waits for it.
    mount_weir "$SRC" "$MNT" --log none

    step "bad input"
    status=0
    weir top </dev/null >"$WORK/out" 2>&1 || status=$?
    expect_equal "without a terminal" "$status" 2
    grep -q -- --once "$WORK/out" || fail "it does not say what to do: $(cat "$WORK/out")"
    expect_equal "lines of the message" "$(wc -l <"$WORK/out")" 1
    expect_failure "100ms" weir top --once --interval 5ms
    expect_failure "--once" weir top --json
    expect_failure "neither in a weir mount" weir top --once /proc

    step "rates of a load"
    python3 "$SUPPORT/top.py" load "$MNT/load" "$WORK/stop" &
    load=$!
    soon status_passes "$MNT" stats.writes 20 || fail "the load does not get on"
    before=$(status "$MNT" stats.writes)
    once --interval 1s "$MNT" >"$WORK/once.json"
    after=$(status "$MNT" stats.writes)
    python3 "$SUPPORT/top.py" check-rates "$WORK/once.json" "$before" "$after"
    weir top --once --interval 200ms "$MNT" >"$WORK/once"
    cat "$WORK/once"
    grep -q "^MOUNT .* WRITE/s .* DIRTY .* SYNC99$" "$WORK/once" || fail "no line of titles"
    grep -qF "$MNT/load" "$WORK/once" || fail "the file that is synced all the time is not named"
    touch "$WORK/stop"
    wait "$load" || fail "the load failed"
    weir sync "$MNT"

    step "the same figures as weir status"
    weir status "$MNT" --json >"$WORK/status.json"
    once --interval 100ms "$MNT" >"$WORK/once.json"
    python3 "$SUPPORT/top.py" check-status "$WORK/once.json" "$WORK/status.json"
    # Another test may have a daemon that does not answer: then the status is 1.
    { once --interval 100ms || true; } | of_mount "$MNT" >"$WORK/once.json"
    python3 "$SUPPORT/top.py" check-status "$WORK/once.json" "$WORK/status.json"

    step "a home that stands still: the file that waits is named"
    slow=$(printf 'slow\tfile')
    # Its page is in memory, so that the write does not wait.
    printf 'as it was\n' >"$MNT/$slow"
    weir sync "$MNT"
    freeze
    python3 - "$MNT/$slow" <<'END' &
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY)
os.write(file, b"changed")
os.fsync(file)
END
    writer=$!
    soon status_is "$MNT" waiting.syncs 1 || fail "nobody waits"
    sleep 1
    once --interval 200ms "$MNT" >"$WORK/once.json"
    python3 "$SUPPORT/top.py" check-waits "$WORK/once.json" "$slow"
    weir top --once --interval 200ms "$MNT" >"$WORK/once"
    cat "$WORK/once"
    grep -qF "$MNT/slow\\tfile" "$WORK/once" || fail "the slow file is not named, with its tab escaped"
    thaw
    wait "$writer" || fail "the sync failed"
    once --interval 100ms "$MNT" >"$WORK/once.json"
    python3 "$SUPPORT/top.py" check-waited "$WORK/once.json" "$slow"

    step "a daemon that does not answer"
    pid=$(status "$MNT" pid)
    kill -STOP "$pid"
    status=0
    began=$SECONDS
    once --interval 100ms "$MNT" >"$WORK/once.json" || status=$?
    took=$((SECONDS - began))
    kill -CONT "$pid"
    expect_equal "the exit status" "$status" 1
    [ "$took" -le 20 ] || fail "it took $took seconds"
    grep -q '"no_answer": "no answer"' "$WORK/once.json" || fail "it does not say so: $(cat "$WORK/once.json")"
    umount_weir "$MNT"
    expect_failure "neither in a weir mount" weir top --once "$MNT"
    counts "rates, figures, a slow file, silence"
    ;;
view)
    # So little memory that the watermarks are reached.
    mount_weir "$SRC" "$MNT" --memory 32M --write-back-interval 200ms
    mkdir "$WORK/second" "$WORK/second-mount"
    mount_weir "$WORK/second" "$WORK/second-mount"
    python3 "$SUPPORT/terminal.py"
    if [ "${WEIR_PICTURES:-}" = 1 ]; then
        mkdir -p "$REPO/docs/pictures"
        picture=$REPO/docs/pictures/top.svg
    else
        picture=$WORK/top.svg
    fi
    WEIR=$WEIR python3 "$SUPPORT/top.py" view "$MNT" "$WORK/second-mount" "$(status "$MNT" pid)" "$WORK" "$picture"
    [ -s "$picture" ] || fail "there is no picture"
    if is_mounted "$WORK/second-mount"; then fail "the second mount is still there"; fi
    umount_weir "$MNT"
    ;;
gone)
    mount_weir "$SRC" "$MNT"
    WEIR=$WEIR timeout -s KILL 200 python3 "$SUPPORT/top.py" gone "$MNT"
    umount_weir "$MNT"
    ;;
esac
umount_soon "$SRC"
