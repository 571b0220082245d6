#!/usr/bin/env bash
# SOURCE on sshfs. It does what it is asked for, and its answer is lost with the connection. What a program does to the same name
# before this is known is in SOURCE afterwards, and nothing else is: no conflict copy, no file that was removed. The log is freed.
# written: the connection is lost with data that sshfs has said was written, while another file is open;
# made: another file is renamed over one that was made; parked: it was made to replace one; removed: it is removed; kept: it stays;
# renamed, symlink: it is renamed back; replaced: something is renamed over it; linked: it loses the new name;
# unlinked, again: it is made anew; directory: it is removed;
# refused: SOURCE refuses something again and again, which does not fill the log;
# renewed: the daemon is killed while SOURCE has a rename before it, after the log said once more where its files are.
# cases: written made parked removed kept renamed symlink replaced linked unlinked directory again renewed refused
# all: again
# seconds: 15
source "${REPO:?}/tests/e2e/lib.sh"

need_root
need_command sshfs fusermount3
weir_only
case=$1
REMOTE=$WORK/remote
CONTROL=$WORK/control
mkdir "$REMOTE"
sshfs "server:$REMOTE" "$SRC" -o reconnect \
    -o "ssh_command=python3 $SUPPORT/lossy.py $CONTROL /usr/lib/openssh/sftp-server --"
mount_weir_foreground "$SRC" "$MNT" --names log --log "$WORK/log" --log-size 1M --log-file "$DAEMON_LOG"

save() { # name content
    python3 - "$MNT/$1" "$2" <<'EOT'
import os, sys
at = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
os.write(at, sys.argv[2].encode() * 1000)
os.fsync(at)
os.close(at)
EOT
}

lose() {
    echo "lose $1" >"$CONTROL.new"
    mv "$CONTROL.new" "$CONTROL"
}

is_lost() { [ ! -e "$CONTROL" ]; }
wait_lost() { soon is_lost || fail "SOURCE was not asked for it"; }

# More than the log holds.
use_log() {
    timeout -s KILL 60 python3 - "$MNT/other" <<'EOT' || fail "the log is not freed: $(status "$MNT" | grep '^  log')"
import os, sys
at = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for turn in range(600):
    os.pwrite(at, bytes([turn % 255 + 1]) * 4096, turn % 100 * 4096)
    os.fsync(at)
EOT
    rm "$MNT/other"
}

# What SOURCE has: names, each with the first word of its content.
has() {
    (cd "$REMOTE" && for name in *; do
        [ -e "$name" ] || [ -L "$name" ] || continue
        if [ -d "$name" ]; then echo "$name/"; elif [ -L "$name" ]; then echo "$name>"; else echo "$name=$(head -c 3 "$name")"; fi
    done) | paste -sd' '
}

# The answer to the first is lost.
rename_there_and_back() {
    lose rename
    mv "$MNT/a" "$MNT/b"
    sync "$MNT"
    wait_lost
    mv "$MNT/b" "$MNT/a"
}

