/* half_norm.c - a norm in float of rows that were cast to float for it, and whose result is cast
 * back, is a norm of the half type, as its kernels compute in float anyway:
 *
 *     Cast to float --> LayerNormalization --> Cast to float16
 *
 * Models have that whose norms were to stay in float. Scale and bias must be numbers of the half
 * type, as they are where these were cast, too: so nothing is rounded that was not.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"
#include "base/macros.h"
#include "graph/look.h"
#include "graph/pass.h"

#include <stdlib.h>

enum {
    INPUTS_MAX = 5,
    OUTS = 4, /* the result, mean and deviation, and the sum of what is added before */
    SUM = 3,
    ELEMENTS_MOST = 1 << 20 /* of a constant */
};

/* A norm that can be one of a half type. */
typedef struct half_norm {
    mp_dtype type;
    int rows;            /* inputs that are rows of x; constants follow */
    int32_t casts[OUTS]; /* of outputs; MP_NO_NODE for those that nobody reads */
} half_norm;

/* How many inputs are cast to float; 0 where it is no such norm. */
static int rows_of(const mp_vertex *v) {
    static const char *const norms[] = {"LayerNormalization", "RMSNormalization",
                                        "SimplifiedLayerNormalization"};
    static const char *const sums[] = {"SkipLayerNormalization",
                                       "SkipSimplifiedLayerNormalization"};
    for (size_t i = 0; i < MP_COUNT_OF(sums) && !v->is_gone; i++) {
        if (v->node.op == mp_op_find("com.microsoft", sums[i], 1)) {
            return 2;
        }
    }
    return mp_vertex_is_any(v, norms, MP_COUNT_OF(norms)) ? 1 : 0;
}

/* What is cast to float, if it is of a half type. */
static int32_t before_cast(const mp_graph *graph, int32_t value) {
    const int32_t n = mp_graph_maker(graph, value, "Cast");
    const int32_t x = n != MP_NO_NODE ? graph->nodes[n].in[0] : MP_NO_VALUE;
    const mp_dtype type = x != MP_NO_VALUE ? mp_graph_type(graph, x) : MP_NONE;
    return (type == MP_F16 || type == MP_BF16) &&
                   mp_node_int(&graph->nodes[n].node, "to", 0) == MP_F32
               ? x
               : MP_NO_VALUE;
}

static uint16_t to_half(mp_dtype type, float x) {
    return type == MP_F16 ? mp_to_f16(x) : mp_to_bf16(x);
}

static float from_half(mp_dtype type, uint16_t x) {
    return type == MP_F16 ? mp_from_f16(x) : mp_from_bf16(x);
}

/* Whether the constant has numbers of the half type only. */
static bool is_exact(const mp_graph *graph, int32_t value, mp_dtype type) {
    const mp_tensor *x = mp_graph_constant(graph, value);
    const int64_t count = x != NULL ? mp_shape_count(&x->shape) : 0;
    bool exact = count > 0 && count <= ELEMENTS_MOST && x->type == MP_F32 && x->data != 0;
    for (int64_t i = 0; exact && i < count; i++) {
        const float number = ((const float *)x->data)[i];
        exact = from_half(type, to_half(type, number)) == number;
    }
    return exact;
}

static bool fits_inputs(const mp_graph *graph, const mp_vertex *v, half_norm *out) {
    if (v->in_count <= out->rows || v->in_count > INPUTS_MAX || v->out_count > OUTS) {
        return false;
    }
    for (int i = 0; i < v->in_count; i++) {
        const int32_t x = i < out->rows ? before_cast(graph, v->in[i]) : MP_NO_VALUE;
        if (i < out->rows &&
            (x == MP_NO_VALUE || (i > 0 && mp_graph_type(graph, x) != out->type))) {
            return false;
        }
        out->type = i == 0 ? mp_graph_type(graph, x) : out->type;
        if (i >= out->rows && v->in[i] != MP_NO_VALUE && !is_exact(graph, v->in[i], out->type)) {
            return false;
        }
    }
    return true;
}

/* Whether the result, and the sum if one is wanted, is cast back and read by nobody else. */
static bool fits_outputs(const mp_graph *graph, int32_t n, half_norm *out) {
    const mp_vertex *v = &graph->nodes[n];
    for (int i = 0; i < OUTS; i++) {
        const int32_t value = mp_vertex_out(v, i);
        const bool read = value != MP_NO_VALUE && mp_graph_uses(graph, value) > 0;
        const int32_t cast = read ? mp_graph_reader(graph, value, "Cast") : MP_NO_NODE;
        out->casts[i] = cast;
        if (read &&
            (cast == MP_NO_NODE || (i != 0 && i != SUM) || !mp_graph_same_guard(graph, n, cast) ||
             mp_node_int(&graph->nodes[cast].node, "to", 0) != (int64_t)out->type)) {
            return false;
        }
    }
    return out->casts[0] != MP_NO_NODE;
}

static mp_status add_half(mp_graph *graph, int32_t value, mp_dtype type, int32_t *out) {
    const mp_tensor was = graph->values[value].tensor;
    const int64_t count = mp_shape_count(&was.shape);
    uint16_t *numbers = malloc((size_t)count * sizeof *numbers);
    if (numbers == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a norm's constants");
    }
    for (int64_t i = 0; i < count; i++) {
        numbers[i] = to_half(type, ((const float *)was.data)[i]);
    }
    const mp_tensor half = {.type = type, .shape = was.shape, .data = (mp_addr)numbers};
    const mp_status status = mp_graph_add_constant(graph, graph->values[value].name, &half, out);
    free(numbers);
    return status;
}

static mp_status rewrite(mp_graph *graph, int32_t n, const half_norm *h) {
    const mp_vertex was = graph->nodes[n];
    int32_t in[INPUTS_MAX], out[OUTS];
    int out_count = 0;
    for (int i = 0; i < was.in_count; i++) {
        in[i] = i < h->rows ? before_cast(graph, was.in[i]) : was.in[i];
        if (i >= h->rows && in[i] != MP_NO_VALUE) {
            MP_TRY(add_half(graph, was.in[i], h->type, &in[i]));
        }
    }
    for (int i = 0; i < OUTS; i++) {
        out[i] = h->casts[i] != MP_NO_NODE ? graph->nodes[h->casts[i]].out[0] : MP_NO_VALUE;
        out_count = out[i] != MP_NO_VALUE ? i + 1 : out_count;
    }
    for (int i = 0; i < OUTS; i++) {
        if (h->casts[i] != MP_NO_NODE) {
            mp_graph_remove_node(graph, h->casts[i]);
        }
    }
    MP_TRY(mp_graph_change_node(graph, n, &was.node, in, was.in_count, out, out_count));
    mp_graph_drop_inputs(graph, &was);
    return MP_OK;
}

mp_status mp_pass_half_norm(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        half_norm h = {.rows = rows_of(&graph->nodes[n])};
        if (h.rows > 0 && fits_inputs(graph, &graph->nodes[n], &h) && fits_outputs(graph, n, &h) &&
            mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, &h));
        }
    }
    return MP_OK;
}
