#!/usr/bin/env bash
# Fuzzes all code that parses bytes from others: each target of instruments/fuzz with the same inputs each time, some ten seconds
# of them; in the long form with new inputs for three minutes, and again with AddressSanitizer if there is a nightly toolchain.
# timeout: 900
# all
# seconds: 150
source "${REPO:?}/tests/e2e/lib.sh"

need_command cargo
need_tool cargo-fuzz
PATH=$TOOLS/bin:$PATH
# Build target and toolchain of cargo-fuzz: libFuzzer needs no nightly toolchain, AddressSanitizer does.
unset CARGO_TARGET_DIR RUSTUP_TOOLCHAIN
cd "$REPO"
# Inputs of about ten seconds for each target. They are fixed, so that a failure comes from the change under test and not from
# chance.
declare -A inputs=([advise_traces]=30000 [fuse_requests]=200000 [lane_both_sides]=30000 [lane_messages]=300000 [lane_server]=150000
    [log_recovery]=80000 [log_superblock]=200000)

# fuzz TOOLCHAIN SANITIZER: builds all targets, then runs each.
fuzz() {
    local cargo=(cargo "$1" fuzz) options=(--fuzz-dir instruments/fuzz --sanitizer "$2" --target-dir "target/fuzz/$2")
    local target output ran wanted amount corpus executed=0
    if [ "$1" = stable ]; then cargo=(cargo fuzz); fi
    step "building for sanitizer '$2'"
    "${cargo[@]}" build "${options[@]}"
    for target in "${targets[@]}"; do
        step "$target"
        output=$WORK/$target-$2
        corpus=()
        if [ -n "$LONG" ]; then
            # A target that is slow tests little.
            wanted=2000 amount=(-max_total_time=180)
        else
            wanted=${inputs[$target]:-20000} amount=(-seed=1)
            amount+=(-runs="$wanted")
            # Begin without a corpus, whatever was found here before.
            corpus=("$WORK/corpus-$target")
            mkdir "${corpus[0]}"
        fi
        # An input that takes ten seconds counts as a failure.
        "${cargo[@]}" run "${options[@]}" "$target" "${corpus[@]}" -- "${amount[@]}" -timeout=10 \
            -print_final_stats=1 -verbosity=0 >"$output" 2>&1 || found "$target" "$output"
        ran=$(sed -n 's/^stat::number_of_executed_units: *//p' "$output")
        [ "${ran:-0}" -ge "$wanted" ] || { tail -50 "$output"; fail "$target: only ${ran:-no} inputs were run"; }
        echo "$target: $ran inputs"
        executed=$((executed + ran))
    done
    counts "${#targets[@]} targets, $executed inputs, sanitizer $2"
}

# found TARGET OUTPUT: reports a failing input.
found() {
    sed -n '/panicked at/,$p' "$2" | grep -v '^ *[0-9]*: \|^ *at ' | tail -120
    grep -q 'panicked at' "$2" || tail -50 "$2"
    local input
    input=$(grep -o 'fuzz/artifacts/[^ ]*' "$2" | tail -1)
    fail "$1 breaks on ${input:-an input that was not kept}; again: cargo fuzz run --fuzz-dir instruments/fuzz -s none $1 ${input:-}"
}

targets=()
while read -r target; do targets+=("$target"); done < <(cargo fuzz list --fuzz-dir instruments/fuzz)
[ ${#targets[@]} -ge 6 ] || fail "only ${#targets[@]} targets"
fuzz stable none
if [ -n "$LONG" ]; then
    if cargo +nightly --version >/dev/null 2>&1; then
        fuzz +nightly address
    else
        echo "without a nightly toolchain there is no AddressSanitizer"
    fi
fi
