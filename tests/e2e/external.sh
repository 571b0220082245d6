#!/usr/bin/env bash
# `weir run --sync external`: a sync returns at once, and what leaves the program waits until it is durable. An observer outside keeps
# what it saw; after kill -9 of the daemon, and after power cuts, all of it is explained by what is recovered. Each way in which
# something leaves a program waits for one commit, and what stays inside for none. A commit that fails kills the session.
# With `--sync every-write` the same holds without any sync.
# The loads of support/observed.py are killed 10 times (200 with --long; WEIR_ROUNDS says otherwise), and with --long their
# power is cut 50 times, and each is run while the log fails. With a rule broken on purpose (output not held, order not kept, exit status early) the same observer finds a loss.
# cases: ways armed group promises synchronous outsiders shown locks no-end inside told outcomes every-write unanswered unmounted lane lane-order counter below counter-cut sqlite failure script pipe keys redis postgres mariadb status failed-log broken-output broken-order broken-status
# long-cases: script-cut pipe-cut keys-cut redis-cut postgres-cut mariadb-cut status-cut
# serial: unanswered
# seconds: 60
# all: lane-order mariadb postgres failed-log broken-output counter-cut unanswered armed below
source "${REPO:?}/tests/e2e/lib.sh"
source "$SUPPORT/sessions.sh"

need_root
weir_only

OBSERVED="$REPO/tests/e2e/support/observed.py"
LOG=(--log-size 16M)

# Whoever reads `seen` afterwards finds the last line that the observer saw.
observe() { observe_by external "$@"; }
observe_by() {
    local mode=$1
    shift
    python3 "$LEAVING" observe "$WORK/seen" timeout -s KILL 60 "$WEIR" run --sync "$mode" -- "$@"
}

# Kills the daemon some time after the observer, which runs in the background, saw something: `seen` is what it saw last. Recovers SOURCE.
kill_while_seen() {
    observer=$!
    soon filled "$WORK/seen" || fail "the observer sees nothing"
    sleep "0.$((RANDOM % 6))"
    kill_daemon
    wait "$observer" || true
    seen=$(cat "$WORK/seen")
    "$WEIR" recover "$SRC" >"$WORK/recovered"
}

# count_and_kill TIMES FILE: a member counts in FILE, and the daemon is killed: what was seen of the count is kept.
count_and_kill() {
    local seen_all=0 kept
    for _ in $(seq "$1"); do
        rm -f "$WORK/seen"
        mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}"
        observe python3 "$LEAVING" count "$MNT/$2" &
        kill_while_seen
        kept=$(cat "$SRC/$2")
        kept=$((10#${kept:-0}))
        [ "$kept" -ge "$seen" ] || fail "$seen was seen, and $kept was kept"
        seen_all=$((seen_all + seen))
        rm -f "$SRC/$2"
    done
    counts "$1 kills, $seen_all numbers seen"
}

# watch LOAD COMMAND...: mounts, and starts an observer of the load, which COMMAND runs; returns some time after the observer saw something.
watch() {
    local load=$1
    shift
    need_command python3
    if [ "$load" = redis ]; then need_command redis-server; fi
    prepare "$load"
    if [ -e "$WORK/prepared-$load" ]; then
        cp -a "$WORK/prepared-$load" "$SRC/data"
        sync -f "$SRC/data"
    else
        mkdir "$SRC/data"
        sync "$SRC/data"
    fi
    rm -f "$WORK/seen"
    mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}" "${LOG[@]}" --allow-other 2>>"$DAEMON_LOG"
    python3 "$OBSERVED" observe "$load" "$MNT/data" "$WORK/seen" "$@" 2>"$WORK/said" &
    observer=$!
    soon filled_or_ended "$WORK/seen" "$observer" || fail "$load: the observer sees nothing"
    [ -s "$WORK/seen" ] || fail "$load: the observer has ended: $(cat "$WORK/said")"
    sleep "0.$(printf %03d $((RANDOM % 400)))"
}

# prepare LOAD: makes $WORK/prepared-LOAD, once, if the load begins with more than an empty directory.
prepare() {
    local prepared=$WORK/prepared-$1
    case $1 in
    postgres)
        need_command setpriv
        PROGRAMS=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -1)
        export PROGRAMS
        [ -n "$PROGRAMS" ] || skip "PostgreSQL is not installed: run 'make setup'"
        id postgres >/dev/null 2>&1 || skip "there is no user postgres"
        ;;
    mariadb) need_command mariadbd mariadb mariadb-install-db ;;
    *) return 0 ;;
    esac
    [ ! -e "$prepared" ] || return 0
    mkdir "$prepared"
    if [ "$1" = postgres ]; then chown postgres:postgres "$prepared"; fi
    python3 "$OBSERVED" prepare "$1" "$prepared"
}

filled_or_ended() { [ -s "$1" ] || ended "$2"; }

# What the observer saw up to its end is held against what is recovered: SUM is how much that was. Status 3 if it is not explained.
recover_and_check() {
    local status=0
    wait "$observer" || true
    "$WEIR" recover "$SRC" >"$WORK/recovered" || fail "SOURCE cannot be recovered"
    SUM=$(python3 "$OBSERVED" check "$1" "$SRC/data" "$WORK/seen" "${@:2}") || status=$?
    rm -r "$SRC/data"
    return "$status"
}

# found LOAD COMMAND...: the check finds within 200 kills that COMMAND, which runs the load, breaks a rule.
found() {
    local load=$1 round status
    shift
    for round in {1..200}; do
        status=0
        watch "$load" timeout -s KILL 60 "$@"
        kill_daemon
        recover_and_check "$load" || status=$?
        [ "$status" = 0 ] || break
    done
    expect_equal "$load with a rule broken: what the check of kill $round says ($SUM)" "$status" 3
    echo "$load: kill $round: $SUM"
}

