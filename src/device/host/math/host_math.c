/* host_math.c - library math of the emulated device: descriptions are checked, then kept.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/math/host_math.h"

#include "base/clock.h"
#include "device/host/host_work.h"
#include "device/kernel_record.h"
#include "device/rank/rank_group.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- preparing ---- */

static mp_status open_math(host_device *host, const char *what, mp_dtype type, mp_math **out) {
    MP_TRY(mp__host_object_create(host, HOST_MATH, sizeof(mp_math), out));
    (void)snprintf((*out)->name, sizeof(*out)->name, "%s_%s", what, mp_dtype_word(type));
    return MP_OK;
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
    if (gemm->activation != MP_ACTIVATION_NONE) {
        return MP_FAIL(UNSUPPORTED, "a matrix product here ends with its bias");
    }
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
    MP_TRY(open_math(host, "gemm", gemm->type, out));
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

mp_status mp__host_conv_prepare(mp_device *self, const mp_conv *conv, mp_math **out, bool *whole) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "conv_prepare"));
    MP_TRY(check_conv(conv));
    if (mp_conv_is_apart(conv)) {
        return MP_FAIL(UNSUPPORTED, "no convolution takes pixels that lie apart");
    }
    MP_TRY(open_math(host, "conv", conv->type, out));
    (*out)->kind = HOST_CONV;
    (*out)->conv = *conv;
    *whole = !mp_conv_has_epilogue(conv);
    return MP_OK;
}

mp_status mp__host_collective_prepare(mp_device *self, const mp_collective *what, mp_math **out) {
    host_device *host = mp__host_from(self);
    MP_TRY(mp__host_call(host, "collective_prepare"));
    MP_TRY(mp__group_check_work(what));
    MP_TRY(open_math(host, mp_collective_name(what->kind), what->type, out));
    (*out)->kind = HOST_COLLECTIVE;
    (*out)->collective = *what;
    return MP_OK;
}

size_t mp__host_math_workspace(mp_device *self, const mp_math *math) {
    (void)self;
    return math->kind == HOST_CONV ? mp__host_conv_workspace(&math->conv) : 0;
}

void mp__host_math_release(mp_device *self, mp_math *math) {
    mp__host_object_destroy(mp__host_from(self), &math->object);
}

/* ---- running ---- */

static mp_status collective_now(host_device *host, const mp_collective *what,
                                const mp_addr *operands) {
    if (mp_kernel_record_on()) { /* nobody looks at values, and other ranks are not there */
        memset((void *)operands[MP_COLLECTIVE_TARGET], 0,
               (size_t)what->count * mp_dtype_size(what->type) *
                   (what->kind == MP_ALL_GATHER ? (size_t)MP_MAX(what->group, 1) : 1));
        return MP_OK;
    }
    return mp__host_ranks_run(host, what, operands);
}

static mp_status math_now(host_device *host, const mp_math *math, const mp_addr *operands,
                          mp_addr workspace) {
    switch (math->kind) {
    case HOST_GEMM:
        return mp__host_gemm_run(&math->gemm, operands);
    case HOST_CONV:
        return mp__host_conv_run(&math->conv, operands, workspace);
    case HOST_COLLECTIVE:
        return collective_now(host, &math->collective, operands);
    }
    return MP_FAIL(INTERNAL, "library math of unknown kind %d", (int)math->kind);
}

static bool run_item(host_device *host, host_queue *queue, host_item *item) {
    if (math_now(host, item->math.math, item->math.operands, item->math.workspace) != MP_OK) {
        mp__host_breach(host, "library math on stream %u failed: %s", queue->number,
                        mp_error_message());
    }
    return true;
}

static host_object *run_math_object(const host_item *item) {
    return &item->math.math->object;
}

static bool math_references(const host_item *item, host_reference_fn *fn, void *context) {
    for (size_t i = 0; i < MP_MATH_OPERANDS_MAX; i++) {
        if (fn(context, item, (host_reference){.addr = item->math.operands[i], .size = 1})) {
            return true;
        }
    }
    return fn(context, item, (host_reference){.addr = item->math.workspace, .size = 1});
}

static const char *math_word(const host_item *item) {
    static const char *const words[] = {"a matrix product", "a convolution",
                                        "a collective operation"};
    return words[item->math.math->kind];
}

static size_t operand_count(const mp_math *math) {
    static const size_t counts[] = {MP_GEMM_OPERANDS, MP_CONV_OPERANDS, MP_COLLECTIVE_OPERANDS};
    return counts[math->kind];
}

static void describe_math(host_device *host, const host_item *item, mp_profile_record *record) {
    const mp_math *math = item->math.math;
    (void)host;
    record->name = math->name;
    for (int i = 0; i < 3; i++) {
        record->grid[i] = record->block[i] = 1;
    }
}

static const host_item_kind math_kind = {
    .run = run_item,
    .object = run_math_object,
    .references = math_references,
    .name = math_word,
    .describe = describe_math,
};

/* At once, so that a failure is this call's. */
static mp_status run_eager(host_device *host, const host_queue *queue, mp_math *math,
                           const mp_addr *operands, mp_addr workspace) {
    if (!mp__host_profiled(host)) {
        return math_now(host, math, operands, workspace);
    }
    host_item item = {.kind = &math_kind, .math = {.math = math}};
    mp__host_profile_mark(&item);
    const int64_t begin = mp_clock_ns();
    MP_TRY(math_now(host, math, operands, workspace));
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
    host_item item = {.kind = &math_kind, .math = {.math = math, .workspace = workspace}};
    memcpy(item.math.operands, operands, operand_count(math) * sizeof *operands);
    if (math->kind == HOST_GEMM && math->gemm.beta == 0) {
        item.math.operands[MP_GEMM_D] = 0; /* unused, and maybe stale */
    }
    return mp__host_enqueue(host, stream->queue, &item);
}
