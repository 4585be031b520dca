/* recurrent.c - LSTM, GRU and RNN: the product of all inputs with W; what a node asks for is read
 * in recurrent_read.c, and the steps are in recurrent_steps.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/recurrent/recurrent_read.h"
#include "op/recurrent/recurrent_steps.h"

/* W x of all steps, directions and gates. */
static mp_status plan_projection(mp_planner *p, const mp_recurrent *r, mp_ref *out) {
    const k_cell *c = &r->cell;
    const int64_t rows = c->steps * c->batch;
    const int64_t columns = c->kind * c->hidden;
    const int64_t size = (int64_t)mp_dtype_size(r->type);
    const mp_shape shape = {.rank = 3, .dim = {c->directions, rows, columns}};
    MP_TRY(mp_plan_scratch_shape(p, &shape, r->type, out));
    const bool even = columns * r->input * size % 16 == 0 && rows * columns * size % 16 == 0;
    const mp_gemm gemm = {.type = r->type,
                          .tf32 = p->node->options.tf32,
                          .trans_b = true,
                          .m = rows,
                          .n = columns,
                          .k = r->input,
                          .lda = r->input,
                          .ldb = r->input,
                          .ldc = columns,
                          .batch = c->directions,
                          .stride_b = columns * r->input,
                          .stride_c = rows * columns,
                          .alpha = 1,
                          .align = even || c->directions == 1 || p->align < size ? p->align
                                                                                 : (int32_t)size};
    const mp_ref operands[MP_GEMM_OPERANDS] = {
        [MP_GEMM_A] = MP_IN(MP_RNN_X), [MP_GEMM_B] = MP_IN(MP_RNN_W), [MP_GEMM_C] = *out};
    return mp_plan_gemm(p, &gemm, operands);
}

static mp_status plan_recurrent(mp_planner *p) {
    mp_recurrent r;
    MP_TRY(mp_recurrent_read(p, *(const k_cell_kind *)p->node->op->detail, &r));
    const k_cell *c = &r.cell;
    const int64_t columns = c->kind * c->hidden;
    MP_TRY(mp_recurrent_input_check(p, MP_RNN_W, "W", 3,
                                    (const int64_t[]){c->directions, columns, r.input}));
    MP_TRY(mp_recurrent_input_check(p, MP_RNN_R, "R", 3,
                                    (const int64_t[]){c->directions, columns, c->hidden}));
    if (c->batch == 0) {
        return MP_OK;
    }
    if (c->steps == 0) {
        return mp_recurrent_no_steps(p, &r);
    }
    mp_ref projected;
    MP_TRY(plan_projection(p, &r, &projected));
    return mp_recurrent_plan(p, &r, projected);
}

/* ---- the rows ---- */

static const k_cell_kind rnn = K_CELL_RNN;
static const k_cell_kind gru = K_CELL_GRU;
static const k_cell_kind lstm = K_CELL_LSTM;

static const mp_attr_def attrs[] = {
    {"activation_alpha", MP_ATTR_FLOATS}, {"activation_beta", MP_ATTR_FLOATS},
    {"activations", MP_ATTR_STRINGS},     {"clip", MP_ATTR_FLOAT},
    {"direction", MP_ATTR_STRING},        {"hidden_size", MP_ATTR_INT},
    {"input_forget", MP_ATTR_INT},        {"layout", MP_ATTR_INT},
    {"linear_before_reset", MP_ATTR_INT}, {NULL, 0}};

#define RECURRENT(op_name, from, to, floats, cell)                          \
    {                                                                       \
        .domain = "", .name = (op_name), .since = (from), .until = (to),    \
        .types = {{"T", (floats)}, {"T1", MP_BIT(MP_I32)}}, .attrs = attrs, \
        .plan = plan_recurrent, .detail = &(cell)                           \
    }

static const mp_op ops[] = {
    RECURRENT("GRU", 7, 14, MP_IEEE_FLOATS, gru),   RECURRENT("GRU", 22, 22, MP_FLOATS, gru),
    RECURRENT("LSTM", 7, 14, MP_IEEE_FLOATS, lstm), RECURRENT("LSTM", 22, 22, MP_FLOATS, lstm),
    RECURRENT("RNN", 7, 14, MP_IEEE_FLOATS, rnn),   RECURRENT("RNN", 22, 22, MP_FLOATS, rnn),
};

const mp_op_family mp__family_recurrent = {"recurrent", ops, MP_COUNT_OF(ops)};
