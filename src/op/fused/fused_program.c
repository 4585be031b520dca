/* fused_program.c - runs an expression by the kernels of single functions.
 *
 * Registers are slots of BLOCK elements on the stack; float16 and bfloat16 are kept as float. Where
 * there are reductions, a row is gone through in passes (row_pass.h), each of which computes again
 * what it needs, and what is of the row fills its slot.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/fused_program.h"

#include "kernel/core/walk.h"
#include "kernel/pointwise/pointwise_args.h"
#include "op/core/kernel_cache.h"
#include "op/fused/row_pass.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 128,
    ELEMENT_MAX = 8, /* bytes */
    ALIGNED = 16,
    CASTS_MAX = 3, /* from float to what it stands for, to the other type, and to float again */
};

typedef struct step {
    mp_host_entry *entries[CASTS_MAX]; /* of a cast one behind the other; else the first */
    int entry_count;
    mp_term term;
    int16_t out, x[3]; /* slots */
} step;

struct mp_fused_program {
    mp_expression e; /* without its numbers, which come with each run */
    mp_reading readings[K_FUSED_IN];
    mp_host_entry *load[K_FUSED_IN], *store[K_FUSED_OUT];                       /* NULL: as it is */
    int16_t inputs[K_FUSED_IN], numbers[K_FUSED_NUMBERS], outputs[K_FUSED_OUT]; /* slots */
    mp_row_passes passes;
    bool (*needed)[MP_REGISTERS_MAX]; /* by pass: what it computes or reads */
    step steps[];
};

/* ---- making ---- */

static mp_dtype kept_as(mp_dtype type) {
    return type == MP_F16 || type == MP_BF16 ? MP_F32 : type;
}

static mp_status find_cast(mp_dtype from, mp_dtype to, mp_host_entry **out) {
    char name[64];
    *out = NULL;
    if (from == to) {
        return MP_OK;
    }
    (void)snprintf(name, sizeof name, "cast_%s_%s", mp_dtype_word(from), mp_dtype_word(to));
    return mp_kernel_cache_host_entry(name, out);
}

static mp_status add_cast(step *to, mp_dtype from, mp_dtype type) {
    mp_host_entry *entry = NULL;
    MP_TRY(find_cast(from, type, &entry));
    if (entry != NULL) {
        to->entries[to->entry_count++] = entry;
    }
    return MP_OK;
}

static mp_status find_entries(step *to) {
    const mp_term *term = &to->term;
    char name[64];
    switch (term->kind) {
    case MP_TERM_FUNCTION:
        (void)snprintf(name, sizeof name, "pointwise%d_%s_%s", term->function->arity,
                       term->function->word, mp_dtype_word(kept_as(term->from)));
        break;
    case MP_TERM_WHERE:
        (void)snprintf(name, sizeof name, "where_b%zu", 8 * mp_dtype_size(kept_as(term->type)));
        break;
    case MP_TERM_CAST:
        MP_TRY(add_cast(to, kept_as(term->from), term->from));
        MP_TRY(add_cast(to, term->from, term->type));
        return add_cast(to, term->type, kept_as(term->type));
    case MP_TERM_REDUCTION: /* computed here */
        return MP_OK;
    }
    to->entry_count = 1;
    return mp_kernel_cache_host_entry(name, &to->entries[0]);
}

static mp_status make_steps(mp_fused_program *program, const int16_t slots[MP_REGISTERS_MAX]) {
    const mp_expression *e = &program->e;
    for (int t = 0; t < e->term_count; t++) {
        step *at = &program->steps[t];
        at->term = e->terms[t];
        at->out = slots[MP_FIRST_TERM + t];
        MP_TRY(find_entries(at));
        for (size_t k = 0; k < MP_COUNT_OF(at->x); k++) {
            const int reg = at->term.x[k];
            at->x[k] = reg != MP_NO_REGISTER ? slots[reg] : 0;
        }
    }
    return MP_OK;
}

