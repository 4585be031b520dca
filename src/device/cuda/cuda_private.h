/* cuda_private.h - what the files of the CUDA device share: its structs and how a call is made.
 *
 * Every entry of the device table has the shape
 *     cuda_scope scope;
 *     MP_TRY(mp__cuda_enter(device, &scope));
 *     const CUresult result = mp__cu.something(...);
 *     return mp__cuda_leave(device, &scope, result, "cuSomething");
 * so that it runs in the device's primary context and the thread's own context is back afterwards.
 * Calls that CUDA forbids to a thread while streams are captured, though they are no part of what
 * is captured (memory, queries), begin with mp__cuda_enter_aside instead.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_CUDA_PRIVATE_H
#define MP_DEVICE_CUDA_PRIVATE_H

#include "base/later.h"
#include "device/collective.h"
#include "device/cuda/cuda_load.h"
#include "device/device.h"
#include "device/math.h"
#include "device/staging.h"

#include <pthread.h>
#include <stdatomic.h>

enum { CUDA_HANDLES_KEPT = 32, CUDA_DEVICES_MAX = 64 };
enum { CUDA_CLUSTER_PORTABLE = 8 /* blocks of a cluster, on every GPU that has clusters */ };

/* Handles of cuBLASLt or cuDNN that nobody is using. A handle serves one call at a time and
 * remembers a stream, so each stream that needs one has its own from its first call on (calls on
 * one stream come one at a time); preparing borrows one. */
typedef struct cuda_handles {
    pthread_mutex_t lock;
    int count;
    void *items[CUDA_HANDLES_KEPT];
} cuda_handles;

typedef struct cuda_device {
    mp_device base; /* first, so that cuda_device_of() is a cast */
    CUdevice handle;
    CUcontext context; /* the primary context, retained until the process ends */
    CUstream copies;   /* for calls that wait for their bytes */
    mp_staging staging;
    bool has_mempools;
    size_t granule;
    pthread_mutex_t kernel_lock; /* guards the list, and who makes a kernel ready */
    pthread_cond_t kernel_made;  /* or not */
    struct cuda_kernel *kernels;
    pthread_mutex_t lock;        /* guards regions, mempools and peers */
    struct cuda_region *regions; /* reserved addresses */
    struct cuda_mempool *mempools;
    uint64_t peers; /* ordinals that may read and write this device's memory */
    cuda_handles blaslt, dnn;
    struct cuda_branches { /* see cuda_branch.c; guarded by kernel_lock until it has been tried */
        atomic_bool ready;
        bool refused;
        CUlibrary library;
        CUkernel setter;
    } branches;
} cuda_device;

typedef struct cuda_stream {
    CUstream handle;
    bool owned;
    bool ended_branch;  /* the next kernel must wait for all of it */
    void *blaslt, *dnn; /* library handles, taken at the first need */
} cuda_stream;

typedef struct cuda_mempool {
    CUmemoryPool handle;
    struct cuda_mempool *next; /* among the device's */
} cuda_mempool;

typedef struct cuda_kernel {
    mp_later later; /* makes it ready */
    cuda_device *device;
    CUlibrary library;
    CUkernel kernel;
    size_t args_size; /* of its one parameter; 0 where the driver cannot tell */
    bool early;       /* may be brought up while the kernel before it ends */
    const mp_kernel_image *image;
    size_t references;
    atomic_bool ready;                  /* what stands above is set */
    bool busy;                          /* a thread is making it ready */
    const struct cuda_kernel *stand_in; /* launched until it is ready; NULL: it is never before */
    struct cuda_kernel *next;
} cuda_kernel;

typedef struct cuda_math cuda_math;

typedef struct cuda_math_ops {
    mp_status (*run)(cuda_device *device, mp_stream *stream, cuda_math *math,
                     const mp_addr *operands, mp_addr workspace);
    void (*release)(cuda_device *device, cuda_math *math); /* in the device's context */
} cuda_math_ops;

struct cuda_math { /* first member of every prepared object */
    const cuda_math_ops *ops;
    size_t workspace;
};

static inline cuda_device *cuda_device_of(mp_device *device) {
    return (cuda_device *)(void *)device;
}

