#!/usr/bin/env bash
# `weir run`: calls behave as on a plain directory; real programs; descriptors opened and closed; the daemon's death;
# reports, exit statuses and messages.
# cases: calls databases programs passed daemon-killed report usage
# all: databases
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command cc

plain=$WORK/plain
mkdir "$plain"

# Only the commands named here run under the library, not the test's shell.
run() {
    "$WEIR" run -- "$@"
}

# in_lane FILE PROGRAM FIELD...: numbers of a report.
in_report() {
    python3 "$SUPPORT/field.py" "${@:2}" <"$1"
}

case $1 in
calls)
    cc -O2 -w -pthread -o "$WORK/calls" "$SUPPORT/calls.c"
    rounds=3
    if [ -n "$LONG" ]; then rounds=50; fi
    "$WORK/calls" "$plain" >"$WORK/plain.out"
    mount_weir "$SRC" "$MNT"
    for round in $(seq "$rounds"); do
        mkdir "$MNT/$round"
        "$WEIR" run --report="$WORK/report.json" -- "$WORK/calls" "$MNT/$round" >"$WORK/lane.out"
        diff "$WORK/plain.out" "$WORK/lane.out" || fail "calls did other things by the lane"
        posted=$(in_report "$WORK/report.json" total.lane.writes)
        [ "$posted" -gt 10000 ] || fail "only $posted writes went by the lane"
        for name in positions pieces appends refused modes direct other stream second from to unseen \
            worker/positions worker/pieces worker/appends worker/modes worker/from worker/to worker/unseen; do
            cmp "$plain/$name" "$MNT/$round/$name"
        done
    done
    umount_weir "$MNT"
    for round in $(seq "$rounds"); do cmp "$plain/appends" "$SRC/$round/appends"; done
    counts "$(grep -c ' = ' "$WORK/plain.out") calls the same, $posted writes by the lane"
    ;;
databases)
    need_command sqlite3
    mount_weir "$SRC" "$MNT"
    for mode in wal delete; do
        base=$MNT/$mode.db
        run sqlite3 "$base" >/dev/null <<END
PRAGMA journal_mode=$mode;
CREATE TABLE t(id INTEGER PRIMARY KEY, body BLOB);
WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
INSERT INTO t SELECT i, randomblob(100 + i % 400) FROM n;
CREATE INDEX t_body ON t(body);
END
        # One under `weir run` and one without, at the same time.
        for how in run env; do
            for round in $(seq 40); do
                $how sqlite3 -cmd '.timeout 20000' "$base" \
                    "UPDATE t SET body = randomblob(200) WHERE id % 97 = $round; DELETE FROM t WHERE id = $round;"
            done &
        done
        wait
        expect_equal "$mode, by the lane" "$(run sqlite3 "$base" 'PRAGMA integrity_check; SELECT count(*) FROM t')" $'ok\n19960'
        expect_equal "$mode, by the kernel" "$(sqlite3 "$base" 'PRAGMA integrity_check; SELECT count(*) FROM t')" $'ok\n19960'
    done
    umount_weir "$MNT"
    for mode in wal delete; do
        expect_equal "$mode at home" "$(sqlite3 "$SRC/$mode.db" 'PRAGMA integrity_check; SELECT count(*) FROM t')" $'ok\n19960'
    done
    counts "2 journal modes, 160 updates"
    ;;
programs)
    need_command git make cc tar perl python3
    export HOME=$WORK GIT_CONFIG_NOSYSTEM=1
    git config --global user.email a@b
    git config --global user.name a
    git config --global safe.directory '*'
    cat >"$WORK/work" <<'END'
