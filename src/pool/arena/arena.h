/* arena.h - the arena: regions cut into chunks, lanes that free chunks follow, and what guards
 * them.
 *
 *     arena   one for each memory of a device; its lock guards regions, bins, order and limits
 *       lane    one for each stream (lane 0: no stream); its lock guards its shelf and its counts
 *         shelf   free chunks kept apart for the next request of their size on that stream
 *         bins    all other free chunks of that stream, merged with their neighbours
 *       region  one allocation of the device, tiled by chunks
 *
 * A free chunk carries its lane and an epoch of it: any other stream may use it once that epoch has
 * passed (`reached`), or after an event recorded at or after it (`seen` by the asking lane).
 *
 * Locks, in this order: arena, lanes (by index), trace. The short way of a request and of a free
 * takes the lane's lock only. A chunk belongs to whoever has put it in the state it is in: the
 * comments of chunk_state say which lock that is.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_ARENA_H
#define MP_POOL_ARENA_H

#include "base/thread_number.h"
#include "pool/arena/address_map.h"
#include "pool/arena/arena_check.h"
#include "pool/arena/bins.h"
#include "pool/arena/spin.h"
#include "pool/arena_option.h"
#include "pool/layout.h"
#include "pool/mempool/mempool.h"
#include "pool/pool_mode.h"
#include "pool/trace/trace.h"

#include <pthread.h>

enum {
    LANES_MAX = 4096,
    LANE_SLOTS = 4 * LANES_MAX, /* of the table by handle */
    SHELF_UNITS_MAX = 4096,     /* 1 MiB: larger chunks are merged at once */
    SHELF_CLASSES = EXACT_CLASSES + (12 - 6) * (1 << STEP_BITS) + 1,
    LANE_EVENTS_MAX = 8, /* recorded and not known to be reached */
    HOOKS_MAX = 16,
};

typedef struct lane lane;

/* ---- lanes ---- */

typedef struct tally { /* of one client on one lane; a block may be freed on another lane */
    int64_t in_use, requested, blocks;
    uint64_t allocs;
} tally;

typedef struct lane_event {
    mp_event *event; /* owned */
    uint64_t epoch;  /* chunks freed up to it are safe once the event is reached */
} lane_event;

struct mp_capture {
    arena *owner;
    mp_capture *next;
    size_t lane_count;
    lane **lanes; /* owned array; one lane for each stream that was captured */
    void **streams;
};

struct lane {
    _Alignas(128) mp_spin lock; /* of which other threads' lanes are no part */
    unsigned index;
    void *key;       /* in the table of lanes; guarded by both locks; NULL is the legacy stream */
    void *native;    /* the stream's handle; of a capture: of the stream that was captured */
    bool in_table;   /* found by its key; guarded by the arena's lock */
    bool gone;       /* its stream was destroyed; what is freed goes to lane 0 */
    unsigned life;   /* how many streams, or captures, have come to an end on it */
    bool detour;     /* gone or capturing: the short way must not be taken */
    lane *capture;   /* while its stream is captured: where blocks come from and go to */
    bool is_capture; /* the memory of a captured graph */
    bool ended;      /* the default stream of a thread that has ended; gone once that is reached */
    uint64_t thread; /* whose default stream it is: only that thread can reach it; else 0 */

    uint64_t epoch;                                   /* the present one; guarded by `lock` */
    uint64_t shelf_filled[(SHELF_CLASSES + 63) / 64]; /* one bit a class */
    chunk *shelf[SHELF_CLASSES];
    size_t shelf_bytes, shelf_count;
    uint32_t slack; /* the most units by which a chunk of the shelf may exceed a request */
    int shelf_next; /* class that is cleared next when the shelf is full */

    /* `in_use` never exceeds `allowance`, see usage.c. */
    uint64_t in_use, allowance;
    uint64_t frees, alloc_size_max;
    tally clients[MP_CLIENTS_MAX];

    /* guarded by the arena's lock */
    bins bins;
    chunk_list records;                 /* of chunks allocated on it */
    mp_stream *stream;                  /* owned; a wrap of `native`, made on need */
    uint64_t ending;                    /* while the device is waited for, see quiesce */
    uint64_t reached;                   /* every chunk freed in it or before is free for all */
    uint64_t binned;                    /* the last epoch of a chunk that was put into the bins */
    lane_event events[LANE_EVENTS_MAX]; /* oldest first */
    size_t event_count;
    uint64_t *seen; /* owned; by lane: the epoch of it that this stream has waited for */
    size_t seen_count;
    size_t gathered; /* chunks taken off shelves for it since it grew, see thrift.c */
    unsigned asked;  /* times that streams were asked for it since */
};