static inline cuda_stream *cuda_stream_from(mp_stream *stream) {
    return (cuda_stream *)(void *)stream;
}

static inline CUstream cuda_stream_of(mp_stream *stream) {
    return cuda_stream_from(stream)->handle;
}

static inline CUevent cuda_event_of(mp_event *event) {
    return (CUevent)(void *)event;
}

/* ---- calls ---- */

typedef struct cuda_scope {
    CUcontext previous;
    bool switched;
    bool aside;
    CUstreamCaptureMode mode; /* the thread's own, while aside */
} cuda_scope;

/* Writes the sentence for a driver's error: the call, the device, the error and what to do. */
mp_status mp__cuda_fail(const cuda_device *device, CUresult result, const char *call)
    __attribute__((cold));

/* As mp__cuda_fail, for calls that cannot report: logs. Silent while the process ends. */
void mp__cuda_warn(const cuda_device *device, CUresult result, const char *call);

/* Makes the device's context current where it is not. */
mp_status mp__cuda_switch(const cuda_device *device, cuda_scope *scope);

static inline mp_status mp__cuda_enter(const cuda_device *device, cuda_scope *scope) {
    scope->switched = false;
    scope->aside = false;
    if (__builtin_expect(mp__cu.context_current(&scope->previous) == CUDA_SUCCESS &&
                             scope->previous == device->context,
                         1)) {
        return MP_OK;
    }
    return mp__cuda_switch(device, scope);
}

/* The same for calls that are no part of any capture: until the exit, the thread's capture mode is
 * the relaxed one, which lets them pass. */
static inline mp_status mp__cuda_enter_aside(const cuda_device *device, cuda_scope *scope) {
    MP_TRY(mp__cuda_enter(device, scope));
    scope->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    scope->aside = mp__cu.capture_mode(&scope->mode) == CUDA_SUCCESS;
    return MP_OK;
}

static inline void mp__cuda_exit(cuda_scope *scope) {
    if (scope->aside) {
        (void)mp__cu.capture_mode(&scope->mode);
    }
    if (scope->switched) {
        (void)mp__cu.context_set(scope->previous);
    }
}

static inline mp_status mp__cuda_leave(const cuda_device *device, cuda_scope *scope,
                                       CUresult result, const char *call) {
    mp__cuda_exit(scope);
    return __builtin_expect(result == CUDA_SUCCESS, 1) ? MP_OK
                                                       : mp__cuda_fail(device, result, call);
}

/* ---- library handles (cuda_handle.c); all in the device's context ---- */

/* The stream's own handle. Safe during capture. */
mp_status mp__cuda_stream_blaslt(cuda_device *device, mp_stream *stream, cublasLtHandle_t *out);
mp_status mp__cuda_stream_dnn(cuda_device *device, mp_stream *stream, cudnnHandle_t *out);
/* Gives the stream's handles back, before it is destroyed. */
void mp__cuda_stream_release(cuda_device *device, cuda_stream *stream);

/* A handle for one call that is not on a caller's stream, and its return. */
mp_status mp__cuda_blaslt_take(cuda_device *device, cublasLtHandle_t *out);
void mp__cuda_blaslt_give(cuda_device *device, cublasLtHandle_t handle);
mp_status mp__cuda_dnn_take(cuda_device *device, cudnnHandle_t *out);
void mp__cuda_dnn_give(cuda_device *device, cudnnHandle_t handle);

/* The sentence for a failed call of a library. */
mp_status mp__cuda_blaslt_fail(cublasStatus_t result, const char *call);
mp_status mp__cuda_dnn_fail(cudnnStatus_t result, const char *call);

/* ---- entries of the table, by file ---- */

/* cuda_memory.c */
mp_status mp__cuda_alloc(mp_device *self, size_t size, mp_addr *out);
void mp__cuda_free(mp_device *self, mp_addr addr, size_t size);
mp_status mp__cuda_alloc_pinned(mp_device *self, size_t size, mp_addr *out);
void mp__cuda_free_pinned(mp_device *self, mp_addr addr, size_t size);
mp_status mp__cuda_memory_info(mp_device *self, size_t *free_bytes, size_t *total_bytes);
void mp__cuda_note(mp_device *self, mp_addr addr, size_t size, bool live);
mp_status mp__cuda_copy(mp_device *self, mp_stream *stream, mp_addr target, mp_addr source,
                        size_t size);
