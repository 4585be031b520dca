/* silu.h - which nodes are x times its sigmoid.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_SILU_H
#define MP_GRAPH_PASS_SILU_H

#include "graph/look.h"

static inline bool mp_is_silu(const mp_vertex *v) {
    const mp_op *quick = mp_op_find("com.microsoft", "QuickGelu", 1);
    return (mp_vertex_is(v, "Swish") && mp_node_float(&v->node, "alpha", 1) == 1) ||
           (v->node.op == quick && mp_node_float(&v->node, "alpha", 1.702F) == 1);
}

#endif
