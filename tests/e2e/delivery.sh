#!/usr/bin/env bash
# Mail is delivered into directories that SOURCE had before: each file is created, synced, linked and unlinked while the
# threads that bring names home are at work on the same directories. And what a new file shows is what was set of it.
# cases: behind log
# seconds: 8
source "${REPO:?}/tests/e2e/lib.sh"

COUNT=2000
mkdir "$SRC/tmp" "$SRC/new" "$SRC/cur"
mount_weir "$SRC" "$MNT" --names "$1"
python3 "$SUPPORT/deliver.py" "$MNT" $COUNT || fail "a delivery failed"
umount_weir "$MNT"
[ "$(find "$SRC/new" -type f | wc -l)" = $COUNT ] || fail "not all mail is in SOURCE"
[ -z "$(ls "$SRC/tmp")" ] || fail "something is left in tmp"
for number in 0 7 1999; do
    expect_equal "mail $number" "$(cat "$SRC/new/$number")" "mail $number"
done
expect_equal "size" "$(stat -c %s "$SRC/cur/99")" 100
expect_equal "time" "$(stat -c %Y "$SRC/cur/99")" 1000000099
