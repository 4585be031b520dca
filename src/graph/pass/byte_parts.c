/* byte_parts.c - see byte_parts.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/byte_parts.h"

#include "graph/look.h"

#include <math.h>

enum { SUM_MAX = 1 << 30 /* of what is added, so that sums do not wrap where they did not */ };
#define FLOAT_MAX 0x1p80 /* of what is a float also when it is divided by a scale */

bool mp_byte_wanted(const mp_graph *graph, const mp_rewrites *rewrites, int64_t channels) {
    const mp_device *device = graph->computer != NULL ? graph->computer->device : NULL;
    const bool is_gpu = device != NULL && device->info.kind == MP_DEVICE_CUDA;
    return is_gpu ? mp_byte_rows_fit(device, channels) : rewrites->forced;
}

/* ---- numbers ---- */

static double factor_of(const mp_byte_parts *parts, int64_t i) {
    return (double)parts->x.scale * (double)parts->w.scale[parts->w.scales > 1 ? i : 0];
}

/* A bias of integers of the sums, or NULL. */
static const mp_tensor *whole_bias(const mp_graph *graph, const mp_byte_parts *parts) {
    const mp_tensor *t = mp_graph_constant(graph, parts->bias);
    return t != NULL && t->data != 0 && t->type == MP_I32 &&
                   mp_shape_count(&t->shape) == parts->columns
               ? t
               : NULL;
}

static double bias_of(const mp_graph *graph, const mp_byte_parts *parts, int64_t i) {
    const mp_tensor *whole = whole_bias(graph, parts);
    if (whole != NULL) {
        return ((const int32_t *)whole->data)[i];
    }
    return parts->bias != MP_NO_VALUE
               ? mp_dequantized_row_at(graph, parts->bias, i) / factor_of(parts, i)
               : 0;
}

bool mp_byte_parts_fit(const mp_graph *graph, const mp_byte_parts *parts) {
    const int64_t k = mp_shape_count(&parts->w.tensor.shape) / parts->columns;
    if (k > MP_BYTE_K_MAX || (parts->bias != MP_NO_VALUE && whole_bias(graph, parts) == NULL &&
                              !mp_dequantized_row(graph, parts->bias, parts->columns))) {
        return false;
    }
    for (int64_t i = 0; i < parts->columns; i++) {
        const double factor = factor_of(parts, i), bias = bias_of(graph, parts, i);
        if (!(factor > 0) || !(factor < FLOAT_MAX) || !(fabs(bias) < SUM_MAX)) {
            return false;
        }
    }
    return true;
}

/* ---- constants ---- */

/* Rows become columns, in tiles that a cache holds. */
static void turn(const int8_t *from, int8_t *to, int64_t rows, int64_t columns) {
    enum { TILE = 64 };
    for (int64_t i = 0; i < rows; i += TILE) {
        for (int64_t j = 0; j < columns; j += TILE) {
            for (int64_t c = j; c < MP_MIN(j + TILE, columns); c++) {
                for (int64_t r = i; r < MP_MIN(i + TILE, rows); r++) {
                    to[c * rows + r] = from[r * columns + c];
                }
            }
        }
    }
}

mp_status mp_byte_turned(mp_graph *graph, const char *name, const mp_tensor *of, int moved,
                         int32_t *out) {
    const mp_tensor w = *of; /* it may be one of the graph's values, which move */
    const int rank = w.shape.rank;
    mp_tensor turned = {.type = MP_I8, .shape = w.shape};
    for (int d = moved; d < rank; d++) {
        turned.shape.dim[d] = w.shape.dim[d + 1 < rank ? d + 1 : moved];
    }
    MP_TRY(mp_graph_add_constant(graph, name, &turned, out));
    const int8_t *from = (const int8_t *)w.data;
    int8_t *to = (int8_t *)graph->values[*out].tensor.data;
    const int64_t rows = w.shape.dim[moved], columns = mp_shape_span(&w.shape, moved + 1, rank);
    for (int64_t i = 0; i < mp_shape_span(&w.shape, 0, moved); i++) {
        turn(from + i * rows * columns, to + i * rows * columns, rows, columns);
    }
    return MP_OK;
}

