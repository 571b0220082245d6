#!/usr/bin/env bash
# `--names behind`: files that lose their last name while they are open and before SOURCE has them; files that get a second name
# in SOURCE at once, while SOURCE is getting the first; a name that another program takes in SOURCE, and one that it removes there
# after the mount had made it at home at once; and SOURCE on sshfs,
# where a tree is unpacked, changed and removed, and is in SOURCE after `weir sync`; where a file keeps its two names; and where
# SOURCE does not say what a symbolic link leads to (`contain_symlinks`): recovery finds that link complete. A file that replaces one
# which SOURCE has under its former name has its data there before that one is gone.
# What is made and waits for SOURCE is no more than SOURCE has inodes for.
# cases: few-inodes nameless second-name change-times replaced conflict removed-there links absolute-link
# long-cases: sshfs
# seconds: 10
source "${REPO:?}/tests/e2e/lib.sh"

weir_only
need_root

if [ "$1" = few-inodes ]; then
    need_command mkfs.ext4
    loop_filesystem "$WORK/image" 512M "$WORK/under" mkfs.ext4 -q -N 6000
    SRC=$WORK/under/src
    mkdir "$SRC"
    mount_weir "$SRC" "$MNT" --names log
    python3 - "$MNT" "$SRC" >"$WORK/made" <<'END'
