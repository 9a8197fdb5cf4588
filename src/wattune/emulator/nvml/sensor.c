/* What the sensors of a simulated GPU show of what it does: refreshed at intervals, averaged, a little noisy. */
#include "state.h"

#include <math.h>

static const double NS = 1e-9;

/* NVML promises a sampling period between 1/6 s and 1 s for utilisation; we take the shorter. */
static const int64_t UTILISATION_NS = 166666667;

/* Boundaries that are computed one by one before the rest of a long gap is taken at its true energy. */
enum { MOST_BOUNDARIES = 4096 };

static int64_t to_ns(double seconds)
{
    return (int64_t)llround(seconds / NS);
}

/* The last refresh at or before a time; the time itself where the sensor never rests. */
static int64_t refresh_at(int64_t time_ns, double period_s)
{
    int64_t period_ns = to_ns(period_s);
    return period_ns > 0 ? time_ns / period_ns * period_ns : time_ns;
}

/* -1 to 1, always the same for the same refresh of the same part (splitmix64). */
double sensor_noise(const struct device *device, int64_t time_ns, int64_t salt)
{
    uint64_t bits = (uint64_t)time_ns * 31 + (uint64_t)salt;
    for (const char *at = device->uuid; *at; at++)
        bits = bits * 131 + (unsigned char)*at;
    bits += 0x9e3779b97f4a7c15ULL;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ULL;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebULL;
    bits ^= bits >> 31;
    return (double)(bits >> 11) * 0x1p-52 - 1;
}

/* Mean power over the window that ends at the last refresh, as the sensor shows it. */
double sensor_power_w(const struct device *device, int64_t time_ns, double window_s)
{
    int64_t end_ns = refresh_at(time_ns, device->power_period_s);
    int64_t start_ns = end_ns - to_ns(window_s);
    double energy_j = model_totals(device, end_ns).energy_j - model_totals(device, start_ns).energy_j;
    double spread_w = device->noise_w * 1.7320508075688772; /* a uniform spread whose deviation is noise_w */
    double shown_w = device->gain * energy_j / ((double)(end_ns - start_ns) * NS) + device->offset_w;
    return fmax(shown_w + spread_w * sensor_noise(device, end_ns, end_ns - start_ns), 0);
}

/* The sum of a sensor that measures only the end of each period, from one refresh to another, scaled to the period. */
static double seen_j(const struct device *device, int64_t from, int64_t to)
{
    int64_t period_ns = to_ns(device->counter_period_s), window_ns = to_ns(device->counter_window_s);
    int64_t stop = to - from > MOST_BOUNDARIES ? from + MOST_BOUNDARIES : to;
    double sum_j = 0;
    for (int64_t boundary = from + 1; boundary <= stop; boundary++) {
        int64_t end_ns = boundary * period_ns;
        sum_j += model_totals(device, end_ns).energy_j - model_totals(device, end_ns - window_ns).energy_j;
    }
    double rest_j = model_totals(device, to * period_ns).energy_j - model_totals(device, stop * period_ns).energy_j;
    return sum_j * (double)period_ns / (double)window_ns + rest_j;
}

/* Brings the counter to its last refresh. Done before every change, so that the refresh lies in the newest segment and
 * what was shown once is never taken back. */
void sensor_catch_up(struct device *device, int64_t now_ns)
{
    int64_t period_ns = to_ns(device->counter_period_s);
    struct counted counted = device->counted[device->counted_at];
    if (period_ns <= 0 || now_ns / period_ns == counted.boundary)
        return;
    int64_t last = now_ns / period_ns;
    counted.energy_j = device->counter_window_s > 0 ? counted.energy_j + seen_j(device, counted.boundary, last)
                                                    : model_totals(device, last * period_ns).energy_j;
    counted.boundary = last;
    device->counted[!device->counted_at] = counted;
    atomic_thread_fence(memory_order_release);
    device->counted_at = !device->counted_at;
}

/* The energy counter, which moves at its refreshes only. */
double sensor_energy_j(struct device *device, int64_t now_ns)
{
    sensor_catch_up(device, now_ns);
    double energy_j = device->counter_period_s > 0 ? device->counted[device->counted_at].energy_j
                                                   : model_totals(device, now_ns).energy_j;
    double at_s = (double)refresh_at(now_ns, device->counter_period_s) * NS;
    return fmax(device->counter_start_j + device->gain * energy_j + device->offset_w * at_s, 0);
}

/* Shares of the last window in which kernels ran and in which the memory was busy, 0 to 1. */
void sensor_utilisation(const struct device *device, int64_t now_ns, double *sm, double *mem)
{
    int64_t end_ns = now_ns / UTILISATION_NS * UTILISATION_NS;
    struct totals end = model_totals(device, end_ns), start = model_totals(device, end_ns - UTILISATION_NS);
    *sm = fmin((end.busy_s - start.busy_s) / (end.time_s - start.time_s), 1);
    *mem = fmin((end.mem_busy_s - start.mem_busy_s) / (end.time_s - start.time_s), 1);
}