mp_status mp__cuda_fill(mp_device *self, mp_stream *stream, mp_addr target, uint32_t value,
                        size_t width, size_t count);

mp_status mp__cuda_ipc_export(mp_device *self, mp_addr base, unsigned char *handle);
mp_status mp__cuda_ipc_open(mp_device *self, const unsigned char *handle, mp_addr *out,
                            size_t *size);
mp_status mp__cuda_ipc_close(mp_device *self, mp_addr addr);
/* Adds the size to the sentence of a failed allocation. */
mp_status mp__cuda_with_size(mp_status status, size_t size);

/* cuda_mempool.c */
mp_status mp__cuda_mempool_create(mp_device *self, size_t release_threshold, mp_mempool **out);
void mp__cuda_mempool_destroy(mp_device *self, mp_mempool *mempool);
mp_status mp__cuda_mempool_alloc(mp_device *self, mp_mempool *mempool, mp_stream *stream,
                                 size_t size, mp_addr *out);
mp_status mp__cuda_free_async(mp_device *self, mp_stream *stream, mp_addr addr, size_t size);
mp_status mp__cuda_mempool_trim(mp_device *self, mp_mempool *mempool, size_t keep);
mp_status mp__cuda_mempool_usage(mp_device *self, mp_mempool *mempool, mp_mempool_usage *out);
mp_status mp__cuda_mempool_reset_peaks(mp_device *self, mp_mempool *mempool);
/* Lets the devices in `readers` use the memory of `owner`'s mempools. Under the owner's lock. */
CUresult mp__cuda_mempools_grant(const cuda_device *owner, uint64_t readers);

/* cuda_virtual.c */
size_t mp__cuda_granule(mp_device *self);
mp_status mp__cuda_reserve(mp_device *self, size_t size, mp_addr *out);
void mp__cuda_unreserve(mp_device *self, mp_addr addr, size_t size);
mp_status mp__cuda_map(mp_device *self, mp_addr addr, size_t size);
mp_status mp__cuda_unmap(mp_device *self, mp_addr addr, size_t size);
mp_status mp__cuda_remap(mp_device *self, mp_addr target, mp_addr source, size_t size);
mp_status mp__cuda_peer_enable(mp_device *self, mp_device *other);

/* ---- cuda_external.c ---- */

mp_status mp__cuda_import_open(mp_device *self, int fd, size_t size, mp_import **out,
                               mp_addr *addr);
void mp__cuda_import_close(mp_device *self, mp_import *import);
mp_status mp__cuda_semaphore_open(mp_device *self, int fd, mp_semaphore **out);
void mp__cuda_semaphore_close(mp_device *self, mp_semaphore *semaphore);
mp_status mp__cuda_semaphore_signal(mp_device *self, mp_semaphore *semaphore, mp_stream *stream,
                                    uint64_t value);
mp_status mp__cuda_semaphore_wait(mp_device *self, mp_semaphore *semaphore, mp_stream *stream,
                                  uint64_t value);

