/* integer_rows_cut.c - see integer_rows_cut.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/quantize/integer_rows_cut.h"

#include "base/macros.h"
#include "kernel/quantize/integer_rows_args.h"

#include <stddef.h>

#define CUT(rows, columns, split, lanes, blocks) \
    { (rows), (columns), (split), (lanes), K_INTEGER_ROWS_SHARED(rows, columns, split), (blocks) }

/* As kernels.txt has them. */
static const mp_integer_rows_cut cuts[] = {
    CUT(128, 128, 1, 256, 2), CUT(128, 64, 1, 128, 3), CUT(64, 64, 2, 256, 2),
    CUT(64, 32, 4, 256, 2),   CUT(32, 32, 8, 256, 2),
};

/* In clocks of a multiprocessor, and bytes or products of one. */
enum {
    BEGIN = 2000,      /* until the first stage is there, and from the last sum to its result */
    RESULT = 120,      /* of what the block's lanes write at once */
    STAGE_LEAST = 300, /* however small */
    PRODUCTS = 2600,
    BYTES = 44, /* from the cache that all share */
};

static int64_t clocks_of(const mp_integer_rows_cut *cut, int64_t rows, int64_t columns, int64_t k,
                         int32_t multiprocessors) {
    const int64_t tiles = MP_CEIL_DIV(rows, cut->rows) * MP_CEIL_DIV(columns, cut->columns);
    const int64_t chunks = MP_CEIL_DIV(k, K_INTEGER_ROWS_CHUNK);
    const int64_t stages = MP_CEIL_DIV(chunks, cut->split);
    const int64_t each = MP_CEIL_DIV(tiles, multiprocessors);
    const int64_t turns = MP_CEIL_DIV(each, cut->blocks_each);
    const int64_t products =
        (int64_t)cut->rows * cut->columns * K_INTEGER_ROWS_CHUNK * cut->split / PRODUCTS;
    const int64_t bytes =
        (int64_t)(cut->rows + cut->columns) * K_INTEGER_ROWS_CHUNK * cut->split / BYTES;
    const int64_t stage = MP_MAX(products, bytes);
    const int64_t results = (int64_t)cut->rows * cut->columns / 4 / cut->lanes;
    return turns * (BEGIN + results * RESULT) +
           MP_MAX(each * stages * stage, turns * stages * STAGE_LEAST);
}

const mp_integer_rows_cut *mp_integer_rows_cut_for(int64_t rows, int64_t columns, int64_t k,
                                                   bool by_eight, int32_t multiprocessors) {
    const mp_integer_rows_cut *best = NULL;
    int64_t least = INT64_MAX;
    for (size_t i = by_eight ? 1 : 0; i < MP_COUNT_OF(cuts); i++) { /* the first has no such */
        const int64_t clocks = clocks_of(&cuts[i], rows, columns, k, multiprocessors);
        if (best == NULL || clocks < least) {
            least = clocks;
            best = &cuts[i];
        }
    }
    return best;
}
