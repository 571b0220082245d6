/* An example of weir.h: a server that keeps keys and values in a file on a Weir mount, and holds its own replies.
 *
 *	kv_server FILE [PORT]		prints the port at which it listens on 127.0.0.1
 *
 * A client sends lines, `set KEY VALUE` or `get KEY`, and gets a line for each, in order: `ok`, the value, `none`, or `error`. Everything
 * that a client has sent so far is one batch: all of it is done, and the replies wait for one promise. Each client has a thread, and
 * those that wait at once share a commit. A `get` waits, too: it may show what another client has just set. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <search.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "weir.h"

#define BATCH_BYTES_MAX 65536

struct pair {
	char *key, *value;
};

/* Guards the file and the table. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int file;
static void *table;

static void die(const char *what)
{
	perror(what);
	_exit(1);
}

static int compare(const void *one, const void *other)
{
	return strcmp(((const struct pair *)one)->key, ((const struct pair *)other)->key);
}

static const char *get(char *key)
{
	struct pair wanted = {.key = key}, **found = tfind(&wanted, &table, compare);
	return found ? (*found)->value : NULL;
}

static void put(const char *key, const char *value)
{
	struct pair *made = malloc(sizeof *made);
	if (!made || !(made->key = strdup(key)) || !(made->value = strdup(value)))
		die("malloc");
	struct pair **found = tsearch(made, &table, compare);
	if (!found)
		die("tsearch");
	if (*found == made)
		return;
	free((*found)->value);
	(*found)->value = made->value;
	free(made->key);
	free(made);
}

/* Reads the file; what follows its last whole line is cut off. */
static void load(void)
{
	FILE *lines = fdopen(dup(file), "r");
	char *line = NULL;
	size_t size = 0;
	off_t whole = 0;
	ssize_t length;
	if (!lines)
		die("fdopen");
	while ((length = getline(&line, &size, lines)) > 0 && line[length - 1] == '\n') {
		whole += length;
		line[length - 1] = 0;
		char *value = strchr(line, ' ');
		if (value) {
			*value++ = 0;
			put(line, value);
		}
	}
	if (ferror(lines) || ftruncate(file, whole))
		die("the file");
	free(line);
	fclose(lines);
}

/* Appends a line to the file. */
static int append(const char *key, const char *value)
{
	char *line;
	int length = asprintf(&line, "%s %s\n", key, value);
	if (length < 0)
		die("malloc");
	ssize_t written = write(file, line, (size_t)length);
	free(line);
	/* A part of a line would spoil the next one. */
	if (written >= 0 && written < length)
		die("write");
	return written == length ? 0 : -1;
}

/* Does what a line asks for, and puts the reply into the batch. */
static void answer(char *line, FILE *replies)
{
	char *rest, *verb = strtok_r(line, " ", &rest), *key = strtok_r(NULL, " ", &rest);
	const char *value;
	pthread_mutex_lock(&mutex);
	if (verb && key && !strcmp(verb, "get") && !*rest) {
		value = get(key);
		fprintf(replies, "%s\n", value ? value : "none");
	} else if (verb && key && !strcmp(verb, "set") && *rest && !append(key, rest)) {
		put(key, rest);
		fputs("ok\n", replies);
	} else {
		fputs("error\n", replies);
	}
	pthread_mutex_unlock(&mutex);
}

/* Sends replies, when everything that they tell of is durable. */
static int release(int client, const char *replies, size_t length)
{
	struct weir_promise promise;
	if (weir_promise(file, &promise) || weir_wait(&promise))
		die("what was set is not durable, so no reply is sent");
	while (length > 0) {
		ssize_t sent = send(client, replies, length, MSG_NOSIGNAL);
		if (sent < 0)
			return -1;
		replies += sent;
		length -= (size_t)sent;
	}
	return 0;
}

static void *serve(void *argument)
{
	int client = (int)(intptr_t)argument;
	char *batch = malloc(BATCH_BYTES_MAX);
	size_t length = 0;
	ssize_t got;
	if (!batch)
		die("malloc");
	while ((got = read(client, batch + length, BATCH_BYTES_MAX - length)) > 0) {
		char *replies, *line = batch, *end;
		size_t replied;
		FILE *stream = open_memstream(&replies, &replied);
		if (!stream)
			die("malloc");
		length += (size_t)got;
		while ((end = memchr(line, '\n', length - (size_t)(line - batch)))) {
			*end = 0;
			answer(line, stream);
			line = end + 1;
		}
		length -= (size_t)(line - batch);
		memmove(batch, line, length);
		if (fclose(stream))
			die("malloc");
		int error = replied ? release(client, replies, replied) : 0;
		free(replies);
		/* A longer line is not taken. */
		if (error || length == BATCH_BYTES_MAX)
			break;
	}
	free(batch);
	close(client);
	return NULL;
}

int main(int count, char **arguments)
{
	if (count < 2) {
		fprintf(stderr, "usage: kv_server FILE [PORT]\n");
		return 2;
	}
	file = open(arguments[1], O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	if (file < 0)
		die(arguments[1]);
	/* A mount that makes no promises is refused at once. */
	struct weir_promise promise;
	if (weir_promise(file, &promise))
		die(arguments[1]);
	load();
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	address.sin_port = htons(count > 2 ? (uint16_t)atoi(arguments[2]) : 0);
	socklen_t length = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 128) ||
	    getsockname(listener, (struct sockaddr *)&address, &length))
		die("listen");
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
	for (;;) {
		pthread_t thread;
		int client = accept(listener, NULL, NULL);
		if (client < 0)
			die("accept");
		if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)client))
			close(client);
		else
			pthread_detach(thread);
	}
}
