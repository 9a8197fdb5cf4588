/* Clocks: what holds, what may be had, what was asked for, and why the first differs from the last. */
#include "call.h"

static unsigned int highest_mhz(const struct device *device)
{
    const struct row *row = &device->row[0];
    return row->sm_mhz[row->columns - 1];
}

static ret_t clock_now(const struct device *device, unsigned int kind, unsigned int *mhz)
{
    const struct segment *segment = model_segment(device);
    const struct row *row = &device->row[segment->row];
    if (kind > CLOCK_MEM)
        return kind > CLOCK_VIDEO ? INVALID_ARGUMENT : NOT_SUPPORTED;
    *mhz = kind == CLOCK_MEM ? row->mem_mhz : row->sm_mhz[segment->column];
    return SUCCESS;
}

static ret_t clock_max(const struct device *device, unsigned int kind, unsigned int *mhz)
{
    if (kind > CLOCK_MEM)
        return kind > CLOCK_VIDEO ? INVALID_ARGUMENT : NOT_SUPPORTED;
    *mhz = kind == CLOCK_MEM ? device->row[0].mem_mhz : highest_mhz(device);
    return SUCCESS;
}

static ret_t clock_asked(const struct device *device, unsigned int kind, unsigned int *mhz)
{
    ret_t status = clock_max(device, kind, mhz);
    unsigned int asked = kind == CLOCK_MEM ? device->app_mem_mhz : device->app_sm_mhz;
    if (status == SUCCESS && asked)
        *mhz = asked;
    return status;
}

EXPORT ret_t nvmlDeviceGetClockInfo(handle_t handle, unsigned int kind, unsigned int *mhz)
{
    BEGIN(locked, nvmlDeviceGetClockInfo, handle, mhz != NULL);
    return call_end(&call, clock_now(call.device, kind, mhz));
}

EXPORT ret_t nvmlDeviceGetMaxClockInfo(handle_t handle, unsigned int kind, unsigned int *mhz)
{
    BEGIN(device, nvmlDeviceGetMaxClockInfo, handle, mhz != NULL);
    return clock_max(call.device, kind, mhz);
}

EXPORT ret_t nvmlDeviceGetMaxCustomerBoostClock(handle_t handle, unsigned int kind, unsigned int *mhz)
{
    BEGIN(device, nvmlDeviceGetMaxCustomerBoostClock, handle, mhz != NULL);
    return clock_max(call.device, kind, mhz);
}

EXPORT ret_t nvmlDeviceGetClock(handle_t handle, unsigned int kind, unsigned int which, unsigned int *mhz)
{
    BEGIN(locked, nvmlDeviceGetClock, handle, mhz != NULL);
    switch (which) {
    case CLOCK_ID_CURRENT:
        return call_end(&call, clock_now(call.device, kind, mhz));
    case CLOCK_ID_APP_TARGET:
        return call_end(&call, clock_asked(call.device, kind, mhz));
    case CLOCK_ID_APP_DEFAULT:
    case CLOCK_ID_BOOST_MAX:
        return call_end(&call, clock_max(call.device, kind, mhz));
    default:
        return call_end(&call, INVALID_ARGUMENT);
    }
}

/* ---- what may be had: the highest first, as the driver lists them ---- */

EXPORT ret_t nvmlDeviceGetSupportedMemoryClocks(handle_t handle, unsigned int *count, unsigned int *mhz)
{
    BEGIN(device, nvmlDeviceGetSupportedMemoryClocks, handle, count != NULL);
    const struct device *device = call.device;
    if (!device->can_lock_sm)
        return NOT_SUPPORTED;
    unsigned int room = *count;
    *count = device->rows;
    if (!mhz || room < device->rows)
        return INSUFFICIENT_SIZE;
    for (uint32_t row = 0; row < device->rows; row++)
        mhz[row] = device->row[row].mem_mhz;
    return SUCCESS;
}

static const struct row *row_of(const struct device *device, unsigned int mem_mhz)
{
    for (uint32_t row = 0; row < device->rows; row++)
        if (device->row[row].mem_mhz == mem_mhz)
            return &device->row[row];
    return NULL;
}

