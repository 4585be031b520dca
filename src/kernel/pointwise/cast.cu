/* cast.cu - out[i] = x[i] in another element type. Bound by memory.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/pointwise/cast_value.h"
#include "kernel/pointwise/pointwise_args.h"

#define M_OUT U
typedef mp_pointwise1_args m_with;

K_FN U m_one(T element, const m_with *with) {
    (void)with;
    return c_cast(element);
}

#include "kernel/core/stream_map.h"

K_KERNEL(mp_pointwise1_args, args) {
    m_map((const T *)args.x, (U *)args.out, args.count, &args);
}
