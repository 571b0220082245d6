#!/usr/bin/env bash
# Unmounting straight after thousands of changes to a tree: every byte, mode, link and time is home.
# cases: blocking lazy auto small-memory
# sync: auto small-memory
# homes: xfs sshfs
# homes-cases: auto small-memory
# all: small-memory
source "${REPO:?}/tests/e2e/lib.sh"

need_root
operations=2000
if [ -n "$LONG" ]; then operations=20000; fi
case $1 in
    small-memory) options=(--memory 16M --patch-memory 1M) ;;
    *) options=(--fetch "$1") ;;
esac
if [ "${UNDER:-}" = sshfs ]; then export TREE_SFTP=1; fi
mkdir "$WORK/plain"
python3 "$SUPPORT/tree.py" grow "$WORK/plain" 7 "$operations" >/dev/null
mount_weir "$SRC" "$MNT" "${options[@]}"
python3 "$SUPPORT/tree.py" grow "$MNT" 7 "$operations" >"$WORK/grown"
python3 "$SUPPORT/tree.py" times "$MNT" | sort >"$WORK/times"
umount_weir "$MNT"
drop_caches
python3 "$SUPPORT/tree.py" manifest "$WORK/plain" >"$WORK/plain.manifest"
python3 "$SUPPORT/tree.py" manifest "$SRC" >"$WORK/source.manifest"
diff "$WORK/plain.manifest" "$WORK/source.manifest" || fail "the tree at home is another"
python3 "$SUPPORT/tree.py" times "$SRC" | sort >"$WORK/times.home"
diff "$WORK/times" "$WORK/times.home" || fail "modification times at home are others than the mount showed"

step "and again, over what is there"
mount_weir "$SRC" "$MNT" "${options[@]}"
mkdir "$WORK/plain/more" "$MNT/more"
python3 "$SUPPORT/tree.py" grow "$WORK/plain/more" 8 300 >/dev/null
python3 "$SUPPORT/tree.py" grow "$MNT/more" 8 300 >/dev/null
expect_same_tree "the tree through the mount" "$MNT" "$WORK/plain"
umount_weir "$MNT"
expect_same_tree "the tree at home" "$SRC" "$WORK/plain"
counts "$operations operations, $(cat "$WORK/grown")"
