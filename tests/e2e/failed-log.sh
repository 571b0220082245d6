#!/usr/bin/env bash
# Random changes, then the log's disk is full, more changes, kill -9 at any moment, and recoveries that are killed as well: what was
# synced before or after the log failed is there, and nothing is there that never was. WEIR_SEEDS="FIRST LAST" chooses the seeds.
# cases: short
# long-cases: ext4-seeds sshfs-seeds
# timeout: 360
# seconds: 15
[ "$1" != sshfs-seeds ] || export UNDER=sshfs
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command losetup mkfs.ext4 fsfreeze

raw=$SRC
case $1 in
short | ext4-seeds) loop_filesystem "$WORK/home.image" 800M "$SRC" mkfs.ext4 -qF -N 120000 ;;
sshfs-seeds) raw=$WORK/remote ;;
esac
mkdir "$WORK/memory"
mount -t tmpfs -o size=96M none "$WORK/memory"

rounds=5
case $1 in
short) seeds=(1 7) rounds=3 ;;
*) seeds=(0 40) ;;
esac
[ -z "${WEIR_SEEDS:-}" ] || read -r -a seeds <<<"$WEIR_SEEDS"
python3 "$SUPPORT/failed_log.py" "$WEIR" "$WORK" "$SRC" "$raw" "$WORK/memory" "${WEIR_ROUNDS:-$rounds}" "${seeds[@]}"

umount_soon "$WORK/memory"
[ "$1" = sshfs-seeds ] || umount_soon "$SRC"
