/* Which clock holds: the highest that the lock allows, whose power as far as limits see it is within the limit and whose
 * heat stays below the slowdown temperature. */
#include "state.h"

static uint32_t row_wanted(const struct device *device)
{
    uint32_t most = device->held.mem_max_mhz ? device->held.mem_max_mhz : device->held.app_mem_mhz;
    if (!most && device->mode == MODE_IDLE && !device->keeps_mem_clock)
        return device->rows - 1;
    for (uint32_t row = 0; most && row < device->rows; row++)
        if (device->row[row].mem_mhz <= most)
            return row;
    return 0;
}

static uint32_t column_at_most(const struct row *row, uint32_t most_mhz)
{
    uint32_t column = row->columns - 1;
    while (column > 0 && row->sm_mhz[column] > most_mhz)
        column--;
    return column;
}

/* The power as far as limits see it. */
static double limited_power_w(const struct device *device, uint32_t row, uint32_t column)
{
    if (device->mode != MODE_LOAD)
        return device->row[row].context_idle_w[column];
    return device->load[device->slot].limited_w[row][column];
}

/* Fills in mode, clocks and why they are what they are. */
void clock_decide(const struct device *device, struct segment *segment)
{
    segment->mode = device->mode;
    segment->slot = device->slot;
    segment->generation = device->load[device->slot].generation;
    segment->row = row_wanted(device);
    segment->capped = segment->limited = segment->hot = 0;
    const struct row *row = &device->row[segment->row];
    if (device->mode == MODE_IDLE) { /* without a context the clock falls as far as the lock lets it */
        segment->column = device->held.min_mhz ? column_at_most(row, device->held.min_mhz) : 0;
        /* A clock that a lock holds up costs what it costs a context. */
        segment->power_w = device->idle_w + row->context_idle_w[segment->column] - row->context_idle_w[0];
        return;
    }
    uint32_t most_mhz = row->sm_mhz[row->columns - 1];
    uint32_t asked_mhz = device->held.max_mhz ? device->held.max_mhz : device->held.app_sm_mhz;
    uint32_t column = column_at_most(row, asked_mhz && asked_mhz < most_mhz ? asked_mhz : most_mhz);
    segment->limited = row->sm_mhz[column] < most_mhz;
    double heat_w = (device->slowdown_c - device->ambient_c) / device->resistance_k_per_w;
    double most_w = heat_w < device->power_limit_w ? heat_w : device->power_limit_w;
    while (column > 0 && limited_power_w(device, segment->row, column) > most_w) {
        column--;
        segment->capped = heat_w >= device->power_limit_w;
        segment->hot = !segment->capped;
    }
    segment->column = column;
    segment->power_w = limited_power_w(device, segment->row, column);
}
