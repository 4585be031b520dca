/* options.c - the session's options for this provider.
 *
 * A key is looked for as ep.<name of the provider>.<key>, then ep.cuda.<key>, then <key>; in each
 * place by its own name, then by its alias. A value that cannot be read, or a key of ours that
 * is not known, gives a warning and the default stays: a session that starts is worth more than one
 * that does not. Python's session(), whose caller can mend it, asks for an error instead
 * (STRICT_KEY). docs/settings.md says what each key does.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/option.h"
#include "ep/abi/bridge.h"
#include "ep/session/plugin.h"
#include "ep/session/saving.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Where a key may stand. */
enum { OWN, FAMILY, BARE, PLACES };
enum { EVERYWHERE = 1 << OWN | 1 << FAMILY | 1 << BARE, PREFIXED = 1 << OWN | 1 << FAMILY };

/* By name, or by the number that ONNX Runtime's own CUDA provider gives them. */
enum { SEARCHES = 3 };
static const char *const searches[] = {"EXHAUSTIVE", "HEURISTIC", "DEFAULT", "0", "1", "2", NULL};

/* Under this entry a session may give itself a name, by which its options are found. */
#define NAME_KEY "millpond.session"
/* "1": what is not taken is an error; the emulated device is meant. */
#define STRICT_KEY "millpond.strict"
#define HOST_KEY   "millpond.host"
/* "1": what islands do will be looked for, by the session's name. */
#define EXPLAIN_KEY "millpond.explain"
enum { TEXT_MAX = 2048 };

typedef struct row {
    mp_option option;
    const char *fallback; /* as a user would write it */
    const char *alias;    /* NULL for none */
    int places;
} row;

#define OPTION(field, kind_, ...)                     \
    .option = {.name = #field,                        \
               .kind = MP_OPTION_##kind_,             \
               .offset = offsetof(mp_options, field), \
               __VA_ARGS__}
#define FLAG(field, fallback_) \
    { OPTION(field, BOOL, ), .fallback = (fallback_), .places = EVERYWHERE }
#define ADDRESS(field) \
    { OPTION(field, ADDRESS, ), .fallback = "0", .places = EVERYWHERE }

static const row rows[] = {
    {OPTION(fusion, INT, .most = 2), .fallback = "1", .places = EVERYWHERE},
    {OPTION(fusion_programs, INT, .least = 1, .most = 4096), .fallback = "32",
     .places = EVERYWHERE},
    {OPTION(fusion_memory, SIZE, ), .fallback = "256M", .places = EVERYWHERE},
    {OPTION(prefer_nhwc, BOOL, ), .fallback = "0", .alias = "prefer_nhwc_layout",
     .places = EVERYWHERE},
    FLAG(use_tf32, "1"),
    FLAG(enable_cudnn, "1"),
    FLAG(cudnn_conv_use_max_workspace, "1"),
    {OPTION(cudnn_conv_algo_search, WORD, .words = searches), .fallback = "EXHAUSTIVE",
     .alias = "cudnn_conv_algo", .places = EVERYWHERE},
    FLAG(cudnn_conv1d_pad_to_nc1d, "0"),
    FLAG(fuse_conv_bias, "0"),
    FLAG(enable_skip_layer_norm_strict_mode, "0"),
    {OPTION(sdpa_kernel, INT, .most = INT32_MAX), .fallback = "0", .places = EVERYWHERE},
    {OPTION(partition_memory_limit, SIZE, ), .fallback = "0", .places = EVERYWHERE},
    FLAG(tunable_op_enable, "0"),
    FLAG(tunable_op_tuning_enable, "0"),
    {OPTION(tunable_op_max_tuning_duration_ms, INT, .most = INT32_MAX), .fallback = "0",
     .places = EVERYWHERE},
    {OPTION(device_id, INT, .most = INT32_MAX), .fallback = "0", .places = EVERYWHERE},
    ADDRESS(gpu_external_alloc),
    ADDRESS(gpu_external_free),
    ADDRESS(gpu_external_empty_cache),
    FLAG(enable_cuda_graph, "0"),
    {OPTION(min_num_runs_before_cuda_graph_capture, INT, .most = INT32_MAX), .fallback = "2",
     .places = PREFIXED},
    FLAG(has_user_compute_stream, "0"),
    ADDRESS(user_compute_stream),
    FLAG(use_ep_level_unified_stream, "0"),
    FLAG(do_copy_in_default_stream, "1"),
};

