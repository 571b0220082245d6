#!/usr/bin/env python3
"""Random operations on names, each made on a mount and on a plain directory, whose answers must be the same.

    names_reference.py can SOURCE PLAIN                      what SOURCE, before it is mounted, does as PLAIN does: JSON
    names_reference.py run ROUND MOUNT PLAIN SOURCE --seed N --operations N --can FILE [--weir WEIR]
                                                             four processes; PLAIN, MOUNT and SOURCE get a directory ROUND
    names_reference.py run ... --kill NOTES                  until the daemon is killed; writes what was promised to NOTES
    names_reference.py check ROUND MOUNT NOTES --can FILE    whether it was kept
    names_reference.py compare ROUND SOURCE PLAIN --can FILE the whole trees
    names_reference.py replay|reduce TRACE MOUNT PLAIN SOURCE --can FILE [--weir WEIR]
                                                             repeats a failure; reduce looks for its shortest sequence

Each process has a directory to itself, and names of its own in one that all share. A seed determines all operations.
A failure prints the seed, the process, the step, the operation and both answers, and with --traces writes the
operations to a file for replay. Needs root, since owners change and other users make some of the calls.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time

sys.dont_write_bytecode = True
import names_choose  # noqa: E402
import names_promises  # noqa: E402
import names_sides  # noqa: E402

PROCESSES = 4
DEAD = ("ENOTCONN", "ECONNABORTED")
SHOWN = 25
# Each is tried on home and on the plain directory; what home answers otherwise is left out. All begin in an empty directory.
PROBES = {
    "fifo": [["mknod", "a", 0o010644], ["stat", "a"]],
    "socket": [["mknod", "a", 0o140644], ["stat", "a"]],
    "node": [["mknod", "a", 0o100644], ["stat", "a"]],
    "links": [["mknod", "a", 0o100644], ["link", "a", "b"], ["stat", "a"], ["unlink", "a"], ["stat", "b"]],
    "noreplace": [["mkdir", "a", 0o777], ["mkdir", "b", 0o777], ["rename", "a", "b", 1], ["rename", "a", "c", 1], ["list", ""]],
    "exchange": [["mkdir", "a", 0o777], ["open", 0, "b", os.O_CREAT, 0o600], ["rename", "a", "b", 2], ["list", ""]],
    "owners": [["open", 0, "a", os.O_CREAT, 0o600], ["chown", "a", 1000, 1001, True], ["stat", "a"]],
    "users": [["chmod", "", 0o777], ["as", 1000, 1000, [], ["mkdir", "a", 0o755]], ["stat", "a"],
              ["as", 1001, 1001, [1000], ["open", 0, "b", os.O_CREAT, 0o644]], ["stat", "b"]],
    "xattrs": [["mkdir", "a", 0o777], ["setxattr", "a", "user.a", 1, 100, 0], ["xattrs", "a"], ["removexattr", "a", "user.a"], ["xattrs", "a"]],
    "acls": [["mkdir", "a", 0o777], ["setacl", "a", "default", [(1, 7, -1), (2, 5, 1000), (4, 5, -1), (16, 7, -1), (32, 0, -1)]],
             ["mkdir", "a/b", 0o777], ["xattrs", "a/b"], ["open", 0, "a/c", os.O_CREAT, 0o666], ["xattrs", "a/c"], ["stat", "a/c"]],
    "fallocate": [["open", 0, "a", os.O_CREAT | os.O_RDWR, 0o600], ["fallocate", 0, 0, 0, 5000], ["fallocate", 0, 3, 0, 4096],
                  ["fallocate", 0, 16, 0, 4096], ["fallocate", 0, 1, 0, 90000], ["stat", "a"]],
    "copy_range": [["open", 0, "a", os.O_CREAT | os.O_RDWR, 0o600], ["pwrite", 0, 0, 5000, 1], ["open", 1, "b", os.O_CREAT | os.O_RDWR, 0o600],
                   ["copy_range", 0, 1, 10, 20, 9000], ["content", "b"]],
    "nanoseconds": [["mkdir", "a", 0o777], ["utimens", "a", 1_000_000_000_123_456_789, 1_000_000_000_123_456_789, True], ["times", "a"]],
    "old_times": [["mkdir", "a", 0o777], ["utimens", "a", -1_000_000_000 * 10**9, -1_000_000_000 * 10**9, True], ["times", "a"]],
    "link_times": [["symlink", "b", "a"], ["utimens", "a", 10**18, 10**18, False], ["times", "a"]],
    "dir_links": [["mkdir", "a", 0o777], ["mkdir", "a/b", 0o777], ["stat", "a"], ["stat", ""]],
    "setid": [["open", 0, "a", os.O_CREAT | os.O_RDWR, 0o600], ["chmod", "a", 0o6755], ["pwrite", 0, 0, 10, 1], ["stat", "a"], ["chmod", "a", 0o6755],
              ["chown", "a", 1000, 1000, True], ["stat", "a"], ["chmod", "", 0o2777], ["mkdir", "b", 0o777], ["stat", "b"]],
    "unlinked": [["open", 0, "a", os.O_CREAT | os.O_RDWR, 0o600], ["unlink", "a"], ["list", ""], ["fstat", 0]],
    "links_up": [["symlink", "../b", "a"], ["readlink", "a"]],
    "in_removed": [["mkdir", "a", 0o777], ["in_removed", "a"]],
    "numbers": [["mknod", "a", 0o100644], ["link", "a", "b"], ["same", "a", "b"]],
    "refusals": [["mkdir", "a", 0o777], ["mkdir", "a/b", 0o777], ["rmdir", "a"], ["mkdir", "c", 0o777], ["rename", "c", "a", 0], ["rename", "a", "a/b/x", 0]],
}


class Mismatch(Exception):
    pass


class Died(Exception):
    pass


class Probe(names_sides.Side):
    def do_times(self, path):
        return os.lstat(self.path(path)).st_mtime_ns

    def do_same(self, one, two):
        return os.lstat(self.path(one)).st_ino == os.lstat(self.path(two)).st_ino


def what_home_can(source, plain):
    can = {}
    for what, operations in PROBES.items():
        answers = []
        for side in (source, plain):
            probe = Probe(f"{side}/probe")
            os.mkdir(probe.root)
            answers.append([repr(probe.run(op)).split(" mtime")[0] for op in operations])
            probe.close_all()
            subprocess.run(["rm", "-r", probe.root], check=True)
        # The time of a directory's links is not compared here.
        can[what] = answers[0] == answers[1]
    return can


class Stream:
    """A directory that is read in parts: what was there all the time is shown once, and nothing that never was."""

    def __init__(self, mount, plain, path, is_own):
        self.path, self.is_own, self.plain = path, is_own, plain
        self.fd = os.open(mount.path(path), os.O_RDONLY | os.O_DIRECTORY)
        self.plain_fd = os.open(plain.path(path), os.O_RDONLY | os.O_DIRECTORY)
        self.begin()

    def begin(self):
        self.kinds, self.seen, self.ended = {}, [], False
        self.always = None
        self.note()

    def note(self):
        now = {}
        for name, kind in names_sides.listing(self.plain_fd):
            if self.is_own(f"{self.path}/{name}"):
                now[name] = kind
        self.always = set(now) if self.always is None else self.always & set(now)
        for name, kind in now.items():
            self.kinds.setdefault(name, set()).add(kind)

    def next(self, size):
        # No program reads on after the end.
        if self.ended:
            return
        got, entries = names_sides.next_entries(self.fd, size)
        self.seen += [(name, kind) for name, kind, _ in entries if self.is_own(f"{self.path}/{name}")]
        self.ended = got == 0

    def again(self):
        os.lseek(self.fd, 0, os.SEEK_SET)
        self.begin()

    def finish(self):
        while not self.ended:
            self.next(3000)
        names = [name for name, _ in self.seen]
        faults = []
        for name in sorted(self.always):
            if names.count(name) != 1:
                faults.append(f"{name!r}, there all the time, is shown {names.count(name)} times")
        for name, kind in self.seen:
            if name not in self.kinds:
                faults.append(f"{name!r} is shown, and was never there")
            elif kind not in self.kinds[name] and not (kind in "ps" and "other" in self.kinds[name]):
                faults.append(f"{name!r} is shown as {kind}, and was {self.kinds[name]}")
        self.close()
        return "; ".join(faults)

    def close(self):
        os.close(self.fd)
        os.close(self.plain_fd)


class Process:
    """One of the processes: it makes each operation on both sides."""

    def __init__(self, number, where, can, options):
        self.own, self.can, self.options, self.mountpoint = f"w{number}", can, options, options.mount
        self.source = f"{options.source}/{where}"
        self.mount = names_sides.Side(f"{options.mount}/{where}", can["dir_links"])
        self.plain = names_sides.Side(f"{options.plain}/{where}", can["dir_links"])
        self.promises = names_promises.Promises(self.plain.root, can["xattrs"], self.is_own) if options.kill else None
        self.numbers, self.stream, self.done = {}, None, []

    def is_own(self, path):
        parts = path.split("/")
        mine = f"{self.own}-"
        return parts[0] == self.own or parts[0].startswith(mine) or path == "shared" or (
            parts[0] == "shared" and len(parts) > 1 and parts[1].startswith(mine))

    def random_operations(self, count):
        rng = random.Random(f"{self.options.seed} {self.own} {os.path.basename(self.plain.root)}")
        chooser = names_choose.Chooser(rng, self.plain, self.own, self.can, bool(self.options.kill))
        while len(self.done) < count:
            for op in chooser.operations():
                self.execute(op, chooser)
                for look in chooser.looks(op):
                    self.execute(look, chooser)

    def execute(self, op, chooser=None):
        self.done.append(op)
        if op[0] == "sync":
            self.sync()
        elif op[0] in ("stream", "next", "again", "finish"):
            self.read_stream(op)
        else:
            facts = self.promises.look(op, self.plain.files) if self.promises else None
            here = self.mount.run(op)
            there = self.plain.run(op)
            try:
                if here in DEAD:
                    raise Died
                self.compare(op, here, there)
            except Died:
                # It may have been made or not; one that is refused was not.
                if facts is not None and not is_error(there):
                    self.promises.changed(op, facts)
                raise
            if is_error(there):
                return
            self.follow_numbers(op)
            if chooser:
                chooser.follow(op)
            if facts is not None:
                self.promises.changed(op, facts)
                self.promised(op)
            if self.stream:
                self.stream.note()

    def compare(self, op, here, there):
        if isinstance(here, names_sides.Seen) and isinstance(there, names_sides.Seen):
            facts = [{name: value for name, value in seen.facts.items() if name not in self.options.tolerate} for seen in (here, there)]
            wrong = facts[0] != facts[1] or ("mtime" not in self.options.tolerate and names_sides.times_differ(here, there))
            if not wrong and self.can["numbers"]:
                known = self.numbers.setdefault(there.number, here.number)
                if known != here.number:
                    raise self.mismatch(op, f"inode {here.number}", f"inode {known} before")
        else:
            # Names in a directory that all share come and go.
            if isinstance(here, list) and isinstance(there, list) and op[0] == "list" and op[1] == "shared":
                here, there = ([pair for pair in answer if self.is_own(f"shared/{pair[0]}")] for answer in (here, there))
            wrong = here != there
        # Where home itself gives other errors, errors are not told apart.
        if not self.can["refusals"] and is_error(here) and is_error(there):
            return
        what = op[4][0] if op[0] == "as" else op[0]
        if wrong and not {f"{here}/{there}", what} & set(self.options.tolerate):
            raise self.mismatch(op, here, there)

    def mismatch(self, op, here, there):
        # A daemon that is just being killed.
        if self.options.kill:
            for _ in range(30):
                if died(self.mountpoint):
                    return Died()
                time.sleep(0.1)
        return Mismatch(f"{op}\n  mount: {here}\n  plain: {there}")

    def follow_numbers(self, op):
        """What was just made may have the number of a file that is gone."""
        if op[0] == "as":
            op = op[4]
        if op[0] in ("at", "in_removed"):
            self.numbers.clear()
        elif op[0] in ("open", "mkdir", "symlink", "mknod"):
            path = self.plain.path(op[1] if op[0] in ("mkdir", "mknod") else op[2])
            self.numbers.pop(names_promises.Promises.number(path, op[0] != "symlink"), None)

    def promised(self, op):
        if op[0] == "as":
            op = op[4]
        if op[0] in ("fsync", "fdatasync") and names_sides.stat.S_ISREG(os.fstat(self.plain.files[op[1]]).st_mode):
            self.promises.file_synced(self.plain.files[op[1]])
        elif op[0] == "sync_dir":
            self.promises.directory_synced(op[1])

    def read_stream(self, op):
        try:
            if op[0] == "stream":
                if self.stream:
                    self.stream.close()
                    self.stream = None
                self.stream = Stream(self.mount, self.plain, op[1], self.is_own)
            elif self.stream and op[0] == "finish":
                stream, self.stream = self.stream, None
                if faults := stream.finish():
                    raise self.mismatch(op, f"{stream.path}: {faults}", "")
            elif self.stream:
                self.stream.next(op[1]) if op[0] == "next" else self.stream.again()
        except OSError as error:
            if names_sides.error_name(error) in DEAD:
                raise Died from None
            # A directory that is not there for the plain side either.
            if not (op[0] == "stream" and is_error(self.plain.run(["list", op[1]]))):
                raise self.mismatch(op, names_sides.error_name(error), "") from None

    def sync(self):
        if not self.options.weir:
            os.sync()
        else:
            said = subprocess.run([self.options.weir, "sync", self.mountpoint], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            if said.returncode:
                raise self.mismatch(["sync"], f"status {said.returncode}: {said.stdout.decode().strip()}", "")
        if self.promises:
            self.promises.all_synced()
        trees = [("SOURCE", self.source)]
        if len(self.done) % 3 == 0:
            trees.append(("mount", self.mount.root))
        plain = self.tree(self.plain.root)
        for name, root in trees:
            try:
                lines = self.tree(root).differences(plain, self.can["numbers"])
            except OSError as error:
                if self.promises and names_sides.error_name(error) in DEAD:
                    raise Died from None
                lines = [f"{error.filename!r}: {error.strerror}"]
            if lines:
                raise self.mismatch(["sync"], f"{name} after weir sync: " + "\n    ".join(lines), "")

    def tree(self, root):
        return names_sides.Tree(root, self.can["dir_links"], self.can["xattrs"], self.is_own_in_tree)

    def is_own_in_tree(self, path):
        # The times and links of the shared directory are not this process's alone.
        return path != "shared" and self.is_own(path)


def is_error(answer):
    return isinstance(answer, str) and answer[:1] == "E" and answer.isupper()


def died(mountpoint):
    try:
        os.statvfs(mountpoint)
        return False
    except OSError as error:
        return names_sides.error_name(error) in DEAD


def begin_round(options, where):
    os.umask(0)
    for root in (options.mount, options.plain):
        os.mkdir(f"{root}/{where}", 0o777)
        for name in ["shared"] + [f"w{number}" for number in range(PROCESSES)]:
            os.mkdir(f"{root}/{where}/{name}", 0o777)


def in_process(number, options, can):
    """Exit status: 0 all done, 1 a difference, 2 the daemon died."""
    process = Process(number, options.round, can, options)
    result = 0
    try:
        process.random_operations(options.operations // PROCESSES)
    except Died:
        result = 2
    except Mismatch as mismatch:
        result = 1
        lines = ["the last operations:"] + [f"    {op}" for op in process.done[-SHOWN:]]
        lines.append(f"seed {options.seed}, process {number}, round {options.round}, step {len(process.done)}: {mismatch}")
        if options.traces:
            trace = f"{options.traces}/trace-{options.seed}-{options.round}-{number}.json"
            with open(trace, "w") as file:
                json.dump({"own": number, "operations": process.done}, file)
            lines.append(f"  all of them: {trace}")
        print("\n".join(lines), flush=True)
    if options.kill:
        with open(f"{options.kill}.{number}", "w") as file:
            json.dump(process.promises.exported() | {"operations": process.done}, file)
    with open(f"{options.plain}/{options.round}.{number}.count", "w") as file:
        file.write(str(len(process.done)))
    os._exit(result)


def run(options, can):
    begin_round(options, options.round)
    children = {}
    sys.stdout.flush()
    for number in range(PROCESSES):
        pid = os.fork()
        if pid == 0:
            try:
                in_process(number, options, can)
            except BaseException:  # noqa: every failure of the child must reach its parent
                import traceback
                traceback.print_exc()
                os._exit(3)
        children[pid] = number
    results = []
    while children:
        pid, status = os.wait()
        del children[pid]
        results.append(os.waitstatus_to_exitcode(status))
        if results[-1] in (1, 3):
            for other in children:
                os.kill(other, signal.SIGKILL)
    if set(results) - {0, 2}:
        sys.exit(1)
    count = 0
    for number in range(PROCESSES):
        with open(f"{options.plain}/{options.round}.{number}.count") as file:
            count += int(file.read())
    print(count)


def check(options, can):
    broken, places, directories = [], 0, 0
    for number in range(PROCESSES):
        process = Process(number, options.round, can, options)
        with open(f"{options.notes}.{number}") as file:
            notes = json.load(file)
        places, directories = places + len(notes["places"]), directories + len(notes["directories"])
        wrong = names_promises.check(f"{options.mount}/{options.round}", notes, can["xattrs"], process.is_own,
                                      "mtime" not in options.tolerate)
        if wrong:
            broken += ["the last operations:"] + [f"    {op}" for op in notes["operations"][-SHOWN:]]
            broken += [f"process {number}: {line}" for line in wrong]
    # Whatever is there can be looked at. A kill right at the beginning leaves nothing, and then nothing was promised.
    root = f"{options.mount}/{options.round}"
    for name in names_sides.Tree(root, can["dir_links"], can["xattrs"]).entries if os.path.lexists(root) else ():
        if ".weir-conflict-" in name and "a.weir-conflict-1" not in name:
            broken.append(f"{name!r} is there")
    for line in broken:
        print(line)
    if broken:
        sys.exit(1)
    print(places + directories)


def compare(options, can):
    trees = [names_sides.Tree(f"{root}/{options.round}", can["dir_links"], can["xattrs"]) for root in (options.source, options.plain)]
    lines = trees[0].differences(trees[1], can["numbers"])
    for line in lines:
        print(line)
    if lines:
        sys.exit(1)
    print(len(trees[0].entries))


# Failures, repeated.
class Replayer:
    def __init__(self, options, can):
        self.options, self.can, self.tries = options, can, 0
        with open(options.trace) as file:
            trace = json.load(file)
        self.own, self.operations = trace["own"], trace["operations"]

    def failure(self, operations):
        """What fails when these operations are made in a fresh directory, or nothing."""
        self.tries += 1
        where = f"t{os.getpid()}-{self.tries}"
        begin_round(self.options, where)
        process = Process(self.own, where, self.can, self.options)
        try:
            for op in operations:
                process.execute(op)
        except Mismatch as mismatch:
            return str(mismatch).replace(where, "ROUND")
        except Died:
            sys.exit(f"the daemon died at operation {len(process.done)}: {process.done[-1]}")
        finally:
            os.umask(0)
        process.mount.close_all()
        process.plain.close_all()
        return None

    def reduce(self):
        first = self.failure(self.operations)
        print(f"{len(self.operations)} operations: {first}")
        if first is None:
            sys.exit("it does not fail")

        def alike(failure):
            return failure is not None and failure.split("\n")[0].split(",")[0] == first.split("\n")[0].split(",")[0]

        operations, size = self.operations, len(self.operations) // 2
        until = time.monotonic() + self.options.seconds
        while size >= 1 and time.monotonic() < until:
            at, changed = len(operations), False
            while at > 0 and time.monotonic() < until:
                fewer = operations[:max(0, at - size)] + operations[at:]
                if alike(self.failure(fewer)):
                    operations, changed = fewer, True
                at -= size
            if size == 1 and not changed:
                break
            size = max(1, size // 2)
        print(f"{len(operations)} are enough: {self.failure(operations)}")
        for op in operations:
            print(f"    {op}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what")
    parser.add_argument("where", nargs="+")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--operations", type=int, default=4000)
    parser.add_argument("--can", metavar="FILE")
    parser.add_argument("--weir", help="for weir sync; without it, there is no daemon")
    parser.add_argument("--kill", metavar="NOTES")
    parser.add_argument("--traces", metavar="DIRECTORY")
    parser.add_argument("--tolerate", metavar="MOUNT/PLAIN", action="append", default=[],
                        help="two answers to go on after, such as ENOENT/EPERM, an operation, or what stat says (nlink, mtime): to look for further differences")
    parser.add_argument("--seconds", type=float, default=120, help="how long to look for a shorter sequence")
    options = parser.parse_args()
    if options.what == "can":
        print(json.dumps(what_home_can(*options.where)))
        return
    with open(options.can) as file:
        can = json.load(file)
    options.mount = options.plain = options.source = ""
    if options.what == "run":
        options.round, options.mount, options.plain, options.source = options.where
        run(options, can)
    elif options.what == "check":
        options.round, options.mount, options.notes = options.where
        check(options, can)
    elif options.what == "compare":
        options.round, options.source, options.plain = options.where
        compare(options, can)
    else:
        options.trace, options.mount, options.plain, options.source = options.where
        replayer = Replayer(options, can)
        if options.what == "reduce":
            replayer.reduce()
        else:
            print(replayer.failure(replayer.operations))


if __name__ == "__main__":
    main()
