/* Power, energy and power limits. */
#include "call.h"

#include <math.h>

enum {
    FIELD_POWER_VIOLATION = 74,
    FIELD_TOTAL_ENERGY = 83,
    FIELD_POWER_AVERAGE = 185,
    FIELD_POWER_INSTANT = 186,
    FIELD_POWER_MIN_LIMIT = 187,
    FIELD_POWER_MAX_LIMIT = 188,
    FIELD_POWER_DEFAULT_LIMIT = 189,
    FIELD_POWER_CURRENT_LIMIT = 190,
    FIELD_ENERGY = 191,
    FIELD_POWER_REQUESTED_LIMIT = 192,
};

enum { SCOPE_GPU = 0, SCOPE_MODULE = 1 };

enum { SAMPLES_POWER = 0, SAMPLES_SM = 1, SAMPLES_MEM = 2, MOST_SAMPLES = 120 };

static unsigned int milli(double value)
{
    return (unsigned int)llround(value * 1e3);
}

/* A one-second average on parts that have it, else what the sensor shows. */
static double usage_w(const struct device *device, int64_t time_ns)
{
    double window_s = device->average_window_s > 0 ? device->average_window_s : device->power_window_s;
    return sensor_power_w(device, time_ns, window_s);
}

EXPORT ret_t nvmlDeviceGetPowerUsage(handle_t handle, unsigned int *milliwatts)
{
    BEGIN(locked, nvmlDeviceGetPowerUsage, handle, milliwatts != NULL);
    *milliwatts = milli(usage_w(call.device, call.now_ns));
    return call_end(&call, SUCCESS);
}

static unsigned long long counter_mj(struct call *call)
{
    return (unsigned long long)(sensor_energy_j(call->device, call->now_ns) * 1e3);
}

EXPORT ret_t nvmlDeviceGetTotalEnergyConsumption(handle_t handle, unsigned long long *millijoules)
{
    BEGIN(locked, nvmlDeviceGetTotalEnergyConsumption, handle, millijoules != NULL);
    if (!call.device->has_counter)
        return call_end(&call, NOT_SUPPORTED);
    *millijoules = counter_mj(&call);
    return call_end(&call, SUCCESS);
}

/* ---- fields ---- */

static void set_count(struct field_value *field, unsigned long long value)
{
    field->type = VALUE_UNSIGNED_LONG_LONG;
    field->value.ull = value;
}

static void set_watts(struct field_value *field, double watts)
{
    field->type = VALUE_UNSIGNED_INT;
    field->value.ui = milli(watts);
}

static int is_power(unsigned int field)
{
    return field >= FIELD_POWER_AVERAGE && field <= FIELD_POWER_REQUESTED_LIMIT;
}

static ret_t fill_limit(const struct device *device, struct field_value *field)
{
    if (!device->can_limit_power)
        return NOT_SUPPORTED;
    switch (field->field) {
    case FIELD_POWER_MIN_LIMIT:
        set_watts(field, device->limit_min_w);
        return SUCCESS;
    case FIELD_POWER_MAX_LIMIT:
        set_watts(field, device->limit_max_w);
        return SUCCESS;
    case FIELD_POWER_DEFAULT_LIMIT:
        set_watts(field, device->limit_default_w);
        return SUCCESS;
    default:
        set_watts(field, device->power_limit_w);
        return SUCCESS;
    }
}

/* What the whole module draws, of which the GPU is a part: known by its power fields alone. */
static ret_t fill_module(struct call *call, struct field_value *field)
{
    struct device *device = call->device;
    if (!(device->module_rest_w > 0) || (field->field != FIELD_POWER_INSTANT && field->field != FIELD_POWER_AVERAGE))
        return NOT_SUPPORTED;
    set_watts(field, sensor_power_w(device, call->now_ns, device->power_window_s) + device->module_rest_w);
    return SUCCESS;
}

static ret_t fill_field(struct call *call, struct field_value *field)
{
    struct device *device = call->device;
    if (field->scope == SCOPE_MODULE && is_power(field->field))
        return fill_module(call, field);
    switch (field->field) {
    case FIELD_POWER_VIOLATION:
        set_count(field, (unsigned long long)(model_capped_s(device, call->now_ns) * 1e9));
        return SUCCESS;
    case FIELD_TOTAL_ENERGY:
    case FIELD_ENERGY:
        if (!device->has_counter)
            return NOT_SUPPORTED;
        set_count(field, counter_mj(call));
        return SUCCESS;
    case FIELD_POWER_AVERAGE:
        if (!(device->average_window_s > 0))
            return NOT_SUPPORTED;
        set_watts(field, sensor_power_w(device, call->now_ns, device->average_window_s));
        return SUCCESS;
    case FIELD_POWER_INSTANT:
        set_watts(field, sensor_power_w(device, call->now_ns, device->power_window_s));
        return SUCCESS;
    case FIELD_POWER_MIN_LIMIT:
    case FIELD_POWER_MAX_LIMIT:
    case FIELD_POWER_DEFAULT_LIMIT:
    case FIELD_POWER_CURRENT_LIMIT:
    case FIELD_POWER_REQUESTED_LIMIT:
        return fill_limit(device, field);
    default:
        return NOT_SUPPORTED;
    }
}

EXPORT ret_t nvmlDeviceGetFieldValues(handle_t handle, int count, struct field_value *fields)
{
    BEGIN(locked, nvmlDeviceGetFieldValues, handle, fields != NULL && count > 0);
    for (int index = 0; index < count; index++) {
        fields[index].timestamp_us = (long long)wall_us(call.node, call.now_ns);
        fields[index].latency_us = 0;
        fields[index].status = fill_field(&call, &fields[index]);
    }
    return call_end(&call, SUCCESS);
}