static mp_status fill_program(mp_fused_program *program) {
    const mp_expression *e = &program->e;
    int16_t slots[MP_REGISTERS_MAX];
    mp_expression_slots(e, slots);
    for (int i = 0; i < e->input_count; i++) {
        program->inputs[i] = slots[MP_FIRST_INPUT + i];
        MP_TRY(find_cast(e->inputs[i], kept_as(e->inputs[i]), &program->load[i]));
    }
    for (int i = 0; i < e->number_count; i++) {
        program->numbers[i] = slots[MP_FIRST_NUMBER + i];
    }
    MP_TRY(make_steps(program, slots));
    for (int i = 0; i < e->output_count; i++) {
        const mp_dtype type = mp_expression_type(e, e->outputs[i]);
        program->outputs[i] = slots[e->outputs[i]];
        MP_TRY(find_cast(kept_as(type), type, &program->store[i]));
    }
    return MP_OK;
}

mp_status mp_fused_program_make(const mp_expression *e, const mp_reading *readings,
                                mp_fused_program **out) {
    const size_t steps = (size_t)e->term_count * sizeof(step);
    mp_row_passes passes = {.count = 0};
    if (e->row_dims > 0) {
        mp_row_passes_find(e, &passes);
    }
    const size_t lists = (size_t)passes.count * sizeof(bool[MP_REGISTERS_MAX]);
    mp_fused_program *program = calloc(1, sizeof *program + steps + lists);
    if (program == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for an expression of %d terms",
                       e->term_count);
    }
    program->e = *e;
    program->passes = passes;
    program->needed = (bool(*)[MP_REGISTERS_MAX])(void *)((char *)program->steps + steps);
    for (int pass = 0; pass < passes.count; pass++) {
        mp_row_pass_needs(e, &passes, pass, NULL, program->needed[pass]);
    }
    memcpy(program->readings, readings, (size_t)e->input_count * sizeof *readings);
    const mp_status status = fill_program(program);
    if (status != MP_OK) {
        free(program);
        return status;
    }
    *out = program;
    return MP_OK;
}

/* ---- running ---- */

typedef struct block {
    const mp_fused_program *program;
    const mp_fused_args *args;
    int64_t first, count;
    int64_t row; /* where there are reductions */
    unsigned char (*slots)[BLOCK * ELEMENT_MAX];
} block;

static void convert(mp_host_entry *entry, const void *from, void *to, int64_t count) {
    const mp_pointwise1_args args = {.x = from, .out = to, .count = count};
    entry(&args);
}

/* `count` elements, each of them the one at `from`. */
static void repeat(unsigned char *to, const void *from, size_t size, int64_t count) {
    uint32_t word = 0;
    if (size == sizeof word) { /* as most are: a loop that a compiler makes vectors of */
        memcpy(&word, from, sizeof word);
        for (int64_t k = 0; k < count; k++) {
            memcpy(to + (size_t)k * sizeof word, &word, sizeof word);
        }
        return;
    }
    for (int64_t k = 0; k < count; k++) {
        memcpy(to + (size_t)k * size, from, size);
    }
}

/* Row by row of the walk, in each of which the view is contiguous or one element. */
static void gather(const block *b, const unsigned char *from, size_t size, int view,
                   unsigned char *to) {
    const k_walk *walk = &b->args->walk;
    const bool is_repeated = (walk->repeated >> view & 1) != 0;
    int64_t done = 0;
    while (done < b->count) {
        const uint32_t i = (uint32_t)(b->first + done);
        const int64_t left = walk->length - (i - k_divide(i, walk->by_length) * walk->length);
        const int64_t count = MP_MIN(left, b->count - done);
        uint32_t at[K_WALK_VIEWS];
        k_walk_to(walk, i, K_WALK_VIEWS, at);
        const unsigned char *row = from + (size_t)at[view] * size;
        if (is_repeated) {
            repeat(to + (size_t)done * size, row, size, count);
        } else {
            memcpy(to + (size_t)done * size, row, (size_t)count * size);
        }
        done += count;
    }
}

