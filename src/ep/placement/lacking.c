/* lacking.c - operators of com.microsoft that ONNX Runtime has no kernel for but in providers of
 * GPUs. A model that holds one cannot run beside the CPU provider alone, and what ONNX Runtime says
 * then is about its own insides; so the operator is named first.
 *
 * ONNX Runtime does not tell which kernels other providers have: this list is compared with the
 * installed version by tests/ep/test_placement.py. Those that we have ourselves are left out.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/placement/lacking.h"

#include "base/log.h"
#include "base/macros.h"
#include "ep/session/plugin.h"

#include <assert.h>
#include <string.h>

/* clang-format off */
static const char *const names[] = {
    "DequantizeBFP",
    "EPContext",
    "FusedMatMulActivation",
    "GemmFastGelu",
    "IsAllFinite",
    "MatMulNBitsMlp",
    "MatMulNBitsQkv",
    "MulInteger",
    "QLinearReduceMean",
    "QuantizeBFP",
    "ReduceSumInteger",
    "Snpe",
    "TorchEmbedding",
};
/* clang-format on */

static_assert(MP_COUNT_OF(names) <= 64, "told has a bit for each");

/* The place of `name`; the number of names where it is none of them. */
static size_t place_of(const char *domain, const char *name) {
    size_t i = strcmp(domain, "com.microsoft") == 0 ? 0 : MP_COUNT_OF(names);
    while (i < MP_COUNT_OF(names) && strcmp(names[i], name) != 0) {
        i++;
    }
    return i;
}

bool mp__lacks_cpu_kernel(const char *domain, const char *name) {
    return place_of(domain, name) < MP_COUNT_OF(names);
}

mp_status mp__lacking_note(const OrtNode *node, uint64_t *told) {
    const char *type = NULL;
    const char *domain = NULL;
    const char *name = NULL;
    MP_TRY(mp__from_ort(ORT->Node_GetOperatorType(node, &type)));
    MP_TRY(mp__from_ort(ORT->Node_GetDomain(node, &domain)));
    MP_TRY(mp__from_ort(ORT->Node_GetName(node, &name)));
    const size_t i = place_of(domain, type);
    if (i < MP_COUNT_OF(names) && (*told >> i & 1) == 0) {
        *told |= (uint64_t)1 << i;
        MP_LOG(
            WARNING,
            "node '%s' is com.microsoft.%s, which neither this provider nor ONNX Runtime's CPU "
            "provider has a kernel for: ONNX Runtime refuses the model unless another provider of "
            "the session takes the node",
            name, type);
    }
    return MP_OK;
}
