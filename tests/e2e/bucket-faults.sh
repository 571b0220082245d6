#!/usr/bin/env bash
# A bucket behind a bad network and a store that fails: a relay between weir-bucket and a real S3 server delays requests, closes
# connections before and after a request is done, answers by 500, 503 and 409, cuts answers short, and holds them so that others
# overtake them.
# saves: a program saves files, while the daemon and weir-bucket are killed: what was acknowledged is in the mount each time, and
#        at last in the bucket, where neither temporary objects nor multipart uploads stay;
# large: small writes, appends, truncations and renames of a large file, each synced into the bucket;
# away: the store is away while a program saves files: `weir umount` says so, and after another mount all is there;
# outage: the same, and the mount goes on when the store is back as if nothing had been;
# credentials, cold: they expire: programs go on, the mount stays, says what to do, and goes on with new ones, also if a program has
#        tried to read a file that is only in the bucket;
# silent: the store does not answer while the lease runs out: nothing is changed any more, until it is renewed;
# ended: weir-bucket is killed while the daemon goes on, which says so: with another mount all is there;
# kills: the daemon, weir-bucket and the store are killed 500 times (KILLS) at random moments, alone and together, in every second
#        round behind the bad network: what was acknowledged is in the mount each time, and at last in the bucket;
# full: the disk of the log and of what is not in the bucket yet is full: ENOSPC, and nothing that was acknowledged is lost.
# cases: saves large away outage credentials cold silent full ended
# long-cases: kills
# all: saves large away outage credentials cold silent full
# seconds: 60
source "${REPO:?}/tests/e2e/lib.sh"
source "$SUPPORT/store.sh"

