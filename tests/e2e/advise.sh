#!/usr/bin/env bash
# `weir advise`: programs of which the figures are known, the forms of traces, the page, errors, how the program ends; and, in the
# long form, its predictions beside what is measured. With WEIR_PICTURES=1 a picture of a page is kept in docs/pictures.
# cases: known formats errors endings estimates
# long-cases: predictions
# seconds: 25
source "${REPO:?}/tests/e2e/lib.sh"

weir_only
need_root
need_command strace python3
case=${1:?}
workloads=$SUPPORT/advise_workloads.py
# Where it works aside, so that what it leaves is its own.
export TMPDIR=$WORK/tmp
mkdir "$TMPDIR"
cd "$SRC"

# advise [ARGUMENT...]: the summary goes to $WORK/summary, the rest to $WORK/advice.html and .json.
advise() {
    "$WEIR" advise --out "$WORK/advice.html" --json "$WORK/advice.json" "$@" >"$WORK/summary" 2>&1
}

# expect_advice FIELD WANTED: a number of the JSON.
expect_advice() {
    expect_equal "$1" "$(python3 "$SUPPORT/field.py" "$1" <"$WORK/advice.json")" "$2"
}

expect_nothing_left() {
    local left
    left=$(find "$SRC" "$TMPDIR" -name ".weir-advise-*")
    [ -z "$left" ] || fail "left behind: $left"
    if grep -q " $WORK[^ ]* fuse.weir" /proc/self/mounts; then fail "a mount is left"; fi
}

# The README's example, below /srv in a mount namespace of its own: the picture shows no path of this machine.
picture() {
    [ -n "${WEIR_PICTURES:-}" ] || return 0
    need_command chromium sqlite3
    mkdir -p "$REPO/docs/pictures" "$SRC/shop"
    { echo 'CREATE TABLE sale(body);'; seq -f "INSERT INTO sale VALUES ('number %g');" 1000; } >"$SRC/shop/load.sql"
    # shellcheck disable=SC2016 # expanded by the inner shell
    unshare --mount sh -ec 'mount --bind "$1" /srv; cd /srv/shop; exec "$2" advise --out "$3" -- sqlite3 app.db ".read load.sql"' \
        sh "$SRC" "$WEIR" "$WORK/picture.html" || fail "no advice for the picture"
    PYTHONPATH=$SUPPORT python3 - "$WORK" "$REPO/docs/pictures/advise.png" <<'END'
import sys
from browser import Browser
work, picture = sys.argv[1:]
with Browser(work) as browser:
    page = browser.page(width=900, height=800)
    page.open(f"file://{work}/picture.html")
    # The verdicts, where the time goes, and what is asked; not the tables below.
    next_part = "[...document.querySelectorAll('h2')].find(title => title.textContent.startsWith('Writes to parts'))"
    page.wait(next_part)
    page.picture(picture, height=page.evaluate(f"{next_part}.getBoundingClientRect().top") - 12)
END
}

case $case in
    known)
        step "what a program asks is counted exactly"
        python3 "$workloads" setup known
        advise --source "$SRC" -- python3 -S "$workloads" run known
        cat "$WORK/summary"
        expect_advice footprint.overwrites.writes 42
        expect_advice footprint.overwrites.partial 41
        expect_advice footprint.overwrites.first_use 40
        expect_advice footprint.groups.syncs.calls 7
        expect_advice footprint.groups.names.calls 11
        expect_advice footprint.pages 41
        expect_advice exit_status 0
        # All but a few of the pages were read from the disk: the file was not in memory.
        waited=$(python3 "$SUPPORT/field.py" footprint.overwrites.waited <"$WORK/advice.json")
        echo "$waited of 40 writes waited for the disk"
        step "nothing is left, and the page is one file"
        expect_nothing_left
        grep -q '<svg' "$WORK/advice.html" || fail "the page has no chart"
        if grep -Eq 'https?:|<script|url\(|src=' "$WORK/advice.html"; then fail "the page needs something from elsewhere"; fi
        step "a page is replaced, another file is not"
        advise --source "$SRC" --no-probe -- python3 -S "$workloads" run known || true
        echo mine >"$WORK/mine.html"
        expect_failure "is there and no page of weir advise" "$WEIR" advise --out "$WORK/mine.html" -- true
        expect_equal "the other file" "$(cat "$WORK/mine.html")" mine
        picture
        ;;
    formats)
        step "strace's form, recorded by hand, and Weir's, saved from it, say the same"
        python3 "$workloads" setup known
        strace -f -y -ttt -T -s 0 -o "$WORK/calls" python3 -S "$workloads" run known
        mv known-10 known
        advise --trace "$WORK/calls" --source "$SRC" --no-probe --save-trace "$WORK/saved"
        cp "$WORK/advice.json" "$WORK/first.json"
        expect_advice footprint.overwrites.partial 41
        expect_advice footprint.groups.syncs.calls 7
        advise --trace "$WORK/saved" --source "$SRC" --no-probe
        python3 - "$WORK/first.json" "$WORK/advice.json" <<'END'
import json, sys
first, second = (json.load(open(path)) for path in sys.argv[1:])
# What counts as waiting depends on what strace adds, which each report measures for itself.
for report in (first, second):
    assert report["footprint"]["overwrites"].pop("waited") is not None
for field in ("overwrites", "curve", "pages"):
    assert first["footprint"][field] == second["footprint"][field], field
