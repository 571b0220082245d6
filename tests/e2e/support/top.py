#!/usr/bin/env python3
"""What tests/e2e/top.sh does with `weir top`.

    top.py load FILE STOP                        writes and syncs FILE until STOP exists
    top.py check-rates ONCE BEFORE AFTER         holds the JSON of --once against the count of writes before and after it
    top.py check-status ONCE STATUS              against the JSON of weir status, while nothing happens
    top.py check-waits ONCE NAME                 a sync of this file waits now
    top.py check-waited ONCE NAME                a sync of this file has waited
    top.py view MOUNT SECOND PID WORK PICTURE    uses the program in a terminal: SECOND is unmounted meanwhile, and the daemon PID
                                                 of MOUNT stopped for a while
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from terminal import Terminal

WEIR = os.environ.get("WEIR", "weir")


def load(path, stop):
    """Some hundred small writes a second, and syncs."""
    source = random.Random("load")
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 8 << 20)
    while not os.path.exists(stop):
        for _ in range(10):
            os.pwrite(file, source.randbytes(700), source.randrange((8 << 20) - 700))
        os.fsync(file)
        os.pread(file, 4096, source.randrange(8 << 20))
        time.sleep(0.02)


def check(what, holds):
    if not holds:
        raise SystemExit(f"FAIL: {what}")


def read(path):
    return json.loads(Path(path).read_text())


def check_rates(once, before, after):
    once = read(once)
    rates = once["rates"]
    # The rates are over a second that lies between the two counts.
    most = int(after) - int(before)
    check(f"{rates['writes']} writes a second, and {most} in all", 0 < rates["writes"] <= most * 1.05)
    # Writes across the border of two pages come as two.
    check(f"700 bytes in each write: {rates}", 400 <= rates["write_bytes"] / rates["writes"] <= 700.5)
    for name in ("syncs", "reads", "requests"):
        check(f"{rates[name]} {name} a second", 0 < rates[name])
    check("ten writes for each sync", 5 < rates["writes"] / rates["syncs"] < 20)
    check("the watermarks are in order", 0 < once["watermark_low_bytes"] <= once["watermark_high_bytes"])
    slowest = once["slow_files"][0]
    check(f"the slowest file is {slowest}", slowest["name"] == "load" and slowest["sync"]["count"] > 0)
    waited, answers = slowest["waited_ns"], slowest["answers"]
    check(f"{answers} late answers a second took {waited} ns", 0 < waited < 60e9 and answers > 0)


def check_status(once, status):
    once, status = read(once), read(status)
    stats = status["stats"]
    for mine, other in [
        ("pid", status["pid"]),
        ("source", status["source"]),
        ("mountpoint", status["mountpoint"]),
        ("dirty_bytes", stats["dirty_memory_pages"] * 4096),
        ("patch_bytes", stats["patch_bytes"]),
        ("writers_waiting", stats["writers_waiting"]),
        ("log_used_bytes", stats["log_used_bytes"]),
        ("log_capacity_bytes", stats["log_capacity_bytes"]),
        ("latency", status["latency"]),
        ("waiting", status["waiting"]),
    ]:
        check(f"{mine} is {once[mine]}, and weir status says {other}", once[mine] == other)
    rates = {name: rate for name, rate in once["rates"].items() if rate}
    check(f"nothing happens, and the rates are {rates}", not rates)
    names = [file["name"] for file in once["slow_files"]]
    check(f"the slow files are {names}", names == [file["path"] for file in status["slow_files"]])
    for mine, other in zip(once["slow_files"], status["slow_files"]):
        check(f"{mine} is {other}", all(mine[kind] == other[kind] for kind in ("write", "read", "sync")))


def check_waits(once, name):
    once = read(once)
    waiting = once["waiting"]
    check(f"one sync waits: {waiting}", waiting["syncs"] == 1 and waiting["oldest_ns"] > 5e8)
    file = once["slow_files"][0]
    check(f"the slowest file is {file}", file["name"] == name and file["waiting"] == 1 and file["oldest_ns"] > 5e8)


def check_waited(once, name):
    once = read(once)
    check(f"nothing waits: {once['waiting']}", once["waiting"]["syncs"] == 0)
    [file] = [file for file in once["slow_files"] if file["name"] == name]
    check(f"its sync took over a second: {file}", file["sync"]["count"] == 1 and file["sync"]["max_ns"] > 1e9)
    check(f"nothing of it waits: {file}", file["waiting"] == 0 and file["oldest_ns"] == 0)


def colours(screen):
    return {style for style in screen.styles() if style.colour is not None or style.background is not None}


def step(what):
    print(f"--- {what}", flush=True)


def view(mount, second, pid, work, picture):
    pid = int(pid)
    environment = {"PS1": "prompt> ", "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "HISTFILE": ""}
    os.environ.pop("NO_COLOR", None)
    terminal = Terminal(["bash", "--norc", "--noprofile", "-i"], 110, 34, environment)

    def shell(line):
        terminal.send(line + "\n")

    def settings():
        """The terminal's settings as stty prints them."""
        file = Path(work, "stty")
        file.unlink(missing_ok=True)
        shell(f"stty -g >{file}.new; mv {file}.new {file}")
        terminal.wait("stty", lambda _: file.exists())
        terminal.wait_for("prompt>")
        return file.read_text()

    terminal.wait_for("prompt>")
    first = settings()
    shell("clear; echo before-the-view")
    terminal.wait_for("before-the-view", "prompt>")

    def expect_restored(status):
        terminal.wait("the first screen", lambda screen: screen.first is None and screen.cursor_is_shown)
        terminal.wait_for("before-the-view")
        shell("echo status=$?")
        terminal.wait_for(f"status={status}")
        check("the terminal's settings are as before", settings() == first)
        shell("clear; echo before-the-view")
        terminal.wait("a clear screen", lambda screen: "status=" not in screen.text() and "before" in screen.text())

    stop = Path(work, "stop-view")
    loader = threading.Thread(target=load, args=(f"{mount}/load", stop))
    loader.start()
    try:
        step("the list: order, filter, interval")
        shell(f"{WEIR} top --interval 500ms")
        terminal.wait_for("WRITE/s", "every 500ms")
        # Other tests have mounts beside these.
        terminal.send(f"/{work}\r")
        terminal.wait_for("2 mounts, with", "WRITE/s", mount[-20:], second[-20:], "every 500ms", "qQuit")
        check("the second screen is shown, without a cursor", terminal.screen.first and not terminal.screen.cursor_is_shown)
        check("there are colours", colours(terminal.screen))
        terminal.press("f6")
        terminal.wait_for("Sort by", "bytes written")
        terminal.press("down", "down", "enter")
        terminal.wait_for("by bytes written")

        def first_mount(screen):
            rows = [line for line in screen.lines() if line.startswith(("/", "…"))]
            return rows[0].split()[0] if rows else ""

        terminal.wait("the loaded mount comes first", lambda screen: mount.endswith(first_mount(screen).lstrip("…")))
        terminal.press("I")
        terminal.wait_for("reversed")
        terminal.wait("it comes last", lambda screen: not mount.endswith(first_mount(screen).lstrip("…")))
        terminal.press("I", "esc")
        terminal.wait_without(", with '")
        terminal.press("/")
        terminal.wait_for("Filter:")
        terminal.send("second-mount")
        terminal.wait_for("Filter: second-mount")
        terminal.press("enter")
        terminal.wait_for("1 mount, with 'second-mount'")
        terminal.press("esc")
        terminal.wait_without("with 'second-mount'")
        terminal.press("+")
        terminal.wait_for("every 1s")
        terminal.press("-", "-")
        terminal.wait_for("every 200ms")
        terminal.press("?")
        terminal.wait_for("choose the column to sort by")
        terminal.press("esc")
        terminal.wait_for("WRITE/s")

        step("the view of a mount, in several sizes")
        terminal.press("/")
        terminal.send(mount)
        terminal.press("enter", "home", "right")
        terminal.wait_for(f"{mount[-20:]} of ", "DIRTY MEMORY", "WHO WAITS", "LATENCY", "SLOWEST FILES", " load")

        def resize(columns, rows):
            """Waits for the view: crossterm keeps a key that is pressed at the same moment until the next one."""
            terminal.resize(columns, rows)
            terminal.wait(f"the view in {columns} x {rows}", lambda screen: (
                "weir top" in screen.lines()[0] and "Help" in screen.lines()[rows - 1]
                and not any("Help" in line for line in screen.lines()[:rows - 1])))

        for columns, rows in ((40, 12), (60, 20), (200, 60), (110, 34)):
            resize(columns, rows)
        resize(40, 12)
        terminal.press("end")
        terminal.wait_for("SLOWEST FILES", "load")
        terminal.press("left")
        terminal.wait_for("MOUNT", "DIRTY", "WAIT")
        resize(110, 34)
        terminal.press("p")
        terminal.wait_for("PAUSED")
        terminal.press("p")
        terminal.wait_without("PAUSED")

        step("a picture")
        terminal.press("enter", "home", "ctrl-l")
        until = time.monotonic() + 12
        terminal.wait("a course", lambda _: time.monotonic() > until)
        # Names as they are elsewhere: without the test's directory.
        terminal.screen.leave_out(work)
        Path(picture).write_text(terminal.screen.svg("weir top shows a mount under load"))

        step("stopped by Ctrl-Z, and continued")
        terminal.press("ctrl-z")
        terminal.wait_for("Stopped", "prompt>")
        check("the first screen is shown", terminal.screen.first is None and terminal.screen.cursor_is_shown)
        check("the shell has the terminal's settings", settings() == first)
        shell("fg")
        terminal.wait_for("DIRTY MEMORY", "qQuit")
        check("the second screen is shown", terminal.screen.first is not None)

        step("stopped by a signal, and continued")
        [child] = Path(f"/proc/{terminal.pid}/task/{terminal.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGTSTP)
        terminal.wait("the first screen", lambda screen: screen.first is None and screen.cursor_is_shown)
        terminal.wait_for("Stopped", "prompt>")
        check("the shell has the terminal's settings", settings() == first)
        shell("fg")
        terminal.wait_for("DIRTY MEMORY", "qQuit")
        check("the second screen is shown", terminal.screen.first is not None)
        # SIGSTOP cannot be seen: the shell takes the terminal meanwhile, and the view takes it again.
        os.kill(int(child), signal.SIGSTOP)
        terminal.wait_for("prompt>")
        shell("fg")
        terminal.wait_for("DIRTY MEMORY", "qQuit")
        terminal.press("left")
        terminal.wait_for("WRITE/s")
        terminal.press("right")
        terminal.wait_for("DIRTY MEMORY")

        step("a daemon that does not answer")
        os.kill(pid, signal.SIGSTOP)
        try:
            terminal.wait_for("no answer for 2s")
            began = time.monotonic()
            terminal.press("left")
            terminal.wait_for("WRITE/s")
            terminal.press("f1")
            terminal.wait_for("choose the column to sort by")
            terminal.press("esc")
            took = time.monotonic() - began
            check(f"keys are answered meanwhile, in {took:.1f} s", took < 5)
            terminal.wait_for("no answer for 5s")
        finally:
            os.kill(pid, signal.SIGCONT)
        terminal.wait_without("no answer")
        terminal.press("esc")
        terminal.wait_without("with '")

        step("a mount that ends while it is shown")
        terminal.press("/")
        terminal.send("second-mount")
        terminal.press("enter", "enter")
        terminal.wait_for(f"{second[-20:]} of ")
        subprocess.run([WEIR, "umount", second], check=True)
        terminal.wait_for("no mount has 'second-mount'")
        terminal.press("esc")
        terminal.wait_for(mount[-20:])
        terminal.press("q")
        expect_restored(0)

        step("ended by keys and signals")
        for key in ("ctrl-c", "f10"):
            shell(f"{WEIR} top {mount}")
            terminal.wait_for("WHO WAITS")
            terminal.press(key)
            expect_restored(0)
        for number in (signal.SIGTERM, signal.SIGHUP):
            shell(f"{WEIR} top")
            terminal.wait_for("WRITE/s", mount[-20:])
            [child] = Path(f"/proc/{terminal.pid}/task/{terminal.pid}/children").read_text().split()
            os.kill(int(child), number)
            expect_restored(128 + number)

        step("without colours")
        for variables in ("NO_COLOR=1", "TERM=dumb"):
            shell(f"{variables} {WEIR} top {mount}")
            terminal.wait_for("WHO WAITS")
            check(f"no colours with {variables}", not colours(terminal.screen))
            terminal.press("q")
            expect_restored(0)
    finally:
        stop.touch()
        loader.join()
        terminal.end()


def ends(pid, seconds):
    """The status with which a child ends within this time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    spent = sum(map(int, Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise SystemExit(f"it is still there after {seconds} s, of which it ran {spent} ticks")


def gone(mount):
    environment = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    step("the terminal is closed")
    for before in ("", "trap '' HUP; "):
        terminal = Terminal(["sh", "-c", f'{before}exec "$0" "$@"', WEIR, "top", mount], 110, 34, environment)
        terminal.wait_for("WHO WAITS")
        os.close(terminal.fd)
        status = ends(terminal.pid, 20)
        check(f"it ends as by SIGHUP: {status}", status == 128 + signal.SIGHUP)

    step("the terminal takes nothing")
    for number in (signal.SIGTERM, signal.SIGHUP):
        terminal = Terminal([WEIR, "top", mount, "--interval", "100ms"], 200, 60, environment)
        terminal.wait_for("WHO WAITS")
        # It draws everything, for which nobody reads, until it waits.
        for _ in range(30):
            terminal.send("\x0c")
            time.sleep(0.06)
        os.kill(terminal.pid, number)
        check(f"it ends by {number}", ends(terminal.pid, 20) == 128 + number)
        os.close(terminal.fd)


def main():
    commands = {"load": load, "check-rates": check_rates, "check-status": check_status, "check-waits": check_waits,
                "check-waited": check_waited, "view": view, "gone": gone}
    commands[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    main()
