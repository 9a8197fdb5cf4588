/* How long settings and counters last: settings as long as the driver has a client or persistence mode is on, both until
 * the GPU is reset. */
#include "state.h"

#include <errno.h>
#include <signal.h>

static int is_alive(int32_t pid)
{
    return pid > 0 && (kill(pid, 0) == 0 || errno != ESRCH);
}

static int is_used(const struct node *node, const struct device *device)
{
    for (unsigned int index = 0; index < MAX_CLIENTS; index++)
        if (is_alive(node->client[index]))
            return 1;
    for (unsigned int index = 0; index < MAX_PROCESSES; index++)
        if (is_alive(device->process[index].pid))
            return 1;
    return 0;
}

static int is_set(const struct device *device)
{
    return device->lock_max_mhz || device->lock_mem_max_mhz || device->app_sm_mhz ||
           device->power_limit_w != device->limit_default_w;
}

static void forget(struct device *device, int64_t now_ns)
{
    if (!is_set(device))
        return;
    device->lock_min_mhz = device->lock_max_mhz = device->lock_mem_min_mhz = device->lock_mem_max_mhz = 0;
    device->app_sm_mhz = device->app_mem_mhz = 0;
    device->power_limit_w = device->limit_default_w;
    switching_ask(device, now_ns);
}

/* The counter counts from zero since the reset. */
static void restart_counter(struct device *device, int64_t reset_ns)
{
    double spent_j = model_totals(device, reset_ns).energy_j;
    device->counter_start_j = -(device->gain * spent_j + device->offset_w * (double)reset_ns * 1e-9);
}

/* Brings a device to the present: a reset whose time has come, settings that nobody keeps, clocks that take over. */
void lifetime_settle(struct node *node, struct device *device, int64_t now_ns)
{
    if (device->reset_ns <= now_ns) {
        restart_counter(device, device->reset_ns);
        device->reset_ns = NEVER;
        forget(device, now_ns);
    }
    if (!device->persistence && !is_used(node, device))
        forget(device, now_ns);
    switching_settle(device, now_ns);
}

static void settle_all(struct node *node)
{
    int64_t now_ns = node_now(node);
    for (uint32_t index = 0; index < node->devices; index++)
        lifetime_settle(node, &node->device[index], now_ns);
}

/* A process initialises NVML; what dead clients left is forgotten first. */
void lifetime_join(struct node *node, int32_t pid)
{
    settle_all(node);
    for (unsigned int index = 0; index < MAX_CLIENTS; index++)
        if (!is_alive(node->client[index]) || node->client[index] == pid) {
            node->client[index] = pid;
            return;
        }
}

void lifetime_leave(struct node *node, int32_t pid)
{
    for (unsigned int index = 0; index < MAX_CLIENTS; index++)
        if (node->client[index] == pid)
            node->client[index] = 0;
    settle_all(node);
}
