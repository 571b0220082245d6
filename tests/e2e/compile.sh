#!/usr/bin/env bash
# Unpacks and compiles zstd inside a mount; the program must be the one that a plain directory gives.
# lane
# sync
# bucket
# all: lane-compile behind-compile sync-compile bucket-compile
# seconds: 60
# homes: xfs sshfs
source "${REPO:?}/tests/e2e/lib.sh"

need_root
need_command cc make tar
under_lane make tar
archive=$TOOLS/sources.tar
[ -f "$archive" ] || skip "$archive is missing: run 'make setup'"

# build DIRECTORY: unpacks, compiles, and runs the program on its own sources.
build() {
    cd "$1"
    tar xf "$archive"
    cd sources/zstd-sys/zstd
    cp "$SUPPORT/pack.mk" Makefile
    cp "$SUPPORT/pack.c" .
    make -s -j2 pack
    tar cf all.tar --sort=name --mtime=@0 --owner=0 --group=0 --exclude='*.[od]' lib/common lib/compress
    ./pack c <all.tar >all.tar.zst
    ./pack d <all.tar.zst | cmp - all.tar
    make -s -q pack || fail "make finds something to do in a finished tree: times have moved"
    cd "$WORK"
}

mkdir "$WORK/plain"
step "on a plain directory"
build "$WORK/plain"
step "through the mount"
mount_weir "$SRC" "$MNT"
build "$MNT"
expect_equal "the program through the mount" "$(hash_of "$MNT/sources/zstd-sys/zstd/pack")" \
    "$(hash_of "$WORK/plain/sources/zstd-sys/zstd/pack")"
umount_weir "$MNT"
drop_caches
see_home
expect_same_tree "the tree on SOURCE" "$SRC" "$WORK/plain"
make -s -q -C "$SRC/sources/zstd-sys/zstd" pack || fail "make finds something to do on SOURCE: times have moved"
counts "$(find "$SRC" -name '*.o' | wc -l) objects, $(find "$SRC" -type f | wc -l) files, the same program"
