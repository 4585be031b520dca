/* einsum_product.c - a product that is written as an Einsum becomes a MatMul of transposed
 * matrices, as other passes look for it:
 *
 *     Einsum (a, b) "bhid,bhjd->bhij"      becomes      MatMul (a, Transpose (b))
 *
 * Only where each side has one dimension of its own, beside the one that is summed over and those
 * that both have.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/look.h"
#include "graph/pass.h"
#include "graph/pass/add_view.h"

#include <string.h>

enum { LEFT, RIGHT, RESULT, TERMS };

/* A letter for each dimension. */
typedef struct term {
    char of[MP_RANK_MAX + 1];
} term;

/* ---- the equation ---- */

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Of a term up to `end`; false where a letter is repeated, or there is anything else but letters
 * and spaces. */
static bool read_term(const char **text, const char *end, term *out) {
    int count = 0;
    for (; *text < end; (*text)++) {
        if (**text == ' ') {
            continue;
        }
        out->of[count] = '\0';
        if (count == MP_RANK_MAX || !is_letter(**text) || strchr(out->of, **text) != NULL) {
            return false;
        }
        out->of[count++] = **text;
    }
    out->of[count] = '\0';
    return true;
}

static bool read_equation(const char *text, term terms[TERMS]) {
    const char *comma = text != NULL ? strchr(text, ',') : NULL;
    const char *arrow = comma != NULL ? strstr(comma, "->") : NULL;
    if (arrow == NULL || !read_term(&text, comma, &terms[LEFT])) {
        return false;
    }
    text = comma + 1;
    if (!read_term(&text, arrow, &terms[RIGHT])) {
        return false;
    }
    text = arrow + 2;
    return read_term(&text, text + strlen(text), &terms[RESULT]);
}

/* Both sides and the result in the order that MatMul has: what both have, then rows or columns and
 * the dimension that is summed over. */
static bool order(const term given[TERMS], term ordered[TERMS]) {
    char row = '\0', column = '\0', summed = '\0';
    int both = 0, summed_count = 0;
    for (const char *c = given[RESULT].of; *c != '\0'; c++) {
        const bool left = strchr(given[LEFT].of, *c) != NULL;
        const bool right = strchr(given[RIGHT].of, *c) != NULL;
        char *own = left ? &row : &column;
        if (left && right) {
            ordered[LEFT].of[both] = ordered[RIGHT].of[both] = ordered[RESULT].of[both] = *c;
            both++;
        } else if ((!left && !right) || *own != '\0') {
            return false;
        } else {
            *own = *c;
        }
    }
    for (const char *c = given[LEFT].of; *c != '\0'; c++) {
        if (strchr(given[RESULT].of, *c) == NULL) {
            summed = *c;
            summed_count++;
        }
    }
    const size_t length = (size_t)both + 2;
    if (row == '\0' || column == '\0' || summed_count != 1 || length > MP_RANK_MAX ||
        strchr(given[RIGHT].of, summed) == NULL || strlen(given[LEFT].of) != length ||
        strlen(given[RIGHT].of) != length) {
        return false;
    }
    const char ends[TERMS][2] = {{row, summed}, {summed, column}, {row, column}};
    for (int i = 0; i < TERMS; i++) {
        memcpy(ordered[i].of + both, ends[i], 2);
        ordered[i].of[length] = '\0';
    }
    return true;
}

/* Whether the dimension that is summed over is known to be as long on both sides: an Einsum may
 * have one of 1 stand for any length, as MatMul has it of the others alone. */
static bool is_as_long(const mp_graph *graph, const mp_vertex *v, const term given[TERMS],
                       const term ordered[TERMS]) {
    const char summed = ordered[LEFT].of[strlen(ordered[LEFT].of) - 1];
    const int left = (int)(strchr(given[LEFT].of, summed) - given[LEFT].of);
    const int right = (int)(strchr(given[RIGHT].of, summed) - given[RIGHT].of);
    return mp_graph_same_dim(graph, v->in[LEFT], left, v->in[RIGHT], right);
}

