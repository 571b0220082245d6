#!/usr/bin/env bash
# The client API, in Rust (crates/client) and in C (library/control.c): the examples on real mounts write, wait for a promise, and see the file
# go home, as `weir status FILE` tells it. Both give the answers and the kinds of errors that they document: for paths with every kind of
# name, paths in no mount, another user's mount, a daemon that is dead, stopped, replaced or of another version, and for what is no answer
# at all.
# cases: journal paths users gone answers
# all: gone
# seconds: 25
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command cc python3
[ -x "${EXAMPLES:?}/ask" ] || skip "the examples are not built: run 'make checked'"

# Ordinary users cannot reach into the repository.
cp "$EXAMPLES/ask" "$EXAMPLES/journal" "$WORK"
compile() {
    cc -O2 -Wall -Wextra -Werror -pthread -I "$REPO/library" -o "$WORK/$1" "$2" "$REPO/library/weir.c" "$REPO/library/control.c"
}
compile ask_c "$SUPPORT/ask.c"
chmod 755 "$WORK"/ask "$WORK"/ask_c

checks=0
# both QUESTION PATH RUST C: what either program says begins with this. `user` may be a command to run them by.
user=()
both() {
    local said
    said=$("${user[@]}" timeout -s KILL 60 "$WORK/ask" "$1" "$2" </dev/null || true)
    [[ $said = "$3"* ]] || fail "$1 of '$2' in Rust says '$said', wanted '$3'"
    [ "$(wc -l <<<"$said")" = 1 ] || [[ $2 = *$'\n'* ]] || fail "$1 of '$2' is not one line: $said"
    if [ -n "$4" ]; then
        said=$("${user[@]}" timeout -s KILL 60 "$WORK/ask_c" "$1" "$2" </dev/null || true)
        [[ $said = "$4"* ]] || fail "$1 of '$2' in C says '$said', wanted '$4'"
    fi
    checks=$((checks + 2))
}

kill_daemon() {
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
}

case ${1:?} in
journal)
    compile journal_c "$REPO/library/journal.c"
    for options in "--order all --commit 5m" "--log none"; do
        # shellcheck disable=SC2086 # several
        mount_weir "$SRC" "$MNT" $options
        # New names are told of as dirty until SOURCE has them.
        touch "$MNT/rust" "$MNT/c"
        "$WEIR" sync "$MNT"
        "$WORK/journal" "$MNT/rust" 100 >"$WORK/rust"
        "$WORK/journal_c" "$MNT/c" 100 >"$WORK/c"
        for file in rust c; do
            grep -qi "^written: dirty" "$WORK/$file" || fail "$file: what was written is not dirty: $(cat "$WORK/$file")"
            # Its times may not be home yet, for which it is told of as dirty.
            grep -qiE "^durable: (dirty|logged|home)$" "$WORK/$file" || fail "$file: it does not say how durable: $(cat "$WORK/$file")"
            grep -qix "synced: home" "$WORK/$file" || fail "$file: what was synced is not home: $(cat "$WORK/$file")"
            expect_equal "weir status FILE" "$("$WEIR" status "$MNT/$file")" "$MNT/$file: home"
            expect_equal "lines in SOURCE" "$(sort -u "$SRC/$file" | wc -l)" 100
        done
        grep -qx "dirty: 0 bytes" "$WORK/rust" || fail "something is dirty after a sync"
        version=$("$WEIR" --version | cut -d' ' -f2)
        grep -q "^weir $version by process " "$WORK/rust" || fail "the version is not $version: $(cat "$WORK/rust")"
        # The whole status, as the command has it.
        difference=$(diff <(sed -n 's/^{/{/p' "$WORK/c" | python3 -c 'import json, sys; print(*sorted(json.load(sys.stdin)))') \
            <("$WEIR" status "$MNT" --json | python3 -c 'import json, sys; print(*sorted(json.load(sys.stdin)))')) ||
            fail "the status in C has other fields than the command's: $difference"
        umount_weir "$MNT"
        rm "$SRC/rust" "$SRC/c"
    done
    # A crash takes nothing that a promise covers, and without one there is no commit.
    mount_weir_foreground "$SRC" "$MNT" --order all --commit 5m
    seq 100 >"$MNT/kept"
    both promise "$MNT/kept" kept ""
    seq 100 >"$MNT/careless"
    kill_daemon
    umount -l "$MNT"
    "$WEIR" recover "$SRC" >"$WORK/recovered"
    expect_equal "lines after a crash" "$(cat "$SRC/kept")" "$(seq 100)"
    if [ -s "$SRC/careless" ]; then fail "something that no promise covers was committed: the test shows nothing"; fi
    ;;
