#!/usr/bin/env bash
# Programs that use their files a few times only stop asking for the lane; a file that is used much keeps it.
source "${REPO:?}/tests/e2e/lib.sh"

weir_only
mount_weir "$SRC" "$MNT"
cat >"$WORK/server.py" <<'END'
"""8 workers that open, write once and close 1,000 files, three times over, and append to a log of the server's."""
import os, sys
at = sys.argv[1]
log = os.open(f"{at}/log", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
os.write(log, b"start\n")
for turn in range(3):
    workers = []
    for worker in range(8):
        pid = os.fork()
        if pid == 0:
            for number in range(worker, 1000, 8):
                fd = os.open(f"{at}/{number}", os.O_RDWR)
                os.pwrite(fd, b"%04d" % (number + turn), 0)
                os.close(fd)
            os._exit(0)
        workers.append(pid)
    for pid in workers:
        if os.waitpid(pid, 0)[1]:
            sys.exit("a worker failed")
for _ in range(1000):
    os.write(log, b"x")
END
for ((number = 0; number < 1000; number++)); do echo "content" >"$MNT/$number"; done

before=$(status "$MNT" lane.entered)
weir run -- python3 "$WORK/server.py" "$MNT"
entered=$(($(status "$MNT" lane.entered) - before))
posted=$(status "$MNT" lane.posted_writes)
# Each of the 3,000 opens entered it before programs learned from their files.
[ "$entered" -le 300 ] || fail "$entered of 3000 short uses entered the lane"
[ "$posted" -ge 900 ] || fail "of 1000 writes to one file only $posted came by the lane"
for number in 0 500 999; do
    expect_equal "file $number" "$(head -c 4 "$MNT/$number")" "$(printf %04d $((number + 2)))"
done
expect_equal "the log" "$(stat -c %s "$MNT/log")" 1006

# New files of a program that is in the lane: its journals are written there from the first byte on; files that are
# written once soon are not put there any more.
cat >"$WORK/new.py" <<'END'
"""Makes 300 files. A journal is written ten times and removed; any other file is written once and kept."""
import os, sys
at, what = sys.argv[1:]
log = os.open(f"{at}/{what}", os.O_RDWR | os.O_CREAT, 0o644)
for _ in range(20):
    os.pwrite(log, b"x", 0)
for number in range(300):
    name = f"{at}/{what}-{number}"
    fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
    for record in range(10 if what == "journal" else 1):
        os.pwrite(fd, b"%4000d" % record, 4000 * record)
    if what == "journal" and os.pread(fd, 50_000, 0) != b"".join(b"%4000d" % record for record in range(10)):
        sys.exit("the journal has another content")
    os.close(fd)
    if what == "journal":
        os.unlink(name)
END
for what in journal once; do
    entered_before=$(status "$MNT" lane.entered) written_before=$(status "$MNT" requests.write)
    weir run -- python3 "$WORK/new.py" "$MNT" "$what"
    entered_new=$(($(status "$MNT" lane.entered) - entered_before))
    written=$(($(status "$MNT" requests.write) - written_before))
    case $what in
        journal) [ "$written" -le 100 ] || fail "$written requests for 3000 writes to 300 journals" ;;
        once) [ "$entered_new" -le 60 ] || fail "$entered_new of 300 files that were written once entered the lane" ;;
    esac
    new="${new:-}, $what: $entered_new of 300 new files entered, $written requests"
done
umount_weir "$MNT"
counts "$entered of 3000 short uses entered the lane; $posted writes came by it$new"
