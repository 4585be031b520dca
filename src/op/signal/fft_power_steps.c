/* fft_power_steps.c - transforms of rows whose length is a power of two: an instance of the kernel
 * for each length, which a lane holds some elements of; another one where it is not the elements of
 * a row that lie side by side, but those of neighbouring rows.
 * Kernel: signal/fft_power.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/signal/fft_power_steps.h"
#include "op/signal/root_steps.h"

/* ---- which rows ---- */

/* Complex numbers of a row, or pairs of real ones. */
static int64_t length_of(const mp_spectrum *s, int32_t pairs) {
    return pairs == K_FFT_PAIRS_NONE ? s->n : s->n / 2;
}

/* The power of two that is `length`; 0 where there is no instance for it. */
static int bits_of(int64_t length) {
    for (int bits = K_FFT_BITS_MIN; bits <= K_FFT_BITS_MAX; bits++) {
        if (length == (int64_t)1 << bits) {
            return bits;
        }
    }
    return 0;
}

static int middle_steps(int bits, int pairs) {
    return (bits - K_FFT_FIRST_BITS(bits, pairs) - K_FFT_LAST_BITS(bits, pairs)) / K_FFT_EACH_BITS;
}

/* One buffer where there is one exchange, else two. */
static size_t shared_bytes(mp_dtype type, int bits, int pairs, int group_bits) {
    const size_t row = 2 * mp_dtype_size(type) * (size_t)K_FFT_ROW(bits);
    return (middle_steps(bits, pairs) == 0 ? row : 2 * row) << group_bits;
}

static bool is_packed(const mp_spectrum *s) {
    return s->from.step == 1 && s->to.step == 1;
}

/* Of neighbouring rows; an instance counts in 32 bits how far an element is from the first. */
static bool is_across(const mp_spectrum *s) {
    return s->from.minor == 1 && s->to.minor == 1 &&
           MP_MAX(s->from.step, s->to.step) <= INT32_MAX >> K_FFT_ACROSS_MAX;
}

static bool has_instance(const mp_spectrum *s, int32_t pairs, int bits) {
    enum { WIDE_BITS_MAX = 12 }; /* of a lane's registers, a block has room for so many */
    return is_packed(s) ? s->type == MP_F32 || bits <= WIDE_BITS_MAX
                        : is_across(s) && pairs == K_FFT_PAIRS_NONE && s->type == MP_F32 &&
                              bits <= K_FFT_ACROSS_MAX;
}

/* Halves are read and written by the instances of floats. */
static bool has_types(const mp_spectrum *s) {
    return (s->x_type == s->type || s->x_type == MP_F16) &&
           (s->out_type == s->type || s->out_type == MP_F16);
}

static bool has_pairs(const mp_spectrum *s, int32_t pairs) {
    return pairs == K_FFT_PAIRS_IN
               ? mp_spectrum_is_even(s, &s->from) && s->have % 2 == 0
               : mp_spectrum_is_even(s, &s->to) && s->window.place == MP_PLACE_NONE;
}

static bool is_complex(const mp_spectrum *s) {
    return s->from.parts == 2 && s->to.parts == 2 && !s->hermitian && s->made == s->n &&
           s->window.place == MP_PLACE_NONE;
}

/* Rows of a block: at least as many as make a warp; more while all multiprocessors have plenty. */
static int packed_bits(const mp_planner *p, int64_t rows, int bits) {
    enum { WARP = 32, BLOCKS_PLENTY = 8 };
    const int64_t lanes = (int64_t)1 << (bits - K_FFT_EACH_BITS);
    const int64_t plenty = BLOCKS_PLENTY * (int64_t)p->device->info.multiprocessors;
    int group = 0;
    while (lanes << group < WARP ||
           (lanes << (group + 1) <= K_FFT_BLOCK_LANES && rows >> (group + 1) >= plenty)) {
        group++;
    }
    return group;
}

static int group_bits(const mp_planner *p, const mp_spectrum *s, int bits) {
    return is_packed(s) ? packed_bits(p, s->rows, bits) : K_FFT_ACROSS_BITS(bits);
}

bool mp_fft_power_fits(const mp_planner *p, const mp_spectrum *s, int32_t pairs) {
    const int bits = bits_of(length_of(s, pairs));
    return bits != 0 && has_instance(s, pairs, bits) && has_types(s) && p->align >= 16 &&
           (pairs == K_FFT_PAIRS_NONE ? is_complex(s) : has_pairs(s, pairs)) &&
           s->rows <= INT32_MAX &&
           shared_bytes(s->type, bits, pairs, group_bits(p, s, bits)) <=
               p->device->info.shared_bytes_max;
}

/* ---- the launch ---- */

