/* millpond.h - one pool of GPU memory for all libraries of a process.
 *
 *     mp_pool *pool;
 *     mp_addr block;
 *     if (mp_pool_open("auto", MP_MEMORY_DEVICE, "my program", NULL, &pool) == MP_OK &&
 *         mp_pool_alloc(pool, 1 << 20, stream, &block) == MP_OK) {
 *         ... queue work on `stream` that uses the block ...
 *         mp_pool_free(pool, block);
 *     }
 *     mp_pool_close(pool);
 *
 * All callers that open the same memory of the same device share one pool, so memory freed by one
 * is reused by the next. Allocation is stream-ordered: a freed block may be allocated again at once
 * for work queued later on the same stream. Other streams get its memory when an event, an order
 * that the caller declares, or the end of the stream's work makes that safe.
 *
 * **First use.** A block may be allocated while work that used its memory before is still running.
 * The stream that it is allocated on is ordered after that work; other streams need not be. So
 *   1. work queued after mp_pool_alloc on the stream it named may use the block at once;
 *   2. another stream may use it after mp_pool_record_use has named that stream, which orders it
 *      after the earlier work, or after waiting for an event that was recorded on the block's
 *      stream after mp_pool_alloc returned; without mp_pool_record_use that stream must have
 *      finished with the block, or be waited for by the block's stream, before the block is freed;
 *   3. a block allocated with MP_NO_STREAM is ready for every stream and for the host at once:
 *      nothing uses its memory any more. So is one from mp_pool_reserve, and all pinned memory.
 * On a GPU, blocking streams are ordered after the legacy default stream anyway, so rule 1 holds
 * for all of them if a block is allocated on NULL; it does not hold for non-blocking streams.
 *
 * A `stream` is the native handle: CUstream or cudaStream_t on a GPU (NULL is the legacy default
 * stream), an mp_stream of the emulated device otherwise; or MP_NO_STREAM. It must live until its
 * blocks are freed and mp_pool_stream_gone has been called for it.
 *
 * Unless said otherwise: sizes are bytes; addresses are aligned to 256; a function may be called
 * from any thread, concurrently too; it does not touch its outputs when it fails. In a child that
 * was forked from a process that used a pool, every call fails with UNSUPPORTED.
 *
 * **What is checked.** A NULL where a value is needed, an address that is not an allocated block,
 * and a closed handle are refused with INVALID_ARGUMENT and a sentence that names the argument. A
 * closed handle is recognised until at least 1,024 others have been closed after it; its record may
 * then serve a new handle. What cannot be checked is up to the caller: that a pointer or a stream
 * is valid, that functions passed in return, and that no call is under way on a handle being
 * closed.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MILLPOND_MILLPOND_H
#define MILLPOND_MILLPOND_H

#include "millpond/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MILLPOND_VERSION "0.1.0"

/* The version of the library that is loaded; static storage. */
const char *mp_version(void);

typedef struct mp_pool mp_pool; /* one user's handle on a shared pool */
typedef uintptr_t mp_addr;      /* an address of device or pinned memory */

typedef enum mp_memory {
    MP_MEMORY_DEVICE, /* of a GPU, or of the emulated device */
    MP_MEMORY_PINNED, /* of the host, page-locked, for that device; not stream-ordered */
} mp_memory;

/* In place of a stream: the memory is used by the host, or the caller orders all uses itself; a
 * free then means that nothing uses the memory any more. */
#define MP_NO_STREAM ((void *)~(uintptr_t)0)

/* ---- opening ---- */

/* Opens the pool of a device's memory, made on first use.
 *
 * `device`: "cuda:N" (ordinal of the driver), "host:N" (the emulated device), "cuda", "host", or
 * "auto" (NULL too): the first GPU, else the emulated device; MILLPOND_DEVICE decides where set.
 * `client`: the caller's name, for statistics: "numba", "my program"; at most 31 characters.
 * `options`: "key=value" texts, ended by NULL; NULL for none. docs/memory.md lists the keys.
 * MILLPOND_POOL ("key=value,key=value") holds options for every pool of the process; `options` win.
 * Options of a later opener that differ from the pool's give a warning and are ignored.
 *
 * Gives: `*out`, until mp_pool_close. Blocks: on first use of the device.
 * Fails: INVALID_ARGUMENT (a name or an option), NOT_FOUND (no such device), DEVICE. */
