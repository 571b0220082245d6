/* Calls that the library of `weir run` does, or must see: says what each does, to be compared between a plain
 * directory and a mount. Usage: calls DIRECTORY */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static char buffer[1 << 16];

#define SAY(...) do { printf(__VA_ARGS__); putchar('\n'); fflush(stdout); } while (0)
#define CALL(call) do { errno = 0; long result = (long)(call); SAY("%d: %s = %ld, %s", __LINE__, #call, result, strerror(result < 0 ? errno : 0)); } while (0)

static int fresh(const char *name, int flags)
{
	int fd = open(name, O_CREAT | O_TRUNC | flags, 0600);
	if (fd < 0) { perror(name); exit(1); }
	return fd;
}

/* Uses a description often enough to be put into the lane. */
static void warm(int fd)
{
	for (int i = 0; i < 24; i++) {
		char line[32];
		int len = sprintf(line, "line %d\n", i);
		if (write(fd, line, len) != len) SAY("cannot write");
	}
}

static long size_of(int fd)
{
	struct stat stat;
	fstat(fd, &stat);
	return stat.st_size;
}

static unsigned sum_of(int fd)
{
	unsigned sum = 0;
	off_t at = 0;
	for (ssize_t len; (len = pread(fd, buffer, sizeof buffer, at)) > 0; at += len)
		for (ssize_t i = 0; i < len; i++) sum = sum * 31 + (unsigned char)buffer[i];
	return sum;
}

static int ended(pid_t child)
{
	int status;
	waitpid(child, &status, 0);
	return status;
}

static void positions(void)
{
	SAY("-- positions");
	int fd = fresh("positions", O_RDWR);
	warm(fd);
	CALL(lseek(fd, 0, SEEK_CUR));
	CALL(lseek(fd, 0, SEEK_END));
	CALL(size_of(fd));
	int same = dup(fd);
	CALL(lseek(same, 10, SEEK_SET));
	CALL(read(fd, buffer, 20));
	CALL(lseek(same, 0, SEEK_CUR));
	CALL(lseek(fd, -5, SEEK_END));
	CALL(read(fd, buffer, 100));
	CALL(read(fd, buffer, 100));
	CALL(lseek(fd, 5000, SEEK_SET));
	CALL(write(fd, "zz", 2));
	CALL(size_of(fd));
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < 12; i++) if (write(fd, "child", 5) != 5) _exit(2);
		_exit(lseek(same, 0, SEEK_CUR) != 5062);
	}
	CALL(ended(child));
	CALL(lseek(fd, 0, SEEK_CUR));
	CALL(write(fd, "parent", 6));
	CALL(ftruncate(fd, 5040));
	CALL(size_of(fd));
	CALL(lseek(fd, 0, SEEK_CUR));
	CALL(dup2(fd, 77));
	CALL(lseek(77, 0, SEEK_SET));
	for (int i = 0; i < 9; i++) write(77, "Q", 1);
	CALL(close(77));
	CALL(lseek(fd, 0, SEEK_CUR));
	CALL(write(77, "x", 1));
	CALL(sum_of(fd));
	CALL(posix_fallocate(fd, 0, 9000));
	CALL(lseek(fd, 0, SEEK_END));
	CALL(fsync(fd));
	CALL(close(same));
	CALL(close(fd));
	CALL(close(fd));
}

static void pieces(void)
{
	SAY("-- pieces");
	int fd = fresh("pieces", O_RDWR);
	warm(fd);
	char first[4], second[4];
	struct iovec from[3] = { { "abc", 3 }, { "", 0 }, { "defg", 4 } };
	struct iovec to[2] = { { first, 3 }, { second, 4 } };
	CALL(writev(fd, from, 3));
	CALL(lseek(fd, -7, SEEK_CUR));
	CALL(readv(fd, to, 2));
	SAY("%.3s%.4s", first, second);
	CALL(pwritev(fd, from, 3, 500));
	CALL(preadv(fd, to, 2, 500));
	SAY("%.3s%.4s", first, second);
	CALL(pwritev2(fd, from, 3, -1, 0));
	CALL(pwritev2(fd, from, 3, 600, RWF_DSYNC));
	CALL(preadv2(fd, to, 2, -1, 0));
	CALL(lseek(fd, 0, SEEK_CUR));
	CALL(writev(fd, from, 0));
	CALL(writev(fd, from, -1));
	CALL(writev(fd, from, 5000));
	CALL(preadv(fd, to, 2, -5));
	CALL(sum_of(fd));
	close(fd);
}

