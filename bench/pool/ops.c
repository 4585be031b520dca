/* ops.c - makes lists of operations and runs them.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ops.h"

#include <stdlib.h>
#include <string.h>

enum { ALLOC_PERCENT = 73, KEEP_PERCENT = 10, KEEP_PHASES = 3, CHUNK = 64, SAMPLE_LIMIT = 10 };

void ops_add(ops *self, op item) {
    self->items = must_grow(self->items, self->count, &self->capacity, sizeof *self->items);
    self->items[self->count++] = item;
    self->slots = item.slot >= self->slots ? (size_t)item.slot + 1 : self->slots;
    self->streams = item.stream >= self->streams ? item.stream + 1u : self->streams;
    self->threads = item.thread >= self->threads ? item.thread + 1u : self->threads;
}

void ops_drop(ops *self) {
    free(self->items);
    *self = (ops){0};
}

uint64_t ops_live_peak(const ops *self, size_t *blocks) {
    uint64_t live = 0, peak = 0;
    size_t count = 0;
    *blocks = 0;
    for (size_t i = 0; i < self->count; i++) {
        const op *item = &self->items[i];
        live = item->alloc ? live + item->size : live - item->size;
        count = item->alloc ? count + 1 : count - 1;
        peak = live > peak ? live : peak;
        *blocks = count > *blocks ? count : *blocks;
    }
    return peak;
}

/* ---- making ---- */

ops ops_random(uint64_t seed, size_t count, uint64_t size_max, uint64_t cap) {
    ops list = {0};
    op *live = must_alloc(count, sizeof *live);
    size_t live_count = 0, allocs = 0;
    uint64_t live_bytes = 0, state = seed;
    for (size_t i = 0; i < 2 * count; i++) {
        const uint64_t size = 1 + draw_below(&state, size_max);
        const bool wanted = draw_below(&state, 100) < ALLOC_PERCENT;
        if (live_count == 0 || (wanted && allocs < count && live_bytes + size < cap)) {
            if (allocs == count) {
                break;
            }
            const op item = {.size = size, .slot = (uint32_t)allocs++, .alloc = true};
            ops_add(&list, item);
            live[live_count++] = item;
            live_bytes += size;
        } else {
            const size_t at = draw_below(&state, live_count);
            op item = live[at];
            item.alloc = false;
            ops_add(&list, item);
            live_bytes -= item.size;
            live[at] = live[--live_count];
        }
    }
    free(live);
    return list;
}

ops ops_churn(uint64_t seed, size_t slots, size_t count, uint64_t size_least, uint64_t size_most) {
    ops list = {0};
    uint64_t *sizes = must_alloc(slots, sizeof *sizes);
    uint64_t state = seed;
    for (size_t i = 0; i < slots; i++) {
        sizes[i] = draw_size(&state, size_least, size_most);
        ops_add(&list, (op){.size = sizes[i], .slot = (uint32_t)i, .alloc = true});
    }
    list.build = list.count;
    for (size_t i = 0; i < count; i++) {
        const uint32_t slot = (uint32_t)draw_below(&state, slots);
        ops_add(&list, (op){.size = sizes[slot], .slot = slot});
        sizes[slot] = draw_size(&state, size_least, size_most);
        ops_add(&list, (op){.size = sizes[slot], .slot = slot, .alloc = true});
    }
    free(sizes);
    return list;
}

ops ops_phases(uint64_t seed, unsigned phases, size_t count, uint64_t size_most) {
    ops list = {0};
    const size_t total = phases * count;
    op *blocks = must_alloc(total, sizeof *blocks);
    unsigned *frees_at = must_alloc(total, sizeof *frees_at); /* the phase at whose end it goes */
    uint64_t state = seed;
    size_t made = 0;
    for (unsigned phase = 0; phase < phases; phase++) {
        const double factor = (double)draw_size(&state, 64, 1024) / 1024;
        for (size_t i = 0; i < count; i++, made++) {
            const uint64_t size =
                1 + (uint64_t)(factor * (double)draw_size(&state, 4096, size_most));
            blocks[made] = (op){.size = size, .slot = (uint32_t)made, .alloc = true};
            ops_add(&list, blocks[made]);
            const bool kept = draw_below(&state, 100) < KEEP_PERCENT;
            frees_at[made] = kept ? phase + KEEP_PHASES : phase;
        }
        for (size_t i = 0; i < made; i++) {
            if (frees_at[i] == phase) {
                blocks[i].alloc = false;
                ops_add(&list, blocks[i]);
            }
        }
    }
    free(blocks);
    free(frees_at);
    return list;
}

/* ---- running ---- */

run ops_run(bench *self, const ops *list, size_t from, size_t to, void **blocks) {
    const backend hot = self->backend;
    void *const *streams = self->streams;
    const uint64_t limit = (uint64_t)(self->limit_ms * 1e6);
    run result = {0};
    for (unsigned i = 0; i < list->streams; i++) {
        (void)bench_stream(self, i);
    }
    const uint64_t start = now_ns();
    uint64_t spent = 0;
    for (size_t at = from; at < to && spent <= limit;) {
        const size_t end = to - at < CHUNK ? to : at + CHUNK;
        result.done += end - at;
        for (; at < end; at++) {
            const op *item = &list->items[at];
            void **block = &blocks[item->slot];
            if (item->alloc) {
                *block = hot.alloc((ssize_t)item->size, 0, streams[item->stream]);
                result.failures += *block == NULL;
            } else if (*block != NULL) {
                hot.free(*block, (ssize_t)item->size, 0, streams[item->stream]);
                *block = NULL;
            }
        }
        spent = now_ns() - start;
    }
    result.ns = (double)spent;
    return result;
}

void ops_clear(bench *self, const ops *list, size_t done, void **blocks) {
    while (done-- > 0) { /* backwards, so that the last block of a slot is met with its own size */
        const op *item = &list->items[done];
        if (item->alloc && blocks[item->slot] != NULL) {
            self->backend.free(blocks[item->slot], (ssize_t)item->size, 0,
                               self->streams[item->stream]);
            blocks[item->slot] = NULL;
        }
    }
}

bool ops_sample(bench *self, const ops *list, void **blocks) {
    const uint64_t start = now_ns(), limit = (uint64_t)(SAMPLE_LIMIT * self->limit_ms * 1e6);
    uint64_t live = 0, sampled = 0;
    size_t at = 0;
    for (; at < list->count && now_ns() - start <= limit; at++) {
        const op *item = &list->items[at];
        (void)ops_run(self, list, at, at + 1, blocks);
        live = item->alloc ? live + item->size : live - item->size;
        if (live > sampled + sampled / 64) {
            sampled = live;
            pool_sample(self);
        }
    }
    ops_clear(self, list, at, blocks);
    return at == list->count;
}
