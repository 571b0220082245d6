#!/usr/bin/env bash
# The pages of docs/guide, as they are printed: each command of a page is run (support/guide.py reads them), between a real load, kill -9 of
# the daemon, and a comparison of everything in the mount and, after the page's way back, in SOURCE. What a command prints is as the page shows
# it, and each figure of a page is in the document that the page names. A command of a page that no case runs is a failure.
# It runs in namespaces of its own, in which /etc, /srv, /mnt and others are copies or empty: the pages' own paths are used, and nothing of the
# machine is changed.
# cases: index postgresql mariadb sqlite redis git-server build-server maildir network-homes buckets
# all: postgresql mariadb redis git-server build-server maildir buckets
# serial: postgresql mariadb sqlite redis git-server build-server maildir network-homes buckets
# seconds: 25
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
name=${1:?}
GUIDE=$REPO/docs/guide

if [ "$name" = index ]; then
    # Each page has a case, and the index leads to each.
    for page in "$GUIDE"/*.md; do
        page=$(basename "$page" .md)
        [ "$page" != README ] || continue
        grep -q "^# cases:.*\b$page\b" "$REPO/tests/e2e/guide.sh" || fail "no case runs docs/guide/$page.md"
        grep -qF "]($page.md)" "$GUIDE/README.md" || fail "docs/guide/README.md does not lead to $page.md"
        python3 "$SUPPORT/guide.py" figures "$GUIDE/$page.md" "$REPO/docs/results" || fail "a figure of $page.md"
    done
    exit
fi

if [ -z "${GUIDE_INSIDE:-}" ]; then
    case $REPO/:$WORK/:$WEIR in
        /srv/* | /mnt/* | /etc/* | *:/srv/* | *:/mnt/* | *:/etc/*) skip "the repository or the test's directory is below /srv, /mnt or /etc" ;;
    esac
    need_command unshare ip useradd
    exec unshare --mount --pid --net --fork --kill-child --mount-proc env GUIDE_INSIDE=1 bash "$REPO/tests/e2e/guide.sh" "$name"
fi

# What others have mounted is not kept from them here.
awk '$2 != "/" && ($3 ~ /^fuse(\.|blk|$)/ || $1 ~ /^.dev.loop/) { print $2 }' /proc/self/mounts | tac | while read -r point; do
    umount -l "$(printf %b "$point")" 2>/dev/null || true
done

# A machine of its own, with Weir as `make install` has it.
ip link set lo up
unset STATE_DIRECTORY
for place in /srv /mnt /var/log /var/lib; do
    mkdir -p "$WORK/machine$place"
    mount --bind "$WORK/machine$place" "$place"
done
cp -a /etc "$WORK/machine/etc"
mount --bind "$WORK/machine/etc" /etc
mount -t tmpfs -o mode=755 none /run
overlay() {
    mkdir -p "$WORK/overlay/$2" "$WORK/overlay/$2-work"
    mount -t overlay none -o "lowerdir=$1,upperdir=$WORK/overlay/$2,workdir=$WORK/overlay/$2-work" "$1" || skip "no overlay over $1"
}
overlay /usr/local local
overlay /usr/sbin sbin
mkdir -p /usr/local/bin /usr/local/lib/weir
cp "$WEIR" /usr/local/bin/weir
cp "$(dirname "$WEIR")/libweir_preload.so" /usr/local/lib/weir/
ln -sf /usr/local/bin/weir /usr/sbin/mount.fuse.weir
hash -r
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
WEIR=/usr/local/bin/weir

# user NAME [DIRECTORY...]: as the package of a server makes it, with directories below /run, /var/log and /var/lib.
user() {
    local directory owner=$1
    id "$owner" >/dev/null 2>&1 || useradd --system --no-create-home "$owner"
    shift
    for directory in "$@"; do install -d -o "$owner" "/run/$directory" "/var/log/$directory" "/var/lib/$directory"; done
}

# Users run it who may not be able to reach into the repository.
LOADS=$WORK/loads.py
cp "$SUPPORT/guide_loads.py" "$LOADS"
BLOCKS=$WORK/blocks
python3 "$SUPPORT/guide.py" blocks "$GUIDE/$name.md" "$BLOCKS" || fail "the page $name.md"

# section NAME: does what the page's blocks of this section say, in their order. Its commands end with the status WANTED, 0 by default.
# What the last of them printed is in PRINTED.
section() {
    local block status
    step "$1"
    PRINTED=$WORK/printed-$BASHPID
    [ -d "$BLOCKS/$1" ] || fail "the page has no commands in a section '$1'"
    for block in "$BLOCKS/$1"/*; do
        touch "$WORK/ran-$(basename "$block")"
        case $block in
            *.toml) cp "$block" /etc/weir.toml ;;
            *.fstab) cat "$block" >>/etc/fstab ;;
            *.text) python3 "$SUPPORT/guide.py" shown "$block" "$PRINTED" || fail "'$1' does not show what is printed" ;;
            *.sh)
                status=0
                (cd / && exec bash -euo pipefail "$block") >"$PRINTED" 2>&1 </dev/null || status=$?
                cat "$PRINTED"
                [ "$status" = "${WANTED:-0}" ] || fail "'$1' of $name.md ended with $status"
                ;;
        esac
    done
}

# All that the page prints was done, and nothing of it is left.
page_is_done() {
    local block
    for block in "$BLOCKS"/*/*; do
        [ -e "$WORK/ran-$(basename "$block")" ] || fail "this part of $name.md was not run: $(cat "$block")"
    done
    expect_equal "mounts that are left" "$(weir status)" "no weir mounts"
    ! grep -q weir /etc/fstab || fail "the page leaves its line in /etc/fstab: $(grep weir /etc/fstab)"
}

