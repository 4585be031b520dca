/* left_note.c - a text that grows by a line for each node.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/placement/left_note.h"

#include "base/log.h"
#include "ep/abi/bridge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX "/left to the CPU"

/* Writes a name of the model, in which a tab or the end of a line would be taken for one of ours.
 */
static void put(FILE *line, const char *name, char end) {
    for (; name != NULL && *name != '\0'; name++) {
        (void)fputc((unsigned char)*name < ' ' ? '?' : *name, line);
    }
    (void)fputc(end, line);
}

static mp_status make_line(const OrtGraph *graph, const OrtNode *node, char **out) {
    const char *type = "";
    const char *domain = "";
    const char *name = "";
    const char *of = "";
    size_t id = 0;
    *out = NULL;
    MP_TRY(mp__from_ort(ORT->Node_GetOperatorType(node, &type)));
    MP_TRY(mp__from_ort(ORT->Node_GetDomain(node, &domain)));
    MP_TRY(mp__from_ort(ORT->Node_GetName(node, &name)));
    MP_TRY(mp__from_ort(ORT->Node_GetId(node, &id)));
    MP_TRY(mp__from_ort(ORT->Graph_GetName(graph, &of)));
    size_t size = 0;
    FILE *line = open_memstream(out, &size);
    if (line != NULL) {
        put(line, type, '\t');
        put(line, domain, '\t');
        put(line, name, '\t');
        (void)fprintf(line, "%zu\t", id);
        put(line, of, '\n');
    }
    if (line == NULL || fclose(line) != 0) {
        free(*out);
        *out = NULL;
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the name of a node");
    }
    return MP_OK;
}

/* Takes: `line`. ORT may ask for the same graph again. */
static mp_status append(mp_left_nodes *left, char *line) {
    if (left->text == NULL) {
        left->text = line;
        return MP_OK;
    }
    if (strstr(left->text, line) != NULL) {
        free(line);
        return MP_OK;
    }
    const size_t had = strlen(left->text);
    const size_t more = strlen(line) + 1;
    char *longer = realloc(left->text, had + more);
    if (longer != NULL) {
        left->text = longer;
        memcpy(longer + had, line, more);
    }
    free(line);
    return longer != NULL
               ? MP_OK
               : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for names of nodes");
}

static mp_status publish(mp_provider *provider) {
    char *name = NULL;
    if (asprintf(&name, "%s" SUFFIX, provider->session_name) < 0) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a name");
    }
    mp_note_remove(provider->left.note);
    provider->left.note = NULL;
    const mp_status status = mp_note_add(name, provider->left.text, &provider->left.note);
    free(name);
    return status;
}

static mp_status add(mp_provider *provider, const OrtGraph *graph, const OrtNode *node) {
    char *line = NULL;
    MP_TRY(make_line(graph, node, &line));
    return append(&provider->left, line);
}

void mp__left_note_add(mp_provider *provider, const OrtGraph *graph, const OrtNode *node) {
    if (provider->session_name != NULL && add(provider, graph, node) != MP_OK) {
        MP_LOG(WARNING, "a node that is left to the CPU is not named: %s", mp_error_message());
    }
}

void mp__left_note_publish(mp_provider *provider) {
    if (provider->left.text != NULL && publish(provider) != MP_OK) {
        MP_LOG(WARNING, "nodes that are left to the CPU are not named: %s", mp_error_message());
    }
}

void mp__left_note_release(mp_provider *provider) {
    mp_note_remove(provider->left.note);
    free(provider->left.text);
    free(provider->session_name);
}
