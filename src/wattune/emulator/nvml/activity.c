/* What a GPU is busy with: temperature, utilisation, memory and processes. */
#include "call.h"

#include <errno.h>
#include <math.h>
#include <signal.h>

/* ---- temperature ---- */

static int degrees(const struct call *call)
{
    return (int)lround(model_temperature_c(call->device, call->now_ns));
}

EXPORT ret_t nvmlDeviceGetTemperature(handle_t handle, unsigned int sensor, unsigned int *temperature_c)
{
    BEGIN(locked, nvmlDeviceGetTemperature, handle, sensor == 0 && temperature_c != NULL);
    *temperature_c = (unsigned int)degrees(&call);
    return call_end(&call, SUCCESS);
}

EXPORT ret_t nvmlDeviceGetTemperatureV(handle_t handle, struct temperature_v1 *temperature)
{
    BEGIN(locked, nvmlDeviceGetTemperatureV, handle, temperature != NULL);
    if (temperature->version != STRUCT_VERSION(struct temperature_v1, 1u))
        return call_end(&call, ARGUMENT_VERSION_MISMATCH);
    if (temperature->sensor != 0)
        return call_end(&call, INVALID_ARGUMENT);
    temperature->temperature_c = degrees(&call);
    return call_end(&call, SUCCESS);
}

/* Shutdown, slowdown, memory and GPU maximum. The last is the one that the part keeps; the others lie above it as far as
 * on an A100. */
EXPORT ret_t nvmlDeviceGetTemperatureThreshold(handle_t handle, unsigned int kind, unsigned int *temperature_c)
{
    static const unsigned int ABOVE_C[] = {7, 4, 10, 0};
    BEGIN(device, nvmlDeviceGetTemperatureThreshold, handle, kind < 8 && temperature_c != NULL);
    if (kind >= sizeof ABOVE_C / sizeof *ABOVE_C)
        return NOT_SUPPORTED;
    *temperature_c = (unsigned int)lround(call.device->slowdown_c) + ABOVE_C[kind];
    return SUCCESS;
}

/* A fan that turns faster the warmer the part is; passive parts have none. */
static ret_t fan_percent(const struct call *call, unsigned int *percent)
{
    if (!call->device->has_fan)
        return NOT_SUPPORTED;
    *percent = (unsigned int)fmin(fmax(30 + 2.0 * (degrees(call) - 50), 30), 100);
    return SUCCESS;
}

EXPORT ret_t nvmlDeviceGetFanSpeed(handle_t handle, unsigned int *percent)
{
    BEGIN(locked, nvmlDeviceGetFanSpeed, handle, percent != NULL);
    return call_end(&call, fan_percent(&call, percent));
}

EXPORT ret_t nvmlDeviceGetFanSpeed_v2(handle_t handle, unsigned int fan, unsigned int *percent)
{
    BEGIN(locked, nvmlDeviceGetFanSpeed_v2, handle, percent != NULL);
    if (call.device->has_fan && fan > 0)
        return call_end(&call, INVALID_ARGUMENT);
    return call_end(&call, fan_percent(&call, percent));
}

/* ---- utilisation ---- */

static struct utilization utilization_of(const struct call *call)
{
    double sm, mem;
    sensor_utilisation(call->device, call->now_ns, &sm, &mem);
    return (struct utilization){(unsigned int)lround(100 * sm), (unsigned int)lround(100 * mem)};
}

EXPORT ret_t nvmlDeviceGetUtilizationRates(handle_t handle, struct utilization *utilization)
{
    BEGIN(locked, nvmlDeviceGetUtilizationRates, handle, utilization != NULL);
    *utilization = utilization_of(&call);
    return call_end(&call, SUCCESS);
}

EXPORT ret_t nvmlDeviceGetEncoderUtilization(handle_t handle, unsigned int *percent, unsigned int *period_us)
{
    BEGIN(device, nvmlDeviceGetEncoderUtilization, handle, percent != NULL && period_us != NULL);
    *percent = 0;
    *period_us = 166667;
    return SUCCESS;
}

EXPORT ret_t nvmlDeviceGetDecoderUtilization(handle_t handle, unsigned int *percent, unsigned int *period_us)
{
    BEGIN(device, nvmlDeviceGetDecoderUtilization, handle, percent != NULL && period_us != NULL);
    *percent = 0;
    *period_us = 166667;
    return SUCCESS;
}

/* ---- processes ---- */

static int is_alive(const struct process *process)
{
    return process->pid > 0 && (kill(process->pid, 0) == 0 || errno != ESRCH);
}

/* The living users of a GPU, at most MAX_PROCESSES. */
static unsigned int living(const struct device *device, struct process *found)
{
    unsigned int count = 0;
    for (unsigned int index = 0; index < MAX_PROCESSES; index++)
        if (is_alive(&device->process[index]))
            found[count++] = device->process[index];
    return count;
}

/* The number of a process as the driver knows it, which in a container is another one. */
static unsigned int shown_pid(const struct call *call, const struct process *process)
{
    return (unsigned int)(process->pid + call->node->pid_shift);
}

