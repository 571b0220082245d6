"""A server of files for sshfs whose answers can be lost (draft-ietf-secsh-filexfer-02, the protocol of OpenSSH).

    lossy.py CONTROL SERVER...      between sshfs and a server, on standard input and output

What the file CONTROL says happens once, and the file is removed when it has, or for as long as it is there:
    lose KIND       the server does the next request of this kind, and the connection is lost before its answer
    drop KIND       the connection is lost instead of the next request of this kind
    hold KIND       the next request of this kind is given to the server when the file CONTROL.go is there, and what
                    comes after it too; CONTROL.held is there as soon as it waits
    refuse KIND     requests of this kind are refused: permission denied; CONTROL.refused counts them by its length
KIND is open (to make a file), write, link, remove, mkdir, rmdir or rename.
"""

import os
import struct
import subprocess
import sys
import threading
import time

OPEN, WRITE, REMOVE, MKDIR, RMDIR, RENAME, EXTENDED = 3, 6, 13, 14, 15, 18, 200
KINDS = {WRITE: "write", REMOVE: "remove", MKDIR: "mkdir", RMDIR: "rmdir", RENAME: "rename"}
CREATE = 8
PERMISSION_DENIED = 3
ANSWERS = threading.Lock()


def string(packet, at):
    (length,) = struct.unpack_from(">I", packet, at)
    return packet[at + 4 : at + 4 + length], at + 4 + length


def kind_of(packet):
    if packet[0] == OPEN:
        _, end = string(packet, 5)
        (flags,) = struct.unpack_from(">I", packet, end)
        return "open" if flags & CREATE else None
    if packet[0] == EXTENDED:
        name, _ = string(packet, 5)
        return {b"posix-rename@openssh.com": "rename", b"hardlink@openssh.com": "link"}.get(name)
    return KINDS.get(packet[0])


def status(request):
    said = b"\x65" + request + struct.pack(">I", PERMISSION_DENIED) + struct.pack(">II", 0, 0)
    return struct.pack(">I", len(said)) + said


def answer(packet):
    with ANSWERS:
        sys.stdout.buffer.write(packet)
        sys.stdout.buffer.flush()


def packets(source):
    while header := source.read(4):
        packet = source.read(struct.unpack(">I", header)[0])
        yield header + packet, packet


def main():
    control = sys.argv[1]
    command = sys.argv[2:]
    if "--" in command:
        command = command[: command.index("--")]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    lost = set()

    def ask():
        for whole, packet in packets(sys.stdin.buffer):
            try:
                does, kind = open(control).read().split()
            except (FileNotFoundError, ValueError):
                does, kind = "", None
            if kind and kind == kind_of(packet):
                if does == "lose":
                    lost.add(packet[1:5])
                elif does == "drop":
                    server.kill()
                    os.unlink(control)
                    os._exit(1)
                elif does == "hold":
                    os.rename(control, f"{control}.held")
                    while not os.path.exists(f"{control}.go"):
                        time.sleep(0.01)
                elif does == "refuse":
                    answer(status(packet[1:5]))
                    with open(f"{control}.refused", "ab") as refused:
                        refused.write(b".")
                    continue
            server.stdin.write(whole)
            server.stdin.flush()
        server.stdin.close()

    threading.Thread(target=ask, daemon=True).start()
    for whole, packet in packets(server.stdout):
        if packet[1:5] in lost:
            server.kill()
            os.unlink(control)
            os._exit(1)
        answer(whole)


main()