mp_status mp_pool_open(const char *device, mp_memory memory, const char *client,
                       const char *const *options, mp_pool **out);

typedef struct mp_pool_device {
    char device[16];       /* "cuda:0" or "host:0", as mp_pool_open takes it */
    char name[128];        /* what the device calls itself */
    int32_t ordinal;       /* the driver's number of it */
    bool is_emulated;      /* its addresses are the host's, and its streams are not CUDA's */
    mp_memory memory;      /* the pool's kind */
    uint64_t memory_free;  /* bytes of the device, now; an external manager is asked for its own */
    uint64_t memory_total; /* both 0 if unknown */
    char bus_id[32];       /* of a GPU on the PCI bus, in lower case, the same in every process */
} mp_pool_device;

/* The device whose memory the pool allocates. `size` is the caller's sizeof(mp_pool_device). */
mp_status mp_pool_get_device(mp_pool *pool, mp_pool_device *out, size_t size);

/* Takes: `pool` (NULL is ignored; closing it twice logs an error). Closing the last handle of a
 * pool releases its memory, except blocks that are still allocated: they stay valid, and the pool
 * lives until they are freed through another handle or the process ends. Waits for the device. */
void mp_pool_close(mp_pool *pool);

/* ---- blocks ---- */

/* Allocates `size` bytes (0 counts as 1) for work queued on `stream` after this call.
 * Gives: `*out`, until freed. Blocks: only when the pool must grow.
 * Fails: OUT_OF_MEMORY, the pool unchanged; the message says how much is in use, by which clients,
 * and how large the largest free chunk is. */
mp_status mp_pool_alloc(mp_pool *pool, size_t size, void *stream, mp_addr *out);

/* Frees a block in the order of the stream it was allocated on: work queued there may still use it.
 * `addr` 0 is ignored. The handle may be another one of the same pool.
 * Fails: INVALID_ARGUMENT, with no effect, for an address that is not an allocated block (never
 * allocated, freed before, or inside a block). */
mp_status mp_pool_free(mp_pool *pool, mp_addr addr);

/* The same in the order of `stream`: the caller has made that stream wait for all work that uses
 * the block. MP_NO_STREAM: that work has ended. */
mp_status mp_pool_free_on(mp_pool *pool, mp_addr addr, void *stream);

/* Declares that work queued on `stream` from now on uses the block, which was allocated on another
 * stream. That work is ordered after all earlier uses of the memory, before it was allocated; it is
 * not ordered after the caller's own work on the block, which the caller orders. Once the block is
 * freed, its memory is not allocated again until the work queued on `stream` before the free has
 * ended, or is ordered before the new use.
 * Blocks: only while the memory is still in use, where `stream` is being captured, because a graph
 * cannot wait for work outside of it, or where the default stream of another thread uses it, which
 * this thread cannot reach.
 * Fails: INVALID_ARGUMENT (not an allocated block), OUT_OF_MEMORY (host), BUSY (the memory waits
 * for a stream that is captured without mp_pool_capture_begin, or during a capture for the default
 * stream of another thread; the block must not be used on `stream` then), DEVICE. */
mp_status mp_pool_record_use(mp_pool *pool, mp_addr addr, void *stream);

/* Allocates memory outside the arena, straight from the device, for long-lived data (weights): an
 * allocation of its own, not affected by mp_pool_shrink. Its size is rounded up to 256 bytes only,
 * and counts towards arena.max_mem and the limit of the process. Freed by mp_pool_free, which then
 * waits for the device. */
mp_status mp_pool_reserve(mp_pool *pool, size_t size, mp_addr *out);

