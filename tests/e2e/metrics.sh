#!/usr/bin/env bash
# Metrics for Prometheus: what a daemon and 'weir status --prometheus' say, by promtool, by a Prometheus that scrapes a mount
# under load, and beside the status; addresses that are refused; clients that say nothing; the alerts and the dashboard.
# With case bucket the mount is one of a bucket, for the dashboard's queries of those.
# cases: prometheus values addresses hostile bucket
# seconds: 25
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command python3
METRICS=$SUPPORT/metrics.py

# address MOUNTPOINT: where its metrics are.
address() { "$WEIR" status --json "$1" | python3 "$SUPPORT/field.py" metrics; }
# get URL [HOST]
get() { python3 "$METRICS" get "$@"; }
# value EXPRESSION: of Prometheus.
value() { python3 "$METRICS" query "$PROMETHEUS" "$1"; }
value_is() { [ "$(value "$1" 2>/dev/null)" = "$2" ]; }

begin_load() {
    python3 "$METRICS" load "$MNT" "$1" &
    LOAD=$!
}

# A session on the mount, which writes and syncs three times and tells of it when it is sent a line, until that is "end".
begin_session() {
    mkfifo "$WORK/go"
    # shellcheck disable=SC2016 # expanded by the inner shell
    "$WEIR" run --sync external -- sh -c 'exec 3<"$1"
        while read -r line <&3 && [ "$line" != end ]; do for i in 1 2 3; do echo "$i" >"$2/s"; sync "$2/s"; echo "$i"; done; done' \
        sh "$WORK/go" "$MNT" >"$WORK/said" 2>"$WORK/session" &
    SESSION=$!
    exec 9>"$WORK/go"
    echo go >&9
    soon filled "$WORK/said" || fail "the session says nothing: $(cat "$WORK/session")"
}

end_session() {
    echo end >&9
    wait "$SESSION" || fail "the session said $?: $(cat "$WORK/session")"
    exec 9>&-
}

# A Prometheus that scrapes the mount each second.
begin_prometheus() {
    cat >"$WORK/prometheus.yml" <<END
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: ["$REPO/contrib/prometheus/alerts.yml"]
scrape_configs:
  - {job_name: weir, static_configs: [{targets: ["$ADDRESS"]}]}
END
    prometheus --config.file="$WORK/prometheus.yml" --storage.tsdb.path="$WORK/tsdb" --web.listen-address=127.0.0.1:0 \
        >"$WORK/prometheus.log" 2>&1 &
    SERVER=$!
    listens() { grep -qE 'msg="?Listening on"? .*address=127' "$WORK/prometheus.log"; }
    soon listens || fail "prometheus does not start: $(tail -3 "$WORK/prometheus.log")"
    PROMETHEUS=http://$(grep -E 'msg="?Listening on"? ' "$WORK/prometheus.log" | grep -oE 'address=127[0-9.:]+' | head -1 | cut -d= -f2)
}

end_prometheus() {
    kill "$SERVER"
    wait "$SERVER" || true
}

# Everything that has metrics: a log with all changes, names, the lane and a session.
mount_with_all() {
    mount_weir "$SRC" "$MNT" --metrics 0 --order all --log-size 16M --memory 64M "$@"
    ADDRESS=$(address "$MNT")
}

