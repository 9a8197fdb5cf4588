/* What each error code means, in our words. */
#include "call.h"

static const char *const TEXTS[] = {
    [0] = "Success",
    [1] = "Uninitialized",
    [2] = "Invalid Argument",
    [3] = "Not Supported",
    [4] = "Insufficient Permissions",
    [5] = "Already Initialized",
    [6] = "Not Found",
    [7] = "Insufficient Size",
    [8] = "Insufficient External Power",
    [9] = "Driver Not Loaded",
    [10] = "Timeout",
    [11] = "Interrupt Request Issue",
    [12] = "NVML Shared Library Not Found",
    [13] = "Function Not Found",
    [14] = "Corrupted infoROM",
    [15] = "GPU is lost",
    [16] = "GPU requires reset",
    [17] = "Blocked by the operating system",
    [18] = "Driver/library version mismatch",
    [19] = "In use by another client",
    [20] = "Insufficient memory",
    [21] = "No data",
    [22] = "Not possible for a virtual GPU with ECC",
    [23] = "Insufficient Resources",
    [24] = "Frequency not supported",
    [25] = "Argument version mismatch",
    [26] = "Deprecated",
    [27] = "Not ready",
    [28] = "GPU not found",
    [29] = "Invalid state",
};

EXPORT const char *nvmlErrorString(ret_t code)
{
    if (code < 0 || code >= (ret_t)(sizeof TEXTS / sizeof *TEXTS))
        return "Unknown Error";
    return TEXTS[code];
}