/* ---- what the session says ---- */

typedef struct entries {
    const mp_ep_name *name; /* whose options they are */
    const char *const *keys, *const *values;
    size_t count;
} entries;

static const char *prefix_of(const entries *all, int place) {
    return place == OWN ? all->name->option_prefix : place == FAMILY ? "ep.cuda." : "";
}

/* Whether what stands there is meant for this provider and no other. */
static bool is_own(const entries *all, int place) {
    return place == OWN || (place == FAMILY && all->name->is_family);
}

/* The part of `key` behind the prefix of `place`, or NULL. */
static const char *name_in(const entries *all, const char *key, int place) {
    const char *prefix = prefix_of(all, place);
    const size_t length = strlen(prefix);
    return strncasecmp(key, prefix, length) == 0 ? key + length : NULL;
}

static const char *value_of(const entries *all, int place, const char *name) {
    for (size_t i = 0; name != NULL && i < all->count; i++) {
        const char *own = name_in(all, all->keys[i], place);
        if (own != NULL && strcasecmp(own, name) == 0) {
            return all->values[i];
        }
    }
    return NULL;
}

static const char *find_value(const entries *all, const row *r, int *found) {
    const char *value = NULL;
    for (int place = 0; value == NULL && place < PLACES; place++) {
        if ((r->places >> place & 1) != 0) {
            value = value_of(all, place, r->option.name);
            value = value != NULL ? value : value_of(all, place, r->alias);
            *found = place;
        }
    }
    return value;
}

static mp_status set(const row *r, const char *value, mp_options *out) {
    return mp_option_set(&r->option, 1, out, r->option.name, value);
}

static mp_status read_all(const entries *all, mp_options *out) {
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        int place = BARE;
        const char *value = find_value(all, &rows[i], &place);
        const mp_status status = value != NULL ? set(&rows[i], value, out) : MP_OK;
        if (status != MP_OK && out->strict && is_own(all, place)) {
            return status;
        }
        if (status != MP_OK) {
            MP_LOG(WARNING, "%s; the default, %s, is kept", mp_error_message(), rows[i].fallback);
        }
    }
    out->cudnn_conv_algo_search %= SEARCHES;
    return MP_OK;
}

/* ---- what it should not have said ---- */

static bool is_known(const char *name) {
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        if (strcasecmp(rows[i].option.name, name) == 0 ||
            (rows[i].alias != NULL && strcasecmp(rows[i].alias, name) == 0)) {
            return true;
        }
    }
    return mp__memory_option(name) != NULL; /* the pool looks at those */
}

static const char *nearest(const char *name) {
    mp_option names[2 * MP_COUNT_OF(rows)];
    size_t count = 0;
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        names[count++].name = rows[i].option.name;
        if (rows[i].alias != NULL) {
            names[count++].name = rows[i].alias;
        }
    }
    return mp_option_nearest(names, count, name);
}

static mp_status reject(const entries *all, const char *name) {
    const char *near = nearest(name);
    return MP_FAIL(INVALID_ARGUMENT, "%s has no option '%s'%s%s%s", all->name->provider, name,
                   near != NULL ? "; did you mean '" : "", near != NULL ? near : "",
                   near != NULL ? "'?" : "");
}

/* Only the provider's own keys are an error: others may be meant for another provider. */
static mp_status check_names_at(const entries *all, int place, bool strict) {
    for (size_t i = 0; i < all->count; i++) {
        const char *name = name_in(all, all->keys[i], place);
        const mp_status status = name == NULL || is_known(name) ? MP_OK : reject(all, name);
        if (status != MP_OK && strict) {
            return status;
        }
        if (status != MP_OK) {
            MP_LOG(WARNING, "%s; it is ignored", mp_error_message());
        }
    }
    return MP_OK;
}

static mp_status check_names(const entries *all, bool strict) {
    MP_TRY(check_names_at(all, OWN, strict));
    return check_names_at(all, FAMILY, strict && is_own(all, FAMILY));
}

