/* store_private.h - what the files of store.h share.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_STORE_PRIVATE_H
#define MP_GRAPH_STORE_PRIVATE_H

#include "base/sha256.h"
#include "graph/store.h"

#define MP_STORE_MARK "MPISLAND"

typedef struct mp_store_head {
    char mark[8];
    uint32_t format, unused;
    char maker[MP_STORE_MAKER];
    uint64_t size; /* of what follows */
    uint8_t sum[MP_SHA256_SIZE];
} mp_store_head;
static_assert(sizeof(mp_store_head) == 88, "the same in every build");

/* What a value is. */
enum {
    MP_STORE_MADE,  /* by a node */
    MP_STORE_INPUT, /* of the graph; a port, unless it is a body's */
    MP_STORE_PORT,  /* a constant that is a port */
    MP_STORE_OWN,   /* a constant with its bytes */
    MP_STORE_KINDS,
};

typedef struct mp_store_reader {
    const unsigned char *at, *end;
    const mp_store_port *ports;
    size_t port_count;
    const mp_op_options *options;
    mp_graph *graph;
    int depth; /* of bodies around it */
    /* owned, by value: */
    bool *made;           /* it is an input, a constant, or a node before makes it */
    int32_t *guards;      /* of its maker */
    unsigned char *kinds; /* what it is */
    uint32_t *port_of;    /* of one that is a port */
    mp_tensor *work;      /* owned; what a node reads and makes */
} mp_store_reader;

/* ---- store_read.c ---- */

mp_status mp__store_damaged(const char *what);
mp_status mp__store_no_memory(void);
mp_status mp__store_take(mp_store_reader *r, void *out, size_t size);
mp_status mp__store_take_number(mp_store_reader *r, uint32_t *out);
/* A count of things that have `width` bytes each at least. */
mp_status mp__store_take_count(mp_store_reader *r, size_t width, size_t *out);
/* A list that lives as long as the graph, with a zeroed element behind it. */
mp_status mp__store_take_list(mp_store_reader *r, size_t width, void **out, size_t *count);
mp_status mp__store_take_text(mp_store_reader *r, const char **out);
mp_status mp__store_take_graph(mp_store_reader *r);
/* Whether a branch lies in few others: nodes look through all of them. */
bool mp__store_is_shallow(const mp_graph *graph, int32_t guard);
void mp__store_reader_close(mp_store_reader *r); /* the graph stays */

/* ---- store_attr.c ---- */

/* Type and shape. */
mp_status mp__store_take_tensor(mp_store_reader *r, mp_tensor *out);
/* The bytes of one, which are the graph's. */
mp_status mp__store_take_bytes(mp_store_reader *r, mp_tensor *tensor);
/* Those of a node whose operator is known. */
mp_status mp__store_take_attrs(mp_store_reader *r, mp_node *node);

/* ---- store_node.c ---- */

mp_status mp__store_take_node(mp_store_reader *r);

#endif
