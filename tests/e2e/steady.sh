#!/usr/bin/env bash
# Names that are there all the time while others in their directory come and go, and while they are exchanged and replaced:
# every listing shows each once, in pieces of any size, and each is found at any moment.
# cases: xfs ext4 btrfs sshfs
# all: ext4 btrfs sshfs xfs
# seconds: 15
source "${REPO:?}/tests/e2e/lib.sh"

weir_only
need_root
seconds=${LONG:+20}
seconds=${seconds:-1.5}
seed=${SEED:-$$}
echo "seed $seed"
all=(log behind ${LONG:+sync})
case $1 in
    sshfs)
        need_command sshfs
        mkdir "$WORK/remote"
        printf '#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n' >"$WORK/ssh"
        chmod +x "$WORK/ssh"
        sshfs "nobody@nowhere:$WORK/remote" "$SRC" -o "ssh_command=$WORK/ssh"
        # With `sync`, another thread that goes on with a listing may miss names: sshfs's positions are of one stream.
        all=(log)
        ;;
    *)
        need_filesystem "$1"
        make=("mkfs.$1" -q)
        [ "$1" != btrfs ] || make=(mkfs_btrfs -q)
        loop_filesystem "$WORK/image" 600M "$SRC" "${make[@]}"
        ;;
esac
listings=0
for names in "${all[@]}"; do
    for options in '' '-o entry_timeout=0,attr_timeout=0 --memory 16M --dirty-expire 100ms'; do
        step "--names $names $options"
        # shellcheck disable=SC2086 # Several words, or none.
        mount_weir "$SRC" "$MNT" --names "$names" $options
        mkdir "$MNT/steady"
        how=(--sync "$WEIR" "$MNT")
        # btrfs itself gives a name that is replaced another position, and sshfs counts no links.
        case $names-$1 in sync-btrfs) how+=(--untouched) ;; *-sshfs) how+=(--no-links) ;; esac
        said=$(python3 "$SUPPORT/steady.py" "$MNT/steady" "$seconds" "$seed" "${how[@]}") || fail "$said"
        listings=$((listings + said))
        rm -r "$MNT/steady"
        umount_weir "$MNT"
    done
done
umount "$SRC"
counts "$listings listings"
