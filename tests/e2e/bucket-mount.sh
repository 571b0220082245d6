#!/usr/bin/env bash
# Weir in front of a bucket: `weir mount s3://bucket/pre`, on a real S3 server that keeps objects as plain files.
# programs: git, SQLite, editors' ways to save, renames and removals of directories, as on a plain directory; `weir sync` and
# `weir umount` bring all of it into the bucket, and another mount sees the same;
# kill: the daemon is killed, again and again, beside a program that saves files: nothing acknowledged is lost;
# doctor: `weir doctor s3://bucket/pre`, and what cannot be mounted says why.
# cases: programs kill doctor
# all: kill
# seconds: 20
source "${REPO:?}/tests/e2e/lib.sh"
source "$SUPPORT/store.sh"

need_root
need_command fusermount3 git sqlite3
case=$1
weir_only
# Weir looks for it beside itself, or on PATH.
[ -x "${WEIR_BUCKET:?}" ] || fail "$WEIR_BUCKET is not built: run 'make checked'"
PATH=${WEIR_BUCKET%/*}:$PATH
SOURCE=s3://bucket/pre

# The objects, without what Weir and weir-bucket note for themselves.
expect_objects() {
    rm -rf "$WORK/seen"
    cp -r "$OBJECTS/bucket/pre" "$WORK/seen"
    rm -rf "$WORK/seen"/.weir*
    expect_same_contents "$1" "$WORK/seen" "$2"
}

# expect_same_contents WHAT GOT WANTED: the names and the bytes of files alone.
expect_same_contents() {
    expect_equal "$1" "$(contents "$2")" "$(contents "$3")"
}
contents() { (cd "$1" && find . -type f -exec sha256sum {} + | LC_ALL=C sort -k 2 | sha256sum); }

# no_bucket: the program that serves the bucket has ended.
no_bucket() { ! pgrep -f "weir-bucket mount $SOURCE .*--endpoint=$ENDPOINT" >/dev/null; }

start_store
case $case in
    programs)
        mount_weir "$SOURCE" "$MNT" --endpoint "$ENDPOINT"
        step "as on a plain directory"
        git init -q -b main "$WORK/origin"
        (
            cd "$WORK/origin"
            git config user.email t@t && git config user.name t
            for ((i = 0; i < 30; i++)); do echo "$i" >"f$i"; done
            git add . && git commit -qm one
        )
        plain=$WORK/plain
        mkdir "$plain"
        for there in "$plain" "$MNT"; do
            (
                cd "$there"
                umask 022
                mkdir -p d/e removed
                echo one >d/file
                chmod 640 d/file
                touch -d '2001-02-03 04:05:06.789' d/file
                printf 'saved' >d/.new && mv d/.new d/saved
                printf 'again' >d/.new && mv d/.new d/saved
                echo x >d/e/x && mv d/e/x d/y
                truncate -s 100000 sparse
                printf end | dd of=sparse bs=1 seek=50000 conv=notrunc status=none
                for ((i = 0; i < 40; i++)); do echo "$i" >"removed/$i"; done
            )
        done
        head -c 30000000 /dev/urandom >"$plain/large"
        cp "$plain/large" "$MNT/large"
        expect_same_tree "the mount" "$MNT" "$plain"
        git clone -q "$WORK/origin" "$MNT/clone"
        git -C "$MNT/clone" -c user.email=t@t -c user.name=t commit -q --allow-empty -m two
        git -C "$MNT/clone" fsck --strict >/dev/null 2>&1 || fail "git finds faults"
        sqlite3 "$MNT/db" 'create table t(x); begin; insert into t values(1),(2); commit; insert into t values(3);'
        expect_equal "rows" "$(sqlite3 "$MNT/db" 'select sum(x) from t')" 6
        step "weir sync"
        weir sync "$MNT"
        expect_objects "the objects after a sync" "$MNT"
        step "directories that are in the bucket are moved and removed"
        for there in "$plain" "$MNT"; do mv "$there/d" "$there/moved" && rm -r "$there/removed"; done
        weir sync "$MNT"
        expect_objects "the objects after a rename" "$MNT"
        [ ! -e "$OBJECTS/bucket/pre/d" ] || fail "the former objects are there"
        ln -s moved/file "$MNT/link"
        echo late >"$MNT/late"
        before=$(hash_of_tree "$MNT")
        step "weir umount"
        umount_weir "$MNT"
        soon no_bucket || fail "weir-bucket goes on after weir umount"
        expect_equal "an object after an unmount" "$(cat "$OBJECTS/bucket/pre/late")" late
        cmp "$plain/large" "$OBJECTS/bucket/pre/large" || fail "the large object"
        step "another mount, without what this machine notes"
        rm -rf "$STATE_DIRECTORY"
        mount_weir "$SOURCE" "$MNT" --endpoint "$ENDPOINT"
        expect_equal "the tree" "$(hash_of_tree "$MNT")" "$before"
        expect_equal "the time of a file" "$(stat -c %Y "$MNT/moved/file")" "$(stat -c %Y "$plain/moved/file")"
        umount_weir "$MNT"
        ;;
    kill)
        NOTES=$WORK/notes
        acknowledged() { python3 "$SUPPORT/acknowledged.py" "$@"; }
        saved() { cat "$NOTES" 2>/dev/null | grep -c -e ^saved -e ^removed || true; }
        saved_more_than() { [ "$(saved)" -gt "$1" ]; }
        serve() { mount_weir_foreground "$SOURCE" "$MNT" --log "$WORK/redo.log" --endpoint "$ENDPOINT"; }
        serve
        for round in 1 2 3; do
            before=$(saved)
            acknowledged save "$MNT" "$NOTES" 2>/dev/null &
            load=$!
            soon saved_more_than $((before + 40 * round)) || fail "the load does not go on"
            kill -9 "$WEIR_PID"
            wait "$WEIR_PID" 2>/dev/null || true
            wait "$load" 2>/dev/null || true
            umount -l "$MNT" 2>/dev/null || true
            serve
            acknowledged check "$MNT" "$NOTES" || fail "after kill -9, round $round"
        done
        umount_weir "$MNT"
        wait "$WEIR_PID" || fail "the daemon ended with status $?"
        soon no_bucket || fail "weir-bucket goes on after weir umount"
        acknowledged check "$OBJECTS/bucket/pre" "$NOTES" || fail "in the bucket"
        counts "$(saved) saves, 3 kills"
        ;;
    doctor)
        weir doctor "$SOURCE" --endpoint "$ENDPOINT" | grep '^ok *bucket *the bucket can be listed' ||
            fail "weir doctor does not look at the bucket"
        [ -z "$(ls "$OBJECTS/bucket/pre")" ] || fail "weir doctor leaves objects"
        expect_failure "create it" weir mount s3://absent/pre "$MNT" --endpoint "$ENDPOINT"
        expect_failure "check the network" weir mount "$SOURCE" "$MNT" --endpoint http://127.0.0.1:1
        mount_weir "$SOURCE" "$MNT" --endpoint "$ENDPOINT"
        mkdir "$WORK/second"
        expect_failure "is mounted on this machine already" weir mount "$SOURCE" "$WORK/second" --endpoint "$ENDPOINT"
        umount_weir "$MNT"
        ;;
esac
stop_store
