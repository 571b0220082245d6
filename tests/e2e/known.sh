#!/usr/bin/env bash
# Inodes that are merely known hold no descriptor: many of them with few descriptors, and used again afterwards.
# timeout: 300
# cases: many handles sshfs
# long-cases: million
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
ulimit -n 1024

descriptors() {
    find "/proc/$WEIR_PID/fd" -mindepth 1 -maxdepth 1 | wc -l
}

# many FILES: a tree of them, looked at through the mount; then two programs that make directories.
many() {
    local files=$1 held
    python3 "$SUPPORT/known.py" grow "$SRC/tree" "$files"
    mount_weir_foreground "$SRC" "$MNT"
    step "$files files are looked at"
    expect_equal "files" "$(python3 "$SUPPORT/known.py" look "$MNT/tree")" "$files"
    held=$(descriptors)
    [ "$held" -lt 400 ] || fail "$held descriptors are held for files that are merely known"
    step "find by size"
    expect_equal "files with content" "$(find "$MNT/tree" -type f -size +0 | wc -l)" $(((files + 2) / 3))
    step "two programs that make directories"
    mkdir "$MNT/made"
    python3 "$SUPPORT/known.py" directories "$MNT/made" 8192
    counts "$files files known with $held descriptors," \
        "$(awk '/VmRSS/ { print int($2 / 1024) }' "/proc/$WEIR_PID/status") MiB"
}

case $1 in
    many) many 50000 ;;
    million) many 1000000 ;;
    handles)
        mount_weir_foreground "$SRC" "$MNT"
        python3 "$SUPPORT/known.py" use "$MNT" "$SRC" "$WORK/outside" --local
        ;;
    sshfs)
        need_command sshfs
        server=/usr/lib/openssh/sftp-server
        [ -x "$server" ] || skip "there is no sftp-server"
        mkdir "$WORK/remote"
        printf '#!/bin/sh\nexec %s\n' "$server" >"$WORK/ssh"
        chmod +x "$WORK/ssh"
        sshfs "nobody@nowhere:$WORK/remote" "$SRC" -o "ssh_command=$WORK/ssh"
        mount_weir_foreground "$SRC" "$MNT"
        python3 "$SUPPORT/known.py" use "$MNT" "$SRC" "$WORK/outside"
        step "links are copied with times; what they lead to keeps its own"
        mkdir "$WORK/tree"
        echo content >"$WORK/tree/file"
        ln -s file "$WORK/tree/link"
        touch -h -d @1000000000 "$WORK/tree/link"
        touch -d @1500000000 "$WORK/tree/file"
        cp -a "$WORK/tree" "$MNT/tree"
        touch -h -d @1200000000 "$MNT/tree/link"
        "$WEIR" sync "$MNT"
        for at in "$MNT" "$WORK/remote"; do
            expect_equal "the link in $at" "$(readlink "$at/tree/link")" file
            expect_equal "the file's time in $at" "$(stat -c %Y "$at/tree/file")" 1500000000
        done
        ;;
esac
step "the end"
umount_weir "$MNT"
if [ "$1" = sshfs ]; then umount "$SRC"; fi
