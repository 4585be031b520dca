/* pass_run.h - a graph as text is run as it is and after all passes; both give the same.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TEST_PASS_RUN_H
#define MP_TEST_PASS_RUN_H

#include "graph/graph.h"
#include "unit/test.h"

#define SHAPE(...)                                                                         \
    {                                                                                      \
        .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dim = { __VA_ARGS__ } \
    }

/* Inputs of the graph get the shapes `in`, in its order, and numbers; so do constants that the text
 * gives no values. `far`: how far results may lie apart, of numbers up to 4. `rewrites`: at least
 * so many, without those of `dead`. */
void pass_check_run(mp_device *device, const char *text, const mp_shape *in, double far,
                    int64_t rewrites);
/* The same after passes by these words. */
void pass_check_run_by(mp_device *device, const char *words, const char *text, const mp_shape *in,
                       double far, int64_t rewrites);

#endif
