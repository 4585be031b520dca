/* origin.h - the nodes of the model whose work a vertex of a graph does: one, until passes merge
 * some. Errors, profiles, traces and explanations name them all.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_GRAPH_ORIGIN_H
#define MP_GRAPH_ORIGIN_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct mp_origin {
    const char *op;   /* with its domain in front, where that is not ONNX's own */
    const char *name; /* "" for none */
    int32_t number;   /* in the model's order; tells nodes apart */
} mp_origin;

typedef struct mp_origins {
    const mp_origin *list; /* each once, in the model's order */
    int32_t count;         /* 0: the work is of no node alone */
} mp_origins;

/* For a sentence: "MatMul 'fc1' and Add 'fc1/bias'". The first few, and how many more. */
void mp_origins_title(mp_origins origins, char *text, size_t size);

/* All of them: [{"op_type":"MatMul","name":"fc1"},...]. Gives: `*out`, until free. Fails:
 * OUT_OF_MEMORY (host). */
mp_status mp_origins_json(mp_origins origins, char **out);

#endif
