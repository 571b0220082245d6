#!/usr/bin/env bash
# How many FUSE requests programs cost: more than these is a regression.
# serial
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command git tar python3
export HOME=$WORK GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git config --global safe.directory '*'
# git must not use the user's configuration.
git config --global core.untrackedCache false
git config --global gc.auto 0
git config --global maintenance.auto false

# requests: FUSE requests so far, without those that reclaim the kernel's memory and those of `weir status` itself.
requests() {
    "$WEIR" status --requests --json "$MNT" >"$WORK/now.json"
    python3 - "$WORK/now.json" <<'END'
import json, sys
requests = json.load(open(sys.argv[1]))["requests"]
print(sum(count for name, count in requests.items() if name not in ("forget", "batch_forget", "interrupt")))
END
}

# cost NAME MAX COMMAND...: counts the requests of COMMAND.
total=
cost() {
    local name=$1 max=$2 before after
    shift 2
    before=$(requests)
    cp "$WORK/now.json" "$WORK/before.json"
    "$@"
    after=$(requests)
    step "$name: $((after - before))"
    python3 - "$WORK/before.json" "$WORK/now.json" <<'END'
import json, sys
before, after = (json.load(open(path))["requests"] for path in sys.argv[1:])
print(", ".join(f"{name} {after[name] - before.get(name, 0)}" for name in after if after[name] != before.get(name, 0)))
END
    [ "$((after - before))" -le "$max" ] || fail "$name: $((after - before)) requests, at most $max are expected"
    total="$total${total:+, }$name $((after - before))"
}

step "what to unpack, and a repository of 150 directories"
mkdir "$WORK/small" "$SRC/repository"
for number in $(seq 1000); do echo "$number" >"$WORK/small/file-$number"; done
tar -C "$WORK" -cf "$WORK/small.tar" small
for first in $(seq 10); do
    for second in $(seq 14); do
        mkdir -p "$SRC/repository/$first/$second"
        for name in a b; do echo "$name $first $second" >"$SRC/repository/$first/$second/$name"; done
    done
done
# git reads a file again, and writes its index anew, as long as both changed within one second.
find "$SRC/repository" -type f -exec touch -d "1 hour ago" {} +
git -C "$SRC/repository" -c init.defaultBranch=main init -q
git -C "$SRC/repository" add -A
git -C "$SRC/repository" commit -qm all

git_status() {
    [ -z "$(git -C "$MNT/repository" status --porcelain)" ] || fail "git status shows changes"
}
insert() {
    python3 - "$MNT/database" <<'END'
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("pragma journal_mode = delete")
database.execute("pragma synchronous = full")
database.execute("create table if not exists of (number integer)")
database.execute("insert into of values (1)")
database.close()
END
}

mount_weir "$SRC" "$MNT"
cost "tar of 1,000 files" 11010 tar -C "$MNT" -xf "$WORK/small.tar"
git_status
cost "git status warm" 204 git_status
sleep 3
git_status
cost "git status after 3 s" 202 git_status
insert
cost "SQLite insert" 36 insert
umount_weir "$MNT"
mount_weir "$SRC" "$MNT"
cost "git status cold" 850 git_status
umount_weir "$MNT"
counts "$total"
