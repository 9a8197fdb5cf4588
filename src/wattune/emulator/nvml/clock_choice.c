/* Which clock holds: the highest that the lock allows and whose mean power over an iteration is within the limit. */
#include "state.h"

static uint32_t row_wanted(const struct device *device)
{
    uint32_t most = device->lock_mem_max_mhz ? device->lock_mem_max_mhz : device->app_mem_mhz;
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

static double mean_power_w(const struct device *device, uint32_t row, uint32_t column)
{
    if (device->mode != MODE_LOAD)
        return device->row[row].context_idle_w[column];
    const struct load *load = &device->load[device->slot];
    const struct totals *all = &load->end[row][column][load->phases];
    return all->energy_j / all->time_s;
}

/* Fills in mode, clocks and why they are what they are. */
void clock_decide(const struct device *device, struct segment *segment)
{
    segment->mode = device->mode;
    segment->slot = device->slot;
    segment->generation = device->load[device->slot].generation;
    segment->row = row_wanted(device);
    segment->capped = segment->limited = 0;
    const struct row *row = &device->row[segment->row];
    if (device->mode == MODE_IDLE) { /* without a context the clock falls as far as the lock lets it */
        segment->column = device->lock_min_mhz ? column_at_most(row, device->lock_min_mhz) : 0;
        segment->power_w = device->idle_w;
        return;
    }
    uint32_t most_mhz = row->sm_mhz[row->columns - 1];
    uint32_t asked_mhz = device->lock_max_mhz ? device->lock_max_mhz : device->app_sm_mhz;
    uint32_t column = column_at_most(row, asked_mhz && asked_mhz < most_mhz ? asked_mhz : most_mhz);
    segment->limited = row->sm_mhz[column] < most_mhz;
    while (column > 0 && mean_power_w(device, segment->row, column) > device->power_limit_w) {
        column--;
        segment->capped = 1;
    }
    segment->column = column;
    segment->power_w = mean_power_w(device, segment->row, column);
}
