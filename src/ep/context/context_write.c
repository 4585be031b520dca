/* context_write.c - an island becomes a node EPContext.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "ep/abi/bridge.h"
#include "ep/abi/node_values.h"
#include "ep/context/context.h"
#include "ep/context/context_file.h"
#include "graph/store.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATTRIBUTES = 7 };

static mp_status no_memory(void) {
    return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to compile a model");
}

/* ---- the file beside the model ---- */

/* Where ONNX Runtime writes the model: where it is told to, or beside the one that it has. */
static mp_status model_path(const mp_context *context, const OrtGraph *group, char **out) {
    const char *path = context->path;
    if (path[0] == '\0') {
        MP_TRY(mp__from_ort(ORT->Graph_GetModelPath(group, &path)));
    }
    *out = strdup(path != NULL ? path : "");
    return *out != NULL ? MP_OK : no_memory();
}

/* "model_ctx_island_0.bin" */
static char *file_name(const char *model, const char *part) {
    const char *slash = strrchr(model, '/');
    const char *base = slash != NULL ? slash + 1 : model;
    const char *dot = strrchr(base, '.');
    const int length = dot != NULL ? (int)(dot - base) : (int)strlen(base);
    char *name = NULL;
    if (asprintf(&name, "%.*s_%s.bin", MP_MIN(length, 120), base, part) < 0) {
        return NULL;
    }
    for (char *c = name; *c != '\0'; c++) {
        const bool plain = isalnum((unsigned char)*c) || (strchr("_-.", *c) != NULL && c != name);
        *c = plain ? *c : '_';
    }
    return name;
}

static mp_status write_beside(const mp_context *context, const OrtGraph *group, const char *part,
                              const void *bytes, size_t size, char **name) {
    char *model = NULL;
    char *path = NULL;
    MP_TRY(model_path(context, group, &model));
    *name = file_name(model, part);
    mp_status status = *name != NULL ? mp__context_file_path(model, *name, &path) : no_memory();
    if (status == MP_OK) {
        status = mp__context_file_write(path, bytes, size);
    }
    free(path);
    free(model);
    return status;
}

/* ---- the node ---- */

typedef struct attributes {
    OrtOpAttr *list[ATTRIBUTES]; /* owned */
    size_t count;
} attributes;

static mp_status add_text(attributes *to, const char *name, const void *text, size_t size) {
    MP_TRY(mp__from_ort(
        ORT->CreateOpAttr(name, text, (int)size, ORT_OP_ATTR_STRING, &to->list[to->count])));
    to->count++;
    return MP_OK;
}

static mp_status add_int(attributes *to, const char *name, int64_t number) {
    MP_TRY(
        mp__from_ort(ORT->CreateOpAttr(name, &number, 1, ORT_OP_ATTR_INT, &to->list[to->count])));
    to->count++;
    return MP_OK;
}

/* Gives: `*out`, which names the values, until free. */
static mp_status names_of(const OrtNode *node, mp_side side, const char ***out, size_t *count) {
    mp_values values = {NULL, 0};
    MP_TRY(mp__values_of(node, side, &values));
    *count = values.count;
    *out = calloc(values.count + 1, sizeof **out);
    mp_status status = *out != NULL ? MP_OK : no_memory();
    for (size_t i = 0; status == MP_OK && i < values.count; i++) {
        status = mp__value_name(values.list[i], &(*out)[i]);
    }
    mp__values_release(&values);
    return status;
}

/* Takes: the attributes, where it succeeds. */
static mp_status create(const OrtNode *fused, const char *name, attributes *a, OrtNode **out) {
    const OrtModelEditorApi *editor = ORT->GetModelEditorApi();
    const char **in = NULL;
    const char **made = NULL;
    size_t in_count = 0;
    size_t made_count = 0;
    mp_status status =
        editor != NULL ? MP_OK
                       : MP_FAIL(UNSUPPORTED, "this ONNX Runtime cannot make nodes, so it cannot "
                                              "write compiled models");
    if (status == MP_OK) {
        status = names_of(fused, MP_SIDE_IN, &in, &in_count);
    }
    if (status == MP_OK) {
        status = names_of(fused, MP_SIDE_OUT, &made, &made_count);
    }
    if (status == MP_OK) {
        status =
            mp__from_ort(editor->CreateNode(MP_CONTEXT_OPERATOR, MP_CONTEXT_DOMAIN, name, in,
                                            in_count, made, made_count, a->list, a->count, out));
        a->count = status == MP_OK ? 0 : a->count;
    }
    free(in);
    free(made);
    return status;
}

static mp_status add_all(const mp_provider *provider, attributes *a, const char *part,
                         const void *content, size_t size) {
    const mp_device_info *device = &provider->unit->device->info;
    const char *source = provider->factory->name->provider;
    MP_TRY(add_int(a, "main_context", 1));
    MP_TRY(add_int(a, "embed_mode", provider->context->embeds));
    MP_TRY(add_text(a, "ep_cache_context", content, size));
    MP_TRY(add_text(a, "source", source, strlen(source)));
    MP_TRY(add_text(a, "partition_name", part, strlen(part)));
    MP_TRY(add_text(a, "ep_sdk_version", MP_CONTEXT_MAKER MILLPOND_VERSION,
                    strlen(MP_CONTEXT_MAKER MILLPOND_VERSION)));
    /* Where it was compiled; it runs on any. */
    return add_text(a, "hardware_architecture", device->name, strlen(device->name));
}

static mp_status make_with(const mp_provider *provider, const OrtGraph *group, const OrtNode *fused,
                           const char *name, const char *part, const unsigned char *bytes,
                           size_t size, OrtNode **out) {
    attributes a = {.count = 0};
    char *file = NULL;
    mp_status status = MP_OK;
    if (!provider->context->embeds) {
        status = write_beside(provider->context, group, part, bytes, size, &file);
    }
    if (status == MP_OK) {
        status = add_all(provider, &a, part, file != NULL ? (const void *)file : bytes,
                         file != NULL ? strlen(file) : size);
    }
    if (status == MP_OK) {
        status = create(fused, name, &a, out);
    }
    for (size_t i = 0; i < a.count; i++) {
        ORT->ReleaseOpAttr(a.list[i]);
    }
    free(file);
    return status;
}

mp_status mp__context_node(const mp_provider *provider, const OrtGraph *group, const OrtNode *fused,
                           const mp_graph *graph, const int32_t *ports, size_t port_count,
                           OrtNode **out) {
    unsigned char *bytes = NULL;
    size_t size = 0;
    const char *name = "";
    char *part = NULL;
    MP_TRY(mp__from_ort(ORT->Node_GetName(fused, &name)));
    MP_TRY(mp_graph_store(graph, ports, port_count, MILLPOND_VERSION, &bytes, &size));
    const int number = atomic_load(&provider->islands.made); /* the island's, see island_name.c */
    mp_status status = asprintf(&part, "%sisland_%d", provider->context->prefix, number) >= 0
                           ? MP_OK
                           : no_memory();
    if (status == MP_OK) {
        status = make_with(provider, group, fused, name, part, bytes, size, out);
        free(part);
    }
    free(bytes);
    return status;
}
