/* Clocks that take a while: the old ones hold until the new ones take over. What is asked for while a change is on its
 * way goes with it. A power limit is the firmware's and holds at once. */
#include "state.h"

#include <math.h>
#include <string.h>

static struct clocks asked(const struct device *device)
{
    return (struct clocks){device->lock_min_mhz, device->lock_max_mhz, device->lock_mem_max_mhz, device->app_sm_mhz,
                           device->app_mem_mhz};
}

static int is_same(const struct clocks *a, const struct clocks *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Lognormal around its median, drawn for every change; always the same for the same change of the same GPU. */
static double wait_s(const struct device *device, double median_s, int64_t salt)
{
    double first = (sensor_noise(device, (int64_t)device->changes, salt) + 1) / 2;
    double second = sensor_noise(device, (int64_t)device->changes, salt + 1);
    double normal = sqrt(-2 * log(fmax(first, 1e-12))) * cos(3.14159265358979323846 * second);
    return median_s * exp(device->wait_spread * normal);
}

static double delay_s(const struct device *device, const struct clocks *from, const struct clocks *to)
{
    double core_s = 0, memory_s = 0;
    if (from->min_mhz != to->min_mhz || from->max_mhz != to->max_mhz || from->app_sm_mhz != to->app_sm_mhz)
        core_s = wait_s(device, device->sm_wait_s, 1);
    if (from->mem_max_mhz != to->mem_max_mhz || from->app_mem_mhz != to->app_mem_mhz)
        memory_s = wait_s(device, device->mem_wait_s, 3);
    return fmax(core_s, memory_s);
}

static void take_over(struct device *device, int64_t time_ns)
{
    device->held = asked(device);
    device->due_ns = NEVER;
    device->changes++;
    model_refresh(device, time_ns);
}

/* A change of the controls, made now. */
void switching_ask(struct device *device, int64_t now_ns)
{
    if (device->refusal == CHANGES_IGNORED)
        return;
    struct clocks wanted = asked(device);
    double seconds = is_same(&wanted, &device->held) ? 0 : delay_s(device, &device->held, &wanted);
    if (seconds <= 0) {
        take_over(device, now_ns);
        return;
    }
    if (device->due_ns == NEVER)
        device->due_ns = now_ns + (int64_t)llround(seconds * 1e9);
    model_refresh(device, now_ns);
}

/* Lets a change take over whose time has come, at that time; and one that a killed writer left behind, from now on. */
void switching_settle(struct device *device, int64_t now_ns)
{
    struct clocks wanted = asked(device);
    if (device->due_ns <= now_ns)
        take_over(device, device->due_ns);
    else if (device->due_ns == NEVER && !is_same(&wanted, &device->held))
        switching_ask(device, now_ns);
}
