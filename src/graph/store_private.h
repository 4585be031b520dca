/* store_private.h - what the two directions of store.h share.
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

#endif