typedef struct mp_block_info {
    mp_addr addr;       /* where the block begins */
    size_t size;        /* of the chunk that was allocated */
    size_t requested;   /* the size given to mp_pool_alloc */
    mp_addr region;     /* where the device's allocation around it begins */
    size_t region_size; /* 0 if the pool does not know it */
    void *stream;       /* that it was allocated on */
    char client[32];    /* that allocated it */
} mp_block_info;

/* Describes the allocated block that contains `addr`. Fails: NOT_FOUND. */
mp_status mp_pool_find(mp_pool *pool, mp_addr addr, mp_block_info *out);

/* ---- order between streams ----
 * The pool records events of its own where another stream could use freed memory; these calls tell
 * it what the caller knows already, which saves events and waits. */

/* All work queued on `stream` so far has ended: memory freed on it may be used on any stream. */
mp_status mp_pool_stream_settled(mp_pool *pool, void *stream);

/* `stream` is about to be destroyed; waits for its work. Its free memory may then be used on any
 * stream, and its blocks count as allocated without a stream. */
mp_status mp_pool_stream_gone(mp_pool *pool, void *stream);

/* Gives a number for this point of `producer`; the caller records an event on it right after. */
mp_status mp_pool_stream_mark(mp_pool *pool, void *producer, uint64_t *mark);

/* `consumer` has been made to wait for the event recorded after `mark`: memory freed on `producer`
 * before the mark may be used on `consumer`. */
mp_status mp_pool_stream_ordered(mp_pool *pool, void *consumer, void *producer, uint64_t mark);

/* ---- captured graphs ---- */

typedef struct mp_capture mp_capture;

/* `stream` is about to be captured into a graph. Until mp_pool_capture_end, blocks allocated on it
 * come from memory reserved for this graph, no call disturbs the capture, and freed blocks are
 * reused by this capture only. `*capture` is NULL, or one from an earlier call: graphs that never
 * run at the same time may share their memory.
 * Gives: `*capture`, until mp_pool_capture_release. Fails: BUSY if the stream is being captured. */
mp_status mp_pool_capture_begin(mp_pool *pool, void *stream, mp_capture **capture);
mp_status mp_pool_capture_end(mp_pool *pool, void *stream);

/* Takes: `capture` (NULL is ignored), whose graphs have ended running and are destroyed. Its memory
 * returns to the pool, allocated blocks as soon as they are freed. */
void mp_pool_capture_release(mp_pool *pool, mp_capture *capture);

/* ---- shrinking, and running out ---- */

/* Waits for the device and returns to it every region without an allocated block; the next region
 * has arena.initial_growth_chunk_size_bytes. `*released` (may be NULL): how many bytes. Fails:
 * DEVICE, also where the device has not taken some of it back, which stays the pool's. */
mp_status mp_pool_shrink(mp_pool *pool, size_t *released);

/* The most bytes that all pools of this process together may reserve from their devices (pinned
 * memory does not count); 0 for no limit, which is the default if MILLPOND_LIMIT is not set. A
 * limit below current usage only prevents growth. */
void mp_limit_set(size_t bytes);
size_t mp_limit_get(void);

/* Called when memory runs out, before the request fails, on the requesting thread and without any
 * lock. May free blocks, of this pool or of another library, and returns whether it did. */
typedef bool mp_pressure_fn(void *context, size_t size);

/* Hooks are called in the order they were added until one returns true and the request succeeds. A
 * hook is not called while it runs on the same thread.
 * Fails: OUT_OF_MEMORY (host). */
mp_status mp_pool_add_hook(mp_pool *pool, mp_pressure_fn *fn, void *context);
/* Returns once no thread runs in the hook. Fails: NOT_FOUND. Not from inside a hook. */
mp_status mp_pool_remove_hook(mp_pool *pool, mp_pressure_fn *fn, void *context);

/* ---- statistics ---- */

