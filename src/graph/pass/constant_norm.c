/* constant_norm.c - BatchNormalization by constants is a factor and a summand of each channel.
 *
 * They are computed now, in double, and kept in float at least. What becomes of it is element-wise,
 * so that a cluster takes it with what comes behind.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/constant_norm.h"

#include "graph/look.h"
#include "graph/pass.h"
#include "op/core/host_float.h"

#include <math.h>

enum { X, SCALE, BIAS, MEAN, VARIANCE, INPUTS, CHANNEL = 1 };

static bool is_row(const mp_graph *graph, int32_t value, int64_t length) {
    const mp_tensor *row = mp_graph_constant(graph, value);
    return row != NULL && row->data != 0 && row->shape.rank == 1 && row->shape.dim[0] == length &&
           (MP_BIT(row->type) & MP_FLOATS) != 0;
}

/* ---- which nodes ---- */

bool mp_is_constant_norm(const mp_graph *graph, const mp_vertex *v) {
    if (!mp_vertex_is(v, "BatchNormalization") || v->in_count != INPUTS || v->out_count != 1 ||
        (v->node.version >= 14 && mp_node_flag(&v->node, "training_mode", false)) ||
        mp_node_int(&v->node, "spatial", 1) == 0) {
        return false;
    }
    const int32_t scale = v->in[SCALE];
    const int rank = mp_graph_rank(graph, v->in[X]);
    const int64_t length = scale != MP_NO_VALUE && graph->values[scale].tensor.shape.rank == 1
                               ? graph->values[scale].tensor.shape.dim[0]
                               : 0;
    bool all = rank > CHANNEL && length > 0;
    for (int i = SCALE; i < INPUTS && all; i++) {
        all = is_row(graph, v->in[i], length);
    }
    const int64_t channels = all ? mp_graph_dim(graph, v->in[X], CHANNEL) : MP_DIM_UNKNOWN;
    return all && (channels < 0 || channels == length) && mp_graph_type(graph, v->in[X]) != MP_NONE;
}

/* ---- rewriting ---- */

void mp_constant_norm_at(const mp_graph *graph, const mp_vertex *v, int64_t i, double *factor,
                         double *summand) {
    const double epsilon = (double)mp_node_float(&v->node, "epsilon", 1e-5F);
    double in[INPUTS];
    for (int k = SCALE; k < INPUTS; k++) {
        in[k] = mp_host_float(&graph->values[v->in[k]].tensor, i);
    }
    *factor = in[SCALE] / sqrt(in[VARIANCE] + epsilon);
    *summand = in[BIAS] - in[MEAN] * *factor;
}

static void compute(const mp_graph *graph, const mp_vertex *v, int32_t factor, int32_t summand) {
    const mp_tensor *to = &graph->values[factor].tensor;
    for (int64_t i = 0; i < to->shape.dim[0]; i++) {
        double by = 0, plus = 0;
        mp_constant_norm_at(graph, v, i, &by, &plus);
        mp_host_float_put(to, i, by);
        mp_host_float_put(&graph->values[summand].tensor, i, plus);
    }
}

static mp_status rewrite(mp_graph *graph, int32_t n) {
    const mp_vertex v = graph->nodes[n];
    const int rank = mp_graph_rank(graph, v.in[X]);
    mp_tensor row = {.type = mp_graph_type(graph, v.in[X]) == MP_F64 ? MP_F64 : MP_F32,
                     .shape = {.rank = rank - CHANNEL}};
    int32_t in[] = {v.in[X], MP_NO_VALUE, MP_NO_VALUE};
    row.shape.dim[0] = graph->values[v.in[SCALE]].tensor.shape.dim[0];
    for (int d = 1; d < row.shape.rank; d++) {
        row.shape.dim[d] = 1;
    }
    MP_TRY(mp_graph_add_constant(graph, graph->values[v.in[SCALE]].name, &row, &in[1]));
    MP_TRY(mp_graph_add_constant(graph, graph->values[v.in[BIAS]].name, &row, &in[2]));
    compute(graph, &v, in[1], in[2]);
    const mp_node node = {.op = mp_op_find(MP_OWN_DOMAIN, "Affine", 1),
                          .version = 1,
                          .name = v.node.name,
                          .options = v.node.options};
    return mp_graph_change_node(graph, n, &node, in, 3, v.out, 1);
}

mp_status mp_pass_constant_norm(mp_graph *graph, mp_rewrites *rewrites) {
    for (int32_t n = 0; n < graph->node_count; n++) {
        if (mp_is_constant_norm(graph, &graph->nodes[n]) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n));
        }
    }
    return MP_OK;
}
