#!/usr/bin/env bash
# Bad input: one line that names the thing, the right exit status, and nothing changed.
source "${REPO:?}/tests/e2e/lib.sh"

need_root
weir_only
checks=0
# refused STATUS WORDS COMMAND...
refused() {
    local wanted=$1 words=$2 status=0
    shift 2
    "$@" >"$WORK/out" 2>"$WORK/err" </dev/null || status=$?
    expect_equal "exit status of '$*' ($(cat "$WORK/err"))" "$status" "$wanted"
    grep -qF -- "$words" "$WORK/err" || fail "'$*' does not name '$words': $(cat "$WORK/err")"
    [ ! -s "$WORK/out" ] || fail "'$*' wrote to standard output: $(cat "$WORK/out")"
    if [ "$wanted" = 1 ]; then expect_equal "lines of '$*' ($(cat "$WORK/err"))" "$(wc -l <"$WORK/err")" 1; fi
    if is_mounted "$MNT"; then fail "'$*' has mounted something"; fi
    checks=$((checks + 1))
}

echo file >"$WORK/file"
mkdir "$WORK/full" "$SRC/inside"
touch "$WORK/full/something"
refused 1 "$WORK/none" "$WEIR" mount "$WORK/none" "$MNT"
refused 1 "$WORK/file" "$WEIR" mount "$WORK/file" "$MNT"
refused 1 "$WORK/none" "$WEIR" mount "$SRC" "$WORK/none"
refused 1 "$WORK/file" "$WEIR" mount "$SRC" "$WORK/file"
refused 1 "$WORK/full" "$WEIR" mount "$SRC" "$WORK/full"
refused 1 "$SRC" "$WEIR" mount "$SRC" "$SRC/inside"
refused 1 "$SRC" "$WEIR" mount "$SRC/inside" "$SRC"
refused 1 "$SRC" "$WEIR" mount "$SRC" "$SRC"
refused 2 "12Q" "$WEIR" mount "$SRC" "$MNT" --memory 12Q
refused 2 "--no-such-option" "$WEIR" mount "$SRC" "$MNT" --no-such-option
refused 2 "sometimes" "$WEIR" mount "$SRC" "$MNT" --fetch sometimes
refused 2 "nonsense" "$WEIR" mount "$SRC" "$MNT" -o nonsense
refused 2 "" "$WEIR" mount "$SRC"
refused 2 "" "$WEIR" nonsense
refused 1 "$MNT" "$WEIR" umount "$MNT"
refused 1 "$MNT" "$WEIR" status "$MNT"
refused 1 "$MNT" "$WEIR" sync "$MNT"
expect_equal "SOURCE" "$(find "$SRC" -mindepth 1 ! -path "$SRC/.weir*")" "$SRC/inside"

step "not permitted"
chown nobody "$MNT"
chmod 700 "$SRC"
mkdir "$WORK/run-nobody"
chown nobody "$WORK/run-nobody"
refused 1 "$SRC" as_user nobody "$WEIR" mount "$SRC" "$MNT"
chown root "$MNT"

step "already mounted"
mkdir "$WORK/second"
mount_weir "$SRC" "$MNT"
status=0
"$WEIR" mount "$SRC" "$WORK/second" 2>"$WORK/err" || status=$?
expect_equal "exit status of a second mount" "$status" 1
expect_equal "lines of a second mount ($(cat "$WORK/err"))" "$(wc -l <"$WORK/err")" 1
grep -qF "$SRC" "$WORK/err" || fail "a second mount does not name SOURCE: $(cat "$WORK/err")"
if is_mounted "$WORK/second"; then fail "mounted twice"; fi

step "Weir's own directory is not shown"
[ ! -e "$MNT/.weir" ] || fail ".weir is shown"
expect_equal "names shown" "$(ls -A "$MNT")" inside
expect_failure "" mkdir "$MNT/.weir"
expect_failure "" mv "$MNT/inside" "$MNT/.weir"
umount_weir "$MNT"

step "read-only"
mount_weir "$SRC" "$MNT" --read-only
expect_failure "ead-only" touch "$MNT/new"
umount_weir "$MNT"

step "help"
for command in mount umount status sync; do
    [ "$("$WEIR" "$command" --help | wc -l)" -ge 8 ] || fail "weir $command --help is hardly a help"
    checks=$((checks + 1))
done
[ -n "$("$WEIR" --version)" ] || fail "no version"
counts "$((checks + 6)) answers"
