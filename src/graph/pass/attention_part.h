/* attention_part.h - Q, K and V as parts of longer rows, for passes that come after
 * find_attention: sides 0 to 2 of an Attention, and side 0 of a RotaryHalves before it, or of a
 * Transpose that puts heads first.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_ATTENTION_PART_H
#define MP_GRAPH_PASS_ATTENTION_PART_H

#include "graph/look.h"

enum { MP_PART_NUMBERS = 4 }; /* first element, heads, size of a head, from one to the next */

/* Whether side `i` is [batch, rows, heads, size] with its heads put first, and
 * nobody else reads it. */
bool mp_side_is_turned(const mp_graph *graph, const mp_vertex *v, int i);

/* In which order its dimensions are read, or NULL: as they are. */
const mp_attr *mp_side_perm(const mp_vertex *v, int i);

/* Whether it is part of longer rows. */
bool mp_side_has_part(const mp_vertex *v, int i);

/* The value [batch, rows, heads * size] that `value` is a view of with its last dimension split; or
 * MP_NO_VALUE. */
int32_t mp_heads_whole(const mp_graph *graph, int32_t value, int64_t *heads, int64_t *size);

/* Whether this order exchanges rows and heads; `perm` may be NULL. */
bool mp_is_heads_first(const mp_attr *perm);

/* Whether the node is such a Transpose. */
bool mp_puts_heads_first(const mp_graph *graph, const mp_vertex *v);

/* Side `i` of node `n` becomes part of `whole`. */
mp_status mp_side_set_part(mp_graph *graph, int32_t n, int i, int32_t whole,
                           const int64_t part[MP_PART_NUMBERS]);

#endif
