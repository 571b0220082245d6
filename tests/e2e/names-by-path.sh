#!/usr/bin/env bash
# Files with several names, and without one, where SOURCE knows a file by the name alone by which it was opened (sshfs): a file
# that lost its names while it was open is written home, one that was closed since is not wanted any more, so that the log is
# freed; by another name a file has its content and size at once;
# one that is open by a name that it lost gets further names. A file of which no name is known gets one and loses that: it has its
# former one, what was written to it, and a link. Where names are changed in SOURCE at once, because it has little room or with
# `--names sync`, a file that was linked has what was written to it by any name, also when one of them is gone.
# cases: open closed size link second
# all: size
# homes: sshfs
# A file that had two names before is home when it loses the one by which it was written. A directory in which home keeps removed
# files that are open is removed. What SOURCE cannot have (a FIFO, a socket) is refused at once.
# homes-cases: open closed size link second linked-at-once linked-sync linked-before hidden special
# seconds: 10
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only

options=()
if [ "$1" = second ]; then
    mkdir "$SRC/former" "$SRC/second"
    touch "$SRC"/former/{1..5}
    options=(-o entry_timeout=1,attr_timeout=1)
fi
if [ "$1" = linked-before ]; then
    mkdir "$WORK/remote/d"
    for turn in {1..6}; do
        printf first >"$WORK/remote/d/one$turn"
        ln "$WORK/remote/d/one$turn" "$WORK/remote/two$turn"
    done
fi
names=log
case $1 in
linked-at-once) mount -t tmpfs -o size=64M none "$WORK/remote" ;;
linked-sync) names=sync ;;
esac
mount_weir "$SRC" "$MNT" "${options[@]}" --names "$names" --memory 16M --log-size 1M --dirty-expire 1s
timeout --signal=KILL 100 python3 - "$MNT" "$SRC" "$1" "$WEIR" <<'EOT' || fail "the program failed, or waits for ever: $("$WEIR" status "$MNT" | grep -E '^  (log|errors)')"
import os, stat, subprocess, sys, time

mount, source, case, weir = sys.argv[1:]


def wait_for(what, condition):
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def is_home(name, wanted=True):
    wait_for(f"{name} at home: not {wanted}", lambda: os.path.exists(f"{source}/{name}") == wanted)


def use_log():
    # More than the log holds.
    at = os.open(f"{mount}/other", os.O_RDWR | os.O_CREAT)
    for turn in range(600):
        os.pwrite(at, bytes([turn % 255 + 1]) * 4096, turn % 100 * 4096)
        os.fsync(at)
    os.close(at)


if case == "open":
    at = os.open(f"{mount}/one", os.O_RDWR | os.O_CREAT)
    os.link(f"{mount}/one", f"{mount}/two")
    is_home("two")
    for name in "one", "two":
        os.unlink(f"{mount}/{name}")
        is_home(name, False)
    for turn in range(3):
        os.pwrite(at, b"synced %d" % turn, 5000)
        os.fsync(at)
        use_log()
    assert os.pread(at, 100, 4999) == b"\0synced 2", os.pread(at, 100, 4999)
    os.close(at)
elif case == "closed":
    files = [os.open(f"{mount}/file{turn}", os.O_RDWR | os.O_CREAT) for turn in range(20)]
    for at in files:
        os.pwrite(at, b"synced" * 1000, 0)
        os.fsync(at)
    is_home("file19")
    for turn in range(20):
        os.unlink(f"{mount}/file{turn}")
    is_home("file19", False)
    # The data is home by then, and not synced there.
    time.sleep(3)
    for at in files:
        os.close(at)
    use_log()
elif case == "link":
    at = os.open(f"{mount}/one", os.O_RDWR | os.O_CREAT)
    os.pwrite(at, b"content", 0)
    os.fsync(at)
    os.link(f"{mount}/one", f"{mount}/two")
    is_home("two")
    os.unlink(f"{mount}/one")
    is_home("one", False)
    os.link(f"{mount}/two", f"{mount}/three")
    subprocess.run([weir, "sync", mount], check=True)
    os.rename(f"{mount}/three", f"{mount}/two-again")
    os.unlink(f"{mount}/two")
    os.link(f"{mount}/two-again", f"{mount}/four")
    subprocess.run([weir, "sync", mount], check=True)
    os.fsync(at)
    os.close(at)
    for name in "two-again", "four":
        with open(f"{source}/{name}", "rb") as file:
            assert file.read() == b"content", name
elif case in ("linked-at-once", "linked-sync"):
    os.mkdir(f"{mount}/d")

    def append(name, content):
        with open(name, "ab") as file:
            file.write(content)

    def expect(root):
        for turn in range(20):
            with open(f"{root}/y{turn}", "rb") as file:
                assert (found := file.read()) == b"A" * 48 + b"B" * 24, f"{root}/y{turn}: {found}"

    names = [(f"{mount}/d/x{turn}", f"{mount}/y{turn}") for turn in range(20)]
    for one, _ in names:
        append(one, b"A" * 48)
    for one, other in names:
        os.link(one, other)
    for turn, (one, other) in enumerate(names):
        if turn % 3:
            append(other, b"B" * 24)
        if turn % 2:
            append(f"{mount}/new", b"new")
            os.rename(f"{mount}/new", one)
        else:
            os.unlink(one)
        if turn % 3 == 0:
            append(other, b"B" * 24)
    subprocess.run([weir, "sync", mount], check=True)
    expect(mount)
    expect(source)
