"""A relay of HTTP on loopback that does what a network and an S3 store do on a bad day.

    faulty_store.py --store PORT --listen PORT --mode FILE --counts FILE [--seed N] [--rate KIND=RATE ...]

Requests are passed on unchanged, since their signatures cover the host that they name, and so are answers. The word in the file
MODE, which is read for each request, says how:

    calm      everything is passed on
    faults    each request meets one of the faults below, or none, as the seed and the rates say
    away      connections are closed as soon as they are made, and requests that are under way get no answer
    silent    requests are read, and neither passed on nor answered
    expired   every request is answered by 403 ExpiredToken

At SIGTERM the numbers of requests and of each fault are written to COUNTS, as JSON. A fault that has met no request is 0.
"""

import argparse
import json
import random
import signal
import socket
import sys
import threading
import time
from pathlib import Path

# What may happen to a request, and how often, if not given: the share of the requests that it can happen to.
RATES = {
    # It waits for up to 0.1 s.
    "delayed": 0.10,
    # The connection is closed: before it is passed on; after it was answered; while the store is at it.
    "unsent": 0.04,
    "lost": 0.04,
    "abandoned": 0.03,
    # Not passed on, but answered: 500 InternalError, 503 SlowDown, 409 ConditionalRequestConflict (what has a condition), and 200 with
    # an error in the body (copies and the ends of multipart uploads).
    "failed": 0.03,
    "slowed": 0.03,
    "conflicted": 0.03,
    "failed_late": 0.05,
    # The answer's body ends too early, with its connection.
    "truncated": 0.04,
    # The answer is held for up to 3 s, so that others overtake it.
    "held": 0.02,
}
ANSWERS = {
    "failed": ("500 Internal Server Error", "InternalError", "We encountered an internal error. Please try again."),
    "slowed": ("503 Slow Down", "SlowDown", "Please reduce your request rate."),
    "conflicted": ("409 Conflict", "ConditionalRequestConflict", "A conflicting operation is under way."),
    "failed_late": ("200 OK", "InternalError", "We encountered an internal error. Please try again."),
    "expired": ("403 Forbidden", "ExpiredToken", "The provided token has expired."),
}
PIECE = 64 << 10


class Closed(Exception):
    """The other side closed its connection, or this one is to be."""


class Reader:
    """Heads and bodies from a connection."""

    def __init__(self, connection):
        self.connection = connection
        self.ahead = b""

    def more(self):
        data = self.connection.recv(PIECE)
        if not data:
            raise Closed
        self.ahead += data

    def line_end(self, mark):
        while mark not in self.ahead:
            self.more()
        at = self.ahead.index(mark) + len(mark)
        taken, self.ahead = self.ahead[:at], self.ahead[at:]
        return taken

    def head(self):
        """The bytes of a head, its first line, and its fields by their names in lower case."""
        taken = self.line_end(b"\r\n\r\n")
        first, *lines = taken.decode("latin-1").split("\r\n")
        fields = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if colon:
                fields[name.strip().lower()] = value.strip()
        return taken, first, fields

    def exactly(self, count):
        while count:
            if not self.ahead:
                self.more()
            piece, self.ahead = self.ahead[:count], self.ahead[count:]
            count -= len(piece)
            yield piece

    def body(self, fields):
        """The pieces of a body as they come, with the framing that they have."""
        if fields.get("transfer-encoding", "").lower() == "chunked":
            while True:
                size = self.line_end(b"\r\n")
                yield size
                length = int(size.split(b";")[0], 16)
                yield from self.exactly(length + 2)
                if length == 0:
                    return
        yield from self.exactly(int(fields.get("content-length", 0)))