case ${1:?} in
ways)
    mkdir "$WORK/outside"
    python3 "$LEAVING" serve "$WORK/socket" >"$WORK/port" &
    server=$!
    soon filled "$WORK/port" || fail "the server does not begin"
    sleep 1000 &
    export OUTSIDER=$! SERVED=$WORK/served
    mkdir "$SERVED" "$WORK/of-server" && mkfifo "$WORK/of-server/fifo"
    "$BENCH" passthrough "$WORK/of-server" "$SERVED" &
    soon mountpoint -q "$SERVED" || fail "the other server does not mount"
    mount_weir "$SRC" "$MNT" "${COMMIT[@]}"
    ln -s "$WORK/outside/file" "$MNT/leads-outside"
    ln -s "$WORK/outside/not-there" "$MNT/dangles"
    tested=0
    while read -r where way; do
        peer=()
        expected=0
        least=1
        case $way in
        *tcp | *connection* | connect | uncork | *datagram_elsewhere | *unix_socket | *another_program | *pipe_out | *passed_out) peer=("$(cat "$WORK/port"):$WORK/socket") ;;
        local_server | tcp*) expected=1 ;; # Its first calls can be noticed.
        esac
        case $way in
        tcp_received* | tcp_to_a_member_that* | tcp_connected*) peer=("$(cat "$WORK/port"):$WORK/socket") ;;
        esac
        within=()
        case $way in
        *inherited_at* | *inherited_socket | *inherited_pipe*) within=(python3 "$LEAVING" inheriting "$way") ;;
        esac
        case $way in
        add_to_an_event_passed_out) least=4 ;; # The message that passes it out, and each of three uses.
        write_to_a_pipe_that_was_passed_out) least=3 ;; # The same of two.
        tcp_inherited*) ;;
        tcp_to_a_member_that* | tcp_connected*) least=3 ;; # Listening, the message or the end of the connection, and the use.
        tcp*) least=2 ;; # Listening or connecting, and the use.
        esac
        rm -rf "$WORK/outside"/*
        "${within[@]}" timeout -s KILL 60 "$WEIR" run --sync external --report="$WORK/report.json" -- \
            python3 "$LEAVING" way "$way" "$MNT" "$WORK/outside" "${peer[@]}" >"$WORK/said" 2>&1 </dev/null ||
            [ $? = 137 ] || fail "$way: $(cat "$WORK/said")"
        commits=$(reported "$WORK/report.json" commits.for_output)
        case $where in
        outside) [ "$commits" -ge "$least" ] || fail "$way was not held back: $(cat "$WORK/report.json")" ;;
        inside) expect_equal "$way: commits for output" "$commits" "$expected" ;;
        esac
        tested=$((tested + 1))
    done < <(python3 "$LEAVING" ways)
    kill "$server" "$OUTSIDER"
    umount "$SERVED"
    umount_weir "$MNT"
    counts "$tested ways"
    ;;
armed)
    # What a member has prepared before it promises something tells nobody outside of what comes after the promise.
    seen=
    while read -r case; do
        echo 0 >"$SRC/file"
        mkdir "$WORK/with"
        mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}"
        number=$(timeout -s KILL 60 python3 "$SUPPORT/armed.py" outside "$case" "$WEIR" "$MNT" "$WEIR_PID" "$WORK/with" 2>"$WORK/said") || fail "$case: $(cat "$WORK/said")"
        wait "$WEIR_PID" 2>/dev/null || true
        umount -l "$MNT"
        "$WEIR" recover "$SRC" >"$WORK/recovered"
        kept=$(head -c 1 "$SRC/file")
        [ "$kept" -ge "$number" ] || fail "$case: $number was seen, and $kept was kept"
        seen="$seen $number"
        rm -r "$WORK/with" "$SRC/file"
    done < <(python3 "$SUPPORT/armed.py" cases)
    counts "seen:$seen"
    ;;
group)
    need_command setpriv
    # Nothing else has these: processes are found by them.
    name=weir-test-$$
    long=$((100000000 + $$))
    in_group() {
        timeout -s KILL 60 "$WEIR" run --sync "$mode" --group "$name" "$@"
    }
    # The process that has a program.
    parent_of() { ps -o ppid= -p "$(pgrep -f "^sh -c : $1-of-$name")" | tr -d ' '; }
    # Two programs; `first` and `second` are what they run.
    begin_two() {
        rm -f "$WORK/first" "$WORK/second"
        in_group -- sh -c ": first-of-$name; echo ready; $1" >"$WORK/first" 2>"$WORK/first-errors" &
        first=$!
        soon filled "$WORK/first" || fail "the first program does not run: $(cat "$WORK/first-errors")"
        in_group -- sh -c ": second-of-$name; echo ready; $2" >"$WORK/second" 2>"$WORK/second-errors" &
        second=$!
        soon filled "$WORK/second" || fail "the second program does not run: $(cat "$WORK/second-errors")"
    }
    # How both have ended. Not in a subshell, which cannot wait for them.
    end_two() {
        local one=0 two=0
        wait "$first" || one=$?
        wait "$second" || two=$?
        statuses="$one $two"
    }
    none_left() { ! pgrep -f "(first|second)-of-$name|^sleep $long$" >/dev/null; }
    # What one says is seen only when what was promised to the other is durable. The other is no outsider: what it looks at is no reason for a commit.
    # Makes a promise in one program, has the other say something, and sets `recovered` to what is in the file after a kill.
    two_and_a_kill() {
        local say=$1 sync=:
        if [ $mode = external ]; then sync="sync $MNT/file"; fi
        # A change of a name would be committed soon.
        echo old | tee "$SRC/file" >"$SRC/flag"
        mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}"
        begin_two "while [ ! -e $WORK/go ]; do sleep 0.02; done; echo new 1<>$MNT/file; $sync; echo new 1<>$MNT/flag; sleep $long" \
            "while ! grep -q new $MNT/flag; do sleep 0.02; done; $say; sleep $long"
        touch "$WORK/go"
        soon promised || fail "nothing was promised"
        if [ "$say" = : ]; then sleep 1; else soon grep -q seen "$WORK/second" || fail "the second program says nothing"; fi
        kill_daemon
        # They notice it when they promise or say something.
        pkill -9 -f "(first|second)-of-$name|^sleep $long$" || true
        end_two
        "$WEIR" recover "$SRC" >"$WORK/recovered"
        recovered=$(cat "$SRC/file")
        rm -f "$SRC/file" "$SRC/flag" "$WORK/go"
    }
    for mode in every-write external; do
        # Any program of the machine that asks each file system for its room, as df(1) does, makes a commit, and so may judging: then it is tried again.
        for try in 1 2 3; do
            two_and_a_kill :
            [ "$recovered" = new ] || break
        done
        expect_equal "$mode: what was promised when nobody said anything" "$recovered" old
        two_and_a_kill 'echo seen'
        expect_equal "$mode: what was promised before the other's output" "$recovered" new
    done
    mount_weir "$SRC" "$MNT" "${COMMIT[@]}"
    # What they send each other does not leave.
    for kind in unix tcp; do
        begin_two "exec python3 $LEAVING talk first-$kind $MNT" ":"
        wait "$second" || fail "$kind: the second has status $?"
        in_group --report="$WORK/report.json" -- python3 "$LEAVING" talk "$kind" "$MNT" || [ $? = 137 ] || fail "$kind: it does not talk"
        wait "$first" || true
        expect_equal "$kind: commits for output" "$(reported "$WORK/report.json" commits.for_output)" 0
        [ "$(reported "$WORK/report.json" promises)" -ge 30 ] || fail "$kind: the report is not of the whole group: $(cat "$WORK/report.json")"
        grep -q "\"group\": \"$name\"" "$WORK/report.json" || fail "$kind: the report does not name the group"
    done
    # A mount that was unmounted meanwhile keeps nobody from joining.
    mode=every-write
    mkdir "$WORK/other" "$WORK/other-mnt"
    mount_weir "$WORK/other" "$WORK/other-mnt" "${COMMIT[@]}"
    in_group -- sh -c ": first-of-$name; echo x >$WORK/other-mnt/f; echo ready; exec sleep $long" >"$WORK/first-of-two" &
    first=$!
    soon filled "$WORK/first-of-two" || fail "the first program does not run"
    umount_weir "$WORK/other-mnt"
    expect_equal "status after an unmount" "$(in_group -- true && echo 0 || echo $?)" 0
    pkill -9 -f "^sleep $long$"
    wait "$first" || true
    mode=external
    # The first may end first; then the others go on, and each has its own status. Where one goes on syncing, the other's end does not wait for it.
    begin_two "sleep 1; exit 3" "while [ ! -e $WORK/stop ]; do echo x >$MNT/f; sync $MNT/f; done; echo done; exit 4"
    sleep 2
    expect_equal "status of the third" "$(in_group -- sh -c "echo x >$MNT/g; sync $MNT/g; exit 5" && echo 0 || echo $?)" 5
    touch "$WORK/stop"
    end_two
    expect_equal "statuses" "$statuses" "3 4"
    expect_equal "what the second said at last" "$(tail -1 "$WORK/second")" done
    rm "$WORK/stop"
    soon none_left || fail "a member is left"
    # The name is free again, for another mode, too.
    timeout -s KILL 60 "$WEIR" run --sync every-write --group "$name" -- true || fail "the group has not ended"
    # What cannot be.
    begin_two "sleep $long" "sleep $long"
    status_of() {
        local status=0
        timeout -s KILL 60 "$@" >"$WORK/said" 2>&1 || status=$?
        echo "$status"
    }
    expect_equal "status with another mode" "$(status_of "$WEIR" run --sync every-write --group "$name" -- true)" 1
    grep -q "runs with --sync external" "$WORK/said" || fail "it does not say why: $(cat "$WORK/said")"
    expect_equal "status without a mode" "$(status_of "$WEIR" run --group "$name" -- true)" 2
    expect_equal "status with a bad name" "$(status_of "$WEIR" run --sync external --group a/b -- true)" 2
    expect_equal "status without a program" "$(status_of "$WEIR" run --sync external --group "$name" -- weir-no-such-program)" 127
    expect_equal "status where /proc is of another PID namespace" \
        "$(status_of unshare --pid --fork "$WEIR" run --sync external --group "$name" -- true)" 1
    # Another user's group of the same name is another one. Its supervisor may not look into a program that is not dumpable (PR_SET_DUMPABLE).
    install -m 755 "$WEIR" "$(dirname "$WEIR")/libweir_preload.so" "$WORK"
    chmod 755 "$WORK"
    expect_equal "status of another user with another mode" \
        "$(status_of setpriv --reuid 65534 --regid 65534 --clear-groups "$WORK/weir" run --sync every-write --group "$name" -- python3 -c 'import ctypes, os; ctypes.CDLL(None).prctl(4, 0); os.pipe()')" 0
    # The supervisor dies: all are killed.
    kill -9 "$(parent_of first)"
    end_two
    expect_equal "statuses when the supervisor has died" "$statuses" "74 74"
    soon none_left || fail "a member is left"
    grep -q "has died" "$WORK/second-errors" || fail "it does not say why: $(cat "$WORK/second-errors")"
    # The root of the second dies: that one is killed.
    begin_two "sleep 2" "sleep $long"
    kill -9 "$(parent_of second)"
    end_two
    expect_equal "statuses when the root of the second has died" "$statuses" "0 74"
    soon none_left || fail "a member is left"
    umount_weir "$MNT"
    # A commit fails: all are killed, and nothing leaves.
    mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}"
    begin_two "while [ ! -e $WORK/sync ]; do sleep 0.02; done; echo x >$MNT/f; sync $MNT/f; sleep $long" \
        "while [ ! -e $WORK/go ]; do sleep 0.1; done; echo leaked; sleep $long"
    touch "$WORK/sync"
    soon promised || fail "nothing was promised"
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    touch "$WORK/go"
    end_two
    expect_equal "statuses when a commit has failed" "$statuses" "74 74"
    expect_equal "what left" "$(cat "$WORK/second")" ready
    soon none_left || fail "a member is left"
    grep -q "the session was killed" "$WORK/second-errors" || fail "it says: $(cat "$WORK/second-errors")"
    umount -l "$MNT"
    ;;
promises)
    # Synced and not followed by output: it may be lost. Followed by output: it is there. One process: see support/session.py.
    for said in "" leaked; do
        mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}"
        rm -f "$WORK/said" "$WORK/go"
        if [ -n "$said" ]; then touch "$WORK/go"; fi
        external -- python3 "$SUPPORT/session.py" leaks "$MNT/file" "$WORK/go" >"$WORK/said" 2>"$WORK/errors" &
        runner=$!
        soon promised || fail "nothing was promised"
        if [ -n "$said" ]; then soon filled "$WORK/said" || fail "the program says nothing"; fi
        kill_daemon
        # It ends when the supervisor has noticed that.
        pkill -9 -f "session.py leaks $MNT/file" || true
        wait "$runner" || true
        "$WEIR" recover "$SRC" >"$WORK/recovered"
        expect_equal "what was said" "$(head -c 6 "$WORK/said")" "$said"
        case $said in
        "") [ ! -e "$SRC/file" ] || fail "it was durable without output: the sync was not put off" ;;
        *) expect_equal "what was synced before output" "$(cat "$SRC/file")" x ;;
        esac
        rm -f "$SRC/file"
    done
    # Without --order all a sync is done at once.
    mount_weir_foreground "$SRC" "$MNT"
    external --report="$WORK/report.json" -- sh -c "echo new >$MNT/file; sync $MNT/file"
    kill_daemon
    expect_equal "promises without --order all" "$(reported "$WORK/report.json" promises)" 0
    grep -q "without --order all" "$WORK/report.json" || fail "the report does not say why syncs were done at once"
    "$WEIR" recover "$SRC" >"$WORK/recovered"
    expect_equal "what was synced" "$(cat "$SRC/file")" new
    ;;
synchronous)
    # Writes that sync, and msync: put off, too. Without output they may be lost; with output they are there.
    for way in o_sync o_dsync rwf_dsync direct msync; do
        for say in "" seen; do
            head -c 4096 /dev/zero >"$SRC/file"
            rm -f "$WORK/said"
            mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}"
            # shellcheck disable=SC2086
            external -- python3 "$LEAVING" synchronous "$way" "$MNT/file" $say >"$WORK/said" 2>"$WORK/errors" &
            runner=$!
            soon promised || fail "$way: nothing was promised: $(cat "$WORK/errors")"
            if [ -n "$say" ]; then soon filled "$WORK/said" || fail "$way: the program says nothing"; fi
            kill_daemon
            pkill -9 -f "synchronous $way $MNT/file" || true
            wait "$runner" || true
            "$WEIR" recover "$SRC" >"$WORK/recovered"
            expect_equal "$way: what was said" "$(head -c 4 "$WORK/said")" "$say"
            kept=$(head -c 3 "$SRC/file" | tr '\0' 0)
            case $say in
            "") expect_equal "$way, put off" "$kept" 000 ;;
            *) expect_equal "$way, seen" "$kept" new ;;
            esac
        done
    done
    ;;
outsiders)
    # Whoever is not in the session sees what was promised to it only when that is durable.
    # shellcheck disable=SC2016
    for look in 'cat $MNT/new' 'ls $MNT' 'stat -c %s $MNT/new' 'mkdir $MNT/new' 'head -c 2 <&7'; do
        echo old >"$SRC/open"
        mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}"
        exec 7<"$MNT/open"
        external -- sh -c "echo text >$MNT/new; echo more >$MNT/open; sync $MNT/new; exec sleep 5" >"$WORK/said" 2>&1 &
        runner=$!
        soon promised || fail "nothing was promised"
        eval "$look" >"$WORK/looked" 2>&1 || true
        exec 7<&-
        kill_daemon
        pkill -9 -f "sync $MNT/new; exec sleep" || true
        wait "$runner" || true
        "$WEIR" recover "$SRC" >"$WORK/recovered"
        [ -s "$WORK/looked" ] || fail "$look: nothing was seen"
        expect_equal "$look: what was there is kept" "$(cat "$SRC/new" 2>/dev/null)" text
        rm -rf "${SRC:?}"/*
    done
    ;;
shown)
    # A read that began before something was promised, and ends after what follows that was changed, waits for the promise.
    need_command mkfs.ext4
    start_disk hdd 512M ext4
    mkfifo "$WORK/to"
    shown=
    for _ in {1..3}; do
        mount "$DISK_DEVICE" "$SRC"
        head -c 64M /dev/zero >"$SRC/other"
        rm -f "$SRC/file"
        sync -f "$SRC"
        mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}" --log-size 16M --allow-other 2>>"$DAEMON_LOG"
        external -- python3 "$SUPPORT/shown.py" change "$MNT/file" "$MNT/other" <"$WORK/to" 2>"$WORK/said" &
        runner=$!
        timeout -s KILL 60 python3 "$SUPPORT/shown.py" look "$MNT/other" "$WEIR_PID" >"$WORK/to" 2>"$WORK/shown" || fail "$(cat "$WORK/shown" "$WORK/said")"
        wait "$runner" || true
        wait "$WEIR_PID" 2>/dev/null || true
        umount -l "$MNT"
        "$WEIR" recover "$SRC" >"$WORK/recovered"
        kept=$(cat "$SRC/file" 2>/dev/null || true)
        kept=$((10#${kept:-0}))
        number=$(cat "$WORK/shown")
        [ "$kept" -ge "$number" ] || fail "what follows $number was shown, and $kept was kept"
        shown="$shown $number"
        umount_soon "$SRC"
    done
    # Free space is told of, too.
    mount "$DISK_DEVICE" "$SRC"
    rm -f "$SRC/file" "$SRC/other"
    mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}" --log-size 16M --allow-other 2>>"$DAEMON_LOG"
    external -- python3 "$SUPPORT/shown.py" fill "$MNT/file" "$MNT/other" <"$WORK/to" 2>"$WORK/said" &
    runner=$!
    timeout -s KILL 60 python3 "$SUPPORT/shown.py" space "$MNT" "$WEIR_PID" >"$WORK/to" || fail "no space was taken: $(cat "$WORK/said")"
    wait "$runner" || true
    wait "$WEIR_PID" 2>/dev/null || true
    umount -l "$MNT"
    "$WEIR" recover "$SRC" >"$WORK/recovered"
    expect_equal "what was promised before space was taken" "$(cat "$SRC/file")" 00000000000000000001
    umount_soon "$SRC"
    stop_disk
    counts "shown at page$shown"
    ;;
locks)
    # Somebody outside waits for a lock that a member has, gets it, and kills the daemon at once: what the member synced before is there.
    mkfifo "$WORK/to"
    for how in lockf flock lockf-close flock-close lockf-end flock-end flock-directory flock-directory-close; do
        rm -f "$WORK/locked" "$WORK/waits" "$SRC/file"
        mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}"
        external -- python3 "$SUPPORT/shown.py" lock "$how" "$MNT/file" >"$WORK/locked" 2>"$WORK/said" <"$WORK/to" &
        runner=$!
        exec 8>"$WORK/to"
        soon filled "$WORK/locked" || fail "$how: $(cat "$WORK/said")"
        timeout -s KILL 30 python3 "$SUPPORT/shown.py" wait-for-lock "$how" "$MNT/file" "$WEIR_PID" >"$WORK/waits" &
        waiter=$!
        soon filled "$WORK/waits" || fail "$how: nobody waits"
        sleep 0.1
        ! ended "$waiter" || fail "$how: the lock was free"
        echo >&8
        wait "$waiter" || fail "$how: nobody got the lock"
        exec 8>&-
        wait "$runner" || true
        wait "$WEIR_PID" 2>/dev/null || true
        umount -l "$MNT"
        "$WEIR" recover "$SRC" >"$WORK/recovered"
        expect_equal "$how: what is recovered" "$(cat "$SRC/file")" written
    done
    ;;
no-end)
    # Who looks while a session goes on syncing waits for a commit or two, however long that takes, and not for the session's end.
    start_disk hdd 512M ext4
    mount "$DISK_DEVICE" "$SRC"
    for mode in external every-write; do
        mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}" --log-size 16M -o attr_timeout=0 2>>"$DAEMON_LOG"
        timeout -s KILL 60 "$WEIR" run --sync "$mode" -- python3 "$LEAVING" sync-on "$MNT/file" >"$WORK/said" 2>&1 &
        runner=$!
        soon promised || fail "$mode: nothing was promised"
        sleep 1
        begun=$SECONDS
        for _ in {1..5}; do stat "$MNT/file" >"$WORK/looked"; done
        [ $((SECONDS - begun)) -lt 20 ] || fail "$mode: five looks took $((SECONDS - begun)) s"
        ended "$runner" && fail "$mode: the program has ended: $(cat "$WORK/said")"
        pkill -9 -f "sync-on $MNT/file" || true
        wait "$runner" || true
        kill_daemon
        "$WEIR" recover "$SRC" >"$WORK/recovered"
    done
    umount_soon "$SRC"
    stop_disk
    ;;
inside)
    # A daemon in a session: its syncs are done, and nobody waits for what cannot come.
    mkdir "$WORK/inner" "$WORK/there"
    printf '\1\0/no-such-socket\0' >"$WORK/inner/address"
    truncate -s 4096 "$WORK/inner/address" "$WORK/inner/numbers"
    # shellcheck disable=SC2016
    for mode in external every-write; do
        timeout -s KILL 20 "$WEIR" run --sync "$mode" --report="$WORK/report.json" -- sh -c '"$0" mount "$1" "$2" --order all &&
            echo text >"$2/file" && sync "$2/file" && echo seen && "$0" umount "$2"' "$WEIR" "$WORK/inner" "$WORK/there" >"$WORK/said" || fail "$mode: status $?"
        expect_equal "$mode: what was said" "$(cat "$WORK/said")" seen
        expect_equal "$mode: the file" "$(cat "$WORK/inner/file")" text
        grep -q "its daemon is in the session" "$WORK/report.json" || fail "$mode: the report does not say why: $(cat "$WORK/report.json")"
        # Also where closing a descriptor is told to the daemon: of a file that is open for writing.
        timeout -s KILL 60 "$WEIR" run --sync "$mode" -- sh -c '"$0" mount "$1" "$2" --order all && python3 "$3" "$2" &&
            "$0" umount "$2"' "$WEIR" "$WORK/inner" "$WORK/there" "$SUPPORT/inner.py" >"$WORK/said" ||
            fail "$mode: status $? on a mount in the session, after: $(cat "$WORK/said")"
        expect_equal "$mode: the file that was written" "$(cat "$WORK/inner/written")" text
        # The same of a server that is not Weir.
        timeout -s KILL 60 "$WEIR" run --sync "$mode" -- sh -c '"$0" passthrough "$1" "$2" & while ! mountpoint -q "$2"; do sleep 0.1; done
            python3 "$3" "$2" && umount "$2"' "$BENCH" "$WORK/inner" "$WORK/there" "$SUPPORT/inner.py" >"$WORK/said" ||
            fail "$mode: status $? on another server's mount in the session, after: $(cat "$WORK/said")"
    done
    # A server of a member over a mount with a promise: the commit fails, and does not wait for that server.
    mount_weir "$SRC" "$MNT" "${COMMIT[@]}"
    expect_equal "status with a server over the mount" "$(timeout -s KILL 20 "$WEIR" run --sync external -- python3 "$SUPPORT/inner.py" over "$MNT" "$BENCH" "$WORK/inner" 2>"$WORK/said" || echo $?)" 74
    umount "$MNT" && umount_weir "$MNT"
    ;;
told)
    # What `weir status` says of a session while it runs: its commits by their reasons, and how long what left waited.
    mount_weir "$SRC" "$MNT" "${COMMIT[@]}"
    is_promised() { [ "$(of_session promises)" = 2 ]; }
    external -- python3 "$SUPPORT/session.py" told "$MNT/file" "$WORK/go" "$WORK/end" >"$WORK/said" &
    program=$!
    soon grep -q said "$WORK/said" || fail "it says nothing"
    [ "$(of_session commits.for_output)" = 1 ] || fail "$("$WEIR" status "$MNT" --json | grep -A30 sessions)"
    expect_equal "waits" "$(of_session waits.count)" 1
    [ "$(of_session waits.max_us)" -gt 0 ] || fail "the wait took no time"
    expect_equal "promised" "$(of_session pending)" False
    touch "$WORK/go"
    soon is_promised || fail "the second sync is no promise"
    expect_equal "promised again" "$(of_session pending)" True
    expect_equal "commits for others, before" "$(of_session commits.for_outsiders)" 0
    expect_equal "what another program reads" "$(tail -1 "$MNT/file")" two
    [ "$(of_session commits.for_outsiders)" -ge 1 ] || fail "nobody waited: $("$WEIR" status "$MNT" --json)"
    expect_equal "promised at last" "$(of_session pending)" False
    "$WEIR" status "$MNT" | grep -q "1 for output, 0 by syncs, [1-9][0-9]* for others" || fail "$("$WEIR" status "$MNT")"
    touch "$WORK/end"
    wait "$program" || fail "it has status $?"
    umount_weir "$MNT"
    ;;
outcomes)
    mount_weir "$SRC" "$MNT" "${COMMIT[@]}"
    status_of() {
        local status=0
        external -- "$@" >"$WORK/said" 2>&1 || status=$?
        echo "$status"
    }
    expect_equal "status" "$(status_of sh -c "echo x >$MNT/f; sync; exit 7")" 7
    expect_equal "status of a killed program" "$(status_of sh -c 'kill -TERM $$')" 143
    expect_equal "status without a program" "$(status_of weir-no-such-program)" 127
    expect_equal "status without permission" "$(status_of /etc/passwd)" 126
    expect_equal "status inside a session" "$(status_of "$WEIR" run --sync external -- true)" 1
    grep -q "inside another" "$WORK/said" || fail "it does not say why: $(cat "$WORK/said")"
    expect_equal "arguments" "$(external -- printf '%s|' a 'b c' '')" "a|b c||"
    expect_equal "standard input" "$(echo in | external -- cat)" in
    expect_equal "a pipeline" "$(external -- sh -c 'seq 1000 | sort -n | tail -1')" 1000
    # A signal to the command reaches the program.
    rm "$WORK/said"
    "$WEIR" run --sync external -- sh -c 'trap "exit 9" USR1; echo ready; while :; do sleep 0.1; done' >"$WORK/said" &
    runner=$!
    soon filled "$WORK/said" || fail "the program does not run"
    kill -USR1 "$runner"
    status=0
    wait "$runner" || status=$?
    expect_equal "status after a signal" "$status" 9
    # A member that goes on does not hold the command back, nor those who wait for its output to end, and is still held back itself.
    begun=$SECONDS
    expect_equal "output" "$(external -- sh -c "(exec >/dev/null 2>&1 </dev/null; sleep 3; echo late >$MNT/late; sync; touch $WORK/late) & echo now")" now
    [ $((SECONDS - begun)) -lt 3 ] || fail "the command waited for a process in the background"
    soon exists "$WORK/late" || fail "the process in the background did not go on"
    # Members are found by their numbers in /proc.
    status=0
    unshare --pid --fork "$WEIR" run --sync every-write -- true 2>"$WORK/said" || status=$?
    expect_equal "status where /proc is of another PID namespace" "$status" 1
    grep -q "another PID namespace" "$WORK/said" || fail "it does not say why: $(cat "$WORK/said")"
    # io_uring would pass the fence.
    expect_equal "io_uring_setup" "$(external -- python3 -c '
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.syscall(425, 1, 0), ctypes.get_errno())')" "-1 38"
    umount_weir "$MNT"
    ;;
every-write)
    # One kill of a program that never syncs. KEPT is how many of the numbers that were seen are not kept.
    kill_once() {
        local written renamed
        rm -f "$WORK/seen"
        mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}"
        mkdir "$MNT/d"
        sync "$MNT/d"
        observe_by "$1" python3 "$LEAVING" change "$MNT/d" &
        kill_while_seen
        written=$((10#$(cat "$SRC/d/written" 2>/dev/null || echo 0)))
        renamed=$(find "$SRC/d" -name 'renamed-*' -printf '%f\n')
        renamed=${renamed#renamed-}
        rm -r "$SRC/d"
        lost=$((seen > written ? seen - written : 0))
        renamed=$((seen > ${renamed:-0} ? seen - ${renamed:-0} : 0))
        lost=$((lost > renamed ? lost : renamed))
    }
    seen_all=0
    for _ in {1..8}; do
        kill_once every-write
        [ "$lost" = 0 ] || fail "$lost of the $seen changes that were seen are lost"
        seen_all=$((seen_all + seen))
    done
    # Where only syncs are promises the observer finds that.
    kill_once external
    [ "$lost" -gt 0 ] || fail "without --sync every-write nothing was lost either"
    mount_weir "$SRC" "$MNT" "${COMMIT[@]}"
    # The exit status is output, too.
    status=0
    "$WEIR" run --sync every-write --report="$WORK/report.json" -- sh -c "echo text >$MNT/f; exit 7" || status=$?
    expect_equal "status" "$status" 7
    expect_equal "commits at the end" "$(reported "$WORK/report.json" commits.at_end)" 1
    # What stays inside waits for nothing.
    "$WEIR" run --sync every-write --report="$WORK/report.json" -- sh -c "cd $MNT; for i in \$(seq 50); do echo text | cat >>f; mv f g; mv g f; done"
    # In doubt a call leaves.
    [ "$(reported "$WORK/report.json" commits.for_output)" -lt 25 ] || fail "what stays inside waits: $(cat "$WORK/report.json")"
    umount_weir "$MNT"
    # A mount that the session has not changed may go.
    mkdir "$WORK/other" "$WORK/unused"
    mount_weir "$SRC" "$MNT" "${COMMIT[@]}"
    mount_weir_foreground "$WORK/other" "$WORK/unused" "${COMMIT[@]}"
    "$WEIR" run --sync every-write -- sh -c "echo text >$MNT/f; sleep 2; echo more >$MNT/f; sync; echo seen" >"$WORK/said" &
    runner=$!
    soon promised || fail "nothing was promised"
    "$WEIR" status "$MNT" >"$WORK/status"
    grep -q "^ *session .* changes promised" "$WORK/status" || fail "the status does not show the session: $(cat "$WORK/status")"
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    umount -l "$WORK/unused"
    status=0
    wait "$runner" || status=$?
    expect_equal "status after another mount's daemon was killed" "$status" 0
    expect_equal "what was said" "$(cat "$WORK/said")" seen
    # The daemon sees the end of a session some time after it.
    soon no_sessions || fail "a session has ended, and the daemon has it still"
    umount_weir "$MNT"
    counts "8 kills, $seen_all changes seen"
    ;;
unanswered)
    # What a daemon that does not answer would count is not known.
    mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}"
    kill -STOP "$WEIR_PID"
    status=0
    "$WEIR" run --sync every-write -- true 2>"$WORK/said" || status=$?
    kill -CONT "$WEIR_PID"
    expect_equal "status" "$status" 1
    grep -q "cannot begin a session: .*$MNT" "$WORK/said" || fail "the error is: $(cat "$WORK/said")"
    # One that answers late is waited for, and one that dies meanwhile does not matter.
    for signal in CONT KILL; do
        kill -STOP "$WEIR_PID"
        "$WEIR" run --sync every-write --report="$WORK/report.json" -- true &
        runner=$!
        sleep 4
        kill -s "$signal" "$WEIR_PID"
        status=0
        wait "$runner" || status=$?
        expect_equal "status after $signal" "$status" 0
        case $signal in
        CONT) ! grep -q "$MNT" "$WORK/report.json" || fail "the mount is left out: $(cat "$WORK/report.json")" ;;
        KILL) grep -q "$MNT" "$WORK/report.json" || fail "the report does not name the dead mount: $(cat "$WORK/report.json")" ;;
        esac
    done
    wait "$WEIR_PID" 2>/dev/null || true
    umount -l "$MNT"
    # One that does not answer and whose socket somebody has removed is not waited for: a look at its mount would wait for ever.
    mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}"
    rm "$(socket_of "$MNT")"
    kill -STOP "$WEIR_PID"
    for mode in external every-write; do
        status=0
        timeout -s KILL 20 "$WEIR" run --sync "$mode" --report="$WORK/report.json" -- true || status=$?
        [ "$status" -eq 0 ] || kill -CONT "$WEIR_PID"
        expect_equal "status of $mode with a daemon that cannot be asked" "$status" 0
    done
    kill -CONT "$WEIR_PID"
    grep -q "$MNT.*control socket" "$WORK/report.json" || fail "the report does not name the mount: $(cat "$WORK/report.json")"
    umount "$MNT"
    soon ended "$WEIR_PID" || fail "the daemon has not ended"
    ;;
unmounted)
    # Another program's mapping on another mount may be the session's. When that mount is home the session need not wait for it.
    mkdir "$WORK/other" "$WORK/elsewhere"
    head -c 4096 /dev/zero >"$WORK/other/file"
    mount_weir "$SRC" "$MNT" "${COMMIT[@]}"
    mount_weir "$WORK/other" "$WORK/elsewhere" "${COMMIT[@]}"
    "$WEIR" run --sync every-write -- python3 "$SUPPORT/session.py" writes "$MNT/file" "$WORK/go" >"$WORK/said" 2>&1 &
    runner=$!
    sessions_elsewhere() { of_session "$1" "$WORK/elsewhere"; }
    soon sessions_elsewhere supervisor >"$WORK/number" || fail "the session does not begin"
    python3 -c '
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 4096)
    mapped[:3] = b"new"
    mapped.flush()' "$WORK/elsewhere/file"
    expect_equal "whether the session has a promise there" "$(sessions_elsewhere pending)" True
    umount_weir "$WORK/elsewhere"
    touch "$WORK/go"
    status=0
    wait "$runner" || status=$?
    expect_equal "status ($(cat "$WORK/said"))" "$status" 0
    umount_weir "$MNT"
    ;;
lane)
    [ -e "$(dirname "$WEIR")/libweir_preload.so" ] || skip "the library is not built"
    mount_weir "$SRC" "$MNT" "${COMMIT[@]}"
    # reporting MODE COMMAND...: WRITES is how many writes a program in a session makes by the lane.
    reporting() {
        local mode=$1
        shift
        timeout -s KILL 60 "$WEIR" run --sync "$mode" --report-json --report="$WORK/session.json" -- \
            "$WEIR" run --report-json --report="$WORK/lane.json" -- "$@"
        WRITES=$(reported "$WORK/lane.json" lane.writes)
    }
    # Records, each with its sync, by 3 programs after each other.
    load() {
        reporting "$1" sh -c 'for program in 1 2 3; do python3 -c "
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for number in range(1000):
    os.pwrite(fd, b\"%d%015d\" % (int(sys.argv[2]), number), 16 * number)
    os.fsync(fd)
    assert os.pread(fd, 16, 16 * number) == b\"%d%015d\" % (int(sys.argv[2]), number)
" "$0" $program; done' "$MNT/file"
    }
    head -c 65536 /dev/zero | tee "$MNT/file" >"$MNT/other"
    load external
    [ "$WRITES" -ge 2500 ] || fail "of 3000 writes in a session $WRITES were made by the lane"
    expect_equal "the last record" "$(dd if="$MNT/file" bs=16 skip=999 count=1 status=none)" 3000000000000999
    # Each of them would have to be counted as a promise.
    load every-write
    expect_equal "writes by the lane where each is a promise" "$WRITES" 0
    # What is posted counts as a change of the session's: sync(2) promises it.
    reporting external python3 -c '
import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
for number in range(100):
    os.pwrite(fd, b"x" * 16, 16 * number)
os.sync()' "$MNT/other"
    [ "$WRITES" -gt 0 ] || fail "nothing was posted: $(cat "$WORK/lane.json")"
    [ "$(reported "$WORK/session.json" promises)" -ge 1 ] || fail "sync(2) did not promise what was posted: $(cat "$WORK/session.json")"
    umount_weir "$MNT"
    ;;
lane-order)
    [ -e "$(dirname "$WEIR")/libweir_preload.so" ] || skip "the library is not built"
    order="$SUPPORT/lane_order.py"
    steps_all=0
    posted_all=0
    for round in $(seq "${WEIR_ROUNDS:-10}"); do
        python3 "$order" prepare "$SRC"
        # Those that nobody asked for do not apply first what was posted.
        commit=5m
        [ $((round % 3)) = 0 ] || commit=100ms
        mount_weir_foreground "$SRC" "$MNT" --order all --commit "$commit"
        external -- python3 "$order" run "$MNT" 2>"$WORK/said" &
        runner=$!
        if [ "$commit" = 5m ]; then python3 "$order" commit "$MNT" 2>/dev/null & else sleep 100 & fi
        committer=$!
        sleep "1.$((RANDOM % 10))"
        ! ended "$runner" || fail "the programs have ended: $(cat "$WORK/said")"
        posted_all=$((posted_all + $("$WEIR" status "$MNT" --json | python3 "$SUPPORT/field.py" lane.posted_writes)))
        kill_daemon
        pkill -9 -f "$order turns $MNT" || true
        kill -9 "$committer" 2>/dev/null || true
        wait "$runner" "$committer" || true
        "$WEIR" recover "$SRC" >"$WORK/recovered"
        found=$(python3 "$order" check "$SRC") || fail "what is recovered is no moment of the session: $found"
        steps_all=$((steps_all + ${found% *}))
        rm -r "$SRC"/{posted,kernel}-* "$SRC/names"
    done
    [ "$steps_all" -gt 0 ] || fail "no step was recovered"
    [ "$posted_all" -gt 0 ] || fail "nothing was posted"
    counts "$steps_all steps recovered, $posted_all writes by the lane"
    ;;
counter) count_and_kill 12 count ;;
below)
    # A file of another file system below SOURCE, which the log does not serve.
    mkdir "$SRC/below"
    mount -t tmpfs -o size=16M none "$SRC/below"
    count_and_kill 6 below/count
    umount_soon "$SRC/below"
    ;;
counter-cut)
    need_command mkfs.ext4
    start_disk none 512M ext4
    seen_all=0
    for _ in {1..6}; do
        rm -f "$WORK/seen"
        mount "$DISK_DEVICE" "$SRC"
        mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}" --log-size 16M 2>>"$DAEMON_LOG"
        observe python3 "$LEAVING" count "$MNT/count" &
        observer=$!
        soon filled "$WORK/seen" || fail "the observer sees nothing"
        sleep "0.$((RANDOM % 6))"
        seen=$(cat "$WORK/seen")
        "$BENCH" disk cut --dir "$DISK" --seed 1 >/dev/null
        mount_after_cut 2>>"$DAEMON_LOG"
        wait "$observer" || true
        "$WEIR" recover "$SRC" >"$WORK/recovered"
        kept=$((10#$(cat "$SRC/count")))
        [ "$kept" -ge "$seen" ] || fail "$seen was seen, and $kept was kept"
        seen_all=$((seen_all + seen))
        rm -f "$SRC/count"
        umount "$SRC"
    done
    stop_disk
    counts "6 power cuts, $seen_all numbers seen"
    ;;
sqlite)
    need_command sqlite3
    # shellcheck disable=SC2016
    load='sqlite3 "$0" "PRAGMA synchronous=FULL; CREATE TABLE t(i INTEGER PRIMARY KEY);" && i=0 &&
        while :; do i=$((i + 1)); echo "INSERT INTO t VALUES($i); SELECT $i;"; done | sqlite3 "$0"'
    for mode in DELETE WAL; do
        for _ in {1..4}; do
            rm -f "$WORK/seen"
            mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}"
            sqlite3 "$MNT/db" "PRAGMA journal_mode=$mode" >"$WORK/said"
            observe sh -c "$load" "$MNT/db" &
            observer=$!
            soon filled "$WORK/seen" || fail "the observer sees nothing"
            sleep "0.$((RANDOM % 9))"
            kill_daemon
            # What promised nothing since its last output goes on, with errors.
            pkill -9 -f "sqlite3 $MNT/db" || true
            wait "$observer" || true
            seen=$(cat "$WORK/seen")
            "$WEIR" recover "$SRC" >"$WORK/recovered"
            expect_equal "integrity" "$(sqlite3 "$SRC/db" 'PRAGMA integrity_check')" ok
            kept=$(sqlite3 "$SRC/db" 'SELECT max(i) FROM t')
            [ "$kept" -ge "$seen" ] || fail "$mode: $seen was seen, and $kept was kept"
            rm -f "$SRC"/db*
        done
    done
    ;;
failure)
    # The daemon dies: what waits is not released, the session is killed, and the command says so.
    mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}"
    external -- python3 "$SUPPORT/session.py" leaks "$MNT/f" "$WORK/go" >"$WORK/out" 2>"$WORK/said" &
    runner=$!
    soon promised || fail "nothing was promised"
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    touch "$WORK/go"
    status=0
    wait "$runner" || status=$?
    expect_equal "status" "$status" 74
    expect_equal "what left" "$(cat "$WORK/out")" ""
    grep -q "the session was killed" "$WORK/said" || fail "it says: $(cat "$WORK/said")"
    umount -l "$MNT"
    # Nothing is promised when it dies: the session is killed, too, or ends because its files are gone, but not if it has changed nothing there.
    for changes in yes no; do
        mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}"
        rm -f "$WORK/out" "$WORK/go"
        case $changes in
        yes) external -- python3 "$SUPPORT/session.py" told "$MNT/g" "$WORK/go" "$WORK/never" >"$WORK/out" 2>"$WORK/said" & ;;
        no) external -- python3 "$SUPPORT/session.py" told "$WORK/h" "$WORK/go" "$WORK/go" >"$WORK/out" 2>"$WORK/said" & ;;
        esac
        runner=$!
        soon filled "$WORK/out" || fail "the program says nothing"
        kill -9 "$WEIR_PID"
        wait "$WEIR_PID" 2>/dev/null || true
        [ "$changes" = yes ] || sleep 1
        touch "$WORK/go"
        status=0
        wait "$runner" || status=$?
        case $changes in
        yes)
            expect_equal "status when the daemon has died" "$status" 74
            grep -q "the daemon of $MNT has died, or was ended by force, and the session was killed" "$WORK/said" || fail "it says: $(cat "$WORK/said")"
            ;;
        no) expect_equal "status when a daemon has died whose mount it did not change" "$status" 0 ;;
        esac
        umount -l "$MNT"
    done
    # A program that ends as soon as it cannot read ends before the daemon's connections do.
    for _ in 1 2 3 4 5; do
        mount_weir_foreground "$SRC" "$MNT" "${COMMIT[@]}"
        rm "$WORK/out"
        external -- sh -c "echo a >$MNT/f; sync $MNT/f; echo ready; while read -r line <$MNT/f; do :; done; exit 3" >"$WORK/out" 2>"$WORK/said" &
        runner=$!
        soon filled "$WORK/out" || fail "the program says nothing"
        kill_daemon
        status=0
        wait "$runner" || status=$?
        expect_equal "status of a program that ends with its files" "$status" 74
    done
    # The supervisor dies: the same.
    mount_weir "$SRC" "$MNT" "${COMMIT[@]}"
    rm "$WORK/out"
    external -- sh -c "echo ready; sleep 4321" >"$WORK/out" 2>"$WORK/said" &
    runner=$!
    soon filled "$WORK/out" || fail "the program does not run"
    supervisor=
    for pid in $(pgrep -f "run --sync external.*sleep 4321"); do
        if [ "$(cat "/proc/$pid/comm")" = weir ] && [ "$(ls "/proc/$pid/task" | wc -l)" -gt 1 ]; then supervisor=$pid; fi
    done
    kill -9 "${supervisor:?}"
    status=0
    wait "$runner" || status=$?
    expect_equal "status" "$status" 74
    ! pgrep -f "sleep 4321$" >/dev/null || fail "the session lives on"
    umount_weir "$MNT"
    ;;
script | pipe | keys | redis | postgres | mariadb | status)
    rounds=${WEIR_ROUNDS:-10}
    if [ -n "$LONG" ]; then rounds=${WEIR_ROUNDS:-200}; fi
    seen_all=0
    for _ in $(seq "$rounds"); do
        watch "$1" timeout -s KILL 60 "$WEIR" run --sync external --
        kill_daemon
        recover_and_check "$1" || fail "$SUM"
        seen_all=$((seen_all + SUM))
    done
    counts "$rounds kills, $seen_all numbers seen"
    ;;
failed-log)
    # The log cannot be written any more, in the middle of each load: nothing that was not durable by then has left, and the session ends.
    seen=
    for load in script pipe keys redis postgres mariadb status; do
        for _ in $(seq "${WEIR_ROUNDS:-2}"); do
            truncate -s 512M "$WORK/image"
            loop=$(losetup --find --show "$WORK/image")
            LOG=(--log "$loop")
            watch "$load" timeout -s KILL 60 "$WEIR" run --sync external --
            python3 "$SUPPORT/loop_limit.py" break "$loop"
            soon ended "$observer" || fail "$load: the session goes on"
            kill_daemon
            python3 "$SUPPORT/loop_limit.py" heal "$loop"
            # Data goes home in any order after that.
            recover_and_check "$load" in-any-order || fail "$SUM"
            seen="$seen $load $SUM"
            rm -rf "$SRC/.weir"
            losetup -d "$loop"
            rm "$WORK/image"
        done
    done
    counts "seen and kept:$seen"
    ;;
*-cut)
    load=${1%-cut}
    rounds=${WEIR_ROUNDS:-50}
    start_disk none 512M ext4
    seen_all=0
    for seed in $(seq "$rounds"); do
        mount "$DISK_DEVICE" "$SRC"
        watch "$load" timeout -s KILL 60 "$WEIR" run --sync external --
        "$BENCH" disk cut --dir "$DISK" --seed "$seed" >/dev/null
        # Whatever leaves from now on, the observer still sees.
        sleep 0.1
        mount_after_cut 2>>"$DAEMON_LOG"
        recover_and_check "$load" || fail "$SUM"
        seen_all=$((seen_all + SUM))
        umount_soon "$SRC"
    done
    stop_disk
    counts "$rounds power cuts, $seen_all numbers seen"
    ;;
broken-output)
    # Nothing is held, and nothing is synced.
    need_command cc
    # So that a kill loses little, and not all.
    COMMIT=(--order all --commit 100ms)
    # So that MariaDB does not wait for room in the log: what was seen before such a wait is durable after it.
    LOG=(--log-size 256M)
    cc -shared -fPIC -o "$WORK/no_sync.so" "$SUPPORT/no_sync.c"
    for load in script pipe keys redis postgres mariadb status; do
        found "$load" env "LD_PRELOAD=$WORK/no_sync.so"
    done
    ;;
broken-order)
    # Syncs are done and waited for, and what was changed before them may be lost: a session on a mount that keeps no order.
    COMMIT=()
    found script "$WEIR" run --sync external --
    ;;
broken-status)
    # The status is told while the program, in the same session, is still at work. Without the mount it is not zero.
    # shellcheck disable=SC2016
    found status "$WEIR" run --sync external -- sh -c '"$@" >/dev/null 2>&1 </dev/null & test -d "$0"' "$MNT/data"
    ;;
esac