/* ---- regions ---- */

typedef struct region {
    mp_addr addr;
    size_t size;
    chunk *first;
    bool expandable;
} region;

/* Where regions come from: the device's memory, its pinned memory, or another library. */
typedef struct source {
    mp_device *device; /* borrowed */
    mp_memory memory;
    bool is_external;
    mp_external external;
} source;

typedef struct hook {
    mp_pressure_fn *fn;
    void *context;
    unsigned running; /* threads in it */
    bool gone;
} hook;

struct arena {
    /* set once */
    const pool_mode *mode;
    mp_device *device; /* borrowed */
    source source;
    arena_options options;
    size_t border;        /* bytes before a block that belong to its guard; 0 without */
    bool notes;           /* the device wants to be told of blocks */
    bool expandable;      /* regions are addresses, with pages mapped on demand */
    bool direct;          /* every block is an allocation of the external manager */
    mp__mempool *mempool; /* owned by its mode; NULL in others */
    mp_trace *trace;      /* owned */

    struct {
        _Atomic(lane *) lane;
        _Atomic(void *) key;
    } lane_slots[LANE_SLOTS];         /* once filled, a slot is never empty again */
    _Atomic(lane *) lanes[LANES_MAX]; /* owned; by index */
    atomic_size_t lane_count;
    address_map addresses;
    atomic_size_t total; /* bytes reserved from the device */

    pthread_mutex_t lock; /* guards all below */
    chunk_store chunks;
    region *regions; /* owned; by address */
    size_t region_count, region_capacity;
    size_t next_extension; /* the least size of the next region */
    bins holes;            /* unmapped chunks of expandable regions */
    chunk *waiting;        /* freed, still used by a declared stream */
    size_t waiting_count;
    chunk *reserved; /* allocated outside the arena */
    chunk *retired;  /* reserved chunks freed during a capture, to be given back after it, or when
                      * the graph that they were allocated in is gone */
    mp_event *spare_events[LANE_EVENTS_MAX];
    size_t spare_event_count;
    mp_capture *captures;    /* owned, until released */
    unsigned captures_open;  /* streams being captured: the device must not be waited for */
    uint64_t peak, assigned; /* see usage.c */
    atomic_bool crowded;     /* the same */
    bool is_unsound;         /* arena.check has found a breach */
    mp_pool_stats counts;    /* those that the arena's lock guards; the rest is summed up */
    hook hooks[HOOKS_MAX];
    size_t hook_count;
    pthread_cond_t hook_done;
    char clients[MP_CLIENTS_MAX][MP_CLIENT_NAME_MAX];
    size_t client_count;

    /* guarded by the registry */
    arena *next;
    unsigned references;
    arena_told told; /* options that later openers wanted otherwise */
};

static inline void arena_lock(arena *a) {
    (void)pthread_mutex_lock(&a->lock);
}

static inline void arena_unlock(arena *a) {
    if (__builtin_expect(a->options.check, false)) {
        mp__arena_unlock_checked(a);
    } else {
        (void)pthread_mutex_unlock(&a->lock);
    }
}

static inline lane *lane_at(const arena *a, unsigned index) {
    return atomic_load_explicit(&((arena *)(uintptr_t)a)->lanes[index], memory_order_acquire);
}

static inline lane *lane_of(const arena *a, const chunk *c) {
    return lane_at(a, chunk_lane(c));
}

/* Whether `key` means another stream by now: the default stream of a thread that began where one
 * that has ended had begun. */
static inline bool lane_is_left_behind(const lane *l) {
    return __builtin_expect(l->thread != 0, false) && l->thread != mp_thread_number();
}

/* Whether requests on the stream of `key` may go to `l` the short way. Under the lane's lock. */
static inline bool lane_is_for(const lane *l, const void *key) {
    return !l->detour && l->key == key && !lane_is_left_behind(l);
}

static inline size_t lane_count_of(const arena *a) {
    return atomic_load_explicit(&((arena *)(uintptr_t)a)->lane_count, memory_order_acquire);
}