/* Room in the caller's list: *count is set to what is there, and INSUFFICIENT_SIZE says that it does not fit. */
static ret_t fit(unsigned int *count, unsigned int there, const void *list)
{
    unsigned int room = *count;
    *count = there;
    return there == 0 ? SUCCESS : (!list || room < there ? INSUFFICIENT_SIZE : SUCCESS);
}

static ret_t list_v1(struct call *call, unsigned int *count, struct process_v1 *list)
{
    struct process found[MAX_PROCESSES];
    ret_t status = fit(count, living(call->device, found), list);
    for (unsigned int index = 0; status == SUCCESS && index < *count; index++)
        list[index] = (struct process_v1){shown_pid(call, &found[index]), found[index].memory_bytes};
    return call_end(call, status);
}

static ret_t list_v2(struct call *call, unsigned int *count, struct process_v2 *list)
{
    const unsigned int none = 0xffffffffu; /* no MIG instance */
    struct process found[MAX_PROCESSES];
    ret_t status = fit(count, living(call->device, found), list);
    for (unsigned int index = 0; status == SUCCESS && index < *count; index++)
        list[index] = (struct process_v2){shown_pid(call, &found[index]), found[index].memory_bytes, none, none};
    return call_end(call, status);
}

EXPORT ret_t nvmlDeviceGetComputeRunningProcesses(handle_t handle, unsigned int *count, struct process_v1 *list)
{
    BEGIN(locked, nvmlDeviceGetComputeRunningProcesses, handle, count != NULL);
    return list_v1(&call, count, list);
}

EXPORT ret_t nvmlDeviceGetComputeRunningProcesses_v2(handle_t handle, unsigned int *count, struct process_v2 *list)
{
    BEGIN(locked, nvmlDeviceGetComputeRunningProcesses_v2, handle, count != NULL);
    return list_v2(&call, count, list);
}

EXPORT ret_t nvmlDeviceGetComputeRunningProcesses_v3(handle_t handle, unsigned int *count, struct process_v2 *list)
{
    BEGIN(locked, nvmlDeviceGetComputeRunningProcesses_v3, handle, count != NULL);
    return list_v2(&call, count, list);
}

/* Nobody draws on these GPUs or shares them by MPS. */
#define NOBODY(name)                                                        \
    EXPORT ret_t name(handle_t handle, unsigned int *count, void *list)     \
    {                                                                       \
        (void)list;                                                         \
        BEGIN(device, name, handle, count != NULL);                         \
        *count = 0;                                                         \
        return SUCCESS;                                                     \
    }

NOBODY(nvmlDeviceGetGraphicsRunningProcesses)
NOBODY(nvmlDeviceGetGraphicsRunningProcesses_v2)
NOBODY(nvmlDeviceGetGraphicsRunningProcesses_v3)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses_v3)

/* The first living process is taken to run the load; the others only hold memory. */
EXPORT ret_t nvmlDeviceGetProcessUtilization(handle_t handle, struct process_utilization *list, unsigned int *count,
                                             unsigned long long seen_us)
{
    BEGIN(locked, nvmlDeviceGetProcessUtilization, handle, count != NULL);
    unsigned long long now_us = wall_us(call.node, call.now_ns);
    struct process found[MAX_PROCESSES];
    unsigned int there = living(call.device, found);
    if (!there || now_us <= seen_us)
        return call_end(&call, NOT_FOUND);
    ret_t status = fit(count, there, list);
    struct utilization busy = utilization_of(&call);
    for (unsigned int index = 0; status == SUCCESS && index < there; index++) {
        struct utilization share = index ? (struct utilization){0, 0} : busy;
        list[index] = (struct process_utilization){
            .pid = shown_pid(&call, &found[index]), .timestamp_us = now_us, .sm = share.gpu, .memory = share.memory};
    }
    return call_end(&call, status);
}

/* ---- memory ---- */

static struct memory_v2 memory_of(const struct call *call)
{
    struct process found[MAX_PROCESSES];
    unsigned int count = living(call->device, found);
    unsigned long long used = 0, total = (unsigned long long)call->device->memory_bytes;
    unsigned long long reserved = (unsigned long long)call->device->reserved_bytes;
    for (unsigned int index = 0; index < count; index++)
        used += found[index].memory_bytes;
    used = used > total - reserved ? total - reserved : used;
    return (struct memory_v2){.total = total, .reserved = reserved, .free = total - reserved - used, .used = used};
}

EXPORT ret_t nvmlDeviceGetMemoryInfo(handle_t handle, struct memory *memory)
{
    BEGIN(locked, nvmlDeviceGetMemoryInfo, handle, memory != NULL);
    struct memory_v2 all = memory_of(&call);
    *memory = (struct memory){.total = all.total, .free = all.free, .used = all.used + all.reserved};
    return call_end(&call, SUCCESS);
}

EXPORT ret_t nvmlDeviceGetMemoryInfo_v2(handle_t handle, struct memory_v2 *memory)
{
    BEGIN(locked, nvmlDeviceGetMemoryInfo_v2, handle, memory != NULL);
    unsigned int version = STRUCT_VERSION(struct memory_v2, 2u);
    if (memory->version != version)
        return call_end(&call, ARGUMENT_VERSION_MISMATCH);
    *memory = memory_of(&call);
    memory->version = version;
    return call_end(&call, SUCCESS);
}
