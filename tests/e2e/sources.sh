#!/usr/bin/env bash
# SOURCE on other file systems: the same tree and the same small writes come home on each.
# cases: tmpfs overlay xfs btrfs ext4-1k fuse
# all: btrfs ext4-1k
# seconds: 25
source "${REPO:?}/tests/e2e/lib.sh"

need_root
case=$1
base=$WORK/base
mkdir "$base"
case $case in
    tmpfs)
        mount -t tmpfs -o size=256M none "$base"
        ;;
    overlay)
        need_filesystem overlay
        mkdir "$WORK/layers"
        mount -t tmpfs -o size=256M none "$WORK/layers"
        mkdir -p "$WORK"/layers/{lower/source,upper,scratch}
        python3 "$SUPPORT/patches.py" cold "$WORK/layers/lower/source/lower" 1024 1
        mount -t overlay overlay "$base" -o "lowerdir=$WORK/layers/lower,upperdir=$WORK/layers/upper,workdir=$WORK/layers/scratch"
        ;;
    ext4-1k)
        need_filesystem ext4
        loop_filesystem "$WORK/image" 300M "$base" mkfs.ext4 -q -b 1024
        ;;
    fuse)
        weir_only
        # A file system with files only: it has no mkdir, no links and no fallocate.
        passthrough=$BENCH
        [ -x "$passthrough" ] || skip "weir-bench is not built: run 'make checked'"
        mkdir -p "$WORK/under/source/.weir"
        "$passthrough" passthrough "$WORK/under" "$base" &
        passthrough=$!
        soon is_mounted "$base" || fail "no FUSE mount to work on"
        ;;
    *)
        need_filesystem "$case"
        need_command "mkfs.$case"
        mkfs=mkfs.$case
        [ "$case" != btrfs ] || mkfs=mkfs_btrfs
        loop_filesystem "$WORK/image" 400M "$base" "$mkfs"
        ;;
esac
source=$base/source
mkdir -p "$source"
python3 "$SUPPORT/patches.py" cold "$source/cold" 4096 1
whole() { [ "$case" != fuse ]; }
mkdir "$WORK/plain"
if whole; then python3 "$SUPPORT/tree.py" grow "$WORK/plain" 11 600 >/dev/null; fi

mount_weir "$source" "$MNT" --memory 32M --patch-memory 4M
if whole; then
    mkdir "$MNT/tree"
    python3 "$SUPPORT/tree.py" grow "$MNT/tree" 11 600 >"$WORK/grown"
fi
writes=$(python3 "$SUPPORT/patches.py" write "$MNT/cold" 4096 2 --count 3000)
python3 "$SUPPORT/patches.py" verify "$MNT/cold" 4096 1 2 --count 3000
if [ "$case" = overlay ]; then
    python3 "$SUPPORT/patches.py" write "$MNT/lower" 1024 2 --count 500 --fsync >/dev/null
fi
python3 "$SUPPORT/concurrent.py" "$MNT" 2 500 >/dev/null
python3 "$SUPPORT/mmap_coherence.py" "$MNT/mapped" 500 1 >/dev/null
if [ -x "$TOOLS/bin/fsx" ]; then
    printf '[weights]\nmapread = 10\nmapwrite = 10\ntruncate = 3\nfsync = 1\n' >"$WORK/fsx.toml"
    if whole; then printf 'punch_hole = 3\nposix_fallocate = 3\n' >>"$WORK/fsx.toml"; fi
    "$TOOLS/bin/fsx" -f "$WORK/fsx.toml" -N 5000 -S 9 -P "$WORK" "$MNT/fsx" || fail "fsx on $case"
fi
umount_weir "$MNT"
drop_caches
if whole; then
    expect_same_tree "the tree" "$source/tree" "$WORK/plain"
fi
python3 "$SUPPORT/patches.py" verify "$source/cold" 4096 1 2 --count 3000
if [ "$case" = overlay ]; then
    python3 "$SUPPORT/patches.py" verify "$source/lower" 1024 1 2 --count 500
    cmp -s "$WORK/layers/lower/source/lower" "$source/lower" && fail "the lower layer has changed"
fi
umount "$base"
if [ "$case" = overlay ]; then umount "$WORK/layers"; fi
if [ "$case" = fuse ]; then wait "$passthrough"; fi
counts "$writes small writes$(sed 's/^/, /' "$WORK/grown" 2>/dev/null)"
