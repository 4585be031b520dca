/* attention_match.c - see attention_match.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass/attention_match.h"

#include "graph/pass/expand_sizes.h"

#include <math.h>
#include <string.h>

enum { STEPS_MAX = 16, REPEATED_RANK = 5 };

/* What takes the place of scores that are masked: so low that no score is near it. */
static const double masked_most = -1e4;

typedef mp_attention_match match;
typedef mp_attention_side side;

/* ---- numbers ---- */

/* One number, known when the graph is planned. */
static bool is_factor(const mp_graph *graph, int32_t value) {
    const mp_shape *shape = value != MP_NO_VALUE ? &graph->values[value].tensor.shape : NULL;
    if (shape == NULL || shape->rank < 0 || shape->rank > 1 ||
        (shape->rank == 1 && shape->dim[0] != 1)) {
        return false;
    }
    return mp_graph_is_planned(graph, value);
}

int mp_scaled_input(const mp_graph *graph, const mp_vertex *v) {
    const bool divides = mp_vertex_is(v, "Div");
    if (v->in_count != 2 || (!divides && !mp_vertex_is(v, "Mul"))) {
        return -1;
    }
    if (is_factor(graph, v->in[1])) {
        return 0;
    }
    return !divides && is_factor(graph, v->in[0]) ? 1 : -1;
}

static bool add_factor(match *m, const mp_vertex *v, int scaled) {
    if (m->factor_count == MP_FACTORS_MAX) {
        return false;
    }
    m->divided |= mp_vertex_is(v, "Div") ? 1u << m->factor_count : 0;
    m->factors[m->factor_count++] = v->in[1 - scaled];
    return true;
}

/* The numbers so far become a cap: what they multiply is a Tanh. */
static bool set_cap(const mp_graph *graph, match *m) {
    double cap = 1;
    for (int i = 0; i < m->factor_count; i++) {
        double number = 0;
        if (!mp_graph_number(graph, m->factors[i], &number)) {
            return false;
        }
        cap = (m->divided >> i & 1) != 0 ? cap / number : cap * number;
    }
    const bool fits = m->softcap == 0 && m->factor_count > 0 && cap > 0 && isfinite((float)cap);
    m->softcap = cap;
    return fits;
}

/* ---- from the Softmax up ---- */

static bool climb(const mp_graph *graph, int32_t value, int steps, match *m);

static bool add_mask(const mp_graph *graph, match *m, mp_mask_step step) {
    const int rank = mp_graph_rank(graph, step.value);
    if (m->mask_count == MP_MASKS_MAX || m->factor_count > 0 || m->softcap > 0 || rank < 0 ||
        rank > MP_SIDE_RANK) {
        return false;
    }
    m->masks[m->mask_count++] = step;
    m->rank = MP_MAX(rank, m->rank);
    return true;
}

static bool climb_add(const mp_graph *graph, int32_t n, int steps, match *m) {
    const mp_vertex *v = &graph->nodes[n];
    for (int i = 0; i < 2; i++) {
        match trial = *m;
        const mp_mask_step step = {.node = n, .value = v->in[1 - i], .fill = MP_NO_VALUE};
        if (add_mask(graph, &trial, step) && climb(graph, v->in[i], steps, &trial)) {
            *m = trial;
            return true;
        }
    }
    return false;
}

static bool climb_where(const mp_graph *graph, int32_t n, int steps, match *m) {
    const mp_vertex *v = &graph->nodes[n];
    for (int i = 1; i < 3; i++) {
        match trial = *m;
        double fill = 0;
        const mp_mask_step step = {
            .node = n, .value = v->in[0], .fill = v->in[3 - i], .inverted = i == 2};
        if (mp_graph_number(graph, step.fill, &fill) && fill <= masked_most &&
            mp_graph_rank(graph, step.fill) <= MP_SIDE_RANK && add_mask(graph, &trial, step) &&
            climb(graph, v->in[i], steps, &trial)) {
            *m = trial;
            return true;
        }
    }
    return false;
}

