/* unescape: the escapes of proc(5) as weir.c undoes them, of texts that end anywhere; library.sh runs it with the compiler's checks of memory. */
#include "../../../library/weir.c"

int main(void)
{
	static const char *const texts[][2] = {
		{"/a\\040b", "/a b"}, {"/a\\134040b", "/a\\040b"}, {"\\012", "\n"}, {"\\303\\251", "\303\251"},
		{"/a\\", "/a\\"}, {"/a\\0", "/a\\0"}, {"/a\\04", "/a\\04"}, {"/a\\ 4x", "/a\\ 4x"}, {"/a\\-1x", "/a\\-1x"},
		{"/a\\+7", "/a\\+7"}, {"/a\\089", "/a\\089"}, {"", ""},
	};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		/* In memory of just its size. */
		char *text = strdup(texts[i][0]);
		unescape(text);
		if (strcmp(text, texts[i][1])) {
			fprintf(stderr, "'%s' becomes '%s'\n", texts[i][0], text);
			return 1;
		}
		free(text);
	}
	return 0;
}