/* The units that a block of `size` bytes takes. False: more than any device has. */
static inline bool units_of(const arena *a, size_t size, uint32_t *out) {
    if (size > UNITS_MAX * UNIT - 2 * a->border) {
        return false;
    }
    *out = (uint32_t)MP_CEIL_DIV(size + 2 * a->border, UNIT);
    return true;
}

/* Tells a device that looks for breaches which blocks are allocated. */
static inline void arena_note(const arena *a, mp_addr addr, size_t size, bool live) {
    if (a->notes) {
        a->device->ops->note(a->device, addr, size, live);
    }
}

static inline size_t arena_total(const arena *a) {
    return atomic_load_explicit(&((arena *)(uintptr_t)a)->total, memory_order_relaxed);
}

/* ---- lane.c ---- */

/* What the lane of a native stream is found by. */
void *mp__lane_key(const arena *a, void *native);
/* Gives the lane that a request on the stream of `key` goes to, locked: that of the stream, or of
 * the graph that it is captured into. Fails: OUT_OF_MEMORY, UNSUPPORTED (too many streams). */
mp_status mp__lane_lock(arena *a, void *key, lane **out);
/* The lane of `key`, locked, where no other lock is needed to find it; else NULL. */
lane *mp__lane_try(arena *a, void *key);
/* As mp__lane_lock, without its lock: where work of the stream belongs that is queued now. */
mp_status mp__lane_now(arena *a, void *key, lane **out);
/* The lane of a key, a fresh one where that of the key belonged to a stream that is gone. Under the
 * arena's lock. Not for MP_NO_STREAM. */
mp_status mp__lane_current(arena *a, void *key, lane **out);
/* The lane of a key, also of a stream that is gone; NULL where it has none. Under the arena's lock.
 */
lane *mp__lane_known(const arena *a, void *key);
/* A lane that no stream is found by; one used again where there is one without blocks. Under the
 * arena's lock. */
mp_status mp__lane_add(arena *a, lane **out);
/* The lane's stream has no work any more: all that the lane is given from now on goes to lane 0.
 * Under the arena's lock. */
void mp__lane_end(arena *a, lane *l);
void mp__lane_close(arena *a, lane *l);
/* Puts a chunk on the shelf. Under the lane's lock. Returns whether the shelf is now too full. */
bool mp__shelf_put(const arena *a, lane *l, chunk *c);
/* A chunk that fits, larger by an eighth or the lane's slack at most, or NULL. Under the lane's
 * lock. */
chunk *mp__shelf_take(lane *l, uint32_t units);
/* Moves chunks from the shelf to the bins: some, to make room, or all. Returns how many. Under the
 * arena's lock. */
size_t mp__shelf_clear(arena *a, lane *l, bool all);
/* The same for the chunk that fits best, or for all, of those that others may have: of epochs up
 * to `epoch_max`, and with no later ones of their size. Under the arena's lock. */
bool mp__shelf_offer(arena *a, lane *l, uint32_t units, uint64_t epoch_max);
size_t mp__shelf_offer_all(arena *a, lane *l, uint64_t epoch_max);

/* ---- coalesce.c, gather_idle.c: under the arena's lock ---- */

enum { CHUNK_RECORDS = 8 }; /* that one growth and one cut may take */

/* Puts a chunk that is in no list and not in `addresses` into the bins of its lane, merged with its
 * neighbours there. Its lane and epoch are set. */
void mp__chunk_bin(arena *a, chunk *c);
/* The same for one that was allocated or on a shelf. */
void mp__chunk_release(arena *a, chunk *c);
/* Cuts `c`, which is in no list, after `units`; gives the record of the rest, which gets the same
 * lane, epoch and state. Records must be prepared. */
chunk *mp__chunk_split(arena *a, chunk *c, uint32_t units);
/* The first `units` of `c`, which is in no list, as a chunk with a record of `l`; `c` keeps the
 * rest, or is none any more. One record of `l` must be prepared. */
