#!/usr/bin/env bash
# `weir advise` and what is not its own: files outside of its scratch directory, whatever a trace says; directories that others may
# change; what it leaves when it is interrupted or killed; what it takes of disk and memory; the program's streams, and the
# processes that the program leaves.
# cases: outside others interrupted killed bounds streams background outputs configured
# seconds: 40
# all: interrupted killed
source "${REPO:?}/tests/e2e/lib.sh"

weir_only
need_root
need_command strace python3
case=${1:?}
export TMPDIR=$WORK/tmp
mkdir "$TMPDIR"
cd "$SRC"

# traced: makes a trace in Weir's form of lines `CALL PATH [KEY=VALUE...]`.
traced() {
    python3 "$SUPPORT/advise_trace.py"
}

advise() {
    "$WEIR" advise --out "$WORK/advice.html" --json "$WORK/advice.json" "$@"
}

expect_field() {
    expect_equal "$1" "$(python3 "$SUPPORT/field.py" "$1" <"$WORK/advice.json")" "$2"
}

left() {
    find "$SRC" "$TMPDIR" -name ".weir-advise-*"
    grep " $WORK[^ ]* fuse.weir" /proc/self/mounts || true
}

expect_nothing_left() {
    expect_equal "what is left" "$(left)" ""
}

mounted() {
    grep -q " $TMPDIR[^ ]* fuse.weir" /proc/self/mounts
}

nothing_left() {
    [ -z "$(left)" ]
}

# A trace whose calls take long: each is a sync.
long_trace() {
    { echo "open $SRC/f description=1 flags=3"
      for ((at = 0; at < 20000; at++)); do echo "write $SRC/f description=1 length=100"; echo "sync $SRC/f description=1"; done
    } | traced >"$WORK/long"
}

