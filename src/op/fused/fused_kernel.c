/* fused_kernel.c - one list of all devices' fused kernels, looked through while a plan is made and
 * never while one runs. They stay for good, as the other kernels do: there are as many as models
 * have different expressions.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/fused_kernel.h"

#include "base/log.h"
#include "base/sha256.h"
#include "device/kernel_record.h"
#include "kernel/kernel_table.h"
#include "op/core/kernel_batch.h"
#include "op/core/kernel_cache.h"
#include "op/core/table_cache.h"
#include "op/fused/stand_in.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX = 96, NAMED_WORDS = 3, NAMED_BYTES = 6 };

typedef struct entry {
    struct entry *next;
    mp_device *device; /* borrowed */
    uint8_t key[MP_SHA256_SIZE];
    mp_kernel_image image;
    char name[NAME_MAX], define[NAME_MAX + 8];
    const char *defines[2];
    char *text; /* owned; NULL on the emulated device, unless its kernels are recorded */
    mp_fused_program *program; /* owned; NULL on a GPU */
    mp_kernel *kernel;
} entry;

static entry *first;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Of what the kernel depends on. */
static mp_status key_of(const mp_expression *e, const mp_reading *readings,
                        uint8_t key[MP_SHA256_SIZE]) {
    mp_expression plain = *e;
    char *text = NULL;
    mp_sha256 hash;
    for (int i = 0; i < plain.number_count; i++) {
        plain.numbers[i].value = 0;
    }
    plain.row_dims = MP_MIN(plain.row_dims, 1); /* how many is no matter, as are shapes */
    plain.flat_outputs = plain.flat_inputs = 0;
    MP_TRY(mp_expression_write(&plain, &text));
    mp_sha256_init(&hash);
    mp_sha256_add_text(&hash, text);
    for (int i = 0; i < e->input_count; i++) {
        const uint8_t reading = (uint8_t)readings[i];
        mp_sha256_add(&hash, &reading, sizeof reading);
    }
    mp_sha256_end(&hash, key);
    free(text);
    return MP_OK;
}

/* "mp_k_fused_mul_add_relu_0123456789ab": what it does first, and what no other has. */
static void set_name(entry *to, const mp_expression *e) {
    char *at = to->name;
    const char *const end = to->name + sizeof to->name;
    int words = 0;
    at += snprintf(at, (size_t)(end - at), "mp_k_fused");
    for (int t = 0; t < e->term_count && words < NAMED_WORDS; t++) {
        const mp_term *term = &e->terms[t];
        const char *word = term->kind == MP_TERM_REDUCTION ? mp_reduction_word(term->reduction)
                           : term->function != NULL        ? term->function->word
                                                           : NULL;
        if (word != NULL && strlen(word) < NAME_MAX / 2 / NAMED_WORDS) {
            at += snprintf(at, (size_t)(end - at), "_%s", word);
            words++;
        }
    }
    at += snprintf(at, (size_t)(end - at), "_");
    for (int i = 0; i < NAMED_BYTES; i++) {
        at += snprintf(at, (size_t)(end - at), "%02x", to->key[i]);
    }
    (void)snprintf(to->define, sizeof to->define, "K_NAME=%s", to->name);
}

/* Enough to make its text again: tests compile those of models for GPUs that are not there. */
static void entry_tell(const entry *fresh, const mp_expression *e, const mp_reading *readings) {
    char *text = NULL;
    char read[K_FUSED_IN + 1] = "";
    if (!mp_log_enabled(MP_LOG_DEBUG) || mp_expression_write(e, &text) != MP_OK) {
        return;
    }
    for (int i = 0; i < e->input_count; i++) {
        read[i] = mp_reading_letter(readings[i]);
    }
    MP_LOG(DEBUG, "%s reads %s: %s", fresh->name + sizeof "mp_k_" - 1, read, text);
    free(text);
}

static void entry_free(entry *gone) {
    free(gone->text);
    free(gone->program);
    free(gone);
}

static mp_status entry_open(entry *fresh, const mp_expression *e, const mp_reading *readings) {
    mp_device *device = fresh->device;
    const bool on_host = device->info.kind == MP_DEVICE_HOST;
    set_name(fresh, e);
    fresh->defines[0] = fresh->define;
    fresh->image = (mp_kernel_image){.name = fresh->name,
                                     .source = fresh->name,
                                     .defines = fresh->defines,
                                     .sources = mp__kernel_images[0].sources,
                                     .headers = mp__kernel_images[0].headers,
                                     .host = mp_fused_program_enter,
                                     .waits = true,
                                     .rounds = true};
    if (on_host) {
        MP_TRY(mp_fused_program_make(e, readings, &fresh->program));
    }
    if (!on_host || mp_kernel_record_on()) {
        MP_TRY(mp_fused_source(e, readings, &fresh->text));
    }
    fresh->image.text = fresh->text;
    return device->ops->kernel_open(device, &fresh->image, &fresh->kernel);
}