static void appends(void)
{
	SAY("-- appends");
	int fd = fresh("appends", O_RDWR | O_APPEND);
	warm(fd);
	CALL(lseek(fd, 0, SEEK_CUR));
	CALL(lseek(fd, 0, SEEK_SET));
	CALL(read(fd, buffer, 7));
	CALL(pwrite(fd, "XX", 2, 0));
	CALL(lseek(fd, 0, SEEK_CUR));
	CALL(write(fd, "end", 3));
	CALL(read(fd, buffer, 10));
	CALL(lseek(fd, -3, SEEK_CUR));
	CALL(read(fd, buffer, 10));
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < 20; i++) write(fd, "kid\n", 4);
		_exit(0);
	}
	CALL(ended(child));
	CALL(lseek(fd, 0, SEEK_CUR));
	memset(buffer, 'L', sizeof buffer);
	CALL(write(fd, buffer, sizeof buffer));
	CALL(lseek(fd, 0, SEEK_CUR));
	CALL(write(fd, "more", 4));
	CALL(fcntl(fd, F_SETFL, O_RDWR));
	CALL(write(fd, "no append", 9));
	CALL(lseek(fd, 0, SEEK_CUR));
	CALL(fcntl(fd, F_GETFL) & (O_DIRECT | O_APPEND | O_ACCMODE));
	CALL(size_of(fd));
	CALL(sum_of(fd));
	close(fd);
}

static void refused(void)
{
	SAY("-- refused");
	int fd = fresh("refused", O_RDWR);
	warm(fd);
	CALL(pread(fd, buffer, 10, -1));
	CALL(pwrite(fd, buffer, 10, -1));
	CALL(write(fd, buffer, 0));
	CALL(write(900, buffer, 1));
	CALL(lseek(fd, -1000000, SEEK_CUR));
	int only = open("refused", O_RDONLY);
	for (int i = 0; i < 20; i++) read(only, buffer, 10);
	CALL(write(only, buffer, 1));
	CALL(lseek(only, 0, SEEK_CUR));
	close(only);
	only = open("refused", O_WRONLY);
	for (int i = 0; i < 20; i++) pwrite(only, "abc", 3, i);
	CALL(read(only, buffer, 1));
	CALL(pread(only, buffer, 1, 0));
	close(only);
	struct rlimit limit = { 1000, RLIM_INFINITY };
	signal(SIGXFSZ, SIG_IGN);
	CALL(setrlimit(RLIMIT_FSIZE, &limit));
	CALL(pwrite(fd, buffer, 100, 950));
	CALL(pwrite(fd, buffer, 100, 2000));
	limit.rlim_cur = RLIM_INFINITY;
	CALL(setrlimit(RLIMIT_FSIZE, &limit));
	CALL(pwrite(fd, buffer, 100, 2000));
	CALL(sum_of(fd));
	close(fd);
}

static void modes(void)
{
	SAY("-- modes");
	int fd = fresh("modes", O_RDWR);
	warm(fd);
	char *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	SAY("%.6s", mapped);
	CALL(pwrite(fd, "after", 5, 20));
	SAY("%.5s", mapped + 20);
	memcpy(mapped + 30, "stored", 6);
	CALL(pread(fd, buffer, 6, 30));
	SAY("%.6s", buffer);
	munmap(mapped, 4096);
	CALL(sum_of(fd));
	close(fd);
	fd = fresh("synchronous", O_RDWR | O_SYNC);
	warm(fd);
	CALL(lseek(fd, 0, SEEK_CUR));
	close(fd);
	fd = fresh("direct", O_RDWR);
	warm(fd);
	CALL(fcntl(fd, F_SETFL, O_RDWR | O_DIRECT));
	CALL((fcntl(fd, F_GETFL) & O_DIRECT) != 0);
	CALL(fcntl(fd, F_SETFL, O_RDWR));
	CALL((fcntl(fd, F_GETFL) & O_DIRECT) != 0);
	CALL(sum_of(fd));
	close(fd);
}

