/* upload_steps.c - tables as kernel arguments. SPDX-License-Identifier: Apache-2.0 */
#include "op/upload_steps.h"
#include "kernel/upload_args.h"

#include <string.h>

mp_status mp_plan_upload(mp_planner *p, const uint64_t *words, int64_t count, mp_ref *out) {
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_scratch_of(p, count, MP_U64, out));
    MP_TRY(mp_plan_kernel(p, &kernel, "upload"));
    for (int64_t done = 0; done < count; done += K_UPLOAD_WORDS) {
        const int64_t rest = count - done;
        mp_upload_args args = {.count = rest < K_UPLOAD_WORDS ? rest : K_UPLOAD_WORDS};
        memcpy(args.word, words + done, (size_t)args.count * sizeof *words);
        MP_TRY(MP_LAUNCH(
            p, kernel, mp_plan_grid(p, args.count, 1), args,
            MP_BIND(mp_upload_args, out, mp_ref_at(*out, (uint64_t)done * sizeof *words))));
    }
    return MP_OK;
}