chunk *mp__chunk_cut(arena *a, lane *l, chunk *c, uint32_t units);
/* Joins `right`, which is in no list, to its neighbour `left`. */
void mp__chunk_join(chunk *left, chunk *right);
/* Whether `c` may be allocated on any stream at once. */
bool mp__chunk_is_idle(const arena *a, const chunk *c);
/* Puts what is idle into the bins of lane 0, merged. */
void mp__arena_gather_idle(arena *a);
/* The same, with what is on shelves. */
void mp__arena_gather(arena *a);
/* Waits for the device, so that every free chunk is idle. Not while a stream is captured. */
mp_status mp__arena_quiesce(arena *a);

/* ---- obtain.c: under the arena's lock ---- */

/* Gives: `*out`, a chunk of at least `units` for `l`, in no list.
 * Fails: OUT_OF_MEMORY, with the sentence of the device or of the limit. */
mp_status mp__chunk_obtain(arena *a, lane *l, uint32_t units, chunk **out);

/* ---- thrift.c: under the locks of the arena and of the lane ---- */

enum {
    THRIFT = 4096, /* chunks gathered for a lane before its thrift ends */
    ASKS_MAX = 16, /* times that streams are asked for a lane after each growth */
};

/* Makes a lane begin to be thrifty, where that is worth it. */
void mp__thrift_begin(const arena *a, lane *l);
/* `count` more chunks were gathered for it. Without the lane's lock. */
void mp__thrift_count(const arena *a, lane *l, size_t count);

/* ---- pressure.c ---- */

/* As the functions of millpond.h. */
mp_status mp__pressure_add(arena *a, mp_pressure_fn *fn, void *context);
mp_status mp__pressure_remove(arena *a, mp_pressure_fn *fn, void *context);
/* Runs the hooks from `*next` (0 to begin) on until one says that it has freed something; `*next`
 * is then the one after it. Hooks run without locks, and none on a thread that runs one already. */
bool mp__pressure_run(arena *a, size_t size, size_t *next);

/* ---- reserve.c ---- */

mp_status mp__arena_reserve(arena *a, size_t size, uint8_t client, mp_addr *out);
/* As mp__arena_alloc, where every block is an allocation of the external manager. */
mp_status mp__arena_pass_on(arena *a, size_t size, void *native, uint8_t client, mp_addr *out);
/* Takes: `c`, MOVING, which was RESERVED, allocated on `from` and freed in the order of `to`.
 * Blocks: until the device, or the streams of a block that was passed on, have ended what uses it.
 */
void mp__reserve_free(arena *a, chunk *c, lane *from, lane *to);

/* ---- retired.c: under the arena's lock ---- */

/* Gives what was freed back to the source, but for what belongs to a captured graph (`all`: that,
 * too); the device uses none of it. */
void mp__reserve_give_back(arena *a, bool all);
/* One block, in no list. */
void mp__reserved_release(arena *a, chunk *c);
/* Whether it was allocated in a capture that has not been released. */
bool mp__reserved_is_of_graph(const arena *a, const chunk *c);

/* ---- arena.c ---- */

mp_status mp__arena_create(const source *from, const arena_options *options, arena **out);
void mp__arena_destroy(arena *a);

mp_status mp__arena_alloc(arena *a, size_t size, void *native, uint8_t client, mp_addr *out);
/* `native` MP_SAME_STREAM: the one it was allocated on. */
mp_status mp__arena_free(arena *a, mp_addr addr, void *native);
mp_status mp__arena_shrink(arena *a, size_t *released);
/* Fails: what `what` was to be done with is not an allocated block. */
mp_status mp__arena_refuse(const arena *a, mp_addr addr, const char *what);
/* Locks the lane of the allocated block that begins at `addr`; gives both. NULL: there is none. */
chunk *mp__arena_lock_block(arena *a, mp_addr addr, lane **out);
/* The same without the arena's lock: where NULL, there may be one all the same. */
chunk *mp__arena_try_block(arena *a, mp_addr addr, lane **out);

/* ---- try_alloc.c ---- */

/* The short way alone. BUSY, without a sentence and with nothing done, where there is none: where
 * it would take the arena's lock, under which others wait for the device. */
mp_status mp__arena_try_alloc(arena *a, size_t size, void *native, uint8_t client, mp_addr *out);
mp_status mp__arena_try_free(arena *a, mp_addr addr, void *native);

/* ---- source.c ---- */

