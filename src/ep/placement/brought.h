/* brought.h - operators whose schemas PyPI's builds of ONNX Runtime lack, and that the factory
 * therefore brings: AllReduce, AllGather and AllToAll, in a domain of our own for every session,
 * and as com.microsoft's for those whose options name the library: ONNX Runtime takes a domain of
 * custom operators for one with versions of its own, so that a model which does not import
 * com.microsoft could not be given any of its other operators.
 *
 * They come as custom operators, which is how a provider's library adds schemas. The custom
 * operators themselves are for no provider that runs: a node finds its kernel in our registry, as
 * all others do. One that is left to the CPU provider fails with a sentence.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_BROUGHT_H
#define MP_EP_BROUGHT_H

#include "ep/abi/ort.h"
#include "op/core/op.h"

#define MP_BROUGHT_DOMAIN "ai.millpond"
/* What a brought schema calls the type of its one input; the output has the same. */
#define MP_BROUGHT_CONSTRAINT "Input0"

/* Whether this is one of them, of whatever version. */
bool mp__is_brought(const mp_op *op);

/* Whether this ONNX Runtime has no schema of its own for it. */
OrtStatus *mp__lacks_schema(const mp_op *op, bool *out);

/* Adds all that this ONNX Runtime lacks to a session's options. */
OrtStatus *mp__brought_add(OrtSessionOptions *options);

/* Entries of the factory's table. The domain belongs to the process, since sessions borrow it. */
OrtStatus *mp__brought_count(OrtEpFactory *self, size_t *out);
OrtStatus *mp__brought_domains(OrtEpFactory *self, OrtCustomOpDomain **out, size_t count);

#endif