static void check_external(mp_options *options) {
    if ((options->gpu_external_alloc != 0) == (options->gpu_external_free != 0)) {
        return;
    }
    MP_LOG(WARNING, "gpu_external_alloc and gpu_external_free must both be set; both are ignored");
    options->gpu_external_alloc = options->gpu_external_free = 0;
    options->gpu_external_empty_cache = 0;
}

/* Those of ONNX Runtime's other kernels, such as cuDNN's (8), choose nothing here. */
static void check_sdpa(mp_options *options) {
    const int64_t unknown = options->sdpa_kernel & ~(int64_t)MP_SDPA_ALL;
    if (unknown == 0) {
        return;
    }
    options->sdpa_kernel &= MP_SDPA_ALL;
    MP_LOG(
        WARNING,
        "sdpa_kernel has bits that name no attention kernel here, %lld; it is taken as %lld (1 is "
        "a kernel for few queries, 2 fused tiles, 16 matrix products, 0 leaves it to the shapes)",
        (long long)unknown, (long long)options->sdpa_kernel);
}

static void check_tuning(mp_options *options) {
    if (options->tunable_op_tuning_enable && !options->tunable_op_enable) {
        options->tunable_op_tuning_enable = false;
        MP_LOG(WARNING,
               "tunable_op_tuning_enable is ignored: set tunable_op_enable to 1 as well, so "
               "that what is measured is used");
    }
}

/* ---- the device ----
 * ONNX Runtime writes the number of the device that it gives to the session among its options. */

static mp_status check_device_at(const entries *all, int place, int ordinal) {
    const char *value = value_of(all, place, "device_id");
    int64_t number = 0;
    if (value == NULL || mp_parse_int("device_id", value, 0, INT32_MAX, &number) != MP_OK ||
        number == ordinal) {
        return MP_OK; /* what cannot be read is warned of with the other options */
    }
    return MP_FAIL(INVALID_ARGUMENT,
                   "the option %sdevice_id is %s, and the session was given device %d; leave the "
                   "option out, or give the session the device that it names",
                   prefix_of(all, place), value, ordinal);
}

static mp_status check_device(const entries *all, int ordinal) {
    for (int place = 0; place < PLACES; place++) {
        MP_TRY(check_device_at(all, place, ordinal));
    }
    return MP_OK;
}

/* ---- both ---- */

static const row *find_row(const char *name) {
    const row *r = rows;
    while (strcmp(r->option.name, name) != 0) {
        r++;
    }
    return r;
}

static void set_defaults(mp_options *out) {
    *out = (mp_options){.use_tf32 = false};
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        const mp_status status = set(&rows[i], rows[i].fallback, out);
        assert(status == MP_OK);
        (void)status;
    }
}

/* For all sessions that do not say it themselves, so that any program can be tried both ways. */
static void read_environment(mp_options *out) {
    const char *value = getenv("MILLPOND_FUSION");
    if (value != NULL && value[0] != '\0' && set(find_row("fusion"), value, out) != MP_OK) {
        MP_LOG(WARNING, "MILLPOND_FUSION: %s; the default is kept", mp_error_message());
    }
}

static bool is_one(const entries *all, const char *key) {
    const char *value = value_of(all, BARE, key);
    return value != NULL && strcmp(value, "1") == 0;
}

/* Of a graph of which it shows a part, ONNX Runtime fails to fuse what is behind hidden nodes. */
static void check_layers(const entries *all, mp_options *out) {
    static const char *const keys[] = {"session.layer_assignment_settings",
                                       "session.name_based_layer_assignment"};
    for (size_t i = 0; i < MP_COUNT_OF(keys); i++) {
        const char *value = value_of(all, BARE, keys[i]);
        if (out->fusion > 0 && value != NULL && value[0] != '\0') {
            out->fusion = 0;
            MP_LOG(WARNING,
                   "fusion is taken as 0, since %s is set: ONNX Runtime fuses no nodes "
                   "where it assigns layers; for the speed of islands, leave it out",
                   keys[i]);
        }
    }
}

