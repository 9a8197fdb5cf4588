/* Making a node and describing its devices: accessors by name, so that no other language has to mirror the layout. */
#include "call.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

/* A node file that is still to be described and published, or NULL with errno. */
EXPORT struct node *wattuneNodeCreate(const char *path, unsigned int devices, int is_virtual, unsigned int privilege,
                                      int64_t latency_ns)
{
    size_t size = sizeof(struct node) + devices * sizeof(struct device);
    if (devices == 0 || devices > MAX_DEVICES) {
        errno = EINVAL;
        return NULL;
    }
    /* Where privilege goes by user, other users must be able to open the file. */
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        return NULL;
    struct node *node = MAP_FAILED;
    int problem = privilege == PRIVILEGE_EUID && fchmod(file, 0666) ? errno : 0;
    /* All of it is allocated now: on a full disk, writing to a file with holes would end with SIGBUS. */
    if (!problem)
        problem = posix_fallocate(file, 0, (off_t)size);
    if (!problem) {
        node = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        problem = node == MAP_FAILED ? errno : 0;
    }
    close(file);
    if (problem) {
        unlink(path);
        errno = problem;
        return NULL;
    }
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
        device->lost_ns = device->reset_ns = device->due_ns = NEVER;
        device->persistence = device->persistent != 0;
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
      MEMBER(average_window_s), MEMBER(slowdown_c),       MEMBER(offset_w),
      MEMBER(sm_wait_s),        MEMBER(mem_wait_s),       MEMBER(wait_spread),
      MEMBER(persistent),       MEMBER(module_rest_w),    MEMBER(links),
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
