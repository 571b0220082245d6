#!/usr/bin/env bash
# The lane's lock-free protocols in every interleaving that the memory model allows.
# timeout: 900
# all
# seconds: 100
source "${REPO:?}/tests/e2e/lib.sh"

need_command cargo
cd "$REPO"
# A target directory of its own: the flag applies to every crate, and would rebuild them all.
RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
    cargo test --locked --release -p weir-lane --lib | tee "$WORK/output"
models=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$WORK/output")
[ "${models:-0}" -ge 8 ] || fail "only ${models:-0} models ran"
counts "$models models"
