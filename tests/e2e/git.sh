#!/usr/bin/env bash
# git inside a mount: clone, commits, branches, merge, gc, fsck; then fsck once more on SOURCE.
# lane
# sync
# bucket
# all: lane-git behind-git sync-git
# homes: xfs sshfs
source "${REPO:?}/tests/e2e/lib.sh"

need_root
need_command git
under_lane git
export HOME=$WORK GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
export GIT_AUTHOR_DATE='2001-01-01T00:00:00Z' GIT_COMMITTER_DATE='2001-01-01T00:00:00Z'
git config --global init.defaultBranch main
git config --global core.fsync all
git config --global safe.directory '*'

step "an origin to clone"
origin=$WORK/origin
mkdir "$origin"
git -C "$origin" init -q
for round in 1 2 3; do
    python3 "$SUPPORT/tree.py" grow "$origin" "$round" 150 >/dev/null
    git -C "$origin" add -A
    git -C "$origin" commit -qm "round $round"
    # The next round creates the same names again.
    find "$origin" -mindepth 1 -maxdepth 1 ! -name .git -exec mv {} "$WORK/round$round-{}" \; 2>/dev/null || true
    find "$origin" -mindepth 1 -maxdepth 1 ! -name .git -exec rm -r {} +
done

# work DIRECTORY: makes the same history there; prints the last commit.
work() {
    cd "$1"
    git clone -q --no-local "$origin" clone
    cd clone
    git checkout -q -b side HEAD~1
    for number in 1 2 3 4 5 6 7 8; do
        seq "$((number * 1000))" >"numbers-$number"
        git add -A
        git commit -qm "numbers $number"
    done
    git checkout -q main
    seq 5000 >numbers
    git add numbers
    git commit -qm more
    git merge -q -m merged side
    git gc -q --aggressive --prune=now
    git fsck --full --strict --no-dangling
    git tag finished
    git repack -adq
    git status --porcelain
    git rev-parse HEAD
    cd "$WORK"
}

mkdir "$WORK/plain"
step "on a plain directory"
work "$WORK/plain" >"$WORK/plain.out"
step "through the mount"
mount_weir "$SRC" "$MNT"
work "$MNT" >"$WORK/mount.out"
umount_weir "$MNT"
diff "$WORK/plain.out" "$WORK/mount.out" || fail "git came to another end through the mount"
drop_caches
step "on SOURCE"
if [ "${UNDER:-}" = bucket ]; then
    # Modes are in the objects' metadata, and a symbolic link's object has its target.
    git config --global core.fileMode false
    git -C "$SRC/clone" config core.symlinks false
fi
git -C "$SRC/clone" fsck --full --strict --no-dangling
expect_equal "the work tree" "$(git -C "$SRC/clone" status --porcelain)" ""
counts "$(git -C "$SRC/clone" rev-list --objects --all | wc -l) objects whole"
