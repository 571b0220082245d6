#!/usr/bin/env python3
"""Loads for `weir run --sync external`, an observer outside the session, and a check of what a crash left.

    observed.py observe LOAD DIRECTORY SEEN COMMAND...
        runs LOAD on DIRECTORY by COMMAND, which puts it into a session (or does not), and notes in SEEN what it sees of it
    observed.py check LOAD DIRECTORY SEEN [in-any-order]
        prints how much was seen; exit status 3, with a sentence, if what is in DIRECTORY does not explain it
    observed.py load NAME DIRECTORY
        the program of a load
    observed.py prepare postgres|mariadb DIRECTORY
        makes what the load begins with

A load counts. What is seen is a line with the name of a counter and a number, noted after it was seen: from then on the counter must not be below
that. The loads:

    script  a shell script of echo, cp, mv and sync; it prints each round
    pipe    a parent that reads its child's pipe and prints; the child alone writes and syncs
    keys    a key-value server over TCP, with clients outside the session
    redis   Redis with appendfsync always, with clients outside
    postgres  PostgreSQL, with psql outside; DIRECTORY is a cluster with the table of `prepare`, and PostgreSQL's programs are in $PROGRAMS
    mariadb  MariaDB, with clients outside; DIRECTORY is a data directory with the table of `prepare`
    status  a program for each number, whose exit status is seen
"""

import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time

CLIENTS = 4
# In a session that works nothing takes as long, on any machine.
PATIENCE_S = 60
NOT_EXPLAINED = 3

# Each round replaces, copies, appends and syncs; the states that it goes through are those of `states`.
SCRIPT = """
set -e
cd "$0"
round=0
while :; do
    round=$((round + 1))
    echo $round >draft
    cp draft copy
    sync copy
    mv copy "kept-$((round % 3))"
    echo $round >>journal
    mv draft current
    sync .
    echo $round
done
"""


# The loads' programs.


def run_pipe(directory):
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(read)
        fd = os.open(directory + "/count", os.O_RDWR | os.O_CREAT, 0o644)
        number = 0
        while True:
            number += 1
            os.pwrite(fd, b"%020d" % number, 0)
            os.fsync(fd)
            os.write(write, b"%d\n" % number)
    os.close(write)
    with os.fdopen(read, "rb") as lines:
        for line in lines:
            os.write(1, line)


def run_keys(directory):
    """It answers as Redis does, to SET and GET in one line each. All that comes at once is synced together."""
    log = os.open(directory + "/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)
    listening.setblocking(False)
    os.write(1, b"%d\n" % listening.getsockname()[1])
    events = select.epoll()
    events.register(listening, select.EPOLLIN)
    connections, unread, values = {}, {}, {}
    while True:
        replies, changed = {}, False
        for fd, _ in events.poll():
            if fd == listening.fileno():
                taken, _ = listening.accept()
                taken.setblocking(False)
                taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connections[taken.fileno()], unread[taken.fileno()] = taken, b""
                events.register(taken, select.EPOLLIN)
                continue
            came = connections[fd].recv(65536)
            if not came:
                events.unregister(fd)
                connections.pop(fd).close()
                continue
            *lines, unread[fd] = (unread[fd] + came).split(b"\r\n")
            for line in lines:
                what, key, *value = line.split()
                if what == b"SET":
                    os.write(log, key + b" " + value[0] + b"\n")
                    values[key], changed = value[0], True
                    reply = b"+OK\r\n"
                else:
                    reply = b"$%d\r\n%s\r\n" % (len(values[key]), values[key]) if key in values else b"$-1\r\n"
                replies[fd] = replies.get(fd, b"") + reply
        if changed:
            os.fdatasync(log)
        for fd, reply in replies.items():
            connections[fd].sendall(reply)


# The observer.


class Seen:
    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, counter, number):
        os.write(self.fd, f"{counter} {int(number)}\n".encode())


def observe_lines(seen, command):
    program = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
    for line in program.stdout:
        if line.endswith(b"\n"):
            seen.note("count", line)
    program.wait()