case $1 in
prometheus)
    need_command prometheus promtool
    mount_with_all
    step "a session, which writes when it is told to"
    begin_session

    step "promtool finds nothing wrong"
    get "http://$ADDRESS/metrics" >"$WORK/metrics"
    promtool check metrics <"$WORK/metrics" >"$WORK/lint" 2>&1 || fail "promtool: $(cat "$WORK/lint")"
    [ ! -s "$WORK/lint" ] || fail "promtool: $(cat "$WORK/lint")"
    "$WEIR" status "$MNT" --prometheus | promtool check metrics || fail "promtool does not like weir status --prometheus"
    promtool check rules "$REPO/contrib/prometheus/alerts.yml" >/dev/null
    promtool test rules "$REPO/contrib/prometheus/alerts_test.yml" >"$WORK/tested" 2>&1 || fail "$(cat "$WORK/tested")"
    python3 "$METRICS" known "$WORK/metrics" "$REPO/contrib/prometheus/alerts.yml" "$REPO/contrib/grafana/weir.json"

    step "Prometheus scrapes the mount under load"
    begin_prometheus
    begin_load 9
    for _ in {1..4}; do echo go >&9; sleep 2; done
    wait "$LOAD"
    soon value_is 'up{job="weir"}' 1.0 || fail "the scrape fails"
    soon value_is 'count(weir_up == 1)' 1.0 || fail "there is no mount in Prometheus"
    rate=$(value 'rate(weir_written_bytes_total[10s]) > 1000')
    [ -n "$rate" ] || fail "Prometheus saw no writes"
    executed=$(python3 "$METRICS" queries "$PROMETHEUS" "$REPO/contrib/grafana/weir.json" directory)
    value_is 'count(ALERTS{alertname=~"Weir.*"}) or vector(0)' 0.0 || fail "there are alerts: $(value 'ALERTS')"

    step "what Prometheus has at the end is what the status says"
    written() { "$WEIR" status --json "$MNT" | python3 "$SUPPORT/field.py" stats.write_bytes; }
    same_in_prometheus() { [ "$(value weir_written_bytes_total)" = "$(written).0" ]; }
    soon same_in_prometheus || fail "Prometheus has $(value weir_written_bytes_total), and the status $(written)"

    step "a daemon that is gone raises its alert"
    end_session
    umount_weir "$MNT"
    soon value_is 'up{job="weir"}' 0.0 || fail "Prometheus still scrapes the mount"
    soon value_is 'ALERTS{alertname="WeirDaemonGone",alertstate="pending"}' 1.0 || fail "no alert waits"
    end_prometheus
    counts "$executed queries of the dashboard, $(grep -c '^weir' "$WORK/metrics") samples"
    ;;

bucket)
    need_command prometheus
    source "$SUPPORT/store.sh"
    start_store
    mkdir "$WORK/cache"
    mount_weir "$SOURCE" "$MNT" --endpoint "$ENDPOINT" --cache "$WORK/cache" --metrics 0
    ADDRESS=$(address "$MNT")
    begin_prometheus
    head -c 1M /dev/urandom >"$MNT/file"
    "$WEIR" sync "$MNT"
    drop_caches
    cmp "$MNT/file" "$OBJECTS/bucket/pre/file"
    finds() { executed=$(python3 "$METRICS" queries "$PROMETHEUS" "$REPO/contrib/grafana/weir.json" bucket 2>"$WORK/found"); }
    soon finds || fail "$(tail -1 "$WORK/found")"
    requests() { "$WEIR" status --json "$MNT" | python3 "$SUPPORT/field.py" bucket.store.requests; }
    same() { value_is 'sum(weir_bucket_requests_total)' "$(requests).0"; }
    soon same || fail "Prometheus has $(value 'sum(weir_bucket_requests_total)') requests to the bucket, and the status $(requests)"
    step "weir top has them"
    "$WEIR" top --once --json "$MNT" >"$WORK/top"
    python3 -c 'import json, sys; assert {"bucket_requests", "bucket_bytes"} <= json.load(sys.stdin)["rates"].keys()' <"$WORK/top"
    end_prometheus
    umount_weir "$MNT"
    stop_store
    counts "$executed queries of the dashboard"
    ;;

