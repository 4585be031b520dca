/* check.c - looks for overlapping blocks, and for memory that was allocated too early.
 *
 * A block is freed as soon as its read is queued, behind slow work. An allocator that allocates it
 * to another stream without an order between the two lets that stream's fill run before the read,
 * which then finds the wrong number.
 * SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <stdlib.h>
#include <string.h>

enum {
    CHECK_STREAMS = 4,
    CHECK_HELD = 8, /* blocks that stay live while others come and go */
    CHECK_ROUNDS = 64,
    CHECK_ROUNDS_QUICK = 16,
    CHECK_WORDS = 16 * 1024,
    CHECK_BUSY_US = 200,
};

/* The first range that does not lie wholly below `begin`. */
static size_t range_at(const ranges *self, uintptr_t begin) {
    size_t low = 0, high = self->count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (self->items[middle].end <= begin) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

void ranges_add(ranges *self, const void *block, uint64_t size) {
    const struct range added = {(uintptr_t)block, (uintptr_t)block + size};
    const size_t at = range_at(self, added.begin);
    if (at < self->count && self->items[at].begin < added.end) {
        die("wrong: %zu bytes were allocated at %p while others are live at %p", (size_t)size,
            block, (void *)self->items[at].begin);
    }
    self->items = must_grow(self->items, self->count, &self->capacity, sizeof *self->items);
    memmove(self->items + at + 1, self->items + at, (self->count - at) * sizeof *self->items);
    self->items[at] = added;
    self->count++;
}

void ranges_remove(ranges *self, const void *block) {
    const size_t at = range_at(self, (uintptr_t)block);
    if (at == self->count || self->items[at].begin != (uintptr_t)block) {
        die("wrong: a block at %p is freed that is not live", block);
    }
    self->count--;
    memmove(self->items + at, self->items + at + 1, (self->count - at) * sizeof *self->items);
}

void ranges_drop(ranges *self) {
    free(self->items);
    *self = (ranges){0};
}

typedef struct held {
    void *block;
    uint64_t size;
    void *stream;
} held;

static held checked_alloc(bench *self, ranges *live, uint64_t size, void *stream) {
    const held got = {self->backend.alloc((ssize_t)size, 0, stream), size, stream};
    if (got.block == NULL) {
        die("wrong: no memory for a block of %zu bytes in the check", (size_t)size);
    }
    ranges_add(live, got.block, size);
    return got;
}

static void checked_free(bench *self, ranges *live, const held *old) {
    if (old->block != NULL) {
        ranges_remove(live, old->block);
        self->backend.free(old->block, (ssize_t)old->size, 0, old->stream);
    }
}

/* One block: filled on a stream, read on the same or on another that was made to wait, given back
 * at once. Returns how many words were read. */
static size_t check_one(bench *self, ranges *live, uint64_t *state, uint32_t number,
                        uint32_t *target) {
    stage *on = self->stage;
    const size_t words = 256 + draw_below(state, CHECK_WORDS - 256);
    void *source = self->streams[number % CHECK_STREAMS], *reader = source;
    const held got = checked_alloc(self, live, words * sizeof(uint32_t), source);
    on->fill(source, got.block, number, words);
    if (draw_below(state, 2) != 0) {
        reader = self->streams[draw_below(state, CHECK_STREAMS)];
        on->order(source, reader);
    }
    if (draw_below(state, 4) == 0) {
        on->busy(reader, CHECK_BUSY_US);
    }
    on->read(reader, target, got.block, words * sizeof(uint32_t));
    checked_free(self, live, &(held){got.block, got.size, reader});
    return words;
}

void check_streams(bench *self) {
    const unsigned rounds = self->quick ? CHECK_ROUNDS_QUICK : CHECK_ROUNDS;
    uint64_t state = 7;
    ranges live = {0};
    held kept[CHECK_HELD] = {{NULL, 0, NULL}};
    size_t words[CHECK_ROUNDS];
    for (unsigned i = 0; i < CHECK_STREAMS; i++) {
        (void)bench_stream(self, i);
    }
    uint32_t *target = self->stage->pinned_alloc((size_t)rounds * CHECK_WORDS * sizeof(uint32_t));
    for (unsigned i = 0; i < rounds; i++) {
        held *other = &kept[i % CHECK_HELD];
        checked_free(self, &live, other);
        *other = checked_alloc(self, &live, draw_size(&state, 256, 256 * KIB),
                               self->streams[i % CHECK_STREAMS]);
        words[i] = check_one(self, &live, &state, i + 1, target + (size_t)i * CHECK_WORDS);
    }
    self->stage->wait_all();
    for (unsigned i = 0; i < rounds; i++) {
        for (size_t word = 0; word < words[i]; word++) {
            const uint32_t found = target[(size_t)i * CHECK_WORDS + word];
            if (found != i + 1) {
                die("wrong: word %zu of block %u holds %u; its memory was allocated too early",
                    word, i + 1, found);
            }
        }
    }
    for (unsigned i = 0; i < CHECK_HELD; i++) {
        checked_free(self, &live, &kept[i]);
    }
    ranges_drop(&live);
    self->stage->pinned_free(target);
}
