#!/usr/bin/env python3
"""Looks at metrics: of a daemon, of `weir status --prometheus`, and in a Prometheus that has scraped them.

    metrics.py get URL [HOST]              the body; the status is on standard error, and is the exit status's reason
    metrics.py same METRICS STATUS         each metric's value is that of `weir status --json`; says how many were compared
    metrics.py known METRICS FILE...       each weir_ metric that a file of alerts or a dashboard names is there
    metrics.py queries URL DASHBOARD KIND  Prometheus executes each query of a dashboard, and finds something for each; those of
                                           buckets if KIND is bucket, the others if it is directory
    metrics.py query URL EXPRESSION        the sum of an instant query's values, or nothing without a result
    metrics.py load DIRECTORY SECONDS      writes, syncs, reads and renames files
    metrics.py silent ADDRESS COUNT SECONDS  that many clients connect again and again, and say nothing or half of something
"""

import json
import os
import random
import re
import socket
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

PAGE = 4096
BLOCK = 4096
SAMPLE = re.compile(r'(weir_\w+)\{((?:[^"}]|"(?:\\.|[^"\\])*")*)\} (\S+)')
LABEL = re.compile(r'(\w+)="((?:\\.|[^"\\])*)"')


def get(url, host=None):
    request = urllib.request.Request(url, headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def unescaped(value):
    return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), value)


def samples(path):
    """{(name, labels without mountpoint and source): value}, and these two labels, which are the same of all."""
    found, places = {}, set()
    for line in open(path, encoding="utf-8"):
        if line.startswith("#"):
            continue
        match = SAMPLE.fullmatch(line.rstrip("\n"))
        assert match, f"no sample: {line!r}"
        labels = {name: unescaped(value) for name, value in LABEL.findall(match[2])}
        places.add((labels.pop("mountpoint"), labels.pop("source")))
        key = (match[1], tuple(sorted(labels.items())))
        assert key not in found, f"twice: {line!r}"
        found[key] = float(match[3])
    return found, places