/* Of rows that are short enough for 32 bits. */
static int32_t sum_of(const int8_t *row, int64_t count) {
    int32_t sum = 0;
    for (int64_t k = 0; k < count; k++) {
        sum += row[k];
    }
    return sum;
}

static mp_status add_row(mp_graph *graph, mp_dtype type, int64_t count, int32_t *out) {
    const mp_tensor row = {.type = type, .shape = {.rank = 1, .dim = {count}}};
    return mp_graph_add_constant(graph, "", &row, out);
}

mp_status mp_byte_sums(mp_graph *graph, int32_t rows, int32_t *out) {
    const mp_tensor w = graph->values[rows].tensor;
    const int64_t count = w.shape.dim[0], k = mp_shape_count(&w.shape) / count;
    MP_TRY(add_row(graph, MP_I32, count, out));
    int32_t *sums = (int32_t *)graph->values[*out].tensor.data;
    for (int64_t i = 0; i < count; i++) {
        sums[i] = sum_of((const int8_t *)w.data + i * k, k);
    }
    return MP_OK;
}

mp_status mp_byte_constants(mp_graph *graph, const mp_byte_parts *parts,
                            const mp_byte_result *result, int moved, int32_t in[MP_ROWS_INPUTS]) {
    const mp_quantized *by = result->has_sum ? &result->between : &parts->to; /* at first */
    const int64_t columns = parts->columns, k = mp_shape_count(&parts->w.tensor.shape) / columns;
    const double share = by->type != MP_NONE ? 1.0 / (double)by->scale : 1.0;
    for (int i = 0; i < MP_ROWS_INPUTS; i++) {
        in[i] = MP_NO_VALUE;
    }
    MP_TRY(mp_byte_turned(graph, "", &parts->w.tensor, moved, &in[MP_ROWS_W]));
    MP_TRY(add_row(graph, MP_I32, columns, &in[MP_ROWS_ADD]));
    MP_TRY(add_row(graph, MP_F32, columns, &in[MP_ROWS_SCALE]));
    const int8_t *rows = (const int8_t *)graph->values[in[MP_ROWS_W]].tensor.data;
    int32_t *add = (int32_t *)graph->values[in[MP_ROWS_ADD]].tensor.data;
    float *scale = (float *)graph->values[in[MP_ROWS_SCALE]].tensor.data;
    for (int64_t i = 0; i < columns; i++) {
        const int64_t off = (int64_t)parts->x.zero * sum_of(rows + i * k, k);
        add[i] = (int32_t)(llrint(bias_of(graph, parts, i)) - off);
        scale[i] = (float)(factor_of(parts, i) * share);
    }
    return MP_OK;
}

bool mp_byte_row_fits(const mp_graph *graph, int32_t value, int64_t columns) {
    bool fits = mp_dequantized_row(graph, value, columns);
    for (int64_t i = 0; fits && i < columns; i++) {
        fits = fabs(mp_dequantized_row_at(graph, value, i)) < FLOAT_MAX;
    }
    return fits;
}

mp_status mp_byte_row(mp_graph *graph, int32_t value, int64_t columns, int32_t *out) {
    MP_TRY(add_row(graph, MP_F32, columns, out));
    float *row = (float *)graph->values[*out].tensor.data;
    for (int64_t i = 0; i < columns; i++) {
        row[i] = (float)mp_dequantized_row_at(graph, value, i);
    }
    return MP_OK;
}

mp_node mp_byte_node(const mp_vertex *v, const mp_attr *attrs, size_t count) {
    return (mp_node){.op = mp_op_find(MP_OWN_DOMAIN, "IntegerProduct", 1),
                     .version = 1,
                     .name = v->node.name,
                     .attrs = attrs,
                     .attr_count = count,
                     .options = v->node.options};
}

/* ---- results ---- */

static void take_out(mp_byte_result *out, int32_t n) {
    out->gone[out->gone_count++] = n;
}

