#!/usr/bin/env bash
# Directories of a SOURCE on sshfs, which ends itself if a directory is read from anywhere but its beginning.
# seconds: 5
source "${REPO:?}/tests/e2e/lib.sh"

weir_only
need_root
need_command sshfs

mkdir -p "$WORK/remote/few" "$WORK/remote/many"
touch "$WORK/remote/few/one" "$WORK/remote/few/two"
python3 - "$WORK/remote/many" <<'END'
import sys
for number in range(3000):
    open(f"{sys.argv[1]}/{number}", "w").close()
END
printf '#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n' >"$WORK/ssh"
chmod +x "$WORK/ssh"
for options in '' '-o entry_timeout=0' '--memory 64M'; do
    step "options '$options'"
    sshfs "nobody@nowhere:$WORK/remote" "$SRC" -o "ssh_command=$WORK/ssh"
    # shellcheck disable=SC2086 # Several words, or none.
    mount_weir "$SRC" "$MNT" $options
    expect_equal "few" "$(ls "$MNT/few")" "one"$'\n'"two"
    expect_equal "few, again" "$(ls "$MNT/few")" "one"$'\n'"two"
    python3 - "$MNT/many" <<'END'
import os, sys, threading
wanted = sorted(str(number) for number in range(3000))
def check(found):
    if sorted(found) != wanted:
        sys.exit(f"{len(found)} names, {len(set(found))} of them different, instead of {len(wanted)}")
for _ in range(3):
    check(os.listdir(sys.argv[1]))
# Two streams of one thread, a part of each in turn.
first, second = os.scandir(sys.argv[1]), os.scandir(sys.argv[1])
seen = ([], [])
for entry in first:
    seen[0].append(entry.name)
    if other := next(second, None):
        seen[1].append(other.name)
check(seen[0])
check(seen[1] + [entry.name for entry in second])
threads = [threading.Thread(target=lambda: check(os.listdir(sys.argv[1]))) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
END
    echo written >"$MNT/few/three"
    umount_weir "$MNT"
    expect_equal "written home" "$(cat "$WORK/remote/few/three")" written
    rm "$WORK/remote/few/three"
    umount "$SRC"
done
counts "3 mounts, 3,000 names"
