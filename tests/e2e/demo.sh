#!/usr/bin/env bash
# `weir-bench demo`, scene by scene and as a whole: it ends with its verdict, leaves nothing behind but its report, which needs nothing beside
# itself, and takes less than 90 s by its own clock. An ordinary user is told which scenes need root, and has the
# network. The session's scene is also killed in the middle: `weir-bench clean` removes what it left.
# cases: network session disk user
# all: whole disk session
# seconds: 25
source "${REPO:?}/tests/e2e/lib.sh"

weir_only
need_root
need_command sqlite3
[ -x "$BENCH" ] || skip "weir-bench is not built: run 'make checked'"

demo=("$BENCH" demo --weir "$WEIR" --dir "$WORK/demo")

# A scene says this once everything has been compared.
disk="every byte is there, and SQLite finds its databases sound and equal."
network="The server has the same 200 files from both sides."
session="are in the database, which has"
not_for="Not for: programs whose data is in memory anyway."
case ${1:?} in
disk) verdicts=("$disk" "$not_for") ;;
network)
    need_command sshfs
    verdicts=("$network" "$not_for")
    ;;
session) verdicts=("$session" "$not_for") ;;
user)
    mkdir -m 700 "$WORK/demo" "$WORK/run-nobody"
    cp "$BENCH" "$WORK/weir-bench"
    chown nobody "$WORK/demo" "$WORK/run-nobody"
    demo=(as_user nobody "$WORK/weir-bench" demo --weir "$WEIR" --dir "$WORK/demo")
    need_command sshfs
    verdicts=("$network" "$not_for" "1. A hard disk" "mounting emulated disks needs root" "3. A program that syncs" "this scene needs root")
    ;;
whole)
    need_command sshfs
    verdicts=("$disk" "$network" "$session" "$not_for")
    ;;
esac
case $1 in
disk | network | session) demo+=(--scene "$1") ;;
esac
# Daemons of others may log there meanwhile, by the names of their mount points.
logs() { find /var/log/weir -name "*$(basename "$WORK")*demo*" 2>/dev/null || true; }
"${demo[@]}" >"$WORK/said" || { cat "$WORK/said"; fail "the demo failed"; }
for verdict in "${verdicts[@]}"; do
    grep -qF "$verdict" <(tr '\n' ' ' <"$WORK/said" | tr -s ' ') || { cat "$WORK/said"; fail "it does not say '$verdict'"; }
    grep -qF "$verdict" "$WORK/demo/report.html" || fail "the report does not say '$verdict'"
done
expect_equal "left by the demo" "$(ls -A "$WORK/demo")" "report.html"
expect_equal "left in /var/log/weir by the demo" "$(logs)" ""
took=$(sed -n 's/^The demo took \([0-9]*\) s\.$/\1/p' "$WORK/said")
[ "${took:-900}" -lt 90 ] || fail "the demo took ${took:-?} s"
# Its pictures have the figures that the terminal has, and nothing comes from elsewhere.
python3 - "$WORK/demo/report.html" "$WORK/said" <<'EOF'
import re, sys
import xml.etree.ElementTree as tree
page, said = (open(path, encoding="utf-8").read() for path in sys.argv[1:])
bars = re.findall(r"^    (directly|through Weir) +[█▏▎▍▌▋▊▉]* +(\S.*)$", said, re.MULTILINE)
assert len(bars) >= 4, said
pictures = [tree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
assert pictures
drawn = [rect for picture in pictures for rect in picture.iter("rect")]
assert len(drawn) == len(bars), (len(drawn), len(bars))
for side, figure in bars:
    assert f">{figure}</text>" in page, figure
assert "prefers-color-scheme: dark" in page
for foreign in ("http:", "https:", "<script", "src=", "@import", "url("):
    assert foreign not in page, foreign
EOF
counts "its own time: $took s"

if [ "$1" = session ]; then
    "${demo[@]}" >"$WORK/said" 2>&1 &
    soon is_mounted "$WORK/demo/weir-bench-work/mount" || fail "the demo mounts nothing"
    kill -KILL $!
    wait $! || true
    "$BENCH" clean --dir "$WORK/demo"
    none_left() { ! pgrep -f "$WORK/demo" >/dev/null; }
    soon none_left || fail "a process of the killed demo is left: $(pgrep -af "$WORK/demo")"
    expect_equal "left of the killed demo" "$(ls -A "$WORK/demo")" "report.html"
fi
