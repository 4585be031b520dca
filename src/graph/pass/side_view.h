/* side_view.h - a value as a view of one that was there before it was cut and turned, where all
 * sizes are known, but for how many entries there are: then it is what one entry is.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_PASS_SIDE_VIEW_H
#define MP_GRAPH_PASS_SIDE_VIEW_H

#include "graph/look.h"

enum { MP_VIEW_RANK = 8 };

typedef struct mp_side_view {
    int32_t base;    /* a value whose elements lie one behind the other */
    int64_t first;   /* element of it that is the view's first */
    int64_t of_base; /* elements that it has, or one entry of it */
    bool is_entry;   /* the base's first dimension is not known: the view is of each entry */
    int rank;
    int64_t dim[MP_VIEW_RANK], stride[MP_VIEW_RANK];
    bool moves; /* nodes between the two move elements, which the view need not */
} mp_side_view;

/* False where sizes are not known, or there is nothing between. */
bool mp_side_view_find(const mp_graph *graph, int32_t value, mp_side_view *out);

#endif