/* ---- samples ---- */

static unsigned int sample_of(const struct device *device, unsigned int kind, int64_t time_ns)
{
    double sm, mem;
    if (kind == SAMPLES_POWER)
        return milli(sensor_power_w(device, time_ns, device->power_window_s));
    sensor_utilisation(device, time_ns, &sm, &mem);
    return (unsigned int)lround(100 * (kind == SAMPLES_SM ? sm : mem));
}

static int64_t sample_period_ns(const struct device *device)
{
    return device->power_period_s > 0 ? (int64_t)llround(device->power_period_s * 1e9) : 20000000;
}

/* The newest samples that were not seen yet, oldest first. */
static unsigned int take_samples(const struct call *call, unsigned int kind, unsigned long long seen_us,
                                 struct sample *samples, unsigned int room)
{
    int64_t period_ns = sample_period_ns(call->device), newest = call->now_ns / period_ns;
    int64_t oldest = newest + 1 < (int64_t)room ? 0 : newest + 1 - (int64_t)room;
    unsigned int count = 0;
    for (int64_t number = oldest; number <= newest; number++) {
        unsigned long long time_us = wall_us(call->node, number * period_ns);
        if (time_us <= seen_us)
            continue;
        samples[count].timestamp_us = time_us;
        samples[count++].value.ull = sample_of(call->device, kind, number * period_ns);
    }
    return count;
}

EXPORT ret_t nvmlDeviceGetSamples(handle_t handle, unsigned int kind, unsigned long long seen_us, unsigned int *type,
                                  unsigned int *count, struct sample *samples)
{
    BEGIN(locked, nvmlDeviceGetSamples, handle, type != NULL && count != NULL);
    if (kind > SAMPLES_MEM)
        return call_end(&call, NOT_SUPPORTED);
    *type = VALUE_UNSIGNED_INT;
    if (!samples) {
        *count = MOST_SAMPLES;
        return call_end(&call, SUCCESS);
    }
    unsigned int room = *count < MOST_SAMPLES ? *count : MOST_SAMPLES;
    *count = take_samples(&call, kind, seen_us, samples, room);
    return call_end(&call, *count ? SUCCESS : NOT_FOUND);
}

EXPORT ret_t nvmlDeviceGetViolationStatus(handle_t handle, unsigned int policy, struct violation_time *violation)
{
    BEGIN(locked, nvmlDeviceGetViolationStatus, handle, policy < 12 && violation != NULL);
    violation->reference_us = wall_us(call.node, call.now_ns);
    violation->violation_ns = policy ? 0 : (unsigned long long)(model_capped_s(call.device, call.now_ns) * 1e9);
    return call_end(&call, SUCCESS);
}

/* ---- limits ---- */

EXPORT ret_t nvmlDeviceGetPowerManagementMode(handle_t handle, unsigned int *enabled)
{
    BEGIN(device, nvmlDeviceGetPowerManagementMode, handle, enabled != NULL);
    *enabled = call.device->can_limit_power != 0;
    return SUCCESS;
}

#define LIMIT(name, member)                                         \
    EXPORT ret_t name(handle_t handle, unsigned int *milliwatts)    \
    {                                                               \
        BEGIN(locked, name, handle, milliwatts != NULL);            \
        if (!call.device->can_limit_power)                          \
            return call_end(&call, NOT_SUPPORTED);                  \
        *milliwatts = milli(call.device->member);                   \
        return call_end(&call, SUCCESS);                            \
    }

LIMIT(nvmlDeviceGetPowerManagementLimit, power_limit_w)
LIMIT(nvmlDeviceGetPowerManagementDefaultLimit, limit_default_w)
LIMIT(nvmlDeviceGetEnforcedPowerLimit, power_limit_w)

EXPORT ret_t nvmlDeviceGetPowerManagementLimitConstraints(handle_t handle, unsigned int *least, unsigned int *most)
{
    BEGIN(device, nvmlDeviceGetPowerManagementLimitConstraints, handle, least != NULL && most != NULL);
    if (!call.device->can_limit_power)
        return NOT_SUPPORTED;
    *least = milli(call.device->limit_min_w);
    *most = milli(call.device->limit_max_w);
    return SUCCESS;
}

static ret_t set_limit(struct call *call, unsigned int milliwatts)
{
    struct device *device = call->device;
    if (!device->can_limit_power)
        return call_end(call, NOT_SUPPORTED);
    if (milliwatts < milli(device->limit_min_w) || milliwatts > milli(device->limit_max_w))
        return call_end(call, INVALID_ARGUMENT);
    device->power_limit_w = milliwatts / 1e3;
    return call_changed(call);
}

EXPORT ret_t nvmlDeviceSetPowerManagementLimit(handle_t handle, unsigned int milliwatts)
{
    BEGIN(change, nvmlDeviceSetPowerManagementLimit, handle, 1);
    return set_limit(&call, milliwatts);
}

EXPORT ret_t nvmlDeviceSetPowerManagementLimit_v2(handle_t handle, const struct power_value_v2 *value)
{
    BEGIN(change, nvmlDeviceSetPowerManagementLimit_v2, handle, value != NULL);
    if (value->version != STRUCT_VERSION(struct power_value_v2, 2u))
        return call_end(&call, ARGUMENT_VERSION_MISMATCH);
    if (value->scope != SCOPE_GPU) /* modules and memory have no limit of their own here */
        return call_end(&call, NOT_SUPPORTED);
    return set_limit(&call, value->milliwatts);
}
