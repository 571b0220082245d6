/* The library of weir.h.
 *
 * A commit is an fsync of the directory at which the mount is mounted, which with `--order all` makes everything durable. The first
 * thread that waits commits, and the others wait for it.
 *
 * Owns: the number of commits begun, in memory shared with the processes that come from this one by fork; the mounts that promises were
 * taken of, which are never forgotten. Keeps no descriptor: so it keeps no mount from being unmounted, and a program may close all descriptors.
 *
 * Invariants:
 * - a promise's number is the number of commits that had begun when it was taken. So a commit covers all promises with smaller numbers
 *   than its own, and no others;
 * - before an fsync the descriptor is asked for the mount's number, which no other mount has: another mount at the same place, or another
 *   daemon, answers no promise. */
#define _GNU_SOURCE
#include "weir.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* As crates/lane/src/wire.rs has them: ORDER, and what its answer begins with. */
#define ORDER _IOC(_IOC_READ | _IOC_WRITE, 'W', 4, 64)
#define MARK "weirord\x01"

struct mount {
	struct mount *next;
	unsigned char number[16];
	uint32_t device[2];
	/* Where it was found last. */
	char *path;
	/* Promises with smaller numbers are durable; others with smaller numbers than `failed` have failed. */
	uint64_t durable, failed;
	/* Why. */
	int error;
	bool is_committing;
};

/* Shared with forked processes. */
struct family {
	uint64_t program;
	uint64_t commits_begun;
};

/* Guards all that follows, and the fields of mounts. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* A commit has ended. */
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static struct mount *mounts;
static struct family *family;
/* Why forks cannot be prepared for; an errno. */
static int unprepared;

static void before_fork(void)
{
	pthread_mutex_lock(&mutex);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&mutex);
}

/* The threads that waited and committed are not there. */
static void after_fork_in_child(void)
{
	for (struct mount *mount = mounts; mount; mount = mount->next)
		mount->is_committing = false;
	pthread_cond_init(&ended, NULL);
	pthread_mutex_unlock(&mutex);
}

/* Before the program has threads: a fork beside the first promise would find the mutex locked, and nobody to unlock it. */
__attribute__((constructor)) static void prepare_for_forks(void)
{
	unprepared = pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* Makes the family unless it is there. With the mutex. Returns an errno. */
static int begin(void)
{
	if (family || unprepared)
		return unprepared;
	struct family *made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (made == MAP_FAILED)
		return errno;
	if (getrandom(&made->program, sizeof made->program, 0) != sizeof made->program) {
		int error = errno;
		munmap(made, sizeof *made);
		return error;
	}
	family = made;
	return 0;
}

/* Asks for the number of the mount that a file or directory is on. Returns an errno. */
static int mount_number(int fd, unsigned char number[16])
{
	unsigned char message[64] = {0};
	if (ioctl(fd, ORDER, message))
		return errno == ENOSYS ? ENOTTY : errno;
	if (memcmp(message, MARK, 8))
		return ENOTTY;
	memcpy(number, message + 8, 16);
	return 0;
}

/* Opens a directory if it is of a mount; otherwise returns -1 with errno. */
static int open_if_of(const char *path, const unsigned char wanted[16])
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	unsigned char number[16];
	int error = mount_number(fd, number);
	/* Another file system has its place, or the number of its device. */
	if (error == ENOTTY || error == EOPNOTSUPP || (!error && memcmp(number, wanted, 16)))
		error = ENODEV;
	if (!error)
		return fd;
	close(fd);
	errno = error;
	return -1;
}

/* An octal one. */
static bool is_digit(char letter)
{
	return letter >= '0' && letter <= '7';
}

/* Undoes the escapes of proc(5): a backslash and three octal digits, and nothing else. */
static void unescape(char *path)
{
	char *to = path;
	for (const char *from = path; *from; to++) {
		if (from[0] == '\\' && is_digit(from[1]) && is_digit(from[2]) && is_digit(from[3])) {
			*to = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
			from += 4;
		} else {
			*to = *from++;
		}
	}
	*to = 0;
}

/* Looks for a mount in the mount table, and opens it; otherwise returns -1 with errno. */
static int search(const struct mount *mount, char **path)
{
	FILE *table = fopen("/proc/self/mountinfo", "re");
	if (!table)
		return -1;
	int fd = -1, error = ENODEV;
	char *line = NULL;
	size_t size = 0;
	while (fd < 0 && getline(&line, &size, table) >= 0) {
		unsigned major, minor;
		char *point = NULL;
		if (sscanf(line, "%*u %*u %u:%u %*s %ms", &major, &minor, &point) == 3 &&
		    major == mount->device[0] && minor == mount->device[1]) {
			unescape(point);
			fd = open_if_of(point, mount->number);
			if (fd < 0) {
				error = errno;
			} else {
				*path = point;
				point = NULL;
			}
		}
		free(point);
	}
	free(line);
	fclose(table);
	errno = error;
	return fd;
}