/* A table of the factors of a step that makes transforms of 1 << (done + bits) elements of those of
 * 1 << done. */
static mp_status plan_table(mp_planner *p, mp_dtype type, int done, int bits, mp_ref *out) {
    const int64_t n = (int64_t)1 << (done + bits);
    const mp_roots_args args = {.n = n, .count = n, .step = 1, .columns = (int64_t)1 << done};
    return mp_plan_roots(p, type, &args, out);
}

static mp_status plan_tables(mp_planner *p, mp_dtype type, int bits, int pairs,
                             mp_ref out[K_FFT_TABLES]) {
    const int steps = middle_steps(bits, pairs);
    int done = K_FFT_FIRST_BITS(bits, pairs);
    for (int i = 0; i < steps; i++, done += K_FFT_EACH_BITS) {
        MP_TRY(plan_table(p, type, done, K_FFT_EACH_BITS, &out[i]));
    }
    return plan_table(p, type, done, bits - done, &out[steps]);
}

static mp_status plan_turns(mp_planner *p, const mp_spectrum *s, int32_t pairs, mp_ref *out) {
    const mp_roots_args args = {.n = s->n, .count = s->n / 2, .step = 1};
    return pairs == K_FFT_PAIRS_NONE ? MP_OK : mp_plan_roots(p, s->type, &args, out);
}

/* Where rows begin, in complex numbers or pairs. */
static void set_rows(const mp_spectrum *s, int32_t pairs, mp_fft_power_args *out) {
    const int64_t in = pairs == K_FFT_PAIRS_IN ? 2 : 1, made = pairs == K_FFT_PAIRS_OUT ? 2 : 1;
    out->from_major = s->from.major / in;
    out->from_minor = s->from.minor / in;
    out->to_major = s->to.major / made;
    out->to_minor = s->to.minor / made;
    out->from_step = (int32_t)s->from.step;
    out->to_step = (int32_t)s->to.step;
    out->rows = (int32_t)s->rows;
    out->minor_rows = (uint32_t)s->minor_rows;
    out->by_minor = mp_divider((uint32_t)s->minor_rows);
    out->have = (int32_t)(s->have / in);
}

static int32_t narrow(mp_dtype type) {
    return type == MP_F16 ? K_FFT_F16 : K_FFT_WIDE;
}

static mp_status plan_instance(mp_planner *p, const mp_spectrum *s, int32_t pairs, int bits,
                               const mp_kernel **out) {
    const char *word = mp_dtype_word(s->type);
    return is_packed(s) ? mp_plan_kernel(p, out, "fft_power_%d_%d_%s", bits, pairs, word)
                        : mp_plan_kernel(p, out, "fft_across_%d_%s", bits, word);
}

mp_status mp_plan_fft_power(mp_planner *p, const mp_spectrum *s, int32_t pairs) {
    const int bits = bits_of(length_of(s, pairs));
    const mp_kernel *kernel = NULL;
    mp_ref tables[K_FFT_TABLES] = {MP_NOWHERE, MP_NOWHERE, MP_NOWHERE, MP_NOWHERE};
    mp_ref turns = MP_NOWHERE;
    mp_fft_power_args power = {.scale = s->inverse ? 1 / (double)s->n : 1,
                               .group_bits = group_bits(p, s, bits),
                               .inverse = s->inverse,
                               .whole = pairs == K_FFT_PAIRS_IN && s->made == s->n,
                               .narrow_in = narrow(s->x_type),
                               .narrow_out = narrow(s->out_type)};
    set_rows(s, pairs, &power);
    MP_TRY(plan_tables(p, s->type, bits, pairs, tables));
    MP_TRY(plan_turns(p, s, pairs, &turns));
    const uint32_t lanes = 1u << (bits - K_FFT_EACH_BITS + power.group_bits);
    mp_grid grid = mp_plan_grid_rows(p, ((s->rows - 1) >> power.group_bits) + 1, lanes);
    grid.shared_bytes = (uint32_t)shared_bytes(s->type, bits, pairs, power.group_bits);
    MP_TRY(plan_instance(p, s, pairs, bits, &kernel));
    return MP_LAUNCH(p, kernel, grid, power, MP_BIND(mp_fft_power_args, x, s->x),
                     MP_BIND(mp_fft_power_args, window, s->window),
                     MP_BIND(mp_fft_power_args, roots[0], tables[0]),
                     MP_BIND(mp_fft_power_args, roots[1], tables[1]),
                     MP_BIND(mp_fft_power_args, roots[2], tables[2]),
                     MP_BIND(mp_fft_power_args, roots[3], tables[3]),
                     MP_BIND(mp_fft_power_args, turns, turns),
                     MP_BIND(mp_fft_power_args, out, s->out));
}