static void load(const block *b, int i, int *view) {
    const mp_fused_program *program = b->program;
    const size_t size = mp_dtype_size(program->e.inputs[i]);
    const unsigned char *from = b->args->in[i];
    unsigned char *slot = b->slots[program->inputs[i]];
    unsigned char raw[BLOCK * ELEMENT_MAX] __attribute__((aligned(ALIGNED)));
    unsigned char *to = program->load[i] != NULL ? raw : slot;
    switch (program->readings[i]) {
    case MP_READ_WHOLE:
        memcpy(to, from + (size_t)b->first * size, (size_t)b->count * size);
        break;
    case MP_READ_ONE:
        repeat(to, from, size, b->count);
        break;
    case MP_READ_VIEW:
    case MP_READ_ROWS:
        gather(b, from, size, (*view)++, to);
        break;
    case MP_READ_COLUMN:
        memcpy(to, from + (size_t)(b->first - b->row * b->args->columns) * size,
               (size_t)b->count * size);
        break;
    case MP_READ_ROW:
        repeat(to, from + (size_t)b->row * size, size, b->count);
        break;
    case MP_READING_END:
        break;
    }
    if (program->load[i] != NULL) {
        convert(program->load[i], raw, slot, b->count);
    }
}

static k_walk flat(int64_t count) {
    return (k_walk){.count = count,
                    .length = (uint32_t)count,
                    .by_length = mp_divider((uint32_t)count),
                    .whole = (1u << K_WALK_VIEWS) - 1,
                    .levels = 1,
                    .level = {{.dim = 1, .divider = mp_divider(1)}}};
}

static void run_function(const block *b, const step *at) {
    const mp_term *term = &at->term;
    if (term->function->arity == 1) {
        const mp_pointwise1_args args = {.x = b->slots[at->x[0]],
                                         .out = b->slots[at->out],
                                         .count = b->count,
                                         .a = term->a,
                                         .b = term->b};
        at->entries[0](&args);
        return;
    }
    const mp_pointwise2_args args = {.x = b->slots[at->x[0]],
                                     .y = b->slots[at->x[1]],
                                     .out = b->slots[at->out],
                                     .a = term->a,
                                     .b = term->b,
                                     .walk = flat(b->count)};
    at->entries[0](&args);
}

static void run_casts(const block *b, const step *at) {
    unsigned char between[CASTS_MAX - 1][BLOCK * ELEMENT_MAX] __attribute__((aligned(ALIGNED)));
    const void *from = b->slots[at->x[0]];
    for (int i = 0; i < at->entry_count; i++) {
        void *to = i + 1 < at->entry_count ? between[i] : b->slots[at->out];
        convert(at->entries[i], from, to, b->count);
        from = to;
    }
}

static void run_where(const block *b, const step *at) {
    const mp_where_args args = {.condition = b->slots[at->x[0]],
                                .x = b->slots[at->x[1]],
                                .y = b->slots[at->x[2]],
                                .out = b->slots[at->out],
                                .walk = flat(b->count)};
    at->entries[0](&args);
}

static void run_step(const block *b, const step *at) {
    switch (at->term.kind) {
    case MP_TERM_FUNCTION:
        run_function(b, at);
        break;
    case MP_TERM_CAST:
        run_casts(b, at);
        break;
    case MP_TERM_WHERE:
        run_where(b, at);
        break;
    case MP_TERM_REDUCTION:
        break;
    }
}

/* `count` elements, of which the first is element `first` of the output. */
static void store(const block *b, int i, int64_t first, int64_t count) {
    const mp_fused_program *program = b->program;
    const size_t size = mp_dtype_size(mp_expression_type(&program->e, program->e.outputs[i]));
    const unsigned char *slot = b->slots[program->outputs[i]];
    unsigned char *to = (unsigned char *)b->args->out[i] + (size_t)first * size;
    if (program->store[i] != NULL) {
        convert(program->store[i], slot, to, count);
    } else {
        memcpy(to, slot, (size_t)count * size);
    }
}