paths)
    # The mount table escapes all of these.
    strange="$WORK/strange"$' \\040#\t'"place"
    mkdir "$strange" "$WORK/outside"
    touch "$WORK/outside/file"
    # The functions of other tests do not find it in the mount table.
    "$WEIR" mount "$SRC" "$strange" --log-file "$DAEMON_LOG"
    for name in "a b" "-o" $'new\nline' $'\xff\xfe' "\\134" "$(printf 'x%.0s' {1..255})" "user_id=4711" "ü"; do
        echo x >"$strange/$name"
        both sync "$strange/$name" synced durable
        # A new name is told of as dirty until SOURCE has it.
        both sync-mount "$strange/$name" synced synced
        both state "$strange/$name" Home home
        both status "$strange/$name" "{" "{"
    done
    both state "$strange/../${strange##*/}/./a b" Home home
    both state "$strange" Home home
    both promise "$strange" Unordered EOPNOTSUPP
    ln -s "$strange/a b" "$WORK/into"
    ln -s "$WORK/outside/file" "$strange/out"
    ln -s nowhere "$strange/dangling"
    mkfifo "$strange/fifo"
    both state "$WORK/into" Home home
    both status "$WORK/into" "{" "{"
    both state "$strange/out" NotMounted ENOTTY
    both sync "$strange/out" NotMounted ""
    both state "$strange/dangling" Path "open ENOENT"
    both state "$strange/fifo" Path ""
    both sync "$strange/fifo" Path ""
    both state "$strange/a b/c" Path "open ENOTDIR"
    both state "" Path "open ENOENT"
    both state "/$(printf 'x%.0s' {1..5000})" Path "open ENAMETOOLONG"
    for question in state sync-mount promise; do both "$question" "$WORK/outside" NotMounted ENOTTY; done
    both status / NotMounted ENOTTY
    both state /proc/self/status NotMounted ENOTTY
    # SOURCE names the mount, and what is in it is not in the mount.
    both status "$SRC" "{" ENOTTY
    both state "$SRC/a b" NotMounted ENOTTY
    # JSON although the mount's name is none.
    "$WORK/ask_c" status "$strange" | python3 -c 'import json, sys; assert json.load(sys.stdin)["mountpoint"] == sys.argv[1]' "$strange"
    # A bind mount of a part.
    mkdir "$strange/part" "$WORK/bound"
    touch "$strange/part/file"
    mount --bind "$strange/part" "$WORK/bound"
    both sync "$WORK/bound/file" synced durable
    both sync-mount "$WORK/bound/file" synced synced
    both state "$WORK/bound/file" Home home
    both status "$WORK/bound" "{" "{"
    umount "$WORK/bound"
    "$WEIR" umount "$strange"
    both state "$strange" NotMounted ENOTTY
    ;;
