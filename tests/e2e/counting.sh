#!/usr/bin/env bash
# Counts fetches, waits and avoided fetches of small writes to cold pages, for each fetch policy.
# cases: lazy blocking async-fg async-bg pieces unlink truncate inside-patches
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
pages=16384
writes=1000
file=$MNT/cold
write() { python3 "$SUPPORT/patches.py" write "$file" "$pages" 2 --count "$writes" "$@"; }
verify() { python3 "$SUPPORT/patches.py" verify "$SRC/cold" "$pages" 1 2 --count "$writes" "$@"; }
settle() {
    soon status_is "$MNT" fetches_in_flight 0 || fail "fetches are still in flight after a minute"
}
python3 "$SUPPORT/patches.py" cold "$SRC/cold" "$pages" 1
drop_caches

case $1 in
    lazy | blocking | async-fg | async-bg) policy=$1 ;;
    *) policy=lazy ;;
esac
mount_weir "$SRC" "$MNT" --fetch "$policy" --dirty-expire 300s

case $1 in
    lazy)
        expect_equal "writes made" "$(write)" "$writes"
        expect_status "$MNT" patch_writes "$writes"
        expect_status "$MNT" patched_pages "$writes"
        expect_status "$MNT" fetched_pages 0
        expect_status "$MNT" writers_blocked_fetch 0
        expect_status "$MNT" dirty_pages "$writes"
        "$WEIR" sync "$MNT"
        expect_status "$MNT" dirty_pages 0
        expect_status "$MNT" patched_pages 0
        expect_status "$MNT" fetched_pages "$writes"
        counts "$writes writes: 0 fetches and 0 waits before the sync"
        ;;
    blocking)
        write >/dev/null
        expect_status "$MNT" writers_blocked_fetch "$writes"
        expect_status "$MNT" fetched_pages "$writes"
        expect_status "$MNT" patched_pages 0
        # The pages are in memory now: no write waits any more.
        write >/dev/null
        expect_status "$MNT" writers_blocked_fetch "$writes"
        counts "$writes writes: $writes waits; as many again: none"
        ;;
    async-*)
        write >/dev/null
        expect_status "$MNT" writers_blocked_fetch 0
        settle
        # A page between two others may have been read with them before it was written, and then needs no fetch of its
        # own. How many depends on the measured cost of the disk's reads.
        patched=$(status "$MNT" stats.patch_writes)
        fetched=$(status "$MNT" stats.fetched_pages)
        along=$(status "$MNT" stats.gap_pages)
        [ "$fetched" -gt 0 ] || fail "no fetches for $writes writes"
        [ "$fetched" -le "$patched" ] && [ "$((fetched + along))" -ge "$patched" ] ||
            fail "$patched patched pages, but $fetched fetched and $along read along"
        expect_status "$MNT" patched_pages 0
        counts "$writes writes: $fetched fetches, $along pages read along, 0 waits"
        ;;
    pieces)
        write --pieces 8 >/dev/null
        expect_status "$MNT" fetched_pages 0
        expect_status "$MNT" writers_blocked_fetch 0
        expect_status "$MNT" patched_pages 0
        expect_status "$MNT" fetches_avoided "$writes"
        "$WEIR" sync "$MNT"
        expect_status "$MNT" fetched_pages 0
        counts "$writes pages overwritten in 8 pieces each: 0 fetches"
        ;;
    unlink)
        write >/dev/null
        rm "$file"
        "$WEIR" sync "$MNT"
        expect_status "$MNT" fetched_pages 0
        expect_status "$MNT" patched_pages 0
        expect_status "$MNT" dirty_pages 0
        expect_status "$MNT" patch_bytes 0
        expect_status "$MNT" fetches_avoided "$writes"
        counts "$writes patched pages unlinked: 0 fetches"
        ;;
    truncate)
        write >/dev/null
        truncate -s 0 "$file"
        "$WEIR" sync "$MNT"
        expect_status "$MNT" fetched_pages 0
        expect_status "$MNT" dirty_pages 0
        counts "$writes patched pages cut off: 0 fetches"
        ;;
    inside-patches)
        write --direct --read-back >/dev/null
        expect_status "$MNT" fetched_pages 0
        expect_status "$MNT" writers_blocked_fetch 0
        expect_status "$MNT" patched_pages "$writes"
        counts "$writes reads of what was just written: 0 fetches"
        ;;
esac
umount_weir "$MNT"
drop_caches
case $1 in
    pieces) verify --pieces 8 ;;
    unlink) [ ! -e "$SRC/cold" ] || fail "the unlinked file is back" ;;
    truncate) expect_equal "size" "$(stat -c %s "$SRC/cold")" 0 ;;
    *) verify ;;
esac
