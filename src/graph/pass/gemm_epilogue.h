/* gemm_epilogue.h - activations that a product takes on its way to memory.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_GEMM_EPILOGUE_H
#define MP_GRAPH_PASS_GEMM_EPILOGUE_H

#include "graph/graph.h"

/* Whether the node is one that libraries have behind a product, whatever its size. */
bool mp_is_common_activation(const mp_graph *graph, const mp_vertex *v);

#endif
