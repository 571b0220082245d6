/* An example of all of weir.h: `journal FILE LINES` appends lines, makes all of them durable by one promise, says how far the file is on its way
 * home, and has everything brought home. On a mount without `--order all` the lines are synced instead. `journal FILE` only asks.
 *
 *	cc -pthread -o journal journal.c -lweir */
#include "weir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failed(const char *what)
{
	fprintf(stderr, "journal: %s: %s\n", what, strerror(errno));
	return 1;
}

static int say_state(const char *when, int file)
{
	static const char *const words[] = {"", "dirty", "logged", "home"};
	int state = weir_state(file);
	if (state < 0)
		return failed("weir_state");
	printf("%s: %s\n", when, words[state]);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	int lines = argc > 2 ? atoi(argv[2]) : 0;
	int file = open(argv[1], lines ? O_WRONLY | O_CREAT | O_APPEND : O_RDONLY, 0644);
	if (file < 0)
		return failed(argv[1]);
	for (int line = 0; line < lines; line++)
		if (dprintf(file, "line %d\n", line) < 0)
			return failed("write");
	if (lines && say_state("written", file))
		return 1;
	struct weir_promise promise;
	if (lines && !weir_promise(file, &promise)) {
		if (weir_wait(&promise))
			return failed("weir_wait");
	} else if (lines && (errno != EOPNOTSUPP || fsync(file))) {
		return failed("weir_promise");
	}
	if (say_state(lines ? "durable" : "now", file))
		return 1;
	char *status = weir_status(file);
	if (!status)
		return failed("weir_status");
	puts(status);
	free(status);
	if (lines && weir_sync(file))
		return failed("weir_sync");
	return lines ? say_state("synced", file) : 0;
}
