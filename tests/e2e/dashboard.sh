#!/usr/bin/env bash
# The page of 'weir dashboard', in a headless Chromium: it shows the status, at two widths, light and dark, to the keyboard and to
# assistive programs; it follows mounts that come and go; its server refuses other users and other names.
# With WEIR_PICTURES=1 the pictures are kept in docs/pictures.
# cases: page follow server
# seconds: 40
# all: page follow
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command python3
LOOK=$SUPPORT/dashboard.py

# begin_dashboard [OPTION...]: URL is where it is. It is begun by the command `begin`.
begin=()
begin_dashboard() {
    rm -f "$WORK/url"
    "${begin[@]}" "$WEIR" dashboard "$@" >"$WORK/url" 2>"$WORK/dashboard.log" &
    DASHBOARD=$!
    soon filled "$WORK/url" || fail "the dashboard says nothing: $(cat "$WORK/dashboard.log")"
    URL=$(cat "$WORK/url")
}

end_dashboard() {
    kill "$DASHBOARD"
    wait "$DASHBOARD" 2>/dev/null || true
}

case $1 in
page)
    need_command chromium
    if [ -z "${WEIR_PICTURES:-}" ]; then
        # The other mount has a name that would be HTML.
        pictures=$WORK data=$MNT other="$WORK/<img src=x onerror=document.title='taken'><b>&amp;"
        data_source=$SRC other_source=$WORK/other
        mkdir "$other" "$other_source"
        begin=()
    else
        # Pictures show names that people would give, and no mounts of others.
        pictures=$REPO/docs/pictures data=/mnt/data other=/mnt/mail data_source=/srv/data other_source=/srv/mail
        for place in "$data" "$other" "$data_source" "$other_source"; do
            [ ! -e "$place" ] || fail "$place is there already, and would be in the pictures"
        done
        mkdir -p "$pictures" "$data" "$other" "$data_source" "$other_source"
        leave_home() {
            umount -l "$data" "$other" 2>/dev/null || true
            rmdir "$data" "$other" || true
            rm -rf "$data_source" "$other_source"
        }
        # shellcheck disable=SC2016 # expanded by the inner shell
        begin=(unshare --mount --uts sh -c 'hostname server
            awk '"'"'$3 == "fuse.weir" && $2 !~ "^/mnt/(data|mail)$" { print $2 }'"'"' /proc/self/mounts | xargs -r -d "\n" -n 1 umount -l
            exec "$@"' sh)
    fi
    "$WEIR" mount "$data_source" "$data" --order all --log-size 16M --memory 64M --log-file "$DAEMON_LOG"
    "$WEIR" mount "$other_source" "$other" --log-file "$DAEMON_LOG"
    mkfifo "$WORK/go"
    # shellcheck disable=SC2016 # expanded by the inner shell
    "$WEIR" run --sync external -- sh -c 'exec 3<"$2"
        for i in $(seq 60); do echo "$i" >"$1/s"; sync "$1/s"; echo "$i"; sleep 0.2; done; read -r _ <&3' \
        sh "$data" "$WORK/go" >"$WORK/said" 2>&1 &
    session=$!
    exec 9>"$WORK/go"
    "$WEIR" run -- python3 "$SUPPORT/metrics.py" load "$data" 150 &
    load=$!
    begin_dashboard --listen 0
    timeout -s KILL 200 python3 "$LOOK" look "$WEIR" "$URL" "$WORK" "$pictures" "$data" "$other" "$load" >"$WORK/looked" || fail "$(tail -3 "$WORK/looked")"
    for picture in "$pictures"/dashboard-{wide,phone}-{light,dark}.png; do
        [ "$(stat -c %s "$picture")" -gt 20000 ] || fail "$picture shows nothing"
    done
    wait "$load" || true
    exec 9>&-
    end_dashboard
    wait "$session" || [ $? = 1 ] || fail "the session said $?: $(tail -3 "$WORK/said")"
    "$WEIR" umount "$other"
    umount_weir "$data"
    counts "$(cat "$WORK/looked")"
    ;;

follow)
    need_command chromium
    # Its place is above the other, which stays where it is.
    mkdir "$WORK/source 2" "$WORK/above"
    mount_weir "$SRC" "$MNT"
    begin_dashboard --listen 0
    timeout -s KILL 200 python3 "$LOOK" follow "$WEIR" "$URL" "$WORK" "$WORK/source 2" "$WORK/above" "$MNT"
    port=${URL##*:}
    timeout -s KILL 100 python3 "$LOOK" reconnect "$URL" "$WORK" "$DASHBOARD" "$WEIR" dashboard --listen "${port%/}"
    wait "$DASHBOARD" 2>/dev/null || true
    umount_weir "$MNT"
    ;;

server)
    mount_weir "$SRC" "$MNT"
    begin_dashboard --listen 0
    get() { python3 "$SUPPORT/metrics.py" get "$@"; }
    step "the page and its policy"
    get "$URL" | grep -q '<title>Weir</title>' || fail "there is no page"
    python3 - "$URL" <<'END'