# Nobody's child any more, it is reaped by this script, which is the first process here: when all its threads have let go of what they held.
is_gone() { [ ! -e "/proc/$1" ]; }

kill_daemon() {
    local pid
    pid=$(status "$1" pid)
    kill -9 "$pid"
    soon is_gone "$pid" || fail "the daemon does not die"
}

# more_than NUMBER COMMAND...: what the command prints is more. What is not there yet is none.
more_than() {
    local least=$1 found
    shift
    found=$("$@" 2>/dev/null) || found=0
    [ "$found" -gt "$least" ]
}

lines() { { cat "$@" 2>/dev/null || true; } | wc -l; }

case $name in
postgresql)
    programs=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -1)
    [ -n "$programs" ] || skip "PostgreSQL is not installed: run 'make setup'"
    PATH=$PATH:$programs
    user postgres postgresql
    pg() { (cd / && runuser -u postgres -- env PGHOST=/run/postgresql PGDATABASE=postgres "$@"); }
    balance="SELECT (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(abalance) FROM pgbench_accounts)
        AND (SELECT sum(delta) FROM pgbench_history) = (SELECT sum(tbalance) FROM pgbench_tellers)"
    history() { pg psql -Atc 'SELECT count(*) FROM pgbench_history'; }
    content() { pg pg_dump --no-comments | sed '/^\\\(un\)\?restrict /d' | sha256sum; }
    section "Set up"
    expect_equal "the memory of weir.toml" "$(status /mnt/pg memory_bytes_max)" $((512 << 20))
    pg pgbench -i -q -s 2 2>/dev/null
    mkdir "$WORK/noted"
    chown postgres "$WORK/noted"
    pg pgbench -c 4 -j 2 -T 60 -n -l --log-prefix="$WORK/noted/one" >"$WORK/load" 2>&1 &
    load=$!
    soon more_than 500 history || fail "the load does not get on: $(cat "$WORK/load")"
    section "See that it works"
    kill_daemon /mnt/pg
    # pgbench writes what it noted when its connections are gone.
    wait "$load" || true
    noted=$(lines "$WORK"/noted/one*)
    [ "$noted" -gt 100 ] || fail "only $noted transactions were noted"
    section "After a crash"
    found=$(history)
    [ "$found" -ge "$noted" ] || fail "$found transactions of $noted that were committed"
    expect_equal "balances" "$(pg psql -Atc "$balance")" t
    pg pgbench -c 4 -t 100 -n >/dev/null 2>&1
    before=$(content)
    section "Go back"
    drop_caches
    expect_equal "content on SOURCE" "$(content)" "$before"
    pg pg_ctl -D /srv/pg/data -w -s -m fast stop
    pg pg_checksums -D /srv/pg/data --check >/dev/null || fail "page checksums on SOURCE"
    counts "$noted transactions noted, $found found"
    ;;
