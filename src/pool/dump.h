/* dump.h - lines of text about a pool. SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_POOL_DUMP_H
#define MP_POOL_DUMP_H

#include "pool/arena.h"

typedef struct dump_writer {
    mp_write_fn *write;
    void *context;
} dump_writer;

/* A line of at most 255 characters. */
void MP_PRINTF(2, 3) mp__dump_put(const dump_writer *w, const char *format, ...);
/* A line for each client. */
void mp__dump_clients(const dump_writer *w, const mp_share *shares, size_t count);

#endif
