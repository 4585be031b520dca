/* fold.h - nodes of constants become constants.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_FOLD_H
#define MP_GRAPH_PASS_FOLD_H

#include "graph/pass.h"

/* Goes through the nodes once, in their order. Fails: as a pass. */
mp_status mp_fold_constants(mp_graph *graph, mp_rewrites *rewrites);

enum { MP_FOLD_RESULT_MAX = 4 << 20 }; /* bytes of a result */

/* Whether it is a node that is computed on the host. */
bool mp_fold_wants(const mp_vertex *v);

/* Whether all that the node makes may be constants. */
bool mp_fold_may(const mp_graph *graph, const mp_vertex *v);

/* Makes constants of all outputs of the node, which goes. Copies `out`, whose bytes are added to
 * `*total`. Fails: NO_MEMORY, and nothing changes. */
mp_status mp_fold_into(mp_graph *graph, int32_t n, const mp_tensor *out, size_t *total);

#endif
