#!/usr/bin/env python3
"""What `weir advise` predicts for programs, beside what is measured.

    advise_predictions.py WEIR DIRECTORY ROUNDS [NAME ...]

Each program of advise_workloads.py is advised on once; then it is run directly and in its way through Weir, in turn, on the same
disk, each time on files that were made anew, on a new mount, when nothing waits to be written. Advising and measuring are each on a
new ext4 file system, in a file of that disk, and nothing is removed there, since ext4 makes files slowly for a while after others were removed.
The measured ratio is that of the medians. A prediction holds if it is within FACTOR of the measured ratio, and is not wrong in direction: it does not say faster where Weir is
slower, or slower where it is faster, by more than DIRECTION. Prints a table; the status is 1 if a prediction does not hold.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WORKLOADS = Path(__file__).resolve().parent / "advise_workloads.py"
FACTOR = 1.5
DIRECTION = 1.2
IMAGE_BYTES = 6 << 30
# Each program's way.
WAYS = {
    "sqlite-rollback": "mount",
    "sqlite-wal": "run",
    "records": "mount",
    "git": "mount",
    "untar": "mount",
    "sequential-write": "mount",
    "random-read": "mount",
    "small-writes": "run",
    "sync-script": "session",
}
OPTIONS = {"mount": [], "run": [], "session": ["--order", "all"]}
PREFIX = {"mount": [], "run": ["run", "--"], "session": ["run", "--sync", "external", "--"]}


def program(name):
    return [sys.executable, "-S", str(WORKLOADS), "run", name]


def setup(name, directory):
    directory.mkdir()
    subprocess.run([sys.executable, str(WORKLOADS), "setup", name], cwd=directory, check=True)


@contextlib.contextmanager
def file_system(directory):
    """A new ext4 file system on the directory's disk."""
    with tempfile.TemporaryDirectory(dir=directory) as place:
        image, mounted = Path(place) / "image", Path(place) / "mounted"
        mounted.mkdir()
        with open(image, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, IMAGE_BYTES)
        # All of it at once, not in the background.
        options = ["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
        subprocess.run(["mkfs.ext4", *options, str(image)], check=True)
        device = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", str(image)],
                                check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        try:
            subprocess.run(["mount", device, str(mounted)], check=True)
            try:
                yield mounted
            finally:
                subprocess.run(["umount", str(mounted)], check=True)
        finally:
            subprocess.run(["losetup", "--detach", device], check=True)


def timed(words, directory):
    os.sync()
    begun = time.perf_counter()
    subprocess.run(words, cwd=directory, check=True, stdout=subprocess.PIPE, timeout=120)
    return time.perf_counter() - begun


def advised(weir, name, directory):
    home = directory / "advised"
    setup(name, home)
    out, found = directory / f"{name}.html", directory / f"{name}.json"
    words = [weir, "advise", "--source", str(home), "--out", str(out), "--json", str(found), "--", *program(name)]
    # Its summary is on standard error.
    subprocess.run(words, cwd=home, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=240)
    left = [path.name for path in home.iterdir() if path.name.startswith(".weir")]
    if left:
        sys.exit(f"{name}: weir advise left {left}")
    return json.loads(found.read_text())


def directly(name, directory):
    home = Path(tempfile.mkdtemp(dir=directory)) / "home"
    setup(name, home)
    return timed(program(name), home)


def through(weir, name, way, directory):
    place = Path(tempfile.mkdtemp(dir=directory))
    home, mountpoint = place / "home", place / "mnt"
    setup(name, home)
    mountpoint.mkdir()
    log = ["--log-file", str(directory / "daemon.log")]
    subprocess.run([weir, "mount", *OPTIONS[way], *log, str(home), str(mountpoint)], check=True, stderr=subprocess.PIPE)
    try:
        prefix = [weir, *PREFIX[way]] if PREFIX[way] else []
        took = timed([*prefix, *program(name)], mountpoint)
    finally:
        ended = subprocess.run([weir, "umount", str(mountpoint)], check=False, stderr=subprocess.PIPE, text=True)
        # What else makes mount namespaces on this machine meanwhile keeps the mount until they end.
        if ended.returncode and "another mount namespace" not in ended.stderr:
            sys.exit(f"{name}: {ended.stderr}")
    return took


def main():
    weir, directory, rounds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    names = sys.argv[4:] or list(WAYS)
    print(f"| program | way | predicted | measured | off by | confidence | directly | |\n|---|---|---:|---:|---:|---|---:|---|")
    broken = []
    for name in names:
        way = WAYS[name]
        with file_system(directory) as place:
            report = advised(weir, name, place)
        verdict = next(one for one in report["verdicts"] if one["way"] == way)
        direct, served = [], []
        with file_system(directory) as place:
            for _ in range(rounds):
                direct.append(directly(name, place))
                served.append(through(weir, name, way, place))
        ratio = statistics.median(direct) / statistics.median(served)
        predicted = verdict["ratio"]
        off = max(predicted / ratio, ratio / predicted)
        wrong_way = (predicted > 1 and ratio < 1 / DIRECTION) or (predicted < 1 and ratio > DIRECTION)
        wrong_way |= (ratio > 1 and predicted < 1 / DIRECTION) or (ratio < 1 and predicted > DIRECTION)
        held = off <= FACTOR and not wrong_way
        if not held:
            broken.append(name)
        said = "holds" if held else "**direction**" if wrong_way else "**off**"
        print(f"| {name} | {way} | {predicted:.2f}x | {ratio:.2f}x | {off:.2f} | {verdict['confidence']} "
              f"| {statistics.median(direct) * 1e3:.0f} ms | {said} |", flush=True)
    print(f"{len(names) - len(broken)} of {len(names)} predictions hold")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
