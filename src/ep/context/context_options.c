/* context_options.c - what a session asks for, by the entries that ONNX Runtime documents.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "ep/abi/bridge.h"
#include "ep/context/context.h"

#include <stdlib.h>
#include <string.h>

/* Gives: `*out`, until free; "" for an entry that is not there. */
static mp_status read_entry(const OrtSessionOptions *session, const char *key, char **out) {
    int given = 0;
    size_t size = 0;
    MP_TRY(mp__from_ort(ORT->HasSessionConfigEntry(session, key, &given)));
    if (given) {
        MP_TRY(mp__from_ort(ORT->GetSessionConfigEntry(session, key, NULL, &size)));
    }
    *out = calloc(1, size + 1);
    if (*out == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the option %s", key);
    }
    return given ? mp__from_ort(ORT->GetSessionConfigEntry(session, key, *out, &size)) : MP_OK;
}

static mp_status read_flag(const OrtSessionOptions *session, const char *key, bool *out) {
    char *text = NULL;
    const mp_status status = read_entry(session, key, &text);
    *out = status == MP_OK && strcmp(text, "1") == 0;
    free(text);
    return status;
}

static mp_status read_all(const OrtSessionOptions *session, mp_context *context) {
    MP_TRY(read_flag(session, "ep.context_embed_mode", &context->embeds));
    return read_entry(session, "ep.context_node_name_prefix", &context->prefix);
}

mp_status mp__context_open(const OrtSessionOptions *session, char **path, mp_context **out) {
    bool enabled = false;
    *out = NULL;
    MP_TRY(read_entry(session, "ep.context_file_path", path));
    MP_TRY(read_flag(session, "ep.context_enable", &enabled));
    if (!enabled) {
        return MP_OK;
    }
    mp_context *context = calloc(1, sizeof *context);
    if (context == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to compile a model");
    }
    context->path = *path;
    const mp_status status = read_all(session, context);
    if (status != MP_OK) {
        mp__context_close(context);
        return status;
    }
    *out = context;
    return MP_OK;
}

void mp__context_close(mp_context *context) {
    if (context != NULL) {
        free(context->prefix);
        free(context);
    }
}
