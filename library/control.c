/* The questions of weir.h: a file's state, a mount's status, and bringing everything home.
 *
 * A state is an extended attribute that the daemon computes. Status and sync are asked over the daemon's control socket, one request and one
 * answer a connection, each a line of JSON (crates/control/src/protocol.rs). The answer's kind is its first field, and the status is the last:
 * so nothing has to be parsed.
 *
 * Owns nothing between calls. Does not own promises (weir.c).
 *
 * Invariants:
 * - only a mount is asked that the kernel's mount table has as one of Weir, by the device number of the descriptor;
 * - a socket is looked for only in a directory that the mount's user alone can enter, and only a listener is asked and believed that runs
 *   as that user or as root;
 * - a status, from connecting to the last byte, has one deadline;
 * - an answer that is not understood, or too long, is an error. */
#define _GNU_SOURCE
#include "weir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define STATE "user.weir.state"
/* Longest answer. */
#define ANSWER_BYTES_MAX (1 << 20)
/* How long a status may take; and connecting and sending a request of which the answer takes as long as it takes. */
#define PATIENCE_SECONDS 10
/* Whatever the time. */
#define NEVER INT64_MAX

struct place {
	unsigned major, minor;
	/* Whose mount it is. */
	unsigned owner;
};

/* Finds the Weir mount that a descriptor is on. Does not ask its daemon. Returns an errno. */
static int find(int fd, struct place *place, unsigned *mode)
{
	struct statx status;
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &status))
		return errno;
	*mode = status.stx_mode;
	FILE *table = fopen("/proc/self/mountinfo", "re");
	if (!table)
		return errno;
	char *line = NULL;
	size_t size = 0;
	int error = ENOTTY;
	while (error && getline(&line, &size, table) >= 0) {
		if (sscanf(line, "%*u %*u %u:%u", &place->major, &place->minor) != 2 ||
		    place->major != status.stx_dev_major || place->minor != status.stx_dev_minor)
			continue;
		/* The kernel escapes spaces in paths: so this separates nothing else. The file system's own options are the last field. */
		const char *type = strstr(line, " - ");
		if (!type || strncmp(type + 3, "fuse.weir ", 10))
			continue;
		const char *options = strrchr(type, ' ');
		const char *user = strstr(options, "user_id=");
		place->owner = user && user > options && (user[-1] == ',' || user[-1] == ' ') ? (unsigned)strtoul(user + 8, NULL, 10) : 0;
		error = 0;
	}
	free(line);
	fclose(table);
	return error;
}

/* Nanoseconds of a clock that nobody sets. */
static int64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Waits until a connection is ready for these events of poll(2), or the deadline. Returns an errno. */
static int wait_for(int connection, short events, int64_t deadline)
{
	for (;;) {
		int milliseconds = -1;
		if (deadline != NEVER) {
			int64_t left = deadline - now();
			if (left <= 0)
				return ETIMEDOUT;
			/* Rounded up: otherwise the last millisecond would be waited for busily. */
			milliseconds = left / 1000000 < INT_MAX ? (int)(left / 1000000) + 1 : INT_MAX;
		}
		struct pollfd ready = {.fd = connection, .events = events};
		int count = poll(&ready, 1, milliseconds);
		if (count > 0)
			return 0;
		if (count < 0 && errno != EINTR && errno != EAGAIN)
			return errno;
	}
}

/* Whether a directory is one that only this user can enter; links are not followed, since anybody may have planted one in /tmp. Otherwise
 * errno says why. */
static bool is_trusted(const char *directory, unsigned owner)
{
	struct stat status;
	if (lstat(directory, &status))
		return false;
	errno = EPERM;
	return S_ISDIR(status.st_mode) && status.st_uid == owner && !(status.st_mode & 077);
}

