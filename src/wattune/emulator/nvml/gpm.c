/* Counters of what the GPU does, as shares between two samples: from Hopper on. */
#include "call.h"

#include <math.h>
#include <stdlib.h>

enum { GPM_SM_UTIL = 2, GPM_ANY_TENSOR_UTIL = 5, GPM_DRAM_UTIL = 10, GPM_FP32_UTIL = 12 };
enum { HOPPER = 9, GPM_VERSION = 1 };

/* Belongs to the process that asked for it. */
struct gpm_sample {
    struct totals totals;
};

static int has_gpm(const struct call *call)
{
    return call->device->architecture >= HOPPER;
}

EXPORT ret_t nvmlGpmQueryDeviceSupport(handle_t handle, struct gpm_support *support)
{
    BEGIN(device, nvmlGpmQueryDeviceSupport, handle, support != NULL);
    if (support->version != GPM_VERSION)
        return ARGUMENT_VERSION_MISMATCH;
    support->is_supported = (unsigned int)has_gpm(&call);
    return SUCCESS;
}

EXPORT ret_t nvmlGpmSampleAlloc(struct gpm_sample **sample)
{
    struct call call;
    ret_t begun = call_node(&call, FN_nvmlGpmSampleAlloc, sample != NULL);
    if (begun != SUCCESS)
        return begun;
    *sample = calloc(1, sizeof **sample);
    return *sample ? SUCCESS : INSUFFICIENT_SIZE;
}

EXPORT ret_t nvmlGpmSampleFree(struct gpm_sample *sample)
{
    struct call call;
    ret_t begun = call_node(&call, FN_nvmlGpmSampleFree, sample != NULL);
    if (begun == SUCCESS)
        free(sample);
    return begun;
}

EXPORT ret_t nvmlGpmSampleGet(handle_t handle, struct gpm_sample *sample)
{
    BEGIN(locked, nvmlGpmSampleGet, handle, sample != NULL);
    if (!has_gpm(&call))
        return call_end(&call, NOT_SUPPORTED);
    sample->totals = model_totals(call.device, call.now_ns);
    return call_end(&call, SUCCESS);
}

/* The seconds of a metric between two samples; negative where the simulated part has no such unit. */
static double used_s(unsigned int metric, const struct totals *from, const struct totals *to)
{
    switch (metric) {
    case GPM_SM_UTIL:
        return to->busy_s - from->busy_s;
    case GPM_ANY_TENSOR_UTIL:
        return to->tensor_s - from->tensor_s;
    case GPM_DRAM_UTIL:
        return to->mem_busy_s - from->mem_busy_s;
    case GPM_FP32_UTIL:
        return to->fp32_s - from->fp32_s;
    default:
        return -1;
    }
}

EXPORT ret_t nvmlGpmMetricsGet(struct gpm_metrics *asked)
{
    struct call call;
    ret_t begun = call_node(&call, FN_nvmlGpmMetricsGet, asked && asked->first && asked->second);
    if (begun != SUCCESS)
        return begun;
    if (asked->version != GPM_VERSION)
        return ARGUMENT_VERSION_MISMATCH;
    const struct totals *from = &asked->first->totals, *to = &asked->second->totals;
    double time_s = to->time_s - from->time_s;
    if (time_s <= 0)
        return INVALID_ARGUMENT;
    for (unsigned int index = 0; index < asked->count; index++) {
        struct gpm_metric *metric = &asked->metric[index];
        double seconds = used_s(metric->metric, from, to);
        metric->status = seconds < -0.5 ? NOT_SUPPORTED : SUCCESS;
        metric->value = fmin(fmax(100 * seconds / time_s, 0), 100);
    }
    return SUCCESS;
}
