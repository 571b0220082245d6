/* Preloaded, it takes the syncs out of a program: they return at once, and nothing waits for them. */
int fsync(int fd) { return (void)fd, 0; }
int fdatasync(int fd) { return (void)fd, 0; }
