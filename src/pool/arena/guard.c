/* guard.c - borders around blocks that show writes outside of them, and poison inside.
 *
 *     | 256 bytes of border | block | rest of the chunk, at least 256 bytes of border |
 *
 * For finding faults: each free waits for its stream and reads the borders back. On the emulated
 * device under the address sanitizer a border may not be read, either, while the block lives.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/arena/guard.h"

#include "base/forbid.h"
#include "base/log.h"
#include "pool/arena/order.h"

#include <inttypes.h>
#include <string.h>

enum { BORDER_BYTE = 0xB5, FRESH_BYTE = 0xCB, FREED_BYTE = 0xDD, LOOK_MAX = 512 };

/* The stream to queue on: NULL, which waits for the bytes, where the heap has none or is captured.
 */
static bool find_stream(arena *a, stream_heap *heap, mp_stream **out) {
    bool captured = false;
    arena_lock(a);
    *out = mp__order_stream(a, heap);
    captured = heap->is_capture || heap->capture != NULL;
    arena_unlock(a);
    return !captured;
}

static void fill(arena *a, mp_stream *stream, mp_addr addr, size_t size, uint32_t byte) {
    mp_device *device = a->device;
    if (size > 0 && device->ops->fill(device, stream, addr, byte, 1, size) != MP_OK &&
        device->ops->fill(device, stream, addr, byte, 1, size) != MP_OK) { /* not by chance */
        MP_LOG(WARNING, "the guard of a block cannot be written: %s", mp_error_message());
    }
}

/* Of memory that is the host's, where a sanitizer would notice: nobody may look at the borders of
 * `c` (`end`: of its block), which are drawn once the stream came so far. */
static void close_borders(const arena *a, mp_stream *stream, const chunk *c, mp_addr end) {
    if (MP_WITH_ASAN && a->device->info.kind == MP_DEVICE_HOST &&
        (stream == NULL || a->device->ops->stream_synchronize(a->device, stream) == MP_OK)) {
        mp_forbid(chunk_addr(c), a->border, true);
        mp_forbid(end, chunk_addr(c) + chunk_bytes(c) - end, true);
    }
}

static void open_borders(const arena *a, const chunk *c) {
    if (MP_WITH_ASAN && a->border > 0 && a->device->info.kind == MP_DEVICE_HOST) {
        mp_forbid(chunk_addr(c), chunk_bytes(c), false);
    }
}

void mp__guard_draw(arena *a, stream_heap *heap, const chunk *c) {
    mp_stream *stream = NULL;
    if (a->source.memory == MP_MEMORY_PINNED || a->source.is_external ||
        !find_stream(a, heap, &stream)) {
        return;
    }
    const mp_addr block = chunk_addr(c) + a->border;
    if (a->options.poison) {
        fill(a, stream, block, c->requested, FRESH_BYTE);
    }
    if (a->border > 0) {
        const mp_addr end = block + c->requested;
        fill(a, stream, chunk_addr(c), a->border, BORDER_BYTE);
        fill(a, stream, end, chunk_addr(c) + chunk_bytes(c) - end, BORDER_BYTE);
        close_borders(a, stream, c, end);
    }
}

/* Reports the first byte of a border that is not as it was drawn. `offset`: of the border from the
 * block's begin. */
static void check(arena *a, const chunk *c, mp_addr border, size_t size, intptr_t offset) {
    unsigned char found[LOOK_MAX];
    size = size < sizeof found ? size : sizeof found;
    if (a->device->ops->copy(a->device, NULL, (mp_addr)(uintptr_t)found, border, size) != MP_OK) {
        MP_LOG(WARNING, "the guard of a block cannot be read: %s", mp_error_message());
        return;
    }
    for (size_t i = 0; i < size; i++) {
        if (found[i] != BORDER_BYTE) {
            MP_LOG(ERROR,
                   "a block of %" PRIu64 " bytes at 0x%" PRIxPTR
                   ", allocated by '%s', was written outside: byte %" PRIdPTR " from its start",
                   c->requested, chunk_addr(c) + a->border, a->clients[c->client],
                   offset + (intptr_t)i);
            return;
        }
    }
}

void mp__guard_check(arena *a, stream_heap *heap, const chunk *c) {
    mp_stream *stream = NULL;
    open_borders(a, c);
    if (a->source.memory == MP_MEMORY_PINNED || a->source.is_external ||
        !find_stream(a, heap, &stream)) {
        return;
    }
    const mp_addr block = chunk_addr(c) + a->border;
    if (a->border > 0 &&
        (stream == NULL || a->device->ops->stream_synchronize(a->device, stream) == MP_OK)) {
        const mp_addr end = block + c->requested;
        check(a, c, chunk_addr(c), a->border, -(intptr_t)a->border);
        check(a, c, end, chunk_addr(c) + chunk_bytes(c) - end, (intptr_t)c->requested);
    }
    if (a->options.poison) {
        fill(a, stream, block, c->requested, FREED_BYTE);
    }
}
