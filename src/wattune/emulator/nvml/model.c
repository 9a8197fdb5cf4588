/* What a simulated GPU does over time, in closed form: nothing ticks, everything is evaluated when asked for.
 *
 * Energy: the exact integral of the load's phases, whole iterations skipped.
 * Temperature: T' = (ambient + R P - T) / tau, with P the mean power of the segment so far.
 */
#include "state.h"

#include <math.h>

static const double NS = 1e-9;

static const struct segment *segment_number(const struct device *device, uint64_t number)
{
    return &device->segment[number % MAX_SEGMENTS];
}

const struct segment *model_segment(const struct device *device)
{
    return segment_number(device, device->segments - 1);
}

static const struct totals *iteration_of(const struct device *device, const struct segment *segment)
{
    return device->load[segment->slot].end[segment->row][segment->column];
}

static int is_playable(const struct device *device, const struct segment *segment)
{
    return segment->mode == MODE_LOAD && device->load[segment->slot].generation == segment->generation;
}

/* The phase in which a time into an iteration falls. */
static uint32_t phase_at(const struct load *load, const struct totals *end, double time_s)
{
    uint32_t low = 0, high = load->phases - 1;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (end[middle + 1].time_s > time_s)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static double between(double from, double to, double part)
{
    return from + (to - from) * part;
}

struct position {
    double whole; /* iterations */
    uint32_t phase;
    double part; /* of the phase, 0 to 1 */
};

static struct position position_at(const struct load *load, const struct totals *end, double time_s)
{
    double iteration_s = end[load->phases].time_s;
    double whole = floor(time_s / iteration_s);
    double rest_s = fmin(fmax(time_s - whole * iteration_s, 0), iteration_s);
    uint32_t phase = phase_at(load, end, rest_s);
    double phase_s = end[phase + 1].time_s - end[phase].time_s;
    double part = fmin((rest_s - end[phase].time_s) / phase_s, 1);
    return (struct position){whole, phase, part};
}

/* The totals of a load that has played for time_s from the beginning of an iteration. */
static struct totals played(const struct load *load, const struct totals *end, double time_s)
{
    struct position at = position_at(load, end, time_s);
    const struct totals *from = &end[at.phase], *to = &end[at.phase + 1], *all = &end[load->phases];
    return (struct totals){
        .time_s = time_s,
        .energy_j = at.whole * all->energy_j + between(from->energy_j, to->energy_j, at.part),
        .busy_s = at.whole * all->busy_s + between(from->busy_s, to->busy_s, at.part),
        .mem_busy_s = at.whole * all->mem_busy_s + between(from->mem_busy_s, to->mem_busy_s, at.part),
        .tensor_s = at.whole * all->tensor_s + between(from->tensor_s, to->tensor_s, at.part),
        .fp32_s = at.whole * all->fp32_s + between(from->fp32_s, to->fp32_s, at.part),
    };
}

static struct totals plus(struct totals a, struct totals b, double sign)
{
    return (struct totals){
        .time_s = a.time_s + sign * b.time_s,
        .energy_j = a.energy_j + sign * b.energy_j,
        .busy_s = a.busy_s + sign * b.busy_s,
        .mem_busy_s = a.mem_busy_s + sign * b.mem_busy_s,
        .tensor_s = a.tensor_s + sign * b.tensor_s,
        .fp32_s = a.fp32_s + sign * b.fp32_s,
    };
}

static struct totals steady(double time_s, double power_w)
{
    return (struct totals){.time_s = time_s, .energy_j = time_s * power_w};
}

/* What a segment spent in its first time_s seconds. A load whose table is gone is taken at its mean. */
static struct totals spent(const struct device *device, uint64_t number, double time_s)
{
    const struct segment *segment = segment_number(device, number);
    if (segment->mode != MODE_LOAD)
        return steady(time_s, segment->power_w);
    if (is_playable(device, segment)) {
        const struct load *load = &device->load[segment->slot];
        const struct totals *end = iteration_of(device, segment);
        struct totals before = played(load, end, segment->offset_s);
        return plus(played(load, end, segment->offset_s + time_s), before, -1);
    }
    const struct segment *next = segment_number(device, number + 1);
    struct totals whole = plus(next->at_start, segment->at_start, -1);
    double part = whole.time_s > 0 ? time_s / whole.time_s : 0;
    return (struct totals){
        .time_s = time_s,
        .energy_j = whole.energy_j * part,
        .busy_s = whole.busy_s * part,
        .mem_busy_s = whole.mem_busy_s * part,
        .tensor_s = whole.tensor_s * part,
        .fp32_s = whole.fp32_s * part,
    };
}

static uint64_t oldest_number(const struct device *device)
{
    /* One place is left out: a writer may have died while filling it. */
    return device->segments >= MAX_SEGMENTS ? device->segments - MAX_SEGMENTS + 1 : 0;
}

/* Power before everything known: idle before the node was made; after many quick changes, the mean of what is known. */
static double earlier_w(const struct device *device)
{
    const struct segment *oldest = segment_number(device, oldest_number(device)), *newest = model_segment(device);
    double time_s = newest->at_start.time_s - oldest->at_start.time_s;
    if (oldest_number(device) == 0 || time_s <= 0)
        return device->idle_w;
    return (newest->at_start.energy_j - oldest->at_start.energy_j) / time_s;
}

/* The number of the segment that holds a time, or of the oldest where the time lies before everything known. */
static uint64_t find(const struct device *device, int64_t time_ns)
{
    uint64_t newest = device->segments - 1, oldest = oldest_number(device);
    if (segment_number(device, newest)->start_ns <= time_ns)
        return newest;
    while (oldest < newest) {
        uint64_t middle = (oldest + newest + 1) / 2;
        if (segment_number(device, middle)->start_ns <= time_ns)
            oldest = middle;
        else
            newest = middle - 1;
    }
    return oldest;
}

struct totals model_totals(const struct device *device, int64_t time_ns)
{
    uint64_t number = find(device, time_ns);
    const struct segment *segment = segment_number(device, number);
    double time_s = (double)(time_ns - segment->start_ns) * NS;
    if (time_s < 0)
        return plus(segment->at_start, steady(-time_s, earlier_w(device)), -1);
    return plus(segment->at_start, spent(device, number, time_s), 1);
}

/* The segment that holds a time. */
const struct segment *model_segment_at(const struct device *device, int64_t time_ns)
{
    return segment_number(device, find(device, time_ns));
}

double model_capped_s(const struct device *device, int64_t now_ns)
{
    const struct segment *segment = model_segment(device);
    return segment->capped_s + (segment->capped ? (double)(now_ns - segment->start_ns) * NS : 0);
}

double model_temperature_c(const struct device *device, int64_t now_ns)
{
    const struct segment *segment = model_segment(device);
    double time_s = (double)(now_ns - segment->start_ns) * NS;
    if (time_s <= 0)
        return segment->temperature_c;
    double power_w = spent(device, device->segments - 1, time_s).energy_j / time_s;
    double steady_c = device->ambient_c + device->resistance_k_per_w * power_w;
    return steady_c + (segment->temperature_c - steady_c) * exp(-time_s / device->tau_s);
}

double model_iterations(const struct device *device, int64_t time_ns)
{
    const struct segment *segment = model_segment_at(device, time_ns);
    if (!is_playable(device, segment))
        return segment->iterations;
    const struct load *load = &device->load[segment->slot];
    double time_s = segment->offset_s + (double)(time_ns - segment->start_ns) * NS;
    struct position at = position_at(load, iteration_of(device, segment), time_s);
    return segment->iterations + at.whole + between(load->share[at.phase], load->share[at.phase + 1], at.part);
}

/* Nanoseconds until that many iterations are done, if nothing changes; NEVER where no load plays. */
int64_t model_time_until(const struct device *device, int64_t now_ns, double iterations)
{
    const struct segment *segment = model_segment(device);
    if (!is_playable(device, segment))
        return iterations <= segment->iterations ? 0 : NEVER;
    const struct load *load = &device->load[segment->slot];
    const struct totals *end = iteration_of(device, segment);
    double wanted = iterations - segment->iterations, whole = floor(wanted);
    uint32_t phase = 0;
    while (phase + 1 < load->phases && load->share[phase + 1] <= wanted - whole)
        phase++;
    double part = (wanted - whole - load->share[phase]) / (load->share[phase + 1] - load->share[phase]);
    double at_s = whole * end[load->phases].time_s + between(end[phase].time_s, end[phase + 1].time_s, part);
    double left_s = at_s - segment->offset_s - (double)(now_ns - segment->start_ns) * NS;
    return left_s <= 0 ? 0 : (int64_t)ceil(left_s / NS - 1e-3);
}

static int is_same(const struct segment *a, const struct segment *b)
{
    return a->mode == b->mode && a->row == b->row && a->column == b->column && a->generation == b->generation &&
           a->capped == b->capped && a->limited == b->limited && a->hot == b->hot;
}

/* Where the new segment takes up the load that the old one was playing. */
static void take_up(const struct device *device, const struct segment *old, int64_t now_ns, struct segment *new)
{
    new->offset_s = 0;
    new->iterations = model_iterations(device, now_ns);
    if (new->mode != MODE_LOAD || old->generation != new->generation || !is_playable(device, old))
        return;
    double time_s = old->offset_s + (double)(now_ns - old->start_ns) * NS;
    struct position at = position_at(&device->load[old->slot], iteration_of(device, old), time_s);
    const struct totals *end = iteration_of(device, new);
    new->iterations = old->iterations + at.whole;
    new->offset_s = between(end[at.phase].time_s, end[at.phase + 1].time_s, at.part);
}

static void append(struct device *device, const struct segment *segment)
{
    device->segment[device->segments % MAX_SEGMENTS] = *segment;
    atomic_thread_fence(memory_order_release); /* a writer killed before the count leaves the old timeline */
    device->segments++;
}

/* Begins a new segment where a control or the activity changed what the GPU does. */
void model_refresh(struct device *device, int64_t now_ns)
{
    const struct segment *old = model_segment(device);
    struct segment new = {.start_ns = now_ns};
    clock_decide(device, &new);
    if (is_same(old, &new))
        return;
    sensor_catch_up(device, now_ns);
    new.at_start = model_totals(device, now_ns);
    new.capped_s = model_capped_s(device, now_ns);
    new.temperature_c = model_temperature_c(device, now_ns);
    take_up(device, old, now_ns, &new);
    append(device, &new);
}

/* The first segment: idle since the node was made, and as warm as idling makes it. */
void model_start(struct device *device)
{
    struct segment first = {.start_ns = 0};
    clock_decide(device, &first);
    first.temperature_c = device->ambient_c + device->resistance_k_per_w * first.power_w;
    append(device, &first);
}
