#!/usr/bin/env bash
# The C library (library/weir.h): an example server holds its own replies, and its clients outside keep what they saw; after kill -9 of
# the daemon all of it is recovered, also if the server writes by the lane. The same server without the wait loses some. Promises that are
# waited for at once share a commit. Errors are those that the header names, and stay.
# cases: server server-lane sharing errors failing-log ends mapping installed
# seconds: 40
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command cc

COMMIT=(--order all --commit 5m)

# compile PROGRAM SOURCE: a program with the library.
compile() {
    cc -O2 -Wall -Wextra -Werror -pthread -I "$REPO/library" -o "$WORK/$1" "$2" "$REPO/library/weir.c"
}

promises() {
    timeout -s KILL 60 "$WORK/promises" "$@"
}

kill_daemon() {
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    umount -l "$MNT"
}

# serve_and_kill SERVER...: clients use the server until the daemon is killed at some moment. What they saw is in `seen`, and what was
# recovered in `keys` in SOURCE.
serve_and_kill() {
    local server clients
    rm -f "$WORK/port" "$WORK/seen" "$SRC/keys"
    mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}"
    "$@" "$MNT/keys" >"$WORK/port" 2>"$WORK/said" &
    server=$!
    soon filled "$WORK/port" || fail "the server does not begin: $(cat "$WORK/said")"
    timeout -s KILL 60 python3 "$SUPPORT/kv_clients.py" load "$(cat "$WORK/port")" "$WORK/seen" &
    clients=$!
    soon size_passes "$MNT/keys" 1000 || fail "nothing is set"
    sleep "0.$((RANDOM % 6))"
    POSTED=$(status "$MNT" lane.posted_writes)
    kill_daemon
    # It ends when a promise is not kept; without waiting, when it has lost its mount.
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    wait "$clients" || fail "a client failed"
    "$WEIR" recover "$SRC" >"$WORK/recovered"
    touch "$SRC/keys"
}

size_passes() { [ "$(stat -c %s "$1")" -gt "$2" ]; }

# nothing_seen_is_lost ROUNDS SERVER...
nothing_seen_is_lost() {
    local rounds=$1 all=0 seen
    shift
    for ((round = 0; round < rounds; round++)); do
        serve_and_kill "$@"
        seen=$(python3 "$SUPPORT/kv_clients.py" check "$WORK/seen" "$SRC/keys") || fail "it was lost"
        [ "$seen" -gt 0 ] || fail "nothing was seen"
        all=$((all + seen))
    done
    counts "$rounds kills, $all lines seen"
}

case ${1:?} in
server)
    compile kv_server "$REPO/library/kv_server.c"
    nothing_seen_is_lost 8 "$WORK/kv_server"
    sed 's/ || weir_wait(&promise)//' "$REPO/library/kv_server.c" >"$WORK/kv_careless.c"
    compile kv_careless "$WORK/kv_careless.c"
    serve_and_kill "$WORK/kv_careless"
    expect_failure "are lost" python3 "$SUPPORT/kv_clients.py" check "$WORK/seen" "$SRC/keys"
    ;;
server-lane)
    compile kv_server "$REPO/library/kv_server.c"
    nothing_seen_is_lost 4 "$WEIR" run -- "$WORK/kv_server"
    [ "$POSTED" -gt 20 ] || fail "the lane was not used"
    ;;
sharing)
    compile promises "$SUPPORT/promises.c"
    mount_weir "$SRC" "$MNT" "${COMMIT[@]}"
    touch "$MNT/file"
    promises threads "$MNT/file"
    expect_equal "commits for 64 promises" "$(status "$MNT" requests.fsyncdir)" 1
    expect_equal "lines" "$(wc -l <"$MNT/file")" 64
    umount_weir "$MNT"
    ;;