calls = lambda report: {group: tally["calls"] for group, tally in report["footprint"]["groups"].items()}
assert calls(first) == calls(second)
END
        step "without descriptors' paths, times and durations"
        strace -f -o "$WORK/bare" python3 -S "$workloads" run known
        advise --trace "$WORK/bare" --format strace --source "$SRC" --no-probe
        expect_advice footprint.overwrites.partial 41
        step "MobiBench's form"
        gunzip -c "$REPO/instruments/bench/src/workload/traces/twitter.trace.gz" >"$WORK/twitter"
        advise --trace "$WORK/twitter"
        writes=$(python3 "$SUPPORT/field.py" footprint.groups.writes.calls <"$WORK/advice.json")
        wanted=$(grep -cE '^[0-9]+ [0-9]+ p?write ' "$WORK/twitter")
        [ "$writes" -gt $((wanted * 9 / 10)) ] || fail "only $writes of $wanted writes were found"
        echo "$writes of $wanted writes were to files that the trace opens"
        expect_nothing_left
        ;;
    errors)
        step "each error is a line that says what to do"
        expect_failure "line 2" bash -c "printf '1 0 close 3\n1 x\n' >'$WORK/bad'; exec '$WEIR' advise --trace '$WORK/bad'"
        expect_failure "neither strace's" bash -c "echo hello >'$WORK/bad'; exec '$WEIR' advise --trace '$WORK/bad'"
        expect_failure "unpack it" "$WEIR" advise --trace "$REPO/instruments/bench/src/workload/traces/twitter.trace.gz"
        expect_failure "cannot read the trace" "$WEIR" advise --trace "$WORK/nowhere"
        : >"$WORK/empty"
        expect_failure "it is empty" "$WEIR" advise --trace "$WORK/empty"
        expect_failure "not in PATH" "$WEIR" advise --out "$WORK/x.html" -- weir-no-such-program
        expect_failure "no file below" "$WEIR" advise --out "$WORK/x.html" --source "$SRC" -- true
        expect_failure "cannot use" "$WEIR" advise --out "$WORK/x.html" --source "$WORK/nowhere" -- true
        expect_failure "required" "$WEIR" advise
        mkdir "$WORK/bin"
        ln -s "$(type -P true)" "$WORK/bin/true"
        expect_failure "install the package strace" env PATH="$WORK/bin" "$WEIR" advise --out "$WORK/x.html" -- true
        status=0
        "$WEIR" advise --out "$WORK/x.html" -- weir-no-such-program 2>/dev/null || status=$?
        expect_equal "the status of a program that is not there" "$status" 127
        mount_weir "$SRC" "$MNT"
        expect_failure "on a weir mount already" "$WEIR" advise --out "$WORK/x.html" -- sh -c "echo x >$MNT/x"
        umount_weir "$MNT"
        expect_nothing_left
        ;;
    endings)
        step "the program's status, streams and signals are its own"
        status=0
        echo in | "$WEIR" advise --no-probe --out "$WORK/x.html" -- sh -c "cat; echo x >$SRC/x; exit 7" >"$WORK/out" || status=$?
        expect_equal "its status" "$status" 7
        expect_equal "its output" "$(head -1 "$WORK/out")" in
        status=0
        # shellcheck disable=SC2016 # expanded by the program's shell
        "$WEIR" advise --no-probe --out "$WORK/x.html" -- sh -c 'echo x >x; kill -9 $$' >"$WORK/out" 2>&1 || status=$?
        expect_equal "the status of one that was killed" "$status" 137
        grep -q "exit status 137" "$WORK/out" || fail "the summary does not say how it ended"
        step "SIGTERM reaches the program, and there is advice"
        # shellcheck disable=SC2016
        "$WEIR" advise --no-probe --out "$WORK/y.html" -- \
            sh -c 'trap "echo ended >ended; exit 3" TERM; echo x >begun; while :; do sleep 0.1; done' >"$WORK/out" 2>&1 &
        advisor=$!
        soon exists "$SRC/begun" || fail "the program did not begin"
        sleep 0.5
        kill -TERM "$advisor"
        status=0
        wait "$advisor" || status=$?
        expect_equal "its status" "$status" 3
        expect_equal "its last words" "$(cat ended)" ended
        grep -q "^Yes\|^No" "$WORK/out" || fail "there is no advice"
        ;;
    estimates)
        step "where nothing can be tried, costs are estimated, and the advice says so"
        python3 "$workloads" setup known
        advise --source "$SRC" --no-probe -- python3 -S "$workloads" run known
        expect_advice verdicts.0.confidence low
        grep -q "costs are estimated" "$WORK/summary" || fail "the summary does not say that costs are estimated"
        # Not one that makes and removes files: ext4 is slow to make files again for 5 s after others were removed.
        step "a program that only renames is told no"
        mkdir names
        advise --source "$SRC/names" -- python3 -S -c '
import os
open("names/a", "w").close()
for number in range(3000):
    os.rename("names/a", "names/b")
    os.rename("names/b", "names/a")'
        cat "$WORK/summary"
        expect_advice verdicts.0.answer no
        if grep -q "^Yes. On a mount it" "$WORK/summary"; then fail "a mount is advised"; fi
        expect_nothing_left
        ;;
    predictions)
        need_command git sqlite3 tar
        python3 "$SUPPORT/advise_predictions.py" "$WEIR" "$WORK" 5
        ;;
    *) fail "no case '$case'" ;;
esac