import errno, os, sys
os.close(os.open(f"{sys.argv[1]}/first", os.O_CREAT | os.O_WRONLY))
assert not os.path.exists(f"{sys.argv[2]}/first"), "it waited for SOURCE"
made = ["first"]
try:
    for number in range(20_000):
        os.close(os.open(f"{sys.argv[1]}/{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        made.append(number)
except OSError as error:
    assert error.errno == errno.ENOSPC, error
print(*made, sep="\n")
END
    files=$(wc -l <"$WORK/made")
    ((files > 5000)) || fail "only $files files"
    creates=$(status "$MNT" requests.create)
    expect_status "$MNT" names.refused 0
    umount_weir "$MNT"
    ls "$SRC" | sort | diff <(sort "$WORK/made") - || fail "SOURCE has other files"
    umount "$WORK/under"
    counts "$files files by $creates requests"
    exit
fi

if [ "$1" = replaced ]; then
    python3 -c '
import sys
for nth in range(200):
    open(f"{sys.argv[1]}/old-{nth}", "w").write(f"old {nth}")' "$SRC"
    # Data goes to SOURCE when something waits for it.
    mount_weir "$SRC" "$MNT" --names behind --dirty-expire 1h --log none
    python3 - "$SRC" "$MNT" <<'END'
import os, sys, threading
home, mount = sys.argv[1:]
ended, wrong = False, []

def look():
    while not ended:
        for nth in range(200):
            names = [f"{home}/old-{nth}", f"{home}/name-{nth}"]
            found = []
            for name in names:
                try:
                    with open(name) as file:
                        found.append(file.read())
                except FileNotFoundError:
                    pass
            # It may be moved from the second name looked at to the first one.
            if found and not {f"old {nth}", f"new {nth}"} & set(found):
                wrong.append((nth, found))

looking = threading.Thread(target=look)
looking.start()
# SOURCE gets the names later than that.
for nth in range(200):
    with open(f"{mount}/new-{nth}", "w") as file:
        file.write(f"new {nth}")
    os.rename(f"{mount}/old-{nth}", f"{mount}/name-{nth}")
    os.rename(f"{mount}/new-{nth}", f"{mount}/name-{nth}")
ended = True
looking.join()
assert not wrong, wrong[:5]
END
    "$WEIR" umount "$MNT"
    for nth in 0 199; do expect_equal "content" "$(cat "$SRC/name-$nth")" "new $nth"; done
    exit
fi

if [ "$1" = nameless ]; then
    mount_weir "$SRC" "$MNT" --names behind
    mkdir "$MNT/d"
    python3 - "$MNT/d" <<'END'
import os, sys, threading
directory = sys.argv[1]
failed = []
def work(thread):
    for turn in range(1500):
        path = f"{directory}/f{thread}-{turn % 7}"
        fd = os.open(path, os.O_CREAT | os.O_RDWR)
        os.write(fd, b"x" * 5000)
        for _ in range(turn % 40):
            os.getppid()
        os.unlink(path)
        os.pwrite(fd, b"y" * 5000, 3000)
        found = os.pread(fd, 10, 2995)
        if found != b"x" * 5 + b"y" * 5 or os.fstat(fd).st_nlink != 0:
            failed.append((thread, turn, found, os.fstat(fd).st_nlink))
        os.close(fd)
threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
if failed or os.listdir(directory):
    sys.exit(f"{failed[:3]} {os.listdir(directory)}")
END
    umount_weir "$MNT"
    expect_equal "what is left" "$(find "$SRC/d" "$SRC/.weir/parked" | sort)" "$SRC/.weir/parked"$'\n'"$SRC/d"
    counts "4,500 files"
    exit
fi

if [ "$1" = change-times ]; then
    # What loses one of its names has changed, and once more is not seen when SOURCE has done it.
    for names in behind log; do
        mount_weir "$SRC" "$MNT" --names "$names"
        python3 "$SUPPORT/change_times.py" "$MNT" "$WEIR" "$names" || fail "change times with --names $names"
        umount_weir "$MNT"
    done
    exit
fi

if [ "$1" = second-name ]; then
    need_command setfacl
    mount_weir "$SRC" "$MNT" --names behind
    mkdir "$MNT/d" "$MNT/at-once"
    # SOURCE decides what becomes of names in such a directory.
    setfacl -d -m u:1001:rwx "$MNT/at-once"
    python3 - "$MNT/d" "$MNT/at-once" <<'END'
import os, sys, threading
behind, at_once = sys.argv[1:]
failed = []
def work(thread):
    for turn in range(400):
        first, second = f"{behind}/f{thread}-{turn}", f"{at_once}/f{thread}-{turn}"
        fd = os.open(first, os.O_CREAT | os.O_RDWR)
        # SOURCE has got it now, or is just getting it, or not yet.
        for _ in range(turn % 4):
            os.stat(first)
        os.link(first, second)
        links = os.stat(second).st_nlink
        if links != 2:
            failed.append((thread, turn, links))
        os.unlink(first)
        os.unlink(second)
        os.close(fd)
threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
if failed:
    sys.exit(f"{len(failed)} files have another number of links: {failed[:3]}")
END
    umount_weir "$MNT"
    expect_equal "what is left" "$(ls -A "$SRC/d" "$SRC/at-once" | xargs)" "$SRC/at-once: $SRC/d:"
    counts "800 files"
    exit
fi

if [ "$1" = conflict ]; then
    mount_weir "$SRC" "$MNT" --names behind
    mkdir "$MNT/first"
    echo theirs >"$SRC/taken"
    echo ours >"$MNT/taken"
    umount_weir "$MNT"
    expect_equal "the file of another program" "$(cat "$SRC/taken")" "theirs"
    expect_equal "the file of the mount" "$(cat "$SRC/taken.weir-conflict-1")" "ours"
    grep -q "taken was changed in SOURCE by another program.*taken.weir-conflict-1" "$DAEMON_LOG" || fail "the log does not say so"
    exit
fi

if [ "$1" = removed-there ]; then
    mkdir "$SRC/old"
    mount_weir "$SRC" "$MNT" --names behind -o entry_timeout=1,attr_timeout=1
    python3 - "$MNT" <<'END'
import os, sys
os.umask(0)
os.chdir(sys.argv[1])
# The tree knows the directory by its name only, and a file with set-group-ID is made at home at once.
os.rename("old", "new")
os.close(os.open("new/file", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o2654))
END
    soon test -e "$SRC/new/file" || fail "the rename does not go home"
    rm "$SRC/new/file"
    is_gone() { [ ! -e "$MNT/new/file" ]; }
    soon is_gone || fail "a name that another program removed in SOURCE is still there"
    umount_weir "$MNT"
    exit
fi

need_command sshfs tar
mkdir "$WORK/remote" "$WORK/plain"
printf '#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n' >"$WORK/ssh"
chmod +x "$WORK/ssh"

if [ "$1" = links ]; then
    sshfs "nobody@nowhere:$WORK/remote" "$SRC" -o "ssh_command=$WORK/ssh"
    mount_weir "$SRC" "$MNT" -o entry_timeout=0.1,attr_timeout=0.1
    head -c 300000 /dev/zero >"$MNT/one"
    ln "$MNT/one" "$MNT/two"
    weir sync "$MNT"
    # What SOURCE said of names does not count any more after that.
    sleep 3
    for name in two one two; do
        printf 'written by %s' "$name" | dd of="$MNT/$name" bs=1 seek=100000 conv=notrunc,fdatasync status=none
        cmp "$MNT/one" "$MNT/two" || fail "what was written by one name is not read by the other"
        sleep 1.5
    done
    rm "$MNT/two"
    umount_weir "$MNT"
    expect_equal "what was written" "$(tr -d '\0' <"$WORK/remote/one")" "written by two"
    umount "$SRC"
    exit
fi

if [ "$1" = absolute-link ]; then
    sshfs "nobody@nowhere:$WORK/remote" "$SRC" -o "ssh_command=$WORK/ssh"
    mount_weir_foreground "$SRC" "$MNT"
    mkdir "$MNT/directory"
    ln -s /nowhere/at/all "$MNT/directory/absolute"
    ln -s near "$MNT/directory/relative"
    weir sync "$MNT"
    echo content >"$MNT/directory/file"
    sync "$MNT/directory/file"
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    umount -l "$MNT"
    mount_weir "$SRC" "$MNT"
    umount_weir "$MNT"
    expect_equal "the absolute link" "$(readlink "$WORK/remote/directory/absolute")" "/nowhere/at/all"
    expect_equal "names" "$(ls -A "$WORK/remote/directory" | xargs)" "absolute file relative"
    umount "$SRC"
    exit
fi

python3 "$SUPPORT/tree.py" grow "$WORK/plain" 11 400 >/dev/null
# On sshfs the names of a file are files of their own.
tar cf "$WORK/tree.tar" --hard-dereference -C "$WORK/plain" .
sshfs "nobody@nowhere:$WORK/remote" "$SRC" -o "ssh_command=$WORK/ssh"
mount_weir "$SRC" "$MNT" --names behind
mkdir "$MNT/kept" "$MNT/removed"
for directory in kept removed; do
    tar xf "$WORK/tree.tar" -C "$MNT/$directory"
    diff -r --no-dereference "$WORK/plain" "$MNT/$directory" || fail "$directory is another than the archive"
done
rm -r "$MNT/removed"
mv "$MNT/kept" "$MNT/moved"
printf 'synced' >"$MNT/moved/new"
sync "$MNT/moved/new"
expect_equal "a synced file in SOURCE" "$(cat "$WORK/remote/moved/new")" "synced"
rm "$MNT/moved/new"
weir sync "$MNT"
diff -r --no-dereference "$WORK/plain" "$WORK/remote/moved" || fail "SOURCE is another than the archive"
expect_equal "names in SOURCE" "$(ls "$WORK/remote")" "moved"
umount_weir "$MNT"
umount "$SRC"
counts "$(find "$WORK/plain" | wc -l) names, twice"
