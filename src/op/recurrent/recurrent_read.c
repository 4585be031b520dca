/* recurrent_read.c - reads attributes, shapes and layouts of recurrent networks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/recurrent/recurrent_read.h"

#include <string.h>
#include <strings.h>

/* ---- activations ---- */

typedef struct activation {
    const char *name;
    k_activation kind;
    bool has_alpha, has_beta;
    float alpha, beta; /* where the node gives none */
} activation;

static const activation activations[] = {
    {"Sigmoid", K_ACT_SIGMOID, false, false, 0, 0},
    {"Tanh", K_ACT_TANH, false, false, 0, 0},
    {"Relu", K_ACT_RELU, false, false, 0, 0},
    {"Affine", K_ACT_AFFINE, true, true, 1, 0},
    {"LeakyRelu", K_ACT_LEAKY_RELU, true, false, 0.01F, 0},
    {"ThresholdedRelu", K_ACT_THRESHOLDED_RELU, true, false, 1, 0},
    {"ScaledTanh", K_ACT_SCALED_TANH, true, true, 1, 1},
    {"HardSigmoid", K_ACT_HARD_SIGMOID, true, true, 0.2F, 0.5F},
    {"Elu", K_ACT_ELU, true, false, 1, 0},
    {"Softsign", K_ACT_SOFTSIGN, false, false, 0, 0},
    {"Softplus", K_ACT_SOFTPLUS, false, false, 0, 0},
};

/* Those that a direction has where the node names none. */
static const char *default_name(k_cell_kind kind, int i) {
    return kind != K_CELL_RNN && i == 0 ? "Sigmoid" : "Tanh";
}

static int activation_count(k_cell_kind kind) {
    return kind == K_CELL_LSTM ? 3 : kind == K_CELL_GRU ? 2 : 1;
}

/* The next value of a list, which goes to the next function that takes one. */
static float next_value(const mp_attr *list, size_t *at, float fallback) {
    return list != NULL && *at < list->count ? list->floats[(*at)++] : fallback;
}

static mp_status read_activations(const mp_planner *p, k_cell *cell) {
    const mp_attr *names = mp_node_attr(p->node, "activations");
    const mp_attr *alphas = mp_node_attr(p->node, "activation_alpha");
    const mp_attr *betas = mp_node_attr(p->node, "activation_beta");
    const int each = activation_count((k_cell_kind)cell->kind);
    const int count = each * cell->directions;
    const char *name = names != NULL ? names->s : NULL;
    size_t alpha = 0;
    size_t beta = 0;
    /* More than needed are allowed: RNN's own default is for two directions. */
    if (names != NULL && names->count < (size_t)count) {
        return MP_FAIL(INVALID_ARGUMENT, "activations has %zu names; %d are needed", names->count,
                       count);
    }
    for (int i = 0; i < count; i++) {
        const char *wanted = name != NULL ? name : default_name((k_cell_kind)cell->kind, i % each);
        const activation *found = NULL;
        for (size_t a = 0; a < MP_COUNT_OF(activations) && found == NULL; a++) {
            found = strcasecmp(activations[a].name, wanted) == 0 ? &activations[a] : NULL;
        }
        if (found == NULL) {
            return MP_FAIL(INVALID_ARGUMENT, "activations names '%s', which is not known", wanted);
        }
        cell->act[i / each][i % each] = (k_activation_of){
            .kind = (int32_t)found->kind,
            .alpha = found->has_alpha ? next_value(alphas, &alpha, found->alpha) : 0,
            .beta = found->has_beta ? next_value(betas, &beta, found->beta) : 0};
        name = name != NULL ? name + strlen(name) + 1 : NULL;
    }
    return MP_OK;
}

static mp_status read_direction(const mp_planner *p, k_cell *cell) {
    const char *direction = mp_node_string(p->node, "direction", "forward");
    cell->directions = strcmp(direction, "bidirectional") == 0 ? 2 : 1;
    cell->reverse = strcmp(direction, "reverse") == 0;
    return cell->directions == 2 || cell->reverse || strcmp(direction, "forward") == 0
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT,
                         "direction is '%s'; forward, reverse and bidirectional are possible",
                         direction);
}

/* ---- shapes ---- */

mp_status mp_recurrent_input_check(const mp_planner *p, int i, const char *name, int rank,
                                   const int64_t *dims) {
    const mp_tensor *tensor = mp_plan_in(p, i);
    mp_shape want = {.rank = rank};
    memcpy(want.dim, dims, (size_t)rank * sizeof *dims);
    if (tensor == NULL || mp_shape_equal(&tensor->shape, &want)) {
        return MP_OK;
    }
    char given[MP_SHAPE_TEXT];
    char needed[MP_SHAPE_TEXT];
    return MP_FAIL(INVALID_ARGUMENT, "%s is of shape %s; %s is needed", name,
                   mp_shape_text(&tensor->shape, given), mp_shape_text(&want, needed));
}

