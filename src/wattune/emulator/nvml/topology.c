/* How the GPUs of a node lie to one another and to the processors: one NUMA node, NVLink between the GPUs that have it. */
#include "call.h"

#include <string.h>
#include <unistd.h>

enum { SCOPES = 2, P2P_KINDS = 6, P2P_NVLINK = 2, P2P_UNKNOWN = 5, LINK_CAPABILITIES = 6, MOST_LINKS = 36 };
enum { P2P_OK = 0, P2P_NOT_SUPPORTED = 5, P2P_STATUS_UNKNOWN = 6 };

EXPORT ret_t nvmlDeviceGetPcieThroughput(handle_t handle, unsigned int counter, unsigned int *value)
{
    BEGIN(device, nvmlDeviceGetPcieThroughput, handle, counter < 3 && value != NULL);
    *value = 0;
    return SUCCESS;
}

/* ---- processors and memory ---- */

static ret_t all_processors(unsigned int words, unsigned long *set)
{
    long cpus = sysconf(_SC_NPROCESSORS_CONF);
    memset(set, 0, words * sizeof *set);
    for (long cpu = 0; cpu < cpus && cpu < (long)words * 64; cpu++)
        set[cpu / 64] |= 1ul << (cpu % 64);
    return SUCCESS;
}

EXPORT ret_t nvmlDeviceGetCpuAffinity(handle_t handle, unsigned int words, unsigned long *set)
{
    BEGIN(device, nvmlDeviceGetCpuAffinity, handle, set != NULL && words > 0);
    return all_processors(words, set);
}

EXPORT ret_t nvmlDeviceGetCpuAffinityWithinScope(handle_t handle, unsigned int words, unsigned long *set,
                                                 unsigned int scope)
{
    BEGIN(device, nvmlDeviceGetCpuAffinityWithinScope, handle, set != NULL && words > 0 && scope < SCOPES);
    return all_processors(words, set);
}

EXPORT ret_t nvmlDeviceGetMemoryAffinity(handle_t handle, unsigned int words, unsigned long *set, unsigned int scope)
{
    BEGIN(device, nvmlDeviceGetMemoryAffinity, handle, set != NULL && words > 0 && scope < SCOPES);
    memset(set, 0, words * sizeof *set);
    set[0] = 1;
    return SUCCESS;
}

/* ---- one GPU and another ---- */

static ret_t find_other(const struct call *call, handle_t handle, const struct device **other)
{
    for (uint32_t index = 0; index < call->node->devices; index++)
        if (handle == handle_of(index)) {
            *other = &call->node->device[index];
            return SUCCESS;
        }
    return INVALID_ARGUMENT;
}

EXPORT ret_t nvmlDeviceGetTopologyCommonAncestor(handle_t handle, handle_t other, unsigned int *level)
{
    BEGIN(device, nvmlDeviceGetTopologyCommonAncestor, handle, level != NULL);
    const struct device *second = NULL;
    ret_t status = find_other(&call, other, &second);
    *level = second == call.device ? 0 : 40; /* the same GPU, or two under one NUMA node */
    return status;
}

EXPORT ret_t nvmlDeviceOnSameBoard(handle_t handle, handle_t other, int *on_same_board)
{
    BEGIN(device, nvmlDeviceOnSameBoard, handle, on_same_board != NULL);
    const struct device *second = NULL;
    ret_t status = find_other(&call, other, &second);
    *on_same_board = second == call.device;
    return status;
}

EXPORT ret_t nvmlDeviceGetP2PStatus(handle_t handle, handle_t other, unsigned int kind, unsigned int *status)
{
    BEGIN(device, nvmlDeviceGetP2PStatus, handle, kind < P2P_KINDS && status != NULL);
    const struct device *second = NULL;
    ret_t found = find_other(&call, other, &second);
    if (found != SUCCESS)
        return found;
    int linked = call.device->links > 0 && second->links > 0;
    *status = kind == P2P_UNKNOWN ? P2P_STATUS_UNKNOWN : kind == P2P_NVLINK && !linked ? P2P_NOT_SUPPORTED : P2P_OK;
    return SUCCESS;
}

/* ---- NVLink ---- */

/* A link that the GPU does not have is one without any capability. */
EXPORT ret_t nvmlDeviceGetNvLinkCapability(handle_t handle, unsigned int link, unsigned int capability,
                                           unsigned int *result)
{
    BEGIN(device, nvmlDeviceGetNvLinkCapability, handle,
          link < MOST_LINKS && capability < LINK_CAPABILITIES && result != NULL);
    if (!(call.device->links > 0))
        return NOT_SUPPORTED;
    *result = link < call.device->links && capability != 4; /* all but SLI */
    return SUCCESS;
}

EXPORT ret_t nvmlDeviceGetNvLinkState(handle_t handle, unsigned int link, unsigned int *active)
{
    BEGIN(device, nvmlDeviceGetNvLinkState, handle, link < MOST_LINKS && active != NULL);
    if (!(call.device->links > 0))
        return NOT_SUPPORTED;
    *active = link < call.device->links;
    return SUCCESS;
}

/* ---- slices ---- */

/* None may exist, since MIG is not enabled. */
EXPORT ret_t nvmlDeviceGetMaxMigDeviceCount(handle_t handle, unsigned int *count)
{
    BEGIN(device, nvmlDeviceGetMaxMigDeviceCount, handle, count != NULL);
    *count = 0;
    return SUCCESS;
}
