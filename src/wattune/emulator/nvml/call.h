/* How every served function begins and ends. */
#ifndef WATTUNE_CALL_H
#define WATTUNE_CALL_H

#include "abi.h"
#include "state.h"

enum function {
#define META(name) FN_##name,
#define GET(name) FN_##name,
#define SET(name) FN_##name,
#define STUB(name) FN_##name,
#include "functions.inc"
#include "stubs.inc"
#undef META
#undef GET
#undef SET
#undef STUB
    FUNCTIONS
};

struct call {
    struct node *node;
    struct device *device;
    int64_t now_ns;
};

/* Counts the call; then UNINITIALIZED without a node, INVALID_ARGUMENT unless the arguments are good. */
ret_t call_node(struct call *call, enum function function, int good);

/* The same for a call on a device, which may also be lost or faulty. */
ret_t call_device(struct call *call, enum function function, handle_t handle, int good);

/* The same, and the node is locked and its time taken; end it with call_end. */
ret_t call_locked(struct call *call, enum function function, handle_t handle, int good);

/* The same for a change, which needs privilege. */
ret_t call_change(struct call *call, enum function function, handle_t handle, int good);

/* Unlocks and gives the status. */
ret_t call_end(struct call *call, ret_t status);

/* Lets a change take effect, unlocks and gives the status. */
ret_t call_changed(struct call *call);

handle_t handle_of(uint32_t index);
ret_t device_fault(const struct device *device, int64_t now_ns);
ret_t copy_text(char *to, unsigned int size, const char *from);
unsigned long long wall_us(const struct node *node, int64_t time_ns);

#define BEGIN(how, name, ...)                                    \
    struct call call;                                            \
    ret_t begun = call_##how(&call, FN_##name, __VA_ARGS__);     \
    if (begun != SUCCESS)                                        \
        return begun

#endif