static void run_block(const block *b) {
    const mp_expression *e = &b->program->e;
    int view = 0;
    for (int i = 0; i < e->input_count; i++) {
        load(b, i, &view);
    }
    for (int i = 0; i < e->number_count; i++) {
        repeat(b->slots[b->program->numbers[i]], &b->args->numbers[i], sizeof(float), b->count);
    }
    for (int t = 0; t < e->term_count; t++) {
        run_step(b, &b->program->steps[t]);
    }
    for (int i = 0; i < e->output_count; i++) {
        store(b, i, b->first, b->count);
    }
}

/* ---- rows ---- */

/* As compilers make vectors of: four partial results, of a fourth of the elements each. */
enum { PARTIAL = 4 };

#define REDUCE(name, type, combine)                                 \
    static double name(const type *x, int64_t count, double none) { \
        double part[PARTIAL] = {none, none, none, none};            \
        for (int64_t k = 0; k < count; k++) {                       \
            const double a = part[k % PARTIAL], b = (double)x[k];   \
            part[k % PARTIAL] = combine;                            \
        }                                                           \
        for (int k = 1; k < PARTIAL; k++) {                         \
            const double a = part[0], b = part[k];                  \
            part[0] = combine;                                      \
        }                                                           \
        return part[0];                                             \
    }
#define MOST(a, b)  ((a) != (a) ? (a) : (b) != (b) ? (b) : (a) > (b) ? (a) : (b))
#define LEAST(a, b) ((a) != (a) ? (a) : (b) != (b) ? (b) : (a) < (b) ? (a) : (b))
REDUCE(sum_f32, float, a + b)
REDUCE(most_f32, float, MOST(a, b))
REDUCE(least_f32, float, LEAST(a, b))
REDUCE(product_f32, float, a *b)
REDUCE(sum_f64, double, a + b)
REDUCE(most_f64, double, MOST(a, b))
REDUCE(least_f64, double, LEAST(a, b))
REDUCE(product_f64, double, a *b)

static double nothing(mp_reduction reduction) {
    return reduction == MP_ROW_MAX       ? -HUGE_VAL
           : reduction == MP_ROW_MIN     ? HUGE_VAL
           : reduction == MP_ROW_PRODUCT ? 1
                                         : 0;
}

static double reduce(mp_reduction reduction, bool is_wide, const void *x, int64_t count) {
    const double none = nothing(reduction);
    switch (reduction) {
    case MP_ROW_MAX:
        return is_wide ? most_f64(x, count, none) : most_f32(x, count, none);
    case MP_ROW_MIN:
        return is_wide ? least_f64(x, count, none) : least_f32(x, count, none);
    case MP_ROW_PRODUCT:
        return is_wide ? product_f64(x, count, none) : product_f32(x, count, none);
    default:
        return is_wide ? sum_f64(x, count, none) : sum_f32(x, count, none);
    }
}

static void add_block(const block *b, const step *at, double *sum) {
    const double both[] = {
        *sum, reduce(at->term.reduction, at->term.type == MP_F64, b->slots[at->x[0]], b->count)};
    *sum = reduce(at->term.reduction, true, both, 2);
}

static void set_sum(const block *b, const step *at, double sum) {
    const double value = at->term.reduction == MP_ROW_MEAN ? sum / (double)b->args->columns : sum;
    const float narrow = (float)value;
    const bool is_wide = at->term.type == MP_F64;
    repeat(b->slots[at->out], is_wide ? (const void *)&value : &narrow, is_wide ? 8 : 4, BLOCK);
}

/* Inputs of rows, or of elements; but for `needed`, those are not read. */
static void load_some(const block *b, bool of_rows, const bool *needed) {
    const mp_expression *e = &b->program->e;
    int view = 0;
    for (int i = 0; i < e->input_count; i++) {
        const bool is_row = mp_expression_is_row(e, i);
        if (is_row == of_rows && (is_row || needed[i])) {
            int own = view;
            load(b, i, &own);
        }
        view += mp_reading_is_view(b->program->readings[i]);
    }
}

