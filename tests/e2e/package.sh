#!/usr/bin/env bash
# The package, made of the given command, and what an administrator does with it.
# files: what is in package and tarball; lintian; the unit by systemd-analyze; man pages, completions and the example of a
#   configuration, all of whose lines are valid;
# service: the daemon tells a service manager when the mount answers, what there is to do, that it lives, and asks for time while data
#   goes home; programs that it starts do not get the socket;
# debian: in a clean Debian tree: four commands from nothing to a program whose syncs do not wait; `weir doctor` asked, mounted by a line of
#   fstab, upgraded and removed with the mount active, purged with a redo log that holds data. No byte is lost;
# boot: systemd boots that tree: weir@.service serves programs of several users under its restrictions, stops with everything home, and
#   is there again after its daemon was killed, with what was synced.
# static: the tarball's command, built as for `make package`, in a tree that has nothing else
# cases: files service debian boot
# long-cases: static
# timeout: 300
# serial: debian boot
# seconds: 45
# all: boot service files debian
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
PACKAGES=$WORK/packages
TREE=$WORK/tree

# The package and the tarball; REVISION counts up for upgrades. All are staged in the same place, one after the other.
make_package() {
    (cd "$REPO" && WEIR=$WEIR BUCKET=$WEIR_BUCKET STATIC=${STATIC:-$WEIR} REVISION=$1 FAST=1 flock target/package.lock scripts/package "$PACKAGES") >"$WORK/made" 2>&1 || { cat "$WORK/made"; fail "scripts/package"; }
    PACKAGE=$(grep '/weir_[^/]*\.deb$' "$WORK/made")
    BUCKET_PACKAGE=$(grep '/weir-bucket_[^/]*\.deb$' "$WORK/made")
    TARBALL=$(grep '\.tar\.gz$' "$WORK/made")
}

is_listed() { grep -qF "$1" /proc/self/mounts; }

need_packages() {
    [ -x "$TOOLS/bin/cargo-deb" ] || skip "there is no cargo-deb: run 'make setup'"
    [ -e "$(dirname "$WEIR")/libweir_preload.so" ] || skip "the library of 'weir run' is not beside $WEIR"
    [ -x "${WEIR_BUCKET:?}" ] || skip "$WEIR_BUCKET is not built: run 'make checked'"
}

if [ "$1" = static ]; then
    need_packages
    need_command readelf
    (cd "$REPO" && RUSTFLAGS="-C target-feature=+crt-static" cargo build -q --locked --profile checked --target x86_64-unknown-linux-gnu -p weir)
    STATIC=$REPO/target/x86_64-unknown-linux-gnu/checked/weir make_package 1
    mkdir "$TREE"
    tar -C "$TREE" --strip-components=1 -xf "$TARBALL"
    ! readelf -lW "$TREE/bin/weir" | grep INTERP || fail "the command needs a loader"
    chroot "$TREE" /bin/weir --version
    mkdir "$TREE"/{source,mount}
    "$TREE/bin/weir" mount --config /dev/null "$TREE/source" "$TREE/mount"
    printf kept >"$TREE/mount/file"
    "$TREE/bin/weir" umount "$TREE/mount"
    expect_equal "written by way of it" "$(cat "$TREE/source/file")" kept
    # Names of users are looked up without the system's library, too.
    "$TREE/bin/weir" mount --config /dev/null --lane-users root,nobody "$TREE/source" "$TREE/mount"
    "$TREE/bin/weir" umount "$TREE/mount"
    exit
fi

