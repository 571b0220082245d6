#!/usr/bin/env bash
# Servers and runtimes inside a mount, and afterwards directly on SOURCE: MariaDB and Redis with a crash between,
# a Java program, a cargo build.
# cases: mariadb redis java cargo
# lane
# all: lane-servers mariadb java redis
# seconds: 40
source "${REPO:?}/tests/e2e/lib.sh"

need_root

# until_ready WHAT COMMAND...: the command succeeds in the end.
until_ready() {
    local what=$1
    shift
    soon ready_or_ended "$@" && ! ended "$SERVER" && return
    cat "$WORK/server.log"
    fail "$what does not answer, or has ended"
}

ready_or_ended() {
    "$@" >/dev/null 2>&1 || ended "$SERVER"
}

case $1 in
mariadb)
    need_command mariadbd mariadb mariadb-install-db
    clients=4 rounds=100
    if [ -n "$LONG" ]; then rounds=3000; fi
    mkdir "$WORK/sockets" "$WORK/tmp"
    socket=$WORK/sockets/s
    # A server removes the temporary tables of all others in its TMPDIR when it starts.
    export TMPDIR=$WORK/tmp
    sql() { mariadb --no-defaults -u root -S "$socket" --batch --skip-column-names "$@"; }
    # start DIRECTORY [UNDER...]
    start() {
        local directory=$1
        shift
        "$@" mariadbd --no-defaults --user=root --datadir="$directory" --socket="$socket" --skip-networking \
            --innodb-buffer-pool-size=16M --innodb-log-file-size=8M --sync-binlog=1 --log-bin=binlog \
            --server-id=1 --key-buffer-size=1M --pid-file="$WORK/pid" >>"$WORK/server.log" 2>&1 &
        SERVER=$!
        until_ready mariadbd sql -e 'SELECT 1'
    }
    stop() {
        sql -e SHUTDOWN
        wait "$SERVER"
    }
    content() { sql bank -e 'CHECKSUM TABLE account, entry, old_style, logged EXTENDED'; }
    whole() {
        local bad
        bad=$(sql bank -e 'CHECK TABLE account, entry, old_style, logged EXTENDED' | awk '$NF != "OK"')
        expect_equal "CHECK TABLE $1" "$bad" ""
        expect_equal "the sum of balances $1" "$(sql bank -e 'SELECT sum(balance) FROM account')" 1000000
    }

    mount_weir "$SRC" "$MNT"
    step "a data directory is made"
    "${under[@]}" mariadb-install-db --no-defaults --user=root --datadir="$MNT/db" --auth-root-authentication-method=normal \
        --skip-test-db >"$WORK/server.log" 2>&1 || { cat "$WORK/server.log"; fail mariadb-install-db; }
    start "$MNT/db" "${under[@]}"
    sql <<'SQL'
