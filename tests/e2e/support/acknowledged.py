"""Programs that save files, and what they were told is durable.

    acknowledged.py save DIRECTORY NOTES [--count N]     until it is killed, or N files were saved
    acknowledged.py check DIRECTORY NOTES

A save is what editors and mail servers do: a new file is written, synced, and renamed over the one before, and the directory
is synced. Each file has a generation in all its bytes. After each sync of the directory a line of NOTES, on another disk, says which
file has which generation at least. Some files are removed again, which is noted in the same way with generation 0.
"""

import argparse
import os
import sys

FILES = 40
BYTES = 3000


def content(number, generation):
    line = f"file {number} generation {generation}\n".encode()
    return line * (BYTES // len(line))


def sync_directory(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


def save(directory, notes, count):
    """What a program does that goes on when home does not answer: it needs no file that it did not make itself."""
    at = begun(notes)
    with open(notes, "a", buffering=1) as noted:
        for step in range(count or sys.maxsize):
            number = step * 7 % FILES
            below = f"{directory}/d{number % 4}"
            os.makedirs(below, exist_ok=True)
            name = f"{below}/f{number}"
            at[number] = at.get(number, 0) + 1
            # Noted before: it may be there, or not.
            noted.write(f"begun {number} {at[number]}\n")
            if step % 11 == 10 and os.path.exists(name):
                os.unlink(name)
                sync_directory(below)
                noted.write(f"removed {number} {at[number]}\n")
                continue
            with open(f"{name}.new", "wb") as new:
                new.write(content(number, at[number]))
                new.flush()
                os.fsync(new.fileno())
            os.rename(f"{name}.new", name)
            sync_directory(below)
            noted.write(f"saved {number} {at[number]}\n")


def begun(notes):
    """The last generation of each file that was begun: no generation is used twice."""
    at = {}
    if os.path.exists(notes):
        for line in open(notes):
            if line.startswith("begun ") and line.endswith("\n"):
                _, number, generation = line.split()
                at[int(number)] = int(generation)
    return at


def check(directory, notes):
    known = {}
    for line in open(notes):
        if not line.endswith("\n"):
            break
        what, number, generation = line.split()
        promised, begun = known.get(int(number), (("removed", 0), 0))
        if what == "begun":
            begun = int(generation)
        else:
            promised = (what, int(generation))
        known[int(number)] = (promised, begun)
    wrong = []
    for number, ((what, generation), begun) in known.items():
        name = f"{directory}/d{number % 4}/f{number}"
        allowed = {begun, generation} if what == "saved" else {begun, 0}
        if begun > generation:
            # What was begun may have been a removal.
            allowed.add(0)
        try:
            with open(name, "rb") as file:
                found = file.read()
            is_right = any(found == content(number, one) for one in allowed if one)
            found = found[:40]
        except FileNotFoundError:
            is_right, found = 0 in allowed, "nothing"
        if not is_right:
            wrong.append(f"{name}: {what} {generation}, begun {begun}, found {found}")
    print("\n".join(wrong) if wrong else len(known))
    sys.exit(1 if wrong or not known else 0)


parser = argparse.ArgumentParser()
parser.add_argument("what", choices=["save", "check"])
parser.add_argument("directory")
parser.add_argument("notes")
parser.add_argument("--count", type=int)
arguments = parser.parse_args()
if arguments.what == "save":
    save(arguments.directory, arguments.notes, arguments.count)
else:
    check(arguments.directory, arguments.notes)
