/* options.c - the session's options for this provider.
 *
 * A key is looked for as ep.cudapluginexecutionprovider.<key>, then ep.cuda.<key>, then <key>. A
 * value that cannot be read, or a key of ours that is not known, gives a warning and the default
 * stays: a session that starts is worth more than one that does not.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/option.h"
#include "ep/bridge.h"
#include "ep/plugin.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define OWN_PREFIX    "ep.cudapluginexecutionprovider."
#define FAMILY_PREFIX "ep.cuda."

/* By name, or by the number that ONNX Runtime's own CUDA provider gives them. */
enum { SEARCHES = 3 };
static const char *const searches[] = {"EXHAUSTIVE", "HEURISTIC", "DEFAULT", "0", "1", "2", NULL};

/* The address of a function, as a number. */
#define ADDRESS(field)                                                                            \
    {                                                                                             \
        .name = #field, .kind = MP_OPTION_INT, .offset = offsetof(mp_options, field), .least = 0, \
        .most = INT64_MAX                                                                         \
    }

static const mp_option table[] = {
    {.name = "use_tf32", .kind = MP_OPTION_BOOL, .offset = offsetof(mp_options, use_tf32)},
    {.name = "cudnn_conv_use_max_workspace",
     .kind = MP_OPTION_BOOL,
     .offset = offsetof(mp_options, cudnn_conv_use_max_workspace)},
    {.name = "cudnn_conv_algo_search",
     .kind = MP_OPTION_WORD,
     .offset = offsetof(mp_options, cudnn_conv_algo_search),
     .words = searches},
    {.name = "device_id",
     .kind = MP_OPTION_INT,
     .offset = offsetof(mp_options, device_id),
     .least = 0,
     .most = INT32_MAX},
    ADDRESS(gpu_external_alloc),
    ADDRESS(gpu_external_free),
    ADDRESS(gpu_external_empty_cache),
};

typedef struct entries {
    const char *const *keys, *const *values;
    size_t count;
} entries;

static const char *value_of(const entries *all, const char *prefix, const char *name) {
    const size_t length = strlen(prefix);
    for (size_t i = 0; i < all->count; i++) {
        if (strncasecmp(all->keys[i], prefix, length) == 0 &&
            strcasecmp(all->keys[i] + length, name) == 0) {
            return all->values[i];
        }
    }
    return NULL;
}

static void read_one(const entries *all, const mp_option *option, mp_options *out) {
    static const char *const prefixes[] = {OWN_PREFIX, FAMILY_PREFIX, ""};
    for (size_t i = 0; i < MP_COUNT_OF(prefixes); i++) {
        const char *value = value_of(all, prefixes[i], option->name);
        if (value == NULL) {
            continue;
        }
        if (mp_option_set(table, MP_COUNT_OF(table), out, option->name, value) != MP_OK) {
            MP_LOG(WARNING, "%s; the default is kept", mp_error_message());
        }
        return;
    }
}

static bool is_known(const char *name) {
    for (size_t i = 0; i < MP_COUNT_OF(table); i++) {
        if (strcasecmp(table[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static void warn_of_unknown(const entries *all) {
    const size_t length = strlen(OWN_PREFIX);
    for (size_t i = 0; i < all->count; i++) {
        const char *name = all->keys[i] + length;
        if (strncasecmp(all->keys[i], OWN_PREFIX, length) != 0 || is_known(name) ||
            strncasecmp(name, "arena.", strlen("arena.")) == 0) { /* the pool looks at those */
            continue;
        }
        const char *near = mp_option_nearest(table, MP_COUNT_OF(table), name);
        MP_LOG(WARNING, "%s has no option '%s'%s%s%s; it is ignored", MP_EP_NAME, name,
               near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
               near != NULL ? "'?" : "");
    }
}

static void check_external(mp_options *options) {
    if ((options->gpu_external_alloc != 0) == (options->gpu_external_free != 0)) {
        return;
    }
    MP_LOG(WARNING, "gpu_external_alloc and gpu_external_free must both be set; both are ignored");
    options->gpu_external_alloc = options->gpu_external_free = 0;
    options->gpu_external_empty_cache = 0;
}

void mp__options_read(const OrtSessionOptions *session, mp_options *out) {
    *out = (mp_options){.use_tf32 = true, .cudnn_conv_use_max_workspace = true};
    OrtKeyValuePairs *pairs = NULL;
    const mp_status status = mp__from_ort(ORT->GetSessionOptionsConfigEntries(session, &pairs));
    if (status != MP_OK) {
        MP_LOG(WARNING, "the session's options cannot be read, the defaults are kept: %s",
               mp_error_message());
        return;
    }
    entries all = {NULL, NULL, 0};
    ORT->GetKeyValuePairs(pairs, &all.keys, &all.values, &all.count);
    for (size_t i = 0; i < MP_COUNT_OF(table); i++) {
        read_one(&all, &table[i], out);
    }
    out->cudnn_conv_algo_search %= SEARCHES;
    warn_of_unknown(&all);
    check_external(out);
    ORT->ReleaseKeyValuePairs(pairs);
}
