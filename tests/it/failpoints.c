/* Faults where the program meets the system's files: preloaded by failpoints.rs into the program as it is shipped, so
 * that no operation can be forgotten and nothing of it stands in the product.
 *
 * FAILPOINT_BELOW  a folder without symbolic links in its path; only operations on what lies in it are counted
 * FAILPOINT_AT     the number of the operation at which it happens, from 1 on; none when absent
 * FAILPOINT_DO     kill: the process dies before the operation
 *                  torn: it dies in the middle of it; half of the bytes are written
 *                  stop: it is stopped until it gets SIGCONT, then the operation is done
 *                  hang: the operation never ends
 *                  an errno: the operation fails with it, once
 * FAILPOINT_NAMES  only operations whose "name path" contains this are counted
 * FAILPOINT_LOG    a file that gets "number name path" of each operation
 * FAILPOINT_CLOCK  seconds that the clock of the day goes wrong by; every other look at it is right
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum what { NOTHING, FAIL, TEAR };

static const char *below, *names, *action;
static long at = -1, clock_error;
static int log_file = -1;
static atomic_long counted, looks;

__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("FAILPOINT_LOG");
    if (text) log_file = syscall(SYS_openat, AT_FDCWD, text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    text = getenv("FAILPOINT_AT");
    if (text) at = atol(text);
    text = getenv("FAILPOINT_CLOCK");
    if (text) clock_error = atol(text);
    action = getenv("FAILPOINT_DO");
    names = getenv("FAILPOINT_NAMES");
    below = getenv("FAILPOINT_BELOW");
}

/* The path that a name in a folder stands for; of an open file where the name is empty. */
static const char *path_of(int folder, const char *name, char *room, size_t size) {
    if (name && name[0] == '/') return name;
    char link[64];
    if (folder == AT_FDCWD) strcpy(link, "/proc/self/cwd");
    else snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, room, size - 1);
    if (length < 0) length = 0;
    room[length] = 0;
    if (name && name[0]) snprintf(room + length, size - length, "/%s", name);
    return room;
}

