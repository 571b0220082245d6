#!/usr/bin/env bash
# Calls that the suites do not make (renameat2, fallocate modes, holes, xattr, ACLs, set-id bits, owners, times,
# odd sizes and names): the mount answers like the directory below it, line by line.
# cases: auto direct_io
# lane: auto
# sync: auto
source "${REPO:?}/tests/e2e/lib.sh"

need_root
need_command setfacl getfacl
under_lane python3
case $1 in
    direct_io) options=(-o direct_io) ;;
    *) options=(--fetch "$1") ;;
esac
mkdir "$WORK/plain"
chmod 755 "$WORK/plain" "$SRC"
python3 "$SUPPORT/behaviour.py" "$WORK/plain" >"$WORK/plain.out" || fail "on the plain directory"
mount_weir "$SRC" "$MNT" --allow-other "${options[@]}"
python3 "$SUPPORT/behaviour.py" "$MNT" >"$WORK/mount.out" || fail "through the mount"
python3 "$SUPPORT/tree.py" manifest "$MNT" >"$WORK/mount.manifest"
umount_weir "$MNT"

if ! standin; then
    # The kernel refuses these itself, for every FUSE file system.
    sed -i -E 's/^(fallocate (collapse|insert|collapse unaligned)): .*/\1: left out/' "$WORK/plain.out" "$WORK/mount.out"
fi
diff "$WORK/plain.out" "$WORK/mount.out" || fail "the mount answers otherwise ('<' is the directory, '>' the mount)"
python3 "$SUPPORT/tree.py" manifest "$SRC" | diff "$WORK/mount.manifest" - || fail "the tree at home is another"
counts "$(grep -vc ^== "$WORK/mount.out") answers alike"