mp_status mp__source_alloc(const source *s, size_t size, mp_addr *out);
void mp__source_free(const source *s, mp_addr addr, size_t size);
/* What the device, or the external manager, has. False: it cannot be told. Without locks. */
bool mp__source_info(const source *s, size_t *left, size_t *all);
/* Counts bytes against arena.max_mem and the limit of the process. Under the arena's lock. */
mp_status mp__region_take(arena *a, size_t size);
void mp__region_give(arena *a, size_t size);
/* What arena.max_mem leaves. */
size_t mp__region_room(const arena *a);

/* ---- region.c: the list, under the arena's lock ---- */

const region *mp__region_of(const arena *a, mp_addr addr);
/* Makes sure that the next mp__region_add succeeds. Fails: OUT_OF_MEMORY (host). */
mp_status mp__regions_prepare(arena *a);
mp_status mp__region_add(arena *a, region fresh);
void mp__region_remove(arena *a, size_t at);
/* `first` begins the region at `addr` now. */
void mp__region_set_first(arena *a, mp_addr addr, chunk *first);

/* ---- grow.c: under the arena's lock ---- */

/* Reserves at least `units` more from the device, free on `l`. Fails: OUT_OF_MEMORY. */
mp_status mp__region_grow(arena *a, lane *l, uint32_t units);
/* Gives back every region that is one idle chunk. Returns the bytes. */
size_t mp__region_trim(arena *a);
/* Whether there would be room for `units` after that. */
bool mp__region_trim_helps(const arena *a, uint32_t units);
void mp__regions_close(arena *a);

/* ---- expand.c: expandable regions, under the arena's lock ---- */

bool mp__expand_wanted(const arena *a);
mp_status mp__expand_grow(arena *a, lane *l, uint32_t units);
/* Unmaps whole pages of idle chunks. Returns the bytes. */
size_t mp__expand_trim(arena *a);
/* How many bytes that would be. */
size_t mp__expand_idle(const arena *a);
/* Unmaps what is mapped and gives the addresses back. */
void mp__expand_close(arena *a, const region *r);

/* ---- order.c: under the arena's lock ---- */

/* A chunk of another stream that fits and is safe for `l` now, or after making `l` wait (`wait`).
 */
chunk *mp__order_find(arena *a, lane *l, uint32_t units, bool wait);
/* Finds out which events have been reached. */
void mp__order_poll(arena *a);
/* Finds out which streams have nothing to do: what was freed on them is idle. On the others an
 * event is recorded, so that a later look knows more. */
void mp__order_settle_idle(arena *a);
/* The same for the shelves of streams other than `asking`, where nothing is recorded. Returns
 * whether one has nothing to do. */
bool mp__order_settle_kept(arena *a, const lane *asking, bool only_unused);
/* The last epoch of `other` whose memory `l` may use. */
uint64_t mp__order_seen(const lane *l, const lane *other);
/* All work on the lane's stream has ended. */
void mp__order_settle(lane *l);
/* Ends the lane's epoch and returns it. Takes the lane's lock. */
uint64_t mp__order_end_epoch(lane *l);
/* Moves waiting chunks whose further streams are done to their bins; with `wait` also those whose
 * own stream can be made to wait for them. */
void mp__order_collect(arena *a, bool wait);
/* `l` has waited for `epoch` of `other`. Fails: OUT_OF_MEMORY (host): then it is not known. */
mp_status mp__order_see(lane *l, const lane *other, uint64_t epoch);
mp_stream *mp__order_stream(arena *a, lane *l); /* NULL: it has none, or it cannot be created */
/* Makes the stream of `l` wait for `epoch` of `other`. False: one of them takes no event now. */
bool mp__order_wait(arena *a, lane *l, lane *other, uint64_t epoch);
/* Returns once `epoch` of `l` has been reached: waits for the device where `l` is the default
 * stream of another thread. Fails: BUSY where no event can tell. */
mp_status mp__order_reach(arena *a, lane *l, uint64_t epoch);
/* Records an event for all that was freed on `l` so far, as long as it takes one. */
void mp__order_cover(arena *a, lane *l);
/* Declares a further stream of an allocated block; under the lock of the block's lane as well. */
mp_status mp__use_add(chunk *c, const lane *other);
void mp__uses_free(use *uses);
/* Returns once what is queued on the chunk's further streams has ended. Not under the arena's lock;
 * the chunk is MOVING. Fails: as mp__lane_wait. */