values)
    mount_with_all
    "$WEIR" run -- python3 "$METRICS" load "$MNT" 2
    begin_session
    three() { [ "$(wc -l <"$WORK/said")" = 3 ]; }
    soon three || fail "the session says nothing: $(cat "$WORK/session")"

    step "the same as the status, over HTTP and printed"
    # Something may happen between the two looks: then they are taken again.
    agree() {
        get "http://$ADDRESS/metrics" >"$WORK/metrics"
        "$WEIR" status --json "$MNT" >"$WORK/status.json"
        python3 "$METRICS" same "$WORK/metrics" "$WORK/status.json" >"$WORK/compared" 2>"$WORK/differ" || return
        "$WEIR" status --prometheus "$MNT" >"$WORK/printed"
        "$WEIR" status --json "$MNT" >"$WORK/status.json"
        python3 "$METRICS" same "$WORK/printed" "$WORK/status.json" >"$WORK/compared" 2>"$WORK/differ"
    }
    soon agree || fail "$(tail -1 "$WORK/differ")"
    [ "$(cat "$WORK/compared")" -gt 90 ] || fail "only $(cat "$WORK/compared") values were compared"

    step "a scrape asks nothing of the mount"
    requests() { "$WEIR" status --requests --json "$MNT" | python3 -c 'import json, sys; print(sum(n for kind, n in json.load(sys.stdin)["requests"].items() if kind not in ("forget", "batch_forget")))'; }
    before=$(requests)
    for _ in {1..10}; do get "http://$ADDRESS/metrics" >"$WORK/metrics"; sleep 0.25; done
    expect_equal "requests of the kernel during ten scrapes" "$(requests)" "$before"

    step "mounts whose paths differ in bytes that are no UTF-8"
    for byte in $'\xff' $'\xfe'; do
        mkdir "$WORK/source $byte" "$WORK/mount $byte"
        "$WEIR" mount "$WORK/source $byte" "$WORK/mount $byte" --log-file "$DAEMON_LOG"
    done
    # Another test may have a daemon that does not answer: then the status is 1.
    "$WEIR" status --prometheus >"$WORK/all" 2>"$WORK/err" || true
    for byte in ff fe; do
        grep -qF "weir_up{mountpoint=\"$WORK/mount \\\\x$byte\",source=\"$WORK/source \\\\x$byte\"} 1" "$WORK/all" ||
            fail "there is no mount with the byte $byte: $(grep weir_up "$WORK/all")"
    done
    for byte in $'\xff' $'\xfe'; do "$WEIR" umount "$WORK/mount $byte"; done

    step "all mounts, also one whose daemon is dead"
    # shellcheck disable=SC1003
    second=$WORK/'m "2"\'
    mkdir "$WORK/source 2" "$second" "$WORK/source 3" "$WORK/third"
    "$WEIR" mount "$WORK/source 2" "$second" --log-file "$DAEMON_LOG"
    mount_weir "$WORK/source 3" "$WORK/third"
    kill -9 "$("$WEIR" status --json "$WORK/third" | python3 "$SUPPORT/field.py" pid)"
    dead() { ! "$WEIR" status "$WORK/third" >/dev/null 2>&1; }
    soon dead || fail "a killed daemon answers"
    status=0
    "$WEIR" status --prometheus >"$WORK/all" 2>"$WORK/err" || status=$?
    expect_equal "exit status with a dead daemon" "$status" 1
    python3 - "$WORK/all" "$MNT" "$second" "$WORK/third" <<'END'
import sys
text, alive, strange, dead = open(sys.argv[1]).read(), *sys.argv[2:]
for path, value in ((alive, 1), (strange, 1), (dead, 0)):
    path = path.replace("\\", "\\\\").replace('"', '\\"')
    lines = [line for line in text.splitlines() if line.startswith("weir_up{mountpoint=\"" + path + "\"")]
    assert len(lines) == 1 and lines[0].endswith(f"}} {value}"), (path, lines)
assert text.count("# TYPE weir_writes_total counter") == 1
END
    status=0
    "$WEIR" status --prometheus "$WORK/third" >"$WORK/all" 2>"$WORK/err" || status=$?
    expect_equal "exit status of a dead daemon's" "$status" 1
    grep -q '^weir_up{.*} 0$' "$WORK/all" || fail "a dead daemon is up: $(cat "$WORK/all")"
    umount "$WORK/third"
    "$WEIR" umount "$second"
    end_session
    umount_weir "$MNT"
    counts "$(cat "$WORK/compared") values"
    ;;

addresses)
    # refused STATUS WORDS OPTION...: nothing is mounted, and SOURCE is not locked.
    refused() {
        local wanted=$1 words=$2 status=0
        shift 2
        "$WEIR" mount "$SRC" "$MNT" "$@" >"$WORK/out" 2>"$WORK/err" || status=$?
        expect_equal "exit status of $* ($(cat "$WORK/err"))" "$status" "$wanted"
        grep -qF -- "$words" "$WORK/err" || fail "$* does not say '$words': $(cat "$WORK/err")"
        if is_mounted "$MNT"; then fail "$* has mounted"; fi
        [ ! -e "$SRC/.weir/log" ] || fail "$* has made a log"
    }
    refused 2 "'nowhere' is no address" --metrics nowhere
    refused 2 "'70000' is no port" --metrics 70000
    refused 2 "write [::1]:9338" --metrics ::1
    refused 2 "mount option 'metrics': ':9338' is no address" -o metrics=:9338
    printf 'metrics = "example.org:9338"\n' >"$WORK/bad.toml"
    refused 2 "bad.toml:1: 'metrics': 'example.org:9338' is no address" --config "$WORK/bad.toml"
    refused 1 "cannot listen on 192.0.2.1:9338: Cannot assign requested address: this machine has no such address" --metrics 192.0.2.1:9338
    python3 -c 'import socket, sys, time
