/* stale aio|uring|deep FILE SECONDS: writes pages of FILE asynchronously by O_DIRECT, while threads read them through the
 * page cache, with pauses. After each write's completion a buffered read must show it. Prints the counts; fails if a read
 * was stale. 'deep' has 256 writes under way at once by AIO: a read may be stale for a moment then, and it fails if one stays so for
 * a second. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 16, DEPTH = 256, READERS = 2, SKIPPED = 77 };

static int pages = PAGES;

static int buffered, direct;
static atomic_int stop;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void *reader(void *unused) {
    static _Thread_local char page[PAGE];
    unsigned at = (uintptr_t)pthread_self() >> 12;
    for (unsigned nth = 0; !stop; nth++) {
        at = at * 1103515245 + 12345;
        if (pread(buffered, page, 64, (at >> 8) % pages * (off_t)PAGE) != 64) die("pread");
        /* Long enough for the writer to find the file without readers. */
        if (nth % 20000 == 0) usleep(200000);
    }
    return unused;
}

static aio_context_t context;

static int ring;
static unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
static struct io_uring_sqe *entries;
static struct io_uring_cqe *completions;

static void set_up_ring(void) {
    struct io_uring_params params = {0};
    ring = (int)syscall(SYS_io_uring_setup, 4, &params);
    if (ring < 0) {
        perror("io_uring_setup");
        exit(SKIPPED);
    }
    size_t bytes = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    char *sq = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    bytes = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    char *cq = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    bytes = params.sq_entries * sizeof(struct io_uring_sqe);
    entries = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    if (sq == MAP_FAILED || cq == MAP_FAILED || (void *)entries == MAP_FAILED) die("mmap of the ring");
    sq_tail = (unsigned *)(sq + params.sq_off.tail);
    sq_mask = (unsigned *)(sq + params.sq_off.ring_mask);
    sq_array = (unsigned *)(sq + params.sq_off.array);
    cq_head = (unsigned *)(cq + params.cq_off.head);
    cq_tail = (unsigned *)(cq + params.cq_off.tail);
    cq_mask = (unsigned *)(cq + params.cq_off.ring_mask);
    completions = (struct io_uring_cqe *)(cq + params.cq_off.cqes);
}

static long write_by_ring(void *data, off_t offset) {
    unsigned tail = *sq_tail, at = tail & *sq_mask;
    memset(&entries[at], 0, sizeof entries[at]);
    entries[at].opcode = IORING_OP_WRITE;
    entries[at].fd = direct;
    entries[at].addr = (uintptr_t)data;
    entries[at].len = PAGE;
    entries[at].off = offset;
    sq_array[at] = at;
    __atomic_store_n(sq_tail, tail + 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) != 1) die("io_uring_enter");
    unsigned head = *cq_head;
    if (head == __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE)) die("no completion");
    long result = completions[head & *cq_mask].res;
    __atomic_store_n(cq_head, head + 1, __ATOMIC_RELEASE);
    return result;
}

static long write_by_aio(void *data, off_t offset) {
    struct iocb block = {0}, *blocks = &block;
    struct io_event event;
    block.aio_lio_opcode = IOCB_CMD_PWRITE;
    block.aio_fildes = direct;
    block.aio_buf = (uintptr_t)data;
    block.aio_nbytes = PAGE;
    block.aio_offset = offset;
    if (syscall(SYS_io_submit, context, 1, &blocks) != 1) die("io_submit");
    if (syscall(SYS_io_getevents, context, 1, 1, &event, 0) != 1) die("io_getevents");
    return event.res;
}

/* Writes all pages at once, and looks at each after all completions. */
static long write_deep(char *data, char value) {
    static struct iocb blocks[DEPTH], *each[DEPTH];
    static struct io_event events[DEPTH];
    char seen[64];
    long kept = 0;
    memset(data, value, PAGE);
    for (int at = 0; at < DEPTH; at++) {
        blocks[at] = (struct iocb){.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = direct, .aio_buf = (uintptr_t)data,
                                   .aio_nbytes = PAGE, .aio_offset = at * (off_t)PAGE};
        each[at] = &blocks[at];
    }
    for (int sent = 0; sent < DEPTH;) {
        long more = syscall(SYS_io_submit, context, DEPTH - sent, each + sent);
        if (more < 1) die("io_submit");
        sent += (int)more;
    }
    if (syscall(SYS_io_getevents, context, DEPTH, DEPTH, events, 0) != DEPTH) die("io_getevents");
    usleep(1000);
    for (int at = 0; at < DEPTH; at++) {
        if (events[at].res != PAGE) die("a write");
        int is_stale = 1;
        for (int waited = 0; is_stale && waited < 1000; waited++) {
            if (waited) usleep(1000);
            if (pread(buffered, seen, 64, at * (off_t)PAGE) != 64) die("pread");
            is_stale = memcmp(seen, data, 64) != 0;
        }
        kept += is_stale;
    }
    return kept;
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    int is_deep = !strcmp(arguments[1], "deep");
    if (is_deep) pages = DEPTH;
    int by_ring = !strcmp(arguments[1], "uring");
    char *page = aligned_alloc(PAGE, PAGE), seen[64];
    direct = open(arguments[2], O_RDWR | O_CREAT | O_DIRECT, 0600);
    buffered = open(arguments[2], O_RDONLY);
    if (!page || direct < 0 || buffered < 0) die(arguments[2]);
    memset(page, 0, PAGE);
    for (int at = 0; at < pages; at++)
        if (pwrite(direct, page, PAGE, at * (off_t)PAGE) != PAGE) die("pwrite");
    if (by_ring) set_up_ring();
    else if (syscall(SYS_io_setup, is_deep ? DEPTH : 4, &context)) die("io_setup");
    pthread_t threads[READERS];
    for (int at = 0; at < READERS; at++)
        if (pthread_create(&threads[at], 0, reader, 0)) die("pthread_create");
    long writes = 0, stale = 0, kept = 0;
    time_t until = time(0) + atoi(arguments[3]);
    while (time(0) < until) {
        if (is_deep) {
            kept += write_deep(page, (char)(writes / DEPTH + 1));
            writes += DEPTH;
            continue;
        }
        off_t offset = writes % PAGES * (off_t)PAGE;
        memset(page, (char)++writes, PAGE);
        long written = by_ring ? write_by_ring(page, offset) : write_by_aio(page, offset);
        if (written != PAGE) {
            fprintf(stderr, "a write ended with %ld\n", written);
            return 1;
        }
        if (pread(buffered, seen, 64, offset) != 64) die("pread");
        if (memcmp(seen, page, 64)) {
            stale++;
            usleep(1000);
            if (pread(buffered, seen, 64, offset) != 64) die("pread");
            kept += memcmp(seen, page, 64) != 0;
        }
    }
    stop = 1;
    for (int at = 0; at < READERS; at++) pthread_join(threads[at], 0);
    printf("%ld writes by %s, %ld stale reads, %ld stale for longer\n", writes, arguments[1], stale, kept);
    return stale + kept != 0;
}
