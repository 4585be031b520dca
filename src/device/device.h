/* device.h - what the pool, the operators and the provider may ask of a device.
 *
 * Implemented by device/cuda (the driver, loaded at run time) and device/host (emulated on the
 * CPU). Everything above this table cannot tell the two apart.
 *
 * Rules for every call: `self` is never NULL and sizes are never zero unless it says so; a thread's
 * current CUDA context is left as it was found; a call may come from any thread; calls on one
 * stream are ordered by the caller. Failures leave one sentence in mp_error_message().
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_DEVICE_H
#define MP_DEVICE_DEVICE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mp_device mp_device;
typedef struct mp_stream mp_stream;         /* a queue of work; first in, first out */
typedef struct mp_event mp_event;           /* a mark in a stream */
typedef struct mp_graph_exec mp_graph_exec; /* a recorded queue, ready to be launched again */
typedef struct mp_kernel mp_kernel;         /* a kernel loaded on one device */
typedef struct mp_mempool mp_mempool;       /* the driver's own pool, ordered by streams */
typedef struct mp_math mp_math; /* a prepared matrix product or convolution, see math.h */
typedef struct mp_gemm mp_gemm;
typedef struct mp_conv mp_conv;
typedef struct mp_collective mp_collective; /* see collective.h */
typedef struct mp_peers mp_peers;           /* see collective.h */
typedef struct mp_import mp_import;         /* memory of another API */
typedef struct mp_semaphore mp_semaphore;   /* a timeline semaphore of another API */
typedef struct mp_profile mp_profile;       /* who listens to what a device does, see profile.h */

typedef uintptr_t mp_addr; /* an address of device, pinned or host memory; one address space */

enum { MP_ALIGNMENT = 256 }; /* of every allocation */

typedef enum mp_device_kind { MP_DEVICE_HOST, MP_DEVICE_CUDA } mp_device_kind;

typedef struct mp_device_info {
    mp_device_kind kind;
    char name[128];      /* "NVIDIA H200", "Millpond emulated device" */
    char pci_bus_id[32]; /* lower case, "" where there is none */
    char driver[64];     /* "CUDA 13.0", "host" */
    int arch;            /* 90 for compute capability 9.0; 0 on the host device */
    bool compiles;       /* a kernel may take a compiler, so that another may stand in for it */
    int multiprocessors; /* worker threads on the host device, unless its kernels are recorded */
    int warp;            /* lanes that run in step; 1 on the host device */
    uint32_t block_lanes_max;
    size_t shared_bytes_max; /* dynamic shared memory of a block */
    int cluster_blocks_max;  /* that a launch may have meet as a cluster; 0: none */
    bool grids_meet; /* all blocks of a launch may: one for each multiprocessor is possible */
    size_t memory_bytes;
    bool notes; /* note() has an effect: an emulated device that looks for breaches */
} mp_device_info;

typedef struct mp_mempool_usage {  /* bytes */
    size_t reserved, reserved_max; /* reserved from the device */
    size_t used, used_max;         /* given out, and not yet given back by a free_async */
} mp_mempool_usage;

enum { MP_IPC_HANDLE_BYTES = 64 };

/* ---- kernels ---- */

typedef struct mp_source { /* one file of kernel text; static storage */
    const char *name;      /* as it is written in #include: "kernel/core/prelude.h" */
    const char *text;
} mp_source;

typedef void mp_host_entry(const void *args);

/* One kernel for one choice of types: what a device needs to load it. Stays where it is until the
 * kernel is unloaded. */
typedef struct mp_kernel_image {
    const char *name;           /* "pointwise1_relu_f32"; also the extern "C" symbol */
    const char *source;         /* name of the main file within `sources` */
    const char *text;           /* of a main file that is not among them; otherwise NULL */
    const char *const *defines; /* "K_T0=f32", ...; NULL ends */
    const mp_source *sources;   /* every file of kernel text; a NULL name ends */
    const char *headers;        /* a hash of all sources but main files; NULL: nobody made one */
    mp_host_entry *host;        /* the same text compiled for the CPU */
    bool lanes;                 /* its lanes meet at barriers (K_BLOCK_KERNEL) */
    bool waits;  /* begins by waiting for the kernel before it (kernel/core/prelude.h) */
    bool rounds; /* every product is rounded before it is added, as between two kernels */
    bool beside; /* its blocks come up beside those of a kernel that has much shared memory, too */
} mp_kernel_image;