need_root
need_command fusermount3
weir_only
case=$1
# Weir looks for it beside itself, or on PATH.
[ -x "${WEIR_BUCKET:?}" ] || fail "$WEIR_BUCKET is not built: run 'make checked'"
PATH=${WEIR_BUCKET%/*}:$PATH
SOURCE=s3://bucket/pre
NOTES=$WORK/notes
SEED=${SEED:-1}

# start_relay [OPTION...]: ENDPOINT is the relay's from here on.
start_relay() {
    local port
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    network calm
    python3 "$SUPPORT/faulty_store.py" --store "${ENDPOINT##*:}" --listen "$port" --mode "$WORK/network" --counts "$WORK/met" \
        --seed "$SEED" "$@" &
    RELAY_PID=$!
    ENDPOINT=http://127.0.0.1:$port
    soon answers "$port" || fail "the relay does not listen"
}

# network calm|faults|away|silent|expired
network() {
    echo "$1" >"$WORK/network.new"
    mv "$WORK/network.new" "$WORK/network"
}

# stop_relay KIND...: each of these really happened.
stop_relay() {
    local kind met
    kill "$RELAY_PID"
    wait "$RELAY_PID" || fail "the relay ended with status $?"
    for kind in "$@"; do
        met=$(python3 "$SUPPORT/field.py" "$kind" <"$WORK/met")
        [ "$met" -gt 0 ] || fail "nothing was $kind: $(cat "$WORK/met")"
    done
    counts "$(tr -d '{}"' <"$WORK/met")"
}
FAULTS=(delayed unsent lost abandoned failed slowed truncated held)

acknowledged() { python3 "$SUPPORT/acknowledged.py" "$@"; }
saved() { cat "$NOTES" 2>/dev/null | grep -c -e ^saved -e ^removed || true; }
saved_more_than() { [ "$(saved)" -gt "$1" ]; }

# bucket_process prints the process ID of weir-bucket; no_bucket: it has ended.
bucket_process() { pgrep -f "weir-bucket mount $SOURCE .*--endpoint=$ENDPOINT"; }
no_bucket() { ! bucket_process >/dev/null; }

REDO_LOG=$WORK/redo.log
serve() { mount_weir_foreground "$SOURCE" "$MNT" --log "$REDO_LOG" --endpoint "$ENDPOINT" --log-file "$DAEMON_LOG" "$@"; }

# The daemon is gone: its mount, too.
lose_mount() {
    kill -9 "$WEIR_PID"
    wait "$WEIR_PID" 2>/dev/null || true
    umount -l "$MNT" 2>/dev/null || true
}

end_mount() {
    umount_weir "$MNT"
    wait "$WEIR_PID" || fail "the daemon ended with status $?"
    soon no_bucket || fail "weir-bucket goes on after weir umount"
}

# What Weir and weir-bucket made for a moment is not there.
expect_nothing_left() {
    local left
    left=$(left_in_store)
    [ -z "$left" ] || fail "what was made for a moment stays:"$'\n'"$left"
}

# The mount ends: what was saved is in the bucket, also after another mount, and nothing else.
expect_all_in_bucket() {
    end_mount
    acknowledged check "$(objects)" "$NOTES" || fail "in the bucket"
    serve
    end_mount
    acknowledged check "$(objects)" "$NOTES" || fail "in the bucket, after another mount"
    expect_nothing_left
}

# serve_alone [OPTION...]: weir-bucket without Weir. BUCKET_PID is the program, and an end says that all is in the bucket.
BUCKET_LOG=$WORK/bucket.log
serve_alone() {
    rm -f "$WORK/ready"
    weir-bucket mount "$SOURCE" "$MNT" --state "$WORK/bucket-state" --endpoint "$ENDPOINT" "$@" >"$WORK/ready" 2>>"$BUCKET_LOG" &
    BUCKET_PID=$!
    soon ready_or_ended || fail "it does not mount"
    if ended "$BUCKET_PID"; then cat "$BUCKET_LOG"; fail "weir-bucket ended before it mounted"; fi
}
ready_or_ended() { grep -qs ^serving "$WORK/ready" || ended "$BUCKET_PID"; }
end_alone() {
    umount "$MNT"
    wait "$BUCKET_PID" || { tail -5 "$BUCKET_LOG"; fail "weir-bucket ended with status $?"; }
}

start_store
start_relay
case $case in
    saves)
        serve
        network faults
        for victim in daemon bucket both; do
            before=$(saved)
            python3 "$SUPPORT/acknowledged.py" save "$MNT" "$NOTES" 2>/dev/null &
            load=$!
            soon saved_more_than $((before + 150)) || fail "the load does not go on"
            # It is on its way by now.
            sleep 3
            step "kill -9: $victim, after $(saved) saves"
            if [ "$victim" != daemon ]; then
                kill -9 "$(bucket_process)"
                sleep 1
            fi
            if [ "$victim" = bucket ]; then kill -9 "$load" 2>/dev/null || true; fi
            lose_mount
            wait "$load" 2>/dev/null || true
            serve
            acknowledged check "$MNT" "$NOTES" || fail "after kill -9 of the $victim"
        done
        network calm
        expect_all_in_bucket
        counts "$(saved) saves, 3 kills"
        stop_relay "${FAULTS[@]}" conflicted
        ;;
    kills)
        kills=${KILLS:-500}
        RANDOM=$SEED
        relay=$ENDPOINT
        victims=(daemon bucket store both all)
        serve
        for ((round = 1; round <= kills; round++)); do
            victim=${victims[RANDOM % ${#victims[@]}]}
            if [ $((round % 2)) = 0 ]; then network faults; fi
            before=$(saved)
            python3 "$SUPPORT/acknowledged.py" save "$MNT" "$NOTES" 2>/dev/null &
            load=$!
            soon saved_more_than $((before + 5)) || fail "round $round: the load does not go on"
            sleep "$(printf '0.%03d' $((RANDOM % 1000)))"
            step "round $round: kill -9: $victim, after $(saved) saves"
            case $victim in store | all) kill -9 "$STORE_PID" ;; esac
            case $victim in bucket | both | all) kill -9 "$(bucket_process)" ;; esac
            case $victim in daemon | both | all) lose_mount ;; esac
            # It goes on without the store, and not without its mount.
            sleep "$(printf '0.%03d' $((RANDOM % 300)))"
            kill -9 "$load" 2>/dev/null || true
            if [ "$victim" = bucket ]; then lose_mount; fi
            wait "$load" 2>/dev/null || true
            network calm
            case $victim in
                store | all)
                    wait "$STORE_PID" 2>/dev/null || true
                    start_store "$STORE_PORT"
                    ENDPOINT=$relay
                    ;;
            esac
            if [ "$victim" != store ]; then serve; fi
            acknowledged check "$MNT" "$NOTES" || fail "round $round: after kill -9: $victim"
        done
        expect_all_in_bucket
        counts "$(saved) saves, $kills kills"
        stop_relay
        ;;
    large)
        cat >"$WORK/change.py" <<'PYTHON'
"""Changes a large file and its copy alike: change.py SEED FILE COPY, and syncs the file until that succeeds."""
import os, random, sys, time
seed, path, copy = sys.argv[1:]
chance = random.Random(int(seed))
files = [os.open(path, os.O_RDWR), os.open(copy, os.O_RDWR)]
size = os.fstat(files[1]).st_size
if chance.random() < 0.3:
    size -= chance.randrange(1 << 20)
    for file in files:
        os.ftruncate(file, size)
for number in range(8):
    data = chance.randbytes(chance.choice([1, 100, 5000, 70000]))
    at = size if chance.random() < 0.2 else chance.randrange(size)
    size = max(size, at + len(data))
    for file in files:
        os.pwrite(file, data, at)
for attempt in range(10):
    try:
        os.fsync(files[0])
        sys.exit(0)
    except OSError as error:
        print(f"fsync: {error}", flush=True)
        time.sleep(1)
sys.exit("it is never synced")
PYTHON
        head -c $((72 << 20)) /dev/urandom >"$WORK/copy"
        serve_alone
        network faults
        cp "$WORK/copy" "$MNT/large"
        name=large
        for ((round = 1; round <= 9; round++)); do
            if [ "$round" = 6 ]; then
                step "kill -9 in an upload"
                cp "$WORK/copy" "$WORK/before"
                python3 "$WORK/change.py" 100 "$MNT/$name" "$WORK/copy" &
                change=$!
                sleep 1.5
                kill -9 "$BUCKET_PID"
                wait "$BUCKET_PID" 2>/dev/null || true
                wait "$change" 2>/dev/null || true
                umount -l "$MNT"
                serve_alone
                if ! cmp -s "$WORK/copy" "$MNT/$name"; then
                    cmp "$WORK/before" "$MNT/$name" || fail "the file after kill -9 is neither what was synced nor what was written"
                    mv "$WORK/before" "$WORK/copy"
                fi
            fi
            python3 "$WORK/change.py" "$round" "$MNT/$name" "$WORK/copy" || fail "round $round"
            cmp "$WORK/copy" "$(objects)/$name" || fail "the object after round $round"
            if [ $((round % 3)) = 0 ]; then
                mv "$MNT/$name" "$MNT/moved-$round"
                name=moved-$round
                cmp "$WORK/copy" "$(objects)/$name" || fail "the object after a rename"
            fi
        done
        cmp "$WORK/copy" "$MNT/$name" || fail "the file"
        network calm
        end_alone
        serve_alone
        cmp "$WORK/copy" "$MNT/$name" || fail "the file after another mount"
        expect_equal "the names" "$(ls "$MNT")" "$name"
        end_alone
        expect_nothing_left
        counts "9 rounds of 8 changes to $(stat -c %s "$WORK/copy") bytes"
        stop_relay "${FAULTS[@]}" failed_late
        ;;
    away | outage)
        # The log has room for all of it: a full one waits for home.
        serve --log-size 512M
        python3 "$SUPPORT/acknowledged.py" save "$MNT" "$NOTES" 2>"$WORK/said" &
        load=$!
        soon saved_more_than 200 || fail "the load does not begin"
        step "the store is away"
        network away
        before=$(saved)
        sleep 20
        during=$(($(saved) - before))
        [ "$during" -gt 100 ] || fail "only $during saves in 20 s without the store"
        if [ "$case" = outage ] && ended "$load"; then cat "$WORK/said"; fail "a program is stopped"; fi
        kill -9 "$load" 2>/dev/null || true
        wait "$load" 2>/dev/null || true
        # It tries all of it before it gives up.
        if timeout 15 "$WEIR" umount "$MNT"; then fail "weir umount without the store"; fi
        is_mounted "$MNT" || fail "the mount is gone"
        if [ "$case" = outage ]; then acknowledged check "$MNT" "$NOTES" || fail "without the store"; fi
        step "it is back"
        network calm
        if [ "$case" = away ]; then
            # The log has what is not home.
            if ! no_bucket; then kill -9 "$(bucket_process)"; fi
            lose_mount
            serve --log-size 512M
            acknowledged check "$MNT" "$NOTES" || fail "after another mount"
        fi
        end_mount
        acknowledged check "$(objects)" "$NOTES" || fail "in the bucket"
        counts "$during saves without the store"
        stop_relay away
        ;;
    credentials | cold)
        serve
        echo cold >"$MNT/cold"
        end_mount
        serve
        ls "$MNT" >/dev/null
        step "they expire"
        network expired
        acknowledged save "$MNT" "$NOTES" --count 200 || fail "a program is stopped"
        if [ "$case" = cold ]; then expect_failure "Input/output error" cat "$MNT/cold"; fi
        expect_failure "nput/output error" timeout 60 "$WEIR" sync "$MNT"
        grep -q "credentials have expired: log in again" "$DAEMON_LOG" || fail "nobody is told why"
        is_mounted "$MNT" || fail "the mount is gone"
        acknowledged check "$MNT" "$NOTES" || fail "without credentials"
        step "they are renewed"
        network calm
        soon weir sync "$MNT" || fail "weir sync"
        acknowledged check "$(objects)" "$NOTES" || fail "in the bucket"
        expect_equal "a file that was not read before" "$(cat "$MNT/cold")" cold
        end_mount
        counts "$(saved) saves without credentials"
        stop_relay expired
        ;;
    ended)
        serve
        acknowledged save "$MNT" "$NOTES" --count 100 || fail "a program is stopped"
        kill -9 "$(bucket_process)"
        soon grep -q "weir-bucket has ended" "$DAEMON_LOG" || fail "nobody is told"
        is_mounted "$MNT" || fail "the mount is gone"
        if timeout 60 "$WEIR" sync "$MNT"; then fail "weir sync says that all is in the bucket"; fi
        if timeout 60 "$WEIR" umount "$MNT"; then fail "weir umount says that all is in the bucket"; fi
        is_mounted "$MNT" || fail "the mount is gone, and not by force"
        if timeout 120 "$WEIR" umount --force "$MNT"; then fail "weir umount --force says that all is in the bucket"; fi
        if is_mounted "$MNT"; then fail "still mounted after --force"; fi
        wait "$WEIR_PID" || true
        serve
        acknowledged check "$MNT" "$NOTES" || fail "after another mount"
        end_mount
        acknowledged check "$(objects)" "$NOTES" || fail "in the bucket"
        expect_nothing_left
        counts "$(saved) saves"
        stop_relay
        ;;
    silent)
        serve_alone
        echo before >"$MNT/file"
        sync "$MNT/file"
        network silent
        begun=$SECONDS
        is_fenced() { weir-bucket stat "$MNT" | grep -q '"lease_lost":true'; }
        soon is_fenced || fail "the lease is not renewed for a minute, and it goes on"
        fenced=$((SECONDS - begun))
        [ "$fenced" -le 32 ] || fail "it went on for $fenced s with a lease of 30 s"
        expect_failure "Input/output error" dd if=/dev/zero of="$MNT/file" bs=10 count=1 conv=notrunc status=none
        network calm
        is_not_fenced() { ! is_fenced; }
        soon is_not_fenced || fail "it does not go on"
        echo after >"$MNT/file"
        sync "$MNT/file"
        expect_equal "the object" "$(cat "$(objects)/file")" after
        end_alone
        counts "changes are refused after $fenced s"
        stop_relay silent
        ;;
    full)
        need_command mkfs.ext4
        fill() { head -c 1G /dev/zero >"$1/filler" 2>/dev/null || true; }
        step "renames in the bucket"
        # What they note has room in the state file before anything is done, or nothing is done. Long names fill it sooner.
        loop_filesystem "$WORK/alone.image" 16M "$WORK/bucket-state" mkfs.ext4 -q
        serve_alone
        name=$(printf 'n%.0s' {1..180})
        for ((i = 0; i < 600; i++)); do echo "old $i" >"$MNT/$name-from-$i"; done
        python3 -c 'import os, sys; os.fsync(os.open(sys.argv[1], os.O_RDONLY))' "$MNT"
        fill "$WORK/bucket-state"
        refused=()
        for ((i = 0; i < 600 && ${#refused[@]} < 10; i++)); do
            mv -T "$MNT/$name-from-$i" "$MNT/$name-to-$i" 2>"$WORK/said" && continue
            grep -q "No space left" "$WORK/said" || fail "a rename: $(cat "$WORK/said")"
            refused+=("$i")
            [ "$(cat "$MNT/$name-from-$i" "$MNT/$name-to-$i" 2>/dev/null)" = "old $i" ] || fail "a rename that failed lost the file"
        done
        [ "${#refused[@]}" -gt 0 ] || fail "no rename found the disk full"
        rm "$WORK/bucket-state/filler"
        for i in "${refused[@]}"; do echo "new $i" >"$MNT/$name-to-$i" && sync "$MNT/$name-to-$i"; done
        kill -9 "$BUCKET_PID"
        wait "$BUCKET_PID" 2>/dev/null || true
        umount -l "$MNT"
        serve_alone
        for i in "${refused[@]}"; do
            expect_equal "a file written after a rename over it failed" "$(cat "$MNT/$name-to-$i")" "new $i"
            expect_equal "a file whose rename failed" "$(cat "$MNT/$name-from-$i")" "old $i"
        done
        rm "$MNT"/*
        end_alone
        umount_soon "$WORK/bucket-state"
        step "a program that saves files"
        loop_filesystem "$WORK/state.image" 96M "$STATE_DIRECTORY" mkfs.ext4 -q
        REDO_LOG=$STATE_DIRECTORY/redo.log
        serve --log-size 32M
        acknowledged save "$MNT" "$NOTES" --count 100
        weir sync "$MNT"
        fill "$STATE_DIRECTORY"
        python3 "$SUPPORT/acknowledged.py" save "$MNT" "$NOTES" 2>"$WORK/said" &
        load=$!
        sleep 8
        kill -9 "$load" 2>/dev/null || true
        wait "$load" 2>/dev/null || true
        grep Error "$WORK/said" | grep -qvE "Errno (5|28)" && fail "another error than ENOSPC: $(cat "$WORK/said")"
        head -c 20000000 /dev/urandom >"$MNT/large" || true
        if ! ended "$(bucket_process)"; then kill -9 "$(bucket_process)"; fi
        lose_mount
        rm "$STATE_DIRECTORY/filler"
        serve --log-size 32M
        acknowledged check "$MNT" "$NOTES" || fail "after kill -9 with a full disk"
        fill "$STATE_DIRECTORY"
        acknowledged save "$MNT" "$NOTES" --count 20 2>"$WORK/said" || cat "$WORK/said"
        rm "$STATE_DIRECTORY/filler"
        acknowledged save "$MNT" "$NOTES" --count 100 || fail "the disk has room again, and a program is stopped"
        end_mount
        acknowledged check "$(objects)" "$NOTES" || fail "in the bucket"
        counts "${#refused[@]} renames refused, $(saved) saves"
        umount_soon "$STATE_DIRECTORY"
        stop_relay
        ;;
esac
stop_store