/* cuda_stream.c */
mp_status mp__cuda_stream_create(mp_device *self, mp_stream **out);
mp_status mp__cuda_stream_wrap(mp_device *self, void *native, mp_stream **out);
void mp__cuda_stream_destroy(mp_device *self, mp_stream *stream);
void *mp__cuda_stream_native(mp_device *self, mp_stream *stream);
mp_status mp__cuda_stream_id(mp_device *self, mp_stream *stream, uint64_t *out);
mp_status mp__cuda_stream_synchronize(mp_device *self, mp_stream *stream);
mp_status mp__cuda_stream_query(mp_device *self, mp_stream *stream, bool *idle);
mp_status mp__cuda_stream_call(mp_device *self, mp_stream *stream, mp_host_call *fn, void *context);
mp_status mp__cuda_synchronize(mp_device *self);
mp_status mp__cuda_event_create(mp_device *self, bool timed, mp_event **out);
void mp__cuda_event_destroy(mp_device *self, mp_event *event);
mp_status mp__cuda_event_record(mp_device *self, mp_event *event, mp_stream *stream);
mp_status mp__cuda_event_wait(mp_device *self, mp_event *event, mp_stream *stream);
mp_status mp__cuda_event_synchronize(mp_device *self, mp_event *event);
mp_status mp__cuda_event_query(mp_device *self, mp_event *event, bool *reached);
mp_status mp__cuda_event_elapsed(mp_device *self, mp_event *start, mp_event *end, float *ms);
mp_status mp__cuda_capture_begin(mp_device *self, mp_stream *stream);
mp_status mp__cuda_capture_end(mp_device *self, mp_stream *stream, mp_graph_exec **out);
mp_status mp__cuda_capture_active(mp_device *self, mp_stream *stream, bool *active);
mp_status mp__cuda_graph_launch(mp_device *self, mp_graph_exec *graph, mp_stream *stream);
void mp__cuda_graph_destroy(mp_device *self, mp_graph_exec *graph);
mp_status mp__cuda_branch_prepare(mp_device *self);
mp_status mp__cuda_branch_begin(mp_device *self, mp_stream *stream, mp_addr condition, bool wanted,
                                mp_stream **inside);
mp_status mp__cuda_branch_end(mp_device *self, mp_stream *stream, mp_stream *inside);

/* cuda_kernel.c */
mp_status mp__cuda_kernel_load(mp_device *self, const mp_kernel_image *image, mp_kernel **out);
mp_status mp__cuda_kernel_open(mp_device *self, const mp_kernel_image *image, mp_kernel **out);
mp_status mp__cuda_kernel_ready(mp_device *self, mp_kernel *kernel);
bool mp__cuda_kernel_ready_later(mp_device *self, mp_kernel *kernel, mp_kernel *stand_in);
bool mp__cuda_kernels_settled(mp_device *self, bool wait);
void mp__cuda_kernel_unload(mp_device *self, mp_kernel *kernel);
mp_status mp__cuda_launch(mp_device *self, mp_stream *stream, const mp_kernel *kernel, mp_grid grid,
                          const void *args, size_t args_size);

/* cuda_profile.c */
mp_status mp__cuda_profile_begin(mp_device *self);
void mp__cuda_profile_flush(mp_device *self, const mp_profile *listener);
void mp__cuda_profile_end(mp_device *self);
int64_t mp__cuda_profile_clock(mp_device *self);

/* cuda_gemm.c, cuda_conv.c, and cuda_math.c for what they share */
mp_status mp__cuda_gemm_prepare(mp_device *self, const mp_gemm *shape, mp_math **out);
mp_status mp__cuda_conv_prepare(mp_device *self, const mp_conv *shape, mp_math **out, bool *whole);

/* cuda_collective.c */
mp_status mp__cuda_collective_prepare(mp_device *self, const mp_collective *what, mp_math **out);
mp_status mp__cuda_collective_peers(mp_device *self, mp_math *math, const mp_peers **out);
mp_status mp__cuda_collective_launch(mp_device *self, mp_stream *stream, mp_math *math,
                                     const mp_kernel *kernel, mp_grid grid, const void *args,
                                     size_t args_size);
/* cuda_conv_graph.c; in the device's context. Fails: UNSUPPORTED where cuda_conv.c must do it. */
mp_status mp__cuda_conv_graph_prepare(cuda_device *device, const mp_conv *shape, cuda_math **out,
                                      bool *whole);
/* What cuBLASLt and cuDNN call an element type, and what they compute it in. */
typedef struct cuda_type {
    mp_dtype type;
    cudaDataType_t blas, blas_scale;
    cublasComputeType_t blas_compute;
    cudnnDataType_t dnn, dnn_compute;
    cudnnMathType_t dnn_math;
} cuda_type;

/* NULL for a type that the libraries' products and convolutions do not take. */
const cuda_type *mp__cuda_type_find(mp_dtype type);
size_t mp__cuda_math_workspace(mp_device *self, const mp_math *math);
mp_status mp__cuda_math_run(mp_device *self, mp_stream *stream, mp_math *math,
                            const mp_addr *operands, mp_addr workspace);
void mp__cuda_math_release(mp_device *self, mp_math *math);

#endif
