#!/usr/bin/env python3
"""answers.py SOCKET ANSWER: listens in a daemon's place, and answers every request with what the file ANSWER holds at the moment."""

import os
import socket
import sys


def main():
    place, answer = sys.argv[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        # Not to be seen before others may connect.
        listener.bind(place + ".new")
        os.chmod(place + ".new", 0o666)
        listener.listen()
        os.rename(place + ".new", place)
        while True:
            connection, _ = listener.accept()
            with connection:
                try:
                    connection.recv(4096)
                    with open(answer, "rb") as file:
                        connection.sendall(file.read())
                except OSError:
                    # A client that does not believe it has hung up.
                    pass


if __name__ == "__main__":
    main()
