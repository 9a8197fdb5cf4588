/* The library as a whole: initialising, versions, error texts, and what every call has in common. */
#include "call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char DRIVER[] = "570.00.00"; /* the form of a driver of 2025; no release has this number */

static pthread_mutex_t init_mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned int init_count;
static struct node *the_node;
static char handles[MAX_DEVICES];

/* Blocks and fails as the node was told to for this function, the interpreter of the caller being free meanwhile. */
static ret_t injected(struct node *node, enum function function)
{
    struct injection *injection = &node->injection[function];
    int64_t blocking_ns = atomic_load_explicit(&injection->blocking_ns, memory_order_relaxed);
    struct timespec left = {blocking_ns / 1000000000, blocking_ns % 1000000000};
    while (blocking_ns > 0 && nanosleep(&left, &left) != 0)
        continue;
    return atomic_load_explicit(&injection->code, memory_order_relaxed);
}

/* ---- initialising ---- */

/* Without the variable there is no node to be a driver of: as if no driver were installed. */
static ret_t map_node(void)
{
    int bad_format;
    const char *path = getenv("WATTUNE_NODE");
    if (!path || !*path)
        return LIBRARY_NOT_FOUND;
    struct node *node = node_map(path, &bad_format);
    if (!node)
        return bad_format ? LIB_RM_VERSION_MISMATCH : DRIVER_NOT_LOADED;
    if (the_node)
        node_unmap(the_node);
    the_node = node;
    return SUCCESS;
}

static ret_t initialise(enum function function)
{
    pthread_mutex_lock(&init_mutex);
    ret_t status = init_count ? SUCCESS : map_node();
    if (status == SUCCESS) {
        atomic_fetch_add_explicit(&the_node->calls[function], 1, memory_order_relaxed);
        status = injected(the_node, function);
    }
    if (status == SUCCESS && init_count++ == 0) {
        node_lock(the_node);
        lifetime_join(the_node, getpid());
        node_unlock(the_node);
    }
    pthread_mutex_unlock(&init_mutex);
    return status;
}

EXPORT ret_t nvmlInit(void)
{
    return initialise(FN_nvmlInit);
}

EXPORT ret_t nvmlInit_v2(void)
{
    return initialise(FN_nvmlInit_v2);
}

EXPORT ret_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    return initialise(FN_nvmlInitWithFlags);
}

/* The mapping stays until the next initialising, for the sake of threads that are still inside. */
EXPORT ret_t nvmlShutdown(void)
{
    pthread_mutex_lock(&init_mutex);
    ret_t status = init_count ? SUCCESS : UNINITIALIZED;
    if (init_count) {
        atomic_fetch_add_explicit(&the_node->calls[FN_nvmlShutdown], 1, memory_order_relaxed);
        if (--init_count == 0) {
            node_lock(the_node);
            lifetime_leave(the_node, getpid());
            node_unlock(the_node);
        }
    }
    pthread_mutex_unlock(&init_mutex);
    return status;
}

/* ---- what calls have in common ---- */

static void wait_latency(int64_t latency_ns)
{
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - start.tv_sec) * INT64_C(1000000000) + now.tv_nsec - start.tv_nsec < latency_ns);
}

ret_t call_node(struct call *call, enum function function, int good)
{
    if (!__atomic_load_n(&init_count, __ATOMIC_ACQUIRE))
        return UNINITIALIZED;
    call->node = the_node;
    call->device = NULL;
    atomic_fetch_add_explicit(&the_node->calls[function], 1, memory_order_relaxed);
    if (the_node->latency_ns)
        wait_latency(the_node->latency_ns);
    ret_t status = injected(the_node, function);
    call->now_ns = node_now(the_node);
    return status != SUCCESS || good ? status : INVALID_ARGUMENT;
}

ret_t device_fault(const struct device *device, int64_t now_ns)
{
    return now_ns >= device->lost_ns ? GPU_IS_LOST : device->fault;
}

