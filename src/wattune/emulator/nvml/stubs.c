/* Everything that NVML exports and nothing here models: present by name, and not supported. */
#include "call.h"

#define STUB(name)                          \
    EXPORT ret_t name(void);                \
    EXPORT ret_t name(void)                 \
    {                                       \
        BEGIN(node, name, 1);               \
        return NOT_SUPPORTED;               \
    }
#include "stubs.inc"
