/* Driving a node: what its devices play and for whom, its time, and the truth. */
#include "call.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

/* What a load takes and uses: (phases, columns) each, one phase after another; sm_util is (phases). */
struct tables {
    const double *duration_s, *power_w, *sm_util, *mem_util, *tensor_util, *fp32_util;
};

/* One memory clock of a load. */
static void fill_row(struct load *load, uint32_t row, uint32_t columns, const struct tables *tables)
{
    for (uint32_t column = 0; column < columns; column++) {
        struct totals *end = load->end[row][column];
        end[0] = (struct totals){0};
        for (uint32_t phase = 0; phase < load->phases; phase++) {
            size_t at = (size_t)phase * columns + column;
            double time_s = tables->duration_s[at];
            end[phase + 1].time_s = end[phase].time_s + time_s;
            end[phase + 1].energy_j = end[phase].energy_j + time_s * tables->power_w[at];
            end[phase + 1].busy_s = end[phase].busy_s + time_s * tables->sm_util[phase];
            end[phase + 1].mem_busy_s = end[phase].mem_busy_s + time_s * tables->mem_util[at];
            end[phase + 1].tensor_s = end[phase].tensor_s + time_s * tables->tensor_util[at];
            end[phase + 1].fp32_s = end[phase].fp32_s + time_s * tables->fp32_util[at];
        }
    }
}

/* All rows of a load, whose tables follow one another. */
static void fill_load(struct load *load, const struct device *device, struct tables tables)
{
    for (uint32_t row = 0; row < device->rows; row++) {
        size_t size = (size_t)load->phases * device->row[row].columns;
        fill_row(load, row, device->row[row].columns, &tables);
        tables.duration_s += size;
        tables.power_w += size;
        tables.sm_util += load->phases;
        tables.mem_util += size;
        tables.tensor_util += size;
        tables.fp32_util += size;
    }
    const struct totals *fastest = load->end[0][device->row[0].columns - 1];
    for (uint32_t phase = 0; phase <= load->phases; phase++)
        load->share[phase] = fastest[phase].time_s / fastest[load->phases].time_s;
}

/* The time of the node, by which every clock has taken over that was due. */
static int64_t settled(struct node *node, struct device *device)
{
    int64_t now_ns = node_now(node);
    lifetime_settle(node, device, now_ns);
    return now_ns;
}

/* Plays a load from now on, from the beginning of an iteration. */
EXPORT int wattunePlay(struct node *node, unsigned int index, unsigned int phases, const double *duration_s,
                       const double *power_w, const double *sm_util, const double *mem_util, const double *tensor_util,
                       const double *fp32_util, const double *limited_w)
{
    struct device *device = &node->device[index];
    if (phases == 0 || phases > MAX_PHASES)
        return INVALID_ARGUMENT;
    node_lock(node);
    int64_t now_ns = settled(node, device);
    uint32_t slot = (device->slot + 1) % LOAD_SLOTS;
    struct load *load = &device->load[slot];
    load->generation = 0; /* not to be read until it is complete */
    load->phases = phases;
    fill_load(load, device, (struct tables){duration_s, power_w, sm_util, mem_util, tensor_util, fp32_util});
    for (uint32_t row = 0; row < device->rows; limited_w += device->row[row++].columns)
        memcpy(load->limited_w[row], limited_w, device->row[row].columns * sizeof *limited_w);
    load->generation = device->load[device->slot].generation + 1;
    device->slot = slot;
    device->mode = MODE_LOAD;
    model_refresh(device, now_ns);
    node_unlock(node);
    return SUCCESS;
}

/* Stops the load, with a program still holding the GPU or with none. */
EXPORT void wattuneIdle(struct node *node, unsigned int device, int context)
{
    node_lock(node);
    int64_t now_ns = settled(node, &node->device[device]);
    node->device[device].mode = context ? MODE_CONTEXT : MODE_IDLE;
    model_refresh(&node->device[device], now_ns);
    node_unlock(node);
}

static int is_free(const struct process *process)
{
    return process->pid == 0 || (kill(process->pid, 0) != 0 && errno == ESRCH);
}

/* The place of a process in the list: the one it has, else a free one, else NULL. */
static struct process *place_for(struct process *process, int pid)
{
    struct process *place = NULL;
    for (unsigned int index = 0; index < MAX_PROCESSES; index++) {
        if (process[index].pid == pid)
            return &process[index];
        if (!place && is_free(&process[index]))
            place = &process[index];
    }
    return place;
}

/* Makes a process a user of the GPU, or changes the memory it holds. */
EXPORT int wattuneJoin(struct node *node, unsigned int device, int pid, uint64_t memory_bytes)
{
    node_lock(node);
    struct process *place = place_for(node->device[device].process, pid);
    if (place)
        *place = (struct process){pid, memory_bytes};
    node_unlock(node);
    return place ? SUCCESS : INSUFFICIENT_SIZE;
}

EXPORT void wattuneLeave(struct node *node, unsigned int device, int pid)
{
    struct process *process = node->device[device].process;
    node_lock(node);
    for (unsigned int index = 0; index < MAX_PROCESSES; index++)
        if (process[index].pid == pid)
            process[index] = (struct process){0, 0};
    node_unlock(node);
}

/* ---- time and truth ---- */

EXPORT int64_t wattuneNodeNowNs(const struct node *node)
{
    return node_now(node);
}

EXPORT void wattuneAdvance(struct node *node, int64_t nanoseconds)
{
    atomic_fetch_add_explicit(&node->virtual_ns, nanoseconds, memory_order_acq_rel);
}

EXPORT double wattuneTruthJ(struct node *node, unsigned int device)
{
    node_lock(node);
    double energy_j = model_totals(&node->device[device], settled(node, &node->device[device])).energy_j;
    node_unlock(node);
    return energy_j;
}

EXPORT double wattuneIterations(struct node *node, unsigned int device)
{
    node_lock(node);
    double iterations = model_iterations(&node->device[device], settled(node, &node->device[device]));
    node_unlock(node);
    return iterations;
}

/* What a GPU had spent and done by a time of the node, and its clocks then: joules, iterations, core and memory MHz. */
EXPORT void wattuneAt(struct node *node, unsigned int index, int64_t time_ns, double found[4])
{
    struct device *device = &node->device[index];
    node_lock(node);
    settled(node, device);
    const struct segment *segment = model_segment_at(device, time_ns);
    const struct row *row = &device->row[segment->row];
    found[0] = model_totals(device, time_ns).energy_j;
    found[1] = model_iterations(device, time_ns);
    found[2] = row->sm_mhz[segment->column];
    found[3] = row->mem_mhz;
    node_unlock(node);
}

/* Nanoseconds until that many iterations are done at the present clock, or until a clock takes over before that;
 * INT64_MAX where no load plays. */
EXPORT int64_t wattuneUntilNs(struct node *node, unsigned int device, double iterations)
{
    node_lock(node);
    int64_t now_ns = settled(node, &node->device[device]), due_ns = node->device[device].due_ns;
    int64_t left_ns = model_time_until(&node->device[device], now_ns, iterations);
    if (left_ns != NEVER && due_ns != NEVER && left_ns > due_ns - now_ns)
        left_ns = due_ns - now_ns;
    node_unlock(node);
    return left_ns;
}
