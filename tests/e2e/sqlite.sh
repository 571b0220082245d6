#!/usr/bin/env bash
# SQLite inside a mount in both journal modes: two writers and a reader, integrity checks, then the database
# opened cold on SOURCE.
# cases: wal delete
# lane
# sync: delete
# bucket
# homes: xfs sshfs
source "${REPO:?}/tests/e2e/lib.sh"

need_root
need_command sqlite3
under_lane sqlite3
mode=$1
rounds=150
if [ -n "$LONG" ]; then rounds=3000; fi

mount_weir "$SRC" "$MNT"
database=$MNT/base.db
sqlite3 "$database" >/dev/null <<END
PRAGMA journal_mode=$mode;
CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER, note TEXT);
CREATE TABLE entry(id INTEGER PRIMARY KEY, account INTEGER, amount INTEGER, body BLOB);
CREATE INDEX entry_account ON entry(account);
WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
INSERT INTO account SELECT i, 1000, hex(randomblob(40)) FROM n;
END
expect_equal "journal mode" "$(sqlite3 "$database" 'PRAGMA journal_mode')" "$mode"

# Money only moves: the sum of all balances is always the same.
writer() {
    local round from to
    for round in $(seq "$rounds"); do
        from=$((RANDOM % 20000 + 1)) to=$((RANDOM % 20000 + 1))
        sqlite3 -cmd '.timeout 20000' "$database" >/dev/null <<END
PRAGMA synchronous=FULL;
BEGIN IMMEDIATE;
UPDATE account SET balance = balance - $round WHERE id = $from;
UPDATE account SET balance = balance + $round WHERE id = $to;
INSERT INTO entry(account, amount, body) VALUES($from, -$round, randomblob($((RANDOM % 3000)))), ($to, $round, zeroblob(300));
DELETE FROM entry WHERE id % 17 = $((round % 17)) AND id < $round;
COMMIT;
END
    done
}
reader() {
    local sum
    while [ ! -e "$WORK/stop" ]; do
        sum=$(sqlite3 -cmd '.timeout 20000' "$database" 'SELECT sum(balance) FROM account')
        [ "$sum" = 20000000 ] || { echo "sum is $sum"; return 1; }
    done
}
writer & first=$!
writer & second=$!
reader & third=$!
wait "$first" || fail "the first writer"
wait "$second" || fail "the second writer"
touch "$WORK/stop"
wait "$third" || fail "the reader saw a broken sum"
sqlite3 "$database" 'VACUUM' 'REINDEX'
dump() { sqlite3 "$1" .dump | sha256sum; }
expect_equal "integrity" "$(sqlite3 "$database" 'PRAGMA integrity_check')" ok
through=$(dump "$database")
entries=$(sqlite3 "$database" 'SELECT count(*) FROM entry')
expect_lane "$MNT"
umount_weir "$MNT"
drop_caches
expect_equal "integrity on SOURCE" "$(sqlite3 "$SRC/base.db" 'PRAGMA integrity_check')" ok
expect_equal "content on SOURCE" "$(dump "$SRC/base.db")" "$through"
counts "$((2 * rounds)) transactions, $entries entries whole"
