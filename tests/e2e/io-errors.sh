#!/usr/bin/env bash
# A disk that fails under dirty data: the next fsync reports it once for each open description, nothing is lost or
# becomes clean, and when the disk works again everything goes home.
# The disk is a loop device whose backing file has lost its blocks (case write, on a full tmpfs) or its
# end (case read). Without a redo log, by which an fsync would succeed.
# closed: a sync of home fails over a file that no program has open. It is dirty again, and is written again when a program has
# read it meanwhile; its times at home, which writing it there changes, do not make Weir drop it.
# session: the same as write, in a session (`--sync external`), whose supervisor closes nothing by which an error is told.
# cases: write read closed session
source "${REPO:?}/tests/e2e/lib.sh"

need_root
need_filesystem ext4
need_command mkfs.ext4 fallocate
weir_only
pages=2048
within=()
if [ "$1" = session ]; then
    within=("$WEIR" run --sync external --)
    set -- write
fi

mkdir "$WORK/memory"
mount -t tmpfs -o size=128M none "$WORK/memory"
image=$WORK/memory/image
# No journal: its failure would take the whole file system with it.
loop_filesystem "$image" 64M "$WORK/disk" mkfs.ext4 -q -b 4096 -m 0 -O ^has_journal -E lazy_itable_init=0,nodiscard
source=$WORK/disk/source
mkdir "$source"

if [ "$1" != read ]; then
    # Zeros on the disk, then a hole in its backing file: reads work, writes need space that tmpfs does not have.
    dd if=/dev/zero of="$source/cold" bs=1M count=8 conv=fsync status=none
    head -c 300 /dev/zero >"$source/victim"
    sync
    fallocate --dig-holes "$image"
    mount_weir "$source" "$MNT" --log none --fetch lazy --dirty-expire "$([ "$1" = write ] && echo 1s || echo 5s)"
    if [ "$1" = closed ]; then
        # Known to the kernel, and not open: other tests have the kernel forget what it need not know, and Weir forgets that, too.
        python3 -c 'import os, sys, time; os.open(sys.argv[1], os.O_PATH); open(sys.argv[2], "w").close(); time.sleep(60)' "$MNT/victim" "$WORK/held" &
        holder=$!
        soon exists "$WORK/held" || fail "the file is not held"
    fi
    # In memory, and durable.
    python3 -c 'import os, sys; at = os.open(sys.argv[1], os.O_RDWR); os.read(at, 300); os.fsync(at)' "$MNT/victim"
    dd if=/dev/zero of="$WORK/memory/ballast" bs=64K status=none 2>/dev/null || true
    heal() { rm "$WORK/memory/ballast"; }
    python3 - "$WORK/zeros" <<'END'
import sys
open(sys.argv[1], "wb").write(bytes(8 << 20))
END
else
    python3 "$SUPPORT/patches.py" cold "$source/cold" "$pages" 1
    sync
    umount "$WORK/disk"
    mount -o loop "$image" "$WORK/disk"
    stat "$source/cold" >/dev/null
    mount_weir "$source" "$MNT" --log none --fetch lazy --dirty-expire 300s
    # What home still has to write goes to the whole disk: a late write of its own would lengthen the shortened image.
    sync -f "$source"
    cp --sparse=always "$image" "$WORK/memory/whole"
    end=$(filefrag -v "$source/cold" | awk '$1 == "0:" { sub(/\.\./, "", $4); print ($4 + 64) * 4096 }')
    [ -n "$end" ] || fail "cannot tell where the file is"
    truncate -s "$end" "$image"
    heal() { dd if="$WORK/memory/whole" of="$image" conv=notrunc bs=4096 skip="$((end / 4096))" seek="$((end / 4096))" status=none; }
fi

dirty_pages() { "$WEIR" status "$MNT" --json | python3 "$SUPPORT/field.py" dirty_pages; }
if [ "$1" = closed ]; then
    python3 -c 'import sys; open(sys.argv[1], "r+b").write(b"V" * 300)' "$MNT/victim"
    is_clean() { [ "$(dirty_pages)" -eq 0 ]; }
    soon is_clean || fail "the file does not go home"
    # Less than a page goes through the page cache of SOURCE's file system, which has it now and cannot write it.
    expect_failure "" "$WEIR" sync "$MNT"
    expect_equal "dirty pages after a sync of home that failed" "$(dirty_pages)" 1
    touch "$source/victim"
    expect_equal "what a program reads" "$(head -c 2 "$MNT/victim")" VV
    heal
    kill "$holder"
    wait "$holder" || true
    # The file system may have failed to write its own metadata meanwhile: it reports that to the next sync, once.
    "$WEIR" sync "$MNT" || "$WEIR" sync "$MNT" || fail "weir sync fails although the disk works again"
    "$WEIR" umount "$MNT"
    umount_soon "$WORK/disk"
    mount -o loop "$image" "$WORK/disk"
    expect_equal "bytes on the disk after a sync" "$(head -c 300 "$source/victim" | tr -d '\0' | wc -c)" 300
    umount "$WORK/disk" "$WORK/memory"
    exit
fi

"${within[@]}" python3 "$SUPPORT/failing.py" "$MNT/cold" "$1" "$pages" "$WORK/broken" "$WORK/healed" &
program=$!
told_or_ended() { exists "$WORK/broken" || ended "$program"; }
soon told_or_ended || true
[ -e "$WORK/broken" ] || { wait "$program" || true; fail "the failure was not told"; }
step "status while the disk fails"
"$WEIR" status "$MNT" --json >"$WORK/status.json"
if [ "$1" = write ]; then field=destage_errors; else field=fetch_errors; fi
errors=$(python3 "$SUPPORT/field.py" "$field" <"$WORK/status.json")
dirty=$(python3 "$SUPPORT/field.py" dirty_pages <"$WORK/status.json")
[ "$errors" -gt 0 ] || fail "status shows no $field"
[ "$dirty" -gt 0 ] || fail "nothing is dirty any more though nothing went home"
expect_failure "" "$WEIR" sync "$MNT"
expect_failure "" "$WEIR" umount "$MNT"
is_mounted "$MNT" || fail "weir umount has given up a mount with data that is not home"
step "the disk works again"
heal
touch "$WORK/healed"
wait "$program" || fail "after the disk worked again"
# The file system may have failed to write its own metadata meanwhile: it reports that to the next sync, once.
if ! "$WEIR" umount "$MNT" 2>"$WORK/said"; then
    grep -q 'could not make all of it durable' "$WORK/said" || fail "weir umount: $(cat "$WORK/said")"
    umount_weir "$MNT"
fi
drop_caches
python3 "$SUPPORT/failing.py" "$source/cold" "verify-$1" "$pages" x x || fail "what is home is not what was written"
counts "$errors errors, $dirty pages kept and then home"
umount "$WORK/disk" "$WORK/memory"
