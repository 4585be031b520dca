/* unique_write.cu - what is known of each group of equal slices, and of each slice.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/rows/sort_args.h"

/* How many of the sorted `list` are below `value`. */
K_FN int64_t count_below(const int64_t *list, int64_t size, int64_t value) {
    int64_t low = 0, high = size;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (list[middle] < value) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

K_FN void write_slice(const mp_unique_write_args *args, int64_t i) {
    const int64_t group = count_below(args->heads, args->groups, i + 1) - 1;
    const int64_t head = args->heads[group], first = args->pairs[head].index;
    const int64_t at = args->first ? count_below(args->first, args->groups, first) : group;
    if (args->inverse) {
        args->inverse[args->pairs[i].index] = at;
    }
    if (head != i) {
        return;
    }
    const int64_t end = group + 1 < args->groups ? args->heads[group + 1] : args->slices;
    args->places[at] = first;
    if (args->indices) {
        args->indices[at] = first;
    }
    if (args->counts) {
        args->counts[at] = end - head;
    }
}

K_KERNEL(mp_unique_write_args, args) {
    if (args.stage == K_UNIQUE_START) {
        K_GRID_LOOP(i, args.slices) { /* here all pairs of the network */
            args.pairs[i].key = 0;
            args.pairs[i].index = i < args.groups ? i : -1;
        }
    } else if (args.stage == K_UNIQUE_MARK) {
        K_GRID_LOOP(g, args.groups) {
            args.marks[args.pairs[args.heads[g]].index] = 1;
        }
    } else {
        K_GRID_LOOP(i, args.slices) {
            write_slice(&args, i);
        }
    }
}
