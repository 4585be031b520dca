/* ngram_block.cu - a lane for each place in each sequence: if the tokens from there on are those
 * that the sequence ends with, the one that followed them may not follow again. A token that is not
 * in the vocabulary, which only a broken model has, is left out.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/move/indexed_args.h"

K_KERNEL(mp_ngram_args, args) {
    K_GRID_LOOP(i, args.batch * args.places) {
        const int64_t row = i / args.places;
        const int64_t *ids = args.ids + row * args.length;
        const int64_t *here = ids + (i - row * args.places);
        const int64_t *end = ids + args.length - (args.size - 1);
        int64_t same = 0;
        while (same < args.size - 1 && here[same] == end[same]) {
            same++;
        }
        const int64_t token = here[args.size - 1];
        if (same == args.size - 1 && token >= 0 && token < args.vocabulary) {
            args.out[row * args.vocabulary + token] = -K_INF;
        }
    }
}
