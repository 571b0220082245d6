#!/usr/bin/env bash
# Shared mappings, read(2) and write(2) see one file, in one process and between processes.
# cases: auto lazy direct_io
# lane: auto lazy
source "${REPO:?}/tests/e2e/lib.sh"

need_root
under_lane python3
rounds=3000
if [ -n "$LONG" ]; then rounds=50000; fi
case $1 in
    direct_io) options=(-o direct_io) ;;
    *) options=(--fetch "$1") ;;
esac
mount_weir "$SRC" "$MNT" "${options[@]}"
checks=0
for seed in 1 2 3; do
    checks=$((checks + $(python3 "$SUPPORT/mmap_coherence.py" "$MNT/file$seed" "$rounds" "$seed")))
done
for seed in 1 2 3; do hash_of "$MNT/file$seed"; done >"$WORK/through"
umount_weir "$MNT"
drop_caches
for seed in 1 2 3; do hash_of "$SRC/file$seed"; done >"$WORK/home"
cmp "$WORK/through" "$WORK/home" || fail "what is home is not what was mapped"
counts "$checks checks"
