/* driver.h - the functions of CUDA's driver that pool_bench calls; loaded at run time, so that it
 * builds and runs without CUDA.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef BENCH_POOL_DRIVER_H
#define BENCH_POOL_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t cu_memory; /* CUdeviceptr; streams, events, contexts, modules are void * */

/* X(name in the table, symbol, arguments) */
#define DRIVER_LIST(X)                                                                       \
    X(init, cuInit, (unsigned))                                                              \
    X(error_name, cuGetErrorName, (int, const char **))                                      \
    X(version, cuDriverGetVersion, (int *))                                                  \
    X(device_get, cuDeviceGet, (int *, int))                                                 \
    X(device_name, cuDeviceGetName, (char *, int, int))                                      \
    X(context_retain, cuDevicePrimaryCtxRetain, (void **, int))                              \
    X(context_set, cuCtxSetCurrent, (void *))                                                \
    X(context_wait, cuCtxSynchronize, (void))                                                \
    X(memory_info, cuMemGetInfo_v2, (size_t *, size_t *))                                    \
    X(memory_alloc, cuMemAlloc_v2, (cu_memory *, size_t))                                    \
    X(memory_free, cuMemFree_v2, (cu_memory))                                                \
    X(host_alloc, cuMemAllocHost_v2, (void **, size_t))                                      \
    X(host_free, cuMemFreeHost, (void *))                                                    \
    X(fill, cuMemsetD32Async, (cu_memory, unsigned, size_t, void *))                         \
    X(read, cuMemcpyDtoHAsync_v2, (void *, cu_memory, size_t, void *))                       \
    X(stream_create, cuStreamCreate, (void **, unsigned))                                    \
    X(stream_wait_event, cuStreamWaitEvent, (void *, void *, unsigned))                      \
    X(event_create, cuEventCreate, (void **, unsigned))                                      \
    X(event_record, cuEventRecord, (void *, void *))                                         \
    X(event_destroy, cuEventDestroy_v2, (void *))                                            \
    X(module_load, cuModuleLoadData, (void **, const void *))                                \
    X(module_function, cuModuleGetFunction, (void **, void *, const char *))                 \
    X(launch, cuLaunchKernel,                                                                \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, \
       void **, void **))                                                                    \
    X(mempool_default, cuDeviceGetDefaultMemPool, (void **, int))                            \
    X(mempool_set, cuMemPoolSetAttribute, (void *, int, void *))                             \
    X(mempool_get, cuMemPoolGetAttribute, (void *, int, void *))                             \
    X(mempool_trim, cuMemPoolTrimTo, (void *, size_t))                                       \
    X(alloc_async, cuMemAllocAsync, (cu_memory *, size_t, void *))                           \
    X(free_async, cuMemFreeAsync, (cu_memory, void *))

enum { /* attributes of a memory pool */
       CU_POOL_RELEASE_THRESHOLD = 4,
       CU_POOL_RESERVED = 5,
       CU_POOL_RESERVED_HIGH = 6,
};

typedef struct driver {
#define DRIVER_ENTRY(name, symbol, arguments) int(*name) arguments;
    DRIVER_LIST(DRIVER_ENTRY)
#undef DRIVER_ENTRY
} driver;

extern driver cu;

/* Loads libcuda.so.1 once; false, with the reason, where that is not possible. */
bool driver_open(const char **why);

/* Ends the program unless `result` is 0. */
void driver_must(int result, const char *what);

#endif