static void run_row_terms(const block *b, int pass) {
    const mp_fused_program *program = b->program;
    for (int t = 0; t < program->e.term_count; t++) {
        if (mp_row_pass_follows(&program->e, &program->passes, pass, t)) {
            run_step(b, &program->steps[t]);
        }
    }
}

/* The elements of one block of a row, in one pass. */
static void run_part(const block *b, int pass, double *sums) {
    const mp_fused_program *program = b->program;
    const mp_expression *e = &program->e;
    const bool *needed = program->needed[pass];
    load_some(b, false, needed);
    for (int t = 0; t < e->term_count; t++) {
        if (!needed[MP_FIRST_TERM + t]) {
            continue;
        }
        if (e->terms[t].kind == MP_TERM_REDUCTION) {
            add_block(b, &program->steps[t], &sums[t]);
        } else {
            run_step(b, &program->steps[t]);
        }
    }
    for (int i = 0; i < e->output_count && pass == program->passes.reducing; i++) {
        if (!mp_expression_is_row(e, e->outputs[i])) {
            store(b, i, b->first, b->count);
        }
    }
}

static void run_row(block *b) {
    const mp_fused_program *program = b->program;
    const mp_expression *e = &program->e;
    const int64_t columns = b->args->columns;
    const int64_t begin = b->row * columns;
    double sums[MP_TERMS_MAX];
    b->first = begin;
    b->count = MP_MIN(columns, BLOCK); /* as many are alike as a part has */
    load_some(b, true, NULL);
    run_row_terms(b, 0);
    for (int pass = 0; pass < program->passes.count; pass++) {
        for (int t = 0; t < e->term_count; t++) {
            sums[t] = nothing(e->terms[t].reduction);
        }
        for (int64_t c = 0; c < columns; c += BLOCK) {
            b->first = begin + c;
            b->count = MP_MIN(columns - c, BLOCK);
            run_part(b, pass, sums);
        }
        b->count = MP_MIN(columns, BLOCK);
        for (int t = 0; t < e->term_count; t++) {
            if (mp_row_pass_ends(e, &program->passes, pass, t)) {
                set_sum(b, &program->steps[t], sums[t]);
            }
        }
        run_row_terms(b, pass + 1);
    }
    for (int i = 0; i < e->output_count; i++) {
        if (mp_expression_is_row(e, e->outputs[i])) {
            store(b, i, b->row, 1);
        }
    }
}

static void run_rows(block *b, int64_t number, int64_t lanes) {
    const mp_fused_args *args = b->args;
    for (int i = 0; i < b->program->e.number_count; i++) {
        repeat(b->slots[b->program->numbers[i]], &args->numbers[i], sizeof(float), BLOCK);
    }
    const int64_t last = k_share(args->rows, number + 1, lanes);
    for (b->row = k_share(args->rows, number, lanes); b->row < last; b->row++) {
        run_row(b);
    }
}

/* The kernels that are called within are those of a grid of one lane. */
void mp_fused_program_enter(const void *packed) {
    const mp_fused_args *args = packed;
    const struct k_lane lane = k_lane;
    const int64_t number = (int64_t)lane.block.x * lane.block_dim.x + lane.thread.x;
    const int64_t lanes = (int64_t)lane.block_dim.x * lane.grid_dim.x;
    const bool has_rows = ((const mp_fused_program *)args->program)->e.row_dims > 0;
    const int64_t blocks = has_rows ? 0 : MP_CEIL_DIV(args->walk.count, BLOCK);
    unsigned char slots_of[MP_SLOTS_MAX][BLOCK * ELEMENT_MAX] __attribute__((aligned(ALIGNED)));
    block b = {.program = args->program, .args = args, .slots = slots_of};
    k_lane = (struct k_lane){.block_dim = {1, 1, 1}, .grid_dim = {1, 1, 1}};
    if (has_rows) {
        run_rows(&b, number, lanes);
    }
    for (int64_t i = number; i < blocks; i += lanes) {
        b.first = i * BLOCK;
        b.count = MP_MIN(args->walk.count - b.first, BLOCK);
        run_block(&b);
    }
    k_lane = lane;
}