EXPORT ret_t nvmlDeviceGetSupportedGraphicsClocks(handle_t handle, unsigned int mem_mhz, unsigned int *count,
                                                  unsigned int *mhz)
{
    BEGIN(device, nvmlDeviceGetSupportedGraphicsClocks, handle, count != NULL);
    if (!call.device->can_lock_sm)
        return NOT_SUPPORTED;
    const struct row *row = row_of(call.device, mem_mhz);
    if (!row)
        return NOT_FOUND;
    unsigned int room = *count;
    *count = row->columns;
    if (!mhz || room < row->columns)
        return INSUFFICIENT_SIZE;
    for (uint32_t column = 0; column < row->columns; column++)
        mhz[column] = row->sm_mhz[row->columns - 1 - column];
    return SUCCESS;
}

/* ---- applications clocks ---- */

EXPORT ret_t nvmlDeviceGetApplicationsClock(handle_t handle, unsigned int kind, unsigned int *mhz)
{
    BEGIN(locked, nvmlDeviceGetApplicationsClock, handle, mhz != NULL);
    return call_end(&call, call.device->can_lock_sm ? clock_asked(call.device, kind, mhz) : NOT_SUPPORTED);
}

EXPORT ret_t nvmlDeviceGetDefaultApplicationsClock(handle_t handle, unsigned int kind, unsigned int *mhz)
{
    BEGIN(device, nvmlDeviceGetDefaultApplicationsClock, handle, mhz != NULL);
    return call.device->can_lock_sm ? clock_max(call.device, kind, mhz) : NOT_SUPPORTED;
}

static int has_clock(const struct row *row, unsigned int sm_mhz)
{
    for (uint32_t column = 0; column < row->columns; column++)
        if (row->sm_mhz[column] == sm_mhz)
            return 1;
    return 0;
}

EXPORT ret_t nvmlDeviceSetApplicationsClocks(handle_t handle, unsigned int mem_mhz, unsigned int sm_mhz)
{
    BEGIN(change, nvmlDeviceSetApplicationsClocks, handle, 1);
    struct device *device = call.device;
    if (!device->can_lock_sm)
        return call_end(&call, NOT_SUPPORTED);
    const struct row *row = row_of(device, mem_mhz);
    if (!row || !has_clock(row, sm_mhz))
        return call_end(&call, INVALID_ARGUMENT);
    if (row != &device->row[0] && !device->can_lock_mem)
        return call_end(&call, NOT_SUPPORTED);
    device->app_mem_mhz = mem_mhz;
    device->app_sm_mhz = sm_mhz;
    return call_changed(&call);
}

EXPORT ret_t nvmlDeviceResetApplicationsClocks(handle_t handle)
{
    BEGIN(change, nvmlDeviceResetApplicationsClocks, handle, 1);
    if (!call.device->can_lock_sm)
        return call_end(&call, NOT_SUPPORTED);
    call.device->app_mem_mhz = call.device->app_sm_mhz = 0;
    return call_changed(&call);
}

/* ---- locked clocks ---- */

static unsigned int bound(unsigned int mhz, unsigned int lowest, unsigned int highest)
{
    if (mhz == CLOCK_LIMIT_LOWEST)
        return lowest;
    return mhz == CLOCK_LIMIT_TDP || mhz == CLOCK_LIMIT_NONE ? highest : mhz;
}

EXPORT ret_t nvmlDeviceSetGpuLockedClocks(handle_t handle, unsigned int least_mhz, unsigned int most_mhz)
{
    BEGIN(change, nvmlDeviceSetGpuLockedClocks, handle, 1);
    struct device *device = call.device;
    if (!device->can_lock_sm)
        return call_end(&call, NOT_SUPPORTED);
    unsigned int lowest = device->row[0].sm_mhz[0], highest = highest_mhz(device);
    least_mhz = bound(least_mhz, lowest, highest);
    most_mhz = bound(most_mhz, lowest, highest);
    if (least_mhz > most_mhz || most_mhz < lowest)
        return call_end(&call, INVALID_ARGUMENT);
    device->lock_min_mhz = least_mhz;
    device->lock_max_mhz = most_mhz;
    return call_changed(&call);
}

EXPORT ret_t nvmlDeviceResetGpuLockedClocks(handle_t handle)
{
    BEGIN(change, nvmlDeviceResetGpuLockedClocks, handle, 1);
    if (!call.device->can_lock_sm)
        return call_end(&call, NOT_SUPPORTED);
    call.device->lock_min_mhz = call.device->lock_max_mhz = 0;
    return call_changed(&call);
}

