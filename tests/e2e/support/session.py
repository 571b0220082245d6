#!/usr/bin/env python3
"""Small programs for tests of sessions, each one process: where many are started, judging them is a reason for a commit.

    session.py field NAME          of the JSON of `weir status`: a field, with dots, of the session with the most promises
    session.py told FILE GO END    writes and syncs FILE, says so, does the same without saying it when GO is there, and ends when END is there
    session.py leaks FILE GO       writes and syncs FILE, and says something when GO is there
    session.py writes FILE GO      writes FILE when GO is there, and says something
"""

import json
import os
import sys
import time


def field(name):
    of = max(json.load(sys.stdin)["sessions"], key=lambda of: (of["promises"], of["pending"]))
    for part in name.split("."):
        of = of[part]
    print(of)


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)


def write(path, text):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(file, text)
    os.fsync(file)


def told(path, go, end):
    write(path, b"one\n")
    os.write(1, b"said\n")
    wait_for(go)
    write(path, b"two\n")
    wait_for(end)


def leaks(path, go):
    write(path, b"x")
    wait_for(go)
    os.write(1, b"leaked")
    time.sleep(100)


def writes(path, go):
    wait_for(go)
    with open(path, "wb") as file:
        file.write(b"text")
    os.write(1, b"seen")


if __name__ == "__main__":
    {"field": field, "told": told, "leaks": leaks, "writes": writes}[sys.argv[1]](*sys.argv[2:])
