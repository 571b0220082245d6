#!/usr/bin/env bash
# weir-bucket alone, on a real S3 server that keeps objects as plain files, so that they are compared without a client:
# programs: git, SQLite, editors' ways to save, links, modes and times, as on a plain directory; all is there for a second mount;
# untar: 2,000 small files cost one request each, and none when they are removed before they are uploaded;
# large: random writes, an append and a truncation of a large object move little more than what was written;
# kill: the program is killed, again and again, beside one that saves files: nothing acknowledged is lost;
# others: what somebody else writes is seen, and never overwritten; odd keys are shown; two writers are kept apart;
# cache: what was fetched is not fetched again, by a later mount either; what others changed, or what is damaged on the disk, is; the
#     directory takes no more than it may, and a full disk does no harm;
# errors: what cannot work says what to do; `weir-bucket check`.
# cases: programs untar large kill others cache errors
# all: kill large
# seconds: 30
source "${REPO:?}/tests/e2e/lib.sh"
source "$SUPPORT/store.sh"

need_root
need_command git sqlite3 tar
case=$1
BUCKET=$WEIR_BUCKET
LOG=$WORK/bucket.log

# serve [OPTION...]: mounts s3://bucket/pre on MNT with the state directory STATE; BUCKET_PID is the program.
STATE=$WORK/bucket-state
serve() {
    # The one before said that it serves, too.
    rm -f "$WORK/ready"
    "$BUCKET" mount s3://bucket/pre "$MNT" --state "$STATE" --endpoint "$ENDPOINT" "$@" >"$WORK/ready" 2>>"$LOG" &
    BUCKET_PID=$!
    soon ready_or_ended || fail "it does not mount"
    if ended "$BUCKET_PID"; then cat "$LOG"; fail "weir-bucket ended before it mounted"; fi
}
ready_or_ended() { grep -qs ^serving "$WORK/ready" || ended "$BUCKET_PID"; }

# An unmount returns before all is in the bucket: the program's end says that it is.
stop() {
    umount "$MNT"
    wait "$BUCKET_PID" || { tail -5 "$LOG"; fail "weir-bucket ended with status $?"; }
}

count() { "$BUCKET" stat "$MNT" | python3 "$SUPPORT/field.py" "$@"; }

# sync_directory PATH: what fsync(2) of a directory does.
sync_directory() {
    python3 -c 'import os, sys; os.fsync(os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY))' "$1"
}

start_store

case $case in
    programs)
        serve
        step "as on a plain directory"
        plain=$WORK/plain
        mkdir "$plain"
        for there in "$plain" "$MNT"; do
            (
                cd "$there"
                umask 022
                mkdir -p d/e
                echo one >d/file
                echo two >>d/file
                chmod 640 d/file
                ln -s ../d/file d/e/link
                touch -d '2001-02-03 04:05:06.789' d/file
                printf 'saved' >d/.new && mv d/.new d/saved
                printf 'again' >d/.new && mv d/.new d/saved
                cp -p d/file d/copy
                mkdir empty moved && echo x >moved/x && mv moved d/moved
                truncate -s 100000 d/sparse
                printf end | dd of=d/sparse bs=1 seek=50000 conv=notrunc status=none
                rm -r d/e/link && rmdir d/e
                ln -s nowhere dangling
            )
        done
        expect_same_tree "the mount" "$MNT" "$plain"
        expect_equal "the time of a file" "$(stat -c %Y "$MNT/d/file")" "$(stat -c %Y "$plain/d/file")"
        step "git and SQLite"
        git init -q -b main "$WORK/origin"
        (
            cd "$WORK/origin"
            git config user.email t@t && git config user.name t
            for ((i = 0; i < 30; i++)); do echo "$i" >"f$i"; done
            git add . && git commit -qm one
        )
        git clone -q "$WORK/origin" "$MNT/clone"
        git -C "$MNT/clone" -c user.email=t@t -c user.name=t commit -q --allow-empty -m two
        git -C "$MNT/clone" fsck --strict 2>&1 | grep -v '^notice' || true
        sqlite3 "$MNT/db" 'create table t(x); begin; insert into t values(1),(2); commit; insert into t values(3);'
        expect_equal "rows" "$(sqlite3 "$MNT/db" 'select sum(x) from t')" 6
        expect_failure "not permitted" ln "$MNT/d/file" "$MNT/hard"
        expect_failure "not permitted" mkfifo "$MNT/fifo"
        step "a second mount sees the same"
        before=$(hash_of_tree "$MNT")
        stop
        rm -rf "$STATE"
        serve
        expect_equal "the tree" "$(hash_of_tree "$MNT")" "$before"
        expect_equal "the time of a file" "$(stat -c %Y "$MNT/d/file")" "$(stat -c %Y "$plain/d/file")"
        cmp "$MNT/d/file" "$OBJECTS/bucket/pre/d/file" || fail "the object is not the file"
        rm -r "$MNT/clone" "$MNT/d"
        stop
        [ ! -e "$OBJECTS/bucket/pre/d/file" ] || fail "a removed file's object is there"
        ;;
    untar)
        mkdir -p "$WORK/tree"
        for ((d = 0; d < 20; d++)); do
            mkdir "$WORK/tree/$d"
            for ((f = 0; f < 100; f++)); do printf '%s %s\n' "$d" "$f" >"$WORK/tree/$d/$f"; done
        done
        tar -cf "$WORK/tree.tar" -C "$WORK" tree
        serve
        ls "$MNT" >/dev/null
        before=$(count store.requests)
        tar -xf "$WORK/tree.tar" -C "$MNT"
        sync_directory "$MNT"
        requests=$(($(count store.requests) - before))
        counts "$requests requests for 2,000 files in 21 directories"
        # 2,000 files and 21 directories.
        [ "$requests" -le 2100 ] || fail "more than 1.05 requests a file"
        expect_same_tree "the objects" "$OBJECTS/bucket/pre/tree" "$WORK/tree"
        before=$(count store.requests)
        for ((f = 0; f < 50; f++)); do echo x >"$MNT/t$f"; rm "$MNT/t$f"; done
        expect_equal "requests for what never was uploaded" "$(($(count store.requests) - before))" 0
        stop
        ;;
    large)
        head -c 268435456 /dev/urandom >"$WORK/copy"
        serve
        cp "$WORK/copy" "$MNT/large"
        sync_directory "$MNT"
        cmp "$WORK/copy" "$OBJECTS/bucket/pre/large" || fail "the object after a copy"
        stop
        rm -rf "$STATE"
        serve
        cmp "$WORK/copy" "$MNT/large" || fail "the file in another mount"
        cat >"$WORK/patch.py" <<'EOF'
