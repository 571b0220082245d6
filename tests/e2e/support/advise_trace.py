#!/usr/bin/env python3
"""Makes a trace in the form of `weir advise --save-trace`: each line of standard input is a call, its path, and its fields.

    echo "write /srv/f description=1 length=10" | advise_trace.py
"""

import json
import sys

calls = [line.split() for line in sys.stdin]
print(json.dumps({"weir_trace": 1, "calls": len(calls), "starts": 0, "processes": 1, "wall_us": 1000, "timed": False}))
for at, (call, path, *fields) in enumerate(calls):
    line = {"at": at, "process": 1, "call": call, "path": path}
    for key, value in (field.split("=", 1) for field in fields):
        line[key] = value if key == "to" else int(value)
    print(json.dumps(line))