def wanted(status):
    """What the metrics must be by a status: (name, labels, value)."""
    stats, latency = status["stats"], status["latency"]
    plain = {
        "weir_up": 1,
        "weir_stopping": status["stopping"],
        "weir_read_only": status["read_only"],
        "weir_memory_bytes": stats["memory_bytes"],
        "weir_memory_limit_bytes": stats["memory_bytes_max"],
        "weir_patch_memory_bytes": stats["patch_bytes"],
        "weir_patch_memory_limit_bytes": stats["patch_bytes_max"],
        "weir_cached_bytes": stats["frames"] * PAGE,
        "weir_cache_limit_bytes": stats["cache_pages"] * PAGE,
        "weir_open_files": stats["files"],
        "weir_writes_total": stats["writes"],
        "weir_written_bytes_total": stats["write_bytes"],
        "weir_reads_total": stats["reads"],
        "weir_read_bytes_total": stats["read_bytes"],
        "weir_patch_writes_total": stats["patch_writes"],
        "weir_waiting_writers": stats["writers_waiting"],
        "weir_fuse_notifications_total": status["notifications"],
        "weir_dirty_bytes": stats["dirty_pages"] * PAGE,
        "weir_patched_bytes": stats["patched_pages"] * PAGE,
        "weir_spilled_bytes": stats["spilled_pages"] * PAGE,
        "weir_dirty_memory_bytes": stats["dirty_memory_pages"] * PAGE,
        "weir_dirtied_bytes_total": stats["dirtied_pages"] * PAGE,
        "weir_cleaned_bytes_total": stats["cleaned_pages"] * PAGE,
        "weir_home_written_bytes_total": stats["destage_bytes"],
        "weir_home_writes_total": stats["destage_commands"],
        "weir_home_gap_bytes_total": stats["gap_pages_written"] * PAGE,
        "weir_fetched_bytes_total": stats["fetched_pages"] * PAGE,
        "weir_fetches_total": stats["fetch_commands"],
        "weir_fetch_waited_bytes_total": stats["fetches_waited"] * PAGE,
        "weir_readahead_bytes_total": stats["readahead_pages"] * PAGE,
        "weir_fetch_gap_bytes_total": stats["gap_pages"] * PAGE,
        "weir_fetch_avoided_bytes_total": stats["fetches_avoided"] * PAGE,
        "weir_evicted_bytes_total": stats["evictions"] * PAGE,
        "weir_queue_depth": stats["queue_depth"],
        "weir_joined_requests_total": stats["requests_joined"],
        "weir_log_used_bytes": stats["log_used_bytes"],
        "weir_log_capacity_bytes": stats["log_capacity_bytes"],
        "weir_log_failed": stats["log_errors"] > 0,
        "weir_log_records_total": stats["log_records"],
        "weir_log_record_bytes_total": stats["log_bytes"],
        "weir_log_writes_total": stats["log_groups"],
        "weir_log_written_bytes_total": stats["log_blocks"] * BLOCK,
        "weir_log_reads_total": stats["log_reads"],
        "weir_log_read_bytes_total": stats["log_read_blocks"] * BLOCK,
        "weir_log_spills_total": stats["spilled"],
        "weir_log_redone_files_total": stats["log_redos"],
        "weir_names_pending": status["names"]["pending"],
        "weir_names_refused": status["names"]["refused"],
        "weir_names_conflicts_total": status["names"]["conflicts"],
        "weir_lane_clients": status["lane"]["clients"],
        "weir_lane_files": status["lane"]["files"],
        "weir_lane_posted_writes_total": status["lane"]["posted_writes"],
        "weir_lane_posted_bytes_total": status["lane"]["posted_bytes"],
        "weir_sessions": len(status["sessions"]),
    }
    for name, value in plain.items():
        yield name, {}, value
    by_label = {
        ("weir_read_pages_total", "result"): {"hit": "read_hits", "miss": "read_misses"},
        ("weir_delayed_writes_total", "reason"): {
            "fetch": "writers_blocked_fetch", "memory": "writers_throttled", "pace": "writers_paced"},
        ("weir_home_write_reasons_total", "reason"): {
            "age": "destages_aged", "pressure": "destages_pressed", "sync": "destages_synced", "along": "destages_along"},
        ("weir_in_flight_requests", "operation"): {"fetch": "fetches_in_flight", "write": "destages_in_flight"},
        ("weir_queued_requests", "class"): {"sync": "sync_requests_waiting", "async": "async_requests_waiting"},
        ("weir_errors_total", "operation"): {
            "fetch": "fetch_errors", "write": "destage_errors", "sync": "sync_errors", "log_write": "log_errors",
            "log_read": "log_read_errors"},
    }
    for (name, label), fields in by_label.items():
        for value, field in fields.items():
            yield name, {label: value}, stats[field]
    for mark, field in {"low": "watermark_low_pages", "high": "watermark_high_pages", "max": "watermark_max_pages",
                        "pressure": "pressure_pages", "limit": "dirty_bound_pages"}.items():
        yield "weir_watermark_bytes", {"mark": mark}, stats[field] * PAGE
    for result in "hit", "miss":
        field = {"hit": "ghost_hits", "miss": "ghost_misses"}[result]
        yield "weir_ghost_bytes_total", {"result": result}, stats[field] * PAGE
    for event in "granted", "revoked", "refused":
        yield "weir_lane_leases_total", {"event": event}, status["lane"][event]
    for kind, count in status["requests"].items():
        yield "weir_fuse_requests_total", {"kind": kind}, count
    for operation, of in latency.items():
        for quantile, field in {"0.5": "p50_ns", "0.9": "p90_ns", "0.99": "p99_ns", "0.999": "p999_ns", "1": "max_ns"}.items():
            value = of[field] / 1e9 if of["count"] else None
            yield "weir_request_duration_seconds", {"operation": operation, "quantile": quantile}, value
        yield "weir_request_duration_seconds_sum", {"operation": operation}, of["sum_ns"] / 1e9
        yield "weir_request_duration_seconds_count", {"operation": operation}, of["count"]
    for session in status["sessions"]:
        labels = {"session": str(session["supervisor"]), "promise": "changes" if session["every_write"] else "syncs"}
        yield "weir_session_promises_total", labels, session["promises"]
        yield "weir_session_pending", labels, session["pending"]
        for reason, field in {"output": "for_output", "judging": "for_judging", "time": "by_time", "end": "at_end",
                              "sync": "by_syncs", "outsider": "for_outsiders"}.items():
            yield "weir_session_commits_total", {**labels, "reason": reason}, session["commits"][field]
        waits = session["waits"]
        for quantile, field in {"0.5": "p50_us", "0.99": "p99_us", "1": "max_us"}.items():
            value = waits[field] / 1e6 if waits["count"] else None
            yield "weir_session_wait_seconds", {**labels, "quantile": quantile}, value
        yield "weir_session_wait_seconds_sum", labels, waits["sum_us"] / 1e6
        yield "weir_session_wait_seconds_count", labels, waits["count"]
    yield "weir_info", {
        "version": status["weir_version"], "transport": status["transport"], "io": "direct" if status["direct"] else "buffered",
        "fetch": status["fetch_policy"], "write_back": status["write_back"], "order": status["order"]}, 1


