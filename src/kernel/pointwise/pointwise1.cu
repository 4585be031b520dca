/* pointwise1.cu - out[i] = f(x[i]). Bound by memory: one read and one write an element.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pointwise/pointwise.h"
#include "kernel/pointwise/pointwise_args.h"

#define M_OUT P_OUT
typedef mp_pointwise1_args m_with;

K_FN P_OUT m_one(T element, const m_with *with) {
    const TC x = T_load(element);
    const float a = with->a, b = with->b;
    (void)a;
    (void)b;
    return P_STORE(K_EXPRESSION);
}

#include "kernel/core/stream_map.h"

K_KERNEL(mp_pointwise1_args, args) {
    m_map((const T *)args.x, (P_OUT *)args.out, args.count, &args);
}
