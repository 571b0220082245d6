#!/usr/bin/env bash
# The mount used by an ordinary user: mounted, written, asked for its status and unmounted without root; others,
# root included, are kept out without --allow-other.
source "${REPO:?}/tests/e2e/lib.sh"

need_root
need_command setpriv fusermount3
weir_only
user=nobody
mkdir -p "$WORK/run-$user"
chown "$user" "$SRC" "$MNT" "$WORK/run-$user"
chmod 700 "$WORK/run-$user"
me() { as_user "$user" "$@"; }

me python3 "$SUPPORT/patches.py" cold "$SRC/cold" 2048 1
me "$WEIR" mount "$SRC" "$MNT" --log-file "$WORK/run-$user/log" --fetch lazy
is_mounted "$MNT" || fail "not mounted"
me sh -c "echo mine >'$MNT/file'; chmod 640 '$MNT/file'; mkdir '$MNT/directory'; ln -s file '$MNT/link'"
expect_equal "owner" "$(me stat -c '%U %a' "$MNT/file")" "$user 640"
writes=$(me python3 "$SUPPORT/patches.py" write "$MNT/cold" 2048 2)
me "$WEIR" status "$MNT" --json | python3 "$SUPPORT/field.py" patch_writes fetched_pages >"$WORK/status"
expect_equal "patch writes and fetches" "$(cat "$WORK/status")" "$writes 0"
me "$WEIR" sync "$MNT"

step "kept out"
expect_failure "denied" as_user daemon ls "$MNT"
expect_failure "denied" ls "$MNT"
expect_failure "" me chown daemon "$MNT/file"
expect_failure "" as_user daemon "$WEIR" umount "$MNT"
is_mounted "$MNT" || fail "another user has unmounted it"

step "a tree, and out"
me mkdir "$MNT/tree"
me python3 "$SUPPORT/tree.py" grow "$MNT/tree" 5 400
mkdir "$WORK/plain"
chown "$user" "$WORK/plain"
me python3 "$SUPPORT/tree.py" grow "$WORK/plain" 5 400
me "$WEIR" umount "$MNT"
if is_mounted "$MNT"; then fail "still mounted"; fi
expect_same_tree "the tree" "$SRC/tree" "$WORK/plain"
me python3 "$SUPPORT/patches.py" verify "$SRC/cold" 2048 1 2

step "a SOURCE of its group, which is another user's: root does not serve the same files, and finds its daemon"
SHARED=$WORK/shared
mkdir "$SHARED" "$WORK/other"
chgrp "$(id -g "$user")" "$SHARED"
chmod 2775 "$SHARED"
mkdir -m 2775 "$SHARED/sub"
# Where root looks for its socket.
me env -u XDG_RUNTIME_DIR "$WEIR" mount "$SHARED" "$MNT" --log-file "$WORK/run-$user/log"
expect_failure "lies in $SHARED, which is mounted at $MNT" timeout -s KILL 60 "$WEIR" mount "$SHARED/sub" "$WORK/other"
expect_failure "lies in $SHARED" timeout -s KILL 60 unshare --mount sh -c "umount -l '$MNT'; exec '$WEIR' mount '$SHARED/sub' '$WORK/other'"
expect_failure "already mounted" timeout -s KILL 60 "$WEIR" mount "$SHARED" "$WORK/other"
me sh -c "echo shared >'$MNT/file'"
"$WEIR" status "$SHARED" | grep -qF "$MNT" || fail "the status of $SHARED does not show $MNT"
"$WEIR" sync "$SHARED"
expect_equal "what is home after a sync" "$(cat "$SHARED/file")" shared
"$WEIR" umount "$SHARED"
if is_mounted "$MNT"; then fail "still mounted"; fi

step "unmounted by fusermount3"
me "$WEIR" mount "$SRC" "$MNT" --log-file "$WORK/run-$user/log"
me sh -c "echo again >'$MNT/again'"
me fusermount3 -u "$MNT"
expect_home_soon "$SRC/again" again
counts "$writes writes"
