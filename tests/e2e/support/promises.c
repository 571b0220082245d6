/* What library/weir.h promises. Usage: promises WHAT FILE [...]; prints what went wrong and ends with 1, or nothing. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "weir.h"

#define THREADS 64

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

static int opened(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0644);
	if (fd < 0)
		fail(path);
	return fd;
}

/* A call failed with an error. */
static void expect(const char *what, int result, int error)
{
	if (result == 0)
		errno = 0;
	if (result != (error ? -1 : 0) || (error && errno != error))
		fail(what);
}

static void expect_of_path(const char *path, int flags, int error)
{
	struct weir_promise promise;
	int fd = opened(path, flags);
	expect(path, weir_promise(fd, &promise), error);
	close(fd);
}

/* FILE is on a mount with one order, OUTSIDE is not on a mount of Weir. */
static void errors(const char *file, const char *outside)
{
	struct weir_promise promise, forged;
	int fd = opened(file, O_WRONLY);
	int ends[2];
	if (pipe(ends))
		fail("pipe");
	memset(&forged, 0, sizeof forged);
	expect("before any promise", weir_wait(&forged), EINVAL);
	expect("no descriptor", weir_promise(-1, &promise), EBADF);
	expect_of_path(outside, O_RDONLY, ENOTTY);
	expect_of_path("/", O_RDONLY | O_DIRECTORY, ENOTTY);
	expect_of_path("/proc/self/status", O_RDONLY, ENOTTY);
	expect_of_path("/dev/null", O_RDWR, ENOTTY);
	expect("a pipe", weir_promise(ends[0], &promise), ENOTTY);
	expect_of_path(file, O_PATH, EBADF);
	expect("promise", weir_promise(fd, &promise), 0);
	forged = promise;
	forged.number += 1000;
	expect("of the future", weir_wait(&forged), EINVAL);
	forged = promise;
	forged.program ^= 1;
	expect("of another program", weir_wait(&forged), EINVAL);
	forged = promise;
	forged.mount[0] ^= 1;
	expect("of no mount", weir_wait(&forged), ENODEV);
	expect("wait", weir_wait(&promise), 0);
	expect("wait again", weir_wait(&promise), 0);
	/* A commit fails, and the next one does not. */
	struct rlimit limit, none;
	getrlimit(RLIMIT_NOFILE, &limit);
	none = limit;
	none.rlim_cur = 0;
	expect("promise", weir_promise(fd, &promise), 0);
	setrlimit(RLIMIT_NOFILE, &none);
	expect("without descriptors", weir_wait(&promise), EMFILE);
	setrlimit(RLIMIT_NOFILE, &limit);
	struct weir_promise later;
	expect("promise", weir_promise(fd, &later), 0);
	expect("the next commit", weir_wait(&later), 0);
	expect("the failed promise", weir_wait(&promise), EMFILE);
	char *directory = strdup(file);
	*strrchr(directory, '/') = 0;
	expect_of_path(directory, O_RDONLY | O_DIRECTORY, 0);
}

static pthread_barrier_t all_promised;

static void *promise_and_wait(void *file)
{
	struct weir_promise promise;
	int fd = opened(file, O_RDWR | O_APPEND);
	if (write(fd, "a line\n", 7) != 7)
		fail("write");
	expect("promise", weir_promise(fd, &promise), 0);
	pthread_barrier_wait(&all_promised);
	expect("wait", weir_wait(&promise), 0);
	close(fd);
	return NULL;
}

/* Many threads promise; then all wait. */
static void threads(char *file)
{
	pthread_t of[THREADS];
	pthread_barrier_init(&all_promised, NULL, THREADS);
	for (int at = 0; at < THREADS; at++)
		if (pthread_create(&of[at], NULL, promise_and_wait, file))
			fail("pthread_create");
	for (int at = 0; at < THREADS; at++)
		pthread_join(of[at], NULL);
}

static void expect_child(const char *what)
{
	int status;
	if (wait(&status) < 0 || status)
		fail(what);
}

/* Promises of a parent and of a child are good for both, also while other threads commit. */
static void forks(const char *file)
{
	struct weir_promise first, of_child;
	int ends[2], fd = opened(file, O_RDWR);
	if (pipe(ends))
		fail("pipe");
	expect("promise", weir_promise(fd, &first), 0);
	if (!fork()) {
		expect("the parent's", weir_wait(&first), 0);
		expect("the child's", weir_promise(fd, &of_child), 0);
		_exit(write(ends[1], &of_child, sizeof of_child) != sizeof of_child);
	}
	if (read(ends[0], &of_child, sizeof of_child) != sizeof of_child)
		fail("read");
	expect_child("the child");
	expect("the child's in the parent", weir_wait(&of_child), 0);
	expect("the parent's", weir_wait(&first), 0);
}

static volatile int is_first, is_in_getrandom;

/* As the library calls it: slow if a thread's first promise needs it. */
ssize_t getrandom(void *buffer, size_t bytes, unsigned flags)
{
	is_in_getrandom = 1;
	if (is_first)
		usleep(300000);
	return syscall(SYS_getrandom, buffer, bytes, flags);
}

