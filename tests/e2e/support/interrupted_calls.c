// Makes calls that no signal interrupts (signal(7)), while signals with a handler without SA_RESTART keep coming. Prints each call
// that failed, with how many times with EINTR.
//
//   interrupted_calls calls DIRECTORY TIMES    each call TIMES times, on files in DIRECTORY; the file PROMISED, if it is
//                                              in the environment, is synced before each
//   interrupted_calls ends PROGRAM TIMES       children that call _exit(2) and exit(3), and that execute PROGRAM
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

static volatile sig_atomic_t signals;

static void count(int signal) {
    (void)signal;
    signals++;
}

static void signals_every(int microseconds) {
    struct sigaction action = {.sa_handler = count};
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static int promised = -1;

// Prepares and tidies up: repeated, whatever interrupts it.
#define SURELY(call) while ((call) == -1 && errno == EINTR)

#define TRY(name, before, call, after)                                                                \
    do {                                                                                              \
        int interrupted = 0, failed = 0, code = 0;                                                    \
        for (int i = 0; i < times; i++) {                                                             \
            before;                                                                                   \
            if (promised >= 0)                                                                        \
                fsync(promised);                                                                      \
            errno = 0;                                                                                \
            if ((long)(call) == -1) {                                                                 \
                interrupted += errno == EINTR;                                                        \
                failed++;                                                                             \
                code = errno;                                                                         \
            }                                                                                         \
            after;                                                                                    \
        }                                                                                             \
        if (failed)                                                                                   \
            printf("%s failed %d times, %d interrupted: %s\n", name, failed, interrupted, strerror(code)); \
    } while (0)

static int made(const char *path) {
    int fd;
    SURELY(fd = open(path, O_RDWR | O_CREAT, 0644));
    return fd;
}

static int is_null(const void *result) { return result ? 0 : -1; }

static void calls(int times) {
    int f = made("f"), fd, pair[2], on = 1;
    char block[4096] = {1}, name[16];
    struct timespec stamps[2] = {{1, 0}, {1, 0}};
    struct timeval moments[2] = {{1, 0}, {1, 0}};
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    struct sockaddr_in nobody = {.sin_family = AF_INET, .sin_port = 1};
    union sigval none = {0};
    FILE *stream;
    DIR *listing;
    void *map;

    signals_every(150);
    TRY("chown", , chown("f", 0, 0), );
    TRY("lchown", , lchown("f", 0, 0), );
    TRY("fchown", , fchown(f, 0, 0), );
    TRY("fchownat", , fchownat(AT_FDCWD, "f", 0, 0, 0), );
    TRY("chmod", , chmod("f", 0644), );
    TRY("fchmod", , fchmod(f, 0644), );
    TRY("fchmodat", , fchmodat(AT_FDCWD, "f", 0644, 0), );
    TRY("utime", , utime("f", NULL), );
    TRY("utimes", , utimes("f", moments), );
    TRY("utimensat", , utimensat(AT_FDCWD, "f", stamps, 0), );
    TRY("futimens", , futimens(f, stamps), );
    TRY("truncate", , truncate("f", 100), );
    TRY("ftruncate", , ftruncate(f, 100), );
    TRY("fallocate", , fallocate(f, 0, 0, 100000), );
    TRY("mkdir", , mkdir("d", 0755), SURELY(rmdir("d")));
    TRY("rmdir", SURELY(mkdir("d", 0755)), rmdir("d"), SURELY(rmdir("d")));
    TRY("link", , link("f", "g"), SURELY(unlink("g")));
    TRY("unlink", SURELY(link("f", "g")), unlink("g"), SURELY(unlink("g")));
    TRY("remove", SURELY(link("f", "g")), remove("g"), SURELY(unlink("g")));
    TRY("rename", , rename("f", "h"), SURELY(rename("h", "f")));
    TRY("symlink", , symlink("f", "s"), SURELY(unlink("s")));
    TRY("mknod", , mknod("n", S_IFREG | 0644, 0), SURELY(unlink("n")));
    TRY("mkfifo", , mkfifo("n", 0644), SURELY(unlink("n")));
    TRY("setxattr", , setxattr("f", "user.a", "1", 1, 0), );
    TRY("fsetxattr", , fsetxattr(f, "user.a", "1", 1, 0), );
    TRY("removexattr", SURELY(setxattr("f", "user.b", "1", 1, 0)), removexattr("f", "user.b"), );

    TRY("open", , fd = open("n", O_CREAT | O_EXCL | O_WRONLY, 0644), SURELY(close(fd)); SURELY(unlink("n")));
    TRY("creat", , fd = creat("n", 0644), SURELY(close(fd)));
    TRY("fopen", , is_null(stream = fopen("n", "w")), if (stream) fclose(stream));
    TRY("fclose", stream = NULL; while (!stream) stream = fopen("n", "w"); fputs("1", stream), fclose(stream), );
    TRY("mkstemp", strcpy(name, "tXXXXXX"), fd = mkstemp(name), SURELY(close(fd)); SURELY(unlink(name)));
    TRY("mkdtemp", strcpy(name, "tXXXXXX"), is_null(mkdtemp(name)), SURELY(rmdir(name)));
    TRY("close of a file", fd = made("f"), close(fd), );
    TRY("close of a device", SURELY(fd = open("/dev/null", O_RDWR)), close(fd), );
    TRY("close of a pipe", SURELY(pipe(pair)), close(pair[0]) | close(pair[1]), );
    TRY("close of a socket", SURELY(socketpair(AF_UNIX, SOCK_STREAM, 0, pair)), close(pair[0]) | close(pair[1]), );
    TRY("closedir", listing = NULL; while (!listing) listing = opendir("."), closedir(listing), );
    TRY("pipe", , pipe(pair), SURELY(close(pair[0])); SURELY(close(pair[1])));
    TRY("dup2", , dup2(f, 900), );
    TRY("dup3", , dup3(f, 900, O_CLOEXEC), );

    struct flock lock = {.l_whence = SEEK_SET};
    TRY("fcntl(F_SETLK)", lock.l_type = i & 1 ? F_RDLCK : F_UNLCK, fcntl(f, F_SETLK, &lock), );
    TRY("fcntl(F_SETOWN)", , fcntl(f, F_SETOWN, getpid()), );
    TRY("flock", , flock(f, i & 1 ? LOCK_SH | LOCK_NB : LOCK_UN), );
    TRY("lockf", , lockf(f, i & 1 ? F_TLOCK : F_ULOCK, 1), );
    TRY("write", , write(f, block, 10), );
    TRY("pwrite", , pwrite(f, block, sizeof block, 50 * i), );
    int elsewhere;
    SURELY(elsewhere = memfd_create("elsewhere", 0));
    TRY("write elsewhere", , write(elsewhere, block, 10), );
    TRY("pwrite elsewhere", , pwrite(elsewhere, block, 10, 0), );
    TRY("fsync", , fsync(f), );
    TRY("fdatasync", , fdatasync(f), );
    TRY("fsync elsewhere", , fsync(elsewhere), );
    TRY("mmap", , is_null((map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, f, 0)) == MAP_FAILED ? NULL : map), munmap(map, 4096));
    TRY("kill", , kill(getpid(), 0), );
    TRY("connect", SURELY(fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)),
        connect(fd, (struct sockaddr *)&nobody, sizeof nobody) == -1 && errno == EINTR ? -1 : 0, SURELY(close(fd)));
    TRY("raise", , raise(SIGURG) ? -1 : 0, );
    TRY("sigqueue", , sigqueue(getpid(), SIGURG, none), );
    TRY("setsockopt", SURELY(fd = socket(AF_INET, SOCK_STREAM, 0)), setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), SURELY(close(fd)));
    TRY("bind", SURELY(fd = socket(AF_UNIX, SOCK_STREAM, 0)), bind(fd, (struct sockaddr *)&address, sizeof address), SURELY(close(fd)); SURELY(unlink("socket")));
    TRY("listen", SURELY(fd = socket(AF_INET, SOCK_STREAM, 0)), listen(fd, 5), SURELY(close(fd)));
    TRY("shutdown", SURELY(socketpair(AF_UNIX, SOCK_STREAM, 0, pair)), shutdown(pair[0], SHUT_WR), SURELY(close(pair[0])); SURELY(close(pair[1])));
}

