/* The state of a node of simulated GPUs: one file, mapped by every process that uses it.
 *
 * Words: a *load* is what a GPU plays, one iteration after another; a *row* is a memory clock and a *column* a core
 * clock; a *segment* is an interval in which clock, load and mode do not change. Times are nanoseconds since the
 * node was made, powers are watts, energies are joules.
 */
#ifndef WATTUNE_STATE_H
#define WATTUNE_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    MAX_DEVICES = 16,
    MAX_ROWS = 8,
    MAX_COLUMNS = 256,
    MAX_PHASES = 64,
    MAX_SEGMENTS = 4096,
    MAX_PROCESSES = 32,
    MAX_FUNCTIONS = 512,
    MAX_CLIENTS = 256,
    LOAD_SLOTS = 2,
    TEXT = 96,
};

#define NODE_MAGIC 0x65646f6e74746177ULL /* "wattnode" */
#define NODE_VERSION 5u
#define NEVER INT64_MAX

enum mode { MODE_IDLE, MODE_CONTEXT, MODE_LOAD };
enum refusal { CHANGES_IGNORED = -1 }; /* answered as if done; an NVML error above 0 is answered, and nothing done */
enum privilege { PRIVILEGE_DENIED, PRIVILEGE_GRANTED, PRIVILEGE_EUID };

/* What has been spent since the beginning of an iteration, or of the node. */
struct totals {
    double time_s;
    double energy_j;
    double busy_s;     /* time in which kernels ran */
    double mem_busy_s; /* time in which the memory was busy */
    double tensor_s;   /* what the tensor units did, in time at their full rate */
    double fp32_s;     /* the same of the plain units */
};

/* One iteration at every clock: the totals at the end of each phase, the first entry being all zero. */
struct load {
    uint64_t generation;
    uint32_t phases;
    double share[MAX_PHASES + 1]; /* of an iteration that is done at each phase's end, 0 to 1, whatever the clock */
    struct totals end[MAX_ROWS][MAX_COLUMNS][MAX_PHASES + 1];
    double limited_w[MAX_ROWS][MAX_COLUMNS]; /* what power limits act on */
};

struct segment {
    int64_t start_ns;
    struct totals at_start;
    double capped_s;      /* time under the power cap until the start */
    double temperature_c; /* at the start */
    double power_w;       /* where no load plays */
    double iterations;    /* whole iterations done when the iteration of the start began */
    double offset_s;      /* time into that iteration, at this segment's clock */
    uint64_t generation;  /* of the load that plays */
    uint32_t mode, row, column, slot;
    uint32_t capped, limited, hot; /* the power cap bites; a lock or applications clock bites; the heat does */
};

struct row {
    uint32_t mem_mhz, columns;
    uint32_t sm_mhz[MAX_COLUMNS];
    double context_idle_w[MAX_COLUMNS];
};

struct process {
    int32_t pid;
    uint64_t memory_bytes;
};

/* The energy counter at its last refresh. */
struct counted {
    int64_t boundary;
    double energy_j;
};

/* The clocks that were asked for; 0 where nothing was. */
struct clocks {
    uint32_t min_mhz, max_mhz, mem_max_mhz, app_sm_mhz, app_mem_mhz;
};

struct device {
    /* what it is: written before the node is published, constant afterwards */
    char name[TEXT], uuid[TEXT], serial[TEXT], bus_id[TEXT];
    uint32_t rows;
    struct row row[MAX_ROWS]; /* the highest memory clock first */
    double idle_w, ambient_c, resistance_k_per_w, tau_s, slowdown_c, noise_w, gain, offset_w;
    double limit_min_w, limit_default_w, limit_max_w;
    double memory_bytes, reserved_bytes, cores, bus_width_bits;
    double architecture, brand, cuda_major, cuda_minor, pci_device_id;
    double can_limit_power, can_lock_sm, can_lock_mem, has_counter, has_ecc, has_fan, keeps_mem_clock;
    double counter_start_j, counter_period_s, counter_window_s; /* a window of 0: the counter misses nothing */
    double power_period_s, power_window_s, average_window_s;    /* an average of 0: the part has none */
    double sm_wait_s, mem_wait_s, wait_spread;                  /* until new clocks take over: medians and spread */
    double persistent;    /* settings outlive the last client; the mode that the device starts in */
    double module_rest_w; /* what the rest of its module draws; 0 where the GPU is on no module */
    double links;         /* NVLink connections */

