/* padding_places.cu - which row goes where as padding is removed: first the rows that stay, then
 * the others, as RemovePadding lists them; or the inverse of such a list, in which a place that no
 * row has keeps what it was.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/attention/attention_args.h"
#include "kernel/core/prelude.h"

K_KERNEL(mp_padding_args, args) {
    if (args.inverse) {
        const int32_t *places = (const int32_t *)args.x[0];
        K_GRID_LOOP(i, args.given) {
            const int64_t at = places[i];
            if (at >= 0 && at < args.rows) {
                args.places[at] = (int32_t)i;
            }
        }
        return;
    }
    const int64_t total = args.starts[args.batch];
    K_GRID_LOOP(i, args.batch * args.length) {
        const int64_t entry = i / args.length, row = i - entry * args.length;
        const int64_t start = args.starts[entry];
        const int64_t count = args.starts[entry + 1] - start;
        const int64_t padding = total + entry * args.length - start; /* before this entry */
        args.places[row < count ? start + row : padding + row - count] = (int32_t)i;
    }
}
