/* pass_kit.h - a graph as text through passes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TEST_PASS_KIT_H
#define MP_TEST_PASS_KIT_H

#include "graph/pass.h"
#include "graph/text.h"
#include "unit/test.h"

#include <stdlib.h>
#include <string.h>

typedef mp_status write_fn(const mp_graph *graph, char **out);

static inline void check_by(write_fn *write, const char *words, const char *from, const char *to,
                            int64_t rewrites) {
    mp_graph *graph = NULL;
    char *text = NULL;
    int64_t done = 0;
    CHECK_OK(mp_graph_read(from, &graph));
    CHECK_OK(mp_passes_run(graph, words, &done));
    CHECK_OK(write(graph, &text));
    CHECK_STR_HAS(text, to);
    CHECK_STR_HAS(to, text);
    CHECK_EQ_INT(done, rewrites);
    free(text);
    mp_graph_destroy(graph);
}

static inline void check(const char *words, const char *from, const char *to, int64_t rewrites) {
    check_by(mp_graph_write, words, from, to, rewrites);
}

#define LEFT_ALONE(words, text) check((words), (text), (text), 0)

#endif
