#!/usr/bin/env python3
"""Stands in for systemd: starts a daemon with a socket for notifications, and notes what it is told.

    service_manager.py NOTES ADDRESS WATCHDOG_S COMMAND [ARGUMENT ...]

ADDRESS is a path, or @NAME for an abstract socket. Each message becomes a line of NOTES: the seconds since the start, who sent it
(main, or another process), and the message with spaces for its line ends. SIGTERM goes on to the daemon. Ends with it, and with
its status.
"""

import os
import signal
import socket
import struct
import subprocess
import sys
import time


def main():
    notes, address, watchdog, *command = sys.argv[1:]
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    listening.bind("\0" + address[1:] if address.startswith("@") else address)
    if not address.startswith("@"):
        os.chmod(address, 0o777)
    listening.settimeout(0.2)
    environment = dict(os.environ, NOTIFY_SOCKET=address, WATCHDOG_USEC=str(int(float(watchdog) * 1e6)))
    started = time.monotonic()
    daemon = subprocess.Popen(command, env=environment)
    signal.signal(signal.SIGTERM, lambda *_: daemon.send_signal(signal.SIGTERM))
    with open(notes, "w", buffering=1) as file:
        while True:
            ended = daemon.poll() is not None
            try:
                message, ancillary, _, _ = listening.recvmsg(4096, socket.CMSG_SPACE(12))
            except TimeoutError:
                if ended:
                    break
                continue
            (sender,) = [struct.unpack("iii", data)[0] for _, kind, data in ancillary if kind == socket.SCM_CREDENTIALS]
            who = "main" if sender == daemon.pid else "another"
            file.write(f"{time.monotonic() - started:.1f} {who} {' '.join(message.decode().split(chr(10)))}\n")
    sys.exit(daemon.returncode)


if __name__ == "__main__":
    main()