import os, random, sys
chance = random.Random(7)
files = [os.open(path, os.O_RDWR) for path in sys.argv[1:]]
size = os.fstat(files[0]).st_size
for number in range(25):
    at, data = chance.randrange(size - 100), chance.randbytes(100)
    for file in files:
        os.pwrite(file, data, at)
for file in files:
    os.fsync(file)
EOF
        begun=$(($(count store.bytes_up) + $(count store.bytes_down)))
        moved() { echo $(($(count store.bytes_up) + $(count store.bytes_down) - begun)); }
        python3 "$WORK/patch.py" "$MNT/large" "$WORK/copy"
        patched=$(moved)
        cmp "$WORK/copy" "$OBJECTS/bucket/pre/large" || fail "the object after random writes"
        for there in "$MNT/large" "$WORK/copy"; do printf appended >>"$there"; done
        sync_directory "$MNT"
        cmp "$WORK/copy" "$OBJECTS/bucket/pre/large" || fail "the object after an append"
        appended=$(($(moved) - patched))
        for there in "$MNT/large" "$WORK/copy"; do truncate -s 200000000 "$there"; done
        sync_directory "$MNT"
        cmp "$WORK/copy" "$OBJECTS/bucket/pre/large" || fail "the object after a truncation"
        cmp "$WORK/copy" "$MNT/large" || fail "the file after a truncation"
        counts "bytes moved for 25 writes of 100 B to 256 MiB: $patched; for an append of 8 B: $appended"
        [ "$patched" -lt 20000000 ] || fail "random writes moved $patched bytes"
        [ "$appended" -lt 10000 ] || fail "an append moved $appended bytes"
        [ -z "$(find "$OBJECTS/bucket/pre/.weir-tmp" -type f 2>/dev/null)" ] || fail "temporary objects stay"
        stop
        ;;
    kill)
        NOTES=$WORK/notes
        acknowledged() { python3 "$SUPPORT/acknowledged.py" "$@"; }
        saved() { cat "$NOTES" 2>/dev/null | grep -c -e ^saved -e ^removed || true; }
        saved_more_than() { [ "$(saved)" -gt "$1" ]; }
        serve
        for round in 1 2 3 4 5; do
            before=$(saved)
            acknowledged save "$MNT" "$NOTES" &
            load=$!
            soon saved_more_than $((before + 20 * round)) || fail "the load does not go on"
            kill -9 "$BUCKET_PID"
            wait "$BUCKET_PID" 2>/dev/null || true
            wait "$load" 2>/dev/null || true
            umount -l "$MNT"
            serve
            acknowledged check "$MNT" "$NOTES" || fail "after kill -9, round $round"
        done
        stop
        acknowledged check "$OBJECTS/bucket/pre" "$NOTES" || fail "in the bucket"
        counts "$(saved) saves, 5 kills"
        ;;
    others)
        serve --listing-ttl 1
        # Another tool: it takes no lease.
        other=$WORK/other
        mkdir "$other"
        "$BUCKET" mount s3://bucket/pre "$other" --state "$WORK/other-state" --endpoint "$ENDPOINT" --unfenced \
            --listing-ttl 0 >"$WORK/other-ready" 2>>"$WORK/other.log" &
        other_pid=$!
        soon filled "$WORK/other-ready" || fail "the other does not mount"
        step "what others write is seen"
        echo theirs >"$other/new"
        sync_directory "$other"
        soon exists "$MNT/new" || fail "a new object is not seen"
        expect_equal "a new object" "$(cat "$MNT/new")" theirs
        step "and kept"
        echo first >"$MNT/both"
        sync_directory "$MNT"
        exec 4>>"$MNT/both"
        echo another >"$other/both"
        sync_directory "$other"
        echo ours >&4
        python3 -c 'import os; os.fsync(4)'
        exec 4>&-
        expect_equal "theirs" "$(cat "$OBJECTS/bucket/pre/both")" another
        ours=$(compgen -G "$OBJECTS/bucket/pre/both.weir-conflict-*") || fail "ours is not kept"
        grep -q ours "$ours" || fail "ours is not what was written: $(cat "$ours")"
        grep -q "changed by somebody else" "$LOG" || fail "nothing is said"
        expect_equal "conflicts" "$(count files.conflicts)" 1
        umount "$other"
        wait "$other_pid" || fail "the other ended with status $?"
        step "two writers"
        mkdir "$WORK/second"
        expect_failure "in use by another writer" \
            "$BUCKET" mount s3://bucket/pre "$WORK/second" --state "$WORK/second-state" --endpoint "$ENDPOINT"
        expect_failure "in use by another weir-bucket" \
            "$BUCKET" mount s3://bucket/pre "$WORK/second" --state "$STATE" --endpoint "$ENDPOINT"
        stop
        ;;
    cache)
        need_command du
        CACHE=$WORK/cache
        head -c 67108864 /dev/urandom >"$WORK/large"
        head -c 33554432 /dev/urandom >"$WORK/second"
        serve
        cp "$WORK/large" "$WORK/second" "$MNT"
        mkdir "$MNT/small"
        for ((f = 0; f < 20; f++)); do echo "$f" >"$MNT/small/$f"; done
        stop
        is_right() { cmp "$WORK/large" "$MNT/large" || fail "$1"; }
        step "read once"
        serve --cache "$CACHE"
        is_right "the first read"
        cat "$MNT"/small/* >/dev/null
        expect_equal "pieces found" "$(count cache.hits)" 0
        stop
        expect_equal "what others may do" "$(find "$CACHE" -perm /077 | head -3)" ""
        step "another mount fetches nothing"
        serve --cache "$CACHE"
        is_right "the second read"
        expect_equal "the small ones" "$(cat "$MNT"/small/* | sort -n | tail -1)" 19
        expect_equal "bytes fetched, pieces found, missed, not kept" \
            "$(count store.bytes_down cache.hits cache.misses cache.skipped)" "0 532 0 0"
        stop
        step "what somebody else changes is fetched"
        serve --cache "$CACHE" --listing-ttl 1
        is_right "the third read"
        other=$WORK/other
        mkdir "$other"
        "$BUCKET" mount s3://bucket/pre "$other" --state "$WORK/other-state" --endpoint "$ENDPOINT" --unfenced \
            --listing-ttl 0 >"$WORK/other-ready" 2>>"$WORK/other.log" &
        other_pid=$!
        soon filled "$WORK/other-ready" || fail "the other does not mount"
        for there in "$other/large" "$WORK/large"; do
            printf changed | dd of="$there" bs=1 seek=30000000 conv=notrunc status=none
        done
        umount "$other"
        wait "$other_pid" || fail "the other ended with status $?"
        is_new() { cmp -s "$WORK/large" "$MNT/large"; }
        soon is_new || fail "the change is not seen"
        [ "$(count store.bytes_down)" -gt 60000000 ] || fail "it was not fetched"
        stop
        step "what is damaged is fetched"
        serve --cache "$CACHE"
        is_right "the changed one"
        expect_equal "damaged" "$(count cache.damaged)" 0
        stop
        cat >"$WORK/damage.py" <<'EOF'
import os, random, sys
chance = random.Random(5)
units = [os.path.join(at, name) for at, _, names in os.walk(sys.argv[1]) for name in names if "-" in name]
altered = chance.sample(sorted(units), 100)
for number, path in enumerate(altered):
    with open(path, "r+b") as file:
        size = os.path.getsize(path)
        if number % 4 == 0:
            file.truncate(chance.randrange(size))
        else:
            at = chance.randrange(size)
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << chance.randrange(8)]))
EOF
        python3 "$WORK/damage.py" "$CACHE"
        serve --cache "$CACHE"
        is_right "beside damage"
        cat "$MNT"/small/* >/dev/null
        expect_equal "damaged" "$(count cache.damaged)" 100
        expect_equal "warnings" "$(grep -c "cannot be used" "$LOG")" 1
        stop
        serve --cache "$CACHE"
        is_right "after damage"
        expect_equal "damaged, fetched" "$(count cache.damaged store.bytes_down)" "0 0"
        stop
        step "the bound holds"
        takes() { du -s --block-size=1 "$CACHE" | cut -f 1; }
        [ "$(takes)" -gt 67108864 ] || fail "the cache takes $(takes) bytes only"
        shrunk() { [ "$(takes)" -le 67108864 ]; }
        serve --cache "$CACHE" --cache-size 64M
        soon shrunk || fail "the cache takes $(takes) bytes of 64 MiB"
        cmp "$WORK/second" "$MNT/second" || fail "the second file"
        is_right "under a bound"
        stop
        shrunk || fail "the cache takes $(takes) bytes of 64 MiB"
        serve --cache "$CACHE" --cache-size 64M
        cat "$MNT/small/1" >/dev/null
        kept=$(count cache.bytes)
        [ "$kept" -gt 60000000 ] || fail "it has $kept bytes only"
        step "who may use it"
        mkdir "$WORK/m"
        elsewhere() { "$BUCKET" mount "$@" "$WORK/m" --state "$WORK/s" --endpoint "$ENDPOINT" --unfenced; }
        expect_failure "in use by another weir-bucket" elsewhere s3://bucket/pre --cache "$CACHE"
        rm -r "$WORK/s"
        elsewhere s3://bucket/pre2 --cache "$CACHE" >"$WORK/beside" 2>&1 &
        beside=$!
        soon filled "$WORK/beside" || fail "another prefix does not mount"
        umount "$WORK/m"
        wait "$beside" || fail "the mount of another prefix ended with status $?: $(cat "$WORK/beside")"
        rm -r "$WORK/s"
        stop
        chmod 755 "$CACHE"/*
        expect_failure "is open to other users" elsewhere s3://bucket/pre --cache "$CACHE"
        expect_failure "at least 64 MiB" elsewhere s3://bucket/pre --cache "$CACHE" --cache-size 63M
        expect_failure "--cache <DIR>" elsewhere s3://bucket/pre --cache-size 100M
        expect_failure "not a directory" elsewhere s3://bucket/pre --cache "$WORK/large"
        step "a full disk"
        mkdir "$WORK/disk"
        mount -t tmpfs -o size=16m tmpfs "$WORK/disk"
        serve --cache "$WORK/disk/cache"
        is_right "beside a full disk"
        is_right "again"
        cmp "$WORK/second" "$MNT/second" || fail "the second file beside a full disk"
        [ "$(count cache.skipped)" -gt 100 ] || fail "a disk of 16 MiB took everything"
        stop
        expect_equal "warnings" "$(grep -c "takes nothing at present: the disk is full" "$LOG")" 1
        serve --cache "$WORK/disk/cache"
        is_right "from a full disk"
        [ "$(count cache.hits)" -gt 50 ] || fail "a full disk has $(count cache.hits) pieces"
        expect_equal "damaged" "$(count cache.damaged)" 0
        stop
        umount "$WORK/disk"
        ;;
    errors)
        check() { "$BUCKET" check "$@" --endpoint "$ENDPOINT"; }
        check s3://bucket/pre || fail "check finds faults"
        [ -z "$(ls "$OBJECTS/bucket/pre")" ] || fail "check leaves objects"
        mkdir -p "$WORK/m"
        mounts() { "$BUCKET" mount "$1" "$WORK/m" --state "$WORK/s$RANDOM" "${@:2}"; }
        expect_failure "create it" mounts s3://absent/pre --endpoint "$ENDPOINT"
        AWS_SECRET_ACCESS_KEY=wrong expect_failure "does not accept the credentials" mounts s3://bucket/pre --endpoint "$ENDPOINT"
        AWS_ACCESS_KEY_ID='' AWS_SECRET_ACCESS_KEY='' HOME=$WORK expect_failure "No credentials were found" \
            mounts s3://bucket/pre --endpoint "$ENDPOINT"
        expect_failure "check the network" mounts s3://bucket/pre --endpoint http://127.0.0.1:1
        expect_failure "s3://BUCKET" mounts b/pre
        ;;
esac
stop_store
