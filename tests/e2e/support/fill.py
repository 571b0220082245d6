#!/usr/bin/env python3
"""Fills a file system until it says so, and remembers what it took.

    fill.py append DIRECTORY MODEL   small appends to several files
    fill.py holes DIRECTORY MODEL    small writes into the holes of a sparse file, and past its end
    fill.py room DIRECTORY MODEL     writes once more after one file went
    fill.py verify DIRECTORY MODEL   every accepted write is there

MODEL is JSON: for each file, what it must hold. A write that failed must have changed nothing.
"""

import errno
import hashlib
import json
import os
import random
import sys
import time


def write_some(fd, data, offset):
    """How many bytes were taken; None when the disk is full."""
    try:
        return os.pwrite(fd, data, offset)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            sys.exit(f"a full disk says {errno.errorcode[error.errno]}")
        return None


def append(directory):
    source = random.Random("append")
    models = {f"file{number}": bytearray() for number in range(4)}
    fds = {name: os.open(f"{directory}/{name}", os.O_RDWR | os.O_CREAT) for name in models}
    refused = taken = 0
    while refused < 50:
        name = source.choice(list(models))
        data = source.randbytes(source.choice([100, 3000, 50_000]))
        done = write_some(fds[name], data, len(models[name]))
        if done is None:
            refused += 1
        else:
            taken += 1
            models[name] += data[:done]
    return fds, models, taken


def holes(directory):
    source = random.Random("holes")
    size = 256 << 20
    fd = os.open(f"{directory}/sparse", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, size)
    model = {}
    refused = taken = 0
    while refused < 50:
        page = source.randrange(size >> 12)
        data = source.randbytes(source.choice([10, 700, 4096]))
        done = write_some(fd, data, page << 12)
        if done is None:
            refused += 1
        else:
            taken += 1
            old = model.get(page, b"")
            model[page] = data[:done] + old[done:]
    whole = bytearray(size)
    for page, data in model.items():
        whole[page << 12:(page << 12) + len(data)] = data
    return {"sparse": fd}, {"sparse": whole}, taken


def save(models, path):
    with open(path, "w") as file:
        json.dump({name: [len(data), hashlib.sha256(data).hexdigest()] for name, data in models.items()}, file)


def main():
    action, directory, path = sys.argv[1:4]
    if action == "verify":
        with open(path) as file:
            models = json.load(file)
        for name, (size, digest) in models.items():
            with open(f"{directory}/{name}", "rb") as file:
                data = file.read()
            if [len(data), hashlib.sha256(data).hexdigest()] != [size, digest]:
                sys.exit(f"{name}: {len(data)} bytes, wanted {size}, or other bytes")
        return
    if action == "room":
        with open(path) as file:
            models = json.load(file)
        name = max(models, key=lambda one: models[one][0])
        os.unlink(f"{directory}/{name}")
        del models[name]
        data = random.Random("room").randbytes(1 << 20)
        fd = os.open(f"{directory}/after", os.O_WRONLY | os.O_CREAT)
        done = 0
        # The space of an unlinked file is free when the kernel has told the daemon to forget it, a moment later.
        deadline = time.monotonic() + 60
        while done < len(data):
            taken = write_some(fd, data[done:], done)
            if taken is None and time.monotonic() > deadline:
                sys.exit("the disk stays full after a file went")
            done += taken or 0
        os.fsync(fd)
        os.close(fd)
        models["after"] = [len(data), hashlib.sha256(data).hexdigest()]
        with open(path, "w") as file:
            json.dump(models, file)
        return
    fds, models, taken = (append if action == "append" else holes)(directory)
    for fd in fds.values():
        # Everything accepted has its space: a full disk is no reason for a sync to fail.
        os.fsync(fd)
    for name, model in models.items():
        with open(f"{directory}/{name}", "rb") as file:
            if file.read() != model:
                sys.exit(f"{name} does not read as it was written")
    for fd in fds.values():
        os.close(fd)
    save(models, path)
    print(f"counts: {taken} writes taken, then refused 50 times")


if __name__ == "__main__":
    main()
