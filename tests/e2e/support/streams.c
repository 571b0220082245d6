/* Streams of the C library whose descriptors are pipes and sockets: results, errors, order, and what is left in the buffer.
 *
 *     streams results FILE promised|not   says what each call did; with a promise, FILE is written and synced before
 *     streams lines FILE COUNT            COUNT lines to a child and back, flushed one by one, while something is promised
 *     streams closes FILE OTHER COUNT     OTHER, a file elsewhere, is opened and closed by the C library COUNT times, while something is promised
 *     streams noticed FILE OTHER KIND     OTHER is closed once: `lock`, with a lock that ends by that; `removed`, and has no name any more; `queue` and `namespace`,
 *                                         such a thing instead of OTHER. Waits then: its end would be noticed, too
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

static volatile int signals;
/* More than a pipe or a socket takes at once. */
static char buffer[1 << 20];

static void count(int number) { (void)number; signals++; }

static void promise(const char *path)
{
	int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
	if (file < 0 || write(file, "x", 1) != 1 || fsync(file) != 0)
		exit(9);
	close(file);
}

static void must(int holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "%s: %s\n", what, strerror(errno));
		exit(8);
	}
}

static void say(const char *what, int result, int error)
{
	printf("%s: %d %s\n", what, result, result < 0 ? strerror(error) : "");
}

/* What comes out of a pipe, as its length and a sum. */
static void say_content(const char *what, int from)
{
	unsigned char bytes[65536];
	unsigned long sum = 0, total = 0;
	ssize_t got;
	while ((got = read(from, bytes, sizeof bytes)) > 0)
		for (ssize_t i = 0; i < got; i++)
			sum = sum * 31 + bytes[i], total++;
	printf("%s: %lu bytes, sum %lx\n", what, total, sum);
}

/* Another process, which begins to read after some time; the first end is its own. */
static pid_t reader(int ends[2], const char *what, int after_us)
{
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		close(ends[1]);
		usleep(after_us);
		say_content(what, ends[0]);
		fflush(stdout);
		_exit(0);
	}
	close(ends[0]);
	return child;
}

static void *unlocked(void *none)
{
	fputs_unlocked("without the lock\n", stdout);
	fflush_unlocked(stdout);
	return none;
}

static void results(const char *path, int promises)
{
	int ends[2];
	if (promises)
		promise(path);

	/* Short lines, with and without a flush, and the rest at the end. */
	must(pipe(ends) == 0, "pipe");
	FILE *stream = fdopen(ends[1], "w");
	for (int i = 0; i < 100; i++) {
		fprintf(stream, "line %d\n", i);
		if (i % 7 == 0)
			say("flush", fflush(stream), errno);
	}
	say("nothing buffered", fflush(stream), errno);
	fputs("rest", stream);
	say("close", fclose(stream), errno);
	say_content("lines", ends[0]);
	close(ends[0]);

	/* More than a pipe holds, which another process reads. */
	must(pipe(ends) == 0, "pipe");
	pid_t child = reader(ends, "much", 50000);
	stream = fdopen(ends[1], "w");
	setvbuf(stream, buffer, _IOFBF, sizeof buffer);
	for (int i = 0; i < 100000; i++)
		fprintf(stream, "%d,", i);
	say("flush of much", fflush(stream), errno);
	fputs("end", stream);
	say("close after much", fclose(stream), errno);
	waitpid(child, NULL, 0);

	/* A signal while more than fits is written. */
	for (int is_socket = 0; is_socket < 2; is_socket++) {
		must((is_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)) == 0, "ends");
		child = reader(ends, "after a signal", 300000);
		stream = fdopen(ends[1], "w");
		setvbuf(stream, buffer, _IOFBF, sizeof buffer);
		for (int i = 0; i < 100000; i++)
			fprintf(stream, "%d,", i);
		struct sigaction alarm = { .sa_handler = count };
		sigaction(SIGALRM, &alarm, NULL);
		struct itimerval soon = { .it_value = { .tv_usec = 100000 } };
		setitimer(ITIMER_REAL, &soon, NULL);
		signals = 0;
		say("flush with a signal", fflush(stream), errno);
		printf("signals %d\n", signals);
		fclose(stream);
		waitpid(child, NULL, 0);
	}

	/* By a thread without the lock, which another one has. */
	flockfile(stdout);
	pthread_t thread;
	pthread_create(&thread, NULL, unlocked, NULL);
	pthread_join(thread, NULL);
	funlockfile(stdout);

	/* A full pipe that does not wait. */
	must(pipe2(ends, O_NONBLOCK) == 0, "pipe2");
	stream = fdopen(ends[1], "w");
	setvbuf(stream, buffer, _IOFBF, sizeof buffer);
	for (int i = 0; i < 200000; i++)
		fputc('a' + i % 26, stream);
	errno = 0;
	int result = fflush(stream);
	say("flush of more than fits", result, errno);
	printf("error %d\n", ferror(stream) != 0);
	fclose(stream);
	say_content("what fitted", ends[0]);
	close(ends[0]);

	/* Nobody reads. */
	for (int is_socket = 0; is_socket < 2; is_socket++) {
		signals = 0;
		signal(SIGPIPE, count);
		must((is_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)) == 0, "ends");
		close(ends[0]);
		stream = fdopen(ends[1], "w");
		fputs("unread", stream);
		errno = 0;
		result = fflush(stream);
		say("flush to nobody", result, errno);
		printf("error %d, signals %d\n", ferror(stream) != 0, signals);
		clearerr(stream);
		say("nothing left", fflush(stream), errno);
		fputs("unread again", stream);
		errno = 0;
		result = fclose(stream);
		say("close to nobody", result, errno);
		printf("signals %d\n", signals);
	}
	signal(SIGPIPE, SIG_DFL);

	/* Wide characters, both directions, unbuffered, by lines, a string, a file. */
	must(pipe(ends) == 0, "pipe");
	stream = fdopen(ends[1], "w");
	fwprintf(stream, L"wide %d\n", 1);
	say("flush of wide characters", fflush(stream), errno);
	fclose(stream);
	say_content("wide", ends[0]);
	close(ends[0]);

	must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
	stream = fdopen(ends[1], "r+");
	FILE *other = fdopen(ends[0], "r+");
	char line[100];
	for (int i = 0; i < 3; i++) {
		fprintf(stream, "question %d\n", i);
		say("question", fflush(stream), errno);
		must(fgets(line, sizeof line, other) != NULL, "fgets");
		printf("%s", line);
		fseek(other, 0, SEEK_CUR);
		fprintf(other, "answer %d\nmore\n", i);
		say("answer", fflush(other), errno);
		fseek(stream, 0, SEEK_CUR);
		must(fgets(line, sizeof line, stream) != NULL, "fgets");
		printf("%s", line);
		must(fgets(line, sizeof line, stream) != NULL, "fgets");
		fseek(stream, 0, SEEK_CUR);
	}
	fclose(stream);
	fclose(other);

	must(pipe(ends) == 0, "pipe");
	stream = fdopen(ends[1], "w");
	setvbuf(stream, NULL, _IOLBF, 0);
	fputs("a line\nand a part", stream);
	struct pollfd ready = { .fd = ends[0], .events = POLLIN };
	printf("ready %d\n", poll(&ready, 1, 0));
	say("flush of lines", fflush(stream), errno);
	fputs(" of the next\n", stream);
	fclose(stream);
	say_content("by lines", ends[0]);
	close(ends[0]);

	size_t length;
	char *text;
	stream = open_memstream(&text, &length);
	fputs("in memory", stream);
	say("flush of memory", fflush(stream), errno);
	fclose(stream);
	printf("%zu %s\n", length, text);

	stream = fopen(path, "w+");
	fputs("in a file", stream);
	say("flush of a file", fflush(stream), errno);
	printf("at %ld\n", ftell(stream));
	rewind(stream);
	must(fgets(line, sizeof line, stream) != NULL, "fgets");
	printf("%s\n", line);
	say("close of a file", fclose(stream), errno);

	fflush(stdout);
	stream = popen("cat; exit 3", "w");
	fputs("to a program\n", stream);
	say("status", pclose(stream), errno);
	say("all", fflush(NULL), errno);
	if (promises)
		promise(path);
	fputs("the rest, at the end\n", stdout);
	/* The C library writes what was opened last first. */
	fputs("of a newer stream\n", fdopen(dup(1), "w"));
}

