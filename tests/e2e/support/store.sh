# shellcheck shell=bash
# An S3 server that keeps objects as plain files below OBJECTS, with the bucket "bucket" and the prefix "pre": SOURCE is that.
# It is sourced after lib.sh. ENDPOINT is the server's address; the environment has its credentials.

need_tool versitygw
need_command fusermount3 python3
[ -x "${WEIR_BUCKET:?}" ] || fail "$WEIR_BUCKET is not built: run 'make checked'"
# Weir looks for it beside itself, or on PATH.
PATH=${WEIR_BUCKET%/*}:$PATH
SOURCE=s3://bucket/pre
OBJECTS=$WORK/objects
export AWS_ACCESS_KEY_ID=weir AWS_SECRET_ACCESS_KEY=weir-secret AWS_REGION=us-east-1
export AWS_EC2_METADATA_DISABLED=true NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_CA_BUNDLE

answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# start_store [PORT]: on a free port if none is given.
start_store() {
    local port=${1:-}
    [ -n "$port" ] || port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    # shellcheck disable=SC2034 # used by the tests
    ENDPOINT=http://127.0.0.1:$port
    mkdir -p "$OBJECTS/bucket/pre"
    "$TOOLS/bin/versitygw" --access weir --secret weir-secret --port "127.0.0.1:$port" --quiet \
        posix "$OBJECTS" >"$WORK/store.log" 2>&1 &
    STORE_PID=$!
    soon answers "$port" || { cat "$WORK/store.log"; fail "the store does not answer"; }
}

# no_bucket: the program that serves the bucket has ended.
no_bucket() { ! pgrep -f "weir-bucket mount $SOURCE .*--endpoint=$ENDPOINT" >/dev/null; }

stop_store() {
    kill "$STORE_PID"
    wait "$STORE_PID" 2>/dev/null || true
}