static void ends(char *program, int times) {
    static char *const how[] = {"_exit", "exit", "execv"};
    char *arguments[] = {program, NULL};
    for (int kind = 0; kind < 3; kind++) {
        int wrong = 0, status = 0, last = 0;
        for (int i = 0; i < times; i++) {
            pid_t child = fork();
            if (child == 0) {
                signals_every(60);
                if (kind == 0)
                    _exit(0);
                if (kind == 1)
                    exit(0);
                execv(program, arguments);
                _exit(errno == EINTR ? 99 : 98);
            }
            while (waitpid(child, &status, 0) == -1)
                ;
            // The program is ended by the timer, or ends before.
            int is_right = (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                || (kind == 2 && WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
            if (!is_right) {
                wrong++;
                last = status;
            }
        }
        if (wrong)
            printf("%s: %d children ended wrong, the last with %#x\n", how[kind], wrong, last);
        fflush(stdout);
    }
}

int main(int count, char **arguments) {
    if (count != 4)
        return 2;
    int times = atoi(arguments[3]);
    if (strcmp(arguments[1], "ends") == 0) {
        ends(arguments[2], times);
        return 0;
    }
    if (chdir(arguments[2]))
        return 2;
    if (getenv("PROMISED") && (promised = open(getenv("PROMISED"), O_RDWR | O_CREAT, 0644)) < 0)
        return 2;
    calls(times);
    // Fewer would show nothing.
    if (signals < times)
        printf("only %d signals came\n", (int)signals);
    return 0;
}
