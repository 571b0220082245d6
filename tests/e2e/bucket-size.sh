#!/usr/bin/env bash
# Large buckets: `weir mount s3://bucket/pre` beside
# directories: hundreds of directories, made through one mount and listed by another, which reads;
# many, million: 100,000 or a million objects that others made: listings, lookups, and what weir-bucket keeps in memory of them;
# huge: an object of 1 TiB: its size, and reads at a few places.
# cases: directories many huge
# long-cases: million
# all: many
# seconds: 30
source "${REPO:?}/tests/e2e/lib.sh"
source "$SUPPORT/store.sh"

need_root
weir_only
PRE=$OBJECTS/bucket/pre

# bucket_pid: the program that serves the bucket; peak_kib: the most memory that it had.
bucket_pid() { pgrep -f "weir-bucket mount $SOURCE .*--endpoint=$ENDPOINT"; }
peak_kib() { sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$(bucket_pid)/status"; }
# counted FIELD: what it says of its requests now; its mountpoint is the fourth word of its command.
counted() { "$WEIR_BUCKET" stat "$(tr '\0' '\n' <"/proc/$(bucket_pid)/cmdline" | sed -n 4p)" | python3 "$SUPPORT/field.py" "$1"; }
requests() { counted store.requests; }

start_store
case $1 in
    directories)
        directories=300
        mount_weir "$SOURCE" "$MNT" --endpoint "$ENDPOINT"
        for ((i = 0; i < directories; i++)); do
            mkdir -p "$MNT/$((i % 10))/$i/below"
            echo "$i" >"$MNT/$((i % 10))/$i/file"
        done
        weir sync "$MNT"
        step "listed by another"
        mkdir "$WORK/other"
        "$WEIR_BUCKET" mount "$SOURCE" "$WORK/other" --state "$WORK/other-state" --endpoint "$ENDPOINT" --unfenced >"$WORK/ready" &
        other=$!
        soon filled "$WORK/ready" || fail "the other does not mount"
        list() { (cd "$1" && find . -mindepth 1 -name .weir -prune -o -mindepth 1 -printf '%p %y %m %U\n' | LC_ALL=C sort); }
        diff <(list "$MNT") <(list "$WORK/other") || fail "the other has other names"
        expect_equal "files" "$(cat "$WORK"/other/*/*/file | sort -n | tail -1)" $((directories - 1))
        umount "$WORK/other"
        wait "$other" || fail "the other ended with status $?"
        rm -r "$MNT"/[0-8]
        umount_weir "$MNT"
        expect_equal "directories in the bucket" "$(find "$PRE" -mindepth 2 -path "$PRE/[0-9]*" -type d | wc -l)" $((directories / 10 * 2))
        counts "$directories directories"
        ;;
    many | million)
        directories=10
        [ "$1" = many ] || directories=100
        files=$((directories * 10000))
        step "$files objects"
        python3 - "$PRE" "$directories" <<'EOF'
import os, sys
for directory in range(int(sys.argv[2])):
    path = os.path.join(sys.argv[1], str(directory))
    os.mkdir(path)
    for number in range(10_000):
        with open(f"{path}/{number}", "wb") as file:
            file.write(b"%d %d\n" % (directory, number))
EOF
        # No listing is due again while requests are counted, however slow the machine is.
        mount_weir "$SOURCE" "$MNT" --endpoint "$ENDPOINT" --listing-ttl 3600
        before=$(requests)
        begun=$SECONDS
        expect_equal "names" "$(find "$MNT" -mindepth 2 -path "$MNT/[0-9]*" -type f | wc -l)" "$files"
        listed=$(($(requests) - before))
        took=$((SECONDS - begun))
        step "attributes"
        before=$(requests)
        expect_equal "sizes" "$(find "$MNT/3" -type f -size -100c | wc -l)" 10000
        attributes=$(($(requests) - before))
        step "lookups"
        before=$(requests)
        for ((i = 0; i < 300; i++)); do
            file=$((i % directories))/$((i * 33))
            expect_equal "$file" "$(cat "$MNT/$file")" "${file/\// }"
            [ ! -e "$MNT/$file-absent" ] || fail "$file-absent is there"
        done
        looked=$(($(requests) - before))
        expect_equal "a size" "$(stat -c %s "$MNT/9/9999")" 7
        step "a change, a new file and a removal among them"
        echo changed >>"$MNT/5/5000"
        echo new >"$MNT/5/new"
        rm "$MNT/5/5001"
        weir sync "$MNT"
        expect_equal "an object" "$(cat "$PRE/5/5000")" $'5 5000\nchanged'
        expect_equal "names in a directory" "$(ls "$MNT/5" | wc -l)" 10000
        expect_equal "objects in a directory" "$(ls "$PRE/5" | wc -l)" 10000
        memory=$(peak_kib)
        umount_weir "$MNT"
        counts "$listed requests and $took s for names of $files objects; $attributes for sizes of 10,000; $looked for 300 files; weir-bucket had $((memory >> 10)) MiB"
        # A page of a listing has 1,000 names.
        [ "$listed" -le $((files / 1000 + 2 * directories + 50)) ] || fail "listing asked $listed times"
        [ "$attributes" -le 10500 ] || fail "the sizes of 10,000 objects took $attributes requests"
        # What one is and what it has, for each.
        [ "$looked" -le 650 ] || fail "reading 300 files asked $looked times"
        [ "$memory" -le $(((50 << 10) + files * 5 / 4)) ] || fail "weir-bucket had $memory KiB"
        ;;
    huge)
        truncate -s 1T "$PRE/huge"
        for gib in 0 1 500 1023; do
            printf 'at %4d' "$gib" | dd of="$PRE/huge" bs=1 seek=$((gib << 30)) conv=notrunc status=none
        done
        mount_weir "$SOURCE" "$MNT" --endpoint "$ENDPOINT"
        expect_equal "a size" "$(stat -c %s "$MNT/huge")" $((1 << 40))
        for gib in 500 0 1023 1; do
            expect_equal "what is there" "$(dd if="$MNT/huge" bs=7 iflag=skip_bytes,count_bytes skip=$((gib << 30)) count=7 status=none)" "$(printf 'at %4d' "$gib")"
        done
        expect_equal "its end" "$(tail -c 5 "$MNT/huge" | tr -d '\0' | wc -c)" 0
        down=$(counted store.bytes_down)
        umount_weir "$MNT"
        counts "$down bytes for reads at five places of 1 TiB"
        [ "$down" -le $((64 << 20)) ] || fail "$down bytes were moved for five reads"
        ;;
esac
stop_store
