#!/usr/bin/env bash
# What programs under `weir run` have of their caller, with a session and without: signals that it ignores stay ignored, and `weir run` waits for its
# children although it ignores theirs. A pipe(2) that fails in a session leaves the program's memory alone. What outlives a program keeps no directory busy.
# cases: ignored pipes directory
source "${REPO:?}/tests/e2e/lib.sh"
source "$SUPPORT/sessions.sh"

need_root
mount_weir "$SRC" "$MNT" "${COMMIT[@]}"

case ${1:?} in
ignored)
    # ignoring SIGNALS COMMAND...: runs a command with these signals ignored.
    cat >"$WORK/ignoring.py" <<'END'
import os, signal, sys
for name in sys.argv[1].split(","):
    signal.signal(signal.Signals[name], signal.SIG_IGN)
if "SIGPIPE" not in sys.argv[1]:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
os.execvp(sys.argv[2], sys.argv[2:])
END
    for how in "" "--report=$WORK/report" "--sync=external"; do
        for signals in SIGCHLD,SIGPIPE SIGCHLD SIGUSR1; do
            status=0
            # shellcheck disable=SC2086
            seen=$(timeout -s KILL 60 python3 "$WORK/ignoring.py" "$signals" "$WEIR" run $how -- grep SigIgn /proc/self/status) || status=$?
            expect_equal "status with '$how', $signals ignored" "$status" 0
            wanted=$(python3 "$WORK/ignoring.py" "$signals" grep SigIgn /proc/self/status)
            if [[ $signals = *SIGCHLD* ]] && [ $((0x${wanted##*[[:space:]]} & 0x10000)) = 0 ]; then fail "SIGCHLD is not ignored"; fi
            expect_equal "ignored with '$how' of $signals" "$seen" "$wanted"
        done
    done
    ;;
pipes)
    cat >"$WORK/pipes.py" <<'END'
import ctypes, errno, resource
libc = ctypes.CDLL(None, use_errno=True)
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
made = 0
while True:
    ends = (ctypes.c_int * 2)(-1, -1)
    if libc.pipe2(ends, 0) == -1:
        break
    made += 1
assert ctypes.get_errno() == errno.EMFILE and made > 2, (ctypes.get_errno(), made)
assert list(ends) == [-1, -1], list(ends)
END
    timeout -s KILL 60 python3 "$WORK/pipes.py"
    external -- python3 "$WORK/pipes.py"
    ;;
directory)
    mkdir "$WORK/left"
    mount -t tmpfs none "$WORK/left"
    (cd "$WORK/left" && external -- sh -c "cd /; sleep 4323.$$ >/dev/null 2>&1 </dev/null &")
    soon pgrep -f "sleep 4323.$$\$" || fail "the member has not outlived the program"
    umount "$WORK/left"
    pkill -f "sleep 4323.$$\$"
    ;;
esac
umount_weir "$MNT"
