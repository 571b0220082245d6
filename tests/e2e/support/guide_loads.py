#!/usr/bin/env python3
"""Loads for the pages of docs/guide, and checks of what a crash left of them.

    guide_loads.py redis SEEN                 clients of a server at 127.0.0.1:6379 count their keys up until it is gone; what was answered is in SEEN
    guide_loads.py redis-check SEEN           each key is at what was answered, or one further
    guide_loads.py redis-content              prints a hash of all keys and values
    guide_loads.py deliver MAILDIR NOTED WAY  delivers mail by Python's mailbox until that fails; WAY is synced (the directory is synced, too) or named
    guide_loads.py delivered MAILDIR NOTES MS each mail that must be there is: those of NOTES/synced, and those of NOTES/named before that moment; all are whole
    guide_loads.py sources DIRECTORY          C sources and a Makefile
"""

import hashlib
import mailbox
import os
import socket
import sys
import threading
import time

CLIENTS = 4
KEYS = 50
UNITS = 24


class Redis:
    """A connection; a command is words, an answer a line or a value."""

    def __init__(self):
        self.socket = socket.create_connection(("127.0.0.1", 6379), 30)
        self.answers = self.socket.makefile("rb")

    def ask(self, *words):
        sent = b"*%d\r\n" % len(words)
        for word in words:
            word = word if isinstance(word, bytes) else str(word).encode()
            sent += b"$%d\r\n%s\r\n" % (len(word), word)
        self.socket.sendall(sent)
        return self.answer()

    def answer(self):
        line = self.answers.readline()
        if not line.endswith(b"\r\n"):
            raise OSError("the server is gone")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise OSError(rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else self.answers.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.answer() for _ in range(int(rest))]
        return rest


def value_of(key, number):
    """A value that says which it is in all its bytes."""
    return (f"{key} {number} " * 12).encode()


def redis_client(own, seen):
    numbers = [0] * KEYS
    try:
        connection = Redis()
        while True:
            at = numbers.index(min(numbers))
            key = f"{own}-{at}"
            connection.ask("SET", key, value_of(key, numbers[at] + 1))
            numbers[at] += 1
            os.write(seen, f"{key} {numbers[at]}\n".encode())
    except OSError:
        return


def redis_load(path):
    seen = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    clients = [threading.Thread(target=redis_client, args=(own, seen)) for own in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()


def redis_check(path):
    answered = {}
    for line in open(path, encoding="ascii"):
        key, number = line.split()
        answered[key] = int(number)
    connection = Redis()
    for key, number in answered.items():
        found = connection.ask("GET", key)
        if found not in (value_of(key, number), value_of(key, number + 1)):
            sys.exit(f"{key} was answered at {number}, and is {found}")
    print(f"{len(answered)} keys as answered, {sum(answered.values())} SETs")


def redis_content():
    connection = Redis()
    whole = hashlib.sha256()
    for key in sorted(connection.ask("KEYS", "*")):
        whole.update(key + b" " + connection.ask("GET", key) + b"\n")
    print(whole.hexdigest())


def mail_of(way, number):
    return f"Subject: {way} {number}\n\n" + f"mail {way} {number}\n" * (20 + number % 200)


def deliver(maildir, noted, way):
    box = mailbox.Maildir(maildir)
    number = 0
    try:
        with open(noted, "a", buffering=1, encoding="ascii") as notes:
            while True:
                number += 1
                box.add(mail_of(way, number))
                if way == "synced":
                    directory = os.open(maildir + "/new", os.O_RDONLY | os.O_DIRECTORY)
                    os.fsync(directory)
                    os.close(directory)
                notes.write(f"{time.time_ns() // 10**6} {number}\n")
    except OSError as error:
        print(f"{way}: {number - 1} mails, then {error}")


def delivered(maildir, notes, until_ms):
    found = {}
    for name in os.listdir(maildir + "/new"):
        with open(f"{maildir}/new/{name}", encoding="ascii") as file:
            text = file.read()
        words = text.split("\n", 1)[0].split()
        if len(words) != 3 or text != mail_of(words[1], int(words[2])):
            sys.exit(f"new/{name} is not a whole mail")
        if (words[1], int(words[2])) in found:
            sys.exit(f"new/{name} is there twice")
        found[words[1], int(words[2])] = name
    must = 0
    for way in ("synced", "named"):
        for line in open(f"{notes}/{way}", encoding="ascii"):
            moment, number = map(int, line.split())
            if way == "named" and moment >= until_ms:
                continue
            must += 1
            if (way, number) not in found:
                sys.exit(f"{way} mail {number} is lost: it was delivered at {moment}, and the daemon killed 2000 ms after {until_ms}")
    print(f"{must} mails that must be there, {len(found)} found")


def sources(directory):
    os.makedirs(directory + "/units")
    for unit in range(UNITS):
        with open(f"{directory}/units/unit{unit}.c", "w", encoding="ascii") as file:
            file.write('#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include "../program.h"\n')
            for part in range(60):
                file.write(f"static long part{part}(long n) {{ long s = {unit}; for (long i = 0; i < n; i++) s += i * {part} + s % {part + 2}; return s; }}\n")
            calls = " + ".join(f"part{part}(n)" for part in range(60))
            file.write(f"long unit{unit}(long n) {{ return {calls}; }}\n")
    with open(directory + "/program.h", "w", encoding="ascii") as file:
        file.writelines(f"long unit{unit}(long n);\n" for unit in range(UNITS))
    with open(directory + "/program.c", "w", encoding="ascii") as file:
        total = " + ".join(f"unit{unit}(9)" for unit in range(UNITS))
        file.write(f'#include <stdio.h>\n#include "program.h"\nint main(void) {{ printf("%ld\\n", {total}); return 0; }}\n')
    with open(directory + "/Makefile", "w", encoding="ascii") as file:
        objects = " ".join(f"units/unit{unit}.o" for unit in range(UNITS))
        file.write(f"CFLAGS = -O1 -frandom-seed=1\nOBJECTS = program.o {objects}\nprogram: $(OBJECTS)\n\t$(CC) -o $@ $(OBJECTS)\n$(OBJECTS): program.h\n")


def main():
    commands = {
        "redis": (redis_load, 1), "redis-check": (redis_check, 1), "redis-content": (redis_content, 0),
        "deliver": (deliver, 3), "delivered": (delivered, 3), "sources": (sources, 1),
    }
    name, *arguments = sys.argv[1:] or [""]
    if name not in commands or len(arguments) != commands[name][1]:
        sys.exit(__doc__)
    if name == "delivered":
        arguments[2] = int(arguments[2])
    commands[name][0](*arguments)


if __name__ == "__main__":
    main()