/* What the kernel does by itself with a file that grew without it. */
static void copies(void)
{
	SAY("-- copies");
	int from = fresh("from", O_RDWR), to = fresh("to", O_RDWR);
	warm(from);
	loff_t at = 0;
	CALL(copy_file_range(from, &at, to, NULL, 4096, 0));
	CALL(copy_file_range(from, &at, to, NULL, 4096, 0));
	warm(from);
	CALL(copy_file_range(from, &at, to, NULL, 4096, 0));
	CALL(sum_of(to));
	warm(from);
	CALL(sendfile(to, from, &at, 4096));
	CALL(lseek(from, 0, SEEK_END));
	CALL(sum_of(to));
	/* By a descriptor that nothing was done with. */
	int other = open("from", O_RDONLY);
	for (int i = 0; i < 3; i++) {
		warm(from);
		at = 546 + i * 182;
		CALL(sendfile(to, other, &at, 4096));
		at = 0;
		pwrite(from, "changed", 7, i);
		CALL(sendfile(to, other, &at, 64));
		CALL(copy_file_range(other, &at, to, NULL, 4096, 0));
	}
	CALL(sum_of(to));
	close(other);
	char *mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, from, 0);
	SAY("%.8s", mapped + size_of(from) - 8);
	munmap(mapped, 4096);
	close(from);
	close(to);
}

/* A descriptor that is opened and read where no library sees it, of a file that another one writes. */
static void unseen(void)
{
	SAY("-- unseen");
	int hidden = syscall(SYS_openat, AT_FDCWD, "unseen", O_CREAT | O_TRUNC | O_RDWR, 0600);
	int seen = open("unseen", O_RDWR);
	for (int i = 0; i < 4; i++) {
		warm(seen);
		memset(buffer, 0, 16);
		CALL(syscall(SYS_pread64, hidden, buffer, 16, i * 182));
		SAY("%.16s", buffer);
		CALL(pwrite(seen, "changed", 7, i * 182 + 3));
		CALL(syscall(SYS_pread64, hidden, buffer, 16, i * 182));
		SAY("%.16s", buffer);
	}
	CALL(sum_of(seen));
	CALL(sum_of(hidden));
	close(seen);
	close(hidden);
}

static void numbers(void)
{
	SAY("-- numbers");
	int fd = fresh("closed", O_WRONLY);
	warm(fd);
	syscall(SYS_close, fd);
	int other = fresh("other", O_WRONLY);
	SAY("the same number: %d", fd == other);
	CALL(write(other, "other", 5));
	CALL(size_of(other));
	for (int i = 3; i < 1024; i++) if (i != other) close(i);
	warm(other);
	CALL(size_of(other));
	pid_t child = vfork();
	if (child == 0) {
		dup2(other, 1);
		execl("/bin/echo", "echo", "from", "vfork", (char *)NULL);
		_exit(1);
	}
	CALL(ended(child));
	CALL(size_of(other));
	warm(other);
	char command[64];
	sprintf(command, "echo from a shell >&%d", other);
	fcntl(other, F_SETFD, 0);
	CALL(system(command));
	warm(other);
	CALL(lseek(other, 0, SEEK_CUR));
	int kept = fcntl(other, F_DUPFD_CLOEXEC, 40);
	CALL(close_range(3, 39, 0));
	CALL(write(kept, "kept", 4));
	CALL(write(other, "gone", 4));
	closefrom(3);
	CALL(write(kept, "gone", 4));
	fd = open("other", O_RDONLY);
	CALL(sum_of(fd));
	close(fd);
	FILE *stream = fopen("stream", "w+");
	warm(fileno(stream));
	fprintf(stream, "by stdio\n");
	fflush(stream);
	CALL(lseek(fileno(stream), 0, SEEK_CUR));
	warm(fileno(stream));
	stream = freopen("second", "w+", stream);
	warm(fileno(stream));
	CALL(size_of(fileno(stream)));
	fclose(stream);
}

struct job { int fd; int number; };

/* Bytes: some cross a page's end. */
enum { RECORD = 60 };

static void *records(void *argument)
{
	struct job *job = argument;
	char record[RECORD];
	memset(record, 'a' + job->number, sizeof record);
	for (int i = 0; i < 3000; i++) if (write(job->fd, record, sizeof record) != sizeof record) SAY("torn");
	return NULL;
}

