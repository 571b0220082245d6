/* Compresses (c) or decompresses (d) standard input to standard output: something for compile.sh to link. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "zstd.h"

int main(int argc, char **argv) {
    size_t size = 0, room = 1 << 20;
    char *in = malloc(room);
    if (argc != 2 || !in) return 2;
    for (size_t got; (got = fread(in + size, 1, room - size, stdin)) > 0;) {
        size += got;
        if (size == room && !(in = realloc(in, room *= 2))) return 2;
    }
    int packing = strcmp(argv[1], "c") == 0;
    size_t out_room = packing ? ZSTD_compressBound(size) : (size_t)ZSTD_getFrameContentSize(in, size);
    char *out = malloc(out_room + 1);
    if (!out) return 2;
    size_t done = packing ? ZSTD_compress(out, out_room, in, size, 5) : ZSTD_decompress(out, out_room, in, size);
    if (ZSTD_isError(done)) return 1;
    return fwrite(out, 1, done, stdout) == done && fflush(stdout) == 0 ? 0 : 1;
}