/* Kernels without barriers are grid-stride loops: any grid yields the same result. Kernels with
 * barriers work for every power of two of lanes, so a host may run a block with one lane. */
typedef struct mp_grid {
    uint32_t blocks;   /* at least 1 */
    uint32_t blocks_y; /* 0 means 1 */
    uint32_t lanes;    /* of a block, at least 1 */
    uint32_t shared_bytes;
    uint32_t meets; /* neighbours that wait for one another: none below 2; or MP_MEETS_ALL */
} mp_grid;

/* All blocks are there at once. The launch fails where they do not fit. */
#define MP_MEETS_ALL UINT32_MAX

typedef void mp_host_call(void *context);

typedef struct mp_device_ops {
    /* -- memory --
     * None of these calls disturbs or joins a capture, of whatever thread and mode. */

    /* Gives: `*out`, aligned to MP_ALIGNMENT, until free. Blocks: may.
     * Fails: OUT_OF_MEMORY, nothing lost. */
    mp_status (*alloc)(mp_device *self, size_t size, mp_addr *out);
    /* Takes: `addr`. The caller has made sure that no queued work still uses it. */
    void (*free)(mp_device *self, mp_addr addr, size_t size);
    /* Page-locked host memory that the device reads and writes directly. */
    mp_status (*alloc_pinned)(mp_device *self, size_t size, mp_addr *out);
    void (*free_pinned)(mp_device *self, mp_addr addr, size_t size);
    mp_status (*memory_info)(mp_device *self, size_t *free_bytes, size_t *total_bytes);
    /* Tells an emulated device that looks for breaches (info.notes) that a part of its memory, of
     * whatever kind, has been freed to (`live` false) or allocated by (`live` true) an
     * allocator above it. Work queued later that refers to a part that is not live is a breach;
     * work queued before is not. Nothing on other devices. */
    void (*note)(mp_device *self, mp_addr addr, size_t size, bool live);

    /* -- addresses without memory, and memory put behind them --
     * Addresses and sizes are multiples of the granule; it is 0 where the device lacks all this. */

    size_t (*granule)(mp_device *self);
    mp_status (*reserve)(mp_device *self, size_t size, mp_addr *out);
    void (*unreserve)(mp_device *self, mp_addr addr, size_t size);
    mp_status (*map)(mp_device *self, mp_addr addr, size_t size);
    mp_status (*unmap)(mp_device *self, mp_addr addr, size_t size);
    /* Moves the memory behind `source`, all of it mapped, to `target`, reserved and without memory,
     * with its contents; nothing is behind `source` afterwards. The caller has made sure that no
     * queued work still uses `source`. Fails: all stays where it was. */
    mp_status (*remap)(mp_device *self, mp_addr target, mp_addr source, size_t size);

    /* -- memory ordered by streams --
     * Memory that streams have freed stays with its mempool up to `release_threshold` bytes; more
     * goes back to the device at the next synchronization. 0 leaves the driver's default. */

    /* Gives: `*out`, until mempool_destroy. Fails: UNSUPPORTED where the driver has none. */
    mp_status (*mempool_create)(mp_device *self, size_t release_threshold, mp_mempool **out);
    /* Takes: `mempool`, all of whose memory has been freed by a free_async that was reached. */
    void (*mempool_destroy)(mp_device *self, mp_mempool *mempool);
    /* Gives: `*out`, usable by work queued on `stream` after the call, until free_async; by other
     * work once `stream` has come here. Fails: OUT_OF_MEMORY; UNSUPPORTED while `stream` is being
     * captured, which does not disturb the capture. */
    mp_status (*mempool_alloc)(mp_device *self, mp_mempool *mempool, mp_stream *stream, size_t size,
                               mp_addr *out);
    /* Takes: `addr`, which is freed when `stream` gets there; it need not be the stream that the
     * memory was given on. Fails: UNSUPPORTED, as mempool_alloc. */
    mp_status (*free_async)(mp_device *self, mp_stream *stream, mp_addr addr, size_t size);
    /* Gives unused memory back to the device until at most `keep` bytes are left; what streams have
     * not freed yet stays. */
    mp_status (*mempool_trim)(mp_device *self, mp_mempool *mempool, size_t keep);
    mp_status (*mempool_usage)(mp_device *self, mp_mempool *mempool, mp_mempool_usage *out);
    /* The peaks restart at the present values. */
    mp_status (*mempool_reset_peaks)(mp_device *self, mp_mempool *mempool);

    /* -- memory of other processes -- */

    /* A handle for the allocation that begins at `base`, returned by alloc (not by reserve or a
     * mempool). Other processes may open it for as long as the allocation lives.
     * Fails: UNSUPPORTED where the device cannot share memory, INVALID_ARGUMENT. */
    mp_status (*ipc_export)(mp_device *self, mp_addr base,
                            unsigned char handle[MP_IPC_HANDLE_BYTES]);
    /* Gives: `*out`, the whole allocation of another process and its size, until ipc_close, one for
     * each open. Fails: INVALID_ARGUMENT for a handle of this process or one that is stale. */
    mp_status (*ipc_open)(mp_device *self, const unsigned char handle[MP_IPC_HANDLE_BYTES],
                          mp_addr *out, size_t *size);
    /* The caller has made sure that no queued work still uses it. */
    mp_status (*ipc_close)(mp_device *self, mp_addr addr);

    /* -- copies and fills --
     * A NULL stream: the call returns when the bytes are there. Otherwise queued, with CUDA's
     * meaning for memory that is not pinned: a source on the host has been read when the call
     * returns; a target on the host has been written when the call returns. */
    mp_status (*copy)(mp_device *self, mp_stream *stream, mp_addr target, mp_addr source,
                      size_t size);
    /* Writes `count` elements of `width` bytes (1, 2 or 4), each the low bytes of `value`. */
    mp_status (*fill)(mp_device *self, mp_stream *stream, mp_addr target, uint32_t value,
                      size_t width, size_t count);

    /* -- streams -- */

    mp_status (*stream_create)(mp_device *self, mp_stream **out);
    /* Wraps a native handle that the caller owns: on a GPU a CUstream, on the emulated device an
     * mp_stream of it. NULL and 1 are the legacy default stream; 2 is the calling thread's own
     * default stream, and such a wrap may be used on this thread only. Cheap; one stream may be
     * wrapped many times. Destroying a wrap neither waits nor touches the stream, which may be
     * gone by then. */
    mp_status (*stream_wrap)(mp_device *self, void *native, mp_stream **out);
    /* Takes: `stream`. Waits for its queued work, unless it is a wrap. Never fails. */
    void (*stream_destroy)(mp_device *self, mp_stream *stream);
    /* The handle to wrap or to pass to others, the same for a stream and for its wraps. */
    void *(*stream_native)(mp_device *self, mp_stream *stream);
    /* A number that no other stream of the process has or had, though native handles are used
     * again. The default streams have one each, too. */
    mp_status (*stream_id)(mp_device *self, mp_stream *stream, uint64_t *out);
    mp_status (*stream_synchronize)(mp_device *self, mp_stream *stream);
    mp_status (*stream_query)(mp_device *self, mp_stream *stream, bool *idle);
    /* Runs `fn` on a thread of the device's choice when the stream gets there. `fn` must not call
     * the device. */
    mp_status (*stream_call)(mp_device *self, mp_stream *stream, mp_host_call *fn, void *context);
    /* Waits for all streams. Fails, and breaks the capture, while any stream is being captured. */
    mp_status (*synchronize)(mp_device *self);

    /* -- events -- */

    mp_status (*event_create)(mp_device *self, bool timed, mp_event **out);
    void (*event_destroy)(mp_device *self, mp_event *event);
    mp_status (*event_record)(mp_device *self, mp_event *event, mp_stream *stream);
    /* Work queued on `stream` from now on starts after the last record of `event`. An event that
     * was never recorded counts as reached. */
    mp_status (*event_wait)(mp_device *self, mp_event *event, mp_stream *stream);
    mp_status (*event_synchronize)(mp_device *self, mp_event *event);
    mp_status (*event_query)(mp_device *self, mp_event *event, bool *reached);
    /* Milliseconds between two reached events that were created with `timed`. */
    mp_status (*event_elapsed)(mp_device *self, mp_event *start, mp_event *end, float *ms);

    /* -- graphs -- */

    mp_status (*capture_begin)(mp_device *self, mp_stream *stream);
    mp_status (*capture_end)(mp_device *self, mp_stream *stream, mp_graph_exec **out);
    mp_status (*capture_active)(mp_device *self, mp_stream *stream, bool *active);
    mp_status (*graph_launch)(mp_device *self, mp_graph_exec *graph, mp_stream *stream);
    void (*graph_destroy)(mp_device *self, mp_graph_exec *graph);

    /* -- branches: parts of a capture that a launch runs or leaves out -- */

    /* Makes ready what branches need, once for the device; cheap afterwards. Not during capture of
     * a stream on the same thread. Blocks: the first time. Fails: UNSUPPORTED where neither driver
     * nor device has branches. */
    mp_status (*branch_prepare)(mp_device *self);
    /* After branch_prepare. What is queued on `*inside` from now on is a part of the capture of
     * `stream`; nothing is queued on `stream` until branch_end. A launch that gets here looks at
     * the byte at `condition`, and runs that part if the byte holds (is not 0) as `wanted`.
     * Branches nest: `*inside` is being captured, too. They take kernels, copies and fills that
     * stay on the device, and prepared math; no calls of the host. Gives: `*inside`, until
     * branch_end, which each begin that succeeded needs, on the same thread, also where something
     * failed meanwhile. Fails: INVALID_ARGUMENT for a stream that is not being captured;
     * UNSUPPORTED. */
    mp_status (*branch_begin)(mp_device *self, mp_stream *stream, mp_addr condition, bool wanted,
                              mp_stream **inside);
    mp_status (*branch_end)(mp_device *self, mp_stream *stream, mp_stream *inside);

    /* -- kernels -- */

    /* Gives: `*out`, until kernel_unload. Compiles where needed. Borrows: `image`, for good.
     * Blocks: yes. Not during capture of a stream on the same thread. */
    mp_status (*kernel_load)(mp_device *self, const mp_kernel_image *image, mp_kernel **out);
    /* The same in two parts: a kernel that cannot be launched yet, and, as often as wanted, what
     * makes it ready. Threads: several kernels are made ready side by side. Blocks: the latter. */
    mp_status (*kernel_open)(mp_device *self, const mp_kernel_image *image, mp_kernel **out);
    mp_status (*kernel_ready)(mp_device *self, mp_kernel *kernel);
    /* The same on a thread of the device's own: until it is ready, launches of `kernel` are
     * launches of `stand_in`, which takes the same arguments. So they stay, with a warning in the
     * log, where it cannot be made ready. What is captured waits for it. False where there is
     * nothing to gain, as that takes no compiler, or `stand_in` takes one, too: the caller then
     * uses kernel_ready. Borrows: `stand_in`, until kernel_unload of `kernel`. Threads: any. */
    bool (*kernel_ready_later)(mp_device *self, mp_kernel *kernel, mp_kernel *stand_in);
    /* Whether no kernel is on its way so. With `wait` it is true. Threads: any. Blocks: with
     * `wait`, while kernels are compiled. */
    bool (*kernels_settled)(mp_device *self, bool wait);
    void (*kernel_unload)(mp_device *self, mp_kernel *kernel);
    /* Queues the kernel. Borrows: `args` during the call only. */
    mp_status (*launch)(mp_device *self, mp_stream *stream, const mp_kernel *kernel, mp_grid grid,
                        const void *args, size_t args_size);

    /* -- library math, described in math.h -- */

    mp_status (*gemm_prepare)(mp_device *self, const mp_gemm *gemm, mp_math **out);
    /* `*whole`: whether residual and activation are part of it. They are not where the device has
     * no such kernel, or none that is faster: the caller then does both behind it. */
    mp_status (*conv_prepare)(mp_device *self, const mp_conv *conv, mp_math **out, bool *whole);
    /* Work of all ranks, described in collective.h, which math_run then queues. Nobody is met yet.
     * Fails: NOT_FOUND where the process is none of several ranks; INVALID_ARGUMENT. */
    mp_status (*collective_prepare)(mp_device *self, const mp_collective *what, mp_math **out);
    /* How a kernel of the caller's may do such work in place of math_run. Gives: `*out`, until the
     * process ends; NULL where math_run must, which is so on all ranks or on none. The first call
     * brings the ranks together, as math_run does. Blocks and fails: as math_run. */
    mp_status (*collective_peers)(mp_device *self, mp_math *math, const mp_peers **out);
    /* Queues that kernel, which has the peers among its arguments. What is queued so, on whatever
     * streams, runs in the order of the calls and of graph_launch. */
    mp_status (*collective_launch)(mp_device *self, mp_stream *stream, mp_math *math,
                                   const mp_kernel *kernel, mp_grid grid, const void *args,
                                   size_t args_size);
    size_t (*math_workspace)(mp_device *self, const mp_math *math);
    mp_status (*math_run)(mp_device *self, mp_stream *stream, mp_math *math,
                          const mp_addr *operands, mp_addr workspace);
    void (*math_release)(mp_device *self, mp_math *math);

    /* -- between devices -- */

    /* Lets this device read and write the memory of `other`. Fails: UNSUPPORTED. */
    mp_status (*peer_enable)(mp_device *self, mp_device *other);

    /* -- memory and semaphores of other APIs --
     * By POSIX file descriptors, as Vulkan exports them (OPAQUE_FD). The caller keeps `fd`. What
     * comes from outside is not trusted: faults of it are INVALID_ARGUMENT. */

    /* Gives: all `size` bytes of the memory, at `*addr`, until import_close. */
    mp_status (*import_open)(mp_device *self, int fd, size_t size, mp_import **out, mp_addr *addr);
    /* The caller has made sure that no queued work still uses it. */
    void (*import_close)(mp_device *self, mp_import *import);
    /* A semaphore that counts. Gives: `*out`, until semaphore_close. */
    mp_status (*semaphore_open)(mp_device *self, int fd, mp_semaphore **out);
    /* The caller has made sure that no queued work still uses it. */
    void (*semaphore_close)(mp_device *self, mp_semaphore *semaphore);
    /* When `stream` gets there the semaphore counts `value`, which is more than it counts then.
     * Neither call can be captured. */
    mp_status (*semaphore_signal)(mp_device *self, mp_semaphore *semaphore, mp_stream *stream,
                                  uint64_t value);
    /* Work queued on `stream` from now on starts after the semaphore counts at least `value`. */
    mp_status (*semaphore_wait)(mp_device *self, mp_semaphore *semaphore, mp_stream *stream,
                                uint64_t value);

    /* -- what it did, told to profile.h -- */

    /* From now on ended work that was queued under a mark is told. Counted: each begin that
     * succeeded has one end. Blocks: yes. Fails: NOT_FOUND, UNSUPPORTED. */
    mp_status (*profile_begin)(mp_device *self);
    /* Returns when all work of a listener that has ended has been told. */
    void (*profile_flush)(mp_device *self, const mp_profile *listener);
    void (*profile_end)(mp_device *self);
    /* Nanoseconds of the clock that the records' times are of; only while it tells. NULL where that
     * is mp_clock_ns(). */
    int64_t (*profile_clock)(mp_device *self);
} mp_device_ops;

struct mp_device {
    const mp_device_ops *ops; /* every entry is set in every backend */
    int ordinal;              /* CUDA ordinal; 0 on the host device */
    mp_device_info info;
};

/* ---- finding devices ---- */

/* How many devices of a kind there are. 0 is an answer, not a failure; `*why` (may be NULL) then
 * says in one sentence what is missing; static or thread storage, borrowed until the next call. */
int mp_device_count(mp_device_kind kind, const char **why);

/* The device with this ordinal, opened on first use and kept until the process ends.
 * Gives: a borrowed pointer. Threads: any. Blocks: on the first call. */
mp_status mp_device_get(mp_device_kind kind, int ordinal, mp_device **out);

#endif