users)
    chmod 755 "$SRC"
    mount_weir "$SRC" "$MNT" --allow-other --order all
    echo x >"$MNT/file"
    echo x >"$MNT/secret"
    chmod 600 "$MNT/secret"
    both sync-mount "$MNT" synced synced
    both state "$MNT/file" Home home
    user=(as_user nobody)
    both state "$MNT/file" Home home
    both sync "$MNT/file" synced durable
    both promise "$MNT/file" kept kept
    both state "$MNT/secret" Path "open EACCES"
    both sync "$MNT/secret" Path "open EACCES"
    both status "$MNT" Denied EACCES
    both sync-mount "$MNT" Denied EACCES
    user=()
    umount_weir "$MNT"
    # An ordinary user's mount: its user and root may ask, others may not even look.
    mount_by nobody
    mount_weir "$SRC" "$MNT"
    user=(as_user nobody)
    both status "$MNT" "{" "{"
    both sync-mount "$MNT" synced synced
    # Another user listens in the daemon's place.
    directory=$WORK/run-nobody/weir
    rm "$directory"/*:*.sock
    chmod 711 "$WORK/run-nobody"
    chmod 777 "$directory"
    setpriv --reuid=daemon --regid=daemon --clear-groups python3 "$SUPPORT/answers.py" "$directory/$(basename "$(socket_of "$MNT")")" "$WORK/answer" &
    answers=$!
    soon exists "$directory/$(basename "$(socket_of "$MNT")")"
    both status "$MNT" NotUnderstood EPERM
    kill "$answers"
    wait "$answers" || true
    user=()
    as_user nobody fusermount3 -u "$MNT"
    ;;
gone)
    mount_weir_foreground "$SRC" "$MNT" --order all
    echo x >"$MNT/file"
    sync "$MNT/file"
    coproc LATER { "$WORK/ask" promise-later "$MNT/file"; }
    read -r -u "${LATER[0]}"
    kill -STOP "$WEIR_PID"
    both status "$MNT" Unreachable ETIMEDOUT
    kill -CONT "$WEIR_PID"
    kill_daemon
    both state "$MNT/file" Ended "open ENOTCONN"
    both sync "$MNT/file" Ended "open ENOTCONN"
    both status "$MNT" Ended ENOTCONN
    both sync-mount "$MNT" Ended ENOTCONN
    umount -l "$MNT"
    both status "$MNT" NotMounted ENOTTY
    # Another daemon keeps no promise of the dead one.
    mount_weir "$SRC" "$MNT" --order all
    runner=$LATER_PID
    exec 7<&"${LATER[0]}"
    echo >&"${LATER[1]}"
    said=$(cat <&7)
    wait "$runner" 2>/dev/null || true
    [[ $said = Ended* ]] || fail "a promise of a dead daemon ends with '$said'"
    both promise "$MNT/file" kept kept
    # Somebody has removed the socket.
    rm "$(socket_of "$MNT")"
    both status "$MNT" Unreachable ENOTCONN
    both promise "$MNT/file" kept kept
    umount "$MNT"
    ;;
answers)
    mount_weir "$SRC" "$MNT"
    socket=$(socket_of "$MNT")
    mv "$socket" "$socket.kept"
    python3 "$SUPPORT/answers.py" "$socket" "$WORK/answer" &
    answers=$!
    soon exists "$socket"
    # answer TEXT RUST C
    answer() {
        printf '%s' "$1" >"$WORK/answer"
        both status "$MNT" "$2" "$3"
    }
    answer $'{"reply":"status","status":{"pid":3,"novelty":[1]}}\n' '{"novelty":[1],"pid":3}' '{"pid":3,"novelty":[1]}'
    answer $'{"reply":"status","status":{}}\n' "{}" "{}"
    answer $'{"reply":"failed","message":"no \\"way\\""}\n' "Failed: $MNT: no \"way\"" EIO
    answer $'{"reply":"novel"}\n' NotUnderstood EPROTO
    answer $'{"reply":"status"}\n' NotUnderstood EPROTO
    answer $'{"reply":"status","status":\n' NotUnderstood EPROTO
    answer $'{"reply":"done"}\n' NotUnderstood EPROTO
    answer $'[\n' NotUnderstood EPROTO
    answer $'\n' NotUnderstood EPROTO
    answer $'\xff\xfe\n' NotUnderstood EPROTO
    answer "" Unreachable ENOTCONN
    answer '{"reply":"status"' Unreachable ENOTCONN
    head -c 2M /dev/zero | tr '\0' x >"$WORK/answer"
    both status "$MNT" Unreachable EPROTO
    printf '{"reply":"novel"}\n' >"$WORK/answer"
    both sync-mount "$MNT" NotUnderstood EPROTO
    printf '{"reply":"failed","message":"no"}\n' >"$WORK/answer"
    both sync-mount "$MNT" "Failed: $MNT: no" EIO
    kill "$answers"
    wait "$answers" || true
    rm -f "$socket"
    mv "$socket.kept" "$socket"
    both status "$MNT" "{" "{"
    umount_weir "$MNT"
    ;;
esac
counts "$checks answers"
