/* fold.cpp - inputs of one size folded as a GPU reads them: in packs, and what is left behind.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/fold.cu"
#include "lanes.h"

namespace {

void check_fold(int32_t inputs, int64_t count, size_t skew, bool goes_on, int32_t mean_of) {
    std::vector<Buffer<T>> x;
    mp_fold_args args = {};
    for (int32_t v = 0; v < inputs; v++) {
        x.emplace_back((size_t)count + 1, skew);
        for (int64_t i = 0; i <= count; i++) {
            x[(size_t)v][(size_t)i] = T_store((TC)((i * 7 + v * 5) % 32));
        }
    }
    std::vector<double> want((size_t)count);
    for (int64_t i = 0; i < count; i++) {
        for (int32_t v = 0; v < inputs; v++) {
            const double value = T_load(x[(size_t)v][(size_t)i]);
            const double share = mean_of > 0 && !(goes_on && v == 0) ? 1.0 / mean_of : 1;
            double &all = want[(size_t)i];
            all = F_HOW == F_sum   ? all + value * share
                  : v == 0         ? value
                  : F_HOW == F_max ? std::fmax(all, value)
                                   : std::fmin(all, value);
        }
    }
    for (int32_t v = 0; v < inputs; v++) {
        args.in[v] = x[(size_t)v].data();
    }
    args.out = x[0].data(); /* an element that is visited twice would be seen */
    args.count = count;
    args.inputs = inputs;
    args.whole = skew == 0;
    args.goes_on = goes_on;
    args.mean_of = mean_of;
    run_blocks(2, 32, [&] { fold(args); });
    for (int64_t i = 0; i < count; i++) {
        check(std::fabs((double)T_load(x[0][(size_t)i]) - want[(size_t)i]) <=
                  1e-3 * want[(size_t)i],
              "an element", i);
    }
    check((double)T_load(x[0][(size_t)count]) == (double)(TC)(count * 7 % 32), "what is behind",
          count);
}

} // namespace

void run_tests() {
    for (int32_t inputs = 2; inputs <= K_FOLD_INPUTS; inputs++) {
        check_fold(inputs, 1, 0, false, 0);
        check_fold(inputs, 1007, 0, false, F_HOW == F_sum ? inputs : 0);
        check_fold(inputs, 333, 1, true, F_HOW == F_sum ? 12 : 0);
    }
}
