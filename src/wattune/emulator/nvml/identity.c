/* Which GPUs there are and what each of them is. */
#include "call.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

EXPORT ret_t nvmlDeviceGetCount(unsigned int *count)
{
    BEGIN(node, nvmlDeviceGetCount, count != NULL);
    *count = call.node->devices;
    return SUCCESS;
}

EXPORT ret_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    BEGIN(node, nvmlDeviceGetCount_v2, count != NULL);
    *count = call.node->devices;
    return SUCCESS;
}

/* ---- handles ---- */

static ret_t give_handle(const struct call *call, uint32_t index, handle_t *handle)
{
    ret_t status = device_fault(&call->node->device[index], call->now_ns);
    if (status == SUCCESS)
        *handle = handle_of(index);
    return status;
}

static ret_t by_index(const struct call *call, unsigned int index, handle_t *handle)
{
    return index < call->node->devices ? give_handle(call, index, handle) : INVALID_ARGUMENT;
}

EXPORT ret_t nvmlDeviceGetHandleByIndex(unsigned int index, handle_t *handle)
{
    BEGIN(node, nvmlDeviceGetHandleByIndex, handle != NULL);
    return by_index(&call, index, handle);
}

EXPORT ret_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, handle_t *handle)
{
    BEGIN(node, nvmlDeviceGetHandleByIndex_v2, handle != NULL);
    return by_index(&call, index, handle);
}

EXPORT ret_t nvmlDeviceGetHandleByUUID(const char *uuid, handle_t *handle)
{
    BEGIN(node, nvmlDeviceGetHandleByUUID, uuid != NULL && handle != NULL);
    for (uint32_t index = 0; index < call.node->devices; index++)
        if (!strcmp(call.node->device[index].uuid, uuid))
            return give_handle(&call, index, handle);
    return NOT_FOUND;
}

EXPORT ret_t nvmlDeviceGetHandleBySerial(const char *serial, handle_t *handle)
{
    BEGIN(node, nvmlDeviceGetHandleBySerial, serial != NULL && handle != NULL);
    for (uint32_t index = 0; index < call.node->devices; index++)
        if (call.node->device[index].serial[0] && !strcmp(call.node->device[index].serial, serial))
            return give_handle(&call, index, handle);
    return NOT_FOUND;
}

/* Bus ids come with a domain of four or of eight digits, in either case. */
static ret_t by_bus_id(const struct call *call, const char *bus_id, handle_t *handle)
{
    unsigned int domain, bus, slot, function;
    if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
        return INVALID_ARGUMENT;
    char whole[TEXT];
    snprintf(whole, sizeof whole, "%08X:%02X:%02X.%X", domain, bus, slot, function);
    for (uint32_t index = 0; index < call->node->devices; index++)
        if (!strcasecmp(call->node->device[index].bus_id, whole))
            return give_handle(call, index, handle);
    return NOT_FOUND;
}

EXPORT ret_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, handle_t *handle)
{
    BEGIN(node, nvmlDeviceGetHandleByPciBusId, bus_id != NULL && handle != NULL);
    return by_bus_id(&call, bus_id, handle);
}

EXPORT ret_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, handle_t *handle)
{
    BEGIN(node, nvmlDeviceGetHandleByPciBusId_v2, bus_id != NULL && handle != NULL);
    return by_bus_id(&call, bus_id, handle);
}

/* ---- texts ---- */

EXPORT ret_t nvmlDeviceGetName(handle_t handle, char *name, unsigned int size)
{
    BEGIN(device, nvmlDeviceGetName, handle, name != NULL);
    return copy_text(name, size, call.device->name);
}

EXPORT ret_t nvmlDeviceGetUUID(handle_t handle, char *uuid, unsigned int size)
{
    BEGIN(device, nvmlDeviceGetUUID, handle, uuid != NULL);
    return copy_text(uuid, size, call.device->uuid);
}

EXPORT ret_t nvmlDeviceGetSerial(handle_t handle, char *serial, unsigned int size)
{
    BEGIN(device, nvmlDeviceGetSerial, handle, serial != NULL);
    return call.device->serial[0] ? copy_text(serial, size, call.device->serial) : NOT_SUPPORTED;
}

EXPORT ret_t nvmlDeviceGetVbiosVersion(handle_t handle, char *version, unsigned int size)
{
    BEGIN(device, nvmlDeviceGetVbiosVersion, handle, version != NULL);
    return copy_text(version, size, "00.00.00.00.00");
}

/* ---- numbers that never change ---- */

static unsigned int index_of(const struct call *call)
{
    return (unsigned int)(call->device - call->node->device);
}

#define CONSTANT(name, type, value)                     \
    EXPORT ret_t name(handle_t handle, type *out)       \
    {                                                   \
        BEGIN(device, name, handle, out != NULL);       \
        *out = (type)(value);                           \
        return SUCCESS;                                 \
    }