typedef struct mp_pool_stats {
    uint64_t limit;          /* bytes; UINT64_MAX where there is none */
    uint64_t in_use;         /* bytes of allocated blocks, rounding included */
    uint64_t requested;      /* bytes of allocated blocks, as requested */
    uint64_t in_use_max;     /* peak of in_use; if several threads allocate at the same time, up to
                              * 256 KiB per stream too high */
    uint64_t total;          /* bytes reserved from the device */
    uint64_t total_max;      /* peak of total */
    uint64_t alloc_size_max; /* the largest request served */
    uint64_t allocs;         /* requests served, reserves among them */
    uint64_t frees;
    uint64_t reserves;
    uint64_t extensions; /* times the pool grew */
    uint64_t shrinkages; /* regions (or ranges of pages) returned to the device */
    uint64_t failures;   /* requests that ran out of memory */
    uint64_t events;     /* recorded to let another stream use memory */
    uint64_t waits;      /* times a stream was made to wait for another */
} mp_pool_stats;

/* A consistent snapshot. `size` is the caller's sizeof(mp_pool_stats). */
mp_status mp_pool_get_stats(mp_pool *pool, mp_pool_stats *out, size_t size);
/* Sets the peaks to the present values. */
void mp_pool_reset_peaks(mp_pool *pool);

typedef struct mp_share {
    char name[32];      /* of the client */
    void *stream;       /* of a stream's share; MP_NO_STREAM for memory without one */
    uint64_t in_use;    /* bytes allocated now */
    uint64_t requested; /* bytes requested */
    uint64_t blocks;    /* allocated now */
    uint64_t free;      /* bytes of free memory kept for this stream; 0 for a client */
    uint64_t allocs;    /* since the pool was opened */
} mp_share;

/* Usage by client, or by stream: one share each. Fills at most `capacity` of them; `*count` is how
 * many there are. */
mp_status mp_pool_get_clients(mp_pool *pool, mp_share *out, size_t capacity, size_t *count);
mp_status mp_pool_get_streams(mp_pool *pool, mp_share *out, size_t capacity, size_t *count);

/* Receives text in pieces. */
typedef void mp_write_fn(void *context, const char *text, size_t size);

/* Writes a page of plain text: sizes, clients, fragmentation, allocated and free memory by powers
 * of two, the largest sizes of blocks, regions and chunks; of the last three as many as fit on a
 * page. Allocates nothing. `write` is called under locks of the pool and must not use the pool. */
mp_status mp_pool_dump(mp_pool *pool, mp_write_fn *write, void *context);

/* ---- labels: what memory is for ---- */

typedef enum mp_label_kind {
    MP_LABEL_OTHER,
    MP_LABEL_WEIGHTS,     /* what stays: parameters, constants */
    MP_LABEL_ACTIVATIONS, /* what one step of a computation makes for another */
    MP_LABEL_WORKSPACE,   /* what one step needs for itself */
} mp_label_kind;

typedef uint32_t mp_label; /* 0: none */

/* A label by its kind and names: of the step that asks for memory (`node`: of a model's graph, or
 * whatever the caller names) and of the value that lies in it; NULL for none. Of names longer than
 * 240 bytes the end is kept. The same texts give the same label, in the whole process and for good;
 * so it may be made once and kept. Does not fail: after some 65,000 labels a new one is that of its
 * kind, without names. */
mp_label mp_label_make(mp_label_kind kind, const char *node, const char *tensor);

/* From now on what this thread is allocated, by any pool, bears `label`, also where no trace is
 * kept: so a trace knows what lay there before it began. Returns the label before, to be set again
 * when the scope ends. Costs a few instructions. */
mp_label mp_label_set(mp_label label);

/* ---- trace ---- */

typedef enum mp_trace_format {
    MP_TRACE_SNAPSHOT, /* a snapshot that PyTorch's memory viewer opens (pickle) */
    MP_TRACE_RMM_CSV,  /* the log that RMM's replay benchmark reads */
    MP_TRACE_HTML,     /* one self-contained page: timeline, regions, usage by client */
} mp_trace_format;

/* Records the last `capacity` events (64 bytes each) from now on; 0 stops and discards them. An
 * event has the time, client and thread, the block, its sizes, stream and label.
 * Fails: OUT_OF_MEMORY (host), INVALID_ARGUMENT beyond 2^30 events. */