CREATE DATABASE bank;
USE bank;
CREATE TABLE account(id INT PRIMARY KEY, balance INT NOT NULL, note VARCHAR(200)) ENGINE=InnoDB;
CREATE TABLE entry(id INT AUTO_INCREMENT PRIMARY KEY, client INT, round INT, body BLOB, KEY(client, round)) ENGINE=InnoDB;
CREATE TABLE old_style(id INT AUTO_INCREMENT PRIMARY KEY, body VARCHAR(300), KEY(body)) ENGINE=MyISAM;
CREATE TABLE logged(id INT AUTO_INCREMENT PRIMARY KEY, body VARCHAR(300), KEY(body)) ENGINE=Aria TRANSACTIONAL=1;
INSERT INTO account SELECT seq, 1000, repeat('x', seq % 200) FROM seq_1_to_1000;
INSERT INTO old_style(body) SELECT md5(seq) FROM seq_1_to_5000;
INSERT INTO logged(body) SELECT md5(seq) FROM seq_1_to_5000;
SQL
    step "clients at once, then a clean restart"
    # client NTH ROUNDS: moves money, and prints each committed round.
    client() {
        local round
        for round in $(seq "$2"); do
            echo "START TRANSACTION; UPDATE account SET balance = balance - $round WHERE id = $(((RANDOM % 500) * 2 + 1));"
            echo "UPDATE account SET balance = balance + $round WHERE id = $(((RANDOM % 500) * 2 + 2));"
            echo "INSERT INTO entry(client, round, body) VALUES($1, $round, repeat('$1', $((RANDOM % 3000)))); COMMIT;"
            echo "INSERT INTO old_style(body) VALUES(md5(rand())); DELETE FROM old_style WHERE id = $((RANDOM % 5000));"
            echo "UPDATE logged SET body = md5(rand()) WHERE id = $((RANDOM % 5000)); SELECT 'committed $1 $round';"
        done | sql --unbuffered --force bank 2>/dev/null
    }
    running=()
    for nth in $(seq "$clients"); do client "$nth" "$rounds" >"$WORK/client-$nth" & running+=($!); done
    wait "${running[@]}"
    expect_equal "entries" "$(sql bank -e 'SELECT count(*) FROM entry')" $((clients * rounds))
    whole "after the clients"
    before=$(content)
    stop
    start "$MNT/db" "${under[@]}"
    expect_equal "content after a restart" "$(content)" "$before"

    step "the server is killed under its clients"
    running=()
    for nth in $(seq "$clients"); do client "1$nth" 100000 >"$WORK/client-1$nth" & running+=($!); done
    until [ "$(cat "$WORK"/client-1? | wc -l)" -gt $((clients * rounds)) ]; do sleep 0.05; done
    kill -9 "$(cat "$WORK/pid")"
    wait "${running[@]}" "$SERVER" || true
    committed=$(cat "$WORK"/client-1? | grep -c '^committed [0-9]* [0-9]*$')
    start "$MNT/db" "${under[@]}"
    sql bank -e 'REPAIR TABLE old_style' >/dev/null
    whole "after the kill"
    for nth in $(seq "$clients"); do
        last=$(grep '^committed [0-9]* [0-9]*$' "$WORK/client-1$nth" | tail -1 | cut -d' ' -f3)
        found=$(sql bank -e "SELECT count(*) FROM entry WHERE client = 1$nth AND round <= $last")
        expect_equal "committed rounds of client $nth" "$found" "$last"
    done
    before=$(content)
    stop
    expect_lane "$MNT"
    umount_weir "$MNT"
    step "on SOURCE"
    drop_caches
    start "$SRC/db"
    expect_equal "content on SOURCE" "$(content)" "$before"
    whole "on SOURCE"
    stop
    counts "$((clients * rounds + committed)) transactions, $committed of them before a kill, the same content on SOURCE"
    ;;
