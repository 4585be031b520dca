/* activation_steps.c - see activation_steps.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/pointwise/activation_steps.h"

#include "op/pointwise/pointwise_steps.h"

#include <float.h>
#include <string.h>

typedef struct row {
    const char *name, *word;
    mp_activation kind;
    size_t params;
    float a, b;
} row;

static const row rows[] = {
    {"Relu", "relu", MP_ACTIVATION_RELU, 0, 0, 0},
    {"Sigmoid", "sigmoid", MP_ACTIVATION_SIGMOID, 0, 0, 0},
    {"Tanh", "tanh", MP_ACTIVATION_TANH, 0, 0, 0},
    {"LeakyRelu", "leaky_relu", MP_ACTIVATION_LEAKY_RELU, 1, 0.01F, 0},
    {"Clip", "clip", MP_ACTIVATION_CLIP, 2, -FLT_MAX, FLT_MAX},
    {"HardSigmoid", "hard_sigmoid", MP_ACTIVATION_HARD_SIGMOID, 2, 0.2F, 0.5F},
    {"Elu", "elu", MP_ACTIVATION_OTHER, 1, 1, 0},
    {"Softplus", "softplus", MP_ACTIVATION_OTHER, 0, 0, 0},
    {"Softsign", "softsign", MP_ACTIVATION_OTHER, 0, 0, 0},
    {"ThresholdedRelu", "thresholded_relu", MP_ACTIVATION_OTHER, 1, 1, 0},
    {"HardSwish", "hard_swish", MP_ACTIVATION_HARD_SWISH, 0, 0, 0},
    {"Swish", "swish", MP_ACTIVATION_SWISH, 1, 1, 0},
    {"Silu", "swish", MP_ACTIVATION_SILU, 0, 1, 0},
    {"Gelu", "gelu", MP_ACTIVATION_GELU, 1, 0, 0}, /* 1: by tanh */
};

mp_status mp_activation_read(const char *name, const float *params, size_t count,
                             mp_activation_choice *out) {
    *out = (mp_activation_choice){.word = NULL};
    if (name == NULL || name[0] == '\0') {
        return MP_OK;
    }
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        const row *r = &rows[i];
        if (strcmp(r->name, name) != 0) {
            continue;
        }
        if (count > r->params) {
            return MP_FAIL(INVALID_ARGUMENT, "%zu numbers for the activation %s, which has %zu",
                           count, name, r->params);
        }
        *out = (mp_activation_choice){.kind = r->kind,
                                      .word = r->word,
                                      .a = count > 0 ? params[0] : r->a,
                                      .b = count > 1 ? params[1] : r->b};
        if (r->kind == MP_ACTIVATION_GELU && out->a != 0) {
            out->kind = MP_ACTIVATION_GELU_TANH;
        }
        return MP_OK;
    }
    return MP_FAIL(INVALID_ARGUMENT,
                   "the activation '%s' is not known; Relu, Sigmoid, Tanh, LeakyRelu, Clip and "
                   "HardSigmoid are some that are",
                   name);
}

mp_status mp_plan_activation(mp_planner *p, const mp_activation_choice *activation, mp_dtype type,
                             mp_ref out, int64_t count) {
    return activation->word == NULL || count == 0
               ? MP_OK
               : mp_pointwise1(p, activation->word, type, out, out, count, activation->a,
                               activation->b);
}
