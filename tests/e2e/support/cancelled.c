/* cancelled DIRECTORY: threads that repeat a call, which is a cancellation point (pthreads(7)), are cancelled, each within ten seconds. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

static int file;

static void *syncs(void *unused)
{
	for (;;)
		fsync(file);
	return unused;
}

static void *writes(void *unused)
{
	for (;;)
		pwrite(file, "x", 1, 0);
	return unused;
}

static void *writes_pieces(void *unused)
{
	struct iovec piece = {"x", 1};
	for (;;)
		pwritev(file, &piece, 1, 0);
	return unused;
}

static void *opens_and_closes(void *unused)
{
	for (;;)
		close(open("opened", O_RDWR | O_CREAT, 0644));
	return unused;
}

static void *closes(void *unused)
{
	for (;;)
		close(1000);
	return unused;
}

static void cancel(const char *name, void *(*act)(void *))
{
	pthread_t thread;
	void *result;
	alarm(10);
	if (pthread_create(&thread, NULL, act, NULL))
		exit(1);
	usleep(20000);
	pthread_cancel(thread);
	pthread_join(thread, &result);
	if (result != PTHREAD_CANCELED)
		exit(1);
	fprintf(stderr, "%s\n", name);
}

int main(int count, char **words)
{
	if (count != 2 || chdir(words[1]))
		return 2;
	file = open("file", O_RDWR | O_CREAT, 0644);
	/* With a promise that is not durable, and, after the output, without. */
	for (int turn = 0; turn < 2; turn++) {
		pwrite(file, "x", 1, 0);
		fsync(file);
		cancel("write", writes);
		cancel("writev", writes_pieces);
		cancel("close", closes);
		cancel("open", opens_and_closes);
		cancel("fsync", syncs);
	}
	return 0;
}