if [ "$1" = files ]; then
    need_packages
    need_command dpkg-deb lintian systemd-analyze man
    make_package 1
    dpkg-deb -x "$PACKAGE" "$WORK/unpacked"
    dpkg-deb -c "$PACKAGE" | awk '{ print $6 }' | sort >"$WORK/list"
    for path in usr/bin/weir usr/sbin/mount.fuse.weir usr/lib/weir/libweir_preload.so usr/lib/libweir.a usr/include/weir.h \
        usr/lib/systemd/system/weir@.service etc/weir.toml usr/share/man/man1/weir.1.gz usr/share/man/man1/weir-mount.1.gz \
        usr/share/man/man8/mount.fuse.weir.8.gz usr/share/bash-completion/completions/weir \
        usr/share/zsh/vendor-completions/_weir usr/share/fish/vendor_completions.d/weir.fish \
        usr/share/doc/weir/examples/fuse-over-io-uring.conf usr/share/doc/weir/copyright; do
        grep -qx "./$path" "$WORK/list" || fail "the package has no $path"
    done
    if grep -q 'modprobe\.d' "$WORK/list"; then fail "the package changes the module fuse"; fi
    dpkg-deb -e "$PACKAGE" "$WORK/control"
    expect_equal "conffiles" "$(sort "$WORK/control/conffiles" | tr '\n' ' ')" "/etc/needrestart/conf.d/weir.conf /etc/weir.toml "
    grep -q '^Depends:.*libc6' "$WORK/control/control" || fail "it does not depend on the C library"
    "$WORK/unpacked/usr/bin/weir" --version

    step "the tarball has the same programs"
    mkdir "$WORK/prefix"
    tar -C "$WORK/prefix" --strip-components=1 -xf "$TARBALL"
    for file in bin/weir lib/weir/libweir_preload.so lib/libweir.a include/weir.h share/man/man1/weir-run.1.gz; do
        cmp "$WORK/prefix/$file" "$WORK/unpacked/usr/$file" || fail "$file differs in the tarball"
    done
    "$WORK/prefix/bin/weir" doctor --json >"$WORK/doctor" || true
    grep -q "its library is $WORK/prefix/lib/weir" "$WORK/doctor" || fail "its 'weir run' does not find its library"
    for licence in LICENSE-APACHE LICENSE-MIT; do cmp "$REPO/$licence" "$WORK/prefix/share/licenses/weir/$licence"; done

    step "the program that serves buckets has a package of its own"
    expect_equal "programs of weir-bucket" "$(dpkg-deb -c "$BUCKET_PACKAGE" | awk '/bin\/./ { print $6 }')" ./usr/bin/weir-bucket
    if grep bucket "$WORK/list"; then fail "it is in the package weir, too"; fi
    dpkg-deb -f "$BUCKET_PACKAGE" Depends | grep -qE '(^|, )weir(,|$)' || fail "weir-bucket does not depend on weir"
    "$WORK/prefix/bin/weir-bucket" --version

    step "lintian"
    lintian --allow-root --fail-on error --no-tag-display-limit "$PACKAGE" "$BUCKET_PACKAGE" || fail "lintian has errors"

    step "the unit"
    mkdir "$WORK/units"
    sed "s|/usr/bin/weir|$WEIR|" "$WORK/unpacked/usr/lib/systemd/system/weir@.service" >"$WORK/units/weir@mnt-data.service"
    systemd-analyze verify --man=no "$WORK/units/weir@mnt-data.service" >"$WORK/verified" 2>&1 ||
        fail "systemd-analyze verify: $(cat "$WORK/verified")"
    expect_equal "what systemd-analyze says of the unit" "$(grep weir@ "$WORK/verified" || true)" ""
    systemd-analyze security --offline=true --no-pager "$WORK/units/weir@mnt-data.service" >"$WORK/security" 2>&1 || true
    exposure=$(sed -n 's/.*Overall exposure level for [^:]*: \([0-9.]*\).*/\1/p' "$WORK/security")
    [ -n "$exposure" ] || fail "systemd-analyze security: $(cat "$WORK/security")"
    awk -v is="$exposure" 'BEGIN { exit !(is <= 6.0) }' || fail "the exposure is $exposure: $(cat "$WORK/security")"

    step "man pages and completions"
    # Of the shell's own list of commands each has a page, and the page renders without a complaint.
    for page in "$WORK"/unpacked/usr/share/man/man*/*.gz; do
        MANWIDTH=120 LC_ALL=C.UTF-8 man --warnings -l "$page" >"$WORK/page" 2>"$WORK/warned" || fail "man cannot show $page"
        [ ! -s "$WORK/warned" ] || fail "$(basename "$page"): $(head -3 "$WORK/warned")"
        [ -s "$WORK/page" ] || fail "$page is empty"
    done
    MANWIDTH=120 LC_ALL=C.UTF-8 man -l "$WORK/unpacked/usr/share/man/man1/weir-mount.1.gz" >"$WORK/page"
    # shellcheck disable=SC2013 # words of options
    for option in $("$WEIR" mount --help | grep -o -- '^ *\(-., \)*--[a-z-]*' | grep -o -- '--[a-z-]*'); do
        grep -q -- "$option" "$WORK/page" || fail "the manual lacks $option"
    done
    cat >"$WORK/complete" <<'END'
source "$1"
COMP_WORDS=(weir mount --dirty-e) COMP_CWORD=2 COMPREPLY=()
_weir weir --dirty-e mount
printf '%s\n' "${COMPREPLY[@]}"
END
    expect_equal "what bash completes" "$(bash "$WORK/complete" "$WORK/unpacked/usr/share/bash-completion/completions/weir")" --dirty-expire

    step "each line of the example is valid"
    lines=0
    while read -r line; do
        case $line in '#record'* | '#[mount'*) continue ;; esac
        printf '%s\n' "${line#\#}" >"$WORK/weir.toml"
        # Inside the table of a mount point.
        case $line in '#source'*) printf '[mount."/mnt/data"]\n%s\n' "${line#\#}" >"$WORK/weir.toml" ;; esac
        # Policies exclude each other's settings, and some need others.
        case $line in
            '#dirty-background'*) echo 'write-back = "static"' >>"$WORK/weir.toml" ;;
            '#commit'*) echo 'order = "all"' >>"$WORK/weir.toml" ;;
            '#lane-users'*) printf 'lane-users = "nobody"\nallow-other = true\n' >"$WORK/weir.toml" ;;
        esac
        "$WEIR" mount --config "$WORK/weir.toml" "$SRC" "$WORK/nowhere" >"$WORK/said" 2>&1 || true
        grep -q "MOUNTPOINT $WORK/nowhere does not exist" "$WORK/said" || fail "'$line': $(cat "$WORK/said")"
        lines=$((lines + 1))
    done < <(grep '^#[a-z-]* = ' "$WORK/unpacked/etc/weir.toml")
    [ "$lines" -gt 15 ] || fail "only $lines lines"
    counts "$(wc -l <"$WORK/list") files, exposure $exposure, $lines settings"
fi

if [ "$1" = service ]; then
    NOTES=$WORK/notes
    told() { grep -q -- "$1" "$NOTES" 2>/dev/null; }
    start() {
        rm -f "$NOTES" "$WORK/socket"
        python3 "$SUPPORT/service_manager.py" "$NOTES" "$1" 3 "${@:2}" "$WEIR" mount --foreground --log-file "$DAEMON_LOG" \
            "$SRC" "$MNT" &
        MANAGER=$!
        soon told ' main READY=1' || fail "it does not say that the mount answers"
        is_mounted "$MNT" || fail "it says that the mount answers before it is there"
    }
    step "ready, alive, and its end"
    start "$WORK/socket"
    echo content >"$MNT/file"
    pings() { [ "$(grep -c ' main .*WATCHDOG=1' "$NOTES")" -gt 3 ]; }
    soon pings || fail "it does not say that it lives"
    kill "$MANAGER"
    wait "$MANAGER" || fail "it ended with $?"
    told ' main STOPPING=1' || fail "it does not say that it ends: $(cat "$NOTES")"
    if grep -v ' main ' "$NOTES"; then fail "another process told the manager something"; fi
    expect_equal "the file" "$(cat "$SRC/file")" content

    step "time while data goes home"
    need_command sshfs
    mkdir "$WORK/remote"
    sshfs "server:$WORK/remote" "$SRC" \
        -o "ssh_command=${WEIR_BENCH:?} relay --delay-us 20000 --directory $WORK/remote --server /usr/lib/openssh/sftp-server --"
    start "@weir-test-$$"
    for ((i = 0; i < 60; i++)); do echo "$i" >"$MNT/file$i"; done
    kill "$MANAGER"
    wait "$MANAGER" || fail "it ended with $?"
    grep STOPPING=1 -A 1000 "$NOTES" >"$WORK/after"
    grep -q EXTEND_TIMEOUT_USEC=30000000 "$WORK/after" || fail "it does not ask for time: $(cat "$NOTES")"
    grep -q 'STATUS=.*names to bring home\|STATUS=.*to bring home' "$WORK/after" || fail "it does not say what is left: $(cat "$NOTES")"
    expect_equal "files at home" "$(ls "$WORK/remote" | wc -l)" 60
    umount "$SRC"

    step "programs that it starts do not get the socket"
    mkdir "$WORK/bin" "$WORK/run-nobody"
    printf '#!/bin/sh\nenv >>%s/environment\nexec %s "$@"\n' "$WORK" "$(command -v fusermount3)" >"$WORK/bin/fusermount3"
    chmod 755 "$WORK/bin/fusermount3"
    : >"$WORK/environment"
    touch "$DAEMON_LOG"
    chown nobody "$SRC" "$MNT" "$WORK/run-nobody" "$WORK/environment" "$DAEMON_LOG"
    chmod 700 "$WORK/run-nobody"
    start "$WORK/socket" setpriv --reuid=nobody --regid=nogroup --clear-groups --inh-caps=-all \
        env HOME="$WORK" XDG_RUNTIME_DIR="$WORK/run-nobody" PATH="$WORK/bin:$PATH"
    kill "$MANAGER"
    wait "$MANAGER" || fail "it ended with $?"
    grep -q '^PATH=' "$WORK/environment" || fail "it did not use fusermount3"
    if grep 'NOTIFY_SOCKET\|WATCHDOG_USEC' "$WORK/environment"; then fail "fusermount3 gets the socket"; fi
    counts "$(grep -c WATCHDOG=1 "$NOTES") times alive"
fi

if [ "$1" = debian ]; then
    need_packages
    [ -e "$TOOLS/debian.tar" ] || skip "there is no Debian tree: run 'make setup'"
    if [ -z "${IN_NAMESPACE:-}" ]; then
        # All mounts and processes below end with it.
        exec unshare --mount --pid --fork --kill-child --propagation private env IN_NAMESPACE=1 "$0" "$@"
    fi
    mount -t proc proc /proc
    make_package 1
    first=$PACKAGE
    make_package 2
    second=$PACKAGE
    mkdir "$TREE"
    tar -C "$TREE" -xf "$TOOLS/debian.tar"
    mount -t proc proc "$TREE/proc"
    mount -t tmpfs none "$TREE/dev"
    for device in null zero urandom fuse; do
        : >"$TREE/dev/$device"
        mount --bind "/dev/$device" "$TREE/dev/$device"
    done
    mkdir "$TREE/packages"
    cp "$first" "$second" "$TREE/packages/"
    inside() {
        chroot "$TREE" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LC_ALL=C DEBIAN_FRONTEND=noninteractive \
            WEIR_TEST_MARK="${WEIR_TEST_MARK:-}" "$@"
    }
    dpkg_of() { inside dpkg "$1" "$2" >"$WORK/said" 2>&1 || { cat "$WORK/said"; fail "dpkg $*"; }; }
    said() { grep -q -- "$1" "$WORK/said" || fail "it does not say '$1': $(cat "$WORK/said")"; }
    daemon() { inside sh -c 'for p in /proc/[0-9]*; do [ "$(cat $p/comm 2>/dev/null)" = weir ] && echo "${p#/proc/}"; done; true'; }
    mounted() { inside grep -q ' /mnt/data fuse.weir' /proc/self/mounts; }
    no_daemon() { [ -z "$(daemon)" ]; }
    work_on() { inside sh -c "cp /bin/tar /mnt/data/tar-$1 && tar -C /usr/share -cf /mnt/data/$1.tar doc/weir base-files && sync /mnt/data/$1.tar"; }
    sums() { inside sh -c "cd $1 && find . -name .weir -prune -o -type f -print0 | sort -z | xargs -0 sha256sum"; }

    step "four commands from nothing to a program whose syncs do not wait"
    rows=200
    mkdir -p "$TREE/srv/shop" "$TREE/mnt/shop"
    { echo 'CREATE TABLE sale(body);'; seq -f "INSERT INTO sale VALUES ('number %g');" $rows; } >"$TREE/srv/shop/load.sql"
    in_shop() { inside sh -c "cd $1 && $2"; }
    dpkg_of -i "/packages/$(basename "$first")"
    in_shop /srv/shop "weir advise -- sqlite3 tried.db '.read load.sql'" >"$WORK/said" 2>&1 || { cat "$WORK/said"; fail "weir advise"; }
    said "calls on files in /srv/shop"
    said "^Done again for the prediction: [1-9]"
    for way in "On a mount" "On a mount, under 'weir run'," "Under 'weir run --sync external'"; do said "^\(Yes\|No\)\. $way"; done
    if grep "not tried" "$WORK/said"; then fail "weir advise could not try a way"; fi
    grep -q '<html' "$TREE/srv/shop/weir-advise.html" || fail "there is no page"
    inside weir mount --order all /srv/shop /mnt/shop
    begun=${EPOCHREALTIME/./}
    in_shop /mnt/shop "weir run --sync external --report=/report.json -- sqlite3 shop.db '.read load.sql'"
    session=$(((${EPOCHREALTIME/./} - begun) / 1000))
    promises=$(python3 "$SUPPORT/field.py" promises <"$TREE/report.json")
    [ "$promises" -ge $((2 * rows)) ] || fail "$promises syncs returned at once, of $rows transactions"
    expect_equal "syncs that waited" "$(python3 "$SUPPORT/field.py" syncs_committed <"$TREE/report.json")" 0
    inside weir umount /mnt/shop
    begun=${EPOCHREALTIME/./}
    in_shop /srv/shop "sqlite3 directly.db '.read load.sql'"
    directly=$(((${EPOCHREALTIME/./} - begun) / 1000))
    for database in tried shop directly; do
        expect_equal "rows of $database" "$(inside sqlite3 "/srv/shop/$database.db" 'SELECT count(*) FROM sale')" $rows
    done
    expect_equal "left in SOURCE" "$(ls -A "$TREE/srv/shop" | tr '\n' ' ')" "directly.db load.sql shop.db tried.db weir-advise.html "

    step "asked what the machine lacks, and mounted by a line of fstab"
    inside weir doctor || fail "weir doctor says $?"
    mkdir -p "$TREE/srv/data" "$TREE/mnt/data"
    echo '/srv/data  /mnt/data  fuse.weir  allow_other,memory=64M  0  0' >>"$TREE/etc/fstab"
    inside mount /mnt/data
    mounted || fail "not mounted"
    before=$(daemon | sort | tr '\n' ' ')
    work_on first
    echo '# changed here' >>"$TREE/etc/weir.toml"

    step "upgraded, with the mount active"
    dpkg_of -i "/packages/$(basename "$second")"
    said "the mount /mnt/data goes on"
    expect_equal "the daemon" "$(daemon | sort | tr '\n' ' ')" "$before"
    work_on second
    grep -q '^# changed here' "$TREE/etc/weir.toml" || fail "the configuration was replaced"
    sums /mnt/data >"$WORK/sums"
    inside weir status --json /mnt/data >/dev/null || fail "the new command does not understand the old daemon"
    inside weir umount /mnt/data
    sums /srv/data | diff "$WORK/sums" - || fail "what is home is not what was written"

    step "removed, with the mount active"
    inside mount /mnt/data
    work_on third
    sums /mnt/data >"$WORK/sums"
    dpkg_of -r weir
    said "the mount /mnt/data stays"
    mounted || fail "the removal unmounted it"
    inside sh -c 'echo more >/mnt/data/more && sync /mnt/data/more'
    sums /mnt/data >"$WORK/sums"
    inside umount /mnt/data
    soon no_daemon || fail "the daemon does not end"
    sums /srv/data | diff "$WORK/sums" - || fail "what is home is not what was written"
    [ -e "$TREE/etc/weir.toml" ] || fail "a removal takes the configuration"

    step "purged, with a redo log that holds data"
    dpkg_of -i "/packages/$(basename "$second")"
    mkdir -p "$TREE/var/lib/weir"
    inside weir mount --log /var/lib/weir/log-0123456789abcdef --log-size 16M --dirty-expire 1h /srv/data /mnt/data
    inside sh -c 'echo synced >/mnt/data/synced && sync /mnt/data/synced'
    for process in $(daemon); do inside sh -c "kill -9 $process" || true; done
    soon no_daemon
    inside umount -l /mnt/data
    log=$(hash_of "$TREE/var/lib/weir/log-0123456789abcdef")
    dpkg_of -P weir
    said "/var/lib/weir is kept"
    [ ! -e "$TREE/etc/weir.toml" ] || fail "a purge leaves the configuration"
    expect_equal "the log" "$(hash_of "$TREE/var/lib/weir/log-0123456789abcdef")" "$log"
    if grep -q synced "$TREE/srv/data/synced" 2>/dev/null; then fail "it was home already: this shows nothing"; fi
    dpkg_of -i "/packages/$(basename "$second")"
    inside weir recover /srv/data
    expect_equal "what was synced" "$(cat "$TREE/srv/data/synced")" synced
    sums /srv/data | grep -v ' ./synced$' | diff "$WORK/sums" - || fail "a file is another one"

    step "purged, with nothing left"
    [ ! -e "$TREE/var/lib/weir/log-0123456789abcdef" ] || fail "the log is there, and holds nothing any more"
    mkdir -p "$TREE/var/lib/weir/empty/directory"
    dpkg_of -P weir
    if grep -q 'is kept' "$WORK/said"; then fail "it says that empty directories hold data: $(cat "$WORK/said")"; fi
    for path in /var/lib/weir /etc/weir.toml /var/log/weir /usr/bin/weir /usr/sbin/mount.fuse.weir; do
        [ ! -e "$TREE$path" ] || fail "a purge leaves $path"
    done

    step "purged, with what others put beside the daemons' logs"
    dpkg_of -i "/packages/$(basename "$second")"
    logs=$TREE/var/log/weir
    mkdir -p "$logs/mounted" "$logs/own" "$WORK/precious"
    echo precious >"$WORK/precious/file.log"
    echo kept >"$logs/own/file.log"
    ln -s "$WORK/precious/file.log" "$logs/link.log"
    # Redo logs by any name.
    inside weir mount --log /var/log/weir/data.redo --log-size 16M /srv/data /mnt/data
    inside weir umount /mnt/data
    cp "$logs/data.redo" "$logs/data.log"
    touch "$logs/mnt-data.log" "$logs/mnt-data.log.old" "$logs/.log"
    mount --bind "$WORK/precious" "$logs/mounted"
    dpkg_of -P weir
    expect_equal "what is left" "$(cd "$logs" && find . | sort | tr '\n' ' ')" \
        ". ./data.log ./data.redo ./link.log ./mounted ./mounted/file.log ./own ./own/file.log "
    umount "$logs/mounted"

    step "mount points that a terminal or a shell would obey"
    # A mount of any user, as the maintainer scripts see it.
    evil=$TREE/mnt/$(printf 'a;b\033]0;taken\007')
    mkdir "$evil"
    python3 "$SUPPORT/fake_mount.py" mount "$evil" &
    faker=$!
    soon is_listed "taken" || fail "there is no such mount"
    for script in "prerm remove" "postinst configure 0.1"; do
        # shellcheck disable=SC2086 # two or three words
        sh "$REPO/packaging/debian/"$script >"$WORK/said" 2>&1 || fail "$script failed: $(cat -v "$WORK/said")"
        grep -q 'a;b?]0;taken?' "$WORK/said" || fail "$script does not name the mount: $(cat -v "$WORK/said")"
        if grep -q 'umount /' "$WORK/said"; then fail "$script proposes a command: $(cat -v "$WORK/said")"; fi
    done
    kill "$faker"
    wait "$faker" 2>/dev/null || true
    counts "$(wc -l <"$WORK/sums") files; $rows transactions in $session ms in a session, in $directly ms directly"
fi

if [ "$1" = boot ]; then
    need_packages
    [ -e "$TOOLS/debian.tar" ] || skip "there is no Debian tree: run 'make setup'"
    make_package 1
    mkdir "$TREE" "$WORK/cgroup"
    tar -C "$TREE" -xf "$TOOLS/debian.tar"
    [ -x "$TREE/lib/systemd/systemd" ] || skip "the Debian tree has no systemd: remove it, and run 'make setup'"
    cp "$PACKAGE" "$TREE/"
    chroot "$TREE" dpkg -i "/$(basename "$PACKAGE")" >"$WORK/said" 2>&1 || fail "dpkg: $(cat "$WORK/said")"
    mkdir -p "$TREE/srv/data" "$TREE/mnt/data"
    printf 'allow-other = true\n[mount."/mnt/data"]\nsource = "/srv/data"\nmemory = "64M"\nmetrics = 0\n' >>"$TREE/etc/weir.toml"
    wants=$TREE/etc/systemd/system/multi-user.target.wants
    mkdir -p "$wants"
    ln -s /usr/lib/systemd/system/weir@.service "$wants/weir@mnt-data.service"
    ln -s /etc/systemd/system/drive.service "$wants/drive.service"
    cat >"$TREE/etc/systemd/system/drive.service" <<'END'
[Unit]
Wants=weir@mnt-data.service
After=weir@mnt-data.service
[Service]
Type=oneshot
ExecStart=/drive
ExecStopPost=/bin/systemctl --no-block poweroff
END
    cat >"$TREE/drive" <<'END'
#!/bin/sh
# Each line of /result is a name and what was found.
exec 2>/complaints
unit=weir@mnt-data.service
property() { systemctl show --value -p "$1" $unit; }
note() { echo "$@" >>/result; }
as() { setpriv --reuid=nobody --regid=nogroup --clear-groups sh -c "$1"; }
note state "$(property ActiveState)"
note status "$(property StatusText)"
note metrics "$(weir status --json /mnt/data | sed -n 's/^ *"metrics": "\(.*\)",$/\1/p')"
note mounted "$(grep -c ' /mnt/data fuse.weir' /proc/self/mounts)"
cd /mnt/data
mkdir d && echo x >d/f && chown nobody:nogroup d/f && chmod 4755 d/f && mv d/f d/g && mknod device c 1 3 && mkfifo pipe
chmod 777 . && as 'umask 077; echo y >/mnt/data/nobodys; mkdir /mnt/data/below; echo z >/mnt/data/below/one'
head -c 20000000 /dev/urandom >big && fallocate -p -o 0 -l 1000000 big && sync big
note in-mount "$(cd /mnt/data && find . -printf '%p %y %m %u %s,\n' | sort | tr -d '\n' && sha256sum <big)"
cd /
systemctl stop $unit
note stopped "$(property Result) $(property ActiveState) $(grep -c ' /mnt/data ' /proc/self/mounts)"
note at-home "$(cd /srv/data && find . -printf '%p %y %m %u %s,\n' | sort | tr -d '\n' && sha256sum <big)"
systemctl start $unit
as 'echo synced >/mnt/data/synced && sync /mnt/data/synced'
before=$(property MainPID)
kill -9 "$before"
for i in $(seq 100); do sleep 0.2; now=$(property MainPID); [ "$now" = "$before" ] || [ "$(property ActiveState)" != active ] || break; done
note again "$(property ActiveState) $(cat /mnt/data/synced) $(property NRestarts)"
systemctl stop $unit
note left "$(ls -A /srv/data/.weir 2>/dev/null)"
journalctl -o cat -u $unit >/journal
END
    chmod +x "$TREE/drive"
    mount -t cgroup2 none "$WORK/cgroup" 2>/dev/null || skip "this kernel has no cgroup2"
    group=$WORK/cgroup/weir-test-$$
    mkdir "$group"
    (
        echo "$BASHPID" >"$group/cgroup.procs"
        # shellcheck disable=SC2016 # expanded by the inner shell
        exec timeout -s KILL 120 unshare --mount --pid --fork --kill-child --cgroup --uts --ipc --propagation private sh -ec '
            mount --bind "$1" "$1"
            cd "$1"
            mount -t proc proc proc
            mount -t sysfs sysfs sys
            mount -t cgroup2 none sys/fs/cgroup
            for at in dev run tmp; do mount -t tmpfs none $at; done
            mkdir dev/pts dev/shm
            for device in null zero urandom random full tty fuse; do : >dev/$device; mount --bind /dev/$device dev/$device; done
            exec chroot . env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin WEIR_TEST_MARK="$2" /lib/systemd/systemd --system
        ' sh "$TREE" "${WEIR_TEST_MARK:-}"
    ) >"$WORK/console" 2>&1 || true
    # The kernel releases the groups of what has just ended a moment later.
    no_group() { find "$group" -mindepth 1 -depth -type d -exec rmdir {} + 2>/dev/null; rmdir "$group" 2>/dev/null || [ ! -d "$group" ]; }
    soon no_group || true
    umount "$WORK/cgroup"
    [ -s "$TREE/result" ] || fail "systemd did not get that far: $(tail -5 "$WORK/console")"
    cat "$TREE/complaints"
    result() { sed -n "s/^$1 //p" "$TREE/result"; }
    expect_equal "the service" "$(result state)" active
    expect_equal "its status" "$(result status)" "/srv/data at /mnt/data: everything is home"
    # At a port that was free.
    case $(result metrics) in 127.0.0.1:[1-9]*) ;; *) fail "its metrics are at '$(result metrics)'" ;; esac
    expect_equal "mounts seen by others" "$(result mounted)" 1
    expect_equal "the stopped service" "$(result stopped)" "success inactive 0"
    expect_equal "what is at home" "$(result at-home)" "$(result in-mount)"
    case $(result at-home) in *"./nobodys f 600 nobody 2,"*) ;; *) fail "no file of another user: $(result at-home)" ;; esac
    expect_equal "after its daemon was killed" "$(result again)" "active synced 1"
    expect_equal "left in .weir" "$(result left)" ""
    if grep 'WARN\|ERROR' "$TREE/journal"; then fail "the service complains"; fi
    counts "$(wc -l <"$TREE/journal") lines of its journal"
fi