redis)
    need_command redis-server redis-cli redis-benchmark
    requests=20000
    if [ -n "$LONG" ]; then requests=1000000; fi
    socket=$WORK/s
    ask() { redis-cli -s "$socket" "$@"; }
    # start DIRECTORY [UNDER...]
    start() {
        local directory=$1
        shift
        "$@" redis-server --port 0 --unixsocket "$socket" --dir "$directory" --appendonly yes --appendfsync everysec \
            --enable-debug-command local --auto-aof-rewrite-percentage 0 --save '' >>"$WORK/server.log" 2>&1 &
        SERVER=$!
        until_ready redis-server grep_pong
        # It answers even while it loads its data.
        until [ "$(ask info persistence | tr -d '\r' | sed -n 's/^loading://p')" = 0 ]; do sleep 0.05; done
    }
    grep_pong() { ask ping | grep -q PONG; }
    load() { redis-benchmark -s "$socket" -q -n "$requests" -c 8 -r 10000 -d 100 -t set,incr,lpush,hset,sadd >/dev/null; }
    at_rest() {
        until [ "$(ask info persistence | tr -d '\r' | grep -Ec '^(aof_rewrite|rdb_bgsave)_in_progress:0')" = 2 ]; do
            sleep 0.05
        done
    }
    mount_weir "$SRC" "$MNT"
    mkdir "$MNT/redis"
    start "$MNT/redis" "${under[@]}"
    load
    step "a rewrite and a snapshot, by children, beside clients"
    ask bgrewriteaof >/dev/null
    load
    at_rest
    ask bgsave >/dev/null
    load
    at_rest
    persistence=$(ask info persistence | tr -d '\r' | grep -E '^(aof_last_bgrewrite|aof_last_write|rdb_last_bgsave)_status:')
    expect_equal "what Redis says of its files" "$(sort -u -t: -k2 <<<"$persistence" | cut -d: -f2)" ok
    before=$(ask debug digest)
    step "it is killed"
    kill -9 "$(ask info server | tr -d '\r' | sed -n 's/^process_id://p')"
    wait "$SERVER" || true
    start "$MNT/redis" "${under[@]}"
    expect_equal "content after the kill" "$(ask debug digest)" "$before"
    load
    before=$(ask debug digest)
    ask shutdown nosave || true
    wait "$SERVER"
    expect_lane "$MNT"
    umount_weir "$MNT"
    step "on SOURCE"
    drop_caches
    redis-check-aof "$SRC"/redis/appendonlydir/*.manifest >"$WORK/out" 2>&1 || { cat "$WORK/out"; fail redis-check-aof; }
    start "$SRC/redis"
    expect_equal "content on SOURCE" "$(ask debug digest)" "$before"
    ask shutdown nosave || true
    wait "$SERVER"
    counts "$((20 * requests)) requests, the same content on SOURCE"
    ;;
java)
    need_command java javac
    mkdir "$WORK/plain"
    java "$SUPPORT/JavaFiles.java" "$WORK/plain" >"$WORK/plain.out"
    mount_weir "$SRC" "$MNT"
    "${under[@]}" java "$SUPPORT/JavaFiles.java" "$MNT" >"$WORK/mount.out"
    diff "$WORK/plain.out" "$WORK/mount.out" || fail "the program saw something else"
    expect_lane "$MNT"
    through=$(hash_of_tree "$MNT")
    umount_weir "$MNT"
    expect_equal "the files at home" "$(hash_of_tree "$SRC")" "$through"
    for name in random channel copied appended mapped streamed; do cmp "$WORK/plain/$name" "$SRC/$name"; done
    counts "$(wc -l <"$WORK/plain.out") lines the same"
    ;;
cargo)
    need_command cargo
    mount_weir "$SRC" "$MNT"
    mkdir -p "$MNT/made/src" "$MNT/made/tests"
    cd "$MNT/made"
    cat >Cargo.toml <<'TOML'
[package]
name = "made"
version = "0.1.0"
edition = "2024"
[workspace]
TOML
    cat >build.rs <<'RUST'
fn main() {
    let out = std::env::var("OUT_DIR").unwrap();
    let squares: Vec<String> = (0..500u64).map(|n| (n * n).to_string()).collect();
    std::fs::write(format!("{out}/squares.rs"), format!("[{}]", squares.join(","))).unwrap();
    println!("cargo::rerun-if-changed=build.rs");
}
RUST
    echo 'pub const SQUARES: [u64; 500] = include!(concat!(env!("OUT_DIR"), "/squares.rs"));' >src/lib.rs
    echo 'fn main() { println!("{}", made::SQUARES.iter().sum::<u64>()); }' >src/main.rs
    printf '#[test]\nfn squares() {\n    assert_eq!(made::SQUARES[9], 81);\n}\n' >tests/squares.rs
    unset CARGO_TARGET_DIR
    build() { "${under[@]}" cargo "$@" --offline >"$WORK/out" 2>&1 || { cat "$WORK/out"; fail "cargo $*"; }; }
    build build
    expect_equal "what was built" "$(target/debug/made)" 41541750
    build test
    grep -q '1 passed' "$WORK/out" || { cat "$WORK/out"; fail "cargo test"; }
    step "what is fresh is not built again, and what changed is"
    build build -v
    if grep -Eq 'Compiling|Dirty' "$WORK/out"; then cat "$WORK/out"; fail "built anew"; fi
    # cargo compares times.
    sleep 1.1
    echo 'fn main() { println!("{}", made::SQUARES[3]); }' >src/main.rs
    build build -v
    grep -q 'Dirty' "$WORK/out" || { cat "$WORK/out"; fail "not built anew"; }
    expect_equal "what was built" "$(target/debug/made)" 9
    cd "$WORK"
    # Does not check for writes by the lane: cargo and rustc write each file in a few calls.
    umount_weir "$MNT"
    step "on SOURCE"
    drop_caches
    expect_equal "the program at home" "$("$SRC/made/target/debug/made")" 9
    counts "$(find "$SRC/made/target" -type f | wc -l) files"
    ;;
esac