mariadb)
    need_command mariadbd mariadb mariadb-install-db
    user mysql mysqld mysql
    clients=4
    committed() { grep -h '^committed [0-9]* [0-9]*$' "$WORK"/client-* | wc -l; }
    client() {
        local round
        for round in $(seq 100000); do
            echo "START TRANSACTION; UPDATE account SET balance = balance - $round WHERE id = $(((RANDOM % 500) * 2 + 1));"
            echo "UPDATE account SET balance = balance + $round WHERE id = $(((RANDOM % 500) * 2 + 2));"
            echo "INSERT INTO entry(client, round, body) VALUES($1, $round, repeat('$1', $((RANDOM % 3000)))); COMMIT; SELECT 'committed $1 $round';"
        done | mariadb --batch --skip-column-names --unbuffered bank >"$WORK/client-$1" 2>/dev/null
    }
    ask() { mariadb --batch --skip-column-names bank -e "$1"; }
    content() { ask 'CHECKSUM TABLE account, entry EXTENDED'; }
    section "Set up"
    mariadb <<'SQL'
CREATE DATABASE bank;
USE bank;
CREATE TABLE account(id INT PRIMARY KEY, balance INT NOT NULL) ENGINE=InnoDB;
CREATE TABLE entry(id INT AUTO_INCREMENT PRIMARY KEY, client INT, round INT, body BLOB, KEY(client, round)) ENGINE=InnoDB;
INSERT INTO account SELECT seq, 1000 FROM seq_1_to_1000;
SQL
    running=()
    for nth in $(seq "$clients"); do client "$nth" & running+=($!); done
    soon more_than 400 committed || fail "the clients do not get on"
    section "See that it works"
    kill_daemon /mnt/mariadb
    # A server that has nothing to write may not notice.
    pkill -KILL -x mariadb || true
    wait "${running[@]}" 2>/dev/null || true
    section "After a crash"
    for nth in $(seq "$clients"); do
        last=$(grep '^committed [0-9]* [0-9]*$' "$WORK/client-$nth" | tail -1 | cut -d' ' -f3)
        expect_equal "rounds of client $nth" "$(ask "SELECT count(*) FROM entry WHERE client = $nth AND round <= $last")" "$last"
    done
    expect_equal "the sum of balances" "$(ask 'SELECT sum(balance) FROM account')" 1000000
    expect_equal "CHECK TABLE" "$(ask 'CHECK TABLE account, entry EXTENDED' | awk '$NF != "OK"')" ""
    before=$(content)
    section "Go back"
    expect_equal "where it runs" "$(ask 'SELECT @@datadir')" /srv/mariadb/data/
    expect_equal "content on SOURCE" "$(content)" "$before"
    mariadb -e SHUTDOWN
    counts "$(committed) transactions committed, and there"
    ;;
sqlite)
    need_command sqlite3
    rows() {
        seq "$1" "$2" | sed "s/.*/INSERT INTO sale VALUES(&, CAST(printf('%0300d', &) AS BLOB));/; 0~50s/$/ SELECT max(id) FROM sale;/"
    }
    # Every row is as it was inserted, and none is missing below the last.
    whole() { sqlite3 "$1" "SELECT count(*) = max(id) AND sum(body = CAST(printf('%0300d', id) AS BLOB)) = count(*) FROM sale"; }
    section "Set up"
    rows 1 200000 >/srv/import.sql
    : >/srv/import.log
    WANTED=74 section "Run a job" &
    job=$!
    soon more_than 200 lines /srv/import.log || fail "the job does not get on"
    WANTED=0 section "See that it works"
    kill_daemon /mnt/shop
    wait "$job" || fail "the job did not end as a session does whose syncs fail"
    seen=$(tail -1 /srv/import.log)
    section "After a crash"
    expect_equal "integrity" "$(tail -1 "$PRINTED")" ok
    kept=$(sqlite3 /mnt/shop/shop.db 'SELECT max(id) FROM sale')
    [ "$kept" -ge "$seen" ] || fail "$seen was printed, and $kept is there"
    expect_equal "every row" "$(whole /mnt/shop/shop.db)" 1
    rows $((kept + 1)) $((kept + 500)) >/srv/import.sql
    section "Run a job"
    expect_equal "the last row" "$(tail -1 /srv/import.log)" $((kept + 500))
    commits=$(status /mnt/shop log_groups)
    [ "$commits" -lt 250 ] || fail "$commits writes of the log for 500 commits: they did not share any"
    section "Go back"
    drop_caches
    expect_equal "every row in SOURCE" "$(whole /srv/shop/shop.db) $(sqlite3 /srv/shop/shop.db 'SELECT max(id) FROM sale')" "1 $((kept + 500))"
    counts "row $seen was printed, $kept are kept; 500 more commits in $commits writes of the log"
    ;;