static void check_saving(const OrtSessionOptions *session, mp_options *out) {
    if (out->fusion > 0 && mp__session_saves(session)) {
        out->fusion = 0;
        MP_LOG(WARNING, "fusion is taken as 0, since the session saves its optimised model: ONNX "
                        "Runtime saves no islands; for the speed of islands, make another session "
                        "without optimized_model_filepath");
    }
}

static mp_status read_entries(const entries *all, int ordinal, mp_options *out) {
    out->strict = is_one(all, STRICT_KEY);
    out->meant_host = is_one(all, HOST_KEY);
    out->explain = is_one(all, EXPLAIN_KEY);
    MP_TRY(read_all(all, out));
    MP_TRY(check_names(all, out->strict));
    check_external(out);
    check_sdpa(out);
    check_tuning(out);
    check_layers(all, out);
    return check_device(all, ordinal);
}

mp_status mp__options_read(const OrtSessionOptions *session, const mp_unit *unit, mp_options *out) {
    const int ordinal = unit->device->ordinal;
    set_defaults(out);
    read_environment(out);
    out->device_id = ordinal;
    OrtKeyValuePairs *pairs = NULL;
    const mp_status status = mp__from_ort(ORT->GetSessionOptionsConfigEntries(session, &pairs));
    if (status != MP_OK) {
        MP_LOG(WARNING, "the session's options cannot be read, the defaults are kept: %s",
               mp_error_message());
        return MP_OK;
    }
    entries all = {.name = unit->factory->name};
    ORT->GetKeyValuePairs(pairs, &all.keys, &all.values, &all.count);
    const mp_status checked = read_entries(&all, ordinal, out);
    check_saving(session, out);
    out->device_id = ordinal;
    ORT->ReleaseKeyValuePairs(pairs);
    return checked;
}

/* ---- what others may know ---- */

mp_op_options mp__options_of_ops(const mp_options *options) {
    return (mp_op_options){
        .tf32 = options->use_tf32,
        .conv_workspace_max = options->cudnn_conv_use_max_workspace,
        .conv_search = options->cudnn_conv_algo_search,
        .sdpa_kernel = (int32_t)options->sdpa_kernel,
        .tune = !options->tunable_op_enable          ? MP_TUNE_OFF
                : !options->tunable_op_tuning_enable ? MP_TUNE_USE
                                                     : MP_TUNE_MEASURE,
        .tune_ms = options->tunable_op_max_tuning_duration_ms,
    };
}

/* "key=value" with `separator` in between; cut to fit `size`. */
static void print(const mp_options *options, const char *separator, char *text, size_t size) {
    size_t used = 0;
    for (size_t i = 0; i < MP_COUNT_OF(rows) && used < size; i++) {
        char value[32];
        mp_option_print(&rows[i].option, options, value, sizeof value);
        used += (size_t)snprintf(text + used, size - used, "%s%s=%s", i > 0 ? separator : "",
                                 rows[i].option.name, value);
    }
}

/* Gives: the name that the session goes by, until free; NULL for none. */
static char *session_name(const OrtSessionOptions *session) {
    int given = 0;
    size_t size = 0;
    if (mp__from_ort(ORT->HasSessionConfigEntry(session, NAME_KEY, &given)) != MP_OK || !given ||
        mp__from_ort(ORT->GetSessionConfigEntry(session, NAME_KEY, NULL, &size)) != MP_OK) {
        return NULL;
    }
    char *name = calloc(1, size + 1);
    if (name != NULL &&
        mp__from_ort(ORT->GetSessionConfigEntry(session, NAME_KEY, name, &size)) != MP_OK) {
        free(name);
        return NULL;
    }
    return name;
}

void mp__options_publish(const OrtSessionOptions *session, const mp_options *options, char **name,
                         mp_note **note) {
    char text[TEXT_MAX];
    *note = NULL;
    print(options, ", ", text, sizeof text);
    MP_LOG(INFO, "a session on device %d runs with %s", (int)options->device_id, text);
    *name = session_name(session);
    if (*name == NULL) {
        return;
    }
    print(options, "\n", text, sizeof text);
    if (mp_note_add(*name, text, note) != MP_OK) {
        MP_LOG(WARNING, "the options of session %s cannot be read back: %s", *name,
               mp_error_message());
    }
}