void mp_byte_find_result(const mp_graph *graph, int32_t n, mp_byte_parts *parts,
                         mp_byte_result *out) {
    const int32_t relu = mp_graph_reader(graph, graph->nodes[n].out[0], "Relu");
    const int32_t value = graph->nodes[relu != MP_NO_NODE ? relu : n].out[0];
    const int32_t quantizer = mp_quantizer(graph, value, &parts->to);
    out->last = n;
    parts->low = INT32_MIN;
    if (quantizer == MP_NO_NODE) {
        parts->to.type = MP_NONE;
        return;
    }
    take_out(out, n);
    if (relu != MP_NO_NODE) {
        take_out(out, relu);
        parts->low = parts->to.zero;
    }
    out->last = quantizer;
}

void mp_byte_set_sum(mp_byte_parts *parts, const mp_quantized *to, int32_t low,
                     mp_byte_result *out) {
    const bool is_row = out->beside.type == MP_NONE;
    out->has_sum = true;
    out->between = parts->to;
    parts->to = *to;
    parts->low = low;
    out->sum[0] = out->between.scale;
    out->sum[1] = (float)out->between.zero;
    out->sum[2] = is_row ? 1 : out->beside.scale;
    out->sum[3] = is_row ? 0 : (float)out->beside.zero;
    out->sum[4] = to->scale;
}

void mp_byte_find_sum(const mp_graph *graph, mp_byte_takes_fn *takes, mp_byte_parts *parts,
                      mp_byte_result *out) {
    mp_byte_result behind = *out;
    mp_byte_parts sum = *parts;
    mp_quantized again;
    const bool may = parts->to.type != MP_NONE && parts->low == INT32_MIN;
    const int32_t back =
        may ? mp_graph_reader(graph, parts->to.value, "DequantizeLinear") : MP_NO_NODE;
    const int32_t value = back != MP_NO_NODE ? graph->nodes[back].out[0] : MP_NO_VALUE;
    const int32_t add = mp_graph_reader(graph, value, "Add");
    if (add == MP_NO_NODE || !mp_dequantized(graph, value, &again) ||
        !mp_quantized_alike(&again, &parts->to)) {
        return;
    }
    const mp_vertex *v = &graph->nodes[add];
    const int32_t other = v->in[v->in[0] == value ? 1 : 0];
    take_out(&behind, out->last);
    take_out(&behind, back);
    mp_byte_find_result(graph, add, &sum, &behind);
    if (sum.to.type == MP_NONE || !takes(graph, value, other, parts, &behind)) {
        return;
    }
    *out = behind;
    mp_byte_set_sum(parts, &sum.to, sum.low, out);
}

size_t mp_byte_attrs(const mp_byte_parts *parts, const mp_byte_result *result,
                     mp_attr attrs[MP_BYTE_ATTRS]) {
    const bool is_float = parts->to.type == MP_NONE;
    const mp_dtype to = is_float ? MP_F32 : parts->to.type;
    const int32_t zero = is_float ? 0 : parts->to.zero;
    size_t count = 0;
    attrs[count++] = (mp_attr){.name = "to", .kind = MP_ATTR_INT, .i = (int64_t)to};
    attrs[count++] = (mp_attr){.name = "zero", .kind = MP_ATTR_INT, .i = zero};
    if (parts->low != INT32_MIN) {
        attrs[count++] = (mp_attr){.name = "low", .kind = MP_ATTR_INT, .i = parts->low};
    }
    if (result->has_sum) {
        const int64_t between = (int64_t)result->between.type;
        attrs[count++] = (mp_attr){.name = "between", .kind = MP_ATTR_INT, .i = between};
        attrs[count++] = (mp_attr){.name = "sum",
                                   .kind = MP_ATTR_FLOATS,
                                   .floats = result->sum,
                                   .count = MP_COUNT_OF(result->sum)};
    }
    return count;
}

mp_status mp_byte_remove(mp_graph *graph, const mp_byte_result *result) {
    for (int i = 0; i < result->gone_count; i++) {
        mp_graph_remove_node(graph, result->gone[i]);
        MP_TRY(mp_graph_absorb(graph, result->last, result->gone[i]));
    }
    return MP_OK;
}
