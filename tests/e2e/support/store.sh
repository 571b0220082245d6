# shellcheck shell=bash
# An S3 server that keeps objects as plain files below OBJECTS, with the bucket "bucket" and the prefix "pre": SOURCE is that.
# It is sourced after lib.sh. ENDPOINT is the server's address; the environment has its credentials.

# WEIR_STORE=minio: MinIO, which syncs what it is given, for tests that look at objects by `objects` alone. It is the one on PATH.
STORE=${WEIR_STORE:-versitygw}
case $STORE in
    versitygw) need_tool versitygw ;;
    minio)
        need_command rclone
        command -v minio >/dev/null || skip "minio is not on PATH: see https://github.com/minio/minio"
        ;;
    *) fail "there is no store $STORE" ;;
esac
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
    STORE_PORT=$port
    mkdir -p "$OBJECTS/bucket"
    case $STORE in
        versitygw)
            mkdir -p "$OBJECTS/bucket/pre"
            "$TOOLS/bin/versitygw" --access weir --secret weir-secret --port "127.0.0.1:$port" --quiet \
                posix "$OBJECTS" >"$WORK/store.log" 2>&1 &
            ;;
        minio)
            MINIO_ROOT_USER=weir MINIO_ROOT_PASSWORD=weir-secret minio server --quiet --address "127.0.0.1:$port" \
                --console-address 127.0.0.1:0 "$OBJECTS" >"$WORK/store.log" 2>&1 &
            ;;
    esac
    STORE_PID=$!
    soon answers "$port" || { cat "$WORK/store.log"; fail "the store does not answer"; }
}

# client WORD...: rclone with the store as ":s3:", without the relay of a test.
client() {
    rclone --config /dev/null "$@" --s3-provider Minio --s3-access-key-id weir --s3-secret-access-key weir-secret \
        --s3-endpoint "http://127.0.0.1:$STORE_PORT" --s3-region us-east-1
}

# objects prints a directory that has the objects as plain files.
objects() {
    case $STORE in
        versitygw) echo "$OBJECTS/bucket/pre" ;;
        minio)
            rm -rf "$WORK/plain"
            client copy :s3:bucket/pre "$WORK/plain" || fail "rclone cannot read the bucket"
            echo "$WORK/plain"
            ;;
    esac
}

# left_in_store prints the temporary objects and multipart uploads that are there.
left_in_store() {
    case $STORE in
        # It has the parts of uploads in .sgwtmp of the bucket.
        versitygw)
            find "$OBJECTS/bucket/pre/.weir-tmp" "$OBJECTS/bucket/.sgwtmp/multipart" -type f 2>/dev/null
            find "$OBJECTS/bucket/.sgwtmp/multipart" -mindepth 2 -maxdepth 2 2>/dev/null
            ;;
        minio)
            client lsf --recursive --files-only :s3:bucket/pre/.weir-tmp 2>/dev/null
            client backend list-multipart-uploads :s3:bucket | grep '"Key"'
            ;;
    esac
    true
}

# no_bucket: the program that serves the bucket has ended.
no_bucket() { ! pgrep -f "weir-bucket mount $SOURCE .*--endpoint=$ENDPOINT" >/dev/null; }

stop_store() {
    kill "$STORE_PID"
    wait "$STORE_PID" 2>/dev/null || true
}
