#!/usr/bin/env bash
# The evaluation on two of its cases: content is verified, a run resumes from its results, the report is made.
# serial
# all
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
need_command mkfs.ext4 losetup
BENCH=${WEIR_BENCH:?}
[ -x "$BENCH" ] || skip "weir-bench is not built: run 'make checked'"
json=$WORK/nbw.json
nbw() { "$BENCH" run nbw --quick --weir "$WEIR" --dir "$WORK" --json "$json" "$@"; }
cases() { python3 -c "import json; print(len(json.load(open('$json'))['cases']))"; }

step "two cases"
nbw --only hdd/random-write/128,ssd/sequential-read/4096
expect_equal "cases of four and of two contestants" "$(cases)" 6
python3 - "$json" <<'END'
import json, sys

results = json.load(open(sys.argv[1]))
assert results["suite"] == "nbw" and not results["complete"], results["suite"]
cases = {(case["name"], case["contestant"]): case for case in results["cases"]}
ext4, weir = (cases["hdd/random-write/128", who] for who in ("ext4", "weir-lazy"))
# A disk with one arm cannot fetch 400 random pages a second.
assert 20 < ext4["ops_per_s"] < 400, ext4["ops_per_s"]
assert ext4["device_reads"] > 0.5 * ext4["rounds"][0]["seconds"] * ext4["ops_per_s"], ext4
assert weir["ratio_to_blocking"] > 5, weir["ratio_to_blocking"]
print(f"counts: {ext4['ops_per_s']:.0f} ops/s on ext4, {weir['ratio_to_blocking']:.0f} times that through Weir")
END

step "a third case is added to the results"
nbw --only hdd/random-write/128,hdd/sequential-read/4096 >"$WORK/second"
expect_equal "cases of before and two more" "$(cases)" 8
expect_equal "lines of cases run now" "$(grep -c '^hdd/.* ext4 ' "$WORK/second")" 1

step "the report"
"$BENCH" report "$json" --out "$WORK/docs"
grep -q 'random-write' "$WORK/docs/nbw.md" || fail "no table in the report"
[ -s "$WORK/docs/nbw/figure-10.svg" ] || fail "no plot in the report"

step "bad input"
if nbw --only no-such-case 2>"$WORK/error"; then fail "a case that is not there was run"; fi
grep -q 'no-such-case\|nothing of the suite' "$WORK/error" || fail "no reason was given: $(cat "$WORK/error")"
echo '{}' >"$json"
if nbw 2>"$WORK/error"; then fail "a file of something else was written over"; fi
expect_equal "that file" "$(cat "$json")" '{}'
