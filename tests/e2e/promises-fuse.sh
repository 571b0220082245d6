#!/usr/bin/env bash
# What the FUSE side promises: reads after asynchronous direct writes, permissions of what appears behind the mount, limits
# of descriptors, space and memory, and the bits that a write takes away.
# timeout: 60
# cases: reads-after-asynchronous-writes reads-after-asynchronous-writes-under-run permission-of-what-appeared set-group-ID-goes
source "${REPO:?}/tests/e2e/lib.sh"
weir_only

# Asynchronous direct writes against buffered readers: by AIO and by io_uring.
reads_after_asynchronous_writes() {
    local way
    need_command cc
    cc -O2 -w -pthread -o "$WORK/stale" "$SUPPORT/stale.c"
    mount_weir "$SRC" "$MNT"
    for way in aio uring; do
        "$@" "$WORK/stale" "$way" "$MNT/file-$way" 3 >"$WORK/said" || fail "by $way: $(cat "$WORK/said")"
        counts "$(cat "$WORK/said")"
    done
    umount_weir "$MNT"
}

case ${1:?} in
reads-after-asynchronous-writes)
    reads_after_asynchronous_writes
    ;;
reads-after-asynchronous-writes-under-run)
    reads_after_asynchronous_writes "$WEIR" run --
    ;;
permission-of-what-appeared)
    need_root
    chmod 755 "$WORK"
    mkdir -m 777 "$SRC/open"
    cat >"$WORK/create.py" <<'EOF'
import os, sys
directory, source, secret = sys.argv[1:]
# The kernel is told that the names are missing, and relies on it.
for name in ("secret", "shared", "acl"):
    assert not os.path.exists(f"{directory}/{name}")
print("looked", flush=True)
sys.stdin.readline()
for name in ("secret", "acl"):
    for flags in (os.O_RDWR, os.O_RDONLY, os.O_WRONLY | os.O_TRUNC):
        try:
            file = os.open(f"{directory}/{name}", flags | os.O_CREAT, 0o600)
        except PermissionError:
            continue
        sys.exit(f"{name} was opened with {flags:#o}: {os.pread(file, 9, 0) if flags == os.O_RDONLY else ''}")
try:
    os.open(f"{directory}/secret", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
except FileExistsError:
    pass
else:
    sys.exit("created what is there")
file = os.open(f"{directory}/shared", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
os.write(file, b"new")
assert os.pread(file, 9, 0) == b"new"
EOF
    mount_weir "$SRC" "$MNT" --allow-other -o negative_timeout=60
    # The kernel looks again and checks, although it was told that the name is missing.
    coproc USER { as_user nobody python3 "$WORK/create.py" "$MNT/open" "$SRC/open" secret; }
    user=$USER_PID
    read -r _ <&"${USER[0]}"
    for name in secret shared acl; do
        echo old >"$WORK/$name" && chmod 600 "$WORK/$name"
    done
    chmod 666 "$WORK/shared" "$WORK/acl"
    if setfacl -m u:nobody:- "$WORK/acl" 2>/dev/null; then :; else chmod 600 "$WORK/acl"; fi
    mv "$WORK/secret" "$WORK/shared" "$WORK/acl" "$SRC/open"
    echo >&"${USER[1]}"
    wait "$user" || fail "opened against its permissions, or not opened"
    expect_equal "the secret" "$(cat "$SRC/open/secret")" old
    umount_weir "$MNT"
    expect_equal "the shared file" "$(cat "$SRC/open/shared")" new
    ;;
set-group-ID-goes)
    need_root
    chmod 755 "$WORK"
    loop_filesystem "$WORK/image" 64M "$WORK/ext4" mkfs.ext4 -q
    chmod 777 "$WORK/ext4"
    mkdir "$WORK/ext4/src" "$WORK/ext4/beside"
    mount_weir "$WORK/ext4/src" "$MNT" --allow-other
    cat >"$WORK/change.py" <<'EOF'
import os, sys
way, path = sys.argv[1:]
if way == "truncate":
    os.truncate(path, 1)
    sys.exit()
file = os.open(path, os.O_RDWR)
if way == "write":
    os.write(file, b"x")
elif way == "append":
    os.pwrite(file, b"x", 10000)
else:
    os.posix_fallocate(file, 0, 10000)
EOF
    for mode in 2666 2676 6666 6777; do
        for way in write append truncate fallocate; do
            for who in outside member; do
                groups=--clear-groups
                if [ "$who" = member ]; then groups=--groups=4321; fi
                for directory in "$WORK/ext4/beside" "$MNT"; do
                    file=$directory/$mode-$way-$who
                    echo text >"$file"
                    chown 0:4321 "$file"
                    chmod "$mode" "$file"
                    setpriv --reuid=nobody --regid=nogroup "$groups" --inh-caps=-all \
                        python3 "$WORK/change.py" "$way" "$file"
                done
            done
        done
    done
    for file in "$WORK"/ext4/beside/*; do
        name=$(basename "$file")
        expect_equal "mode after $name" "$(stat -c %a "$MNT/$name")" "$(stat -c %a "$file")"
    done
    expect_equal "mode of a file written by somebody outside its group" "$(stat -c %a "$MNT/2666-write-outside")" 666
    umount_weir "$MNT"
    umount "$WORK/ext4"
    ;;
*) fail "no such case: $1" ;;
esac
