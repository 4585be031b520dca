/* cuda_ahead.c - each kernel is brought as mp__cuda_kernel_ready brings it on a GPU, except that
 * nothing is loaded: from the package, or from the cache, or from the compiler.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_ahead.h"

#include "base/worker.h"
#include "device/cuda/cuda_jit.h"
#include "device/cuda/cuda_ready.h"
#include "device/kernel_record.h"

#include <stdlib.h>

typedef enum outcome { FAILED, READY, CACHED, COMPILED, OUTCOMES } outcome;

typedef struct making {
    int arch;
    size_t count;
    const mp_kernel_image **images; /* owned */
    outcome *outcomes;              /* owned; of each image */
} making;

static mp_status make(const mp_kernel_image *image, int arch, outcome *out) {
    cuda_blob code = {0};
    bool found = false;
    if (mp__cuda_ready_load(image, arch, &code)) {
        free(code.data);
        *out = READY;
        return MP_OK;
    }
    MP_TRY(mp__cuda_build_kept(image, arch, &found));
    *out = found ? CACHED : COMPILED;
    return MP_OK;
}

static void make_some(void *context, size_t begin, size_t end) {
    making *m = context;
    for (size_t i = begin; i < end; i++) {
        if (make(m->images[i], m->arch, &m->outcomes[i]) != MP_OK) {
            m->outcomes[i] = FAILED;
        }
    }
}

/* The sentence of an error belongs to a thread, so what failed is tried once more on this one. */
static mp_status make_failed(making *m) {
    for (size_t i = 0; i < m->count; i++) {
        if (m->outcomes[i] == FAILED) {
            MP_TRY(make(m->images[i], m->arch, &m->outcomes[i]));
        }
    }
    return MP_OK;
}

static mp_status check_arch(int arch) {
    int archs[CUDA_ARCHS_MAX];
    int count = 0;
    MP_TRY(mp__cuda_compiler_archs(archs, &count));
    for (int i = 0; i < count; i++) {
        if (archs[i] == arch) {
            return MP_OK;
        }
    }
    return MP_FAIL(INVALID_ARGUMENT, "this NVRTC does not compile for compute capability %d.%d",
                   arch / 10, arch % 10);
}

/* The record, which may have grown since it was counted, and the device's own kernels. */
static mp_status collect(making *m) {
    size_t own = 0;
    const mp_kernel_image *brought = mp__cuda_own_images(&own);
    const size_t room = mp_kernel_record_list(NULL, 0);
    m->images = calloc(room + own, sizeof *m->images);
    m->outcomes = calloc(room + own, sizeof *m->outcomes);
    if (m->images == NULL || m->outcomes == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a list of %zu kernels",
                       room + own);
    }
    m->count = MP_MIN(mp_kernel_record_list(m->images, room), room);
    for (size_t i = 0; i < own; i++) {
        m->images[m->count++] = &brought[i];
    }
    return MP_OK;
}

static cuda_ahead_counts counts_of(const making *m) {
    int32_t counts[OUTCOMES] = {0};
    for (size_t i = 0; i < m->count; i++) {
        counts[m->outcomes[i]]++;
    }
    return (cuda_ahead_counts){.all = (int32_t)m->count,
                               .ready = counts[READY],
                               .cached = counts[CACHED],
                               .compiled = counts[COMPILED],
                               .failed = counts[FAILED]};
}

mp_status mp__cuda_ahead(int arch, cuda_ahead_counts *out) {
    making m = {.arch = arch};
    *out = (cuda_ahead_counts){0};
    MP_TRY(check_arch(arch));
    mp_status status = collect(&m);
    if (status == MP_OK) {
        mp_worker_run(m.count, 1, make_some, &m);
        status = make_failed(&m);
        *out = counts_of(&m);
    }
    free(m.images);
    free(m.outcomes);
    return status;
}
