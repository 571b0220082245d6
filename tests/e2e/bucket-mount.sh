#!/usr/bin/env bash
# Weir in front of a bucket: `weir mount s3://bucket/pre`, on a real S3 server that keeps objects as plain files.
# programs: git, SQLite, editors' ways to save, renames and removals of directories, as on a plain directory; `weir sync` and
# `weir umount` bring all of it into the bucket, and another mount sees the same; with --cache one finds what another fetched;
# kill: the daemon is killed, again and again, beside a program that saves files: nothing acknowledged is lost;
# durable: with --durable store what fsync has acknowledged is in the bucket, also when everything on this machine is lost then;
# signals: SIGTERM, SIGINT and SIGHUP end the daemon when all is in the bucket, also what was not synced, and where weir-bucket gets them, too;
# doctor: `weir doctor s3://bucket/pre`, and what cannot be mounted says why.
# cases: programs kill durable signals doctor
# all: kill durable
# seconds: 20
source "${REPO:?}/tests/e2e/lib.sh"
source "$SUPPORT/store.sh"

need_root
need_command git sqlite3
case=$1
weir_only

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

# Names, kinds, modes, sizes, times of files, and their bytes.
seen() {
    (cd "$1" && find . -printf '%p %y %m %s ' \( -type f -printf '%T+\n' -o -printf '\n' \) -name .weir -prune | LC_ALL=C sort)
    contents "$1"
}

# Requests are shown, and that nothing is pending; the program tells them once a second.
is_counted() {
    weir status "$MNT" >"$WORK/status"
    grep -qE '^  bucket +[0-9]+ requests \(.*[0-9]+ put.*\), 0 failed, ' "$WORK/status" &&
        grep -qE '^  uploads +0 files pending ' "$WORK/status" &&
        weir status --prometheus >"$WORK/metrics" &&
        grep -q '^weir_bucket_requests_total{.*kind="upload_part"} [1-9]' "$WORK/metrics" &&
        grep -q '^weir_bucket_lease_lost{.*} 0$' "$WORK/metrics" &&
        grep -q '^weir_bucket_bytes_total{.*direction="up"} [1-9]' "$WORK/metrics"
}

# What the cache has found, and what it has: the first mount kept a file of 30 MB.
is_found_1() {
    weir status "$MNT" | grep -qE '^  bucket cache +0 units found, [0-9]{3} not, [0-9.]+ MiB kept$' &&
        weir status --prometheus | grep -q '^weir_bucket_cache_bytes{.*} [3-9][0-9]\{7\}$'
}
is_found_2() {
    weir status "$MNT" | grep -qE '^  bucket cache +[0-9]{3} units found, ' &&
        weir status --prometheus | grep -q '^weir_bucket_cache_units_total{.*result="hit"} [0-9]\{3\}$' &&
        [ "$(weir status "$MNT" --json | python3 "$SUPPORT/field.py" bucket.store.bytes_down)" -lt 100000 ]
}

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
        step "requests are counted"
        weir sync "$MNT"
        soon is_counted || fail "$(weir status "$MNT"; weir status --prometheus | grep bucket)"
        step "a new file is one request, with its name and its bytes"
        # Counted a second ago.
        puts() { sleep 1.5; status "$MNT" bucket.store.put; }
        before=$(puts)
        for there in "$plain" "$MNT"; do
            mkdir "$there/new"
            for ((i = 0; i < 300; i++)); do echo "$i" >"$there/new/$i"; done
        done
        weir sync "$MNT"
        puts=$(($(puts) - before))
        [ "$puts" -ge 300 ] && [ "$puts" -le 345 ] || fail "$puts objects written for 300 files"
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
        step "what a bucket has not is refused at once"
        expect_failure "not permitted" ln "$MNT/late" "$MNT/hard"
        expect_failure "not permitted" mkfifo "$MNT/fifo"
        expect_failure "not supported" python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.name", b"value")' "$MNT/late"
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
        step "small writes to a large object, and their fsync, ask the bucket for nothing"
        mount_weir "$SOURCE" "$MNT" --endpoint "$ENDPOINT"
        # Counted a second ago.
        asked() {
            sleep 1.5
            for kind in get put copy upload_part multipart_begin; do status "$MNT" "bucket.store.$kind"; done
        }
        stat "$MNT/large" >"$WORK/stat"
        requests=$(asked)
        python3 - "$plain/large" "$MNT/large" <<'EOF'