ret_t call_device(struct call *call, enum function function, handle_t handle, int good)
{
    ret_t status = call_node(call, function, good);
    if (status != SUCCESS)
        return status;
    const char *place = handle;
    if (place < handles || place >= handles + the_node->devices)
        return INVALID_ARGUMENT;
    call->device = &the_node->device[place - handles];
    return device_fault(call->device, call->now_ns);
}

ret_t call_locked(struct call *call, enum function function, handle_t handle, int good)
{
    ret_t status = call_device(call, function, handle, good);
    if (status != SUCCESS)
        return status;
    node_lock(call->node);
    call->now_ns = node_now(call->node); /* again, because time must not run backwards between callers */
    lifetime_settle(call->node, call->device, call->now_ns);
    return SUCCESS;
}

static int is_privileged(const struct node *node)
{
    return node->privilege == PRIVILEGE_GRANTED || (node->privilege == PRIVILEGE_EUID && geteuid() == 0);
}

ret_t call_change(struct call *call, enum function function, handle_t handle, int good)
{
    ret_t status = call_device(call, function, handle, good);
    if (status != SUCCESS)
        return status;
    if (!is_privileged(call->node))
        return NO_PERMISSION;
    if (call->device->refusal > 0)
        return call->device->refusal;
    node_lock(call->node);
    call->now_ns = node_now(call->node);
    lifetime_settle(call->node, call->device, call->now_ns);
    return SUCCESS;
}

ret_t call_end(struct call *call, ret_t status)
{
    node_unlock(call->node);
    return status;
}

ret_t call_changed(struct call *call)
{
    switching_ask(call->device, call->now_ns);
    return call_end(call, SUCCESS);
}

handle_t handle_of(uint32_t index)
{
    return &handles[index];
}

ret_t copy_text(char *to, unsigned int size, const char *from)
{
    if (strlen(from) + 1 > size)
        return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

/* A time of the node as microseconds since 1970, which is how NVML stamps samples. */
unsigned long long wall_us(const struct node *node, int64_t time_ns)
{
    return (unsigned long long)((node->realtime_ns + time_ns) / 1000);
}

/* ---- the system ---- */

EXPORT ret_t nvmlSystemGetDriverVersion(char *version, unsigned int size)
{
    BEGIN(node, nvmlSystemGetDriverVersion, version != NULL);
    return copy_text(version, size, DRIVER);
}

EXPORT ret_t nvmlSystemGetNVMLVersion(char *version, unsigned int size)
{
    BEGIN(node, nvmlSystemGetNVMLVersion, version != NULL);
    char text[TEXT];
    snprintf(text, sizeof text, "12.%s", DRIVER);
    return copy_text(version, size, text);
}

static ret_t cuda_version(int *version)
{
    *version = 12080;
    return SUCCESS;
}

EXPORT ret_t nvmlSystemGetCudaDriverVersion(int *version)
{
    BEGIN(node, nvmlSystemGetCudaDriverVersion, version != NULL);
    return cuda_version(version);
}

EXPORT ret_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    BEGIN(node, nvmlSystemGetCudaDriverVersion_v2, version != NULL);
    return cuda_version(version);
}

EXPORT ret_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int size)
{
    BEGIN(node, nvmlSystemGetProcessName, name != NULL && size > 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return NOT_FOUND;
    size_t length = fread(name, 1, size - 1, file); /* arguments end in NUL, so the first one is the name */
    name[length] = 0;
    fclose(file);
    return SUCCESS;
}

EXPORT ret_t nvmlUnitGetCount(unsigned int *count)
{
    BEGIN(node, nvmlUnitGetCount, count != NULL);
    *count = 0;
    return SUCCESS;
}

/* ---- for wattune itself ---- */

EXPORT int wattuneIsEmulated(void)
{
    return 1;
}

EXPORT int wattuneMaySet(void)
{
    return the_node && is_privileged(the_node);
}

EXPORT int wattuneClockIsVirtual(void)
{
    return the_node && the_node->is_virtual;
}

/* Nanoseconds since the node was made, or -1 before nvmlInit. */
EXPORT int64_t wattuneNowNs(void)
{
    return the_node ? node_now(the_node) : -1;
}