static mp_status check_inputs(const mp_planner *p, const k_cell *c, bool batch_first) {
    const int64_t gates = c->kind;
    const int64_t state[3] = {batch_first ? c->batch : c->directions,
                              batch_first ? c->directions : c->batch, c->hidden};
    MP_TRY(mp_recurrent_input_check(p, MP_RNN_B, "B", 2,
                                    (const int64_t[]){c->directions, 2 * gates * c->hidden}));
    MP_TRY(mp_recurrent_input_check(p, MP_RNN_LENGTHS, "sequence_lens", 1,
                                    (const int64_t[]){c->batch}));
    MP_TRY(mp_recurrent_input_check(p, MP_RNN_H, "initial_h", 3, state));
    if (gates != K_CELL_LSTM) {
        return MP_OK;
    }
    MP_TRY(mp_recurrent_input_check(p, MP_RNN_C, "initial_c", 3, state));
    return mp_recurrent_input_check(p, MP_RNN_P, "P", 2,
                                    (const int64_t[]){c->directions, 3 * c->hidden});
}

/* Sizes and strides of both layouts, and the outputs. */
static mp_status read_layout(mp_planner *p, mp_recurrent *r) {
    k_cell *c = &r->cell;
    const mp_shape *x = &p->in[MP_RNN_X].shape;
    const bool batch_first = mp_node_int(p->node, "layout", 0) != 0;
    if (x->rank != 3) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT, "X is of shape %s; three dimensions are needed",
                       mp_shape_text(x, text));
    }
    c->steps = x->dim[batch_first ? 1 : 0];
    c->batch = x->dim[batch_first ? 0 : 1];
    r->input = x->dim[2];
    const int64_t wide = c->directions * c->hidden;
    c->x_step = batch_first ? 1 : c->batch;
    c->x_batch = batch_first ? c->steps : 1;
    c->y_step = batch_first ? wide : c->batch * wide;
    c->y_direction = batch_first ? c->hidden : c->batch * c->hidden;
    c->y_batch = batch_first ? c->steps * wide : c->hidden;
    c->s_direction = batch_first ? c->hidden : c->batch * c->hidden;
    c->s_batch = batch_first ? wide : c->hidden;
    MP_TRY(check_inputs(p, c, batch_first));
    const mp_shape y = {.rank = 4,
                        .dim = {batch_first ? c->batch : c->steps,
                                batch_first ? c->steps : c->directions,
                                batch_first ? c->directions : c->batch, c->hidden}};
    const mp_shape state = {.rank = 3,
                            .dim = {batch_first ? c->batch : c->directions,
                                    batch_first ? c->directions : c->batch, c->hidden}};
    MP_TRY(mp_plan_output(p, MP_RNN_Y, r->type, &y));
    MP_TRY(mp_plan_output(p, MP_RNN_Y_H, r->type, &state));
    return c->kind == K_CELL_LSTM ? mp_plan_output(p, MP_RNN_Y_C, r->type, &state) : MP_OK;
}

/* RNN takes a negative number for no clip at all, as ONNX Runtime's CPU provider does. */
static mp_status check_clip(k_cell_kind kind, const mp_attr *clip) {
    return clip == NULL || kind == K_CELL_RNN || clip->f > 0
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT,
                         "clip is %g; it must be above 0, or left out where nothing is clipped",
                         (double)clip->f);
}

mp_status mp_recurrent_read(mp_planner *p, k_cell_kind kind, mp_recurrent *out) {
    const mp_attr *clip = mp_node_attr(p->node, "clip");
    const int64_t hidden = mp_node_int(p->node, "hidden_size", 0);
    *out = (mp_recurrent){
        .type = p->in[MP_RNN_X].type,
        .cell = {.kind = (int32_t)kind,
                 .hidden = hidden,
                 .linear_before_reset = mp_node_int(p->node, "linear_before_reset", 0) != 0,
                 .input_forget = mp_node_int(p->node, "input_forget", 0) != 0,
                 .clipped = clip != NULL && clip->f >= 0,
                 .clip = clip != NULL ? clip->f : 0}};
    if (hidden < 1 || hidden > INT32_MAX / 16) {
        return MP_FAIL(INVALID_ARGUMENT, "hidden_size is %lld; it must be at least 1",
                       (long long)hidden);
    }
    MP_TRY(check_clip(kind, clip));
    MP_TRY(read_direction(p, &out->cell));
    MP_TRY(read_activations(p, &out->cell));
    return read_layout(p, out);
}