CONSTANT(nvmlDeviceGetIndex, unsigned int, index_of(&call))
CONSTANT(nvmlDeviceGetMinorNumber, unsigned int, index_of(&call))
CONSTANT(nvmlDeviceGetBoardId, unsigned int, (index_of(&call) + 1) << 8)
CONSTANT(nvmlDeviceGetBrand, unsigned int, call.device->brand)
CONSTANT(nvmlDeviceGetArchitecture, unsigned int, call.device->architecture)
CONSTANT(nvmlDeviceGetNumGpuCores, unsigned int, call.device->cores)
CONSTANT(nvmlDeviceGetMemoryBusWidth, unsigned int, call.device->bus_width_bits)
CONSTANT(nvmlDeviceGetMultiGpuBoard, unsigned int, 0)
CONSTANT(nvmlDeviceGetBusType, unsigned int, 2) /* PCI Express */
CONSTANT(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, call.device->architecture < 7 ? 3 : 4)
CONSTANT(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, call.device->architecture < 7 ? 3 : 4)
CONSTANT(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, 16)
CONSTANT(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, 16)
CONSTANT(nvmlDeviceGetPcieReplayCounter, unsigned int, 0)
CONSTANT(nvmlDeviceIsMigDeviceHandle, unsigned int, 0)
CONSTANT(nvmlDeviceGetDisplayMode, unsigned int, 0)
CONSTANT(nvmlDeviceGetDisplayActive, unsigned int, 0)
CONSTANT(nvmlDeviceGetComputeMode, unsigned int, 0)
CONSTANT(nvmlDeviceGetNumFans, unsigned int, call.device->has_fan)

EXPORT ret_t nvmlDeviceGetCudaComputeCapability(handle_t handle, int *major, int *minor)
{
    BEGIN(device, nvmlDeviceGetCudaComputeCapability, handle, major != NULL && minor != NULL);
    *major = (int)call.device->cuda_major;
    *minor = (int)call.device->cuda_minor;
    return SUCCESS;
}

EXPORT ret_t nvmlDeviceGetC2cModeInfoV(handle_t handle, struct c2c_mode *mode)
{
    BEGIN(device, nvmlDeviceGetC2cModeInfoV, handle, mode != NULL);
    mode->enabled = 0;
    return SUCCESS;
}

EXPORT ret_t nvmlDeviceGetEccMode(handle_t handle, unsigned int *current, unsigned int *pending)
{
    BEGIN(device, nvmlDeviceGetEccMode, handle, current != NULL && pending != NULL);
    *current = *pending = 1;
    return call.device->has_ecc ? SUCCESS : NOT_SUPPORTED;
}

EXPORT ret_t nvmlDeviceGetTotalEccErrors(handle_t handle, unsigned int kind, unsigned int counter,
                                         unsigned long long *count)
{
    BEGIN(device, nvmlDeviceGetTotalEccErrors, handle, kind < 2 && counter < 2 && count != NULL);
    *count = 0;
    return call.device->has_ecc ? SUCCESS : NOT_SUPPORTED;
}

/* ---- the bus ---- */

static unsigned int bus_of(const struct call *call)
{
    return index_of(call) + 1;
}

static void short_bus_id(const struct call *call, char to[16])
{
    snprintf(to, 16, "0000:%02X:00.0", bus_of(call) & 0xff);
}

EXPORT ret_t nvmlDeviceGetPciInfo_v3(handle_t handle, struct pci_info_v3 *info)
{
    BEGIN(device, nvmlDeviceGetPciInfo_v3, handle, info != NULL);
    *info = (struct pci_info_v3){.bus = bus_of(&call), .device_id = (unsigned int)call.device->pci_device_id};
    short_bus_id(&call, info->bus_id_legacy);
    return copy_text(info->bus_id, sizeof info->bus_id, call.device->bus_id);
}

EXPORT ret_t nvmlDeviceGetPciInfo_v2(handle_t handle, struct pci_info_v2 *info)
{
    BEGIN(device, nvmlDeviceGetPciInfo_v2, handle, info != NULL);
    *info = (struct pci_info_v2){.bus = bus_of(&call), .device_id = (unsigned int)call.device->pci_device_id};
    short_bus_id(&call, info->bus_id);
    return SUCCESS;
}

/* The first version ends before the subsystem and the reserved words. */
EXPORT ret_t nvmlDeviceGetPciInfo(handle_t handle, struct pci_info_v2 *info)
{
    BEGIN(device, nvmlDeviceGetPciInfo, handle, info != NULL);
    short_bus_id(&call, info->bus_id);
    info->domain = info->device = 0;
    info->bus = bus_of(&call);
    info->device_id = (unsigned int)call.device->pci_device_id;
    return SUCCESS;
}

EXPORT ret_t nvmlDeviceGetPciInfoExt(handle_t handle, struct pci_info_ext *info)
{
    BEGIN(device, nvmlDeviceGetPciInfoExt, handle, info != NULL);
    unsigned int version = STRUCT_VERSION(struct pci_info_ext, 1u);
    if (info->version != version)
        return ARGUMENT_VERSION_MISMATCH;
    *info = (struct pci_info_ext){.version = version, .bus = bus_of(&call), .base_class = 3, .sub_class = 2};
    info->device_id = (unsigned int)call.device->pci_device_id;
    return copy_text(info->bus_id, sizeof info->bus_id, call.device->bus_id);
}