case $case in
    written)
        echo old >"$REMOTE/old"
        exec 8<"$MNT/old"
        [ "$(cat <&8)" = old ] || fail "what was there is read"
        echo "drop write" >"$CONTROL"
        save a one
        # It may fail, or write it again by itself.
        weir sync "$MNT" || true
        is_lost || fail "SOURCE was not asked for it"
        # Nothing of the other file was lost.
        python3 -c 'import os; os.fsync(8)' || fail "a file that was only read"
        wanted="a=one old=old"
        ;;
    made)
        lose open
        save a one
        wait_lost
        save b two
        mv "$MNT/b" "$MNT/a"
        wanted=a=two
        ;;
    parked)
        save a one
        weir sync "$MNT"
        lose open
        save b two
        mv "$MNT/b" "$MNT/a"
        wait_lost
        wanted=a=two
        ;;
    removed)
        lose open
        save a one
        wait_lost
        rm "$MNT/a"
        use_log
        wanted=
        ;;
    kept)
        lose open
        save a one
        wait_lost
        use_log
        wanted=a=one
        ;;
    renamed)
        save a one
        weir sync "$MNT"
        rename_there_and_back
        use_log
        wanted=a=one
        ;;
    symlink)
        ln -s nowhere "$MNT/a"
        weir sync "$MNT"
        rename_there_and_back
        wanted='a>'
        ;;
    replaced)
        save a one
        save b two
        weir sync "$MNT"
        lose rename
        mv "$MNT/b" "$MNT/a"
        sync "$MNT"
        wait_lost
        save c six
        mv "$MNT/c" "$MNT/a"
        wanted=a=six
        ;;
    linked)
        save a one
        weir sync "$MNT"
        lose link
        ln "$MNT/a" "$MNT/b"
        sync "$MNT"
        wait_lost
        rm "$MNT/b"
        use_log
        wanted=a=one
        ;;
    unlinked)
        save a one
        weir sync "$MNT"
        lose remove
        rm "$MNT/a"
        sync "$MNT"
        wait_lost
        save a two
        wanted=a=two
        ;;
    directory)
        lose mkdir
        mkdir "$MNT/d"
        sync "$MNT"
        wait_lost
        rmdir "$MNT/d"
        use_log
        wanted=
        ;;
    again)
        mkdir "$MNT/d"
        weir sync "$MNT"
        lose rmdir
        rmdir "$MNT/d"
        sync "$MNT"
        wait_lost
        mkdir "$MNT/d"
        save d/a one
        wanted=d/
        ;;
    refused)
        echo "refuse mkdir" >"$CONTROL"
        mkdir "$MNT/d"
        for ((i = 0; i < 200; i++)); do
            timeout -s KILL 20 "$WEIR" sync "$MNT" >"$WORK/said" 2>&1 && fail "it is synced"
            grep -q 'Permission denied' "$WORK/said" || { cat "$WORK/said"; fail "weir sync $i does not say why"; }
        done
        asked=$(stat -c %s "$CONTROL.refused")
        [ "$asked" -ge 200 ] || fail "SOURCE was asked $asked times"
        rm "$CONTROL"
        wanted=d/
        ;;
    renewed)
        save a one
        weir sync "$MNT"
        python3 - "$MNT" "$CONTROL" <<'EOT' &
import os, sys, time
at = os.open(f"{sys.argv[1]}/a", os.O_RDWR)
os.pwrite(at, b"two", 0)
os.fsync(at)
# From now on nothing of it is asked for.
other = os.open(f"{sys.argv[1]}/other", os.O_RDWR | os.O_CREAT)
os.pwrite(other, bytes(600 * 4096), 0)
os.fsync(other)
with open(sys.argv[2], "w") as control:
    control.write("hold rename")
os.rename(f"{sys.argv[1]}/a", f"{sys.argv[1]}/b")
while not os.path.exists(f"{sys.argv[2]}.held"):
    time.sleep(0.01)
for turn in range(600):
    os.pwrite(other, bytes([turn % 255 + 1]) * 4096, turn * 4096)
    os.fsync(other)
EOT
        load=$!
        is_held() { [ -e "$CONTROL.held" ]; }
        soon is_held || fail "SOURCE was not asked for it"
        said_again() {
            "$WEIR" log "$WORK/log" --source "$REMOTE" >"$WORK/records" 2>&1
            sed -n '/ step .*begun/,$p' "$WORK/records" | grep -q ' is the file'
        }
        soon said_again || { tail -40 "$WORK/records"; fail "the log does not say once more where files are"; }
        kill -9 "$WEIR_PID"
        kill -9 "$load" 2>/dev/null || true
        touch "$CONTROL.go"
        is_renamed() { [ -e "$REMOTE/b" ]; }
        soon is_renamed || fail "SOURCE did not rename it"
        wait "$WEIR_PID" "$load" 2>/dev/null || true
        fusermount3 -uz "$MNT"
        mount_weir_foreground "$SRC" "$MNT" --names log --log "$WORK/log" --log-file "$DAEMON_LOG"
        expect_equal "after the recovery" "$(head -c 3 "$MNT/b")" two
        rm "$MNT/other"
        wanted=b=two
        ;;
esac
soon weir sync "$MNT" || fail "weir sync"
weir sync "$MNT" || fail "the second sync"
expect_equal "in SOURCE" "$(has)" "$wanted"
exec 8<&-
umount_weir "$MNT"
expect_equal "in SOURCE after the unmount" "$(has)" "$wanted"
counts "SOURCE has $wanted"
umount "$SRC"
