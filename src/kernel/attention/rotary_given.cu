/* rotary_given.cu - rotary positions from the angles themselves, with the turned half of each head
 * given beside it. Cosine and sine are rounded to the type of the heads before they are used, as
 * the operators that this stands for do. A lane keeps them for several heads.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention_args.h"
#include "kernel/core/prelude.h"

K_KERNEL(mp_rotary_given_args, args) {
    const int64_t plane = args.rows * args.size, all = args.heads[0] + args.heads[1];
    K_GRID_LOOP(i, args.batch * args.groups * plane) {
        const int64_t line = i / plane, at = i - line * plane;
        const int64_t entry = line / args.groups, first = (line - entry * args.groups) * args.group;
        const int64_t end = first + args.group < all ? first + args.group : all;
        const float angle = ((const float *)args.angle)[entry * plane + at];
        const float cosine = T_load(T_store(cosf(angle))), sine = T_load(T_store(sinf(angle)));
        for (int64_t head = first; head < end; head++) {
            const int kind = head >= args.heads[0];
            const int64_t own = kind ? head - args.heads[0] : head;
            const int64_t e = (entry * args.heads[kind] + own) * plane + at;
            const float x = T_load(((const T *)args.x[kind])[e]);
            const float turned = T_load(((const T *)args.turned[kind])[e]);
            ((T *)args.out[kind])[e] = T_store(x * cosine + turned * sine);
        }
    }
}
