/* ngram_hash.c - NGramHashMapping and VarlenNGramHashMapping of com.microsoft: which rows of tables
 * stand for the n-grams of a text.
 * Kernel: pointwise/ngram_hash.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/ngram_args.h"
#include "op/core/families.h"

enum { IDS, MULTIPLIERS, SIZES };
enum { CAPACITY_MAX = 8 };

/* Where each operator has its further inputs and outputs; -1 for one that it lacks. */
typedef struct order {
    int starts, past, offsets, end, segments, past_segments, counts;
    int present_segments, update;
} order;

static const order order_even = {.starts = -1,
                                 .past = 3,
                                 .offsets = 4,
                                 .end = 5,
                                 .segments = 6,
                                 .past_segments = -1,
                                 .counts = -1,
                                 .present_segments = -1,
                                 .update = -1};
static const order order_packed = {.starts = 3,
                                   .past = 4,
                                   .offsets = 5,
                                   .end = 6,
                                   .segments = 7,
                                   .past_segments = 8,
                                   .counts = 9,
                                   .present_segments = 2,
                                   .update = 3};

static const order *order_of(const mp_planner *p) {
    return p->node->op->detail;
}

static mp_ref in_ref(const mp_planner *p, int i) {
    return i >= 0 && mp_plan_in(p, i) != NULL ? MP_IN(i) : MP_NOWHERE;
}

static mp_ref out_ref(const mp_planner *p, int i) {
    return i >= 0 && mp_plan_wants(p, i) ? MP_OUT(i) : MP_NOWHERE;
}

static mp_status read_sizes(const mp_planner *p, mp_ngram_args *args) {
    const int64_t most = mp_node_int(p->node, "max_ngram_size", 0);
    const mp_shape *multipliers = &p->in[MULTIPLIERS].shape;
    args->heads = mp_node_int(p->node, "n_head_per_ngram", 0);
    args->pad = mp_node_int(p->node, "pad_id", 0);
    args->resets = mp_node_int(p->node, "reset_on_eos", 0) != 0;
    args->kept = most - 1;
    int64_t all = 0;
    if (most < 2 || args->heads < 1 || __builtin_mul_overflow(args->kept, args->heads, &all) ||
        multipliers->rank != 1 || multipliers->dim[0] < most || p->in[SIZES].shape.rank != 1 ||
        p->in[SIZES].shape.dim[0] != all) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "n-grams of up to %lld ids with %lld hashes each: multipliers and "
                       "vocab_sizes must have a number for each id and for each hash, and there "
                       "must be at least two and one of them",
                       (long long)most, (long long)args->heads);
    }
    if (p->in[IDS].type == MP_I32 && (args->pad < INT32_MIN || args->pad > INT32_MAX)) {
        return MP_FAIL(INVALID_ARGUMENT, "pad_id is %lld, which no id of int32 can be",
                       (long long)args->pad);
    }
    return MP_OK;
}

static mp_status read_tokens(const mp_planner *p, mp_ngram_args *args) {
    const order *at = order_of(p);
    const mp_shape *ids = &p->in[IDS].shape;
    const mp_shape *starts = at->starts >= 0 ? &p->in[at->starts].shape : NULL;
    char text[MP_SHAPE_TEXT];
    if (starts != NULL && ids->rank == 1 && starts->rank == 1 && starts->dim[0] > 0) {
        args->batch = starts->dim[0] - 1;
        args->tokens = ids->dim[0];
        return MP_OK;
    }
    if (starts != NULL || ids->rank != 2) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "input_ids of shape %s: a batch has two dimensions; one that is packed has "
                       "one, and cumulative_sequence_length a number more than there are requests",
                       mp_shape_text(ids, text));
    }
    args->batch = ids->dim[0];
    args->rows = ids->dim[1];
    args->tokens = args->batch * args->rows;
    return MP_OK;
}

static mp_status check_input(const mp_planner *p, int i, const char *name, const mp_shape *want) {
    const mp_tensor *given = i >= 0 ? mp_plan_in(p, i) : NULL;
    char text[MP_SHAPE_TEXT], want_text[MP_SHAPE_TEXT];
    return given == NULL || mp_shape_equal(&given->shape, want)
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s of shape %s where %s is needed", name,
                         mp_shape_text(&given->shape, text), mp_shape_text(want, want_text));
}

static mp_status check_inputs(const mp_planner *p, mp_ngram_args *args) {
    const order *at = order_of(p);
    const mp_shape kept = {.rank = 2, .dim = {args->batch, args->kept}};
    const mp_shape each = {.rank = 1, .dim = {args->batch}}, scalar = {.rank = 0};
    MP_TRY(check_input(p, at->past, "past_ids", &kept));
    MP_TRY(check_input(p, at->offsets, "head_offsets", &p->in[SIZES].shape));
    MP_TRY(check_input(p, at->end, "eos_token_id", &scalar));
    MP_TRY(check_input(p, at->segments, "segment_ids", &p->in[IDS].shape));
    MP_TRY(check_input(p, at->past_segments, "past_segment_ids", &kept));
    MP_TRY(check_input(p, at->counts, "capture_count", &each));
    const bool segments = mp_plan_in(p, at->segments) != NULL;
    if (!segments && ((at->past_segments >= 0 && mp_plan_in(p, at->past_segments) != NULL) ||
                      (at->present_segments >= 0 && mp_plan_wants(p, at->present_segments)))) {
        return MP_FAIL(INVALID_ARGUMENT, "segments of the past or the present need segment_ids");
    }
    args->capacity = mp_node_int(p->node, "state_update_capacity", 0);
    const bool counts = at->counts >= 0 && mp_plan_in(p, at->counts) != NULL;
    if (args->capacity < 0 || args->capacity > CAPACITY_MAX || counts != (args->capacity > 0)) {
        return MP_FAIL(
            INVALID_ARGUMENT,
            "state_update_capacity is %lld; it can be 0 to %d, with a capture_count just "
            "where it is not 0",
            (long long)args->capacity, CAPACITY_MAX);
    }
    return MP_OK;
}

