/* spectrum_steps.c - Fourier transforms of any length, nearly all from one kernel, fft.cu.
 *
 * A length with small factors that fits into shared memory takes one launch; a longer one is a
 * product of lengths that fit, each a launch that reads and writes all once. A length with a large
 * prime factor becomes a convolution (Bluestein): with the chirp c[t] = exp(-i pi t t / n),
 *
 *     X[k] = c[k] sum over t of (x[t] c[t]) conj(c[k - t])
 *
 * since 2 t k = t t + k k - (k - t)(k - t). It is done by transforms of a length with small factors
 * of at least 2 n - 1. A transform back is a forward one between two conjugations. Real numbers are
 * taken two by two as complex ones where that makes one launch. Rows whose length is a power of two
 * mostly go another way (fft_power_steps.c).
 *
 * Kernel: signal/fft.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/signal/spectrum_steps.h"
#include "op/signal/fft_power_steps.h"
#include "op/signal/root_steps.h"

#include <math.h>

enum {
    LENGTH_MAX = 8192,      /* of a row that takes one launch */
    PASS_LENGTH_MAX = 1024, /* of one of several: enough rows then lie side by side in a block */
    PASSES_MAX = 8,
    FACTOR_MAX = 13, /* an odd stage takes as many steps for an element */
    GROUP_BITS_MAX = 6,
    GROUP_BYTES_MAX = 66 << 10, /* a multiprocessor holds several blocks; 64 KB are of points */
    GROUP_POINTS = 1024,        /* enough for a block of 256 lanes */
    ACROSS_BITS = 3,            /* rows that lie side by side: 8 make whole sectors of memory */
    CHIRP_BITS_MAX = 31         /* the square of a distance is below 2^62 */
};

/* ---- lengths ---- */

/* Divides n by its small odd factors, listed in `factors`; gives what is left. */
static int64_t small_factors(int64_t n, uint8_t factors[K_FFT_ODD_MAX]) {
    int count = 0;
    for (int f = 3; f <= FACTOR_MAX; f += 2) {
        for (; n % f == 0; n /= f) {
            if (factors != NULL && count < K_FFT_ODD_MAX - 1) {
                factors[count++] = (uint8_t)f;
            }
        }
    }
    return n;
}

static bool is_smooth(int64_t n) {
    const int64_t rest = small_factors(n, NULL);
    return (rest & (rest - 1)) == 0;
}

static size_t shared_bytes(mp_dtype type, int64_t length, int group_bits) {
    const size_t row = sizeof(mp_fft_row) + 4 * mp_dtype_size(type) * (size_t)length;
    return row << group_bits; /* two buffers of complex numbers */
}

/* The smallest divisor of n from `least` on. */
static int64_t divisor_from(int64_t n, int64_t least) {
    while (n % least != 0) {
        least++;
    }
    return least;
}

/* Lengths of about the same size whose product is the smooth number n; gives how many. */
static int split(const mp_planner *p, mp_dtype type, int64_t n, int64_t lengths[PASSES_MAX]) {
    lengths[0] = n;
    if (n <= LENGTH_MAX && shared_bytes(type, n, 0) <= p->device->info.shared_bytes_max) {
        return 1;
    }
    for (int count = 2; count < PASSES_MAX; count++) {
        int64_t rest = n;
        bool fits = true;
        for (int i = 0; i < count; i++) {
            const double root = pow((double)rest, 1.0 / (count - i));
            lengths[i] = i + 1 < count && root <= PASS_LENGTH_MAX
                             ? divisor_from(rest, (int64_t)ceil(root - 1e-6))
                             : rest;
            fits = fits && lengths[i] <= PASS_LENGTH_MAX;
            rest /= lengths[i];
        }
        if (fits) {
            return count;
        }
    }
    return 0;
}

/* The smallest of a few smooth lengths from `least` on. */
static int64_t padded_length(int64_t least) {
    enum { EIGHTHS_MIN = 5, EIGHTHS = 8 };
    int64_t power = EIGHTHS;
    while (power < least) {
        power *= 2;
    }
    for (int64_t eighths = EIGHTHS_MIN; eighths < EIGHTHS; eighths++) {
        if (power / EIGHTHS * eighths >= least) {
            return power / EIGHTHS * eighths;
        }
    }
    return power;
}

/* ---- passes ---- */

/* Of whole rows, of the length that the passes have together. */
typedef struct transform {
    mp_dtype type;
    int64_t length;
    mp_ref x, window, weight_in, weight_out, turns;
    mp_ref out;            /* MP_NOWHERE: the buffer whose turn it is */
    mp_spectrum_args args; /* but for what belongs to a pass */
} transform;

