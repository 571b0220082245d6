#!/usr/bin/env python3
"""fake_mount.py HOW MOUNTPOINT [USER [SOURCE]]: a mount of the type fuse.weir that answers nothing, as users can make by fusermount3, until a signal.

USER (default nobody) owns it, it shows SOURCE (default /srv/fake), and USER has a "daemon" listen for it in /tmp/weir-UID. HOW: "mount" listens nowhere, "full" takes no connection,
"silent" says nothing, "trickle" sends a byte now and then, "endless" sends a line without an end, "escapes" answers with a status whose texts
are commands for a terminal, "obeys" says that everything is done.

fake_mount.py plant HOW USER: only listens, in the place of root's daemons, as process-1.sock. What comes is printed.
"""

import ctypes
import json
import os
import pwd
import signal
import socket
import sys
import threading
import time

EVIL = "x\x1b]0;taken\x07\x1b[2J\u009b2Jy"


def status():
    texts = ("weir_version", "fetch_policy", "write_back", "transfer", "transport", "order", "metrics")
    one = {name: EVIL for name in texts}
    one |= {"pid": 1, "source": EVIL, "mountpoint": EVIL, "requests": {EVIL: 1}}
    one["names"] = {"pending": 1, "refused": 1, "refused_paths": [EVIL], "conflicts": 1, "conflict_paths": [EVIL]}
    one["slow_files"] = [{"node": 1, "path": EVIL, "write": {"count": 1, "total_ns": 5, "max_ns": 3}}]
    # Samples that would have the same labels.
    one["sessions"] = [{"supervisor": 7}, {"supervisor": 7}]
    return (json.dumps({"reply": "status", "status": one}, separators=(",", ":")) + "\n").encode()


def serve(connection, how):
    try:
        print("asked", connection.recv(300), flush=True)
        if how == "escapes":
            connection.sendall(status())
            return
        if how == "obeys":
            connection.sendall(b'{"reply":"done"}\n')
            return
        while how == "endless":
            connection.sendall(b"x" * 4096)
        connection.sendall(b'{"reply":"status","status":{')
        while True:
            if how == "trickle":
                connection.sendall(b" ")
            time.sleep(0.2)
    except OSError:
        pass
    finally:
        connection.close()


def listen(path, how):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o777)
    listener.listen(0 if how == "full" else 64)
    if how == "full":
        kept = []
        while True:
            client = socket.socket(socket.AF_UNIX)
            client.setblocking(False)
            try:
                client.connect(path)
            except BlockingIOError:
                return listener, kept
            kept.append(client)

    def accept():
        while True:
            connection, _ = listener.accept()
            print("connected", flush=True)
            threading.Thread(target=serve, args=(connection, how), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener, []


def become(user):
    os.setgroups([])
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)


def mount(mountpoint, user, source):
    libc = ctypes.CDLL(None, use_errno=True)
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode=40000,user_id={user.pw_uid},group_id={user.pw_gid},allow_other"
    if libc.mount(os.fsencode(source), os.fsencode(mountpoint), b"fuse.weir", 6, options.encode()):
        raise SystemExit(f"mount: {os.strerror(ctypes.get_errno())}")
    with open("/proc/self/mountinfo", "rb") as table:
        line = [line for line in table if b" fuse.weir %s " % os.fsencode(source) in line][-1]
    return line.split()[2].decode()


def main():
    how, what = sys.argv[1:3]
    user = pwd.getpwnam(sys.argv[3] if len(sys.argv) > 3 else "nobody")
    if how == "plant":
        become(user)
        os.mkdir("/tmp/weir-0")
        _kept = listen("/tmp/weir-0/process-1.sock", what)
    else:
        source = sys.argv[4] if len(sys.argv) > 4 else "/srv/fake"
        device = mount(what, user, source)
        become(user)
        if how != "mount":
            directory = f"/tmp/weir-{user.pw_uid}"
            os.makedirs(directory, 0o700, exist_ok=True)
            _kept = listen(f"{directory}/{device}.sock", how)
    print("ready", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