/* Opens the directory at which a mount is mounted; otherwise returns -1 with errno. Only one thread does so for a mount at a time. */
static int open_mount(struct mount *mount)
{
	int fd = mount->path ? open_if_of(mount->path, mount->number) : -1;
	if (fd >= 0)
		return fd;
	char *path = NULL;
	fd = search(mount, &path);
	if (fd >= 0) {
		/* A forked process must not find half of this. */
		pthread_mutex_lock(&mutex);
		char *former = mount->path;
		mount->path = path;
		pthread_mutex_unlock(&mutex);
		free(former);
	}
	return fd;
}

/* With the mutex. */
static struct mount *find_known(const unsigned char number[16])
{
	struct mount *mount = mounts;
	while (mount && memcmp(mount->number, number, 16))
		mount = mount->next;
	return mount;
}

/* Sets `found` to a mount, which is looked for if this process does not know it. Returns an errno. */
static int find_mount(const unsigned char number[16], const uint32_t device[2], struct mount **found)
{
	pthread_mutex_lock(&mutex);
	*found = find_known(number);
	pthread_mutex_unlock(&mutex);
	if (*found)
		return 0;
	struct mount *made = calloc(1, sizeof *made);
	if (!made)
		return ENOMEM;
	memcpy(made->number, number, 16);
	memcpy(made->device, device, sizeof made->device);
	int fd = open_mount(made);
	if (fd < 0) {
		int error = errno;
		free(made);
		return error;
	}
	close(fd);
	pthread_mutex_lock(&mutex);
	*found = find_known(number);
	if (!*found) {
		made->next = mounts;
		*found = mounts = made;
		made = NULL;
	}
	pthread_mutex_unlock(&mutex);
	/* Another thread was first. */
	if (made)
		free(made->path);
	free(made);
	return 0;
}

static int sync_mount(struct mount *mount)
{
	int fd = open_mount(mount);
	if (fd < 0)
		return errno;
	/* The first fsync may report names that SOURCE refused; the log has these. The second succeeds only if everything is durable,
	 * because nothing becomes clean when an error is reported. */
	int error = fsync(fd) && fsync(fd) ? errno : 0;
	close(fd);
	return error;
}

/* With the mutex, which is released in the meantime. */
static void commit(struct mount *mount)
{
	mount->is_committing = true;
	uint64_t number = __atomic_add_fetch(&family->commits_begun, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&mutex);
	int error = sync_mount(mount);
	pthread_mutex_lock(&mutex);
	mount->is_committing = false;
	if (error) {
		mount->failed = number;
		mount->error = error;
	} else {
		mount->durable = number;
	}
	pthread_cond_broadcast(&ended);
}

/* Takes a promise. Returns an errno. */
static int take(int fd, struct weir_promise *promise)
{
	struct statx status;
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &status))
		return errno;
	/* Other drivers may know the number of the ioctl for something else. */
	if (!S_ISREG(status.stx_mode) && !S_ISDIR(status.stx_mode))
		return ENOTTY;
	struct weir_promise taken = {.device = {status.stx_dev_major, status.stx_dev_minor}};
	int error = mount_number(fd, taken.mount);
	if (error)
		return error;
	const unsigned flags = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
	if (S_ISREG(status.stx_mode) && sync_file_range(fd, 0, 0, flags))
		return errno;
	struct mount *mount;
	error = find_mount(taken.mount, taken.device, &mount);
	if (error)
		return error;
	pthread_mutex_lock(&mutex);
	error = begin();
	pthread_mutex_unlock(&mutex);
	if (error)
		return error;
	taken.program = family->program;
	taken.number = __atomic_load_n(&family->commits_begun, __ATOMIC_SEQ_CST);
	*promise = taken;
	return 0;
}

/* Waits for a promise. Returns an errno. */
static int wait_for(const struct weir_promise *promise)
{
	struct mount *mount;
	int error = find_mount(promise->mount, promise->device, &mount);
	if (error)
		return error;
	pthread_mutex_lock(&mutex);
	while (promise->number >= mount->durable && promise->number >= mount->failed) {
		if (mount->is_committing)
			pthread_cond_wait(&ended, &mutex);
		else
			commit(mount);
	}
	error = promise->number < mount->durable ? 0 : mount->error;
	pthread_mutex_unlock(&mutex);
	return error;
}

/* Whether it was taken in this process or its family. */
static bool is_ours(const struct weir_promise *promise)
{
	pthread_mutex_lock(&mutex);
	bool is_of_family = family && family->program == promise->program;
	pthread_mutex_unlock(&mutex);
	return is_of_family && promise->number <= __atomic_load_n(&family->commits_begun, __ATOMIC_SEQ_CST);
}

/* What a call returns. */
static int answer(int error)
{
	if (!error)
		return 0;
	errno = error;
	return -1;
}

int weir_promise(int fd, struct weir_promise *promise)
{
	int state;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	int error = take(fd, promise);
	pthread_setcancelstate(state, NULL);
	return answer(error);
}

int weir_wait(struct weir_promise *promise)
{
	if (!is_ours(promise))
		return answer(EINVAL);
	int error = __atomic_load_n(&promise->error, __ATOMIC_RELAXED);
	if (!error) {
		int state;
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
		error = wait_for(promise);
		pthread_setcancelstate(state, NULL);
		if (error)
			__atomic_store_n(&promise->error, error, __ATOMIC_RELAXED);
	}
	return answer(error);
}
