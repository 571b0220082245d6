#!/usr/bin/env bash
# `weir-bench clean` removes what a killed run of weir-bench leaves behind: mounts, loop device, cgroup,
# processes, directory. It leaves a living run's resources alone, and everything that no run made.
# all
# seconds: 35
source "${REPO:?}/tests/e2e/lib.sh"

weir_only
need_root
need_command mkfs.ext4 losetup
BENCH=${WEIR_BENCH:?}
[ -x "$BENCH" ] || skip "weir-bench is not built: run 'make checked'"
[ -e /dev/loop-control ] || skip "this machine has no loop devices"

# hold NAME OPTION...: starts a run in $WORK/NAME and waits until it has made everything; sets PID.
hold() {
    local name=$1
    shift
    # Emptied first: an earlier run's output must not be taken for this run's.
    : >"$WORK/$name.log"
    "$BENCH" hold --weir "$WEIR" --dir "$WORK/$name" "$@" >>"$WORK/$name.log" 2>&1 &
    PID=$!
    soon holds_or_ended "$name" || true
    if grep -q '^holding$' "$WORK/$name.log"; then
        counts "$(grep ' operations verified, ' "$WORK/$name.log")"
        return
    fi
    cat "$WORK/$name.log"
    if grep -q 'memory cannot be limited' "$WORK/$name.log"; then skip "no memory cgroups"; fi
    fail "the run in $name never held"
}

holds_or_ended() {
    grep -q '^holding$' "$WORK/$1.log" || ended "$PID"
}

# Lists the resources of the run in $WORK/NAME, one on each line.
mounts_of() {
    awk -v below="$WORK/$1/" 'index($5, below) == 1 { print "mount " $5 }' /proc/self/mountinfo
}
loops_of() {
    grep -ls "^$WORK/$1/" /sys/block/loop*/loop/backing_file || true
}
groups_of() {
    find /sys/fs/cgroup -maxdepth 3 -type d -path "*/weir-bench-$1*"
}
processes_of() {
    local line
    for line in /proc/[0-9]*/cmdline; do
        if tr '\0' '\n' 2>/dev/null <"$line" | grep -q "^$WORK/$1/"; then echo "process ${line//[^0-9]/}"; fi
    done
}
members_of() {
    groups_of "$1" | while read -r group; do cat "$group/cgroup.procs"; done
}
all_of() {
    mounts_of "$1"
    loops_of "$1"
    groups_of "$2"
    processes_of "$1"
}

step "a run with Weir on a slow disk, and one with ext4 that continues"
hold killed --disk hdd --contestant weir-lazy
killed=$PID
hold alive --disk none --contestant ext4
alive=$PID
for kind in mounts_of loops_of processes_of; do
    [ -n "$($kind killed)" ] || fail "the held run has nothing by $kind"
done
[ -n "$(members_of "$killed")" ] || fail "the held run has no processes in a cgroup"
before=$(all_of alive "$alive")

step "killed: everything stays behind"
members=$(members_of "$killed")
kill -KILL "$killed"
wait "$killed" 2>/dev/null || true
[ -n "$(mounts_of killed)" ] || fail "nothing was left; the test shows nothing"
[ -n "$(loops_of killed)" ] || fail "no loop device was left; the test shows nothing"
"$BENCH" clean --dir "$WORK/alive" >"$WORK/clean.log"
cat "$WORK/clean.log"
grep -q "^left alone: the run of process $alive " "$WORK/clean.log" || fail "clean does not name the living run"
grep -q '^nothing to clean$' "$WORK/clean.log" || fail "clean touched something elsewhere"
[ -n "$(mounts_of killed)" ] || fail "clean --dir went beyond its directory"

step "clean removes it, without waiting for the slow disk"
timeout 60 "$BENCH" clean >"$WORK/clean.log" || { cat "$WORK/clean.log"; fail "clean failed"; }
cat "$WORK/clean.log"
expect_equal "left of the killed run" "$(all_of killed "$killed")" ""
for pid in $members; do
    if grep -qs '^State:[[:space:]][^ZX]' "/proc/$pid/status"; then fail "process $pid still runs"; fi
done
expect_equal "files of the killed run" "$(ls -A "$WORK/killed")" ""
for what in process mount 'loop device' cgroup directory; do
    grep -q "^  removed $what " "$WORK/clean.log" || fail "clean does not say that it removed a $what"
done
"$BENCH" clean --dir "$WORK/killed" >"$WORK/clean.log"
expect_equal "a second clean" "$(cat "$WORK/clean.log")" "nothing to clean"

step "the next run in the same directory cleans by itself"
hold killed --disk none --contestant ext4
kill -KILL "$PID"
wait "$PID" 2>/dev/null || true
hold killed --disk none --contestant ext4
grep -q "^left by the run of process " "$WORK/killed.log" || fail "the next run does not say what it removed"
kill -TERM "$PID"
wait "$PID" 2>/dev/null || true
expect_equal "left after the next run" "$(all_of killed "$PID")" ""

step "the living run keeps its resources, and removes them itself"
expect_equal "the living run's things" "$(all_of alive "$alive")" "$before"
expect_failure "another run is working in" "$BENCH" hold --weir "$WEIR" --dir "$WORK/alive"
expect_equal "the living run's things after that" "$(all_of alive "$alive")" "$before"
kill -0 "$alive" || fail "the living run was killed"
kill -TERM "$alive"
wait "$alive" 2>/dev/null || true
expect_equal "left of the run that was told to end" "$(all_of alive "$alive")" ""
expect_equal "files of the run that was told to end" "$(ls -A "$WORK/alive")" ""

step "resources that no run made are neither used nor removed"
mkdir -p "$WORK/foreign/weir-bench-work"
echo precious >"$WORK/foreign/weir-bench-work/file"
expect_failure "not of weir-bench's making" "$BENCH" hold --weir "$WEIR" --dir "$WORK/foreign"
"$BENCH" clean --dir "$WORK/foreign" >"$WORK/clean.log"
expect_equal "clean of a foreign directory" "$(cat "$WORK/clean.log")" "nothing to clean"
expect_equal "the foreign file" "$(cat "$WORK/foreign/weir-bench-work/file")" "precious"

step "a missing program is reported before anything is made"
expect_failure "there is no weir program at" "$BENCH" hold --weir "$WORK/none" --dir "$WORK/bad"
mkdir "$WORK/small"
mount -t tmpfs -o size=100m none "$WORK/small"
expect_failure "MiB free and this needs" "$BENCH" hold --weir "$WEIR" --dir "$WORK/small"
expect_equal "made without space" "$(ls -A "$WORK/small")" ""
umount "$WORK/small"
expect_failure "there is no contestant 'zfs'" "$BENCH" hold --weir "$WEIR" --contestant zfs --dir "$WORK/bad"
if id nobody >/dev/null 2>&1; then
    cp "$BENCH" "$WORK/weir-bench"
    expect_failure "needs root" as_user nobody "$WORK/weir-bench" hold --weir "$WEIR" --dir "$WORK/bad"
    # Another user's runs are not looked at.
    expect_equal "what nobody has left" "$(as_user nobody "$WORK/weir-bench" clean)" "nothing to clean"
fi
[ ! -e "$WORK/bad" ] || fail "something was made"