/* Every record is whole, and there are as many of each as were written. */
static void count_records(const char *name, int writers)
{
	int fd = open(name, O_RDONLY), count[26] = { 0 }, torn = 0;
	char record[RECORD];
	while (read(fd, record, sizeof record) == sizeof record) {
		for (size_t i = 1; i < sizeof record; i++) torn += record[i] != record[0];
		count[(unsigned char)(record[0] - 'a') % 26]++;
	}
	close(fd);
	for (int i = 0; i < writers; i++) SAY("%s: %d records of %c", name, count[i], 'a' + i);
	SAY("%s: %d bytes torn", name, torn);
}

static void sharing(int flags, const char *name)
{
	SAY("-- sharing %s", name);
	int fd = fresh(name, O_RDWR | flags);
	pthread_t threads[4];
	struct job jobs[6];
	pid_t children[2];
	for (int i = 0; i < 6; i++) jobs[i] = (struct job){ fd, i };
	records(&(struct job){ fd, 25 });
	if (!flags) lseek(fd, 0, SEEK_SET);
	else ftruncate(fd, 0);
	for (int i = 0; i < 2; i++) if ((children[i] = fork()) == 0) { records(&jobs[4 + i]); _exit(0); }
	for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, records, &jobs[i]);
	for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
	for (int i = 0; i < 2; i++) ended(children[i]);
	CALL(lseek(fd, 0, SEEK_CUR));
	close(fd);
	count_records(name, 6);
}

static void ignored(int signal) { (void)signal; }
static int handled_fd;
static void handler(int signal) { (void)signal; if (write(handled_fd, "signal--", 8) != 8) _exit(3); }

static void signals(void)
{
	SAY("-- signals");
	int fd = handled_fd = fresh("signals", O_RDWR | O_APPEND);
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
	sigaction(SIGALRM, &action, NULL);
	struct timeval often[2] = { { 0, 200 }, { 0, 200 } };
	syscall(SYS_setitimer, 0, often, NULL);
	for (int i = 0; i < 20000; i++) if (write(fd, "program-", 8) != 8) SAY("torn");
	memset(often, 0, sizeof often);
	syscall(SYS_setitimer, 0, often, NULL);
	action.sa_handler = ignored;
	sigaction(SIGALRM, &action, NULL);
	int bad = 0, program = 0;
	lseek(fd, 0, SEEK_SET);
	for (char part[8]; read(fd, part, 8) == 8;) {
		int is_program = memcmp(part, "program-", 8) == 0;
		program += is_program;
		bad += !is_program && memcmp(part, "signal--", 8) != 0;
	}
	SAY("%d by the program, %d torn", program, bad);
	close(fd);
}

static int cleaned;
static void clean(void *nothing) { (void)nothing; cleaned++; }
static void *endless(void *argument)
{
	int fd = *(int *)argument;
	pthread_cleanup_push(clean, NULL);
	for (;;) write(fd, "x", 1);
	pthread_cleanup_pop(0);
	return NULL;
}
static void *waiting(void *argument)
{
	char byte;
	pthread_cleanup_push(clean, NULL);
	read(*(int *)argument, &byte, 1);
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancelled(void)
{
	SAY("-- cancelled");
	int fd = fresh("cancelled", O_RDWR), ends[2];
	pipe(ends);
	pthread_t threads[2];
	pthread_create(&threads[0], NULL, endless, &fd);
	pthread_create(&threads[1], NULL, waiting, &ends[0]);
	usleep(50000);
	for (int i = 0; i < 2; i++) {
		void *result;
		pthread_cancel(threads[i]);
		pthread_join(threads[i], &result);
		SAY("cancelled: %d", result == PTHREAD_CANCELED);
	}
	SAY("cleaned %d", cleaned);
	close(fd);
}

/* What one thread does. */
static void alone(void)
{
	positions();
	pieces();
	appends();
	refused();
	modes();
	copies();
	unseen();
}

int main(int count, char **words)
{
	if (count != 2 || chdir(words[1]) != 0) return 2;
	setvbuf(stdout, NULL, _IOFBF, 0);
	alone();
	sharing(0, "positional");
	sharing(O_APPEND, "appended");
	signals();
	cancelled();
	numbers();
	SAY("-- a worker");
	fflush(stdout);
	pid_t worker = fork();
	if (worker == 0) {
		if (mkdir("worker", 0700) != 0 || chdir("worker") != 0) exit(2);
		alone();
		exit(0);
	}
	int status = -1;
	CALL(waitpid(worker, &status, 0) == worker && status == 0);
	return 0;
}