/* A wider type loses nothing where what is done here is done in float at least. */
static bool may_cast(const mp_graph *graph, const mp_vertex *v) {
    const int64_t to = mp_node_int(&v->node, "to", 0);
    return to == MP_F32 || to == MP_F16 || to == MP_BF16 ||
           (to == MP_F64 && mp_graph_type(graph, v->in[0]) == MP_F64);
}

/* From a value that is scores on their way to the product that they are of. */
static bool climb(const mp_graph *graph, int32_t value, int steps, match *m) {
    const int32_t n = mp_graph_maker(graph, value, NULL);
    if (n == MP_NO_NODE || steps == 0 || mp_graph_reader(graph, value, NULL) == MP_NO_NODE) {
        return false;
    }
    const mp_vertex *v = &graph->nodes[n];
    const int scaled = mp_scaled_input(graph, v);
    if (mp_vertex_is(v, "MatMul")) {
        m->scores = n;
        return true;
    }
    if (mp_vertex_is(v, "Cast")) {
        m->cast = true;
        return may_cast(graph, v) && climb(graph, v->in[0], steps - 1, m);
    }
    if (scaled >= 0) {
        return add_factor(m, v, scaled) && climb(graph, v->in[scaled], steps - 1, m);
    }
    if (mp_vertex_is(v, "Tanh")) {
        return set_cap(graph, m) && climb(graph, v->in[0], steps - 1, m);
    }
    if (mp_vertex_is(v, "Add")) {
        return climb_add(graph, n, steps - 1, m);
    }
    return mp_vertex_is(v, "Where") && climb_where(graph, n, steps - 1, m);
}

/* ---- from the Softmax down ---- */

static bool keeps_all(const mp_graph *graph, const mp_vertex *v) {
    const int32_t training = mp_vertex_in(v, 2);
    return mp_vertex_is(v, "Dropout") && mp_vertex_out(v, 1) == MP_NO_VALUE &&
           (training == MP_NO_VALUE ||
            (graph->values[training].is_constant && graph->values[training].tensor.data != 0 &&
             *(const uint8_t *)graph->values[training].tensor.data == 0));
}

/* What becomes of weights that are 0 where they were no numbers: a row that sees no key. */
static int32_t without_nan(const mp_graph *graph, int32_t value) {
    const mp_vertex *nodes = graph->nodes;
    const int32_t count = nodes != NULL && mp_graph_uses(graph, value) == 2 ? graph->node_count : 0;
    for (int32_t n = 0; n < count; n++) {
        const mp_vertex *v = &nodes[n];
        const int32_t where = mp_vertex_is(v, "Where") ? v->in[0] : MP_NO_VALUE;
        const int32_t test = mp_graph_maker(graph, where, "IsNaN");
        double zero = 1;
        if (test != MP_NO_NODE && graph->nodes[test].in[0] == value && v->in[2] == value &&
            mp_graph_number(graph, v->in[1], &zero) && zero == 0 &&
            mp_graph_same_guard(graph, test, graph->values[value].producer) &&
            mp_graph_reader(graph, where, "Where") == n) {
            return v->out[0];
        }
    }
    return MP_NO_VALUE;
}

static bool descend(const mp_graph *graph, int32_t value, match *m) {
    for (int steps = STEPS_MAX; steps > 0; steps--) {
        const int32_t n = mp_graph_reader(graph, value, NULL);
        const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
        if (v == NULL) {
            value = without_nan(graph, value);
            if (value == MP_NO_VALUE) {
                return false;
            }
        } else if (mp_vertex_is(v, "Cast")) {
            m->cast = true;
            value = v->out[0];
        } else if (keeps_all(graph, v)) {
            value = v->out[0];
        } else {
            m->product = n;
            return mp_vertex_is(v, "MatMul") && v->in[0] == value;
        }
    }
    return false;
}

/* ---- Q, K and V ---- */

static bool begin_side(const mp_graph *graph, int32_t value, bool turned, side *out) {
    *out = (side){.value = value, .rank = mp_graph_rank(graph, value)};
    if (out->rank < 2 || out->rank > MP_WIDE_RANK) {
        return false;
    }
    for (int d = 0; d < out->rank; d++) {
        out->perm[d] = d;
    }
    if (turned) {
        out->perm[out->rank - 1] = out->rank - 2;
        out->perm[out->rank - 2] = out->rank - 1;
    }
    return true;
}