/* ---- a stand-in ---- */

static bool is_wanted(const mp_device *device) {
    const char *chosen = getenv("MILLPOND_STAND_IN");
    return device->info.compiles && (chosen == NULL || strcmp(chosen, "off") != 0);
}

static mp_status copy_table(const void *table, mp_device *device, mp_stream *stream, mp_addr out,
                            size_t size) {
    return device->ops->copy(device, stream, out, (mp_addr)table, size);
}

/* `*out`: its table, where the kernel becomes ready later; 0 where that is to be waited for. */
static mp_status stand_in_for(mp_device *device, mp_kernel *kernel, const mp_expression *e,
                              const mp_reading *readings, mp_addr *out) {
    union {
        mp_stand_in_table elements;
        mp_row_stand_in_table rows;
    } written;
    mp_kernel *other = NULL;
    const bool has_rows = e->row_dims > 0;
    const size_t size = !is_wanted(device) ? 0
                        : has_rows         ? mp_row_stand_in_write(e, readings, &written.rows)
                                           : mp_stand_in_write(e, readings, &written.elements);
    const mp_table table = {.fill = copy_table,
                            .context = &written,
                            .key = &written,
                            .key_size = size,
                            .size = size,
                            .copied = true};
    *out = 0;
    if (size == 0) {
        return MP_OK;
    }
    MP_TRY(
        mp_kernel_cache_open(device, has_rows ? "fused_row_stand_in" : "fused_stand_in", &other));
    return device->ops->kernel_ready_later(device, kernel, other)
               ? mp_table_cache_get(device, &table, out)
               : MP_OK;
}

/* ---- the list ---- */

/* With the lock held. */
static mp_status entry_add(mp_device *device, const mp_expression *e, const mp_reading *readings,
                           const uint8_t key[MP_SHA256_SIZE], entry **out) {
    entry *fresh = calloc(1, sizeof *fresh);
    if (fresh == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the record of a kernel");
    }
    fresh->device = device;
    memcpy(fresh->key, key, MP_SHA256_SIZE);
    const mp_status status = entry_open(fresh, e, readings);
    if (status != MP_OK) {
        entry_free(fresh);
        return status;
    }
    entry_tell(fresh, e, readings);
    fresh->next = first;
    *out = first = fresh;
    return MP_OK;
}

mp_status mp_fused_kernel_get(mp_device *device, const mp_expression *e, const mp_reading *readings,
                              mp_fused_kernel *out) {
    uint8_t key[MP_SHA256_SIZE];
    mp_status status = MP_OK;
    MP_TRY(key_of(e, readings, key));
    (void)pthread_mutex_lock(&lock);
    entry *at = first;
    while (at != NULL && (at->device != device || memcmp(at->key, key, sizeof key) != 0)) {
        at = at->next;
    }
    if (at == NULL) {
        status = entry_add(device, e, readings, key, &at);
    }
    if (at != NULL) {
        *out = (mp_fused_kernel){.kernel = at->kernel, .program = at->program};
    }
    (void)pthread_mutex_unlock(&lock);
    MP_TRY(status);
    MP_TRY(stand_in_for(device, at->kernel, e, readings, &out->stand_in));
    return out->stand_in != 0 ? MP_OK : mp_kernel_batch_add(device, at->kernel);
}

const char *mp_fused_kernel_name(const mp_device *device, const mp_kernel *kernel) {
    const char *name = NULL;
    (void)pthread_mutex_lock(&lock);
    for (const entry *at = first; at != NULL && name == NULL; at = at->next) {
        name = at->device == device && at->kernel == kernel ? at->name + sizeof "mp_k_" - 1 : NULL;
    }
    (void)pthread_mutex_unlock(&lock);
    return name;
}

void mp_fused_kernel_drop(mp_device *device) {
    (void)pthread_mutex_lock(&lock);
    for (entry **at = &first; *at != NULL;) {
        entry *found = *at;
        if (found->device != device) {
            at = &found->next;
            continue;
        }
        *at = found->next;
        device->ops->kernel_unload(device, found->kernel);
        entry_free(found);
    }
    (void)pthread_mutex_unlock(&lock);
}