import os, sys
files = [os.open(path, os.O_WRONLY) for path in sys.argv[1:]]
for number in range(20):
    for file in files:
        os.pwrite(file, b"%4d" % number * 25, 50 + number * 1_234_567)
for file in files:
    os.fsync(file)
EOF
        expect_equal "requests of each kind" "$(asked)" "$requests"
        weir sync "$MNT"
        expect_equal "pages fetched" "$(status "$MNT" fetched_pages)" 0
        cmp "$plain/large" "$OBJECTS/bucket/pre/large" || fail "the large object after small writes"
        before=$(hash_of_tree "$MNT")
        umount_weir "$MNT"
        step "what a mount has fetched the next one finds on disk"
        cd "$WORK"
        for round in 1 2; do
            mount_weir "$SOURCE" "$MNT" --endpoint "$ENDPOINT" --cache cache --cache-size 100M
            expect_equal "the tree" "$(hash_of_tree "$MNT")" "$before"
            soon "is_found_$round" || fail "$(weir status "$MNT"; weir status --prometheus | grep bucket)"
            umount_weir "$MNT"
        done
        [ -d "$WORK/cache" ] || fail "the cache is not where it was named"
        expect_failure "needs --cache" weir mount "$SOURCE" "$MNT" --endpoint "$ENDPOINT" --cache-size 100M
        expect_failure "at least 64 MiB" weir mount "$SOURCE" "$MNT" --endpoint "$ENDPOINT" -o cache=/c,cache_size=1M
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
    durable)
        mount_weir_foreground "$SOURCE" "$MNT" --endpoint "$ENDPOINT" --durable store
        mkdir -p "$MNT/d/e"
        head -c 20000000 /dev/urandom >"$WORK/large"
        for name in "$MNT/d/file" "$MNT/d/e/large"; do
            case $name in *large) cp "$WORK/large" "$name" ;; *) echo one >"$name" ;; esac
            sync "$name"
            cmp "$name" "$OBJECTS/bucket/pre/${name#"$MNT/"}" || fail "the bucket lacks $name after fsync"
        done
        for ((i = 0; i < 20; i++)); do
            printf '%04d' "$i" | dd of="$MNT/d/e/large" bs=1 seek=$((i * 999983)) conv=notrunc,fsync status=none
            cmp "$MNT/d/e/large" "$OBJECTS/bucket/pre/d/e/large" || fail "the bucket lacks change $i after fsync"
        done
        mv "$MNT/d/file" "$MNT/d/renamed"
        for ((i = 0; i < 5; i++)); do echo "$i" >"$MNT/d/new-$i" && sync "$MNT/d/new-$i"; done
        mkdir "$MNT/d/empty"
        : >"$MNT/d/nothing"
        sync "$MNT/d"
        seen "$MNT" >"$WORK/before"
        step "this machine loses everything"
        pkill -9 -f "weir-bucket mount $SOURCE .*--endpoint=$ENDPOINT"
        kill -9 "$WEIR_PID"
        wait "$WEIR_PID" 2>/dev/null || true
        umount -l "$MNT"
        rm -rf "$STATE_DIRECTORY"
        mount_weir "$SOURCE" "$MNT" --endpoint "$ENDPOINT"
        seen "$MNT" | diff "$WORK/before" - || fail "the tree"
        umount_weir "$MNT"
        expect_failure "without a redo log" weir mount "$SOURCE" "$MNT" --endpoint "$ENDPOINT" --durable store --log "$WORK/log"
        expect_failure "without a redo log" weir mount "$SOURCE" "$MNT" --endpoint "$ENDPOINT" --durable store --order all
        expect_failure "options of buckets" weir mount "$SRC" "$MNT" --durable store
        ;;
    signals)
        for name in TERM INT HUP; do
            mount_weir "$SOURCE" "$MNT" --endpoint "$ENDPOINT" --dirty-expire 1h
            daemon=$(status "$MNT" pid)
            mkdir "$MNT/$name"
            echo "dirty $name" >"$MNT/$name/file"
            kill "-$name" "$daemon"
            soon ended "$daemon" || fail "the daemon goes on after SIG$name"
            if is_mounted "$MNT"; then fail "SIG$name killed the daemon: its mount is still there"; fi
            soon no_bucket || fail "weir-bucket goes on after SIG$name"
            expect_equal "an object after SIG$name" "$(cat "$OBJECTS/bucket/pre/$name/file")" "dirty $name"
        done
        step "all processes get it, as at the end of a login: what is not synced is in the bucket"
        for name in TERM INT HUP; do
            for first in daemon bucket; do
                mount_weir "$SOURCE" "$MNT" --endpoint "$ENDPOINT" --dirty-expire 1h
                daemon=$(status "$MNT" pid)
                bucket=$(pgrep -f "weir-bucket mount $SOURCE .*--endpoint=$ENDPOINT")
                for ((i = 0; i < 20; i++)); do echo "$i $name $first" >"$MNT/$name/$first-$i"; done
                if [ "$first" = daemon ]; then
                    kill "-$name" "$daemon" "$bucket"
                else
                    kill "-$name" "$bucket"
                    sleep 0.5
                    kill "-$name" "$daemon"
                fi
                soon ended "$daemon" || fail "the daemon goes on after SIG$name"
                soon no_bucket || fail "weir-bucket goes on after SIG$name"
                if is_mounted "$MNT"; then fail "the mount is still there after SIG$name"; fi
                for ((i = 0; i < 20; i++)); do
                    expect_equal "an object after SIG$name" "$(cat "$OBJECTS/bucket/pre/$name/$first-$i")" "$i $name $first"
                done
            done
        done
        step "weir-bucket ends with a daemon that is killed"
        mount_weir "$SOURCE" "$MNT" --endpoint "$ENDPOINT"
        kill -9 "$(status "$MNT" pid)"
        soon no_bucket || fail "weir-bucket goes on without its daemon"
        umount -l "$MNT" 2>/dev/null || true
        step "nothing that the daemon starts has its signals blocked, or its service manager"
        NOTIFY_SOCKET=$WORK/notify mount_weir_foreground "$SOURCE" "$MNT" --endpoint "$ENDPOINT"
        bucket=$(pgrep -f "weir-bucket mount $SOURCE .*--endpoint=$ENDPOINT")
        grep -E '^SigBlk:\s0+$' "/proc/$bucket/status" || fail "weir-bucket: $(grep SigBlk "/proc/$bucket/status")"
        if tr '\0' '\n' <"/proc/$bucket/environ" | grep NOTIFY_SOCKET; then fail "weir-bucket has the service manager's socket"; fi
        kill "$WEIR_PID"
        wait "$WEIR_PID" || fail "the daemon ended with status $?"
        ;;
    doctor)
        weir doctor "$SOURCE" --endpoint "$ENDPOINT" | grep '^ok *bucket *the bucket can be listed' ||
            fail "weir doctor does not look at the bucket"
        [ -z "$(ls "$OBJECTS/bucket/pre")" ] || fail "weir doctor leaves objects"
        expect_failure "create it" weir mount s3://absent/pre "$MNT" --endpoint "$ENDPOINT"
        expect_failure "which is $SOURCE: leave fsname out" weir mount "$SOURCE" "$MNT" --endpoint "$ENDPOINT" -o fsname=/elsewhere
        expect_failure "check the network" weir mount "$SOURCE" "$MNT" --endpoint http://127.0.0.1:1
        mount_weir "$SOURCE" "$MNT" --endpoint "$ENDPOINT"
        mkdir "$WORK/second"
        expect_failure "is mounted on this machine already" weir mount "$SOURCE" "$WORK/second" --endpoint "$ENDPOINT"
        umount_weir "$MNT"
        ;;
esac
stop_store