s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); print(s.getsockname()[1], flush=True); time.sleep(1000)' >"$WORK/taken" &
    holder=$!
    soon filled "$WORK/taken"
    taken=$(cat "$WORK/taken")
    refused 1 "cannot listen on 127.0.0.1:$taken: Address already in use: another program listens there" --metrics "$taken"
    refused 1 "cannot listen on 127.0.0.1:$taken" --foreground --metrics "$taken"
    kill "$holder"
    wait "$holder" 2>/dev/null || true

    step "a port alone is on 127.0.0.1"
    mount_weir "$SRC" "$MNT" --metrics "$taken"
    expect_equal "address" "$(address "$MNT")" "127.0.0.1:$taken"
    get "http://127.0.0.1:$taken/metrics" >"$WORK/metrics"
    "$WEIR" status "$MNT" | grep -qF "http://127.0.0.1:$taken/metrics" || fail "the status does not show where metrics are"
    expect_failure "HTTP status 404" get "http://127.0.0.1:$taken/nothing"
    expect_failure "HTTP status 421" get "http://127.0.0.1:$taken/metrics" evil.example
    expect_failure "" get "http://127.0.0.2:$taken/metrics"

    step "a remount does not change it"
    ln -s "$WEIR" "$WORK/mount.fuse.weir"
    again() { "$WORK/mount.fuse.weir" "$SRC" "$MNT" -o "$1"; }
    again "remount,ro,metrics=$taken"
    again "remount,rw,metrics=127.0.0.1:$taken"
    expect_failure "it was mounted with --metrics 127.0.0.1:$taken" again "remount,ro,metrics=127.0.0.1:1"
    ! findmnt -no OPTIONS "$MNT" | grep -qE '(^|,)ro(,|$)' || fail "a refused remount made it read-only"
    umount_weir "$MNT"
    expect_failure "" get "http://127.0.0.1:$taken/metrics"

    step "off unless asked, by -o, by the configuration file, on IPv6"
    mount_weir "$SRC" "$MNT"
    expect_equal "address without --metrics" "$(address "$MNT")" ""
    expect_failure "it was mounted without --metrics" again "remount,ro,metrics=$taken"
    umount_weir "$MNT"
    mount_weir "$SRC" "$MNT" -o "metrics=$taken"
    expect_equal "address by -o" "$(address "$MNT")" "127.0.0.1:$taken"
    umount_weir "$MNT"
    printf '[mount."%s"]\nmetrics = %s\n' "$MNT" "$taken" >"$WORK/weir.toml"
    mount_weir "$SRC" "$MNT" --config "$WORK/weir.toml"
    expect_equal "address by the configuration" "$(address "$MNT")" "127.0.0.1:$taken"
    umount_weir "$MNT"
    if [ -s /proc/net/if_inet6 ]; then
        mount_weir "$SRC" "$MNT" --metrics "[::1]:$taken"
        get "http://[::1]:$taken/metrics" >"$WORK/metrics"
        umount_weir "$MNT"
        mount_weir "$SRC" "$MNT" --metrics "[::ffff:127.0.0.1]:$taken"
        get "http://127.0.0.1:$taken/metrics" >"$WORK/metrics"
        expect_failure "HTTP status 421" get "http://127.0.0.1:$taken/metrics" evil.example
        umount_weir "$MNT"
    else
        echo "this machine has no IPv6"
    fi
    ;;

hostile)
    mount_weir "$SRC" "$MNT" --metrics 0 --memory 64M
    ADDRESS=$(address "$MNT")
    pid=$(status "$MNT" pid)
    python3 "$METRICS" load "$MNT" 1
    resident() { awk '/^VmRSS/ { print $2 }' "/proc/$pid/status"; }
    connections() { find "/proc/$pid/fd" -lname 'socket:*' 2>/dev/null | wc -l; }
    before=$(resident) open=$(connections)
    python3 "$METRICS" silent "$ADDRESS" 300 14 &
    hostile=$!
    sleep 2
    step "others are answered meanwhile, and the mount goes on"
    for _ in {1..10}; do timeout -s KILL 10 python3 "$METRICS" get "http://$ADDRESS/metrics" >"$WORK/metrics" || fail "no answer"; done
    python3 "$METRICS" load "$MNT" 3
    [ "$(connections)" -le $((open + 70)) ] || fail "the daemon has $(connections) sockets, and had $open"
    grown=$(($(resident) - before))
    [ "$grown" -lt 16384 ] || fail "the daemon's memory grew by $grown KiB"

    step "the end of the mount does not wait for them"
    began=$(date +%s%N)
    umount_weir "$MNT"
    took=$((($(date +%s%N) - began) / 1000000))
    [ "$took" -lt 5000 ] || fail "umount took $took ms"
    kill "$hostile" 2>/dev/null || true
    wait "$hostile" 2>/dev/null || true
    counts "grown by $grown KiB, umount in $took ms"
    ;;
esac