redis)
    need_command redis-server redis-cli
    user redis redis
    [ -e /etc/redis/redis.conf ] || fail "there is no /etc/redis/redis.conf, which the package redis-server has"
    content() { python3 "$LOADS" redis-content; }
    section "Set up"
    python3 "$LOADS" redis "$WORK/seen" &
    load=$!
    soon more_than 2000 lines "$WORK/seen" || fail "the clients do not get on"
    section "See that it works"
    kill_daemon /mnt/redis
    wait "$load"
    section "After a crash"
    said=$(python3 "$LOADS" redis-check "$WORK/seen") || fail "$said"
    before=$(content)
    section "Go back"
    expect_equal "where it runs" "$(redis-cli config get dir | tail -1)" /srv/redis
    expect_equal "content on SOURCE" "$(content)" "$before"
    redis-cli shutdown nosave || true
    counts "$said"
    ;;
git-server)
    need_command git
    user git
    section "Set up"
    [ "$(git config --system core.fsync)" = all ] || fail "core.fsync"
    as_git() { runuser -u git -- env HOME="$WORK/clients" GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b "$@"; }
    install -d -o git "$WORK/clients"
    # pushes CLIENT: commits and pushes to a branch of its own; notes what was answered, and when.
    pushes() {
        # shellcheck disable=SC2016
        as_git bash -c 'cd "$0" && git init -q "client-$1" && cd "client-$1" && git checkout -q -b "branch-$1" && count=0
            while count=$((count + 1)); do
                seq "$count" $((count * 20)) >"numbers-$((count % 7))" && git add -A && git commit -qm "$count" || exit 1
                git push -q /mnt/git/project.git "branch-$1" 2>/dev/null || exit 0
                echo "$(date +%s%3N) $(git rev-parse HEAD)" >>"../noted-$1"
            done' "$WORK/clients" "$1"
    }
    answered() { lines "$WORK"/clients/noted-*; }
    running=()
    for client in 1 2 3; do pushes "$client" & running+=($!); done
    soon more_than 40 answered || fail "the pushes do not get on"
    section "See that it works"
    # What is to survive is older than half a second.
    sleep 3
    killed=$(date +%s%3N)
    kill_daemon /mnt/git
    wait "${running[@]}" || fail "a commit failed"
    section "After a crash"
    must=0
    for client in 1 2 3; do
        last=$(awk -v until=$((killed - 2000)) '$1 < until { last = $2 } END { print last }' "$WORK/clients/noted-$client")
        [ -n "$last" ] || fail "client $client has pushed nothing in time"
        as_git git -C /mnt/git/project.git merge-base --is-ancestor "$last" "branch-$client" || fail "a push of client $client is lost"
        must=$((must + $(as_git git -C /mnt/git/project.git rev-list --count "$last")))
        # The next push brings what is missing.
        as_git git -C "$WORK/clients/client-$client" push -q /mnt/git/project.git "branch-$client"
        expect_equal "branch $client" "$(as_git git -C /mnt/git/project.git rev-parse "branch-$client")" \
            "$(as_git git -C "$WORK/clients/client-$client" rev-parse HEAD)"
    done
    as_git git -C /mnt/git/project.git gc -q
    before=$(hash_of_tree /mnt/git)
    section "Go back"
    drop_caches
    expect_equal "the repositories on SOURCE" "$(hash_of_tree /srv/git)" "$before"
    as_git git -C /srv/git/project.git fsck --full --strict >/dev/null
    counts "$(answered) pushes answered, $must commits that had to survive are there"
    ;;
build-server)
    need_command cc make tar
    python3 "$LOADS" sources "$WORK/tree"
    tar -C "$WORK" -cf "$WORK/tree.tar" tree
    build() { tar -C "$1" -xf "$WORK/tree.tar" && make -s -j2 -C "$1/tree"; }
    mkdir "$WORK/plain"
    build "$WORK/plain"
    section "Set up"
    build /mnt/build &
    load=$!
    objects() { find /mnt/build/tree -name '*.o' 2>/dev/null | wc -l; }
    soon more_than 5 objects || fail "the build does not get on"
    section "See that it works"
    kill_daemon /mnt/build
    ! wait "$load" || fail "the build had ended before"
    section "After a crash"
    [ ! -e /mnt/build/tree ] || fail "the tree is still there"
    build /mnt/build
    make -s -q -C /mnt/build/tree || fail "make finds something to do in a finished tree"
    section "Go back"
    drop_caches
    expect_same_tree "the tree on SOURCE" /srv/build "$WORK/plain"
    make -s -q -C /srv/build/tree || fail "make finds something to do on SOURCE"
    expect_equal "the program" "$(/srv/build/tree/program)" "$("$WORK/plain/tree/program")"
    counts "$(find /srv/build -type f | wc -l) files, the same as on a plain directory"
    ;;