static mp_status declare(mp_planner *p, const mp_ngram_args *args) {
    const order *at = order_of(p);
    const mp_dtype type = p->in[IDS].type;
    const mp_shape kept = {.rank = 2, .dim = {args->batch, args->kept}};
    const mp_shape update = {.rank = 3, .dim = {args->batch, args->capacity, args->kept}};
    mp_shape hashes = p->in[IDS].shape;
    hashes.dim[hashes.rank++] = args->kept * args->heads;
    MP_TRY(mp_plan_output(p, 0, type, &hashes));
    if (p->out_count > 1) {
        MP_TRY(mp_plan_output(p, 1, type, &kept));
    }
    if (p->out_count > 2) {
        MP_TRY(mp_plan_output(p, at->present_segments, MP_I32, &kept));
    }
    return p->out_count > 3 ? mp_plan_output(p, at->update, type, &update) : MP_OK;
}

static mp_status launch(mp_planner *p, mp_ngram_args *args, int32_t stage, int64_t lanes) {
    const order *at = order_of(p);
    const bool state = stage == K_NGRAM_STATE;
    const mp_kernel *kernel = NULL;
    if (lanes == 0) {
        return MP_OK;
    }
    args->stage = stage;
    MP_TRY(mp_plan_kernel(p, &kernel, "ngram_hash_%s", mp_dtype_word(p->in[IDS].type)));
    const mp_ref update = state && args->capacity > 0 ? out_ref(p, at->update) : MP_NOWHERE;
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, lanes, 1), *args,
                     MP_BIND(mp_ngram_args, ids, MP_IN(IDS)),
                     MP_BIND(mp_ngram_args, multipliers, MP_IN(MULTIPLIERS)),
                     MP_BIND(mp_ngram_args, sizes, MP_IN(SIZES)),
                     MP_BIND(mp_ngram_args, past, in_ref(p, at->past)),
                     MP_BIND(mp_ngram_args, offsets, in_ref(p, at->offsets)),
                     MP_BIND(mp_ngram_args, end, in_ref(p, at->end)),
                     MP_BIND(mp_ngram_args, segments, in_ref(p, at->segments)),
                     MP_BIND(mp_ngram_args, past_segments, in_ref(p, at->past_segments)),
                     MP_BIND(mp_ngram_args, starts, in_ref(p, at->starts)),
                     MP_BIND(mp_ngram_args, counts, in_ref(p, at->counts)),
                     MP_BIND(mp_ngram_args, hashes, state ? MP_NOWHERE : MP_OUT(0)),
                     MP_BIND(mp_ngram_args, present, state ? out_ref(p, 1) : MP_NOWHERE),
                     MP_BIND(mp_ngram_args, present_segments,
                             state ? out_ref(p, at->present_segments) : MP_NOWHERE),
                     MP_BIND(mp_ngram_args, update, update));
}

static mp_status plan_hash(mp_planner *p) {
    mp_ngram_args args = {.ids = NULL};
    MP_TRY(read_sizes(p, &args));
    MP_TRY(read_tokens(p, &args));
    MP_TRY(check_inputs(p, &args));
    MP_TRY(declare(p, &args));
    MP_TRY(launch(p, &args, K_NGRAM_HASH, args.tokens * args.kept * args.heads));
    return p->out_count > 1 ? launch(p, &args, K_NGRAM_STATE, args.batch) : MP_OK;
}

/* ---- the rows ---- */

static const mp_attr_def attrs[] = {{"reset_on_eos", MP_ATTR_INT},
                                    {"pad_id", MP_ATTR_INT},
                                    {"n_head_per_ngram", MP_ATTR_INT},
                                    {"max_ngram_size", MP_ATTR_INT},
                                    {NULL, 0}};
static const mp_attr_def attrs_packed[] = {
    {"reset_on_eos", MP_ATTR_INT},          {"pad_id", MP_ATTR_INT},
    {"n_head_per_ngram", MP_ATTR_INT},      {"max_ngram_size", MP_ATTR_INT},
    {"state_update_capacity", MP_ATTR_INT}, {NULL, 0}};

enum { IDS_TYPES = 1u << MP_I32 | 1u << MP_I64 };

static const mp_op ops[] = {
    {.domain = "com.microsoft",
     .name = "NGramHashMapping",
     .since = 1,
     .until = 1,
     .types = {{"M", IDS_TYPES}},
     .attrs = attrs,
     .plan = plan_hash,
     .detail = &order_even},
    {.domain = "com.microsoft",
     .name = "VarlenNGramHashMapping",
     .since = 1,
     .until = 1,
     .types = {{"M", IDS_TYPES}, {"S", MP_BIT(MP_I32)}},
     .attrs = attrs_packed,
     .plan = plan_hash,
     .detail = &order_packed},
};

const mp_op_family mp__family_ngram_hash = {"ngram_hash", ops, MP_COUNT_OF(ops)};
