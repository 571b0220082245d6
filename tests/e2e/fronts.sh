#!/usr/bin/env bash
# The same files by calls, appends and mappings through FUSE, and by calls and appends under `weir run`, each step and
# then all at once, against a model.
# cases: 1 2 small-memory begin
# long-cases: 3 4 5 6
# all: begin
# seconds: 25
source "${REPO:?}/tests/e2e/lib.sh"

need_root
steps=4000
if [ -n "$LONG" ]; then steps=40000; fi
options=()
seed=$1
if [ "$1" = small-memory ]; then
    options=(--memory 16M --patch-memory 1M)
    seed=100
fi
lane=()
if ! standin && "$WEIR" run --help >/dev/null 2>&1; then lane=("$WEIR"); fi
mount_weir "$SRC" "$MNT" "${options[@]}"
if [ "$1" = begin ]; then
    # A few steps and then all at once, repeatedly: this tests the first calls, with which files enter the lane.
    operations=0
    for seed in $(seq 200 220); do
        echo "seed $seed"
        mkdir "$MNT/$seed"
        done=$(python3 "$SUPPORT/fronts.py" "$MNT/$seed" "$seed" 20 "${lane[@]}") || fail "seed $seed"
        operations=$((operations + done))
    done
else
    echo "seed $seed"
    operations=$(python3 "$SUPPORT/fronts.py" "$MNT" "$seed" "$steps" "${lane[@]}") || fail "seed $seed"
fi
if [ ${#lane[@]} -gt 0 ]; then status "$MNT" lane.posted_writes; fi
through=$(hash_of_tree "$MNT")
umount_weir "$MNT"
drop_caches
expect_equal "the files at home" "$(hash_of_tree "$SRC")" "$through"
counts "$operations operations"
