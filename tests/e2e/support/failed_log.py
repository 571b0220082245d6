#!/usr/bin/env python3
"""Random changes of a mount whose log's disk becomes full, kill -9 of the daemon, killed recoveries: what was synced is there after
that, and nothing is there that never was.

    failed_log.py WEIR WORK HOME RAW MEMORY ROUNDS FIRST LAST

HOME is a directory in which each seed has its SOURCE, RAW the same directory as its server sees it, MEMORY a small tmpfs for the log. The
checks are in failed_log_model.py. Of a round that fails WORK/failed-SEED-ROUND keeps the operations, the daemon's log and what the
recoveries said; if WORK/home.image holds HOME, a copy of it as it was before the first recovery, otherwise of RAW; and the log's.

WEIR_BREAK=recover leaves the recovery out, and WEIR_BREAK=sync expects what was never synced: the test must fail.
"""

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback

import failed_log_model
import loop_limit
from failed_log_ops import Operations

LOG_SIZE = 64 << 20
DEAD = (errno.ENOTCONN, errno.ECONNABORTED)


class Failed(Exception):
    """A promise is broken: the first argument is the kind of the problem."""


def wait_for(what, condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise Failed("c", what)
        time.sleep(0.01)


class Seed:
    """One SOURCE and its log."""

    def __init__(self, settings, seed):
        self.weir, self.work, home, raw, self.memory = settings
        self.seed, self.by_path = seed, home != raw
        self.source, self.raw = f"{home}/{seed}", f"{raw}/{seed}"
        self.mount_point, self.log = f"{self.work}/mnt", f"{self.memory}/log"
        self.last_number, self.daemon, self.device = 0, None, None
        # In every second seed no file has two names.
        self.with_links, self.had_links = seed % 2 == 0, set()

    def new_number(self):
        self.last_number += 1
        return self.last_number

    def run(self, *command, timeout=100):
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=timeout, check=False)

    # The log's disk.
    def make_log(self):
        with open(self.log, "wb") as file:
            file.truncate(LOG_SIZE)
        self.device = self.run("losetup", "--find", "--show", self.log).stdout.strip()
        assert self.device.startswith("/dev/loop"), self.device

    def break_disk(self):
        loop_limit.limit(self.device, loop_limit.SUPERBLOCKS)

    def heal_disk(self):
        if self.device:
            loop_limit.limit(self.device, 0)

    def end(self):
        if self.daemon:
            self.kill_daemon()
        self.heal_disk()
        if self.device:
            self.run("losetup", "-d", self.device)
        for path in (self.log, self.trace_path(), self.daemon_log()):
            if os.path.exists(path):
                os.unlink(path)
        shutil.rmtree(self.raw, ignore_errors=True)

    # The daemon.
    def trace_path(self):
        return f"{self.work}/trace"

    def daemon_log(self):
        return f"{self.work}/daemon.log"

    def mount(self, *options):
        command = [self.weir, "mount", "--foreground", self.source, self.mount_point, "--allow-other", "--names", "log",
                   "--log", self.device, "--log-level", "debug", "--log-file", self.daemon_log(), *options]
        with open(f"{self.work}/daemon.out", "wb") as output:
            self.daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        wait_for("the mount does not answer", self.serves_or_ended)
        if self.daemon.poll() is not None:
            status, self.daemon = self.daemon.poll(), None
            with open(f"{self.work}/daemon.out", encoding="utf-8", errors="replace") as file:
                raise Failed("c", f"mount failed with {status}: {file.read()}")

    def serves_or_ended(self):
        return self.daemon.poll() is not None or (
            os.path.ismount(self.mount_point) and self.run(self.weir, "status", self.mount_point).returncode == 0)

    def kill_daemon(self):
        self.daemon.kill()
        self.daemon.wait()
        self.daemon = None
        self.run("umount", "-l", self.mount_point)

    def umount(self):
        done = self.run(self.weir, "umount", self.mount_point)
        if done.returncode:
            raise Failed("c", f"weir umount failed with {done.returncode}: {done.stdout}")
        self.daemon.wait(60)
        self.daemon = None

    # A tree before the first mount.
    def make_tree(self, rng):
        os.mkdir(self.raw)
        directories, files = [""], []
        for _ in range(rng.randrange(8, 30)):
            number = self.new_number()
            path = f"{self.raw}/{rng.choice(directories)}/n{number}"
            kind = rng.choices("fdlph", [10, 5, 2, 1, 4 if self.with_links else 0])[0]
            if kind == "d":
                os.mkdir(path)
                directories.append(os.path.relpath(path, self.raw))
            elif kind == "l":
                os.symlink(f"to-{number}", path)
            elif kind == "p":
                os.mkfifo(path)
            elif kind == "h" and files:
                os.link(rng.choice(files), path)
                continue
            else:
                with open(path, "wb") as file:
                    file.write(rng.randbytes(rng.choice([0, 1, 100, 4096, 5000, 20000])))
                files.append(path)
            os.lchown(path, 0, failed_log_model.FIRST + number)

    def read_model(self):
        model = failed_log_model.Model()
        for path, number in model.read(self.raw, self.new_number, not self.by_path):
            # What was not synced may not have got its group.
            if not os.path.islink(f"{self.source}/{path}"):
                os.chown(f"{self.source}/{path}", 0, failed_log_model.FIRST + number)
        # sshfs may remember an old size by another name than the one that was written by.
        model.passive |= {slot for slot, number in model.entries.items() if number in self.had_links}
        return model

    # A round.
    def round(self, number):
        rng = random.Random(f"failed log {self.seed} {number}")
        with open(self.trace_path(), "w", encoding="utf-8") as trace:
            self.trace_file, self.began = trace, time.monotonic()
            self.trace(f"seed {self.seed}, round {number}, {'by path' if self.by_path else 'by handle'}")
            model = self.read_model()
            expire = rng.choice([[], ["--dirty-expire", "1h"], ["--dirty-expire", "100ms"]])
            self.trace(f"mount {' '.join(expire)}")
            self.mount(*expire)
            failing = self.change(rng, model)
            self.keep_image()
            self.recover(rng, failing)
            self.compare(model, failing)

    def trace(self, line):
        self.trace_file.write(f"{time.monotonic() - self.began:8.4f} {line}\n")
        self.trace_file.flush()

    def change(self, rng, model):
        """Changes, the failure of the log among them, and the end of the daemon. Whether the log's disk was full."""
        steps = rng.choice([10, 30, 60, 100])
        failing = rng.random() < 0.8
        fill_at = rng.randrange(steps) if failing else None
        far = 6 if self.by_path else 1
        how = rng.choice(["during", "after", "after", "after error", "after error", "sync"])
        self.trace(f"{steps} steps, full at {fill_at}, killed: {how}")
        operations = Operations(self, rng, model)
        timer = None
        try:
            for step in range(steps):
                if step == fill_at:
                    self.trace("the disk of the log is full")
                    self.break_disk()
                    operations.log_failed = True
                if timer is None and (how == "during" and step == (fill_at or 0) or how == "after error" and operations.sync_errors):
                    delay = rng.choice([0.003, 0.03, 0.3]) * rng.random() * far
                    self.trace(f"killed in {delay:.4f} s")
                    timer = threading.Timer(delay, self.kill_at_once)
                    timer.start()
                operations.step()
            if how == "after" or timer is None and how != "sync":
                time.sleep(rng.choice([0, 0.02, 0.3, 0.8, 2]) * rng.random() * far)
            elif how == "sync":
                with subprocess.Popen([self.weir, "sync", self.mount_point], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as sync:
                    time.sleep(rng.choice([0.005, 0.05]) * rng.random() * far)
                    self.kill_at_once()
                    sync.wait()
            else:
                timer.join()
            if rng.random() < 0.2:
                operations.compare_mount()
        except OSError as error:
            if error.errno not in DEAD:
                raise
            self.trace(f"the daemon is dead: {error}")
        finally:
            if timer:
                timer.join()
            operations.close_all()
        self.trace("kill")
        self.kill_daemon()
        return failing

    def kill_at_once(self):
        self.daemon.kill()

    def keep_image(self):
        kept = f"{self.work}/kept"
        shutil.rmtree(kept, ignore_errors=True)
        os.mkdir(kept)
        if os.path.exists(f"{self.work}/home.image"):
            self.run("fsfreeze", "-f", self.source)
            self.run("cp", "--sparse=always", f"{self.work}/home.image", kept)
            self.run("fsfreeze", "-u", self.source)
        else:
            self.run("cp", "-a", self.raw, f"{kept}/source")
        self.run("cp", "--sparse=always", self.log, f"{kept}/log")

    def recover(self, rng, failing):
        if os.environ.get("WEIR_BREAK") == "recover":
            return
        command = [self.weir, "recover", self.source, "--log", self.device]
        if failing and rng.random() < 0.15:
            # It may say that it cannot do it.
            done = self.run(*command)
            self.trace(f"recover while the disk is full: {done.returncode}: {done.stdout}")
        self.heal_disk()
        for _ in range(rng.choice([0, 0, 1, 2, 3])):
            delay = rng.choice([0.005, 0.06]) * rng.random() * (6 if self.by_path else 1)
            with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
                time.sleep(delay)
                child.send_signal(signal.SIGKILL)
                said = child.communicate()[0]
            self.trace(f"recover, killed after {delay:.4f} s: {child.returncode}: {said}")
        for _ in range(2):
            done = self.run(*command)
            self.trace(f"recover: {done.returncode}: {done.stdout}")
            if done.returncode:
                raise Failed("c", f"recover failed with {done.returncode}: {done.stdout}")
        if not done.stdout.startswith("0 records with 0 bytes brought home to 0 files"):
            raise Failed("c", f"a second recovery has something to do: {done.stdout}")

    def compare(self, model, failing):
        if os.environ.get("WEIR_BREAK") == "sync":
            model.all_synced()
        problems = model.problems(self.raw, failing)
        if problems:
            raise Failed(min(problems)[0], "\n".join(sorted(problems)))
        linked = self.linked(model) if self.by_path else ()
        recovered = self.read_model()
        self.mount()
        problems = recovered.problems(self.mount_point, False, linked)
        self.trace("umount")
        self.umount()
        problems += recovered.problems(self.raw, False)
        if problems:
            raise Failed(problems[0][0], "mounted once more:\n" + "\n".join(problems))

    def linked(self, model):
        """What has had several names: sshfs remembers sizes and modes by name for some seconds."""
        self.had_links |= {number for number, node in model.nodes.items() if node.had_links}
        return self.had_links

    def keep(self, number, said):
        kept = f"{self.work}/failed-{self.seed}-{number}"
        shutil.rmtree(kept, ignore_errors=True)
        self.trace(said)
        self.trace_file.close()
        os.makedirs(f"{self.work}/kept", exist_ok=True)
        os.rename(f"{self.work}/kept", kept)
        for path in (self.trace_path(), self.daemon_log()):
            if os.path.exists(path):
                shutil.copy(path, kept)
        self.run("tar", "-C", os.path.dirname(self.raw), "-czf", f"{kept}/recovered.tar.gz", str(self.seed))
        return kept


def run_seed(settings, seed, rounds):
    """The kind of what failed, or nothing."""
    at = Seed(settings, seed)
    at.make_log()
    at.make_tree(random.Random(f"failed log {seed}"))
    try:
        for number in range(rounds):
            try:
                at.round(number)
            except Exception as failure:
                kind = failure.args[0] if isinstance(failure, Failed) else "?"
                said = failure.args[1] if isinstance(failure, Failed) else traceback.format_exc()
                at.trace_file = open(at.trace_path(), "a", encoding="utf-8")
                print(f"FAILED ({kind}): seed {seed}, round {number}, kept in {at.keep(number, said)}:\n{said}", flush=True)
                return kind
    finally:
        at.end()
    return None


def main():
    settings, (rounds, first, last) = sys.argv[1:6], map(int, sys.argv[6:9])
    os.umask(0)
    began, found = time.monotonic(), []
    for seed in range(first, last):
        kind = run_seed(settings, seed, rounds)
        if kind:
            found.append(kind)
    print(f"counts: {last - first} seeds of {rounds} rounds in {time.monotonic() - began:.0f} s, {len(found)} failed: {' '.join(found)}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
