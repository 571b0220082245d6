#!/usr/bin/env bash
# fio: random writes of many sizes onto a cold file with content, verified through the mount, and once more
# straight on SOURCE after the unmount.
# cases: blocking async-fg async-bg lazy auto
# lane: lazy auto
# all: async-fg async-bg lane-fio blocking lazy
source "${REPO:?}/tests/e2e/lib.sh"

need_root
need_command fio
under_lane fio
size=96M
if [ -n "$LONG" ]; then size=1G; fi

job=(--name=job --size="$size" --rw=randwrite --bsrange=512-65536 --bs_unaligned=1
    --norandommap=0 --randrepeat=1 --randseed=4711 --verify=crc32c --verify_fatal=1
    --ioengine=psync --thread --group_reporting --verify_state_save=0)

python3 "$SUPPORT/patches.py" cold "$SRC/job.0.0" 24576 1
drop_caches
mount_weir "$SRC" "$MNT" --fetch "$1" --memory 64M --patch-memory 16M
step "writes, and reads them through the mount"
fio "${job[@]}" --directory="$MNT" --do_verify=1 --output="$WORK/fio.1" || { cat "$WORK/fio.1"; fail "fio"; }
expect_lane "$MNT"
umount_weir "$MNT"
drop_caches
step "reads them on SOURCE"
fio "${job[@]}" --directory="$SRC" --verify_only=1 --output="$WORK/fio.2" || { cat "$WORK/fio.2"; fail "fio on SOURCE"; }

step "four jobs with syncs, buffered and direct, in blocks of 512"
mount_weir "$SRC" "$MNT" --fetch "$1" --memory 64M --patch-memory 16M
mixed=(--name=mixed --size=8M --numjobs=4 --rw=randwrite --bsrange=512-16384 --blockalign=512 --fsync=64
    --randrepeat=1 --randseed=99 --verify=sha1 --verify_fatal=1 --ioengine=psync --thread
    --group_reporting --verify_state_save=0)
fio "${mixed[@]}" --directory="$MNT" --do_verify=1 --output="$WORK/fio.3" || { cat "$WORK/fio.3"; fail "fio, four jobs"; }
# shellcheck disable=SC2016 # fio's own variable
fio "${mixed[@]}" --directory="$MNT" --filename_format='direct.$jobnum' --direct=1 --do_verify=1 \
    --output="$WORK/fio.4" || { cat "$WORK/fio.4"; fail "fio, direct"; }
umount_weir "$MNT"
drop_caches
fio "${mixed[@]}" --directory="$SRC" --verify_only=1 --output="$WORK/fio.5" || { cat "$WORK/fio.5"; fail "fio on SOURCE, four jobs"; }
written=$(awk '/^ +WRITE:/ { print $0 }' "$WORK/fio.1" | grep -o 'io=[^ ]*' | head -1)
counts "$(grep -o 'issued rwts: total=[0-9,]*' "$WORK/fio.1" | head -1 | cut -d= -f2 | cut -d, -f2) writes verified (${written:-?})"
