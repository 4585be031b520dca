/* dump_table.c - what is allocated and free, by powers of two and by size, for the pages of text
 * about an arena and about the driver's own pool.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/dump.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void mp__dump_put(const dump_writer *w, const char *format, ...) {
    char line[256];
    va_list args;
    va_start(args, format);
    const int size = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (size > 0) {
        w->write(w->context, line, (size_t)size < sizeof line ? (size_t)size : sizeof line - 1);
    }
}

static int power_of(size_t size) {
    const size_t units = size / UNIT;
    const int power = units > 0 ? 63 - __builtin_clzll(units) : 0;
    return power < DUMP_POWERS ? power : DUMP_POWERS - 1;
}

/* Counts an allocated block under its size, the sizes in order; where there is no room for one
 * more, the largest sizes stay. */
static void count_size(dump_table *t, size_t size) {
    size_t at = t->size_count;
    while (at > 0 && t->sizes[at - 1].size > size) {
        at--;
    }
    if (at > 0 && t->sizes[at - 1].size == size) {
        t->sizes[at - 1].count++;
        return;
    }
    if (t->size_count == DUMP_SIZES_MAX) {
        t->left_out += at == 0 ? 1 : t->sizes[0].count;
        if (at == 0) {
            return;
        }
        at--;
        memmove(&t->sizes[0], &t->sizes[1], at * sizeof t->sizes[0]);
    } else {
        memmove(&t->sizes[at + 1], &t->sizes[at], (t->size_count - at) * sizeof t->sizes[0]);
        t->size_count++;
    }
    t->sizes[at] = (dump_size){.size = size, .count = 1};
}

void mp__dump_count_lent(dump_table *t, size_t size, size_t requested) {
    dump_power *row = &t->powers[power_of(size)];
    row->lent_count++;
    row->lent_bytes += size;
    row->requested += requested;
    count_size(t, size);
}

void mp__dump_count_free(dump_table *t, size_t size) {
    dump_power *row = &t->powers[power_of(size)];
    row->free_count++;
    row->free_bytes += size;
}

void mp__dump_put_table(const dump_writer *w, const dump_table *t) {
    for (int power = 0; power < DUMP_POWERS; power++) {
        const dump_power *row = &t->powers[power];
        if (row->free_count + row->lent_count > 0) {
            mp__dump_put(
                w,
                "bin %14zu bytes: %zu allocated (%zu bytes, %zu requested, %zu wasted), %zu "
                "free (%zu bytes)\n",
                (size_t)UNIT << power, row->lent_count, row->lent_bytes, row->requested,
                row->lent_bytes - row->requested, row->free_count, row->free_bytes);
        }
    }
    for (size_t i = 0; i < t->size_count; i++) {
        mp__dump_put(w, "blocks of %zu bytes: %zu, %zu bytes in all\n", t->sizes[i].size,
                     t->sizes[i].count, t->sizes[i].count * t->sizes[i].size);
    }
    if (t->left_out > 0) {
        mp__dump_put(w, "and %zu smaller blocks\n", t->left_out);
    }
}

void mp__dump_put_chunk(const dump_writer *w, dump_list *list, const dump_chunk *c) {
    if (list->count++ >= DUMP_CHUNKS_MAX) {
        return;
    }
    if (c->client != NULL) {
        mp__dump_put(w, "chunk 0x%" PRIxPTR ": %zu bytes allocated by %s, which requested %zu\n",
                     c->addr, c->size, c->client, c->requested);
    } else {
        mp__dump_put(w, "chunk 0x%" PRIxPTR ": %zu bytes %s\n", c->addr, c->size, c->state);
    }
}

void mp__dump_end_chunks(const dump_writer *w, const dump_list *list) {
    if (list->count > DUMP_CHUNKS_MAX) {
        mp__dump_put(w, "and %zu more chunks\n", list->count - DUMP_CHUNKS_MAX);
    }
}
