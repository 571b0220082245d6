#!/usr/bin/env python3
"""SQLite transactions that are noted once they are committed, and what must be in the database after a crash.

    transactions.py write DATABASE NOTED MODE SECONDS
    transactions.py check DATABASE NOTED

MODE is a journal mode: delete (with synchronous=EXTRA, without which SQLite itself may lose the last commits) or wal. A
transaction inserts row N in two tables and changes a row of an earlier one, or that. It stops at the first error, and
where the database's directory cannot be opened any more: SQLite takes that for a directory that need not be synced
(unixDelete), and says that all is committed. Afterwards the database is whole, holds each noted transaction, and at
most one more.
"""

import hashlib
import os
import sqlite3
import sys
import time

ROW_BYTES = 700


def body(number, version):
    return (hashlib.sha256(f"{number} {version}".encode()).digest() * (ROW_BYTES // 32 + 1))[:ROW_BYTES]


def changed_by(number):
    return 1 + number * 7919 % 10007 % number


def write(path, noted, mode, seconds):
    note = os.open(noted, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    until = time.monotonic() + seconds
    try:
        base = sqlite3.connect(path, isolation_level=None, timeout=20)
        base.execute(f"PRAGMA journal_mode={mode}")
        base.execute("PRAGMA synchronous=" + ("FULL" if mode == "wal" else "EXTRA"))
        base.execute("CREATE TABLE IF NOT EXISTS one(n INTEGER PRIMARY KEY, version INTEGER, body BLOB)")
        base.execute("CREATE TABLE IF NOT EXISTS two(n INTEGER PRIMARY KEY, body BLOB)")
        number = base.execute("SELECT coalesce(max(n), 0) FROM two").fetchone()[0]
        while time.monotonic() < until:
            number += 1
            earlier = changed_by(number)
            base.execute("BEGIN IMMEDIATE")
            base.execute("INSERT INTO one VALUES(?, 0, ?)", (number, body(number, 0)))
            base.execute("INSERT INTO two VALUES(?, ?)", (number, body(number, 1)))
            base.execute("UPDATE one SET version = ?, body = ? WHERE n = ?", (number, body(earlier, number), earlier))
            base.execute("COMMIT")
            os.close(os.open(os.path.dirname(path), os.O_RDONLY))
            os.write(note, b"%d\n" % number)
    except (sqlite3.Error, OSError) as error:
        print(f"stopped: {error}")


def check(path, noted):
    last = 0
    if os.path.exists(noted):
        with open(noted, encoding="ascii") as lines:
            last = max((int(line) for line in lines), default=0)
    base = sqlite3.connect(path, timeout=20)
    whole = base.execute("PRAGMA integrity_check").fetchone()[0]
    if whole != "ok":
        sys.exit(f"integrity: {whole}")
    one = {n: (version, data) for n, version, data in base.execute("SELECT n, version, body FROM one")}
    two = dict(base.execute("SELECT n, body FROM two"))
    if set(one) != set(two) or sorted(two) != list(range(1, len(two) + 1)):
        sys.exit(f"half a transaction: {len(one)} and {len(two)} rows")
    if not last <= len(two) <= last + 1:
        sys.exit(f"{len(two)} transactions, of which {last} were noted")
    versions = {changed_by(number): number for number in sorted(two)}
    for number, data in two.items():
        version, changed = one[number]
        if data != body(number, 1) or version != versions.get(number, 0) or changed != body(number, version):
            sys.exit(f"row {number} is wrong")
    print(f"{len(two)} transactions")


def main():
    if len(sys.argv) == 6 and sys.argv[1] == "write":
        write(sys.argv[2], sys.argv[3], sys.argv[4], float(sys.argv[5]))
    elif len(sys.argv) == 4 and sys.argv[1] == "check":
        check(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)


main()
