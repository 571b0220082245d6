/* Weir mounts, for programs that want more of them than a file system has.
 *
 * 1. Promises (weir.c): for programs that answer others, and want to make many changes durable at once. A program changes files of a mount with `--order all`, takes a promise, and goes on. Before it tells anybody of the changes, it
 * waits for the promise:
 *
 *	struct weir_promise promise;
 *	write(file, line, length);
 *	if (weir_promise(file, &promise) || weir_wait(&promise))
 *		... not durable: errno says why ...
 *	send(client, "ok\n", 3, 0);
 *
 * Threads that wait at once share a commit, and a commit is one write of the redo log.
 *
 * 2. Questions (control.c): how far a file is on its way home, a mount's status, and bringing everything home:
 *
 *	if (weir_state(file) == WEIR_HOME)
 *		... SOURCE has all of it ...
 *	char *status = weir_status(file);
 *	if (status)
 *		puts(status);
 *	free(status);
 *
 * All functions may be called by any thread. Those of promises are not cancellation points. Compile with -pthread. docs/SEMANTICS.md has
 * the details; library/journal.c is an example of all. */
#ifndef WEIR_H
#define WEIR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A moment in the order of all changes of a mount. It is good in the process that took it, and in its parents and children by fork(2)
 * without execve(2), if the first promise was taken before the fork. It needs no release. */
struct weir_promise {
	/* For the library alone. */
	unsigned char mount[16];
	uint64_t program;
	uint64_t number;
	uint32_t device[2];
	int error;
};

/* Takes a promise of the mount that the file or directory FD is on: it is after every change of the mount, by any program, that was done
 * when the call began. What FD's file was changed by mappings is given to the daemon first; changes by mappings of other files are not
 * included before msync(2). Does not wait for a disk.
 *
 * Returns 0; or -1 with errno:
 * ENOTTY	FD is not on a Weir mount, or on one of a Weir without promises
 * EOPNOTSUPP	the mount has no one order: it is without `--order all`
 * EBADF	FD is not open, or was opened with O_PATH
 * EACCES, ...	the directory at which the mount is mounted cannot be opened for reading, or /proc not read
 * ENODEV	it is mounted nowhere in this process's view
 * ENOTCONN, ECONNABORTED	the daemon has died */
int weir_promise(int fd, struct weir_promise *promise);

/* Waits until all that the promise covers is durable: a crash after that loses none of it. Begins a commit if none is under way that
 * covers it.
 *
 * Returns 0; or -1 with errno:
 * EINVAL	the promise was not taken here
 * ENODEV	the mount has ended, whatever is mounted there now
 * ENOTCONN, ECONNABORTED	the daemon has died
 * EIO, ENOSPC, EROFS, ...	the commit failed
 *
 * Except for EINVAL, an error stays: the same promise fails with it for ever. What it covers may be durable or not. A new promise covers it,
 * too, and begins a new commit. */
int weir_wait(struct weir_promise *promise);

/* How far a file is on its way home. Numbers are only added: a greater one is nearer to home. */
enum weir_state {
	/* Some of it is in memory only: a crash may lose it. Also of what SOURCE has not got the name or the attributes of. */
	WEIR_DIRTY = 1,
	/* A crash loses nothing of it, but SOURCE does not have all of it. */
	WEIR_LOGGED = 2,
	/* SOURCE has all of it. */
	WEIR_HOME = 3
};

/* How far the open file FD is on its way home, by any program's changes: what `weir status FILE` answers. Of a directory it tells of its own
 * name and attributes, and of the names in it. Anybody may ask who has the file open.
 *
 * Returns one of enum weir_state; or -1 with errno:
 * ENOTTY	FD is not on a Weir mount
 * EBADF	FD is not open, or was opened with O_PATH
 * EPROTO	the daemon does not tell, or has another word for it: it is of another version
 * ENOTCONN, ECONNABORTED	the daemon has died
 * EINVAL	FD is neither a regular file nor a directory
 * EACCES, ...	/proc cannot be read */
int weir_state(int fd);

/* The status of the mount that FD is on: a JSON object, as of `weir status --json`. Fields are only added; one that is missing is of a
 * newer version. FD may be opened with O_PATH. Only the user whose mount it is, and root, may ask.
 *
 * Returns a string that the caller gives to free(3); or NULL with errno:
 * ENOTTY	FD is not on a Weir mount
 * EACCES	it is another user's mount
 * ENOTCONN	the daemon has died, or its control socket is gone
 * ETIMEDOUT	the daemon did not answer within ten seconds, all in all
 * EPERM	another user's program listens in the daemon's place, or could: others can enter the directory of its socket
 * EPROTO	the answer is not understood: the daemon is of another version
 * EIO	the daemon could not do it */
char *weir_status(int fd);

/* Brings everything home that was written to the mount before the call, and has SOURCE make it durable, as `weir sync` does. Waits as long as that
 * takes. fsync(2) is for one file, and is enough for what a crash must not lose.
 *
 * Returns 0; or -1 with errno as above; ETIMEDOUT if the daemon did not take the request within ten seconds. After EIO nothing is lost, but not everything is home: `weir sync` says why. */
int weir_sync(int fd);

#ifdef __cplusplus
}
#endif

#endif
