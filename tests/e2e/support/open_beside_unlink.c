/* Opens files while they are unlinked, and checks what they read.
 *
 *   open_beside_unlink DIRECTORY COUNT
 *
 * One thread creates a file, writes it, closes it and unlinks it. The other opens and reads it at that moment. An open
 * that succeeds must read what was written. Prints how many opens succeeded; exits with 1 if one read something else.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES 5000
#define FILES 50
#define DELAY_MAX 20000

static pthread_barrier_t barrier;
static char name[4096];
static char found[BYTES + 1];
static ssize_t count;
static unsigned delay;
static int is_done;

static void pause_for(unsigned steps) {
    for (volatile unsigned step = 0; step < steps; step++) {
    }
}

/* Sets `count` to the bytes read, or to -1 if the file could not be opened. */
static void *open_and_read(void *unused) {
    (void)unused;
    for (;;) {
        pthread_barrier_wait(&barrier);
        if (is_done)
            return NULL;
        pause_for(delay);
        int fd = open(name, O_RDONLY);
        if (fd < 0 && errno != ENOENT) {
            perror("open");
            exit(1);
        }
        count = fd < 0 ? -1 : pread(fd, found, sizeof found, 0);
        if (fd >= 0)
            close(fd);
        pthread_barrier_wait(&barrier);
    }
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    char written[BYTES];
    int opened = 0, wrong = 0, rounds = atoi(argv[2]);
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, open_and_read, NULL);
    for (int round = 0; round < rounds; round++) {
        snprintf(name, sizeof name, "%s/file-%d", argv[1], round % FILES);
        memset(written, 'A' + round % 26, BYTES);
        int fd = open(name, O_CREAT | O_TRUNC | O_RDWR, 0644);
        if (fd < 0 || pwrite(fd, written, BYTES, 0) != BYTES) {
            perror(name);
            return 1;
        }
        close(fd);
        delay = rand() % DELAY_MAX;
        pthread_barrier_wait(&barrier);
        pause_for(rand() % DELAY_MAX);
        unlink(name);
        pthread_barrier_wait(&barrier);
        if (count >= 0) {
            opened++;
            wrong += count != BYTES || memcmp(found, written, BYTES) != 0;
        }
    }
    is_done = 1;
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    printf("%d of %d opens succeeded, %d read something else\n", opened, rounds, wrong);
    return wrong != 0;
}