set -euo pipefail
cd "$1"
python3 "$2/tree.py" grow . 1 200 >/dev/null
git init -q . 2>/dev/null
GIT_AUTHOR_DATE='2001-01-01T00:00:00Z' GIT_COMMITTER_DATE='2001-01-01T00:00:00Z' git add -A
GIT_AUTHOR_DATE='2001-01-01T00:00:00Z' GIT_COMMITTER_DATE='2001-01-01T00:00:00Z' git commit -qm one
git gc -q
git fsck --full --strict
git rev-parse HEAD
python3 - <<'PY'
import os, random
random.seed(7)
with open("py", "w+b", buffering=0) as f:
    for i in range(3000):
        f.seek(random.randrange(1 << 16))
        f.write(bytes([i % 256]) * random.randrange(1, 300))
    f.seek(0); print(hash(f.read()) is not None, f.tell())
with open("text", "a") as f:
    for i in range(2000):
        print("line", i, file=f)
    f.flush(); print(f.tell())
PY
perl -e 'open F, "+>", "pl"; for (1..2000) { syswrite F, "x" x ($_ % 50); } sysseek F, 0, 0; my $n = 0; while (my $r = sysread F, my $b, 777) { $n += $r } print "$n\n"; exec "cat >>pl </etc/hostname"'
for i in $(seq 200); do echo "shell $i"; if [ $((i % 50)) = 0 ]; then cat text | tail -1; fi; done >shell
{ seq 500; expr 1 + 1; seq 500; } >>shell
printf 'all: a b\na: ; seq 1000 >a\nb: a ; sort -r a >b; cat a b >c\n' >Makefile
make -s -j2
tar cf all.tar py pl text shell a b c
mkdir un; tar xf all.tar -C un; diff -r un/a a; cmp un/py py
dd if=py of=dd bs=512 conv=notrunc status=none; dd if=py of=dd bs=512 seek=7 oflag=append conv=notrunc status=none
sha256sum py pl text shell a b c dd
END
    bash "$WORK/work" "$plain" "$SUPPORT" >"$WORK/plain.out"
    mount_weir "$SRC" "$MNT"
    "$WEIR" run --report="$WORK/report.json" -- bash "$WORK/work" "$MNT" "$SUPPORT" >"$WORK/lane.out"
    diff "$WORK/plain.out" "$WORK/lane.out" || fail "programs came to another end"
    through=$(hash_of_tree "$MNT")
    umount_weir "$MNT"
    expect_equal "the files at home" "$(hash_of_tree "$SRC")" "$through"
    counts "$(in_report "$WORK/report.json" total.lane.writes total.processes | paste -sd' ') writes by the lane, processes"
    ;;
passed)
    mount_weir "$SRC" "$MNT"
    step "descriptors passed on to other programs, one of them static"
    static=
    printf '#include <unistd.h>\nint main(void) { for (int i = 0; i < 100; i++) write(1, "static\\n", 7); return 0; }\n' >"$WORK/s.c"
    if cc -static -o "$WORK/static" "$WORK/s.c" 2>/dev/null; then static=$WORK/static; fi
    cat >"$WORK/script" <<'END'
set -e
for i in $(seq 50); do echo "one $i"; done
env echo between
for i in $(seq 50); do echo "two $i"; done
[ -z "$1" ] || "$1"
python3 -c 'import os
for i in range(50): os.write(1, b"py %d\n" % i)'
for i in $(seq 50); do echo "three $i"; done
END
    for target in "$plain" "$MNT"; do
        if [ "$target" = "$MNT" ]; then how=run; else how=env; fi
        $how bash "$WORK/script" "$static" >"$target/out"
        $how bash "$WORK/script" "$static" >>"$target/appended"
        $how bash "$WORK/script" "$static" >>"$target/appended"
        $how bash -c 'exec 5<>'"$target"'/both; for i in $(seq 60); do echo "line $i" >&5; done; exec 5<'"$target"'/both; head -3 <&5; while read -r l; do n=$l; done <&5; echo "$n"' >"$target/read"
    done
    for name in out appended both read; do cmp "$plain/$name" "$MNT/$name"; done
    umount_weir "$MNT"
    cmp "$plain/appended" "$SRC/appended"
    ;;
