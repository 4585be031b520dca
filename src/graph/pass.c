/* pass.c - runs passes by the table.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/pass.h"

#include "base/option.h"

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

static int find(const char *word, size_t length) {
    for (size_t i = 0; i < MP_COUNT_OF(passes); i++) {
        if (strlen(passes[i].name) == length && strncmp(passes[i].name, word, length) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static mp_status read_word(const char *word, size_t length, uint32_t *left_out, int64_t *most) {
    char text[64];
    if (length >= sizeof text) {
        return MP_FAIL(INVALID_ARGUMENT, "'%.32s...' is too long for the name of a pass", word);
    }
    memcpy(text, word, length);
    text[length] = '\0';
    if (text[0] == '=') {
        return mp_parse_int("the number of rewrites", text + 1, 0, INT64_MAX, most);
    }
    const int found = text[0] == '-' ? find(text + 1, length - 1) : -1;
    if (found < 0) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "'%s' names no pass to leave out: write -identity, -cancel, -same, -bias, "
                       "-dead, or =N to stop after N rewrites",
                       text);
    }
    *left_out |= 1u << found;
    return MP_OK;
}

static mp_status read_words(const char *words, uint32_t *left_out, int64_t *most) {
    while (words != NULL && *words != '\0') {
        const size_t length = strcspn(words, ", ");
        if (length > 0) {
            MP_TRY(read_word(words, length, left_out, most));
        }
        words += length + (words[length] != '\0');
    }
    return MP_OK;
}

mp_status mp_passes_run(mp_graph *graph, const char *words, int64_t *done) {
    mp_rewrites rewrites = {.most = INT64_MAX};
    uint32_t left_out = 0;
    MP_TRY(read_words(words, &left_out, &rewrites.most));
    mp_status status = MP_OK;
    for (size_t i = 0; status == MP_OK && i < MP_COUNT_OF(passes); i++) {
        if ((left_out >> i & 1) == 0) {
            status = passes[i].run(graph, &rewrites);
            mp_graph_compact(graph);
        }
    }
    *done = rewrites.done;
    return status;
}
