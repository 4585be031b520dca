/* host_conv_run.c - which convolution it is: forward or transposed, with channels first or last.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/host/host_conv.h"

#include "base/worker.h"

static mp_conv channels_first(const mp_conv *conv) {
    mp_conv first = *conv;
    first.channels_last = false;
    return first;
}

/* Narrow weights are widened once a run. */
static size_t wide_size(const mp_conv *conv) {
    const conv_shape s = mp__host_conv_shape(conv);
    return s.real->direct ? 0
                          : (size_t)(conv->in_channels * s.group_out * s.taps) * s.real->real_size;
}

size_t mp__host_conv_workspace(const mp_conv *conv) {
    return wide_size(conv) + (conv->channels_last ? mp__host_conv_last_size(conv) : 0);
}

typedef struct widening {
    const host_real *real;
    char *to;
    const char *from;
} widening;

static void widen_part(void *context, size_t begin, size_t end) {
    const widening *w = context;
    w->real->load(w->to + begin * w->real->real_size, w->from + begin * w->real->size, end - begin,
                  1);
}

static mp_status run_first(const mp_conv *conv, const mp_addr *operands, mp_addr workspace) {
    const conv_shape shape = mp__host_conv_shape(conv);
    const char *x = (const char *)operands[MP_CONV_X];
    const char *w = (const char *)operands[MP_CONV_W];
    const char *bias = conv->bias ? (const char *)operands[MP_CONV_BIAS] : NULL;
    char *y = (char *)operands[MP_CONV_Y];
    if (!shape.real->direct) {
        widening wide = {.real = shape.real, .to = (char *)workspace, .from = w};
        const size_t count = (size_t)(conv->in_channels * shape.group_out * shape.taps);
        mp_worker_run(count, (size_t)1 << 15, widen_part, &wide);
        w = wide.to;
    }
    return conv->transposed ? mp__host_conv_transposed(&shape, x, w, bias, y)
                            : mp__host_conv_forward(&shape, x, w, bias, y);
}

mp_status mp__host_conv_run(const mp_conv *conv, const mp_addr *operands, mp_addr workspace) {
    if (!conv->channels_last) {
        return run_first(conv, operands, workspace);
    }
    const mp_conv first = channels_first(conv);
    mp_addr own[MP_CONV_OPERANDS];
    mp__host_conv_last_begin(conv, operands, workspace, own);
    MP_TRY(run_first(&first, own, workspace + mp__host_conv_last_size(conv)));
    mp__host_conv_last_end(conv, own, operands);
    return MP_OK;
}
