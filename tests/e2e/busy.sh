#!/usr/bin/env bash
# weir umount of a mount in use: the mount stays, the programs are named, and nothing is lost. With --force it is unmounted,
# and all data that could be written home is home.
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
pages=4096
python3 "$SUPPORT/patches.py" cold "$SRC/file" "$pages" 1
mount_weir "$SRC" "$MNT" --fetch lazy
python3 - "$MNT/open" "$WORK/go" <<'END' &
import os, sys, time
file = open(sys.argv[1], "wb", buffering=0)
file.write(b"before")
while not os.path.exists(sys.argv[2]):
    time.sleep(0.05)
try:
    file.write(b"after")
    os.fsync(file.fileno())
except OSError:
    sys.exit(3)
END
program=$!
soon filled "$MNT/open" || fail "the program did not begin"
python3 "$SUPPORT/patches.py" write "$MNT/file" "$pages" 2 >/dev/null

step "refused"
expect_failure "$program" "$WEIR" umount "$MNT"
is_mounted "$MNT" || fail "a mount in use is gone"
python3 "$SUPPORT/patches.py" verify "$MNT/file" "$pages" 1 2
echo usable >"$MNT/still"

step "forced"
"$WEIR" umount --force "$MNT" || true
if is_mounted "$MNT"; then fail "still mounted after --force"; fi
touch "$WORK/go"
status=0
wait "$program" || status=$?
expect_equal "what the program was told" "$status" 3
expect_home_soon "$SRC/open" before
expect_home_soon "$SRC/still" usable
python3 "$SUPPORT/patches.py" verify "$SRC/file" "$pages" 1 2
expect_equal "the open file" "$(cat "$SRC/open")" before

step "unmounted from a path inside, and with a working directory inside"
mount_weir "$SRC" "$MNT"
mkdir "$MNT/directory"
expect_failure "" bash -c "cd '$MNT/directory' && '$WEIR' umount '$MNT'"
"$WEIR" umount "$MNT/directory" || fail "weir umount of a path inside said $?"
if is_mounted "$MNT"; then fail "still mounted"; fi
[ -d "$SRC/directory" ] || fail "the directory is not home"
counts "refused, forced, and by a path inside"