mp_status mp__uses_wait(arena *a, const chunk *c);
/* `c`, MOVING and with uses, waits for them. */
void mp__order_wait_for_uses(arena *a, chunk *c);
void mp__order_close(arena *a);

/* ---- wait.c ---- */

/* Waits for what is queued on the arena's streams, but for captured ones and the default streams of
 * other threads. Not under its lock. */
mp_status mp__arena_wait(arena *a);
/* The same for one lane. Fails: BUSY, without a sentence, where it is one of those. */
mp_status mp__lane_wait(arena *a, lane *l);

/* ---- first_use.c ---- */

/* As mp_pool_record_use. */
mp_status mp__arena_record_use(arena *a, mp_addr addr, void *native);
/* The same for a stream that was ordered before it used the block: it is not made to wait. */
mp_status mp__arena_record_end(arena *a, mp_addr addr, void *native);

/* ---- capture.c: as the functions of millpond.h ---- */

mp_status mp__arena_stream_settled(arena *a, void *native);
mp_status mp__arena_stream_gone(arena *a, void *native);
mp_status mp__arena_stream_mark(arena *a, void *native, uint64_t *mark);
mp_status mp__arena_stream_ordered(arena *a, void *consumer, void *producer, uint64_t mark);
mp_status mp__arena_capture_begin(arena *a, void *native, mp_capture **capture);
mp_status mp__arena_capture_end(arena *a, void *native);
mp_status mp__arena_capture_release(arena *a, mp_capture *capture);
void mp__captures_close(arena *a);

/* ---- usage.c ---- */

void mp__usage_clients(arena *a, mp_share *out, size_t capacity, size_t *count_out);
mp_status mp__usage_streams(arena *a, mp_share *out, size_t capacity, size_t *count_out);
/* Counts a block of `c` on `l` and gives the chunk its state. Threads: any, without locks. */
void mp__usage_add(arena *a, lane *l, chunk *c, chunk_state state);
/* The same under the lane's lock; false, and nothing done, where mp__usage_add is needed. */
bool mp__usage_add_fast(lane *l, chunk *c, chunk_state state);
/* The one or the other. Threads: any, without locks. */
void mp__usage_count(arena *a, lane *l, chunk *c, chunk_state state);
/* Under the lane's lock. */
void mp__usage_remove(lane *l, const chunk *c);
void mp__usage_stats(arena *a, mp_pool_stats *out);
/* The same, under the locks of the arena and of all lanes. */
void mp__usage_stats_locked(const arena *a, mp_pool_stats *out);
void mp__usage_reset_peaks(arena *a);
/* How much the arena may have from the device before it takes pains to have less, for a request of
 * `bytes`. Under the arena's lock. */
size_t mp__arena_plenty(const arena *a, size_t bytes);
/* Takes and gives the locks of all lanes; under the arena's lock. */
void mp__lanes_lock(arena *a);
void mp__lanes_unlock(arena *a);

/* ---- report.c ---- */

/* A line of the log with the options that a new pool has settled on. */
void mp__report_options(const arena *a);
/* Events for the trace, where it is on; of memory a line of the log too. */
void mp__report_block_now(const arena *a, const chunk *c, const lane *l, mp_trace_action action);
static inline void mp__report_block(const arena *a, const chunk *c, const lane *l,
                                    mp_trace_action action) {
    if (__builtin_expect(mp__trace_on(a->trace), false)) {
        mp__report_block_now(a, c, l, action);
    }
}
void mp__report_memory(const arena *a, mp_addr addr, size_t size, mp_trace_action action);

/* ---- guard.c ---- */

/* Fills the borders of a fresh block. */
void mp__guard_draw(arena *a, lane *l, const chunk *c);
/* Waits for the stream and looks whether the borders are whole; poisons the block. */
void mp__guard_check(arena *a, lane *l, const chunk *c);

/* ---- inspect.c ---- */
void mp__arena_dump(arena *a, mp_write_fn *write, void *context);
/* Gives: `*out`, to be freed with mp__layout_free. */
mp_status mp__arena_layout(arena *a, mp_layout *out);
/* Fails with the sentence of a request that found no memory, and logs the dump; `why` is the
 * reason, NULL for the sentence of the last failure on this thread. */
mp_status mp__arena_fail(arena *a, size_t size, uint8_t client, const char *why);
mp_status mp__arena_find(arena *a, mp_addr addr, mp_block_info *out);

#endif
