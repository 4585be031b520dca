/* softmax_apart.cu - exp(x - max) / sum, or its logarithm, over rows whose elements lie `inner`
 * apart, so that rows are neighbours. A block takes some of these side by side, whose lanes read
 * what is side by side in memory, and gives each row several lanes, which meet in shared memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/rows/row_args.h"
#include "kernel/rows/softmax_end.h"

enum { AT_ONCE = 8 /* loads of a lane */ };

/* A row's elements from `first` on, `step` apart. */
typedef struct a_columns {
    int64_t first, step, end, inner;
} a_columns;

K_FN void a_load(const T *x, const a_columns *of, int64_t from, S *value) {
    K_UNROLL for (int32_t i = 0; i < AT_ONCE; i++) {
        const int64_t c = from + i * of->step;
        value[i] = c < of->end ? (S)T_load(x[c * of->inner]) : -(S)K_INF;
    }
}

K_FN s_total a_both(s_total a, s_total b) {
    s_total both;
    both.largest = s_larger(a.largest, b.largest);
    const S base = s_base(both.largest);
    both.sum = a.sum == 0 ? 0 : a.sum * s_exp(a.largest - base);
    both.sum += b.sum == 0 ? 0 : b.sum * s_exp(b.largest - base);
    return both;
}

K_FN s_total a_total(const T *x, const a_columns *of) {
    s_total all = {-(S)K_INF, 0};
    for (int64_t c = of->first; c < of->end; c += of->step * AT_ONCE) {
        S value[AT_ONCE];
        s_total some = {-(S)K_INF, 0};
        a_load(x, of, c, value);
        K_UNROLL for (int32_t i = 0; i < AT_ONCE; i++) {
            some.largest = s_larger(some.largest, value[i]);
        }
        const S base = s_base(some.largest);
        K_UNROLL for (int32_t i = 0; i < AT_ONCE; i++) {
            some.sum += s_exp(value[i] - base);
        }
        all = a_both(all, some);
    }
    return all;
}

K_FN void a_write(const T *x, T *out, const a_columns *of, s_end end) {
    for (int64_t c = of->first; c < of->end; c += of->step * AT_ONCE) {
        S value[AT_ONCE];
        a_load(x, of, c, value);
        K_UNROLL for (int32_t i = 0; i < AT_ONCE; i++) {
            const int64_t at = c + i * of->step;
            const S kept = S_IS_LOG ? value[i] : s_exp(value[i] - end.base);
            if (at < of->end) {
                out[at * of->inner] = s_result(kept, end);
            }
        }
    }
}

K_BLOCK_KERNEL_UP_TO(K_ROW_LANES_MAX, mp_softmax_args, args) {
    K_SHARED(s_total, slots);
    const uint32_t wanted = (uint32_t)args.width; /* rows side by side */
    const uint32_t beside = wanted < blockDim.x ? wanted : blockDim.x;
    const uint32_t at = threadIdx.x % beside, lanes = blockDim.x / beside;
    const int64_t step = (int64_t)gridDim.x * beside;
    for (int64_t first = (int64_t)blockIdx.x * beside; first < args.rows; first += step) {
        const int64_t row = first + at < args.rows ? first + at : first;
        const int64_t outer = row / args.inner;
        const int64_t start = outer * args.columns * args.inner + (row - outer * args.inner);
        const T *x = (const T *)args.x + start;
        a_columns of;
        of.first = threadIdx.x / beside;
        of.step = lanes;
        of.end = first + at < args.rows ? args.columns : 0;
        of.inner = args.inner;
        slots[threadIdx.x] = a_total(x, &of);
        __syncthreads();
        s_total all = slots[at];
        for (uint32_t i = 1; i < lanes; i++) {
            all = a_both(all, slots[i * beside + at]);
        }
        a_write(x, (T *)args.out + start, &of, s_end_from(all.largest, all.sum, 1));
        __syncthreads();
    }
}