case $case in
    outside)
        step "no path of a trace leads out of the scratch directory"
        mkdir -p "$WORK/victim/directory"
        echo kept >"$WORK/victim/kept"
        chmod 600 "$WORK/victim/kept"
        for victim in "$SRC/../victim" "$SRC/a/../../victim" "$SRC/../../../../../../../../../..$WORK/victim" "$SRC/$WORK/victim" \
            "$SRC//$WORK/victim" "$SRC/./../victim"; do
            echo "open $SRC/normal description=1 flags=3"
            echo "write $SRC/normal description=1 length=10"
            echo "open $victim/kept description=2 flags=9"
            echo "write $victim/kept description=2 length=5"
            echo "attributes $victim/kept"
            echo "open $victim/made description=3 flags=3"
            echo "rename $victim/directory to=$victim/moved"
            echo "rename $SRC/normal to=$victim/in"
            echo "link $SRC/normal to=$victim/linked"
            echo "symbolic-link $victim/symbolic"
            echo "unlink $victim/kept"
        done | traced >"$WORK/trace"
        advise --trace "$WORK/trace" --source "$SRC" >"$WORK/summary"
        told=$(printf '%s' "$WORK/victim/../victim/strace")
        {
            echo "1 1.000000 openat(AT_FDCWD, \"x\", O_RDWR|O_CREAT|O_TRUNC, 0644) = 3<$SRC/../victim/kept> <0.000010>"
            echo "1 1.000100 write(3<$SRC/..$told>, \"\"..., 5) = 5 <0.000010>"
            echo "1 1.000200 openat(AT_FDCWD, \"$SRC/ok\", O_RDWR|O_CREAT, 0644) = 4<$SRC/ok> <0.000010>"
            echo "1 1.000300 write(4<$SRC/ok>, \"\"..., 5) = 5 <0.000010>"
        } >"$WORK/calls"
        advise --trace "$WORK/calls" --source "$SRC" >"$WORK/summary"
        expect_equal "what is there" "$(cd "$WORK/victim" && find . | sort | tr '\n' ' ')" ". ./directory ./kept "
        expect_equal "the file" "$(cat "$WORK/victim/kept")" kept
        expect_equal "its mode" "$(stat -c %a "$WORK/victim/kept")" 600
        step "a plan that leads out is refused"
        mkdir -m 700 "$WORK/private"
        step_of='{"class":"unlink","what":"unlink","think_us":0,"path":"../victim/kept","to":"","handle":null,"offset":0,"length":0,"flags":0}'
        echo "{\"prepared\":[],\"steps\":[$step_of]}" >"$WORK/plan"
        expect_failure "leads out" "$WEIR" advise-replay "$WORK/plan" "$WORK/private" "$WORK/result"
        echo '{"prepared":[],"steps":[]}' >"$WORK/plan"
        "$WEIR" advise-replay "$WORK/plan" "$WORK/private" "$WORK/result"
        chmod 755 "$WORK/private"
        expect_failure "other users may use it" "$WEIR" advise-replay "$WORK/plan" "$WORK/private" "$WORK/result"
        expect_nothing_left
        ;;
    others)
        step "in a directory that another user may change, nothing is tried, and the advice says why"
        echo "write $SRC/theirs/f length=100" | traced >"$WORK/trace"
        mkdir theirs
        for how in "chown nobody theirs" "chmod 777 theirs" "chmod 770 theirs"; do
            chown root:root theirs
            chmod 755 theirs
            $how
            advise --trace "$WORK/trace" --source "$SRC/theirs" >"$WORK/summary"
            grep -q "not tried: .*$SRC/theirs .*could replace what is made below it" "$WORK/summary" ||
                fail "after '$how' the advice does not say why nothing was tried: $(cat "$WORK/summary")"
            expect_equal "what was made" "$(ls -A theirs)" ""
        done
        step "nor below one"
        chown root:root theirs
        chmod 777 theirs
        mkdir theirs/ours
        advise --trace "$WORK/trace" --source "$SRC/theirs/ours" >"$WORK/summary"
        grep -q "could replace what is made below it" "$WORK/summary" || fail "tried below a directory of others"
        step "nor are files made aside there"
        expect_failure "could replace" env TMPDIR="$SRC/theirs/ours" "$WEIR" advise --out "$WORK/x.html" --trace "$WORK/trace"
        step "in a sticky one they are"
        chmod 1777 theirs
        advise --trace "$WORK/trace" --source "$SRC/theirs" >"$WORK/summary"
        if grep -q "not tried" "$WORK/summary"; then fail "not tried in a sticky directory"; fi
        expect_nothing_left
        ;;
    interrupted)
        step "a signal at any moment leaves nothing, and is told by the status"
        long_trace
        for signal in INT TERM HUP; do
            for after in 0.1 0.5 1 1.5 2.5 3.5; do
                status=0
                python3 "$SUPPORT/advise_signal.py" "$signal" "$after" "$WEIR" advise --trace "$WORK/long" --source "$SRC" \
                    --out "$WORK/x.html" >"$WORK/out" 2>&1 || status=$?
                case $status in
                    0 | $((128 + $(kill -l "$signal")))) ;;
                    *) fail "SIG$signal after $after s: status $status: $(cat "$WORK/out")" ;;
                esac
                echo "SIG$signal after $after s: $status"
                expect_nothing_left
            done
        done
        step "after CMD, too"
        status=0
        python3 "$SUPPORT/advise_signal.py" TERM 3 "$WEIR" advise --source "$SRC" --out "$WORK/x.html" -- \
            python3 -c 'import os
