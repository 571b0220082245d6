#!/usr/bin/env python3
"""Clients of library/kv_server.c, as observers outside.

    kv_clients.py load PORT OUT [CLIENTS]   sets keys until the server is gone; keeps in OUT, in the form of the server's file, what was
                                            acknowledged to each client, and what one more client got
    kv_clients.py check OUT FILE            whether FILE has every line of OUT; prints how many these are

Each client sets a key of its own to 1, 2, 3 and so on, every other one in batches of ten.
"""

import random
import socket
import sys
import threading

BATCH = 10


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.replies = self.socket.makefile("rb")

    def ask(self, lines):
        """Sends lines at once; returns the replies until the server was gone."""
        try:
            self.socket.sendall("".join(f"{line}\n" for line in lines).encode())
            got = [self.replies.readline() for _ in lines]
        except OSError:
            return []
        return [reply.decode().rstrip("\n") for reply in got if reply.endswith(b"\n")]


def set_keys(port, key, batch, seen):
    connection = Connection(port)
    number = 0
    while True:
        values = range(number + 1, number + batch + 1)
        replies = connection.ask([f"set {key} {value}" for value in values])
        if any(reply != "ok" for reply in replies):
            # `check` shows it, since the file has no such line.
            seen.append(f"{key}: {replies}")
            return
        seen.extend(f"{key} {value}" for value, _ in zip(values, replies))
        if len(replies) < batch:
            return
        number += batch


def get_keys(port, keys, seen):
    connection = Connection(port)
    while True:
        key = random.choice(keys)
        replies = connection.ask([f"get {key}"])
        if not replies:
            return
        if replies[0] != "none":
            seen.append(f"{key} {replies[0]}")


def load(port, out, clients):
    keys = [f"key{at}" for at in range(clients)]
    seen = [[] for _ in range(clients + 1)]
    threads = [
        threading.Thread(target=set_keys, args=(port, key, BATCH if at % 2 else 1, seen[at])) for at, key in enumerate(keys)
    ]
    threads.append(threading.Thread(target=get_keys, args=(port, keys, seen[-1])))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open(out, "w", encoding="ascii") as kept:
        for lines in seen:
            kept.writelines(f"{line}\n" for line in lines)


def check(out, file):
    with open(file, encoding="ascii", errors="replace") as kept:
        lines = set(kept)
    with open(out, encoding="ascii") as seen:
        told = list(seen)
    lost = [line for line in told if line not in lines]
    if lost:
        sys.exit(f"{len(lost)} of {len(told)} lines are lost that somebody outside saw, as {lost[0].strip()}")
    print(len(told))


if __name__ == "__main__":
    if sys.argv[1] == "load":
        load(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else 8)
    else:
        check(sys.argv[2], sys.argv[3])
