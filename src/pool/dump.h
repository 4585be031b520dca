/* dump.h - lines of text about a pool.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_DUMP_H
#define MP_POOL_DUMP_H

#include "pool/arena/arena.h"

/* The page of text about an arena. */
void mp__arena_dump(arena *a, mp_write_fn *write, void *context);
/* Fails with the sentence of a request that found no memory, and logs the dump; `why` is the
 * reason, NULL for the sentence of the last failure on this thread. */
mp_status mp__arena_fail(arena *a, size_t size, uint8_t client, const char *why);

typedef struct dump_writer {
    mp_write_fn *write;
    void *context;
} dump_writer;

/* A line of at most 255 characters. */
void MP_PRINTF(2, 3) mp__dump_put(const dump_writer *w, const char *format, ...);
/* A line for each client. */
void mp__dump_clients(const dump_writer *w, const mp_share *shares, size_t count);

/* ---- dump_table.c ---- */

enum {
    DUMP_POWERS = 33,
    DUMP_SIZES_MAX = 48,
    DUMP_CHUNKS_MAX = 128,
};

typedef struct dump_power {
    size_t lent_count, lent_bytes, requested;
    size_t free_count, free_bytes;
} dump_power;

typedef struct dump_size {
    size_t size, count;
} dump_size;

typedef struct dump_table {          /* begins as zeros */
    dump_power powers[DUMP_POWERS];  /* of 256 bytes */
    dump_size sizes[DUMP_SIZES_MAX]; /* of allocated blocks, the smallest first */
    size_t size_count;
    size_t left_out; /* allocated blocks, smaller than all of `sizes` */
} dump_table;

typedef struct dump_chunk {
    mp_addr addr;
    size_t size, requested;
    const char *client; /* of an allocated one; else NULL */
    const char *state;  /* of another */
} dump_chunk;

typedef struct dump_list {
    size_t count; /* chunks so far, those left out among them */
} dump_list;

void mp__dump_count_lent(dump_table *t, size_t size, size_t requested);
void mp__dump_count_free(dump_table *t, size_t size);
void mp__dump_put_table(const dump_writer *w, const dump_table *t);
/* A line, as long as there are not too many of them. */
void mp__dump_put_chunk(const dump_writer *w, dump_list *list, const dump_chunk *c);
void mp__dump_end_chunks(const dump_writer *w, const dump_list *list);

#endif
