#!/usr/bin/env python3
"""Lists a directory while names in it are exchanged, replaced, made and removed.

    steady.py DIRECTORY SECONDS SEED [--untouched] [--no-links] [--sync WEIR MOUNT]

Some names are never touched. Others are there all the time, but lead to something else every moment: they are exchanged in
circles, and replaced by rename(2). Two processes change them in bursts, so that in between all goes home and is forgotten,
with --sync by `weir sync`. Two others list the directory with buffers of any size. Each listing shows every name that is
there all the time once, and each name is found at any moment, with its number of links.

--untouched: only names that are never touched are to be shown once. Some file systems give a name that is replaced another
position. --no-links: links are not counted. Prints the number of listings.
"""

import argparse
import ctypes
import errno
import os
import random
import struct
import subprocess
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
EXCHANGE = 2
FILES, DIRECTORIES, CIRCLES = 120, 20, 8
# A burst of changes, and how often there is one, in seconds.
BUSY, CYCLE = 0.1, 0.4


def untouched():
    return {f"file-{number:03}-{'x' * (number % 60)}" for number in range(FILES)} | {f"directory-{number}" for number in range(DIRECTORIES)}


def circle(writer, number):
    """Three names that are exchanged: of files, or of directories, or of both."""
    return [f"circle-{writer}-{number}-{at}" for at in range(3)]


def replaced(writer):
    return [f"replaced-{writer}-file-{number}" for number in range(4)], [f"replaced-{writer}-directory-{number}" for number in range(4)]


def touched():
    names = {name for writer in range(2) for number in range(CIRCLES) for name in circle(writer, number)}
    return names.union(*(kind for writer in range(2) for kind in replaced(writer)))


def make(directory):
    """Makes all names. Gives back the links of each file that is never touched."""
    for name in untouched() | touched():
        number = int(name.split("-")[-1]) if name.startswith("circle") else 0
        if name.startswith("directory") or "-directory-" in name or name.startswith("circle") and number == int(name.split("-")[2]) % 3:
            os.mkdir(f"{directory}/{name}")
        else:
            open(f"{directory}/{name}", "w").close()
    for name in list(untouched())[::7]:
        if name.startswith("file"):
            os.link(f"{directory}/{name}", f"{directory}/directory-0/{name}")
    return {name: os.lstat(f"{directory}/{name}").st_nlink for name in untouched() if name.startswith("file")}


def exchange(one, other):
    if libc.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), EXCHANGE):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), one)


def change(directory, writer, until, rng, options):
    files, directories = replaced(writer)
    exchanges = True
    while (now := time.monotonic()) < until:
        if now % CYCLE > BUSY:
            if options.sync and writer == 0:
                subprocess.run([options.sync[0], "sync", options.sync[1]], check=True)
            time.sleep(CYCLE - time.monotonic() % CYCLE)
        what = rng.randrange(0 if exchanges else 3, 8)
        if what < 3:
            names = [f"{directory}/{name}" for name in circle(writer, rng.randrange(CIRCLES))]
            rng.shuffle(names)
            try:
                exchange(names[0], names[1])
                exchange(names[1], names[2])
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                exchanges = False
        elif what < 5:
            new = f"{directory}/new-{writer}"
            with open(new, "w") as file:
                file.write("x" * rng.randrange(3000))
            os.rename(new, f"{directory}/{rng.choice(files)}")
        elif what == 5:
            new = f"{directory}/new-{writer}"
            os.mkdir(new)
            os.rename(new, f"{directory}/{rng.choice(directories)}")
        else:
            new = f"{directory}/comes-{writer}-{rng.randrange(30)}"
            try:
                os.unlink(new)
            except FileNotFoundError:
                open(new, "w").close()
                os.rename(new, new := f"{directory}/comes-{writer}-{rng.randrange(30)}")


def entries(opened, size):
    buffer = ctypes.create_string_buffer(size)
    got = libc.getdents64(opened, buffer, size)
    if got < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    names, at = [], 0
    while at < got:
        length = struct.unpack_from("<H", buffer.raw, at + 16)[0]
        names.append(os.fsdecode(buffer.raw[at + 19:at + length].split(b"\0", 1)[0]))
        at += length
    return names


def list_once(directory, steady, rng):
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    least = rng.choice([400, 400, 3000, 65536])
    seen, pause = {}, rng.choice([0, 0.01, 0.05])
    while names := entries(opened, rng.randrange(least, 2 * least)):
        for name in names:
            seen[name] = seen.get(name, 0) + 1
        time.sleep(pause)
    os.close(opened)
    return [f"{name!r} is shown {seen.get(name, 0)} times (pieces of {least}, pauses of {pause})" for name in steady if seen.get(name, 0) != 1]


def look(directory, until, rng, steady, links):
    count, faults = 0, []
    while time.monotonic() < until and len(faults) < 5:
        faults += list_once(directory, steady, rng)
        count += 1
        for name in rng.sample(sorted(steady), 20):
            try:
                found = os.lstat(f"{directory}/{name}").st_nlink
                if found != links.get(name, found):
                    faults.append(f"{name!r} has {found} links, and had {links[name]}")
            except OSError as error:
                faults.append(f"{name!r} is not found: {error.strerror}")
    return count, faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed")
    parser.add_argument("--untouched", action="store_true")
    parser.add_argument("--no-links", action="store_true")
    parser.add_argument("--sync", nargs=2, metavar=("WEIR", "MOUNT"))
    options = parser.parse_args()
    steady = untouched() if options.untouched else untouched() | touched()
    links = make(options.directory)
    if options.no_links:
        links = {}
    until = time.monotonic() + options.seconds
    children, reports = [], os.pipe()
    for number in range(4):
        children.append(os.fork())
        if children[-1]:
            continue
        status = 1
        try:
            rng = random.Random(f"{options.seed} {number}")
            count, faults = 0, []
            if number < 2:
                change(options.directory, number, until, rng, options)
            else:
                count, faults = look(options.directory, until, rng, steady, links)
            os.write(reports[1], f"{count}\n".encode())
            for fault in faults:
                print(fault, flush=True)
            status = 1 if faults else 0
        except BaseException:  # noqa: every failure of the child must reach its parent
            import traceback
            traceback.print_exc()
        os._exit(status)
    os.close(reports[1])
    statuses = [os.waitpid(child, 0)[1] for child in children]
    if any(statuses):
        sys.exit(f"seed {options.seed}")
    with open(reports[0]) as counted:
        print(sum(int(line) for line in counted))


if __name__ == "__main__":
    main()