maildir)
    user mail
    section "Set up"
    install -d -o mail "$WORK/mail"
    running=()
    for way in synced named; do
        runuser -u mail -- python3 "$LOADS" deliver /mnt/mail/inbox "$WORK/mail/$way" "$way" &
        running+=($!)
    done
    noted() { lines "$WORK"/mail/*; }
    soon more_than 300 noted || fail "the deliveries do not get on"
    section "See that it works"
    sleep 3
    killed=$(date +%s%3N)
    kill_daemon /mnt/mail
    wait "${running[@]}" || fail "a delivery did not end with the mount's error"
    section "After a crash"
    said=$(python3 "$LOADS" delivered /mnt/mail/inbox "$WORK/mail" $((killed - 2000))) || fail "$said"
    before=$(hash_of_tree /mnt/mail)
    section "Go back"
    drop_caches
    expect_equal "the mailboxes on SOURCE" "$(hash_of_tree /srv/mail)" "$before"
    counts "$said"
    ;;
network-homes)
    need_command sshfs fusermount3 ssh
    server=/usr/lib/openssh/sftp-server
    [ -x "$server" ] || skip "there is no sftp-server"
    [ -x "$BENCH" ] || skip "weir-bench is not built: run 'make checked'"
    # In the place of ssh: a server of this machine, a round trip of 1 ms away.
    mkdir -p "$WORK/remote/homes"
    printf '#!/bin/sh\nexec %s relay --delay-us 500 --directory %s --server %s -- "$@"\n' "$BENCH" "$WORK/remote" "$server" >"$WORK/ssh"
    chmod +x "$WORK/ssh"
    mount --bind "$WORK/ssh" "$(readlink -f "$(command -v ssh)")"
    section "Set up"
    python3 "$SUPPORT/acknowledged.py" save /mnt/homes "$WORK/notes" &
    load=$!
    soon more_than 1000 lines "$WORK/notes" || fail "the load does not get on"
    section "See that it works"
    kill_daemon /mnt/homes
    ! wait "$load" 2>/dev/null || fail "the load noticed nothing"
    section "After a crash"
    said=$(python3 "$SUPPORT/acknowledged.py" check /mnt/homes "$WORK/notes") || fail "in the mount: $said"
    before=$(hash_of_tree /mnt/homes)
    section "Go back"
    # The server's directory has its own times and owners of directories: content counts.
    python3 "$SUPPORT/acknowledged.py" check "$WORK/remote/homes" "$WORK/notes" || fail "on the server"
    expect_equal "the tree on the server" "$(hash_of_tree "$WORK/remote/homes")" "$before"
    counts "$(grep -c '^saved' "$WORK/notes") saves, $said files"
    ;;
buckets)
    source "$SUPPORT/store.sh"
    [ -x "${WEIR_BUCKET:?}" ] || skip "$WEIR_BUCKET is not built: run 'make checked'"
    cp "$WEIR_BUCKET" /usr/local/bin/weir-bucket
    start_store 9000
    mkdir -p "$OBJECTS/archive/shop" "$WORK/user/.aws"
    # As `aws configure` leaves them.
    printf '[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n' "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY" >"$WORK/user/.aws/credentials"
    printf '[default]\nregion = %s\n' "$AWS_REGION" >"$WORK/user/.aws/config"
    unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_REGION HOME
    # mount(8) does not pass HOME on.
    sed -i "s|^\(root:.*\):/root:|\1:$WORK/user:|" /etc/passwd
    section "Set up"
    python3 "$SUPPORT/acknowledged.py" save /mnt/shop "$WORK/notes" &
    load=$!
    soon more_than 500 lines "$WORK/notes" || fail "the load does not get on"
    section "See that it works"
    kill_daemon /mnt/shop
    ! wait "$load" 2>/dev/null || fail "the load noticed nothing"
    section "After a crash"
    said=$(python3 "$SUPPORT/acknowledged.py" check /mnt/shop "$WORK/notes") || fail "in the mount: $said"
    section "Go back"
    python3 "$SUPPORT/acknowledged.py" check "$OBJECTS/archive/shop" "$WORK/notes" || fail "in the bucket"
    counts "$(grep -c '^saved' "$WORK/notes") saves, $said files"
    stop_store
    ;;
*)
    fail "no case '$name'"
    ;;
esac
page_is_done