with open("g", "wb") as file:
    for number in range(4000):
        file.write(b"x"); file.flush(); os.fsync(file.fileno())' >"$WORK/out" 2>&1 || status=$?
        echo "status $status"
        expect_nothing_left
        ;;
    killed)
        step "what a killed one leaves is removed by the next one"
        long_trace
        "$WEIR" advise --trace "$WORK/long" --source "$SRC" --out "$WORK/x.html" >"$WORK/out" 2>&1 &
        advisor=$!
        soon mounted || fail "nothing was mounted"
        kill -KILL "$advisor"
        wait "$advisor" || true
        [ -n "$(left)" ] || fail "nothing was left"
        # What it had started has a few seconds at most.
        sleep 5
        echo "write $SRC/f length=100" | traced >"$WORK/trace"
        advise --trace "$WORK/trace" --source "$SRC" >"$WORK/summary" 2>"$WORK/warnings"
        cat "$WORK/warnings"
        grep -q "which a weir advise that was killed left" "$WORK/warnings" || fail "it does not say what it removed"
        expect_nothing_left
        step "that of one that lives is not"
        "$WEIR" advise --trace "$WORK/long" --source "$SRC" --out "$WORK/x.html" >"$WORK/out" 2>&1 &
        advisor=$!
        soon mounted || fail "nothing was mounted"
        advise --trace "$WORK/trace" --source "$SRC" >"$WORK/summary" 2>"$WORK/warnings"
        expect_equal "its warnings" "$(cat "$WORK/warnings")" ""
        wait "$advisor"
        expect_nothing_left
        ;;
    bounds)
        step "what a call asks for is bounded"
        {
            echo "open $SRC/f description=1 flags=3"
            echo "allocate $SRC/f description=1 length=3221225472"
            echo "write $SRC/f description=1 length=536870912"
            echo "write $SRC/f description=1 offset=1099511627776 length=536870912"
            echo "read $SRC/g description=2 offset=0 length=2147479552"
            echo "truncate $SRC/f description=1 length=1099511627776"
            echo "read $SRC/f description=1 offset=0 length=2147479552"
        } | traced >"$WORK/trace"
        before=$(df --output=used -B1M "$SRC" | tail -1)
        most=$WORK/most
        (
            highest=0
            while [ ! -e "$WORK/done" ]; do
                used=$(($(du -sm "$SRC" 2>/dev/null | cut -f1)))
                [ "$used" -le "$highest" ] || highest=$used
                echo "$highest" >"$most"
                sleep 0.05
            done
        ) &
        advise --trace "$WORK/trace" --source "$SRC" >"$WORK/summary"
        touch "$WORK/done"
        wait
        echo "$(cat "$most") MiB at most; $before MiB of the disk were used before"
        # Three rounds of four copies, each with what is prepared and what is moved.
        [ "$(cat "$most")" -le $((3 * 4 * (32 + 128))) ] || fail "it took $(cat "$most") MiB"
        echo "read $SRC/f length=2147479553" | traced >"$WORK/trace"
        expect_failure "no call transfers" "$WEIR" advise --out "$WORK/x.html" --no-probe --trace "$WORK/trace"
        step "descriptors that children inherit cost no memory without bounds"
        python3 -c '
for number in range(30000):
    print(f"1 1.000000 openat(AT_FDCWD, \"/d/f\", O_RDONLY) = {number + 3}</d/f> <0.000001>")