EXPORT ret_t nvmlDeviceSetMemoryLockedClocks(handle_t handle, unsigned int least_mhz, unsigned int most_mhz)
{
    BEGIN(change, nvmlDeviceSetMemoryLockedClocks, handle, 1);
    struct device *device = call.device;
    if (!device->can_lock_mem)
        return call_end(&call, NOT_SUPPORTED);
    unsigned int lowest = device->row[device->rows - 1].mem_mhz, highest = device->row[0].mem_mhz;
    least_mhz = bound(least_mhz, lowest, highest);
    most_mhz = bound(most_mhz, lowest, highest);
    if (least_mhz > most_mhz || most_mhz < lowest)
        return call_end(&call, INVALID_ARGUMENT);
    device->lock_mem_min_mhz = least_mhz;
    device->lock_mem_max_mhz = most_mhz;
    return call_changed(&call);
}

EXPORT ret_t nvmlDeviceResetMemoryLockedClocks(handle_t handle)
{
    BEGIN(change, nvmlDeviceResetMemoryLockedClocks, handle, 1);
    if (!call.device->can_lock_mem)
        return call_end(&call, NOT_SUPPORTED);
    call.device->lock_mem_min_mhz = call.device->lock_mem_max_mhz = 0;
    return call_changed(&call);
}

/* ---- reasons and states ---- */

static unsigned long long reasons_of(const struct device *device)
{
    const struct segment *segment = model_segment(device);
    if (segment->mode != MODE_LOAD)
        return REASON_IDLE;
    return (segment->capped ? REASON_POWER_CAP : 0u) | (segment->hot ? REASON_THERMAL : 0u) |
           (segment->limited ? REASON_CLOCKS_SETTING : 0u);
}

EXPORT ret_t nvmlDeviceGetCurrentClocksThrottleReasons(handle_t handle, unsigned long long *reasons)
{
    BEGIN(locked, nvmlDeviceGetCurrentClocksThrottleReasons, handle, reasons != NULL);
    *reasons = reasons_of(call.device);
    return call_end(&call, SUCCESS);
}

EXPORT ret_t nvmlDeviceGetCurrentClocksEventReasons(handle_t handle, unsigned long long *reasons)
{
    BEGIN(locked, nvmlDeviceGetCurrentClocksEventReasons, handle, reasons != NULL);
    *reasons = reasons_of(call.device);
    return call_end(&call, SUCCESS);
}

EXPORT ret_t nvmlDeviceGetSupportedClocksThrottleReasons(handle_t handle, unsigned long long *reasons)
{
    BEGIN(device, nvmlDeviceGetSupportedClocksThrottleReasons, handle, reasons != NULL);
    *reasons = REASON_IDLE | REASON_CLOCKS_SETTING | REASON_POWER_CAP | REASON_THERMAL;
    return SUCCESS;
}

EXPORT ret_t nvmlDeviceGetSupportedClocksEventReasons(handle_t handle, unsigned long long *reasons)
{
    BEGIN(device, nvmlDeviceGetSupportedClocksEventReasons, handle, reasons != NULL);
    *reasons = REASON_IDLE | REASON_CLOCKS_SETTING | REASON_POWER_CAP | REASON_THERMAL;
    return SUCCESS;
}

/* P0 while a program uses the part or its memory clock never falls, P8 otherwise. */
static unsigned int performance_state(const struct device *device)
{
    return model_segment(device)->mode == MODE_IDLE && !device->keeps_mem_clock ? 8 : 0;
}

EXPORT ret_t nvmlDeviceGetPerformanceState(handle_t handle, unsigned int *state)
{
    BEGIN(locked, nvmlDeviceGetPerformanceState, handle, state != NULL);
    *state = performance_state(call.device);
    return call_end(&call, SUCCESS);
}

EXPORT ret_t nvmlDeviceGetPowerState(handle_t handle, unsigned int *state)
{
    BEGIN(locked, nvmlDeviceGetPowerState, handle, state != NULL);
    *state = performance_state(call.device);
    return call_end(&call, SUCCESS);
}

EXPORT ret_t nvmlDeviceGetPersistenceMode(handle_t handle, unsigned int *mode)
{
    BEGIN(locked, nvmlDeviceGetPersistenceMode, handle, mode != NULL);
    *mode = call.device->persistence;
    return call_end(&call, SUCCESS);
}

EXPORT ret_t nvmlDeviceSetPersistenceMode(handle_t handle, unsigned int mode)
{
    BEGIN(change, nvmlDeviceSetPersistenceMode, handle, mode < 2);
    call.device->persistence = mode;
    return call_changed(&call);
}
