#!/usr/bin/env bash
# The kernel forgets inodes all the time while a program changes a tree: each answer is as if it had not.
# cases: lazy small-memory
# sync: small-memory
# all: small-memory
source "${REPO:?}/tests/e2e/lib.sh"

need_root
case $1 in
    small-memory) options=(--memory 16M --patch-memory 1M) ;;
    *) options=(--fetch "$1") ;;
esac
rounds=3
if [ -n "$LONG" ]; then rounds=100; fi
mount_weir "$SRC" "$MNT" "${options[@]}"
# Ends with this script, too.
while kill -0 $$ && [ ! -e "$WORK/grown" ]; do
    echo 2 >/proc/sys/vm/drop_caches
    sleep 0.03
done &
for round in $(seq "$rounds"); do
    # The sizes and links that stat(2) shows decide what is done next.
    mkdir "$WORK/plain$round" "$MNT/tree$round"
    python3 "$SUPPORT/tree.py" grow "$WORK/plain$round" "$round" 600 >/dev/null
    python3 "$SUPPORT/tree.py" grow "$MNT/tree$round" "$round" 600 >/dev/null
done
touch "$WORK/grown"
umount_weir "$MNT"
for round in $(seq "$rounds"); do
    expect_same_tree "tree $round" "$SRC/tree$round" "$WORK/plain$round"
done
counts "$rounds trees"