class Relay:
    def __init__(self, arguments):
        self.store = arguments.store
        self.mode_file = Path(arguments.mode)
        self.rates = {**RATES, **dict(arguments.rate)}
        self.lock = threading.Lock()
        self.chance = random.Random(arguments.seed)
        self.counts = {"requests": 0, "away": 0, "silent": 0, "expired": 0, **dict.fromkeys(RATES, 0)}

    def mode(self):
        return self.mode_file.read_text().strip()

    def count(self, kind):
        with self.lock:
            self.counts[kind] += 1

    def fault(self, first, fields):
        """What happens to a request, and how long it or its answer waits."""
        method = first.split()[0]
        makes = method == "PUT" and "x-amz-copy-source" in fields or method == "POST" and "uploadId=" in first
        may = {
            "conflicted": method in ("PUT", "POST") and ("if-match" in fields or "if-none-match" in fields),
            "failed_late": makes,
            "truncated": method != "HEAD",
            "abandoned": method != "GET",
        }
        with self.lock:
            draws = {kind: self.chance.random() < rate for kind, rate in self.rates.items()}
            seconds = self.chance.random()
        met = [kind for kind, drawn in draws.items() if drawn and may.get(kind, True)]
        return (met[-1] if met else None), seconds

    def answer(self, client, kind, keep):
        status, code, words = ANSWERS[kind]
        body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{words}</Message></Error>'
        connection = "keep-alive" if keep else "close"
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\nConnection: {connection}\r\n\r\n"
        client.sendall((head + ("" if not keep else body)).encode())

    def serve(self, client):
        """Answers the requests of a connection."""
        try:
            reader = Reader(client)
            while True:
                self.one(client, reader)
        except (Closed, OSError, ValueError):
            pass
        finally:
            client.close()

    def one(self, client, reader):
        mode = self.mode()
        if mode == "away":
            self.count("away")
            raise Closed
        head, first, fields = reader.head()
        self.count("requests")
        mode = self.mode()
        if mode == "away":
            self.count("away")
            raise Closed
        kind, seconds = self.fault(first, fields) if mode == "faults" else (None, 0)
        if mode in ("expired", "silent"):
            kind = mode
        if kind == "unsent":
            self.count(kind)
            raise Closed
        if kind == "delayed":
            self.count(kind)
            time.sleep(seconds * 0.1)
        if kind == "silent":
            self.count(kind)
            while self.mode() == "silent":
                time.sleep(0.1)
            raise Closed
        if kind in ANSWERS:
            if "expect" in fields:
                client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            for _ in reader.body(fields):
                pass
            self.count(kind)
            is_head = first.startswith("HEAD ")
            self.answer(client, kind, keep=not is_head)
            if is_head:
                raise Closed
            return
        self.pass_on(client, reader, head, first, fields, kind, seconds)

    def pass_on(self, client, reader, head, first, fields, kind, seconds):
        with socket.create_connection(("127.0.0.1", self.store)) as store:
            store.sendall(head)
            if "expect" in fields:
                client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            is_read = True
            for piece in reader.body(fields):
                try:
                    if is_read:
                        store.sendall(piece)
                except OSError:
                    # It refuses the request without its body, and its answer says why.
                    is_read = False
            if kind == "abandoned":
                self.count(kind)
                client.close()
            answers = Reader(store)
            while True:
                answer_head, status, answer_fields = answers.head()
                code = int(status.split()[1])
                if code >= 200:
                    break
            has_body = not first.startswith("HEAD ") and code not in (204, 304)
            pieces = list(answers.body(answer_fields)) if has_body else []
            if kind == "lost":
                self.count(kind)
                raise Closed
            if self.mode() == "away" or kind == "abandoned":
                raise Closed
            if kind == "held":
                self.count(kind)
                time.sleep(0.3 + seconds * 2.7)
            body = b"".join(pieces)
            if kind == "truncated" and len(body) > 1:
                self.count(kind)
                client.sendall(answer_head + body[:int(seconds * len(body))])
                raise Closed
            client.sendall(answer_head + body)
            if "close" in (fields.get("connection", ""), answer_fields.get("connection", "")):
                raise Closed


def rate(text):
    kind, _, share = text.partition("=")
    if kind not in RATES:
        raise argparse.ArgumentTypeError(f"no such fault: {kind}")
    return kind, float(share)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", type=int, required=True)
    parser.add_argument("--listen", type=int, required=True)
    parser.add_argument("--mode", required=True)
    parser.add_argument("--counts", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=rate, action="append", default=[])
    arguments = parser.parse_args()
    relay = Relay(arguments)

    def end(*_):
        Path(arguments.counts).write_text(json.dumps(relay.counts) + "\n")
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    with socket.create_server(("127.0.0.1", arguments.listen), backlog=128) as listener:
        while True:
            client, _ = listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=relay.serve, args=(client,), daemon=True).start()


main()
