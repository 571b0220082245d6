"""Searches all readable memory of a process for a text, and its mappings for lane memory.

    memory_of.py PID TEXT

Fails if either is there. To be run by root, and not under `weir run`.
"""

import sys

process, needle = sys.argv[1], sys.argv[2].encode()
CHUNK = 4 << 20
found = []
with open(f"/proc/{process}/maps") as maps, open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
    for line in maps.read().splitlines():
        span, access, *rest = line.split(maxsplit=5)
        name = rest[3] if len(rest) > 3 else ""
        if "memfd:weir" in name:
            found.append(f"mapped: {line}")
        if "r" not in access or name.startswith("[v"):
            continue
        at, end = (int(part, 16) for part in span.split("-"))
        kept = b""
        while at < end:
            memory.seek(at)
            try:
                read = memory.read(min(CHUNK, end - at))
            except OSError:
                break
            if needle in kept + read:
                found.append(f"content: {line}")
                break
            at += len(read)
            kept = read[-len(needle):]
print("\n".join(found) or "no lane memory")
sys.exit(bool(found))