/* Reads what a Transpose reads, unless elements of a head were neighbours and would not be. */
static bool peel_transpose(const mp_vertex *v, side *x) {
    const mp_attr *perm = mp_vertex_perm(v);
    const int last = x->rank - 1;
    if (perm == NULL || perm->count != (size_t)x->rank ||
        (x->perm[last] == last && perm->ints[last] != last)) {
        return false;
    }
    for (int d = 0; d < x->rank; d++) {
        x->perm[d] = perm->ints[x->perm[d]];
    }
    x->value = v->in[0];
    return true;
}

/* The last two dimensions swapped by way of three: a Reshape to [-1, rows, size], a Transpose, and
 * a Reshape back to four. */
static bool peel_swap(const mp_graph *graph, side *x) {
    static const int64_t swapped[] = {0, 2, 1};
    const int32_t back = mp_graph_maker(graph, x->value, "Reshape");
    const int32_t turn = back != MP_NO_NODE
                             ? mp_graph_maker(graph, graph->nodes[back].in[0], "Transpose")
                             : MP_NO_NODE;
    const int32_t flat = turn != MP_NO_NODE
                             ? mp_graph_maker(graph, graph->nodes[turn].in[0], "Reshape")
                             : MP_NO_NODE;
    if (flat == MP_NO_NODE || x->rank != 4 || !mp_graph_turns(graph, turn, swapped, 3)) {
        return false;
    }
    const int32_t given = graph->nodes[flat].in[0];
    const int32_t there = graph->nodes[flat].in[1], here = graph->nodes[back].in[1];
    if (mp_graph_rank(graph, given) != 4 || !mp_graph_entry_is(graph, there, 1, given, 2) ||
        !mp_graph_entry_is(graph, there, 2, given, 3) ||
        !mp_graph_entry_is(graph, here, 2, given, 3) ||
        !mp_graph_entry_is(graph, here, 3, given, 2) ||
        !(mp_graph_entry_is(graph, here, 0, given, 0) ||
          mp_graph_entry_is(graph, here, 1, given, 1))) {
        return false;
    }
    for (int d = 0; d < x->rank; d++) {
        x->perm[d] = x->perm[d] == 2 ? 3 : x->perm[d] == 3 ? 2 : x->perm[d];
    }
    x->value = given;
    return true;
}

/* Reads halves that become floats for scores: products of halves are exact in float. */
static bool peel_cast(const mp_graph *graph, const mp_vertex *v, side *x, const match *m) {
    if (!m->exact || !mp_vertex_is(v, "Cast") || mp_node_int(&v->node, "to", 0) != MP_F32 ||
        mp_graph_type(graph, v->in[0]) != mp_graph_type(graph, m->v.value)) {
        return false;
    }
    x->value = v->in[0];
    return true;
}

/* Reads what transpositions and, of Q and K, numbers are applied to. */
static void peel(const mp_graph *graph, side *x, match *factors) {
    for (int steps = STEPS_MAX; steps > 0; steps--) {
        const int32_t n = mp_graph_maker(graph, x->value, NULL);
        const mp_vertex *v = n != MP_NO_NODE ? &graph->nodes[n] : NULL;
        const int scaled = v != NULL && factors != NULL ? mp_scaled_input(graph, v) : -1;
        if (v == NULL) {
            return;
        }
        if (scaled >= 0 && mp_graph_rank(graph, v->in[scaled]) == x->rank &&
            add_factor(factors, v, scaled)) {
            x->value = v->in[scaled];
        } else if (!peel_transpose(v, x) && !peel_swap(graph, x) &&
                   !(factors != NULL && peel_cast(graph, v, x, factors))) {
            return;
        }
    }
}

/* Whether dimensions other than the heads are as they were: what is left are the heads, repeated.
 */
