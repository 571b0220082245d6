"""A program that syncs nothing, and what its files are after a crash.

write DIR PROGRESS: round after round, writes the round's number to counters in a fixed order, with a file that is truncated and
written anew among them, and renames a file at the end of the round. PROGRESS, which is not in the mount, gets each round that
has ended and when.
post FILE OTHER: writes FILE often, so that a program of the lane posts there, and at the end syncs OTHER alone.
check DIR: everything must be as at one moment. Prints the round.
"""

import os
import sys
import time

COUNTERS = ["first", "sub/second", "third", "sub/sub/fourth", "last"]
#: It is written anew after this many of the counters.
WHOLE_AFTER = 3


def line(number):
    return b"%08d\n" % number


def write(directory, progress):
    os.makedirs(os.path.join(directory, "sub/sub"), exist_ok=True)
    path = lambda name: os.path.join(directory, name)
    counters = [os.open(path(name), os.O_RDWR | os.O_CREAT) for name in COUNTERS]
    for counter in counters:
        os.pwrite(counter, line(0), 0)
    with open(path("whole"), "wb") as whole:
        whole.write(line(0))
    open(path("round-0"), "wb").close()
    filler = os.open(path("filler"), os.O_RDWR | os.O_CREAT)
    with open(progress, "w", buffering=1) as out:
        number = 0
        while True:
            number += 1
            for nth, counter in enumerate(counters):
                if nth == WHOLE_AFTER:
                    with open(path("whole"), "wb") as whole:
                        whole.write(line(number))
                # Somewhere else each time, so that old pages go home.
                os.pwrite(filler, os.urandom(512), (number * 7919 + nth) % 4096 * 4096)
                os.pwrite(counter, line(number), 0)
            os.rename(path("round-%d" % (number - 1)), path("round-%d" % number))
            out.write("%d %f\n" % (number, time.time()))


def post(path, other):
    file = os.open(path, os.O_RDWR)
    other = os.open(other, os.O_RDONLY)
    for number in range(100):
        os.pwrite(file, line(number), number)
        if number % 40 == 39:
            os.fsync(file)
    os.pwrite(file, b"last", 4096)
    os.fsync(other)


def wrong(directory):
    """What is not as at one moment, and the last round that ended."""
    read = lambda name: open(os.path.join(directory, name), "rb").read()
    values = []
    for name in COUNTERS:
        content = read(name)
        if len(content) != len(line(0)):
            return "%s is %r" % (name, content), 0
        values.append(int(content))
    whole = read("whole")
    rounds = [name for name in os.listdir(directory) if name.startswith("round-")]
    if len(rounds) != 1:
        return "there are %s" % rounds, 0
    ended = int(rounds[0][len("round-"):])
    # What each step of a round leaves, in order.
    steps = values[:WHOLE_AFTER] + [whole] + values[WHOLE_AFTER:] + [ended]
    found = "%s, whole %r, round %d" % (values, whole, ended)
    number = steps[0]
    is_old = False
    for step in steps:
        if step == b"" or (isinstance(step, bytes) and step not in (line(number), line(number - 1))):
            # It is empty only between its truncation and its write.
            if step != b"" or is_old:
                return found, ended
            is_old = True
            continue
        value = int(step)
        if value == number and not is_old:
            continue
        if value != number - 1:
            return found, ended
        is_old = True
    return None, ended


def main():
    if sys.argv[1] == "write":
        return write(sys.argv[2], sys.argv[3])
    if sys.argv[1] == "post":
        return post(sys.argv[2], sys.argv[3])
    what, ended = wrong(sys.argv[2])
    if what:
        print("not as at one moment: " + what)
        return 1
    print(ended)
    return 0


if __name__ == "__main__":
    sys.exit(main())
