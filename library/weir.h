/* Promises of a Weir mount: for programs that answer others, and want to make many changes durable at once.
 *
 * A program changes files of a mount with `--order all`, takes a promise, and goes on. Before it tells anybody of the changes, it
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
 * Both functions may be called by any thread, and are not cancellation points. Compile with -pthread. docs/SEMANTICS.md has the details. */
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

#ifdef __cplusplus
}
#endif

#endif