mp_status mp_pool_trace(mp_pool *pool, size_t capacity);

/* Writes the recorded events and the present state of the pool, each allocated block with its
 * label. `path` is replaced only once all is written. Fails: INVALID_ARGUMENT, NOT_FOUND (cannot be
 * written; the message says why). */
mp_status mp_pool_trace_write(mp_pool *pool, mp_trace_format format, const char *path);

/* ---- memory of another library beneath ---- */

/* The functions of another library that owns the memory of a pool. They may be called from any
 * thread; `context` is passed to them; the table is copied. Only `alloc` and `free` are required.
 */
typedef struct mp_external {
    void *context;
    void *(*alloc)(void *context, size_t size); /* NULL: no memory. Aligned to 256 */
    void (*free)(void *context, void *memory, size_t size);
    void (*empty_cache)(void *context); /* return unused memory to the device */
    bool (*info)(void *context, size_t *free_bytes, size_t *total_bytes);
    /* Writes at most `*size` bytes of a handle that another process can open for the allocation
     * at `memory`, and sets `*size`. */
    bool (*ipc)(void *context, void *memory, void *handle, size_t *size);
} mp_external;

/* As mp_pool_open, over `external`: callers passing equal tables share one pool. With the option
 * arena.external=direct every block is an allocation of its own; by default the pool takes regions.
 * `free` is called only once the device has ended what uses the memory, so it may allocate it at
 * once, in whatever order. A region is idle by then anyway. A block of its own is waited for in the
 * free: for what was queued until then on the streams it was allocated on, freed on, and declared
 * for by mp_pool_record_use (with MP_NO_STREAM for nothing). One whose stream is captured just then
 * goes back later, and one that was allocated between mp_pool_capture_begin and mp_pool_capture_end
 * after mp_pool_capture_release. */
mp_status mp_pool_open_external(const char *device, const char *client, const mp_external *external,
                                const char *const *options, mp_pool **out);

/* ---- other processes ---- */

typedef struct mp_ipc_handle {
    unsigned char bytes[64];
} mp_ipc_handle;

/* A handle for the device's allocation around the block at `addr`, and how far into it the
 * block begins. Fails: UNSUPPORTED for expandable regions and stream-ordered pools (open the pool
 * with arena.ipc=1), INVALID_ARGUMENT (not an allocated block). */
mp_status mp_pool_ipc_export(mp_pool *pool, mp_addr addr, mp_ipc_handle *out, size_t *offset);

/* Opens memory of another process of this user, by what its mp_pool_ipc_export gave, on the pool's
 * device; a pool of device memory. It is none of the pool's: no limit counts it, and no other
 * function of the pool takes its address. The other process keeps the block until this one has
 * closed it, and neither knows of the other's streams: whoever passes the memory on waits for its
 * own work before.
 * Gives: `*out`, the whole allocation around the block, of `*size` bytes, until mp_pool_ipc_close,
 * one for each open. Fails: INVALID_ARGUMENT (a handle of this process, of one that has ended, or
 * of memory that it has freed). */
mp_status mp_pool_ipc_open(mp_pool *pool, const mp_ipc_handle *handle, mp_addr *out, size_t *size);
/* Blocks: until the device has ended what is queued; while streams are captured, only what is on
 * other streams that the pool knows.
 * Fails: INVALID_ARGUMENT (not an address that mp_pool_ipc_open gave). */
mp_status mp_pool_ipc_close(mp_pool *pool, mp_addr addr);

/* ---- other devices ---- */

/* Lets the device `ordinal`, of the same kind, read and write all memory that Millpond has of this
 * pool's device, now and later: also expandable regions and the driver's own pool, which
 * cuCtxEnablePeerAccess does not open. Kernels there may then use blocks of this pool.
 * Fails: UNSUPPORTED (the two GPUs are not connected), or as mp_pool_open for `ordinal`. */
mp_status mp_pool_enable_peer(mp_pool *pool, int32_t ordinal);

#ifdef __cplusplus
}
#endif

#endif
