/* mel.c - MelWeightMatrix: triangles over the bins of a spectrum, evenly spaced in mel. Which bins
 * they begin at is rounded down from a logarithm, so the host finds it: another library's last bit
 * would move a triangle.
 * Kernel: signal/mel_weights.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/signal/signal_args.h"
#include "op/core/families.h"
#include "op/core/host_float.h"
#include "op/core/host_input.h"
#include "op/core/upload_steps.h"

#include <math.h>
#include <stdlib.h>

enum { BANDS_MAX = 1 << 16 };

typedef struct mel {
    int64_t bands, length, rate;
    double low, high; /* hertz */
} mel;

static mp_status read_int(const mp_planner *p, int i, const char *what, int64_t least, int64_t most,
                          int64_t *out) {
    int count = 0;
    MP_TRY(mp_host_ints(p, i, what, 1, out, &count));
    return count == 1 && *out >= least && *out <= most
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT,
                         "%s is %lld in %d values; one from %lld to %lld is needed", what,
                         count == 1 ? (long long)*out : 0, count, (long long)least,
                         (long long)most);
}

static mp_status read_hertz(const mp_planner *p, int i, const char *what, double *out) {
    if (mp_shape_count(&p->in[i].shape) != 1) {
        return MP_FAIL(INVALID_ARGUMENT, "%s must be one value", what);
    }
    *out = mp_host_float(&p->in[i], 0);
    return *out >= 0 && *out <= 0x1p40
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "%s is %g; it must be at least 0 and at most 2^40", what,
                         *out);
}

static mp_status read_mel(const mp_planner *p, mel *out) {
    const int64_t most = INT32_MAX;
    MP_TRY(read_int(p, 0, "num_mel_bins", 0, BANDS_MAX, &out->bands));
    MP_TRY(read_int(p, 1, "dft_length", 1, most, &out->length));
    MP_TRY(read_int(p, 2, "sample_rate", 1, most, &out->rate));
    MP_TRY(read_hertz(p, 3, "lower_edge_hertz", &out->low));
    MP_TRY(read_hertz(p, 4, "upper_edge_hertz", &out->high));
    return out->low <= out->high
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "lower_edge_hertz %g is above upper_edge_hertz %g",
                         out->low, out->high);
}

/* ---- edges ---- */

static double mel_of(double hertz) {
    return 2595 * log10(1 + hertz / 700);
}

static uint64_t edge_at(const mel *m, int64_t i) {
    const double low = mel_of(m->low);
    const double step = (mel_of(m->high) - low) / (double)(m->bands + 2);
    const double hertz = 700 * (pow(10, ((double)i * step + low) / 2595) - 1);
    return (uint64_t)floor((double)(m->length + 1) * hertz / (double)m->rate);
}

static mp_status upload_edges(mp_planner *p, const mel *m, mp_ref *out) {
    const int64_t count = m->bands + 2;
    uint64_t *edges = calloc((size_t)count, sizeof *edges);
    if (edges == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for %lld edges",
                       (long long)count);
    }
    for (int64_t i = 0; i < count; i++) {
        edges[i] = edge_at(m, i);
    }
    const mp_status status = mp_plan_upload(p, edges, count, out);
    free(edges);
    return status;
}

static mp_status plan_mel(mp_planner *p) {
    const int64_t type = mp_node_int(p->node, "output_datatype", MP_F32);
    mel m = {.bands = 0};
    mp_ref edges = MP_NOWHERE;
    const mp_kernel *kernel = NULL;
    MP_TRY(read_mel(p, &m));
    if (type < 1 || type >= MP_DTYPE_END || (MP_BIT(type) & MP_NUMBERS) == 0) {
        return MP_FAIL(INVALID_ARGUMENT, "output_datatype %lld is not a type of numbers",
                       (long long)type);
    }
    const mp_mel_args args = {.bins = m.length / 2 + 1, .bands = m.bands, .type = (int32_t)type};
    const mp_shape shape = {.rank = 2, .dim = {args.bins, args.bands}};
    MP_TRY(mp_plan_output(p, 0, (mp_dtype)type, &shape));
    if (args.bands == 0) {
        return MP_OK;
    }
    MP_TRY(upload_edges(p, &m, &edges));
    MP_TRY(mp_plan_kernel(p, &kernel, "mel_weights"));
    return MP_LAUNCH(p, kernel, mp_plan_grid(p, args.bins * args.bands, 1), args,
                     MP_BIND(mp_mel_args, edge, edges), MP_BIND(mp_mel_args, out, MP_OUT(0)));
}

static const mp_attr_def attrs[] = {{"output_datatype", MP_ATTR_INT}, {NULL, 0}};

static const mp_op ops[] = {
    {.domain = "",
     .name = "MelWeightMatrix",
     .since = 17,
     .until = 17,
     .types = {{"T1", MP_BIT(MP_I32) | MP_BIT(MP_I64)}, {"T2", MP_FLOATS}, {"T3", MP_NUMBERS}},
     .host_in = 0x1f,
     .attrs = attrs,
     .plan = plan_mel},
};

const mp_op_family mp__family_mel = {"mel", ops, MP_COUNT_OF(ops)};