/* Two buffers in turn for what lies between passes, taken when they are needed. */
typedef struct between {
    size_t size;
    mp_ref buffer[2];
    int taken, turn;
    mp_ref last;
} between;

static mp_status next_buffer(mp_planner *p, between *b) {
    if (b->taken == b->turn) {
        MP_TRY(mp_plan_scratch(p, b->size, &b->buffer[b->taken++]));
    }
    b->last = b->buffer[b->turn];
    b->turn = 1 - b->turn;
    return MP_OK;
}

static mp_status between_init(const mp_spectrum_args *args, mp_dtype type, int64_t length,
                              between *out) {
    const mp_shape shape = {.rank = 3, .dim = {args->rows, length, 2}};
    *out = (between){.size = 0};
    return mp_shape_bytes(&shape, type, &out->size);
}

/* Whether minor rows are neighbours, as those of an axis that is not the last are. */
static bool is_across(const mp_spectrum_args *args, const mp_spectrum_side *side) {
    return side->minor == 1 && side->step == args->minor_rows;
}

/* Rows of complex numbers in a buffer of their own. */
static mp_spectrum_side side_between(const mp_spectrum_args *args, int64_t length) {
    const mp_spectrum_side across = {length * args->minor_rows, 1, args->minor_rows, 2, true};
    const mp_spectrum_side along = {length * args->minor_rows, length, 1, 2, true};
    return args->by_strand ? along : across;
}

static int group_bits(const mp_planner *p, mp_dtype type, const mp_spectrum_args *args) {
    const bool apart = args->from.step > 1 || args->to.step > 1 || args->strands > 1;
    const size_t most = p->device->info.shared_bytes_max;
    const size_t room = MP_MIN(most, GROUP_BYTES_MAX);
    int bits = 0;
    while (bits < GROUP_BITS_MAX && (int64_t)1 << bits < args->rows * args->strands &&
           shared_bytes(type, args->length, bits + 1) <= room &&
           (args->length << bits < GROUP_POINTS || (apart && bits < ACROSS_BITS))) {
        bits++;
    }
    return bits;
}

/* `pass` has all but the pointers and what follows from its length. */
static mp_status plan_pass(mp_planner *p, const transform *t, mp_spectrum_args pass,
                           mp_ref roots_at, mp_ref fine, mp_ref coarse) {
    enum { LANES_MIN = 32, LANES_MANY = 256, POINTS_OF_A_LANE = 4 };
    const mp_kernel *kernel = NULL;
    const int32_t power = (int32_t)small_factors(pass.length, pass.odd_factors);
    while (1 << pass.n_bits < power) {
        pass.n_bits++;
    }
    pass.group_bits = group_bits(p, t->type, &pass);
    pass.by_length = mp_divider((uint32_t)pass.length);
    pass.by_odd = mp_divider((uint32_t)(pass.length / power));
    const int64_t blocks = ((pass.rows * pass.strands - 1) >> pass.group_bits) + 1;
    /* Where there is a block for each multiprocessor at most, it may have all the lanes. */
    const bool few = blocks <= p->device->info.multiprocessors;
    const uint32_t points = (uint32_t)pass.length << pass.group_bits;
    const uint32_t most = few ? K_FFT_LANES_MAX : LANES_MANY;
    uint32_t lanes = LANES_MIN;
    while (lanes < most && lanes * POINTS_OF_A_LANE < points) {
        lanes *= 2;
    }
    mp_grid grid = mp_plan_grid_rows(p, blocks, lanes);
    grid.shared_bytes = (uint32_t)shared_bytes(t->type, pass.length, pass.group_bits);
    MP_TRY(mp_plan_kernel(p, &kernel, "fft_%s", mp_dtype_word(t->type)));
    return MP_LAUNCH(
        p, kernel, grid, pass, MP_BIND(mp_spectrum_args, x, t->x),
        MP_BIND(mp_spectrum_args, window, t->window),
        MP_BIND(mp_spectrum_args, weight_in, t->weight_in),
        MP_BIND(mp_spectrum_args, weight_out, t->weight_out),
        MP_BIND(mp_spectrum_args, turns, t->turns), MP_BIND(mp_spectrum_args, roots, roots_at),
        MP_BIND(mp_spectrum_args, fine, fine), MP_BIND(mp_spectrum_args, coarse, coarse),
        MP_BIND(mp_spectrum_args, out, t->out));
}