static bool keeps_others(const mp_graph *graph, int32_t sizes, int32_t shape, int32_t given) {
    static const int after[] = {0, 2, 3}, wide[] = {0, 3, 4};
    for (size_t i = 0; i < MP_COUNT_OF(after); i++) {
        const int d = after[i];
        if (!mp_graph_entry_is(graph, shape, d, given, d) ||
            !(mp_graph_entry_dim(graph, sizes, wide[i]) == 1 ||
              mp_graph_entry_is(graph, sizes, wide[i], given, d))) {
            return false;
        }
    }
    return mp_graph_entry_dim(graph, sizes, 1) == 1 || mp_graph_entry_is(graph, sizes, 1, given, 1);
}

/* How often each head of `given` is there in the result of node `r`, a Reshape of what node `e`, an
 * Expand, makes; 0 where that is not known. */
static int64_t repeats_of(const mp_graph *graph, int32_t given, int32_t e, int32_t r) {
    const int32_t sizes = mp_expand_sizes(graph, graph->nodes[e].in[1], REPEATED_RANK);
    const int32_t shape = graph->nodes[r].in[1];
    const int64_t few = mp_graph_dim(graph, given, 1);
    const int64_t entry = mp_graph_entry_dim(graph, shape, 1);
    const int64_t many = entry > 0 ? entry : mp_graph_dim(graph, graph->nodes[r].out[0], 1);
    const int64_t asked = mp_graph_entry_dim(graph, sizes, 2);
    const int64_t known = asked > 0 ? asked : mp_graph_dim(graph, graph->nodes[e].out[0], 2);
    const int64_t size = mp_graph_entry_dim(graph, shape, 3);
    const int64_t size_given = mp_graph_dim(graph, given, 3);
    if (few <= 0 || many <= 0) {
        return known > 0 && keeps_others(graph, sizes, shape, given) ? known : 0;
    }
    return many % few == 0 && (known <= 0 || known == many / few) &&
                   (size <= 0 || size_given <= 0 || size == size_given)
               ? many / few
               : 0;
}

/* [batch, heads, rows, size] made of fewer heads, each repeated: Unsqueeze, Expand, Reshape. */
static bool peel_repeat(const mp_graph *graph, side *x, int64_t *times) {
    const int32_t r = mp_graph_maker(graph, x->value, "Reshape");
    const int32_t e =
        r != MP_NO_NODE ? mp_graph_maker(graph, graph->nodes[r].in[0], "Expand") : MP_NO_NODE;
    const int32_t u =
        e != MP_NO_NODE ? mp_graph_maker(graph, graph->nodes[e].in[0], "Unsqueeze") : MP_NO_NODE;
    int64_t axes[MP_RANK_MAX];
    int count = 0;
    if (u == MP_NO_NODE || x->rank != 4 || x->perm[0] != 0 || x->perm[1] != 1 ||
        !mp_graph_ints(graph, &graph->nodes[u], "axes", 1, axes, &count) || count != 1 ||
        axes[0] != 2 || mp_graph_rank(graph, graph->nodes[u].in[0]) != 4) {
        return false;
    }
    const int32_t given = graph->nodes[u].in[0];
    *times = repeats_of(graph, given, e, r);
    x->value = given;
    return *times > 0;
}

static void peel_sides(const mp_graph *graph, match *m) {
    peel(graph, &m->q, m);
    peel(graph, &m->k, m);
    peel(graph, &m->v, NULL);
    side k = m->k, v = m->v;
    int64_t of_k = 0, of_v = 0;
    if (peel_repeat(graph, &k, &of_k) && peel_repeat(graph, &v, &of_v) && of_k == of_v) {
        m->grouped = true;
        m->k = k;
        m->v = v;
        peel(graph, &m->k, m);
        peel(graph, &m->v, NULL);
    }
}

/* ---- masks that change nothing ---- */

enum { IDLE_BYTES_MAX = 64 << 20 };

static bool has_only(const mp_tensor *t, unsigned char byte) {
    const unsigned char *bytes = (const unsigned char *)t->data;
    size_t size = 0;
    if (bytes == NULL || mp_shape_bytes(&t->shape, t->type, &size) != MP_OK ||
        size > IDLE_BYTES_MAX) {
        return false;
    }
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != byte) {
            return false;
        }
    }
    return true;
}

