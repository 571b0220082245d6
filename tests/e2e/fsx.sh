#!/usr/bin/env bash
# fsx: random operations on one file, mmap among them, each read checked against a model. The small memory
# makes pages leave while they are patched.
# cases: auto lazy blocking async-bg small-memory
# long-cases: async-fg
# lane: auto lazy small-memory
# all: lazy blocking async-bg small-memory lane-fsx bucket-fsx
# seconds: 60
# bucket: auto
# homes: xfs sshfs
# homes-cases: auto small-memory
source "${REPO:?}/tests/e2e/lib.sh"

need_root
need_tool fsx
case=$1
operations=20000
if [ -n "$LONG" ]; then operations=200000; fi

cat >"$WORK/fsx.toml" <<END
flen = 4194304
[opsize]
max = 65536
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 3
fsync = 1
fdatasync = 1
posix_fallocate = 3
punch_hole = 3
sendfile = 3
posix_fadvise = 2
copy_file_range = 3
END

# What a home has not, and fsx expects.
case ${UNDER:-} in
    sshfs) sed -i 's/^\(posix_fallocate\|punch_hole\).*/\1 = 0/' "$WORK/fsx.toml" ;;
    bucket)
        sed -i 's/^punch_hole.*/punch_hole = 0/' "$WORK/fsx.toml"
        # Each truncation after a sync uploads the file.
        operations=$((operations / 25))
        ;;
esac

options=(--fetch "$case")
if [ "$case" = small-memory ]; then
    options=(--memory 16M --patch-memory 1M)
    sed -i 's/^flen.*/flen = 67108864/' "$WORK/fsx.toml"
fi
mount_weir "$SRC" "$MNT" "${options[@]}"
seeds=(1 2)
if [ "$case" = small-memory ]; then seeds=(3); fi
if [ "${UNDER:-}" = lane ]; then
    # Files that are mapped or have holes are written through the kernel. So once more with a file that is neither.
    sed 's/^\(mapread\|mapwrite\|invalidate\|close_open\|truncate\|posix_fallocate\|punch_hole\).*/\1 = 0/' "$WORK/fsx.toml" >"$WORK/dense.toml"
    sed -i '1i blockmode = true' "$WORK/dense.toml"
    head -c "$(sed -n 's/^flen = //p' "$WORK/dense.toml")" /dev/zero >"$MNT/filedense"
    weir sync "$MNT"
    seeds+=(dense)
fi
for seed in "${seeds[@]}"; do
    step "seed $seed"
    config=$WORK/fsx.toml
    if [ "$seed" = dense ]; then config=$WORK/dense.toml; fi
    "${under[@]}" "$TOOLS/bin/fsx" -f "$config" -N "$operations" -S "${seed/dense/9}" -P "$WORK" "$MNT/file$seed" \
        || fail "fsx with seed $seed failed: repeat with $case and that seed"
done
# After the unmount home has what the mount showed.
for seed in "${seeds[@]}"; do hash_of "$MNT/file$seed"; done >"$WORK/through"
expect_lane "$MNT"
umount_weir "$MNT"
for seed in "${seeds[@]}"; do hash_of "$SRC/file$seed"; done >"$WORK/home"
cmp "$WORK/through" "$WORK/home" || fail "the files at home differ from what the mount showed"
counts "$((operations * ${#seeds[@]})) operations"
