/* fold.h - nodes of constants become constants.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_FOLD_H
#define MP_GRAPH_PASS_FOLD_H

#include "graph/pass.h"

/* Goes through the nodes once, in their order. Fails: as a pass. */
mp_status mp_fold_constants(mp_graph *graph, mp_rewrites *rewrites);

#endif
