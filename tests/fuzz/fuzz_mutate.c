/* fuzz_mutate.c - how an input of a fuzz target is changed.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fuzz_mutate.h"

#include "fuzz.h"
#include "unit/random.h"

#include <string.h>

typedef struct change {
    uint8_t *bytes;
    size_t size;
    const uint8_t *other;
    size_t other_size;
    uint64_t *random;
} change;

static size_t below(change *c, size_t bound) {
    return bound == 0 ? 0 : (size_t)(test_random(c->random) % bound);
}

/* Puts as much of `piece` at `at` as there is room for. */
static void insert(change *c, size_t at, const uint8_t *piece, size_t length) {
    const size_t room = FUZZ_INPUT_MAX - c->size;
    const size_t count = length < room ? length : room;
    memmove(c->bytes + at + count, c->bytes + at, c->size - at);
    memcpy(c->bytes + at, piece, count);
    c->size += count;
}

static void flip_bit(change *c) {
    if (c->size > 0) {
        c->bytes[below(c, c->size)] ^= (uint8_t)(1U << below(c, 8));
    }
}

static void set_byte(change *c) {
    static const uint8_t odd[] = {0, 1, 7, 15, 127, 128, 255, '=', ',', '\n', '0', '9', 'K', '-'};
    if (c->size > 0) {
        c->bytes[below(c, c->size)] =
            below(c, 2) == 0 ? odd[below(c, sizeof odd)] : (uint8_t)below(c, 256);
    }
}

static void take_out(change *c) {
    const size_t at = below(c, c->size), count = below(c, (c->size - at) / 2 + 1);
    memmove(c->bytes + at, c->bytes + at + count, c->size - at - count);
    c->size -= count;
}

static void put_in(change *c) {
    uint8_t some[16];
    for (size_t i = 0; i < sizeof some; i++) {
        some[i] = (uint8_t)below(c, 256);
    }
    insert(c, below(c, c->size + 1), some, 1 + below(c, sizeof some));
}

/* A piece of the input itself comes again. */
static void repeat(change *c) {
    uint8_t piece[256];
    const size_t from = below(c, c->size), rest = c->size - from;
    const size_t count = 1 + below(c, rest < sizeof piece ? rest : sizeof piece - 1);
    if (c->size > 0) {
        memcpy(piece, c->bytes + from, count < rest ? count : rest);
        insert(c, below(c, c->size + 1), piece, count < rest ? count : rest);
    }
}

static void borrow(change *c) {
    const size_t from = below(c, c->other_size);
    insert(c, below(c, c->size + 1), c->other + from, below(c, c->other_size - from + 1));
}

static void insert_word(change *c) {
    size_t count = 0;
    while (fuzz_words[count] != NULL) {
        count++;
    }
    if (count > 0) {
        const char *word = fuzz_words[below(c, count)];
        insert(c, below(c, c->size + 1), (const uint8_t *)word, strlen(word));
    }
}

typedef void change_fn(change *c);

static change_fn *const changes[] = {flip_bit, set_byte, take_out,    put_in,
                                     repeat,   borrow,   insert_word, insert_word};

void fuzz_mutate(uint8_t *bytes, size_t *size, const uint8_t *other, size_t other_size,
                 uint64_t *random) {
    change c = {.size = *size, .other = other, .other_size = other_size};
    c.bytes = bytes;
    c.random = random;
    for (size_t count = 1 + below(&c, 4); count > 0; count--) {
        changes[below(&c, sizeof changes / sizeof changes[0])](&c);
    }
    *size = c.size;
}
