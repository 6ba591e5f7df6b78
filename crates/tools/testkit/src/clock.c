/* A clock that is so many ms ahead of the machine's: for a server that is preloaded with this. By
   as many more as the file CLOCK_FILE says at the moment: 8 bytes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead_ms(void) {
    static long ahead;
    static volatile long *more;
    static int is_known;
    if (!is_known) {
        const char *text = getenv("CLOCK_AHEAD_MS");
        const char *path = getenv("CLOCK_FILE");
        int file = path ? open(path, O_RDONLY) : -1;
        ahead = text ? atol(text) : 0;
        if (file >= 0) {
            void *place = mmap(0, sizeof *more, PROT_READ, MAP_SHARED, file, 0);
            if (place != MAP_FAILED) more = place;
            close(file);
        }
        is_known = 1;
    }
    return ahead + (more ? *more : 0);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long ns = now->tv_sec * 1000000000LL + now->tv_nsec + ahead_ms() * 1000000LL;
        now->tv_sec = ns / 1000000000LL;
        now->tv_nsec = ns % 1000000000LL;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    (void)zone;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *place) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (place) *place = now.tv_sec;
    return now.tv_sec;
}
