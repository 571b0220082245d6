#!/usr/bin/env bash
# PostgreSQL inside a mount, run by its own user: initdb, pgbench, a clean restart, a crash restart, and the
# cluster started again directly on SOURCE after the unmount, with the same content.
# lane
# all
# seconds: 40
# bucket
# Not on sshfs, where what the server makes belongs to another user: PostgreSQL refuses that without Weir, too.
# homes: xfs
source "${REPO:?}/tests/e2e/lib.sh"

need_root
programs=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -1)
[ -n "$programs" ] || skip "PostgreSQL is not installed: run 'make setup'"
id postgres >/dev/null 2>&1 || skip "there is no user postgres"
seconds=15
if [ -n "$LONG" ]; then seconds=120; fi

sockets=$WORK/sockets
mkdir "$sockets"
chown postgres "$sockets" "$SRC"
pg() {
    local program=$programs/$1
    shift
    as_user postgres env PGHOST="$sockets" PGDATABASE=postgres "${under[@]}" "$program" "$@"
}
start() { pg pg_ctl -D "$1" -w -s -l "$sockets/log" -o "-k $sockets -h ''" start || { cat "$sockets/log"; fail "start on $1"; }; }
content() { pg pg_dump --no-comments | sed '/^\\\(un\)\?restrict /d' | sha256sum; }

if [ "${UNDER:-}" = lane ]; then
    mount_by postgres
    mount_weir "$SRC" "$MNT"
else
    mount_weir "$SRC" "$MNT" --allow-other
    chown postgres "$MNT"
fi
step initdb
pg initdb -D "$MNT/cluster" -A trust --data-checksums >/dev/null
start "$MNT/cluster"
step pgbench
pg pgbench -i -q -s 5 2>/dev/null
pg pgbench -c 4 -j 2 -T "$seconds" >"$WORK/bench" 2>/dev/null || fail pgbench
transactions=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' "$WORK/bench")
rate=$(sed -n 's/^tps = \([0-9]*\).*without.*/\1/p' "$WORK/bench")
balance="SELECT (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(abalance) FROM pgbench_accounts)
    AND (SELECT sum(delta) FROM pgbench_history) = (SELECT sum(tbalance) FROM pgbench_tellers)"
expect_equal "balances" "$(pg psql -Atc "$balance")" t

step "clean restart"
before=$(content)
pg pg_ctl -D "$MNT/cluster" -w -s -m fast stop
start "$MNT/cluster"
expect_equal "content after a restart" "$(content)" "$before"
pg psql -qc 'CREATE EXTENSION amcheck'
pg pg_amcheck --heapallindexed --all || fail "pg_amcheck through the mount"

step "crash restart"
pg pgbench -c 2 -t 100 >/dev/null 2>&1
before=$(content)
pg pg_ctl -D "$MNT/cluster" -w -s -m immediate stop
start "$MNT/cluster"
expect_equal "content after a crash restart" "$(content)" "$before"
pg pg_ctl -D "$MNT/cluster" -w -s -m fast stop
expect_lane "$MNT"
umount_weir "$MNT"

step "on SOURCE"
drop_caches
see_home
pg pg_checksums -D "$SRC/cluster" --check >/dev/null || fail "page checksums on SOURCE"
start "$SRC/cluster"
expect_equal "content on SOURCE" "$(content)" "$before"
pg pg_amcheck --heapallindexed --all || fail "pg_amcheck on SOURCE"
pg pg_ctl -D "$SRC/cluster" -w -s -m fast stop
counts "$transactions transactions (${rate:-?} per second), the same content on SOURCE"
