/* pass.c - runs passes by the table.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "base/option.h"

#include <stdio.h>
#include <string.h>

typedef struct pass {
    const char *name;
    mp_pass_fn *run;
} pass;

static const pass passes[] = {
#define MP_PASS(name) {#name, mp_pass_##name},
#include "graph/pass_list.def"
#undef MP_PASS
};

/* Clusters are made with every program, once shapes are known: their words are behind those of
 * passes. */
enum { CLUSTER = MP_COUNT_OF(passes), ROW_CLUSTER, WORDS };

static const char *name_of(size_t i) {
    return i == CLUSTER ? "cluster" : i == ROW_CLUSTER ? "row_cluster" : passes[i].name;
}

static int find(const char *word, size_t length) {
    for (size_t i = 0; i < WORDS; i++) {
        if (strlen(name_of(i)) == length && strncmp(name_of(i), word, length) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* ", such as -identity, -image_rows", of those that begin with the same letter; or nothing. */
static const char *names_like(char letter, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < WORDS && used < size; i++) {
        if (name_of(i)[0] == letter) {
            used += (size_t)snprintf(text + used, size - used, "%s-%s",
                                     used > 0 ? ", " : ", such as ", name_of(i));
        }
    }
    return text;
}

/* What the words say. */
typedef struct wish {
    bool left_out[WORDS], forced[WORDS]; /* of passes, and of clusters */
    bool as_on_gpu;
    int64_t most;
} wish;

static mp_status read_word(const char *word, size_t length, wish *out) {
    char text[64];
    if (length >= sizeof text) {
        return MP_FAIL(INVALID_ARGUMENT, "'%.32s...' is too long for the name of a pass", word);
    }
    memcpy(text, word, length);
    text[length] = '\0';
    if (text[0] == '=') {
        return mp_parse_int("the number of rewrites", text + 1, 0, INT64_MAX, &out->most);
    }
    if (strcmp(text, "gpu") == 0) {
        out->as_on_gpu = true;
        return MP_OK;
    }
    const bool forced = text[0] == '+', has_sign = forced || text[0] == '-';
    const int found = has_sign ? find(text + 1, length - 1) : -1;
    if (found < 0) {
        char list[512];
        return MP_FAIL(INVALID_ARGUMENT,
                       "'%s' names no pass to leave out: write some of those in docs/runtime.md%s, "
                       "or =N to stop after N rewrites",
                       text, names_like(text[has_sign ? 1 : 0], list, sizeof list));
    }
    (forced ? out->forced : out->left_out)[found] = true;
    return MP_OK;
}

static mp_status read_words(const char *words, wish *out) {
    while (words != NULL && *words != '\0') {
        const size_t length = strcspn(words, ", ");
        if (length > 0) {
            MP_TRY(read_word(words, length, out));
        }
        words += length + (words[length] != '\0');
    }
    return MP_OK;
}

mp_status mp_passes_run(mp_graph *graph, const char *words, int64_t *done) {
    wish wanted = {.most = INT64_MAX};
    MP_TRY(read_words(words, &wanted));
    graph->prefers_last = graph->prefers_last || wanted.as_on_gpu;
    graph->has_clusters = !wanted.left_out[CLUSTER];
    graph->has_row_clusters = !wanted.left_out[ROW_CLUSTER];
    mp_rewrites rewrites = {.done = *done, .most = wanted.most};
    mp_status status = MP_OK;
    for (size_t i = 0; status == MP_OK && i < MP_COUNT_OF(passes); i++) {
        rewrites.forced = wanted.forced[i];
        if (!wanted.left_out[i]) {
            const int64_t before = rewrites.done;
            status = passes[i].run(graph, &rewrites);
            graph->last_pass = rewrites.done > before ? passes[i].name : graph->last_pass;
            status = status == MP_OK && rewrites.done > before ? mp_graph_settle(graph) : status;
            mp_graph_compact(graph);
        }
    }
    *done = rewrites.done;
    return status;
}
