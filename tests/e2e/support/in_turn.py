"""Runs a load by FUSE and by the lane of one mount, in turn, and compares rates and FUSE requests.

    in_turn.py WEIR MOUNT ROUNDS MORE FUSE_COMMAND LANE_COMMAND

The commands are the shell's; each prints a rate and a number of operations. One more round, the first, is not counted. Fails if
the lane's command sends over MORE more of GETATTR or GETXATTR for an operation than FUSE's. The last line is the median ratio of the
rates.
"""

import json
import statistics
import subprocess
import sys

weir, mount, rounds, more, *commands = sys.argv[1:]
SIDES = dict(zip(("fuse", "lane"), commands, strict=True))


def requests():
    command = [weir, "status", "--requests", "--json", mount]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(said)["requests"]


done = dict.fromkeys(SIDES, 0)
sent = {side: {} for side in SIDES}
ratios = []
for turn in range(1 + int(rounds)):
    rates = {}
    for side in sorted(SIDES, reverse=turn % 2 == 1):
        before = requests()
        command = subprocess.run(["bash", "-c", SIDES[side]], check=True, stdout=subprocess.PIPE, text=True)
        after = requests()
        rate, operations = command.stdout.split()
        rates[side] = float(rate)
        if turn == 0:
            continue
        done[side] += int(operations)
        for name in after:
            sent[side][name] = sent[side].get(name, 0) + after[name] - before.get(name, 0)
    if turn > 0:
        ratios.append(rates["lane"] / rates["fuse"])

print("requests for an operation, by FUSE and by the lane:")
each = {
    name: [sent[side].get(name, 0) / done[side] for side in ("fuse", "lane")]
    for name in {**sent["fuse"], **sent["lane"]}
}
for name, (fuse, lane) in each.items():
    if max(fuse, lane) >= 0.005:
        print(f"  {name:14} {fuse:8.3f} {lane:8.3f}")
for name in ("getattr", "getxattr"):
    fuse, lane = each.get(name, (0, 0))
    if lane > fuse + float(more):
        sys.exit(f"{name}: {lane:.3f} for an operation by the lane, {fuse:.3f} by FUSE")
print("the lane's rate against FUSE's, by round:", *(f"{ratio:.2f}" for ratio in sorted(ratios)))
print(f"{statistics.median(ratios):.2f}")
