/* host_math.c - library math of the emulated device: descriptions are checked, then kept.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_math.h"

#include "device/host/host_internal.h"
#include "device/profile.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- scratch memory ---- */

typedef struct scratch {
    void *memory; /* owned */
    size_t size;
} scratch;

static _Thread_local scratch mine;
static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static bool key_made;

static void make_key(void) {
    key_made = pthread_key_create(&key, free) == 0;
}

void *mp__host_scratch(size_t size) {
    if (size <= mine.size) {
        return mine.memory;
    }
    (void)pthread_once(&key_once, make_key);
    void *fresh = NULL;
    if (!key_made || posix_memalign(&fresh, 64, size) != 0) {
        return NULL;
    }
    free(mine.memory);
    mine = (scratch){.memory = fresh, .size = size};
    (void)pthread_setspecific(key, fresh);
    return fresh;
}

/* ---- preparing ---- */

static mp_status open_math(host_device *host, mp_math **out) {
    return mp__host_object_create(host, HOST_MATH, sizeof(mp_math), out);
}

static mp_status check_type(mp_dtype type, const char *what) {
    if (mp__host_real(type) == NULL) {
        return MP_FAIL(UNSUPPORTED, "%s of %s on the emulated device", what, mp_dtype_name(type));
    }
    return MP_OK;
}

mp_status mp__host_gemm_prepare(mp_device *self, const mp_gemm *gemm, mp_math **out) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "gemm_prepare"));
    MP_TRY(check_type(gemm->type, "matrix products"));
    const int64_t row_a = gemm->trans_a ? gemm->m : gemm->k;
    const int64_t row_b = gemm->trans_b ? gemm->k : gemm->n;
    if (gemm->m < 1 || gemm->n < 1 || gemm->k < 0 || gemm->batch < 1 || gemm->lda < row_a ||
        gemm->ldb < row_b || gemm->ldc < gemm->n) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "matrix product of m %" PRId64 ", n %" PRId64 ", k %" PRId64
                       ", batch %" PRId64 " with rows of %" PRId64 ", %" PRId64 " and %" PRId64
                       " elements",
                       gemm->m, gemm->n, gemm->k, gemm->batch, gemm->lda, gemm->ldb, gemm->ldc);
    }
    MP_TRY(open_math(host, out));
    (*out)->gemm = *gemm;
    return MP_OK;
}

static mp_status check_conv(const mp_conv *conv) {
    MP_TRY(check_type(conv->type, "convolutions"));
    if (conv->spatial < 1 || conv->spatial > MP_CONV_SPATIAL_MAX || conv->batch < 1 ||
        conv->in_channels < 1 || conv->out_channels < 1 || conv->groups < 1 ||
        conv->in_channels % conv->groups != 0 || conv->out_channels % conv->groups != 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "convolution of batch %" PRId64 " with %d spatial dimensions, %" PRId64
                       " and %" PRId64 " channels in %" PRId64 " groups",
                       conv->batch, (int)conv->spatial, conv->in_channels, conv->out_channels,
                       conv->groups);
    }
    for (int32_t i = 0; i < conv->spatial; i++) {
        if (conv->in[i] < 1 || conv->out[i] < 1 || conv->kernel[i] < 1 || conv->stride[i] < 1 ||
            conv->dilation[i] < 1) {
            return MP_FAIL(INVALID_ARGUMENT,
                           "convolution with input %" PRId64 ", output %" PRId64 ", kernel %" PRId64
                           ", stride %" PRId64 " and dilation %" PRId64 " in dimension %d",
                           conv->in[i], conv->out[i], conv->kernel[i], conv->stride[i],
                           conv->dilation[i], (int)i);
        }
    }
    return MP_OK;
}

mp_status mp__host_conv_prepare(mp_device *self, const mp_conv *conv, mp_math **out) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "conv_prepare"));
    MP_TRY(check_conv(conv));
    MP_TRY(open_math(host, out));
    (*out)->is_conv = true;
    (*out)->conv = *conv;
    return MP_OK;
}

size_t mp__host_math_workspace(mp_device *self, const mp_math *math) {
    (void)self;
    return math->is_conv ? mp__host_conv_workspace(&math->conv) : 0;
}

void mp__host_math_release(mp_device *self, mp_math *math) {
    mp__host_object_destroy(mp__host_from(self), &math->object);
}

/* ---- running ---- */

mp_status mp__host_math_now(const mp_math *math, const mp_addr *operands, mp_addr workspace) {
    return math->is_conv ? mp__host_conv_run(&math->conv, operands, workspace)
                         : mp__host_gemm_run(&math->gemm, operands);
}

/* At once, so that a failure is this call's. */
static mp_status run_eager(host_device *host, const host_queue *queue, mp_math *math,
                           const mp_addr *operands, mp_addr workspace) {
    if (!mp__host_profiled(host)) {
        return mp__host_math_now(math, operands, workspace);
    }
    host_item item = {.kind = HOST_RUN_MATH, .math = {.math = math}};
    mp__host_profile_mark(&item);
    const int64_t begin = mp_profile_now();
    MP_TRY(mp__host_math_now(math, operands, workspace));
    mp__host_profile_tell(host, queue, &item, NULL, begin);
    return MP_OK;
}

mp_status mp__host_math_run(mp_device *self, mp_stream *stream, mp_math *math,
                            const mp_addr *operands, mp_addr workspace) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "math_run"));
    if (host->config.mode == MP_HOST_EAGER && stream->queue->capture == NULL) {
        return run_eager(host, stream->queue, math, operands, workspace);
    }
    host_item item = {.kind = HOST_RUN_MATH, .math = {.math = math, .workspace = workspace}};
    const size_t count = math->is_conv ? MP_CONV_OPERANDS : MP_GEMM_OPERANDS;
    memcpy(item.math.operands, operands, count * sizeof *operands);
    if (!math->is_conv && math->gemm.beta == 0) {
        item.math.operands[MP_GEMM_D] = 0; /* unused, and maybe stale */
    }
    return mp__host_enqueue(host, stream->queue, &item);
}