/* ---- nodes ---- */

static mp_node node_of(const mp_vertex *like, const char *op, const mp_attr *attrs, size_t count) {
    return (mp_node){.op = mp_op_find("", op, 13),
                     .version = 13,
                     .name = like->node.name,
                     .attrs = attrs,
                     .attr_count = count,
                     .options = like->node.options};
}

/* Dimensions of `from` in the order of `to`. */
static bool is_in_order(const term *from, const term *to, int64_t *perm, mp_attr *attr) {
    *attr = (mp_attr){.name = "perm", .kind = MP_ATTR_INTS, .ints = perm, .count = strlen(to->of)};
    bool same = true;
    for (size_t i = 0; i < attr->count; i++) {
        perm[i] = strchr(from->of, to->of[i]) - from->of;
        same = same && perm[i] == (int64_t)i;
    }
    return same;
}

static mp_status add_value(mp_graph *graph, int32_t like, int32_t *out) {
    mp_tensor tensor = {.type = mp_graph_type(graph, like)};
    tensor.shape.rank = mp_graph_rank(graph, like);
    for (int d = 0; d < tensor.shape.rank; d++) {
        tensor.shape.dim[d] = MP_DIM_UNKNOWN;
    }
    return mp_graph_add_value(graph, graph->values[like].name, &tensor, out);
}

static mp_status rewrite(mp_graph *graph, int32_t n, const term given[TERMS],
                         const term ordered[TERMS]) {
    const mp_vertex v = graph->nodes[n];
    int64_t perm[MP_RANK_MAX];
    mp_attr attr;
    int32_t in[] = {v.in[LEFT], v.in[RIGHT]};
    int32_t made = v.out[0];
    for (int i = 0; i < RESULT; i++) {
        if (!is_in_order(&given[i], &ordered[i], perm, &attr)) {
            const mp_node turn = node_of(&v, "Transpose", &attr, 1);
            MP_TRY(add_value(graph, v.in[i], &in[i]));
            MP_TRY(mp_graph_add_beside(graph, n, &turn, &v.in[i], 1, in[i]));
        }
    }
    const mp_node product = node_of(&v, "MatMul", NULL, 0);
    if (is_in_order(&ordered[RESULT], &given[RESULT], perm, &attr)) {
        return mp_graph_change_node(graph, n, &product, in, 2, &made, 1);
    }
    const mp_node turn = node_of(&v, "Transpose", &attr, 1);
    MP_TRY(add_value(graph, v.out[0], &made));
    MP_TRY(mp_graph_add_beside(graph, n, &product, in, 2, made));
    return mp_graph_change_node(graph, n, &turn, &made, 1, v.out, 1);
}

/* ---- all ---- */

static bool is_float(mp_dtype type) {
    return type != MP_NONE && (MP_FLOATS & MP_BIT(type)) != 0;
}

static bool find(const mp_graph *graph, const mp_vertex *v, term given[TERMS],
                 term ordered[TERMS]) {
    return mp_vertex_is(v, "Einsum") && v->in_count == 2 &&
           is_float(mp_graph_type(graph, v->in[LEFT])) &&
           read_equation(mp_node_string(&v->node, "equation", NULL), given) &&
           order(given, ordered) &&
           mp_graph_rank(graph, v->in[LEFT]) == (int)strlen(given[LEFT].of) &&
           mp_graph_rank(graph, v->in[RIGHT]) == (int)strlen(given[RIGHT].of) &&
           is_as_long(graph, v, given, ordered);
}

mp_status mp_pass_einsum_product(mp_graph *graph, mp_rewrites *rewrites) {
    const int32_t count = graph->node_count;
    for (int32_t n = 0; n < count; n++) {
        term given[TERMS], ordered[TERMS];
        if (find(graph, &graph->nodes[n], given, ordered) && mp_rewrite_allowed(rewrites)) {
            MP_TRY(rewrite(graph, n, given, ordered));
        }
    }
    return mp_graph_tidy(graph, graph->node_count != count);
}
