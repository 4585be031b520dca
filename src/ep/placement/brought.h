/* brought.h - operators whose schemas PyPI's builds of ONNX Runtime lack, and that the factory
 * therefore brings: AllReduce, AllGather and AllToAll, in a domain of our own for all sessions of
 * processes that are ranks, and as com.microsoft's for sessions whose options name the library.
 *
 * They come as custom operators, which is how a provider's library adds schemas. ONNX Runtime takes
 * a domain of such for one of version 1000: a model that a session saves is then for no other ONNX
 * Runtime, and one that does not import com.microsoft could be given none of its other operators.
 * The custom operators themselves are for no provider that runs: a node finds its kernel in our
 * registry, as all others do. One that is left to the CPU provider fails with a sentence.
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