/* The roots of a whole row as products of two from short tables. */
static mp_status plan_row_roots(mp_planner *p, const transform *t, int32_t *fine_bits, mp_ref *fine,
                                mp_ref *coarse) {
    while ((int64_t)1 << 2 * *fine_bits < t->length) {
        ++*fine_bits;
    }
    const int64_t count = (int64_t)1 << *fine_bits;
    const mp_roots_args small = {.n = t->length, .count = count, .step = 1};
    const mp_roots_args large = {
        .n = t->length, .count = MP_CEIL_DIV(t->length, count), .step = count};
    MP_TRY(mp_plan_roots(p, t->type, &small, fine));
    return mp_plan_roots(p, t->type, &large, coarse);
}

/* The part of a transform that a pass between others does not have. */
static void cut_start(transform *t) {
    t->window = t->weight_in = MP_NOWHERE;
    t->args.n = t->args.have = t->length;
    t->args.hermitian = t->args.conjugate_in = 0;
    t->args.narrow_in = K_FFT_WIDE;
    t->args.from = side_between(&t->args, t->length);
}

static void cut_end(transform *t) {
    t->weight_out = MP_NOWHERE;
    t->args.made = t->length;
    t->args.conjugate_out = 0;
    t->args.narrow_out = K_FFT_WIDE;
    t->args.real_length = 0;
    t->args.scale = 1;
    t->args.to = side_between(&t->args, t->length);
}

static mp_status plan_transform(mp_planner *p, const transform *whole, between *b) {
    int64_t lengths[PASSES_MAX];
    mp_ref roots_at = MP_NOWHERE, fine = MP_NOWHERE, coarse = MP_NOWHERE;
    int32_t fine_bits = 0;
    int64_t done = 1;
    const int count = split(p, whole->type, whole->length, lengths);
    if (count == 0) {
        return MP_FAIL(UNSUPPORTED, "a transform of length %lld is too long",
                       (long long)whole->length);
    }
    if (count > 1) {
        MP_TRY(plan_row_roots(p, whole, &fine_bits, &fine, &coarse));
    }
    for (int i = 0; i < count; i++) {
        const bool last = i + 1 == count;
        transform t = *whole;
        if (i > 0) {
            cut_start(&t);
            t.x = b->last;
        }
        if (!last) {
            cut_end(&t);
        }
        if (!last || whole->out.place == MP_PLACE_NONE) {
            MP_TRY(next_buffer(p, b));
            t.out = b->last;
        }
        t.args.length = (int32_t)lengths[i];
        t.args.strands = whole->length / lengths[i];
        t.args.done = done;
        t.args.fine_bits = fine_bits;
        if (i == 0 || lengths[i] != lengths[i - 1]) {
            const mp_roots_args args = {.n = lengths[i], .count = lengths[i], .step = 1};
            MP_TRY(mp_plan_roots(p, t.type, &args, &roots_at));
        }
        MP_TRY(plan_pass(p, &t, t.args, roots_at, last ? MP_NOWHERE : fine,
                         last ? MP_NOWHERE : coarse));
        done *= lengths[i];
    }
    return MP_OK;
}

/* ---- by a convolution ---- */

/* The chirp, mirrored around each end of a row of `length`, and what a product with its transform
 * and a transform back make of a row. */
static mp_status plan_chirp(mp_planner *p, const transform *whole, int64_t length, bool inverse,
                            mp_ref *chirp, mp_ref *kernel) {
    const mp_roots_args args = {
        .n = 2 * whole->args.n, .count = length, .chirp = true, .inverse = inverse};
    transform t = {.type = whole->type,
                   .length = length,
                   .turns = MP_NOWHERE,
                   .args = {.rows = 1, .minor_rows = 1, .by_strand = true}};
    between b;
    MP_TRY(mp_plan_roots(p, t.type, &args, chirp));
    MP_TRY(between_init(&t.args, t.type, length, &b));
    MP_TRY(mp_plan_scratch(p, b.size, kernel));
    cut_start(&t);
    cut_end(&t);
    t.x = *chirp;
    t.out = *kernel;
    t.args.conjugate_in = t.args.conjugate_out = true;
    t.args.scale = 1 / (double)length;
    return plan_transform(p, &t, &b);
}

/* `whole` without conjugations: the chirp of an inverse transform runs the other way round. */
static mp_status plan_convolution(mp_planner *p, const transform *whole, bool inverse) {
    if (whole->args.n >> CHIRP_BITS_MAX != 0) {
        return MP_FAIL(UNSUPPORTED,
                       "a transform of length %lld; one with a prime factor above %d can have at "
                       "most 2^%d",
                       (long long)whole->args.n, FACTOR_MAX, CHIRP_BITS_MAX);
    }
    const int64_t length = padded_length(2 * whole->args.n - 1);
    mp_ref chirp = MP_NOWHERE, kernel = MP_NOWHERE;
    between b;
    MP_TRY(plan_chirp(p, whole, length, inverse, &chirp, &kernel));
    MP_TRY(between_init(&whole->args, whole->type, length, &b));
    transform there = *whole;
    there.length = length;
    cut_end(&there);
    there.weight_in = chirp;
    there.weight_out = kernel;
    there.out = MP_NOWHERE;
    there.args.conjugate_in = false;
    there.args.conjugate_out = true;
    MP_TRY(plan_transform(p, &there, &b));
    transform back = *whole;
    back.length = length;
    cut_start(&back);
    back.weight_out = chirp;
    back.x = b.last;
    back.args.conjugate_out = true;
    return plan_transform(p, &back, &b);
}

