/*
 * Writes a file by the lane, at last from a thread of its own, and prints how often that thread's first write allocated. Before
 * that the program takes the keys of thread-specific data that cost no allocation (pthread_key_create(3)).
 *
 *     first_post FILE
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

static __thread int is_watching __attribute__((tls_model("initial-exec")));
static int allocations;

void *malloc(size_t bytes)
{
	allocations += is_watching;
	return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
	allocations += is_watching;
	return __libc_calloc(count, bytes);
}

void *realloc(void *at, size_t bytes)
{
	allocations += is_watching;
	return __libc_realloc(at, bytes);
}

static int fd;

static void *first_write(void *unused)
{
	(void)unused;
	is_watching = 1;
	ssize_t written = pwrite(fd, "thread", 6, 4096);
	is_watching = 0;
	return written == 6 ? NULL : "wrong";
}

int main(int argc, char **argv)
{
	pthread_t thread;
	pthread_key_t key;
	void *result = NULL;
	char text[32];
	if (argc != 2 || (fd = open(argv[1], O_RDWR)) < 0)
		return 1;
	for (int number = 0; number < 40; number++)
		pthread_key_create(&key, NULL);
	for (int number = 0; number < 20; number++)
		if (pwrite(fd, "main", 4, 0) != 4)
			return 1;
	if (pthread_create(&thread, NULL, first_write, NULL) != 0 || pthread_join(thread, &result) != 0 || result != NULL)
		return 1;
	if (lseek(fd, 0, SEEK_END) != 65536 || fsync(fd) != 0 || close(dup(fd)) != 0)
		return 1;
	int len = snprintf(text, sizeof text, "%d\n", allocations);
	return write(1, text, len) != len;
}