# These change between the two looks.
MOVING = {"weir_uptime_seconds", "weir_resident_memory_bytes", "weir_oldest_dirty_seconds"}


def same(metrics, status):
    status = json.load(open(status, encoding="utf-8"))
    found, places = samples(metrics)
    assert places == {(status["mountpoint"], status["source"])}, places
    compared = 0
    for name, labels, value in wanted(status):
        key = (name, tuple(sorted(labels.items())))
        assert key in found, f"{key} is not there"
        got = found.pop(key)
        is_same = got != got if value is None else abs(got - float(value)) <= 1e-12 * abs(got)
        assert is_same, f"{key} is {got}, and the status says {value}"
        compared += 1
    for name in MOVING:
        got = found.pop((name, ()))
        moving = {"weir_uptime_seconds": status["uptime_ms"] / 1000, "weir_resident_memory_bytes": status["resident_bytes"],
                  "weir_oldest_dirty_seconds": status["stats"]["oldest_dirty_ms"] / 1000}[name]
        assert abs(got - moving) < max(20, 0.5 * moving), f"{name} is {got}, and the status says {moving}"
    assert not found, f"nobody expects {sorted(found)}"
    print(compared)


def expressions(path):
    text = open(path, encoding="utf-8").read()
    if not path.endswith(".json"):
        return re.findall(r"^\s*expr: (.*)$", text, re.M)
    board = json.loads(text)
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    found += [variable["definition"] for variable in board["templating"]["list"] if "definition" in variable]
    assert len(found) > 20, "this is no dashboard"
    return found


def known(metrics, files):
    there = {name for name, _ in samples(metrics)[0]}
    for path in files:
        named = {name for text in expressions(path) for name in re.findall(r"\bweir_\w+", text)}
        assert named, f"{path} names no metric"
        # Those of buckets are only where SOURCE is one (tests/e2e/bucket-mount.sh looks for them).
        missing = {name for name in named - there if not name.startswith("weir_bucket_")}
        assert not missing, f"{path} names {sorted(missing)}, which are not there"
        print(f"{path}: {len(named)} metrics")


def ask(url, expression):
    code, body = get(f"{url}/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
    answer = json.loads(body)
    assert code == 200 and answer["status"] == "success", f"{expression}: {body}"
    return answer["data"]["result"]


def queries(url, board, kind):
    empty = []
    texts = [text for text in expressions(board) if not text.startswith("label_values")]
    texts = [text for text in texts if ("weir_bucket_" in text) == (kind == "bucket")]
    for text in texts:
        text = text.replace("$__rate_interval", "10s").replace("$mountpoint", ".*")
        if not ask(url, text):
            empty.append(text)
    assert not empty, f"nothing is found for {empty}"
    print(len(texts))


def load(directory, seconds):
    chance = random.Random(7)
    until = time.monotonic() + seconds
    turn = 0
    with open(f"{directory}/data", "r+b" if os.path.exists(f"{directory}/data") else "w+b", buffering=0) as data:
        while time.monotonic() < until:
            turn += 1
            for _ in range(20):
                os.pwrite(data.fileno(), chance.randbytes(700), chance.randrange(0, 8 << 20))
            os.fsync(data.fileno())
            os.pread(data.fileno(), 65536, chance.randrange(0, 8 << 20))
            with open(f"{directory}/new", "wb") as new:
                new.write(b"x" * 5000)
            os.rename(f"{directory}/new", f"{directory}/{turn % 16}")
            time.sleep(0.01)


def silent(address, count, seconds):
    host, _, port = address.rpartition(":")
    until = time.monotonic() + seconds
    held = []
    while time.monotonic() < until:
        client = socket.create_connection((host.strip("[]"), int(port)), timeout=10)
        if len(held) % 3 == 1:
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: ")
        if len(held) % 3 == 2:
            try:
                client.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"y" * 100000)
            except OSError:
                pass
        held.append(client)
        if len(held) > count:
            held.pop(random.randrange(len(held))).close()


def main():
    what, *rest = sys.argv[1:]
    if what == "get":
        code, body = get(*rest)
        sys.stdout.write(body)
        if code != 200:
            sys.exit(f"HTTP status {code}")
    elif what == "same":
        same(*rest)
    elif what == "known":
        known(rest[0], rest[1:])
    elif what == "queries":
        queries(*rest)
    elif what == "query":
        result = ask(*rest)
        if result:
            print(sum(float(sample["value"][1]) for sample in result))
    elif what == "load":
        load(rest[0], float(rest[1]))
    elif what == "silent":
        silent(rest[0], int(rest[1]), float(rest[2]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