def observe_status(seen, directory, command):
    number = 0
    while True:
        number += 1
        program = f"echo {number} >>'{directory}/count' && sync '{directory}/count'"
        if subprocess.run([*command, "sh", "-c", program], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            return
        seen.note("count", number)


def client(seen, connect, own):
    """Counts its own key up, and now and then looks at another client's. Ends when the server does."""
    try:
        connection = connect()
        answers = connection.makefile("rb")
        number = 0
        while True:
            number += 1
            connection.sendall(b"SET key-%d %d\r\n" % (own, number))
            if answers.readline() != b"+OK\r\n":
                return
            seen.note(f"key-{own}", number)
            if number % 3 == 0:
                other = (own + number) % CLIENTS
                connection.sendall(b"GET key-%d\r\n" % other)
                if answers.readline() not in (b"", b"$-1\r\n"):
                    value = answers.readline()
                    if value.endswith(b"\r\n"):
                        seen.note(f"key-{other}", value)
    except OSError:
        return


def observe_server(seen, program, connect):
    clients = [threading.Thread(target=client, args=(seen, connect, own)) for own in range(CLIENTS)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    # Without its clients it may not notice that its files are gone.
    program.terminate()
    program.wait()


def observe_keys(seen, command):
    program = subprocess.Popen(command, stdout=subprocess.PIPE)
    port = int(program.stdout.readline())
    observe_server(seen, program, lambda: socket.create_connection(("127.0.0.1", port), PATIENCE_S))


def observe_redis(seen, path, directory, command):
    server = ["redis-server", "--port", "0", "--unixsocket", path, "--dir", directory, "--appendonly", "yes"]
    server += ["--appendfsync", "always", "--save", "", "--auto-aof-rewrite-percentage", "0", "--loglevel", "warning"]
    program = subprocess.Popen([*command, *server], stdout=subprocess.DEVNULL)

    def connect():
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE_S)
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                connection.connect(path)
                return connection
            except OSError:
                if program.poll() is not None or time.monotonic() > until:
                    raise
                time.sleep(0.01)

    observe_server(seen, program, connect)


def as_postgres(program, *words):
    return ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", f"{os.environ['PROGRAMS']}/{program}", *words]


def single(directory, sql):
    """What a server without clients says to a line."""
    command = as_postgres("postgres", "--single", "-c", "log_min_messages=error", "-D", directory, "postgres")
    done = subprocess.run(command, input=sql.encode() + b"\n", stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", check=False)
    if done.returncode != 0:
        not_explained(f"PostgreSQL cannot open {directory}: {done.stderr.decode()[-300:]}")
    return done.stdout.decode()


def prepare_postgres(directory):
    command = as_postgres("initdb", "--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "-D", directory)
    subprocess.run(command, stdout=subprocess.DEVNULL, cwd="/", check=True)
    with open(directory + "/postgresql.conf", "a", encoding="utf-8") as settings:
        settings.write("listen_addresses = ''\nshared_buffers = 8MB\nmax_connections = 20\nmax_wal_size = 64MB\n")
    single(directory, "CREATE TABLE seen (own int, number int);")


def database_client(seen, command, looks, over, own):
    """As `client`, by a database's own client, which `command` runs. It looks at others' numbers if it `looks`."""
    until = time.monotonic() + PATIENCE_S
    while not over.is_set() and time.monotonic() < until:
        shell = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)

        def ask(sql, shell=shell):
            shell.stdin.write(sql.encode() + b"\n")
            return shell.stdout.readline()

        number = 0
        try:
            while True:
                number += 1
                if ask(f"INSERT INTO seen VALUES ({own}, {number}) RETURNING number;") != b"%d\n" % number:
                    break
                seen.note(f"key-{own}", number)
                if looks and number % 3 == 0:
                    other = (own + number) % CLIENTS
                    value = ask(f"SELECT coalesce(max(number), 0) FROM seen WHERE own = {other};")
                    if value.endswith(b"\n"):
                        seen.note(f"key-{other}", value)
        except BrokenPipeError:
            pass
        shell.kill()
        shell.wait()
        if number > 1:
            over.set()
        # Otherwise it does not listen yet.
        time.sleep(0.05)


def observe_database(seen, command, looks):
    """By clients that `command` runs, until the server is gone."""
    over = threading.Event()
    clients = [threading.Thread(target=database_client, args=(seen, command, looks, over, own)) for own in range(CLIENTS)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()


def end(program, signal_name, pattern):
    """Ends a server by a signal to the processes of `pattern`."""
    subprocess.run(["pkill", f"-{signal_name}", "-f", pattern], check=False)
    try:
        program.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        subprocess.run(["pkill", "-KILL", "-f", pattern], check=False)
        program.wait()


def observe_postgres(seen, directory, command):
    socket_name = f"@weir-observed-{os.getpid()}"
    server = as_postgres("postgres", "-D", directory, "-k", socket_name)
    program = subprocess.Popen([*command, *server], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
    client_command = ["psql", "-qAtX", "-v", "ON_ERROR_STOP=1", "-h", socket_name, "-U", "postgres", "-d", "postgres"]
    observe_database(seen, client_command, True)
    # An immediate stop.
    end(program, "QUIT", f"{socket_name}$")


def mariadb_server(directory, socket_name):
    """Its temporary files are beside its data: a server removes those of all others that are in the same place."""
    server = ["mariadbd", "--no-defaults", "--user=root", "--skip-networking", f"--datadir={directory}", f"--tmpdir={directory}"]
    server += [f"--log-error={directory}/server.log", "--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=8M"]
    return [*server, "--innodb-log-file-size=8M", "--innodb-temp-data-file-path=ibtmp1:3M:autoextend", f"--socket={socket_name}"]


def mariadb_client(socket_name, *words):
    return ["mariadb", "--no-defaults", "--user=root", f"--socket={socket_name}", "--batch", "--skip-column-names", *words]


def ask_mariadb(directory, sql):
    """What a server that nobody else uses says."""
    with tempfile.TemporaryDirectory() as place:
        socket_name = place + "/socket"
        server = subprocess.Popen(mariadb_server(directory, socket_name), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + PATIENCE_S
        while True:
            said = subprocess.run(mariadb_client(socket_name, "--execute", sql), stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
            if said.returncode == 0:
                break
            if server.poll() is not None or time.monotonic() > until:
                server.kill()
                server.wait()
                not_explained(f"MariaDB cannot open {directory}: {content(directory + '/server.log').decode()[-300:]}")
            time.sleep(0.02)
        server.terminate()
        server.wait()
    return said.stdout.decode()


def prepare_mariadb(directory):
    command = ["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={directory}", "--skip-test-db"]
    command += ["--auth-root-authentication-method=normal", "--innodb-log-file-size=8M"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    ask_mariadb(directory, "CREATE DATABASE observed; CREATE TABLE observed.seen (own int, number int) ENGINE=InnoDB;")


def observe_mariadb(seen, socket_name, directory, command):
    server = [*command, *mariadb_server(directory, socket_name)]
    program = subprocess.Popen(server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # InnoDB shows a transaction to others before its log is synced: what they see of it is not promised.
    observe_database(seen, mariadb_client(socket_name, "--unbuffered", "--database=observed"), False)
    end(program, "KILL", f"^mariadbd .*--socket={socket_name}$")


def observe(load, directory, seen_at, command):
    seen = Seen(seen_at)
    if load == "script":
        observe_lines(seen, [*command, "sh", "-c", SCRIPT, directory])
    elif load == "pipe":
        observe_lines(seen, [*command, sys.executable, __file__, "load", load, directory])
    elif load == "keys":
        observe_keys(seen, [*command, sys.executable, __file__, "load", load, directory])
    elif load == "redis":
        observe_redis(seen, seen_at + ".socket", directory, command)
    elif load == "postgres":
        observe_postgres(seen, directory, command)
    elif load == "mariadb":
        observe_mariadb(seen, seen_at + ".socket", directory, command)
    elif load == "status":
        observe_status(seen, directory, command)
    else:
        sys.exit(__doc__)


# The check.


def not_explained(what):
    print(what)
    sys.exit(NOT_EXPLAINED)


def content(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def states(round_number):
    """Every state of the files that the script goes through in a round, from its beginning on; a file that is not there has no entry."""
    before = round_number - 1
    files = {f"kept-{number % 3}": b"%d\n" % number for number in range(max(1, before - 2), before + 1)}
    if before:
        files["journal"] = b"".join(b"%d\n" % number for number in range(1, before + 1))
        files["current"] = b"%d\n" % before
    line = b"%d\n" % round_number
    yield dict(files)
    for name in ("draft", "copy"):
        for written in (b"", line):
            files[name] = written
            yield dict(files)
    files[f"kept-{round_number % 3}"] = files.pop("copy")
    yield dict(files)
    # A file that is made has no content at first.
    files.setdefault("journal", b"")
    yield dict(files)
    files["journal"] += line
    yield dict(files)
    files["current"] = files.pop("draft")
    yield dict(files)


def check_script(directory, in_order):
    found = {name: content(f"{directory}/{name}") for name in os.listdir(directory)}
    rounds = found.get("journal", b"").count(b"\n")
    if not in_order:
        # What was not promised yet may be there in part. What was printed is there, or something later.
        reaches = lambda name, number: int(found.get(name) or 0) >= number
        all_reach = lambda number: reaches("current", number) and reaches(f"kept-{number % 3}", number)
        return {"count": next((number for number in range(rounds, 0, -1) if all_reach(number)), 0)}
    if not any(found == state for number in (rounds, rounds + 1) if number for state in states(number)):
        not_explained(f"the files are as at no moment: { {name: data[-40:] for name, data in found.items()} }")
    # The round was printed after all its steps.
    done = rounds if found.get("current") == b"%d\n" % rounds else rounds - 1
    return {"count": done}


def check_redis(directory):
    """The last value of each key in the file that Redis appends to, up to a command that is not whole."""
    data = content(directory + "/appendonlydir/appendonly.aof.1.incr.aof")
    values, at = {}, 0

    def line():
        nonlocal at
        end = data.find(b"\r\n", at)
        if end < 0:
            raise EOFError
        begun, at = at, end + 2
        return data[begun:end]

    def word():
        nonlocal at
        length = int(line()[1:])
        if len(data) < at + length + 2:
            raise EOFError
        begun, at = at, at + length + 2
        return data[begun : begun + length]

    try:
        while at < len(data):
            words = [word() for _ in range(int(line()[1:]))]
            if words[0].upper() == b"SET":
                values[words[1].decode()] = int(words[2])
    except EOFError:
        pass
    return values


def check_postgres(directory):
    said = single(directory, "SELECT own, max(number) AS number FROM seen GROUP BY own;")
    numbers = [int(number) for number in re.findall(r'(?:own|number) = "(\d+)"', said)]
    return {f"key-{own}": number for own, number in zip(numbers[::2], numbers[1::2])}


def check_mariadb(directory):
    said = ask_mariadb(directory, "SELECT own, count(DISTINCT number) FROM observed.seen GROUP BY own;")
    return {f"key-{own}": int(number) for own, number in (line.split() for line in said.splitlines())}


def check(load, directory, seen_at, in_order):
    seen = {}
    for line in content(seen_at).decode().splitlines():
        counter, number = line.split()
        seen[counter] = max(seen.get(counter, 0), int(number))
    if load == "script":
        kept = check_script(directory, in_order)
    elif load == "pipe":
        kept = {"count": int(content(directory + "/count") or 0)}
    elif load == "status":
        kept = {"count": content(directory + "/count").count(b"\n")}
    elif load == "keys":
        lines = content(directory + "/log").decode().split("\n")[:-1]
        kept = {key: int(number) for key, number in (line.split() for line in lines)}
    elif load == "postgres":
        kept = check_postgres(directory)
    elif load == "mariadb":
        kept = check_mariadb(directory)
    else:
        kept = check_redis(directory)
    for counter, number in seen.items():
        if kept.get(counter, 0) < number:
            not_explained(f"{counter}: {number} was seen, and {kept.get(counter, 0)} was kept")
    print(sum(seen.values()))


def main():
    what, load, directory, *rest = sys.argv[1:]
    if what == "observe":
        observe(load, directory, rest[0], rest[1:])
    elif what == "prepare":
        {"postgres": prepare_postgres, "mariadb": prepare_mariadb}[load](directory)
    elif what == "check":
        check(load, directory, rest[0], "in-any-order" not in rest)
    else:
        {"pipe": run_pipe, "keys": run_keys}[load](directory)


if __name__ == "__main__":
    main()
