/* upload.cu - writes numbers that came as arguments.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/core/prelude.h"
#include "kernel/core/upload_args.h"

K_KERNEL(mp_upload_args, args) {
    K_GRID_LOOP(i, args.count) {
        args.out[i] = args.word[i];
    }
}
