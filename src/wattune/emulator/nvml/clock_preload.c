/* Makes CLOCK_REALTIME follow the virtual time of a node, for programs that time themselves by it.
 *
 * Loaded by LD_PRELOAD beside the emulated library. CLOCK_MONOTONIC stays real, because sleeping and locking need it.
 */
#include "state.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static struct node *the_node;

__attribute__((constructor)) static void map_node(void)
{
    int bad_format;
    the_node = node_map(getenv("WATTUNE_NODE"), &bad_format);
}

static int64_t virtual_realtime_ns(void)
{
    return the_node->realtime_ns + node_now(the_node);
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *time)
{
    int is_realtime = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (!is_realtime || !the_node || !the_node->is_virtual)
        return (int)syscall(SYS_clock_gettime, clock, time);
    int64_t now_ns = virtual_realtime_ns();
    time->tv_sec = now_ns / 1000000000;
    time->tv_nsec = now_ns % 1000000000;
    return 0;
}

EXPORT int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

EXPORT time_t time(time_t *out)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return (time_t)-1;
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
