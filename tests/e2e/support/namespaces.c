/*
 * Threads of a process hold all rings of its lane; a child in a PID namespace of its own, where their numbers mean nothing,
 * writes the same file beside them.
 *
 *     namespaces FILE [look]
 *
 * FILE has 200 pages: the parent writes the first half, the child the second. With `look` their bytes are checked.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RINGS = 64, PAGE = 4096, PAGES = 100, WRITES = 2000 };

static int fd;
static pthread_barrier_t all_hold, may_end;

static void check(int right, const char *what)
{
	if (!right) {
		perror(what);
		exit(1);
	}
}

/* Whose page, and its number in it, all over it. */
static void fill(char *page, char whose, int number)
{
	for (int at = 0; at < PAGE; at += 8)
		sprintf(page + at, "%c%06d", whose, number), page[at + 7] = '.';
}

static void write_page(char whose, int number)
{
	char page[PAGE + 8];
	int first = whose == 'c' ? PAGES : 0;
	fill(page, whose, number % PAGES);
	off_t at = (off_t)(first + number % PAGES) * PAGE;
	check(pwrite(fd, page, PAGE, at) == PAGE, "pwrite");
}

static void *hold(void *number)
{
	write_page('p', (int)(long)number);
	pthread_barrier_wait(&all_hold);
	pthread_barrier_wait(&may_end);
	return NULL;
}

static int look(void)
{
	char wanted[PAGE + 8], page[PAGE];
	for (int number = 0; number < 2 * PAGES; number++) {
		fill(wanted, number < PAGES ? 'p' : 'c', number % PAGES);
		check(pread(fd, page, PAGE, (off_t)number * PAGE) == PAGE, "pread");
		if (memcmp(page, wanted, PAGE) != 0) {
			fprintf(stderr, "page %d has other bytes: %.16s\n", number, page);
			return 1;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t threads[RINGS];
	int status;
	fd = open(argv[1], O_RDWR);
	check(fd >= 0, argv[1]);
	if (argc > 2)
		return look();
	/* The main thread has the first ring. */
	for (int number = 0; number < 50; number++)
		write_page('p', number);
	pthread_barrier_init(&all_hold, NULL, RINGS);
	pthread_barrier_init(&may_end, NULL, RINGS);
	for (long number = 1; number < RINGS; number++)
		check(pthread_create(&threads[number], NULL, hold, (void *)number) == 0, "pthread_create");
	pthread_barrier_wait(&all_hold);
	long child = syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
	check(child >= 0, "clone");
	for (int number = 0; number < WRITES; number++)
		write_page(child == 0 ? 'c' : 'p', number);
	if (child == 0)
		_exit(syscall(SYS_getpid) != 1);
	check(waitpid(child, &status, 0) == child && status == 0, "the child");
	pthread_barrier_wait(&may_end);
	for (int number = 1; number < RINGS; number++)
		pthread_join(threads[number], NULL);
	return 0;
}
