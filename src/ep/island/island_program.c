/* island_program.c - the programs of an island, by the types and shapes of its inputs.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/capture/session_graph.h"
#include "ep/island/island.h"
#include "ep/stream/run_stream.h"

#include <stdlib.h>
#include <string.h>

/* ---- keys: the alignment, then type, rank and dimensions of each input ---- */

static size_t key_words(const mp_graph *graph, const mp_tensor *in) {
    size_t words = 1;
    for (int32_t i = 0; i < graph->input_count; i++) {
        words += 1 + (size_t)in[i].shape.rank;
    }
    return words;
}

static bool key_equals(const mp_island_program *p, const mp_graph *graph, const mp_tensor *in,
                       int32_t align) {
    const int64_t *at = p->key;
    if (*at++ != align) {
        return false;
    }
    for (int32_t i = 0; i < graph->input_count; i++) {
        const int32_t rank = in[i].shape.rank;
        if (*at++ != ((int64_t)in[i].type << 8 | rank) ||
            memcmp(at, in[i].shape.dim, (size_t)rank * sizeof *at) != 0) {
            return false;
        }
        at += rank;
    }
    return true;
}

static void key_write(int64_t *at, const mp_graph *graph, const mp_tensor *in, int32_t align) {
    *at++ = align;
    for (int32_t i = 0; i < graph->input_count; i++) {
        *at++ = (int64_t)in[i].type << 8 | in[i].shape.rank;
        memcpy(at, in[i].shape.dim, (size_t)in[i].shape.rank * sizeof *at);
        at += in[i].shape.rank;
    }
}

/* ---- life ---- */

static void destroy(const mp_island *island, mp_island_program *p) {
    mp__island_instances_close(island, p);
    if (p->literals !=
        0) { /* what was queued may read them yet; a graph of the user's keeps them */
        (void)mp__run_streams_wait(island->provider);
        (void)mp__give_back(island->provider->pool, p->literals);
    }
    mp_program_release(p->program);
    free(p->key);
    free(p);
}

static mp_status put_literals(const mp_island *island, mp_island_program *p) {
    mp_device *device = island->provider->unit->device;
    size_t size = 0;
    const void *bytes = mp_program_literals(p->program, &size);
    if (size == 0) {
        return MP_OK;
    }
    const mp_label before = mp_label_set(island->label);
    const mp_status status =
        mp_pool_alloc(island->provider->pool, size, MP_NO_STREAM, &p->literals);
    (void)mp_label_set(before);
    MP_TRY(status);
    return device->ops->copy(device, NULL, p->literals, (mp_addr)bytes, size);
}

static mp_status make(const mp_island *island, const mp_tensor *in, int32_t align,
                      mp_island_program **out) {
    mp_island_program *p = calloc(1, sizeof *p);
    int64_t *key = calloc(key_words(island->graph, in), sizeof *key);
    if (p == NULL || key == NULL) {
        free(p);
        free(key);
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a program");
    }
    p->key = key;
    key_write(key, island->graph, in, align);
    mp_status status =
        mp_program_make(island->provider->unit->device, island->graph, in, align, &p->program);
    if (status == MP_OK) {
        status = put_literals(island, p);
    }
    if (status != MP_OK) {
        destroy(island, p);
        return status;
    }
    *out = p;
    return MP_OK;
}

/* ---- the list; with the lock held ---- */

static mp_island_program *find(mp_island *island, const mp_tensor *in, int32_t align) {
    for (int i = 0; i < island->program_count; i++) {
        mp_island_program *p = island->programs[i];
        if (key_equals(p, island->graph, in, align)) {
            memmove(&island->programs[1], &island->programs[0], (size_t)i * sizeof p);
            island->programs[0] = p;
            return p;
        }
    }
    return NULL;
}

static void put(mp_island *island, mp_island_program *p) {
    if (island->program_count == MP_ISLAND_PROGRAMS_MAX) {
        mp_island_program *oldest = island->programs[--island->program_count];
        oldest->is_out = true;
        if (oldest->users == 0) {
            destroy(island, oldest);
        }
    }
    memmove(&island->programs[1], &island->programs[0],
            (size_t)island->program_count * sizeof(mp_island_program *));
    island->programs[0] = p;
    island->program_count++;
}

/* ---- the interface ---- */

mp_status mp__island_program_get(mp_island *island, const mp_tensor *in, int32_t align,
                                 mp_island_program **out) {
    mp_island_program *fresh = NULL;
    (void)pthread_mutex_lock(&island->lock);
    mp_island_program *p = find(island, in, align);
    if (p != NULL) {
        p->users++;
    }
    (void)pthread_mutex_unlock(&island->lock);
    if (p == NULL) { /* two threads may make it at once, and one of them in vain */
        MP_TRY(make(island, in, align, &fresh));
        (void)pthread_mutex_lock(&island->lock);
        p = find(island, in, align);
        if (p == NULL) {
            p = fresh;
            fresh = NULL;
            put(island, p);
        }
        p->users++;
        (void)pthread_mutex_unlock(&island->lock);
        if (fresh != NULL) {
            destroy(island, fresh);
        }
    }
    *out = p;
    return MP_OK;
}

bool mp__island_program_has(mp_island *island, const mp_tensor *in, int32_t align) {
    (void)pthread_mutex_lock(&island->lock);
    const bool found = find(island, in, align) != NULL;
    (void)pthread_mutex_unlock(&island->lock);
    return found;
}

void mp__island_program_drop(mp_island *island, mp_island_program *program) {
    if (program == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&island->lock);
    const bool last = --program->users == 0 && program->is_out;
    (void)pthread_mutex_unlock(&island->lock);
    if (last) {
        destroy(island, program);
    }
}

void mp__island_programs_close(mp_island *island) {
    while (island->program_count > 0) {
        destroy(island, island->programs[--island->program_count]);
    }
}