import sys, urllib.request
for path in "", "page.js", "page.css", "icon.svg", "api/mounts":
    headers = urllib.request.urlopen(sys.argv[1] + path, timeout=20).headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy, (path, policy)
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cross-Origin-Resource-Policy"] == "same-origin", path
    assert headers["Access-Control-Allow-Origin"] is None, path
END
    knows() { get "${URL}api/mounts" | grep -qF "\"mountpoint\":\"$MNT\""; }
    soon knows || fail "the mount is not shown: $(get "${URL}api/mounts")"

    step "other names are refused, whatever they resolve to"
    for host in evil.example "evil.example:9337" 127.0.0.1.evil.example "$(hostname)"; do
        expect_failure "HTTP status 421" get "${URL}api/mounts" "$host"
    done
    get "${URL}api/mounts" localhost >/dev/null
    expect_failure "HTTP status 404" get "${URL}../../etc/passwd"
    expect_failure "HTTP status 404" get "${URL}api/mounts/"

    step "other users are refused, and this user's other programs are not"
    expect_failure "HTTP status 403" as_user nobody python3 "$SUPPORT/metrics.py" get "${URL}api/mounts"
    end_dashboard
    if [ -s /proc/net/if_inet6 ]; then
        # An address of IPv4 in the writing of IPv6 is this machine's, too.
        begin_dashboard --listen "[::ffff:127.0.0.1]:0"
        get "${URL}api/mounts" >/dev/null
        expect_failure "HTTP status 403" as_user nobody python3 "$SUPPORT/metrics.py" get "${URL}api/mounts"
        expect_failure "HTTP status 421" get "${URL}api/mounts" evil.example
        end_dashboard
    fi
    # An ordinary user's page is for that user and root, and shows what that user may see.
    mkdir "$WORK/run-nobody"
    chown nobody "$WORK/run-nobody"
    rm -f "$WORK/url"
    # shellcheck disable=SC2016 # expanded by the inner shell
    as_user nobody sh -c 'echo $$ >&2; exec "$0" dashboard --listen 0' "$WEIR" >"$WORK/url" 2>"$WORK/pid" &
    soon filled "$WORK/url"
    DASHBOARD=$(cat "$WORK/pid")
    URL=$(cat "$WORK/url")
    as_user nobody python3 "$SUPPORT/metrics.py" get "${URL}api/mounts" >/dev/null
    asked() { get "${URL}api/mounts" | grep -q '"rounds":[3-9]'; }
    soon asked || fail "daemons are not asked"
    expect_equal "what nobody is shown" "$(get "${URL}api/mounts" | grep -c "$MNT")" 0
    end_dashboard

    step "bad addresses"
    expect_failure "'elsewhere' is no address" "$WEIR" dashboard --listen elsewhere
    begin_dashboard --listen 0
    port=${URL##*:}
    expect_failure "cannot listen on 127.0.0.1:${port%/}: Address already in use: another program listens there" \
        "$WEIR" dashboard --listen "${port%/}"

    step "clients that say nothing hold nobody up"
    python3 "$SUPPORT/metrics.py" silent "127.0.0.1:${port%/}" 200 4 &
    hostile=$!
    sleep 1
    for _ in {1..5}; do timeout -s KILL 10 python3 "$SUPPORT/metrics.py" get "${URL}api/mounts" >/dev/null || fail "no answer"; done
    wait "$hostile" || true
    end_dashboard
    umount_weir "$MNT"
    ;;
esac