    /* what was asked of it: 0 where nothing was */
    double power_limit_w;
    uint32_t lock_min_mhz, lock_max_mhz, lock_mem_min_mhz, lock_mem_max_mhz, app_sm_mhz, app_mem_mhz;
    uint32_t persistence;
    int32_t fault, refusal; /* what every call answers, and what every change does; 0 where nothing is wrong */
    int64_t lost_ns, reset_ns; /* when it is lost, and when it is reset */

    /* what of that is in force, and when the rest will be */
    struct clocks held;
    int64_t due_ns;
    uint64_t changes;

    /* what it does */
    uint32_t mode, slot; /* the slot of the load that plays or played last */
    struct process process[MAX_PROCESSES];
    uint64_t segments; /* how many there ever were; the newest is number segments - 1 */
    struct segment segment[MAX_SEGMENTS];
    struct counted counted[2]; /* written in turn, so that a killed writer leaves one whole */
    uint32_t counted_at;
    struct load load[LOAD_SLOTS];
};

/* What a function does instead of its work: an error where the code is not 0, after blocking. */
struct injection {
    _Atomic int32_t code;
    _Atomic int64_t blocking_ns;
};

struct node {
    uint64_t magic;
    uint32_t version, devices;
    uint64_t size;
    uint32_t is_virtual, privilege;
    int64_t epoch_ns;    /* CLOCK_MONOTONIC when the node was made */
    int64_t realtime_ns; /* CLOCK_REALTIME at that moment */
    int64_t latency_ns;
    _Atomic int64_t virtual_ns;
    pthread_mutex_t mutex;
    _Atomic uint64_t calls[MAX_FUNCTIONS];
    struct injection injection[MAX_FUNCTIONS];
    int32_t client[MAX_CLIENTS]; /* the processes that initialised NVML */
    int32_t pid_shift;           /* added to the numbers of processes, as another namespace counts them */
    struct device device[];
};

/* node.c */
struct node *node_map(const char *path, int *bad_format);
void node_unmap(struct node *node);
int64_t node_now(const struct node *node);

/* lock.c */
void node_lock(struct node *node);
void node_unlock(struct node *node);

/* clock_choice.c: fills in mode, clocks and why they are what they are */
void clock_decide(const struct device *device, struct segment *segment);

/* switching.c: call with the node locked */
void switching_ask(struct device *device, int64_t now_ns);
void switching_settle(struct device *device, int64_t now_ns);

/* lifetime.c: call with the node locked */
void lifetime_join(struct node *node, int32_t pid);
void lifetime_leave(struct node *node, int32_t pid);
void lifetime_settle(struct node *node, struct device *device, int64_t now_ns);

/* model.c: call with the node locked */
void model_start(struct device *device);
void model_refresh(struct device *device, int64_t now_ns);
const struct segment *model_segment(const struct device *device);
const struct segment *model_segment_at(const struct device *device, int64_t time_ns);
struct totals model_totals(const struct device *device, int64_t time_ns);
double model_capped_s(const struct device *device, int64_t now_ns);
double model_temperature_c(const struct device *device, int64_t now_ns);
double model_iterations(const struct device *device, int64_t time_ns);
int64_t model_time_until(const struct device *device, int64_t now_ns, double iterations);

/* sensor.c: call with the node locked */
double sensor_noise(const struct device *device, int64_t time_ns, int64_t salt);
double sensor_power_w(const struct device *device, int64_t time_ns, double window_s);
double sensor_energy_j(struct device *device, int64_t now_ns);
void sensor_catch_up(struct device *device, int64_t now_ns);
void sensor_utilisation(const struct device *device, int64_t now_ns, double *sm, double *mem);

#endif