static void lines(const char *path, int lines)
{
	int to[2], from[2];
	must(pipe(to) == 0 && pipe(from) == 0, "pipe");
	if (fork() == 0) {
		dup2(to[0], 0);
		dup2(from[1], 1);
		close(to[1]);
		close(from[0]);
		char line[100];
		while (fgets(line, sizeof line, stdin)) {
			fputs(line, stdout);
			fflush(stdout);
		}
		exit(0);
	}
	close(to[0]);
	close(from[1]);
	FILE *questions = fdopen(to[1], "w"), *answers = fdopen(from[0], "r");
	for (int i = 0; i < lines; i++) {
		char line[100];
		promise(path);
		fprintf(questions, "%d\n", i);
		must(fflush(questions) == 0, "fflush");
		must(fgets(line, sizeof line, answers) != NULL && atoi(line) == i, "answer");
	}
	fclose(questions);
	wait(NULL);
}

static void closes(const char *path, const char *other, int times)
{
	promise(path);
	for (int i = 0; i < times; i++) {
		char line[100];
		FILE *stream = fopen(other, "r");
		must(stream && fgets(line, sizeof line, stream) && fclose(stream) == 0, "close");
		DIR *directory = opendir("/");
		must(directory && readdir(directory) && closedir(directory) == 0, "closedir");
	}
	FILE *stream = fopen(other, "r");
	close(fileno(stream));
	must(fclose(stream) == EOF && errno == EBADF, "closing what is closed");
}

static void noticed(const char *path, const char *other, const char *kind)
{
	FILE *stream = NULL;
	int file = -1;
	if (strcmp(kind, "lock") == 0) {
		int locked = open(other, O_RDWR);
		struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
		must(locked >= 0 && fcntl(locked, F_SETLK, &lock) == 0, "lock");
		stream = fopen(other, "r");
	} else if (strcmp(kind, "removed") == 0) {
		stream = fopen(other, "r");
		must(unlink(other) == 0, "unlink");
	} else if (strcmp(kind, "queue") == 0) {
		char name[40];
		snprintf(name, sizeof name, "/weir-test-%d", (int)getpid());
		file = mq_open(name, O_RDONLY | O_CREAT, 0600, NULL);
		must(mq_unlink(name) == 0, "mq_unlink");
	} else {
		file = open("/proc/self/ns/uts", O_RDONLY);
	}
	must(stream || file >= 0, "open");
	promise(path);
	must((stream ? fclose(stream) : close(file)) == 0, "close");
	pause();
}

int main(int count, char **words)
{
	if (count == 4 && strcmp(words[1], "results") == 0)
		results(words[2], strcmp(words[3], "promised") == 0);
	else if (count == 4 && strcmp(words[1], "lines") == 0)
		lines(words[2], atoi(words[3]));
	else if (count == 5 && strcmp(words[1], "closes") == 0)
		closes(words[2], words[3], atoi(words[4]));
	else if (count == 5 && strcmp(words[1], "noticed") == 0)
		noticed(words[2], words[3], words[4]);
	else
		return 2;
	return 0;
}
