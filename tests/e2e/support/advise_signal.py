#!/usr/bin/env python3
"""Runs a command in a process group of its own, sends the group a signal as a terminal does, and ends with the command's status.

    advise_signal.py SIGNAL SECONDS COMMAND...

SIGINT and SIGHUP go to the group, SIGTERM to the command alone. A shell starts its background with SIGINT ignored; here it is not.
"""

import os
import signal
import subprocess
import sys
import time

number = getattr(signal, f"SIG{sys.argv[1]}")


def begin():
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


command = subprocess.Popen(sys.argv[3:], preexec_fn=begin)
time.sleep(float(sys.argv[2]))
try:
    if number == signal.SIGTERM:
        os.kill(command.pid, number)
    else:
        os.killpg(command.pid, number)
except ProcessLookupError:
    pass
status = command.wait(60)
sys.exit(128 - status if status < 0 else status)
