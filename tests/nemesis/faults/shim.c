/* LD_PRELOAD: a node's wall clock and its system calls on files, as a control file says while the node runs.

   The file is named by NEMESIS_CONTROL and mapped; `shim.py` writes it. Monotonic clocks are left alone: Python sleeps
   by them. Only calls on regular files under the folder `under` fail; sockets and the node's log do not. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    volatile int64_t clock_offset_ns;
    volatile int32_t failing_syncs, failing_writes, failing_reads; /* calls that are still to fail */
    volatile int32_t error;                                        /* errno of those */
    volatile int32_t sync_delay_ms;
    volatile int32_t failed; /* calls that have failed */
    char under[1024];
};

static struct control *control;

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void attach(void) {
    const char *path = getenv("NEMESIS_CONTROL");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *memory = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory != MAP_FAILED) control = memory;
}

#define REAL(type, name, ...)                          \
    static type (*call)(__VA_ARGS__);                  \
    if (!call) call = (type(*)(__VA_ARGS__))real(name)

/* Clocks. */

int clock_gettime(clockid_t clock, struct timespec *time) {
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    int result = call(clock, time);
    int64_t offset = control ? control->clock_offset_ns : 0;
    if (result == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ns = (int64_t)time->tv_sec * 1000000000 + time->tv_nsec + offset;
        time->tv_sec = ns / 1000000000;
        time->tv_nsec = ns % 1000000000;
    }
    return result;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec, time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

/* Files. */

static int is_under(int file) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    return strncmp(path, control->under, strlen(control->under)) == 0;
}

static int fails(volatile int32_t *left, int file) {
    if (!control || *left <= 0 || !is_under(file) || __sync_fetch_and_sub(left, 1) <= 0) return 0;
    __sync_fetch_and_add(&control->failed, 1);
    errno = control->error;
    return 1;
}

static int sync_fails(int file) {
    if (!control) return 0;
    if (control->sync_delay_ms > 0) usleep((useconds_t)control->sync_delay_ms * 1000);
    return fails(&control->failing_syncs, file);
}

static struct control none;
#define READS (control ? &control->failing_reads : &none.failing_reads)
#define WRITES (control ? &control->failing_writes : &none.failing_writes)

#define SYNC(name)                         \
    int name(int file) {                   \
        REAL(int, #name, int);             \
        return sync_fails(file) ? -1 : call(file); \
    }
SYNC(fsync)
SYNC(fdatasync)
SYNC(syncfs)

#define VECTOR(name, left, offset_type)                                      \
    ssize_t name(int file, const struct iovec *parts, int count, offset_type offset) { \
        REAL(ssize_t, #name, int, const struct iovec *, int, offset_type);   \
        return fails(left, file) ? -1 : call(file, parts, count, offset);    \
    }
VECTOR(pwritev, WRITES, off_t)
VECTOR(pwritev64, WRITES, off64_t)
VECTOR(preadv, READS, off_t)
VECTOR(preadv64, READS, off64_t)

#define VECTOR2(name, left, offset_type)                                              \
    ssize_t name(int file, const struct iovec *parts, int count, offset_type offset, int flags) { \
        REAL(ssize_t, #name, int, const struct iovec *, int, offset_type, int);       \
        return fails(left, file) ? -1 : call(file, parts, count, offset, flags);      \
    }
VECTOR2(pwritev2, WRITES, off_t)
VECTOR2(pwritev64v2, WRITES, off64_t)
VECTOR2(preadv2, READS, off_t)
VECTOR2(preadv64v2, READS, off64_t)

#define PLAIN(name, left, pointer, offset_type)                             \
    ssize_t name(int file, pointer data, size_t size, offset_type offset) { \
        REAL(ssize_t, #name, int, pointer, size_t, offset_type);            \
        return fails(left, file) ? -1 : call(file, data, size, offset);     \
    }
PLAIN(pwrite, WRITES, const void *, off_t)
PLAIN(pwrite64, WRITES, const void *, off64_t)
PLAIN(pread, READS, void *, off_t)
PLAIN(pread64, READS, void *, off64_t)

ssize_t write(int file, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    return fails(WRITES, file) ? -1 : call(file, data, size);
}