errors)
    cc -O1 -g -Wall -Wextra -Werror -fsanitize=address,undefined -pthread -I "$REPO/library" -o "$WORK/unescape" "$SUPPORT/unescape.c"
    "$WORK/unescape" || fail "escapes of the mount table are not undone"
    compile promises "$SUPPORT/promises.c"
    touch "$WORK/outside"
    mount_weir "$SRC" "$MNT" "${COMMIT[@]}" --allow-other
    touch "$MNT/file"
    promises errors "$MNT/file" "$WORK/outside"
    # Another user than the daemon's.
    chmod 666 "$MNT/file"
    as_user nobody "$WORK/promises" errors "$MNT/file" "$WORK/outside"
    promises forks "$MNT/file"
    promises forks-beside-commits "$MNT/file"
    promises fork-beside-the-first "$MNT/file"
    # A bind mount of a part will do, and a name that the mount table escapes.
    mkdir "$MNT/part" "$WORK/bound here"
    touch "$MNT/part/file"
    mount --bind "$MNT/part" "$WORK/bound here"
    promises errors "$WORK/bound here/file" "$WORK/outside"
    umount "$WORK/bound here"
    umount_weir "$MNT"
    mount_weir "$SRC" "$MNT"
    promises unordered "$MNT/file"
    promises unordered "$MNT/part"
    umount_weir "$MNT"
    ;;
failing-log)
    compile promises "$SUPPORT/promises.c"
    mkdir "$WORK/memory"
    mount -t tmpfs -o size=8M none "$WORK/memory"
    truncate -s 64M "$WORK/memory/image"
    loop=$(losetup --find --show "$WORK/memory/image")
    mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}" --log "$loop" 2>>"$DAEMON_LOG"
    touch "$MNT/file"
    sync "$MNT/file"
    # The next blocks of the log are holes, and there is no space to fill them.
    dd if=/dev/zero of="$WORK/memory/ballast" bs=4K status=none 2>/dev/null || true
    promises failing "$MNT/file"
    kill_daemon
    losetup -d "$loop"
    umount_soon "$WORK/memory"
    ;;
ends)
    compile promises "$SUPPORT/promises.c"
    mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}"
    touch "$MNT/file"
    sync "$MNT/file"
    coproc PROMISES { promises daemons "$MNT/file"; }
    read -r -u "${PROMISES[0]}"
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    echo >&"${PROMISES[1]}"
    read -r -u "${PROMISES[0]}" || fail "with a dead daemon"
    umount -l "$MNT"
    mount_weir "$SRC" "$MNT" "${COMMIT[@]}"
    echo >&"${PROMISES[1]}"
    read -r -u "${PROMISES[0]}" || fail "with the next daemon"
    umount_weir "$MNT"
    mount_weir "$SRC" "$MNT" "${COMMIT[@]}"
    echo >&"${PROMISES[1]}"
    read -r -u "${PROMISES[0]}" || fail "with a third daemon"
    umount_weir "$MNT"
    mount_weir "$SRC" "$MNT"
    runner=$PROMISES_PID
    echo >&"${PROMISES[1]}"
    wait "$runner" || fail "with a mount that keeps no order"
    umount_weir "$MNT"
    ;;
mapping)
    compile promises "$SUPPORT/promises.c"
    mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}"
    head -c 4096 /dev/zero >"$MNT/file"
    coproc PROMISES { promises mapping "$MNT/file"; }
    read -r -u "${PROMISES[0]}"
    kill_daemon
    "$WEIR" recover "$SRC" >"$WORK/recovered"
    expect_equal "what a mapping changed" "$(head -c 6 "$SRC/file")" mapped
    runner=$PROMISES_PID
    echo >&"${PROMISES[1]}"
    wait "$runner"
    ;;
installed)
    make -s -C "$REPO" -o build install DESTDIR="$WORK/staged" WEIR="$WEIR" BUCKET="${WEIR_BUCKET:?}" PRELOAD="$(dirname "$WEIR")/libweir_preload.so" \
        LIBRARY="$WORK/libweir.a"
    cc -O2 -pthread -I "$WORK/staged/usr/local/include" -o "$WORK/kv_server" "$REPO/library/kv_server.c" -L "$WORK/staged/usr/local/lib" -lweir
    mount_weir "$SRC" "$MNT"
    expect_failure "Operation not supported" "$WORK/kv_server" "$MNT/keys"
    umount_weir "$MNT"
    make -s -C "$REPO" uninstall DESTDIR="$WORK/staged"
    expect_equal "what is left" "$(find "$WORK/staged" ! -type d)" ""
    ;;
esac
