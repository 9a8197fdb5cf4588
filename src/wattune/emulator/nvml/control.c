/* How the simulator drives a node: accessors by name, so that no other language has to mirror the layout. */
#include "call.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- making, opening, closing ---- */

static int64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void init_mutex(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

/* A node file that is still to be described and published, or NULL. */
EXPORT struct node *wattuneNodeCreate(const char *path, unsigned int devices, int is_virtual, unsigned int privilege,
                                      int64_t latency_ns)
{
    size_t size = sizeof(struct node) + devices * sizeof(struct device);
    if (devices == 0 || devices > MAX_DEVICES)
        return NULL;
    /* Where privilege goes by user, other users must be able to open the file. */
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        return NULL;
    struct node *node = MAP_FAILED;
    if ((privilege != PRIVILEGE_EUID || fchmod(file, 0666) == 0) && ftruncate(file, (off_t)size) == 0)
        node = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (node == MAP_FAILED)
        return NULL;
    node->version = NODE_VERSION;
    node->devices = devices;
    node->size = size;
    node->is_virtual = is_virtual != 0;
    node->privilege = privilege;
    node->latency_ns = latency_ns;
    init_mutex(&node->mutex);
    return node;
}

/* Starts the node's time; the file may be given its name now. */
EXPORT void wattuneNodePublish(struct node *node)
{
    for (uint32_t index = 0; index < node->devices; index++) {
        struct device *device = &node->device[index];
        device->lost_ns = NEVER;
        device->power_limit_w = device->limit_default_w;
        model_start(device);
    }
    node->epoch_ns = read_clock(CLOCK_MONOTONIC);
    node->realtime_ns = read_clock(CLOCK_REALTIME);
    node->magic = NODE_MAGIC;
}

EXPORT struct node *wattuneNodeOpen(const char *path)
{
    int bad_format;
    return node_map(path, &bad_format);
}

EXPORT void wattuneNodeClose(struct node *node)
{
    node_unmap(node);
}

EXPORT unsigned int wattuneNodeDevices(const struct node *node)
{
    return node->devices;
}

EXPORT int wattuneNodeIsVirtual(const struct node *node)
{
    return (int)node->is_virtual;
}

/* ---- describing a device before the node is published ---- */

#define MEMBER(name) {#name, offsetof(struct device, name)}
static const struct {
    const char *name;
    size_t offset;
} TEXTS[] = {MEMBER(name), MEMBER(uuid), MEMBER(serial), MEMBER(bus_id)},
  NUMBERS[] = {
      MEMBER(idle_w),           MEMBER(ambient_c),        MEMBER(resistance_k_per_w),
      MEMBER(tau_s),            MEMBER(noise_w),          MEMBER(gain),
      MEMBER(limit_min_w),      MEMBER(limit_default_w),  MEMBER(limit_max_w),
      MEMBER(memory_bytes),     MEMBER(reserved_bytes),   MEMBER(cores),
      MEMBER(bus_width_bits),   MEMBER(architecture),     MEMBER(brand),
      MEMBER(cuda_major),       MEMBER(cuda_minor),       MEMBER(pci_device_id),
      MEMBER(can_limit_power),  MEMBER(can_lock_sm),      MEMBER(can_lock_mem),
      MEMBER(has_counter),      MEMBER(has_ecc),          MEMBER(has_fan),
      MEMBER(keeps_mem_clock),  MEMBER(counter_start_j),  MEMBER(counter_period_s),
      MEMBER(counter_window_s), MEMBER(power_period_s),   MEMBER(power_window_s),
      MEMBER(average_window_s),
};

EXPORT int wattuneDescribeText(struct node *node, unsigned int device, const char *name, const char *value)
{
    for (size_t index = 0; index < sizeof TEXTS / sizeof *TEXTS; index++)
        if (!strcmp(TEXTS[index].name, name))
            return copy_text((char *)&node->device[device] + TEXTS[index].offset, TEXT, value);
    return NOT_FOUND;
}

EXPORT int wattuneDescribeNumber(struct node *node, unsigned int device, const char *name, double value)
{
    for (size_t index = 0; index < sizeof NUMBERS / sizeof *NUMBERS; index++)
        if (!strcmp(NUMBERS[index].name, name)) {
            *(double *)((char *)&node->device[device] + NUMBERS[index].offset) = value;
            return SUCCESS;
        }
    return NOT_FOUND;
}

/* The next memory clock, highest first, with its core clocks, ascending. */
EXPORT int wattuneDescribeClocks(struct node *node, unsigned int device, unsigned int mem_mhz, unsigned int columns,
                                 const uint32_t *sm_mhz, const double *context_idle_w)
{
    struct device *this = &node->device[device];
    if (this->rows == MAX_ROWS || columns == 0 || columns > MAX_COLUMNS)
        return INVALID_ARGUMENT;
    struct row *row = &this->row[this->rows++];
    row->mem_mhz = mem_mhz;
    row->columns = columns;
    memcpy(row->sm_mhz, sm_mhz, columns * sizeof *sm_mhz);
    memcpy(row->context_idle_w, context_idle_w, columns * sizeof *context_idle_w);
    return SUCCESS;
}

/* ---- playing ---- */

/* One memory clock of a load; tables are (phases, columns), one phase after another. */
static void fill_row(struct load *load, uint32_t row, uint32_t columns, const double *duration_s,
                     const double *power_w, const double *sm_util, const double *mem_util)
{
    for (uint32_t column = 0; column < columns; column++) {
        struct totals *end = load->end[row][column];
        end[0] = (struct totals){0};
        for (uint32_t phase = 0; phase < load->phases; phase++) {
            size_t at = (size_t)phase * columns + column;
            end[phase + 1].time_s = end[phase].time_s + duration_s[at];
            end[phase + 1].energy_j = end[phase].energy_j + duration_s[at] * power_w[at];
            end[phase + 1].busy_s = end[phase].busy_s + duration_s[at] * sm_util[phase];
            end[phase + 1].mem_busy_s = end[phase].mem_busy_s + duration_s[at] * mem_util[at];
        }
    }
}

/* All rows of a load, whose tables follow one another. */
static void fill_load(struct load *load, const struct device *device, const double *duration_s, const double *power_w,
                      const double *sm_util, const double *mem_util)
{
    for (uint32_t row = 0; row < device->rows; row++) {
        size_t size = (size_t)load->phases * device->row[row].columns;
        fill_row(load, row, device->row[row].columns, duration_s, power_w, sm_util, mem_util);
        duration_s += size;
        power_w += size;
        mem_util += size;
        sm_util += load->phases;
    }
    const struct totals *fastest = load->end[0][device->row[0].columns - 1];
    for (uint32_t phase = 0; phase <= load->phases; phase++)
        load->share[phase] = fastest[phase].time_s / fastest[load->phases].time_s;
}

/* Plays a load from now on, from the beginning of an iteration. */
EXPORT int wattunePlay(struct node *node, unsigned int index, unsigned int phases, const double *duration_s,
                       const double *power_w, const double *sm_util, const double *mem_util)
{
    struct device *device = &node->device[index];
    if (phases == 0 || phases > MAX_PHASES)
        return INVALID_ARGUMENT;
    node_lock(node);
    uint32_t slot = (device->slot + 1) % LOAD_SLOTS;
    struct load *load = &device->load[slot];
    load->generation = 0; /* nobody may look into it until it is whole */
    load->phases = phases;
    fill_load(load, device, duration_s, power_w, sm_util, mem_util);
    load->generation = device->load[device->slot].generation + 1;
    device->slot = slot;
    device->mode = MODE_LOAD;
    model_refresh(device, node_now(node));
    node_unlock(node);
    return SUCCESS;
}

/* Stops the load, with a program still holding the GPU or with none. */
EXPORT void wattuneIdle(struct node *node, unsigned int device, int context)
{
    node_lock(node);
    node->device[device].mode = context ? MODE_CONTEXT : MODE_IDLE;
    model_refresh(&node->device[device], node_now(node));
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
    double energy_j = model_totals(&node->device[device], node_now(node)).energy_j;
    node_unlock(node);
    return energy_j;
}

EXPORT double wattuneIterations(struct node *node, unsigned int device)
{
    node_lock(node);
    double iterations = model_iterations(&node->device[device], node_now(node));
    node_unlock(node);
    return iterations;
}

/* Nanoseconds until that many iterations are done at the present clock; INT64_MAX where no load plays. */
EXPORT int64_t wattuneUntilNs(struct node *node, unsigned int device, double iterations)
{
    node_lock(node);
    int64_t left_ns = model_time_until(&node->device[device], node_now(node), iterations);
    node_unlock(node);
    return left_ns;
}

/* ---- controls in force, faults, calls ---- */

EXPORT int wattuneControls(struct node *node, unsigned int device, uint32_t clocks_mhz[6], double *power_limit_w)
{
    struct device *this = &node->device[device];
    node_lock(node);
    const uint32_t found[6] = {this->lock_min_mhz,     this->lock_max_mhz, this->lock_mem_min_mhz,
                               this->lock_mem_max_mhz, this->app_sm_mhz,   this->app_mem_mhz};
    memcpy(clocks_mhz, found, sizeof found);
    *power_limit_w = this->power_limit_w;
    node_unlock(node);
    return (int)this->persistence;
}

/* Every call on the device gives this code, or 15 (lost) from that time of the node on. */
EXPORT void wattuneFault(struct node *node, unsigned int device, int code, int64_t lost_ns)
{
    node_lock(node);
    node->device[device].fault = code;
    node->device[device].lost_ns = lost_ns;
    node_unlock(node);
}

static const struct {
    const char *name;
    char kind;
} CALLS[] = {
#define META(name) {#name, 'm'},
#define GET(name) {#name, 'g'},
#define SET(name) {#name, 's'},
#define STUB(name) {#name, 'x'},
#include "functions.inc"
#include "stubs.inc"
};

_Static_assert((int)FUNCTIONS <= (int)MAX_FUNCTIONS, "the node counts calls of every function");

EXPORT unsigned int wattuneFunctions(void)
{
    return FUNCTIONS;
}

EXPORT const char *wattuneFunctionName(unsigned int function)
{
    return CALLS[function].name;
}

/* 'g' for a getter, 's' for a setter, 'm' for neither, 'x' for a function without behaviour. */
EXPORT char wattuneFunctionKind(unsigned int function)
{
    return CALLS[function].kind;
}

EXPORT uint64_t wattuneCalls(struct node *node, unsigned int function)
{
    return atomic_load_explicit(&node->calls[function], memory_order_relaxed);
}

/* Ends this process as SIGKILL would in the middle of setting a lock; for the tests. */
EXPORT void wattuneDieSetting(struct node *node, unsigned int device, unsigned int sm_mhz)
{
    node_lock(node);
    node->device[device].lock_min_mhz = node->device[device].lock_max_mhz = sm_mhz;
    _exit(0);
}

/* The size of a structure of the interface, or 0; for the tests. */
EXPORT size_t wattuneSizeOf(const char *name)
{
#define SIZE(type) {#type, sizeof(struct type)}
    static const struct {
        const char *name;
        size_t size;
    } SIZES[] = {
        SIZE(field_value),  SIZE(sample),     SIZE(pci_info_v2),    SIZE(pci_info_v3),    SIZE(pci_info_ext),
        SIZE(memory),       SIZE(memory_v2),  SIZE(utilization),    SIZE(process_v1),     SIZE(process_v2),
        SIZE(c2c_mode),     SIZE(process_utilization), SIZE(violation_time), SIZE(temperature_v1), SIZE(power_value_v2),
    };
    for (size_t index = 0; index < sizeof SIZES / sizeof *SIZES; index++)
        if (!strcmp(SIZES[index].name, name))
            return SIZES[index].size;
    return 0;
}

/* ---- what a device has, for a process that attaches ---- */

EXPORT unsigned int wattuneDeviceRows(const struct node *node, unsigned int device)
{
    return node->device[device].rows;
}

/* The number of core clocks of a row; the memory clock and the core clocks themselves go to the pointers. */
EXPORT unsigned int wattuneDeviceClocks(const struct node *node, unsigned int device, unsigned int row,
                                        uint32_t *mem_mhz, uint32_t sm_mhz[MAX_COLUMNS])
{
    const struct row *found = &node->device[device].row[row];
    *mem_mhz = found->mem_mhz;
    memcpy(sm_mhz, found->sm_mhz, found->columns * sizeof *sm_mhz);
    return found->columns;
}