static enum what reach(const char *operation, int folder, const char *name) {
    if (!below) return NOTHING;
    int error = errno;
    char room[2 * PATH_MAX], line[3 * PATH_MAX];
    const char *path = path_of(folder, name, room, sizeof room);
    size_t length = strlen(below);
    enum what what = NOTHING;
    snprintf(line, sizeof line, "%s %s", operation, path);
    if (strncmp(path, below, length) == 0 && (!path[length] || path[length] == '/') && (!names || strstr(line, names))) {
        long number = atomic_fetch_add(&counted, 1) + 1;
        if (log_file >= 0) {
            int end = snprintf(line, sizeof line, "%ld %s %s\n", number, operation, path);
            syscall(SYS_write, log_file, line, end);
        }
        if (number == at && action) {
            if (!strcmp(action, "kill")) kill(getpid(), SIGKILL);
            else if (!strcmp(action, "torn")) what = TEAR;
            else if (!strcmp(action, "stop")) kill(getpid(), SIGSTOP);
            else if (!strcmp(action, "hang"))
                for (;;) pause();
            else {
                errno = atoi(action);
                return FAIL;
            }
        }
    }
    errno = error;
    return what;
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

#define REAL(name) \
    static typeof(name) *real; \
    if (!real) real = (typeof(name) *)dlsym(RTLD_NEXT, #name)
/* An operation that is done whole or not at all: it is torn by dying after it. */
#define WHOLE(operation, folder, path, call, failed) \
    enum what what = reach(operation, folder, path); \
    if (what == FAIL) return failed; \
    typeof(call) result = call; \
    if (what == TEAR) die(); \
    return result

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        WHOLE(flags & O_CREAT ? "create" : "open", AT_FDCWD, path, real(path, flags, mode), -1); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(name); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        WHOLE(flags & O_CREAT ? "create" : "open", folder, path, real(folder, path, flags, mode), -1); \
    }
OPENAT(openat)
OPENAT(openat64)

ssize_t read(int file, void *bytes, size_t count) {
    REAL(read);
    WHOLE("read", file, "", real(file, bytes, count), -1);
}
ssize_t pread64(int file, void *bytes, size_t count, off64_t offset) {
    REAL(pread64);
    WHOLE("read", file, "", real(file, bytes, count, offset), -1);
}
ssize_t readv(int file, const struct iovec *parts, int count) {
    REAL(readv);
    WHOLE("read", file, "", real(file, parts, count), -1);
}
ssize_t write(int file, const void *bytes, size_t count) {
    REAL(write);
    enum what what = reach("write", file, "");
    if (what == FAIL) return -1;
    if (what == TEAR) {
        real(file, bytes, count / 2);
        die();
    }
    return real(file, bytes, count);
}
ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t offset) {
    REAL(pwrite64);
    enum what what = reach("write", file, "");
    if (what == FAIL) return -1;
    if (what == TEAR) {
        real(file, bytes, count / 2, offset);
        die();
    }
    return real(file, bytes, count, offset);
}
ssize_t writev(int file, const struct iovec *parts, int count) {
    REAL(writev);
    WHOLE("write", file, "", real(file, parts, what == TEAR ? (count + 1) / 2 : count), -1);
}
ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t count, unsigned flags) {
    REAL(copy_file_range);
    WHOLE("write", to, "", real(from, from_at, to, to_at, what == TEAR ? (count + 1) / 2 : count, flags), -1);
}
int ftruncate64(int file, off64_t length) {
    REAL(ftruncate64);
    WHOLE("truncate", file, "", real(file, length), -1);
}
int fsync(int file) {
    REAL(fsync);
    WHOLE("flush", file, "", real(file), -1);
}
int fdatasync(int file) {
    REAL(fdatasync);
    WHOLE("flush", file, "", real(file), -1);
}
int flock(int file, int how) {
    REAL(flock);
    WHOLE("lock", file, "", real(file, how), -1);
}
int rename(const char *from, const char *to) {
    REAL(rename);
    WHOLE("rename", AT_FDCWD, to, real(from, to), -1);
}
int unlink(const char *path) {
    REAL(unlink);
    WHOLE("remove", AT_FDCWD, path, real(path), -1);
}
int unlinkat(int folder, const char *path, int flags) {
    REAL(unlinkat);
    WHOLE("remove", folder, path, real(folder, path, flags), -1);
}
int rmdir(const char *path) {
    REAL(rmdir);
    WHOLE("remove", AT_FDCWD, path, real(path), -1);
}
int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    WHOLE("mkdir", AT_FDCWD, path, real(path, mode), -1);
}
DIR *opendir(const char *path) {
    REAL(opendir);
    WHOLE("list", AT_FDCWD, path, real(path), NULL);
}
struct dirent64 *readdir64(DIR *folder) {
    REAL(readdir64);
    WHOLE("list", dirfd(folder), "", real(folder), NULL);
}
int statx(int folder, const char *restrict path, int flags, unsigned mask, struct statx *restrict found) {
    REAL(statx);
    WHOLE("look", folder, path, real(folder, path, flags, mask, found), -1);
}
char *realpath(const char *restrict path, char *restrict room) {
    REAL(realpath);
    WHOLE("look", AT_FDCWD, path, real(path, room), NULL);
}
void *mmap64(void *place, size_t bytes, int protection, int flags, int file, off64_t offset) {
    REAL(mmap64);
    if (file < 0) return real(place, bytes, protection, flags, file, offset);
    WHOLE("map", file, "", real(place, bytes, protection, flags, file, offset), MAP_FAILED);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME && clock_error && atomic_fetch_add(&looks, 1) % 2) now->tv_sec += clock_error;
    return result;
}
