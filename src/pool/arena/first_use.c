/* first_use.c - a further stream that is about to use an allocated block: the memory must be ready
 * for it before, and is not allocated again before it is done.
 *
 * A block is allocated in the order of one stream, while work that used its memory before may still
 * run: that stream's own, or another's which it was made to wait for. A further stream knows
 * nothing of that. So each allocated chunk remembers whose work its memory comes after
 * (`after_heap`, `after_epoch`), and a stream that is declared is made to wait for it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/first_use.h"

#include "pool/arena/arena.h"
#include "pool/arena/order.h"
#include "pool/arena/report.h"
#include "pool/stream_order.h"

/* The stream that is captured into the graph of `heap`, or the stream of `heap` itself, where it is
 * captured now; else NULL. Gives: `*out`, a wrap. */
static mp_status wrap_captured(arena *a, const stream_heap *heap, mp_stream **out) {
    const mp_device_ops *ops = a->device->ops;
    bool captured = false;
    *out = NULL;
    MP_TRY(ops->stream_wrap(a->device, heap->native, out));
    const mp_status status = ops->capture_active(a->device, *out, &captured);
    if (status != MP_OK || !captured) {
        ops->stream_destroy(a->device, *out);
        *out = NULL;
    }
    return status;
}

/* Memory of a graph that two streams of its capture pass on: an edge of the graph. Where only one
 * of them is captured, the work meets the memory when the graph runs, whose order is the caller's.
 */
static mp_status order_in_graph(arena *a, const stream_heap *before, const stream_heap *after) {
    const mp_device_ops *ops = a->device->ops;
    mp_stream *from = NULL;
    mp_stream *to = NULL;
    mp_status status = wrap_captured(a, before, &from);
    if (status == MP_OK && from != NULL) {
        status = wrap_captured(a, after, &to);
    }
    if (status == MP_OK && to != NULL) {
        status = mp__streams_order(a->device, from, to);
        ops->stream_destroy(a->device, to);
    }
    if (from != NULL) {
        ops->stream_destroy(a->device, from);
    }
    return status;
}

/* Under the arena's lock: work queued on the stream of `heap` from now on comes after `epoch` of
 * the heap with index `before`. */
static mp_status make_ready(arena *a, stream_heap *heap, unsigned before, uint64_t epoch) {
    stream_heap *from = stream_heap_at(a, before);
    if (before == 0 || from == heap || epoch <= from->reached) {
        return MP_OK;
    }
    if (stream_heap_is_graphs(from)) {
        return order_in_graph(a, from, heap);
    }
    if (mp__order_wait(a, heap, from, epoch)) {
        return MP_OK;
    }
    return mp__order_reach(a, from, epoch);
}

static mp_status record(arena *a, mp_addr addr, void *native, bool begins) {
    stream_heap *other = NULL;
    stream_heap *heap = NULL;
    MP_TRY(mp__stream_heap_now(a, mp__stream_heap_key(a, native), &other));
    chunk *c = mp__arena_lock_block(a, addr, &heap);
    if (c == NULL) {
        return mp__arena_refuse(a, addr, "use");
    }
    const bool knows = chunk_state_of(c) == CHUNK_LENT; /* what its memory was used for before */
    if (other == heap || other->index == 0 || !(knows || a->direct)) {
        spin_unlock(&heap->lock); /* nothing new, or an order that the caller keeps */
        return MP_OK;
    }
    const unsigned before = knows ? c->after_heap : 0;
    const uint64_t epoch = knows ? c->after_epoch : 0;
    const mp_status status = mp__use_add(c, other);
    stream_heap_add_guest(other, c->client);
    mp__report_block(a, c, other, MP_TRACE_USE);
    spin_unlock(&heap->lock);
    if (status != MP_OK || !begins || before == 0) {
        return status;
    }
    arena_lock(a);
    const mp_status ready = make_ready(a, other, before, epoch);
    arena_unlock(a);
    return ready;
}

mp_status mp__arena_record_use(arena *a, mp_addr addr, void *native) {
    return record(a, addr, native, true);
}

mp_status mp__arena_record_end(arena *a, mp_addr addr, void *native) {
    return record(a, addr, native, false);
}