static void *promise_first(void *file)
{
	struct weir_promise promise;
	expect("the first", weir_promise(opened(file, O_RDWR), &promise) || weir_wait(&promise), 0);
	return NULL;
}

/* A child that begins while another thread takes its program's first promise. */
static void fork_beside_the_first(char *file)
{
	pthread_t thread;
	int fd = opened(file, O_RDWR);
	is_first = 1;
	if (pthread_create(&thread, NULL, promise_first, file))
		fail("pthread_create");
	while (!is_in_getrandom)
		usleep(1000);
	if (!fork()) {
		struct weir_promise promise;
		alarm(20);
		expect("a child", weir_promise(fd, &promise) || weir_wait(&promise), 0);
		_exit(0);
	}
	pthread_join(thread, NULL);
	expect_child("a child beside the first promise");
}

static void *commit_for_ever(void *file)
{
	struct weir_promise promise;
	int fd = opened(file, O_RDWR);
	while (fd >= 0)
		expect("another thread", weir_promise(fd, &promise) || weir_wait(&promise), 0);
	return NULL;
}

static void forks_beside_commits(char *file)
{
	pthread_t thread;
	int fd = opened(file, O_RDWR);
	if (pthread_create(&thread, NULL, commit_for_ever, file))
		fail("pthread_create");
	for (int round = 0; round < 200; round++) {
		if (!fork()) {
			struct weir_promise promise;
			alarm(20);
			expect("a child", weir_promise(fd, &promise) || weir_wait(&promise), 0);
			_exit(0);
		}
		expect_child("a child");
	}
}

/* Says `next`, and waits for a line: the mount is changed meanwhile. */
static void next(void)
{
	char line[16];
	puts("next");
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		fail("stdin");
}

/* The daemon dies under a promise, and FILE is served by another one. */
static void daemons(const char *file)
{
	struct weir_promise early, late, next_mount;
	int fd = opened(file, O_RDWR);
	expect("promise", weir_promise(fd, &early), 0);
	expect("promise", weir_promise(fd, &late), 0);
	next();
	if (weir_wait(&early) == 0 || (errno != ENOTCONN && errno != ECONNABORTED))
		fail("the daemon is dead");
	int error = errno;
	if (weir_promise(fd, &next_mount) == 0 || (errno != ENOTCONN && errno != ECONNABORTED))
		fail("a promise of a dead daemon");
	close(fd);
	next();
	expect("it failed", weir_wait(&early), error);
	expect("it failed for all", weir_wait(&late), error);
	fd = opened(file, O_RDWR);
	expect("of the next mount", weir_promise(fd, &next_mount), 0);
	expect("of the next mount", weir_wait(&next_mount), 0);
	expect("of the next mount", weir_promise(fd, &next_mount), 0);
	close(fd);
	next();
	/* It was unmounted, and a third one is there. */
	expect("of a mount that ended", weir_wait(&next_mount), ENODEV);
	expect("it failed", weir_wait(&early), error);
	fd = opened(file, O_RDWR);
	expect("of the third mount", weir_promise(fd, &next_mount), 0);
	close(fd);
	next();
	/* A fourth one, without one order, has the place and perhaps the device's number. */
	expect("of another mount that ended", weir_wait(&next_mount), ENODEV);
}

/* A mapping of FILE is changed, and what was changed is durable. */
static void mapping(const char *file)
{
	struct weir_promise promise;
	int fd = opened(file, O_RDWR);
	char *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (mapped == MAP_FAILED)
		fail("mmap");
	memcpy(mapped, "mapped", 6);
	expect("promise", weir_promise(fd, &promise), 0);
	expect("wait", weir_wait(&promise), 0);
	next();
	_exit(0);
}

/* The log cannot be written. */
static void failing(const char *file)
{
	static char data[1 << 20];
	struct weir_promise promise;
	int fd = opened(file, O_RDWR);
	if (write(fd, data, sizeof data) != sizeof data)
		fail("write");
	expect("promise", weir_promise(fd, &promise), 0);
	expect("the commit", weir_wait(&promise), EIO);
	expect("it failed", weir_wait(&promise), EIO);
	expect("another promise", weir_promise(fd, &promise), 0);
	expect("another commit", weir_wait(&promise), EIO);
}

int main(int count, char **arguments)
{
	const char *what = arguments[1];
	if (!strcmp(what, "errors"))
		errors(arguments[2], arguments[3]);
	else if (!strcmp(what, "unordered"))
		expect_of_path(arguments[2], O_RDONLY, EOPNOTSUPP);
	else if (!strcmp(what, "threads"))
		threads(arguments[2]);
	else if (!strcmp(what, "forks"))
		forks(arguments[2]);
	else if (!strcmp(what, "forks-beside-commits"))
		forks_beside_commits(arguments[2]);
	else if (!strcmp(what, "fork-beside-the-first"))
		fork_beside_the_first(arguments[2]);
	else if (!strcmp(what, "daemons"))
		daemons(arguments[2]);
	else if (!strcmp(what, "mapping"))
		mapping(arguments[2]);
	else if (!strcmp(what, "failing"))
		failing(arguments[2]);
	else
		return count ? 2 : 1;
	return 0;
}
