/* known_sizes.c - sizes that are known of shapes that are not known in full, such as the length of
 * heads, become constants, which other passes look for.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/fold.h"
#include "graph/pass/name_dims.h"

/* Operators that sizes are made by. */
static bool makes_sizes(const mp_vertex *v) {
    static const char *const names[] = {"Add",     "Concat",  "Div",      "Gather",
                                        "Mul",     "Reshape", "Shape",    "Slice",
                                        "Squeeze", "Sub",     "Unsqueeze"};
    return mp_vertex_is_any(v, names, MP_COUNT_OF(names));
}

/* The elements of node `n`'s result, if that is a list of sizes, or one, of which all are known. */
static bool read_sizes(const mp_graph *graph, const mp_vertex *v, int64_t *out) {
    const int32_t y = mp_vertex_out(v, 0);
    const mp_tensor *made = y != MP_NO_VALUE ? &graph->values[y].tensor : NULL;
    if (made == NULL || made->type != MP_I64 || v->out_count != 1 || made->shape.rank < 0 ||
        made->shape.rank > 1) {
        return false;
    }
    const int64_t count = made->shape.rank == 0 ? 1 : made->shape.dim[0];
    for (int64_t i = 0; i < count && count <= MP_RANK_MAX; i++) {
        out[i] = mp_graph_entry_dim(graph, y, (int)i);
        if (out[i] <= 0) {
            return false;
        }
    }
    return count > 0 && count <= MP_RANK_MAX;
}

mp_status mp_pass_known_sizes(mp_graph *graph, mp_rewrites *rewrites) {
    size_t total = 0;
    int64_t lowest = 0;
    mp_name_inputs(graph, &lowest);
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        int64_t sizes[MP_RANK_MAX];
        mp_name_dims(graph, n, &lowest);
        if (!v->is_gone && makes_sizes(v) && read_sizes(graph, v, sizes) && mp_fold_may(graph, v) &&
            mp_rewrite_allowed(rewrites)) {
            mp_tensor made = graph->values[v->out[0]].tensor;
            made.data = (mp_addr)sizes;
            const mp_vertex was = *v;
            MP_TRY(mp_fold_into(graph, n, &made, &total));
            mp_graph_drop_inputs(graph, &was);
        }
    }
    return MP_OK;
}
