#!/usr/bin/env bash
# Writers and readers of one file at once, on neighbouring bytes of the same pages, and appenders.
# cases: auto lazy small-memory
# lane
# sync: auto
source "${REPO:?}/tests/e2e/lib.sh"

need_root
under_lane python3
rounds=3000
if [ -n "$LONG" ]; then rounds=50000; fi
case $1 in
    small-memory) options=(--memory 16M --patch-memory 1M) ;;
    *) options=(--fetch "$1") ;;
esac
mount_weir "$SRC" "$MNT" "${options[@]}"
operations=$(python3 "$SUPPORT/concurrent.py" "$MNT" 4 "$rounds")
through=$(hash_of_tree "$MNT")
umount_weir "$MNT"
drop_caches
expect_equal "the files at home" "$(hash_of_tree "$SRC")" "$through"
counts "$operations operations"
