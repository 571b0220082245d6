#!/usr/bin/env python3
"""Lists a directory while it changes.

    listing.py DIRECTORY FILES ROUNDS

FILES names stay for the whole time; others come and go between and during listings. Every listing
must show each staying name exactly once, and no name twice. Prints the names listed.
"""

import os
import sys


def main():
    directory, files, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    stay = {f"stays-{number}" for number in range(files)}
    for name in stay:
        open(f"{directory}/{name}", "w").close()
    listed = 0
    for turn in range(rounds):
        for number in range(0, 60, 2):
            open(f"{directory}/goes-{turn}-{number}", "w").close()
        seen = []
        with os.scandir(directory) as entries:
            for position, entry in enumerate(entries):
                seen.append(entry.name)
                if position % 50 == 0:
                    # Changed under the open listing, on both sides of its position.
                    open(f"{directory}/comes-{turn}-{position}", "w").close()
                    gone = f"{directory}/goes-{turn}-{position // 50 * 2}"
                    if os.path.exists(gone):
                        os.unlink(gone)
        if len(seen) != len(set(seen)):
            sys.exit(f"round {turn}: names listed twice")
        missing = stay - set(seen)
        if missing:
            sys.exit(f"round {turn}: {len(missing)} staying names are missing, as {min(missing)}")
        listed += len(seen)
        for name in os.listdir(directory):
            if not name.startswith("stays-"):
                os.unlink(f"{directory}/{name}")
    for name in os.listdir(directory):
        os.unlink(f"{directory}/{name}")
    os.rmdir(directory)
    print(listed)


if __name__ == "__main__":
    main()
