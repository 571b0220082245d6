#!/usr/bin/env bash
# Directories of homes where positions are of one stream: sshfs, which ends itself if a directory is read from anywhere but
# its beginning, and overlays of merged directories.
# cases: sshfs overlay
# seconds: 5
source "${REPO:?}/tests/e2e/lib.sh"

weir_only
need_root

cat >"$WORK/list.py" <<'END'
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
# Again two streams, while names that both have shown are removed.
if len(sys.argv) > 2:
    first, second, seen, gone = os.scandir(sys.argv[1]), os.scandir(sys.argv[1]), ([], []), set()
    for entry in first:
        seen[0].append(entry.name)
        if other := next(second, None):
            seen[1].append(other.name)
        if len(seen[0]) % 20 == 0:
            name = seen[0][len(gone)]
            os.unlink(f"{sys.argv[1]}/{name}")
            gone.add(name)
    seen[1].extend(entry.name for entry in second)
    for names in seen:
        if len(names) != len(set(names)) or set(wanted) - gone - set(names):
            sys.exit(f"{len(names)} names, {len(set(names))} of them different, {len(gone)} removed meanwhile")
END

if [ "$1" = overlay ]; then
    need_filesystem overlay
    # Not on a disk that may be an overlay itself.
    mkdir "$WORK/layers"
    mount -t tmpfs none "$WORK/layers"
    mkdir -p "$WORK/layers/"{lower/many,upper/many,work}
    (cd "$WORK/layers/lower/many" && seq 0 2989 | xargs touch)
    (cd "$WORK/layers/upper/many" && seq 2990 2999 | xargs touch)
    mount -t overlay overlay -o "lowerdir=$WORK/layers/lower,upperdir=$WORK/layers/upper,workdir=$WORK/layers/work" "$SRC"
    mount_weir "$SRC" "$MNT"
    python3 "$WORK/list.py" "$MNT/many" removing
    umount_weir "$MNT"
    umount "$SRC" "$WORK/layers"
    counts "3,000 names"
    exit
fi

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
    # Listed again, sshfs does not tell the types of names.
    mkdir -p "$MNT/tree/one/two" "$MNT/tree/three"
    touch "$MNT/tree/one/two/file"
    for _ in 1 2; do
        expect_equal "types" "$(cd "$MNT/tree" && find . -printf '%y %p\n' | sort)" \
            $'d .\nd ./one\nd ./one/two\nd ./three\nf ./one/two/file'
    done
    rm -r "$MNT/tree"
    expect_equal "removed" "$(ls "$WORK/remote")" "few"$'\n'"many"
    python3 "$WORK/list.py" "$MNT/many"
    echo written >"$MNT/few/three"
    umount_weir "$MNT"
    expect_equal "written home" "$(cat "$WORK/remote/few/three")" written
    rm "$WORK/remote/few/three"
    umount "$SRC"
done
counts "3 mounts, 3,000 names"
