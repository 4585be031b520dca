/* moe_order.cu - a few pairs in the order of their keys: each counts those before it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/quantize/moe_args.h"
#include "kernel/rows/sort_args.h"

K_KERNEL(mp_moe_order_args, args) {
    const k_pair *pairs = (const k_pair *)args.pairs;
    K_GRID_LOOP(i, args.routes) {
        const k_pair own = pairs[i];
        int64_t place = 0;
        for (int64_t j = 0; j < args.routes; j++) {
            const uint64_t key = pairs[j].key;
            place += key < own.key || (key == own.key && j < i);
        }
        ((k_pair *)args.sorted)[place] = own;
    }
}