/* Whether it adds zeros, or takes nothing away, and scores have no more elements by it. */
static bool is_idle(const mp_graph *graph, int32_t scores, const mp_mask_step *step) {
    const mp_tensor *mask = mp_graph_constant(graph, step->value);
    if (mask == NULL) {
        return false;
    }
    for (int d = 1; d <= mask->shape.rank; d++) {
        const int64_t dim = mask->shape.dim[mask->shape.rank - d];
        if (dim != 1 && dim != mp_graph_dim(graph, scores, -d)) {
            return false;
        }
    }
    const bool adds = step->fill == MP_NO_VALUE;
    return mask->shape.rank <= mp_graph_rank(graph, scores) &&
           has_only(mask, adds || step->inverted ? 0 : 1);
}

static void drop_idle_masks(const mp_graph *graph, match *m) {
    const int32_t scores = graph->nodes[m->scores].out[0];
    int kept = 0;
    for (int i = 0; i < m->mask_count; i++) {
        if (!is_idle(graph, scores, &m->masks[i])) {
            m->masks[kept++] = m->masks[i];
        }
    }
    m->mask_count = kept;
}

/* ---- all ---- */

static bool is_along_keys(const mp_graph *graph, const mp_vertex *softmax) {
    const int64_t axis = mp_node_int(&softmax->node, "axis", softmax->node.version < 13 ? 1 : -1);
    const int rank = mp_graph_rank(graph, softmax->in[0]);
    return rank >= 2 && rank <= MP_WIDE_RANK && (axis == -1 || axis == rank - 1);
}

enum { EXACT_SIZE_MAX = 256 }; /* of a head; scores of longer ones are rounded to its type */

static bool is_exact_size(const mp_graph *graph, const side *x) {
    const int64_t size = mp_graph_dim(graph, x->value, (int)x->perm[x->rank - 1]);
    return size > 0 && size <= EXACT_SIZE_MAX;
}

/* Whether types are such that one operator can do it, before and after casts of Q and K are looked
 * through. */
static bool fit_types(const mp_graph *graph, match *m) {
    const mp_dtype q = mp_graph_type(graph, m->q.value), k = mp_graph_type(graph, m->k.value),
                   v = mp_graph_type(graph, m->v.value);
    m->exact = q == MP_F32 && k == MP_F32 && (v == MP_F16 || v == MP_BF16);
    return m->exact || (!m->cast && m->softcap == 0) || (q != MP_NONE && q != MP_F64 && q == v);
}

static bool fit_peeled(const mp_graph *graph, const match *m) {
    const mp_dtype v = mp_graph_type(graph, m->v.value);
    return !m->exact ||
           (mp_graph_type(graph, m->q.value) == v && mp_graph_type(graph, m->k.value) == v &&
            is_exact_size(graph, &m->q) && is_exact_size(graph, &m->v));
}

bool mp_attention_find(const mp_graph *graph, int32_t n, mp_attention_match *out) {
    const mp_vertex *softmax = &graph->nodes[n];
    *out = (match){.softmax = n};
    if (!is_along_keys(graph, softmax) || !climb(graph, softmax->in[0], STEPS_MAX, out) ||
        !descend(graph, softmax->out[0], out) || (out->cast && out->mask_count > 1)) {
        return false;
    }
    const mp_vertex *scores = &graph->nodes[out->scores];
    if (!begin_side(graph, scores->in[0], false, &out->q) ||
        !begin_side(graph, scores->in[1], true, &out->k) ||
        !begin_side(graph, graph->nodes[out->product].in[1], false, &out->v)) {
        return false;
    }
    if (!fit_types(graph, out)) {
        return false;
    }
    const int ranks[] = {out->q.rank, out->k.rank, out->v.rank};
    for (size_t i = 0; i < MP_COUNT_OF(ranks); i++) {
        out->rank = MP_MAX(ranks[i], out->rank);
    }
    peel_sides(graph, out);
    drop_idle_masks(graph, out);
    return fit_peeled(graph, out);
}
