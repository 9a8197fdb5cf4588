/* Looking into a node from outside: controls in force, faults, counted calls, and what only the tests ask for. */
#include "call.h"

#include <string.h>
#include <unistd.h>

EXPORT int wattuneControls(struct node *node, unsigned int device, uint32_t clocks_mhz[6], double *power_limit_w)
{
    struct device *this = &node->device[device];
    node_lock(node);
    lifetime_settle(node, this, node_now(node));
    const uint32_t found[6] = {this->lock_min_mhz,     this->lock_max_mhz, this->lock_mem_min_mhz,
                               this->lock_mem_max_mhz, this->app_sm_mhz,   this->app_mem_mhz};
    memcpy(clocks_mhz, found, sizeof found);
    *power_limit_w = this->power_limit_w;
    node_unlock(node);
    return (int)this->persistence;
}

/* Every call on the device gives this code, or 15 (lost) from that time of the node on. */
EXPORT void wattuneFault(struct node *node, unsigned int device, int code, int64_t lost_ns)
{
    node_lock(node);
    node->device[device].fault = code;
    node->device[device].lost_ns = lost_ns;
    node_unlock(node);
}

/* Lets every change on a GPU fail with an error, or be ignored. */
EXPORT void wattuneRefuse(struct node *node, unsigned int device, int refusal)
{
    node_lock(node);
    node->device[device].refusal = refusal;
    node_unlock(node);
}

/* Resets a GPU at a time: its counter starts from zero and its settings are gone. */
EXPORT void wattuneReset(struct node *node, unsigned int device, int64_t reset_ns)
{
    node_lock(node);
    node->device[device].reset_ns = reset_ns;
    node_unlock(node);
}

/* Lets a function block and then fail, where the code is not 0. */
EXPORT void wattuneInject(struct node *node, unsigned int function, int code, int64_t blocking_ns)
{
    atomic_store_explicit(&node->injection[function].code, code, memory_order_relaxed);
    atomic_store_explicit(&node->injection[function].blocking_ns, blocking_ns, memory_order_relaxed);
}

/* Reports processes by other numbers, as a driver does to a container. */
EXPORT void wattuneShiftPids(struct node *node, int shift)
{
    node->pid_shift = shift;
}

static const struct {
    const char *name;
    char kind;
} CALLS[] = {
#define META(name) {#name, 'm'},
#define GET(name) {#name, 'g'},
#define SET(name) {#name, 's'},
#define STUB(name) {#name, 'x'},
#include "functions.inc"
#include "stubs.inc"
};

_Static_assert((int)FUNCTIONS <= (int)MAX_FUNCTIONS, "the node counts calls of every function");

EXPORT unsigned int wattuneFunctions(void)
{
    return FUNCTIONS;
}

EXPORT const char *wattuneFunctionName(unsigned int function)
{
    return CALLS[function].name;
}

/* 'g' for a getter, 's' for a setter, 'm' for neither, 'x' for a function without behaviour. */
EXPORT char wattuneFunctionKind(unsigned int function)
{
    return CALLS[function].kind;
}

EXPORT uint64_t wattuneCalls(struct node *node, unsigned int function)
{
    return atomic_load_explicit(&node->calls[function], memory_order_relaxed);
}

/* Ends this process as SIGKILL would in the middle of setting a lock; for the tests. */
EXPORT void wattuneDieSetting(struct node *node, unsigned int device, unsigned int sm_mhz)
{
    node_lock(node);
    node->device[device].lock_min_mhz = node->device[device].lock_max_mhz = sm_mhz;
    _exit(0);
}

/* The size of a structure of the interface, or 0; for the tests. */
EXPORT size_t wattuneSizeOf(const char *name)
{
#define SIZE(type) {#type, sizeof(struct type)}
    static const struct {
        const char *name;
        size_t size;
    } SIZES[] = {
        SIZE(field_value),  SIZE(sample),     SIZE(pci_info_v2),    SIZE(pci_info_v3),    SIZE(pci_info_ext),
        SIZE(memory),       SIZE(memory_v2),  SIZE(utilization),    SIZE(process_v1),     SIZE(process_v2),
        SIZE(c2c_mode),     SIZE(process_utilization), SIZE(violation_time), SIZE(temperature_v1), SIZE(power_value_v2),
        SIZE(gpm_support),  SIZE(gpm_metric),
    };
    for (size_t index = 0; index < sizeof SIZES / sizeof *SIZES; index++)
        if (!strcmp(SIZES[index].name, name))
            return SIZES[index].size;
    return 0;
}