/* ---- real numbers two by two ---- */

/* Whether one side is real and the other a spectrum, or the first half of one, which then come from
 * a transform of half the length. */
static int32_t pairs_of(const mp_planner *p, const mp_spectrum *s) {
    int64_t lengths[PASSES_MAX];
    const bool in =
        s->from.parts == 1 && !s->inverse && (s->made == s->n / 2 + 1 || s->made == s->n);
    const bool out = s->hermitian && s->inverse && s->to.parts == 1 && s->made == s->n;
    if (s->n % 2 != 0 || !is_smooth(s->n / 2) || !(in || out) ||
        split(p, s->type, s->n / 2, lengths) != 1) {
        return K_FFT_PAIRS_NONE;
    }
    return in ? K_FFT_PAIRS_IN : K_FFT_PAIRS_OUT;
}

static mp_status plan_pairs(mp_planner *p, transform *t, between *b) {
    const mp_roots_args turns = {.n = t->args.n, .count = t->args.n / 2, .step = 1};
    t->length = t->args.n / 2;
    t->args.hermitian = false;
    MP_TRY(mp_plan_roots(p, t->type, &turns, &t->turns));
    return plan_transform(p, t, b);
}

/* ---- all of them ---- */

mp_dtype mp_spectrum_type(mp_dtype type) {
    return type == MP_F64 ? MP_F64 : MP_F32;
}

/* Whether two numbers of a side can be moved at once: complex ones, or neighbours. */
static int32_t is_aligned(const mp_planner *p, const mp_spectrum *s, const mp_spectrum_side *side,
                          mp_ref ref, bool pairs) {
    return (side->parts == 2 || (pairs && mp_spectrum_is_even(s, side))) &&
           (p->align >= 16 || ref.place == MP_PLACE_SCRATCH);
}

static int32_t narrow(mp_dtype type) {
    return type == MP_F16 ? K_FFT_F16 : type == MP_BF16 ? K_FFT_BF16 : K_FFT_WIDE;
}

mp_status mp_plan_spectrum(mp_planner *p, const mp_spectrum *s) {
    const int32_t pairs = pairs_of(p, s);
    if (mp_fft_power_fits(p, s, pairs)) {
        return mp_plan_fft_power(p, s, pairs);
    }
    transform t = {.type = s->type,
                   .length = s->n,
                   .x = s->x,
                   .window = s->window,
                   .weight_in = MP_NOWHERE,
                   .weight_out = MP_NOWHERE,
                   .turns = MP_NOWHERE,
                   .out = s->out,
                   .args = {.rows = s->rows,
                            .minor_rows = s->minor_rows,
                            .n = s->n,
                            .have = s->have,
                            .made = s->made,
                            .from = s->from,
                            .to = s->to,
                            .scale = s->inverse ? 1 / (double)s->n : 1,
                            .hermitian = s->hermitian,
                            .conjugate_in = s->inverse,
                            .conjugate_out = s->inverse,
                            .pairs = pairs,
                            .narrow_in = narrow(s->x_type),
                            .narrow_out = narrow(s->out_type)}};
    between b;
    const bool in = pairs == K_FFT_PAIRS_IN, out = pairs == K_FFT_PAIRS_OUT;
    t.args.by_strand = !is_across(&t.args, &s->from) || !is_across(&t.args, &s->to);
    t.args.from.aligned = t.args.narrow_in == K_FFT_WIDE && is_aligned(p, s, &s->from, s->x, in);
    t.args.to.aligned = t.args.narrow_out == K_FFT_WIDE && is_aligned(p, s, &s->to, s->out, out);
    t.args.real_length = s->from.parts == 1 && !s->hermitian ? s->n : 0;
    MP_TRY(between_init(&t.args, t.type, t.length, &b));
    if (pairs != K_FFT_PAIRS_NONE) {
        return plan_pairs(p, &t, &b);
    }
    return is_smooth(s->n) ? plan_transform(p, &t, &b) : plan_convolution(p, &t, s->inverse);
}
