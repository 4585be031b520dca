/* flat_sizes.h - who asks for sizes of a value of [batch * heads, rows, columns], while the value
 * is to have four dimensions instead.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_FLAT_SIZES_H
#define MP_GRAPH_PASS_FLAT_SIZES_H

#include "graph/graph.h"

/* The only node that reads the value, beside such that ask for its last two sizes; and for its
 * first two, if `has_lead` says that those are known from elsewhere. Or MP_NO_NODE. */
int32_t mp_flat_reader(const mp_graph *graph, int32_t flat, bool has_lead);

/* Whoever asks for the last two sizes of `flat` gets those of `wide`, and for the first two those
 * in the list `lead`. */
mp_status mp_flat_ask(mp_graph *graph, int32_t flat, int32_t wide, int32_t lead);

#endif