daemon-killed)
    mount_weir_foreground "$SRC" "$MNT"
    cat >"$WORK/writer.py" <<'END'
import os, sys, time
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
for i in range(100):
    os.pwrite(fd, b"x" * 100, i * 100)
print("ready", flush=True)
try:
    while True:
        os.pwrite(fd, b"x" * 100, 0)
        os.pread(fd, 100, 0)
except OSError as error:
    print(error.errno, flush=True)
END
    : >"$WORK/out"
    run python3 "$WORK/writer.py" "$MNT/file" >"$WORK/out" &
    writer=$!
    soon grep -q ready "$WORK/out" || fail "the program did not begin"
    kill -9 "$WEIR_PID"
    wait "$writer"
    # ECONNABORTED for a request that was under way, ECANCELED for one that io_uring carried.
    case $(tail -1 "$WORK/out") in
        "$(python3 -c 'import errno; print(errno.ENOTCONN)')") ;;
        "$(python3 -c 'import errno; print(errno.ECONNABORTED)')") ;;
        "$(python3 -c 'import errno; print(errno.ECANCELED)')") ;;
        *) fail "the writer saw $(tail -1 "$WORK/out")" ;;
    esac
    wait "$WEIR_PID" || true
    umount_soon "$MNT"
    ;;
report)
    mount_weir "$SRC" "$MNT"
    cat >"$WORK/writer.py" <<'END'
import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
for i in range(1000):
    os.write(fd, b"x" * 100)
os.fsync(fd)
if len(sys.argv) > 2:
    os.kill(os.getpid(), 9)
END
    "$WEIR" run --report="$WORK/one.json" -- python3 "$WORK/writer.py" "$MNT/one"
    expect_equal "syncs, files, processes" "$(in_report "$WORK/one.json" total.syncs total.files_in_lane total.processes | paste -sd' ')" "1 1 1"
    posted=$(in_report "$WORK/one.json" programs.python3.lane.writes)
    expect_equal "writes" "$((posted + $(in_report "$WORK/one.json" programs.python3.kernel.writes)))" 1000
    expect_equal "bytes posted" "$(in_report "$WORK/one.json" total.lane.write_bytes)" "${posted}00"
    [ "$posted" -gt 900 ] || fail "only $posted writes went by the lane"
    expect_equal "because" "$(in_report "$WORK/one.json" total.kernel_writes_because.early)" 8
    step "a process with a lane: a file that was empty enters it with the first write"
    cat >"$WORK/few.py" <<'END'
import os, sys
def write(name, calls):
    fd = os.open(f"{sys.argv[1]}/{name}", os.O_CREAT | os.O_RDWR)
    for i in range(calls):
        os.write(fd, b"x" * 100)
    os.close(fd)
write("first", 100)
for name in "second", "third", "fourth":
    write(name, 5)
write("first", 5)
write("fifth", 20)
END
    "$WEIR" run --report="$WORK/few.json" -- python3 "$WORK/few.py" "$MNT"
    expect_equal "files put into the lane" "$(in_report "$WORK/few.json" total.files_in_lane)" 6
    expect_equal "early writes" "$(in_report "$WORK/few.json" total.kernel_writes_because.early)" $((8 + 1))
    step "a program that is killed has counted"
    status=0
    "$WEIR" run --report="$WORK/two" -- sh -c "python3 '$WORK/writer.py' '$MNT/two' die; exit 3" 2>/dev/null || status=$?
    expect_equal "its exit status" "$status" 3
    grep -Eq '9[0-9][0-9] writes' "$WORK/two" || fail "the report lacks the writes: $(cat "$WORK/two")"
    status=0
    "$WEIR" run --report -- python3 "$WORK/writer.py" "$MNT/two" die 2>"$WORK/err" || status=$?
    expect_equal "the status of who was killed" "$status" 137
    grep -q 'by lane' "$WORK/err" || fail "no report on standard error"
    step "signals are passed on"
    "$WEIR" run --report="$WORK/three" -- sh -c 'trap "echo told; exit 7" TERM; echo ready; while :; do sleep 0.05; done' >"$WORK/out" &
    runner=$!
    soon grep -qs ready "$WORK/out" || fail "the program did not begin"
    kill -TERM "$runner"
    status=0
    wait "$runner" || status=$?
    expect_equal "status after SIGTERM" "$status" 7
    grep -q told "$WORK/out" || fail "the program was not told"
    expect_equal "files left in memory" "$(find /dev/shm -name "weir-run-$runner")" ""
    umount_weir "$MNT"
    ;;
