#!/usr/bin/env bash
# Databases over a mount with a redo log, on an emulated disk: power cuts and kills of the daemon in turn, then everything is
# mounted again. Each committed transaction is there, and the database is intact.
# cases: sqlite-delete sqlite-wal postgres
# long-cases: sqlite-delete-xfs sqlite-wal-xfs postgres-xfs
# all: postgres
# seconds: 30
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
filesystem=ext4
if [ "${1%-xfs}" != "$1" ]; then filesystem=xfs; fi
need_filesystem "$filesystem"
crashes=4
if [ -n "$LONG" ]; then crashes=10; fi
database=${1%-xfs}

programs=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -1)
if [ "$database" = postgres ]; then
    [ -n "$programs" ] || skip "PostgreSQL is not installed: run 'make setup'"
    id postgres >/dev/null 2>&1 || skip "there is no user postgres"
fi
sockets=$WORK/sockets
mkdir "$sockets"
if [ "$database" = postgres ]; then chown postgres "$sockets"; fi
pg() {
    local program=$programs/$1
    shift
    as_user postgres env PGHOST="$sockets" PGDATABASE=postgres "$program" "$@"
}
start_server() {
    pg pg_ctl -D "$MNT/cluster" -w -s -t 60 -l "$sockets/log" -o "-k $sockets -h ''" start ||
        { tail -20 "$sockets/log"; fail "the server does not start"; }
}

# The load of one life, in the background: LOAD is its process.
begin_load() {
    if [ "$database" = postgres ]; then
        start_server
        SERVER=$(head -1 "$MNT/cluster/postmaster.pid")
        if [ "$1" = 1 ]; then pg pgbench -i -q -s 1 2>/dev/null; fi
        pg pgbench -c 4 -j 2 -T 60 -n -l --log-prefix="$sockets/life$1" >"$WORK/load" 2>&1 &
    else
        python3 "$SUPPORT/transactions.py" write "$MNT/base.db" "$WORK/noted" "${database#sqlite-}" 60 >"$WORK/load" &
    fi
    LOAD=$!
}

end_load() {
    if [ "$database" = postgres ]; then
        kill -9 "$SERVER" 2>/dev/null || true
        pkill -9 -s "$SERVER" 2>/dev/null || true
        no_process_of_it() { ! pgrep -s "$SERVER" >/dev/null; }
        soon no_process_of_it || fail "PostgreSQL's processes stay"
    fi
    # pgbench ends with its connections, and then writes what it noted.
    wait "$LOAD" 2>/dev/null || [ "$database" = postgres ] || fail "the load: $(cat "$WORK/load")"
}

check() {
    if [ "$database" != postgres ]; then
        python3 "$SUPPORT/transactions.py" check "$MNT/base.db" "$WORK/noted"
        return
    fi
    local noted found balance
    noted=$(cat "$sockets"/life* | wc -l)
    start_server
    found=$(pg psql -Atc 'SELECT count(*) FROM pgbench_history')
    balance=$(pg psql -Atc "SELECT (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(abalance) FROM pgbench_accounts)
        AND (SELECT sum(delta) FROM pgbench_history) = (SELECT sum(tbalance) FROM pgbench_tellers)")
    pg pg_ctl -D "$MNT/cluster" -w -s -m fast stop
    if [ "$balance" != t ]; then echo "balances differ"; return 1; fi
    if [ "$found" -lt "$noted" ]; then echo "$found transactions, of which $noted were noted"; return 1; fi
    echo "$found transactions"
}

start_disk none 1G "$filesystem"
mount "$DISK_DEVICE" "$SRC"
if [ "$database" = postgres ]; then
    chown postgres "$SRC"
    mount_weir "$SRC" "$MNT" --allow-other
    pg initdb -D "$MNT/cluster" -A trust --data-checksums >/dev/null
    umount_weir "$MNT"
fi
umount "$SRC"
for life in $(seq "$crashes"); do
    mount "$DISK_DEVICE" "$SRC"
    mount_weir_foreground "$SRC" "$MNT" --log source --log-size 16M --dirty-expire 300ms --allow-other
    begin_load "$life"
    sleep "1.$((life * 7 % 9))"
    if [ $((life % 2)) = 1 ]; then
        "$BENCH" disk cut --dir "$DISK" --seed "$life" >/dev/null
    fi
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    end_load
    umount -l "$MNT"
    umount_soon "$SRC"
    if [ $((life % 2)) = 1 ]; then "$BENCH" disk restore --dir "$DISK"; fi
    mount "$DISK_DEVICE" "$SRC"
    mount_weir "$SRC" "$MNT" --log source --allow-other
    found=$(check) || fail "life $life: $found"
    umount_weir "$MNT"
    umount "$SRC"
done
stop_disk
counts "$crashes crashes on $filesystem, $found, all whole"
