/* refold.c - as fold.c, once more: what other passes have made of constants.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/fold.h"

mp_status mp_pass_refold(mp_graph *graph, mp_rewrites *rewrites) {
    return mp_fold_constants(graph, rewrites);
}