for number in range(30000):
    print(f"1 2.000000 clone(child_stack=NULL, flags=SIGCHLD) = {number + 10} <0.000001>")' >"$WORK/clones"
        mib=$(python3 -c '
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10)' "$WEIR" advise --out "$WORK/x.html" --trace "$WORK/clones" --source "$SRC" --no-probe)
        echo "$mib MiB of memory"
        [ "$mib" -lt 500 ] || fail "it took $mib MiB"
        step "nor do threads of MobiBench's form take time that grows by their square"
        { echo "1 0 open $SRC/f O_RDWR 3"; seq -f "%.0f 0 close 9" 2 400000; } >"$WORK/threads"
        begun=$SECONDS
        advise --trace "$WORK/threads" --source "$SRC" --no-probe >"$WORK/summary"
        [ $((SECONDS - begun)) -lt 20 ] || fail "it took $((SECONDS - begun)) s"
        expect_nothing_left
        ;;
    streams)
        step "the program's output is its own, and the summary goes to standard error"
        advise --no-probe --source "$SRC" -- sh -c "echo x >$SRC/x; echo dumped" >"$WORK/dump" 2>"$WORK/summary"
        expect_equal "its output" "$(cat "$WORK/dump")" dumped
        grep -q "The page is $WORK/advice.html" "$WORK/summary" || fail "there is no summary on standard error"
        step "that of a trace goes to standard output"
        echo "write $SRC/f length=100" | traced >"$WORK/trace"
        advise --no-probe --trace "$WORK/trace" --source "$SRC" >"$WORK/summary"
        grep -q "The page is $WORK/advice.html" "$WORK/summary" || fail "there is no summary on standard output"
        step "who reads nothing of it has the page and the status"
        rm "$WORK/advice.html"
        status=0
        # shellcheck disable=SC2069 # the summary into the pipe, and nothing else
        { advise --no-probe --source "$SRC" -- sh -c "echo x >$SRC/x; exit 7" 2>&1 >/dev/null || echo $? >"$WORK/status"; } | sleep 0
        expect_equal "the status" "$(cat "$WORK/status")" 7
        [ -s "$WORK/advice.html" ] || fail "there is no page"
        rm "$WORK/advice.html"
        { advise --no-probe --trace "$WORK/trace" --source "$SRC" || status=$?; echo "$status" >"$WORK/status"; } | sleep 0
        expect_equal "the status" "$(cat "$WORK/status")" 0
        [ -s "$WORK/advice.html" ] || fail "there is no page"
        ;;
    background)
        step "what the program leaves running is neither waited for nor harmed"
        begun=$SECONDS
        status=0
        advise --no-probe --source "$SRC" -- sh -c \
            "(sleep 10; cat /etc/passwd >$SRC/later; echo \$? >$SRC/status) >/dev/null 2>&1 & echo x >$SRC/x; exit 5" \
            2>"$WORK/summary" || status=$?
        expect_equal "the program's status" "$status" 5
        [ $((SECONDS - begun)) -lt 9 ] || fail "it was waited for"
        grep -q "CMD has ended" "$WORK/summary" || fail "the user is not told"
        [ ! -e "$SRC/later" ] || fail "the process had ended"
        soon filled "$SRC/status" || fail "the process did not go on"
        expect_equal "its status" "$(cat "$SRC/status")" 0
        cmp /etc/passwd "$SRC/later"
        step "the status of one that is killed"
        status=0
        # shellcheck disable=SC2016
        advise --no-probe --source "$SRC" -- sh -c 'sleep 3 >/dev/null 2>&1 & echo x >x; kill -TERM $$' 2>"$WORK/summary" || status=$?
        expect_equal "the program's status" "$status" 143
        step "a child that ends soon after it is recorded"
        advise --no-probe --source "$SRC" -- sh -c "(sleep 0.1; printf 12345 >$SRC/soon) & exit 0" 2>"$WORK/summary"
        if grep -q "CMD has ended" "$WORK/summary"; then fail "it was not waited for"; fi
        expect_field footprint.groups.writes.bytes 5
        ;;
    outputs)
        step "what cannot be written is refused before the program runs"
        mkfifo "$WORK/fifo"
        ln -s nowhere "$WORK/dangling"
        echo mine >"$WORK/mine"
        ln -s mine "$WORK/link"
        for option in --out --json --save-trace; do
            for path in "$WORK/fifo" "$WORK/dangling" "$WORK/link" "$WORK/nowhere/x" "$SRC"; do
                status=0
                timeout -s KILL 10 "$WEIR" advise --out "$WORK/x.html" "$option" "$path" --no-probe -- touch "$SRC/ran" \
                    2>"$WORK/error" || status=$?
                [ "$option" != --out ] || status=0
                [ ! -e "$SRC/ran" ] || fail "$option $path: the program was run"
                [ "$status" -le 2 ] || fail "$option $path: status $status"
            done
        done
        for path in "$WORK/fifo" "$WORK/dangling" "$WORK/link"; do
            expect_failure "no regular file" timeout -s KILL 10 "$WEIR" advise --out "$path" --no-probe -- touch "$SRC/ran"
            expect_failure "no regular file" timeout -s KILL 10 "$WEIR" advise --json "$path" --no-probe -- touch "$SRC/ran"
        done
        [ ! -e "$SRC/ran" ] || fail "the program was run"
        expect_equal "the other file" "$(cat "$WORK/mine")" mine
        [ ! -e "$WORK/nowhere" ] || fail "a dangling link was followed"
        step "a former page is replaced"
        advise --no-probe --source "$SRC" -- touch "$SRC/ran" 2>/dev/null
        advise --no-probe --source "$SRC" -- touch "$SRC/ran" 2>/dev/null
        expect_nothing_left
        expect_equal "temporary files" "$(find "$WORK" -name '.weir-advise-*')" ""
        ;;
    configured)
        step "what the machine's configuration says is not for the trials"
        mkdir -p "$WORK/config/weir"
        cat >"$WORK/config/weir/config.toml" <<END
metrics = "127.0.0.1:9"
order = "none"
no-such-key = true
END
        echo "write $SRC/f length=100" | traced >"$WORK/trace"
        XDG_CONFIG_HOME=$WORK/config advise --trace "$WORK/trace" --source "$SRC" >"$WORK/summary"
        if grep "not tried" "$WORK/summary"; then fail "a configuration file decided"; fi
        expect_nothing_left
        ;;
    *) fail "no case '$case'" ;;
esac
