/* brought.h - operators whose schemas PyPI's builds of ONNX Runtime lack, and that the factory
 * therefore brings: AllReduce, AllGather and AllToAll of com.microsoft.
 *
 * They come as custom operators, which is how a provider's library adds schemas, to sessions of
 * processes that are ranks: ONNX Runtime then takes com.microsoft for a domain of version 1000, and
 * a model that such a session saves is for no other ONNX Runtime. The custom
 * operators themselves are for no provider that runs: a node finds its kernel in our registry, as
 * all others do. One that is left to the CPU provider fails with a sentence.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_BROUGHT_H
#define MP_EP_BROUGHT_H

#include "ep/abi/ort.h"
#include "op/core/op.h"

/* What a brought schema calls the type of its one input; the output has the same. */
#define MP_BROUGHT_CONSTRAINT "Input0"

/* Whether this is one of them, of whatever version. */
bool mp__is_brought(const mp_op *op);

/* Whether this ONNX Runtime has no schema of its own for it. */
OrtStatus *mp__lacks_schema(const mp_op *op, bool *out);

/* Adds what this ONNX Runtime lacks to a session's options. */
OrtStatus *mp__brought_add(OrtSessionOptions *options);

/* Entries of the factory's table. The domain belongs to the process, since sessions borrow it. */
OrtStatus *mp__brought_count(OrtEpFactory *self, size_t *out);
OrtStatus *mp__brought_domains(OrtEpFactory *self, OrtCustomOpDomain **out, size_t count);

#endif
