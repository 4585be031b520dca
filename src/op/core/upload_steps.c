/* upload_steps.c - tables of numbers known while planning.
 * Kernel: core/upload.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/upload_steps.h"
#include "kernel/core/upload_args.h"
#include "op/core/table_cache.h"

#include <string.h>

static mp_status copy_words(const void *words, mp_device *device, mp_stream *stream, mp_addr out,
                            size_t size) {
    return device->ops->copy(device, stream, out, (mp_addr)words, size);
}

/* As kernel arguments, so that a captured graph holds them and nothing waits. */
static mp_status upload_in_runs(mp_planner *p, const uint64_t *words, int64_t count, mp_ref *out) {
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

mp_status mp_plan_upload(mp_planner *p, const uint64_t *words, int64_t count, mp_ref *out) {
    size_t size = 0;
    MP_TRY(mp_plan_bytes(count, MP_U64, &size));
    if (size > 0) {
        const mp_table table = {.fill = copy_words,
                                .context = words,
                                .key = words,
                                .key_size = size,
                                .size = size,
                                .copied = true};
        MP_TRY(mp_plan_table(p, &table, out));
        if (out->place == MP_PLACE_TABLE) {
            return MP_OK;
        }
    }
    return upload_in_runs(p, words, count, out);
}