usage)
    checks=0
    # ends STATUS WORDS COMMAND...
    ends() {
        local wanted=$1 words=$2 status=0
        shift 2
        "$@" >"$WORK/out" 2>"$WORK/err" </dev/null || status=$?
        expect_equal "exit status of '$*' ($(cat "$WORK/err"))" "$status" "$wanted"
        [[ $(cat "$WORK/err") = *"$words"* ]] || fail "'$*' does not say '$words': $(cat "$WORK/err")"
        checks=$((checks + 1))
    }
    echo text >"$WORK/text"
    ends 127 weir-no-such "$WEIR" run -- weir-no-such-program
    ends 127 "$WORK/none" "$WEIR" run "$WORK/none"
    ends 126 "$WORK/text" "$WEIR" run "$WORK/text"
    ends 2 CMD "$WEIR" run
    ends 2 nonsense "$WEIR" run --nonsense true
    ends 1 libweir_preload.so env WEIR_PRELOAD="$WORK/none" "$WEIR" run true
    ends 5 "" "$WEIR" run -- sh -c 'exit 5'
    ends 5 "" "$WEIR" run --report=/dev/null -- sh -c 'exit 5'
    ends 1 "$WORK/none/report" "$WEIR" run --report="$WORK/none/report" -- true
    expect_equal "arguments" "$("$WEIR" run -- printf '%s,' --report -- a)" "--report,--,a,"
    expect_equal "standard input" "$(echo in | "$WEIR" run cat)" in
    ends 0 "" env LD_PRELOAD=/lib/x86_64-linux-gnu/libm.so.6 "$WEIR" run -- sh -c 'case $LD_PRELOAD in */libweir_preload.so:/lib*) ;; *) exit 1 ;; esac'
    ends 143 "" "$WEIR" run --report=/dev/null -- sh -c 'kill $$'
    if printf 'int main(void) { return 4; }\n' | cc -static -x c -o "$WORK/static" - 2>/dev/null; then
        ends 4 "statically linked" "$WEIR" run "$WORK/static"
        printf '#!%s\n' "$WORK/static" >"$WORK/by-static"
        chmod +x "$WORK/by-static"
        ends 4 "statically linked" "$WEIR" run "$WORK/by-static"
    fi
    cp "$(type -P true)" "$WORK/setuid"
    chown nobody "$WORK/setuid"
    chmod u+s "$WORK/setuid"
    ends 0 "set-user-ID" "$WEIR" run "$WORK/setuid"
    mkdir "$WORK/prefix" "$WORK/prefix/bin" "$WORK/prefix/lib" "$WORK/prefix/lib/weir"
    cp "$WEIR" "$WORK/prefix/bin"
    ends 1 "../lib/weir" "$WORK/prefix/bin/weir" run true
    cp "$(dirname "$WEIR")/libweir_preload.so" "$WORK/prefix/lib/weir"
    ends 0 "" "$WORK/prefix/bin/weir" run true
    [ "$("$WEIR" run --help | wc -l)" -ge 20 ] || fail "weir run --help is hardly a help"
    counts "$checks answers"
    ;;
esac
