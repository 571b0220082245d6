#!/usr/bin/env bash
# What the lane costs programs that use each file only shortly, beside FUSE in one interleaved run: a server's workers that
# open, write and close files, and PostgreSQL with a new connection for each transaction. Requests are compared; the ratio of the
# rates is shown, and means something on an idle machine with the release build (WEIR=target/release/weir).
# cases: workers postgres
# all
# seconds: 60
source "${REPO:?}/tests/e2e/lib.sh"

weir_only
need_command python3
rounds=3 seconds=2
if [ -n "$LONG" ]; then rounds=15 seconds=4; fi

# in_turn MORE FUSE_COMMAND LANE_COMMAND: sets `ratio`.
in_turn() {
    python3 "$SUPPORT/in_turn.py" "$WEIR" "$MNT" "$rounds" "$@" | tee "$WORK/turns" || fail "the lane costs more requests"
    ratio=$(tail -1 "$WORK/turns")
}

# The kernel asks again after these, and the rounds may take longer than the 10 s that they are by default.
timeouts=entry_timeout=600,attr_timeout=600
if [ "$1" = workers ]; then
    mount_weir "$SRC" "$MNT" -o "$timeouts"
    for load in "10000 1 4096" "10000 2 512"; do
        step "files, writes, bytes: $load"
        in_turn 0.1 "python3 $SUPPORT/workers.py $MNT/fuse $load" \
            "$WEIR run -- python3 $SUPPORT/workers.py $MNT/lane $load"
        figures="${figures:-}${figures:+, }$load: $ratio"
    done
    umount_weir "$MNT"
    counts "rate by the lane / by FUSE: $figures"
    exit
fi

need_root
programs=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -1)
[ -n "$programs" ] || skip "PostgreSQL is not installed: run 'make setup'"
id postgres >/dev/null 2>&1 || skip "there is no user postgres"
mkdir "$WORK/sockets" "$WORK/run-postgres"
chown postgres "$SRC" "$WORK/sockets" "$WORK/run-postgres"
mount_weir "$SRC" "$MNT" --allow-other --lane-users postgres -o "$timeouts"
# pg PORT PROGRAM ARGUMENT...: as PostgreSQL's user; by_lane is empty or what it is run under.
by_lane=()
pg() {
    local port=$1 program=$programs/$2
    shift 2
    as_user postgres env PGHOST="$WORK/sockets" PGPORT="$port" PGDATABASE=postgres "${by_lane[@]}" "$program" "$@"
}
start() { pg "$2" pg_ctl -D "$MNT/$1" -w -s -l "$WORK/sockets/log-$1" start || { cat "$WORK/sockets/log-$1"; fail "start of $1"; }; }
pg 5451 initdb --no-sync -D "$MNT/fuse" -A trust >/dev/null
cat >>"$MNT/fuse/postgresql.conf" <<END_OF_SETTINGS
listen_addresses = ''
unix_socket_directories = '$WORK/sockets'
shared_buffers = 16MB
checkpoint_timeout = 30min
END_OF_SETTINGS
start fuse 5451
pg 5451 pgbench -i -q -s 5 2>/dev/null
pg 5451 pg_ctl -D "$MNT/fuse" -w -s -m fast stop
cp -a "$MNT/fuse" "$MNT/lane"
start fuse 5451
by_lane=("$WEIR" run --)
start lane 5452
by_lane=()

# connections PORT ARGUMENT...: pgbench with a connection for each transaction; prints the rate and the transactions.
connections() {
    local port=$1
    shift
    pg "$port" pgbench -n -C -c 4 -j 2 -T "$seconds" "$@" >"$WORK/bench-$port" 2>/dev/null || fail pgbench
    sed -n 's/^tps = \([0-9.]*\).*/\1/p' "$WORK/bench-$port"
    sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' "$WORK/bench-$port"
}
export -f pg connections as_user fail
export WORK programs seconds
for load in "" "-S"; do
    step "pgbench -C $load"
    in_turn 0.3 "by_lane=(); connections 5451 $load" "by_lane=(); connections 5452 $load"
    figures="${figures:-}${figures:+, }pgbench -C${load:+ $load}: $ratio"
done
pg 5451 pg_ctl -D "$MNT/fuse" -w -s -m fast stop
pg 5452 pg_ctl -D "$MNT/lane" -w -s -m fast stop
umount_weir "$MNT"
counts "rate by the lane / by FUSE: $figures"