elif case == "linked-before":
    for turn in range(1, 7):
        at = os.open(f"{mount}/d/one{turn}", os.O_WRONLY | os.O_APPEND)
        os.write(at, b"second")
        if turn % 2:
            os.fsync(at)
        if turn <= 4:
            os.close(at)
        if turn in (1, 2, 5):
            with open(f"{mount}/new", "w") as new:
                new.write("new")
            os.rename(f"{mount}/new", f"{mount}/d/one{turn}")
        else:
            os.unlink(f"{mount}/d/one{turn}")
        if turn > 4:
            os.write(at, b"third")
            os.close(at)
    subprocess.run([weir, "sync", mount], check=True)
    for turn in range(1, 7):
        # Without the cache of sshfs.
        with open(f"{os.path.dirname(source)}/remote/two{turn}", "rb") as file:
            wanted = b"firstsecond" + (b"third" if turn > 4 else b"")
            assert (found := file.read()) == wanted, f"two{turn}: {found}"
elif case == "hidden":
    # Of a directory that the mount did not make, SOURCE is asked what is in it.
    os.mkdir(f"{os.path.dirname(source)}/remote/early")
    with open(f"{os.path.dirname(source)}/remote/early/file", "wb"):
        pass
    early = os.open(f"{mount}/early/file", os.O_RDONLY)
    os.unlink(f"{mount}/early/file")
    subprocess.run([weir, "sync", mount], check=True)
    assert os.listdir(f"{source}/early")[0].startswith(".fuse_hidden"), os.listdir(f"{source}/early")
    assert os.listdir(f"{mount}/early") == [], os.listdir(f"{mount}/early")
    os.close(early)
    os.mkdir(f"{mount}/d")
    at = os.open(f"{mount}/d/file", os.O_RDWR | os.O_CREAT)
    os.write(at, b"content")
    subprocess.run([weir, "sync", mount], check=True)
    os.unlink(f"{mount}/d/file")
    os.rmdir(f"{mount}/d")
    subprocess.run([weir, "sync", mount], check=True)
    is_home("d", False)
    assert os.pread(at, 10, 0) == b"content"
    os.close(at)
    wait_for("what was hidden is removed", lambda: os.listdir(f"{source}/.weir/parked") == [])
    os.mkdir(f"{mount}/d")
elif case == "special":
    os.mkdir(f"{mount}/d")
    for kind in stat.S_IFIFO, stat.S_IFSOCK:
        for root in source, f"{mount}/d":
            try:
                os.mknod(f"{root}/special", kind | 0o600)
                raise AssertionError(f"{root} has a FIFO or socket")
            except PermissionError:
                pass
    # Nothing is left that SOURCE would refuse.
    subprocess.run([weir, "sync", mount], check=True)
    assert os.listdir(f"{mount}/d") == []
elif case == "second":
    files = {name: os.open(f"{mount}/former/{name}", os.O_RDWR) for name in os.listdir(f"{mount}/former")}
    # Until their names are forgotten.
    time.sleep(5)
    for name, at in files.items():
        os.link(f"/proc/self/fd/{at}", f"{mount}/second/{name}", src_dir_fd=at, follow_symlinks=True)
    subprocess.run([weir, "sync", mount], check=True)
    for name, at in files.items():
        os.pwrite(at, b"written", 0)
        os.close(at)
        os.unlink(f"{mount}/second/{name}")
        assert os.stat(f"{mount}/former/{name}").st_nlink == 1, f"{name}: links"
    subprocess.run([weir, "sync", mount], check=True)
    for root in mount, source:
        for name in files:
            with open(f"{root}/former/{name}", "rb") as file:
                assert file.read() == b"written", f"{root}, {name}"
else:
    for turn in range(10):
        one, two = f"{turn}-one", f"{turn}-two"
        with open(f"{mount}/{one}", "wb") as file:
            file.write(b"before" * 20000)
        subprocess.run([weir, "sync", mount], check=True)
        os.link(f"{mount}/{one}", f"{mount}/{two}")
        is_home(two)
        assert os.stat(f"{source}/{two}").st_size == 120000
        # Before SOURCE is asked for the size by the second name again.
        content = b"after" * (1000 if turn % 2 else 40000)
        os.truncate(f"{mount}/{one}", 0)
        with open(f"{mount}/{one}", "r+b") as file:
            file.write(content)
            os.fsync(file.fileno())
        os.unlink(f"{mount}/{one}")
        is_home(one, False)
        assert os.stat(f"{mount}/{two}").st_size == len(content), f"size {os.stat(f'{mount}/{two}').st_size}, not {len(content)}"
        with open(f"{mount}/{two}", "rb") as file:
            assert file.read() == content, f"{two}: content"
EOT
expect_status "$MNT" stats.destage_errors 0
expect_status "$MNT" stats.sync_errors 0
umount_weir "$MNT"
[ "$1" != linked-at-once ] || umount -l "$WORK/remote"
if [ "$1" = size ]; then
    for turn in 1 3; do
        expect_equal "$turn-two" "$(head -c 10 "$SRC/$turn-two") $(stat -c %s "$SRC/$turn-two")" "afterafter 5000"
    done
fi