/* Connects to the socket of a mount in a directory. Returns a descriptor that does not block; or -1 with errno. */
static int connect_in(const char *directory, const struct place *place, int64_t deadline)
{
	if (!is_trusted(directory, place->owner))
		return -1;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int length = snprintf(address.sun_path, sizeof address.sun_path, "%s/%u:%u.sock", directory, place->major, place->minor);
	if (length < 0 || (size_t)length >= sizeof address.sun_path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	int error = 0;
	do {
		/* The listener's queue was full, for which poll(2) cannot wait. */
		if (error == EAGAIN)
			poll(NULL, 0, 10);
		error = connect(fd, (struct sockaddr *)&address, sizeof address) ? errno : 0;
	} while (error == EINTR || (error == EAGAIN && now() < deadline));
	if (!error)
		return fd;
	close(fd);
	errno = error == EAGAIN ? ETIMEDOUT : error;
	return -1;
}

/* Connects to a mount's daemon. The places are those of crates/control/src/place.rs. Returns an errno. */
static int reach(const struct place *place, int64_t deadline, int *connection)
{
	char directories[3][128];
	const char *runtime = place->owner && place->owner == geteuid() ? secure_getenv("XDG_RUNTIME_DIR") : NULL;
	int count = 0;
	if (runtime && runtime[0] == '/' && strlen(runtime) < 100)
		snprintf(directories[count++], sizeof *directories, "%s/weir", runtime);
	if (place->owner)
		snprintf(directories[count++], sizeof *directories, "/run/user/%u/weir", place->owner);
	else
		snprintf(directories[count++], sizeof *directories, "/run/weir");
	snprintf(directories[count++], sizeof *directories, "/tmp/weir-%u", place->owner);
	bool is_denied = geteuid() && geteuid() != place->owner, is_planted = false;
	for (int i = 0; i < count; i++) {
		*connection = connect_in(directories[i], place, deadline);
		if (*connection >= 0)
			break;
		if (errno == ETIMEDOUT)
			return ETIMEDOUT;
		is_denied |= errno == EACCES;
		is_planted |= errno == EPERM;
	}
	if (*connection < 0)
		return is_denied ? EACCES : is_planted ? EPERM : ENOTCONN;
	struct ucred peer;
	socklen_t length = sizeof peer;
	int error = getsockopt(*connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) ? errno : 0;
	/* In /tmp others may have been first. */
	if (!error && peer.uid && peer.uid != place->owner)
		error = EPERM;
	if (error)
		close(*connection);
	return error;
}

/* Sends a line and receives one, which ends with a zero instead of the newline, over a connection that does not block. Returns an errno. */
static int converse(int connection, const char *line, int64_t to_send, int64_t to_receive, char **answer)
{
	for (size_t sent = 0, length = strlen(line); sent < length;) {
		ssize_t done = send(connection, line + sent, length - sent, MSG_NOSIGNAL);
		if (done >= 0) {
			sent += (size_t)done;
		} else if (errno == EAGAIN) {
			int error = wait_for(connection, POLLOUT, to_send);
			if (error)
				return error;
		} else if (errno != EINTR) {
			return ENOTCONN;
		}
	}
	char *text = NULL;
	size_t length = 0, space = 0;
	int error = 0;
	while (!error && (!length || text[length - 1] != '\n')) {
		if (length == space) {
			char *grown = space < ANSWER_BYTES_MAX ? realloc(text, space += 16384) : NULL;
			if (!grown) {
				error = space < ANSWER_BYTES_MAX ? ENOMEM : EPROTO;
				break;
			}
			text = grown;
		}
		/* Also before what is there already: a daemon that sends a byte now and then must not go on for ever. */
		error = wait_for(connection, POLLIN, to_receive);
		if (error)
			break;
		ssize_t got = recv(connection, text + length, space - length, 0);
		if (got > 0)
			length += (size_t)got;
		else if (!got)
			error = ENOTCONN;
		else if (errno != EINTR && errno != EAGAIN)
			error = ENOTCONN;
	}
	if (error) {
		free(text);
		return error;
	}
	text[length - 1] = 0;
	*answer = text;
	return 0;
}

/* Asks the daemon of a descriptor's mount. Returns an errno. */
static int ask(int fd, const char *line, bool is_brief, char **answer)
{
	int64_t deadline = now() + PATIENCE_SECONDS * INT64_C(1000000000);
	struct place place;
	unsigned mode;
	int connection;
	int error = find(fd, &place, &mode);
	if (!error)
		error = reach(&place, deadline, &connection);
	if (error)
		return error;
	error = converse(connection, line, deadline, is_brief ? deadline : NEVER, answer);
	close(connection);
	return error;
}

static bool begins_with(const char *text, const char *prefix)
{
	return !strncmp(text, prefix, strlen(prefix));
}

int weir_state(int fd)
{
	struct place place;
	unsigned mode;
	int error = find(fd, &place, &mode);
	if (!error && !S_ISREG(mode) && !S_ISDIR(mode))
		error = EINVAL;
	char word[16];
	ssize_t length = error ? -1 : fgetxattr(fd, STATE, word, sizeof word);
	if (!error && length < 0)
		error = errno == ENODATA || errno == ERANGE ? EPROTO : errno;
	if (error) {
		errno = error;
		return -1;
	}
	static const char *const words[] = {"dirty", "logged", "home"};
	for (int i = 0; i < 3; i++)
		if ((size_t)length == strlen(words[i]) && !memcmp(word, words[i], (size_t)length))
			return WEIR_DIRTY + i;
	errno = EPROTO;
	return -1;
}

char *weir_status(int fd)
{
	static const char before[] = "{\"reply\":\"status\",\"status\":";
	char *answer = NULL;
	int error = ask(fd, "{\"request\":\"status\"}\n", true, &answer);
	if (!error) {
		size_t length = strlen(answer), skipped = sizeof before - 1;
		if (begins_with(answer, before) && length > skipped + 2 && answer[length - 1] == '}') {
			memmove(answer, answer + skipped, length - skipped);
			answer[length - skipped - 1] = 0;
			return answer;
		}
		error = begins_with(answer, "{\"reply\":\"failed\"") ? EIO : EPROTO;
		free(answer);
	}
	errno = error;
	return NULL;
}

int weir_sync(int fd)
{
	char *answer = NULL;
	int error = ask(fd, "{\"request\":\"sync\"}\n", false, &answer);
	if (!error) {
		if (!begins_with(answer, "{\"reply\":\"done\""))
			error = begins_with(answer, "{\"reply\":\"failed\"") ? EIO : EPROTO;
		free(answer);
	}
	if (!error)
		return 0;
	errno = error;
	return -1;
}
