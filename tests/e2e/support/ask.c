/* ask state|sync|sync-mount|status|promise PATH: asks one thing by weir.h, and prints the answer or the errno's name; client.sh compares it with
 * crates/client/examples/ask.rs. */
#define _GNU_SOURCE
#include "weir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failed(const char *before)
{
	printf("%s%s\n", before, strerrorname_np(errno));
	return 1;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	/* A mount's own directory can be opened so while its daemon does not answer. */
	int asks_daemon = !strcmp(argv[1], "status") || !strcmp(argv[1], "sync-mount");
	int fd = open(argv[2], asks_daemon ? O_PATH : O_RDONLY | O_NONBLOCK);
	if (fd < 0)
		return failed("open ");
	if (!strcmp(argv[1], "state")) {
		int state = weir_state(fd);
		if (state < 0)
			return failed("");
		puts(state == WEIR_HOME ? "home" : state == WEIR_LOGGED ? "logged" : "dirty");
	} else if (!strcmp(argv[1], "status")) {
		char *status = weir_status(fd);
		if (!status)
			return failed("");
		puts(status);
		free(status);
	} else if (!strcmp(argv[1], "sync-mount")) {
		if (weir_sync(fd))
			return failed("");
		puts("synced");
	} else if (!strcmp(argv[1], "sync")) {
		if (fsync(fd))
			return failed("");
		puts("durable");
	} else {
		struct weir_promise promise;
		if (weir_promise(fd, &promise) || weir_wait(&promise))
			return failed("");
		puts("kept");
	}
	return 0;
}
