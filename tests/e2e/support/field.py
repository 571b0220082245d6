#!/usr/bin/env python3
"""Reads JSON and prints the values of the named fields, wherever they are, on one line.

A name may be a dotted path's tail: `write.p50_ns` finds `latency.write.p50_ns`. A field that is
missing, or found twice with different values, is an error.
"""

import json
import sys


def walk(value, path):
    """Yields (path, leaf) for every leaf."""
    if isinstance(value, dict):
        for key, below in value.items():
            yield from walk(below, f"{path}.{key}")
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from walk(below, f"{path}.{index}")
    else:
        yield path, value


def main():
    leaves = list(walk(json.load(sys.stdin), ""))
    out = []
    for name in sys.argv[1:]:
        found = {leaf for path, leaf in leaves if path.endswith(f".{name}")}
        if len(found) != 1:
            sys.exit(f"{name}: found {len(found)} values in the status")
        out.append(str(found.pop()))
    print(" ".join(out))


if __name__ == "__main__":
    main()
