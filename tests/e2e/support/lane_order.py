#!/usr/bin/env python3
"""Programs of one session that take turns: each step follows the one before, whichever program made it, and by whatever way.

    lane_order.py run DIRECTORY          makes steps until it is killed: numbers, each written by the lane, by the kernel, or as a name
    lane_order.py prepare DIRECTORY      makes the files
    lane_order.py check DIRECTORY        prints the number of steps that are there, and how many of them were written by the first way; exit status 3 if
                                         one is there and not all before it
    lane_order.py commit DIRECTORY       has the mount committed again and again
"""

import os
import random
import struct
import sys
import time

PROGRAMS = 4
STEPS_MAX = 1 << 17
RECORD = struct.Struct("=Q")


def file_of(directory, program, way):
    return os.path.join(directory, f"{way}-{program}")


def prepare(directory):
    for program in range(PROGRAMS):
        for way in ("posted", "kernel"):
            with open(file_of(directory, program, way), "wb") as file:
                file.write(bytes(STEPS_MAX * RECORD.size))
                os.fsync(file.fileno())
    os.mkdir(os.path.join(directory, "names"))
    os.sync()


def step(directory, program, posted, number, way):
    record = RECORD.pack(number)
    if way == "posted":
        os.pwrite(posted, record, number * RECORD.size)
    elif way == "kernel":
        # A description that is used once does not enter the lane.
        fd = os.open(file_of(directory, program, "kernel"), os.O_RDWR)
        os.pwrite(fd, record, number * RECORD.size)
        os.close(fd)
    else:
        os.mkdir(os.path.join(directory, "names", str(number)))


def take_turns(directory, program, reader, writers):
    rng = random.Random(program)
    posted = os.open(file_of(directory, program, "posted"), os.O_RDWR)
    while True:
        (number,) = RECORD.unpack(os.read(reader, RECORD.size))
        # Some turns are long: then the others find that they may not post any more.
        for _ in range(rng.choice((1, 1, 1, 5, 40))):
            number += 1
            if number >= STEPS_MAX:
                time.sleep(1000)
            way = rng.choice(("posted", "posted", "posted", "posted", "kernel", "name"))
            step(directory, program, posted, number, way)
            if rng.random() < 0.01:
                os.fsync(posted)
        os.write(rng.choice(writers), RECORD.pack(number))


def run(directory):
    pipes = [os.pipe() for _ in range(PROGRAMS)]
    writers = [writer for _, writer in pipes]
    os.write(writers[0], RECORD.pack(0))
    for program in range(PROGRAMS):
        if os.fork() == 0:
            # A program of its own, so that it is another client of the lane.
            os.set_inheritable(pipes[program][0], True)
            for writer in writers:
                os.set_inheritable(writer, True)
            numbers = [str(fd) for fd in (pipes[program][0], *writers)]
            os.execv(sys.executable, [sys.executable, __file__, "turns", directory, str(program), *numbers])
    for _ in range(PROGRAMS):
        os.wait()


def check(directory):
    present = {}
    for program in range(PROGRAMS):
        for way in ("posted", "kernel"):
            with open(file_of(directory, program, way), "rb") as file:
                for place, (number,) in enumerate(RECORD.iter_unpack(file.read())):
                    if number:
                        assert number == place, f"{way}-{program} has {number} at {place}"
                        present[number] = way
    for name in os.listdir(os.path.join(directory, "names")):
        present[int(name)] = "name"
    last = max(present, default=0)
    missing = [number for number in range(1, last + 1) if number not in present]
    if missing:
        print(f"step {last} is there, by {present[last]}, and not {missing[:9]}", file=sys.stderr)
        sys.exit(3)
    print(last, sum(way == "posted" for way in present.values()))


def commit(directory):
    root = os.open(directory, os.O_RDONLY)
    while True:
        os.fsync(root)
        time.sleep(0.001)


def main(what, directory, *rest):
    if what == "turns":
        program, reader, *writers = map(int, rest)
        take_turns(directory, program, reader, writers)
    else:
        {"run": run, "prepare": prepare, "check": check, "commit": commit}[what](directory)


main(*sys.argv[1:])
