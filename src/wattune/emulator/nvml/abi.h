/* The part of NVML's binary interface that is served, in declarations of our own.
 *
 * Sizes and offsets are checked against nvidia-ml-py's structures by the tests.
 */
#ifndef WATTUNE_ABI_H
#define WATTUNE_ABI_H

typedef int ret_t;
typedef void *handle_t;

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    LIBRARY_NOT_FOUND = 12,
    GPU_IS_LOST = 15,
    LIB_RM_VERSION_MISMATCH = 18,
    ARGUMENT_VERSION_MISMATCH = 25,
};

enum { VALUE_UNSIGNED_INT = 1, VALUE_UNSIGNED_LONG_LONG = 3 };
enum { CLOCK_GRAPHICS = 0, CLOCK_SM = 1, CLOCK_MEM = 2, CLOCK_VIDEO = 3 };
enum { CLOCK_ID_CURRENT = 0, CLOCK_ID_APP_TARGET = 1, CLOCK_ID_APP_DEFAULT = 2, CLOCK_ID_BOOST_MAX = 3 };
enum { REASON_IDLE = 0x1, REASON_CLOCKS_SETTING = 0x2, REASON_POWER_CAP = 0x4, REASON_THERMAL = 0x20 };

/* Names for clocks that a lock may carry in place of a number. */
#define CLOCK_LIMIT_LOWEST 0xffffff00u
#define CLOCK_LIMIT_TDP 0xffffff01u
#define CLOCK_LIMIT_NONE 0xffffff02u

union value {
    double d;
    unsigned int ui;
    unsigned long ul;
    unsigned long long ull;
    long long sll;
};

struct field_value {
    unsigned int field, scope;
    long long timestamp_us, latency_us;
    int type;
    ret_t status;
    union value value;
};

struct sample {
    unsigned long long timestamp_us;
    union value value;
};

struct pci_info_v2 {
    char bus_id[16];
    unsigned int domain, bus, device, device_id, subsystem_id, reserved[4];
};

struct pci_info_v3 {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct pci_info_ext {
    unsigned int version, domain, bus, device, device_id, subsystem_id, base_class, sub_class;
    char bus_id[32];
};

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned int version;
    unsigned long long total, reserved, free, used;
};

struct utilization {
    unsigned int gpu, memory;
};

struct process_v1 {
    unsigned int pid;
    unsigned long long memory;
};

struct process_v2 {
    unsigned int pid;
    unsigned long long memory;
    unsigned int gpu_instance, compute_instance;
};

struct process_utilization {
    unsigned int pid;
    unsigned long long timestamp_us;
    unsigned int sm, memory, encoder, decoder;
};

struct violation_time {
    unsigned long long reference_us, violation_ns;
};

struct temperature_v1 {
    unsigned int version, sensor;
    int temperature_c;
};

struct power_value_v2 {
    unsigned int version, scope, milliwatts;
};

struct gpm_support {
    unsigned int version, is_supported;
};

struct gpm_metric {
    unsigned int metric;
    ret_t status;
    double value;
    const char *short_name, *long_name, *unit;
};

/* As long as the caller's list: nvidia-ml-py reserves room for every metric that it knows. */
struct gpm_metrics {
    unsigned int version, count;
    struct gpm_sample *first, *second;
    struct gpm_metric metric[];
};

struct c2c_mode {
    unsigned int enabled;
};

#define STRUCT_VERSION(type, number) ((unsigned int)(sizeof(type) | ((number) << 24)))

#endif
