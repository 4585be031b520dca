/* island_program.c - the programs of an island: by the types and shapes of its inputs, and behind
 * each by what was found on the device.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/growing.h"
#include "base/log.h"
#include "ep/capture/session_graph.h"
#include "ep/island/island.h"
#include "ep/stream/run_stream.h"

#include <stdlib.h>
#include <string.h>

/* ---- keys: the alignment, then type, rank and dimensions of each input; or what was found ---- */

enum { FEW_WORDS = 256, WAITS_BEFORE_JOIN = 2 };

typedef struct program_key {
    const void *bytes;
    size_t count;
    uint64_t hash;
} program_key;

static program_key key_of(const void *bytes, size_t count) {
    program_key key = {.bytes = bytes, .count = count, .hash = count};
    const unsigned char *at = bytes;
    for (size_t i = 0; i + sizeof(uint64_t) <= count; i += sizeof(uint64_t)) {
        uint64_t word = 0;
        memcpy(&word, at + i, sizeof word);
        key.hash = (key.hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        key.hash ^= key.hash >> 29;
    }
    return key;
}

static size_t shape_words(const mp_graph *graph, const mp_tensor *in) {
    size_t words = 1;
    for (int32_t i = 0; i < graph->input_count; i++) {
        words += 1 + (size_t)in[i].shape.rank;
    }
    return words;
}

static void write_shapes(int64_t *at, const mp_graph *graph, const mp_tensor *in, int32_t align) {
    *at++ = align;
    for (int32_t i = 0; i < graph->input_count; i++) {
        *at++ = (int64_t)in[i].type << 8 | in[i].shape.rank;
        memcpy(at, in[i].shape.dim, (size_t)in[i].shape.rank * sizeof *at);
        at += in[i].shape.rank;
    }
}

/* ---- life ---- */

static void close_shelf(const mp_island *island, mp_shelf *shelf);

/* Nobody else knows it, nor what goes on behind it. */
static void destroy(const mp_island *island, mp_island_program *p) {
    mp_island_rest rest;
    if (p->joined != NULL) {
        destroy(island, p->joined);
    }
    close_shelf(island, &p->next);
    mp__island_take(island, p, &rest);
    mp__island_rest_drop(island->provider, &rest);
    mp_program_release(p->program);
    free(p->in_bytes);
    free(p->key);
    free(p);
}

static void close_shelf(const mp_island *island, mp_shelf *shelf) {
    while (shelf->count > 0) {
        destroy(island, shelf->list[--shelf->count]);
    }
    free(shelf->list);
    *shelf = (mp_shelf){.list = NULL};
}

/* Gives: `*out`, 0 where there are none. */
static mp_status bring_literals(const mp_island *island, const mp_island_program *p, mp_addr *out) {
    mp_device *device = island->provider->unit->device;
    size_t size = 0;
    const void *bytes = mp_program_literals(p->program, &size);
    *out = 0;
    if (size == 0) {
        return MP_OK;
    }
    const mp_label before =
        mp_label_set(mp_label_make(MP_LABEL_WEIGHTS, island->name, "values known while planning"));
    mp_status status = mp_pool_alloc(island->provider->pool, size, MP_NO_STREAM, out);
    (void)mp_label_set(before);
    MP_TRY(status);
    status = device->ops->copy(device, NULL, *out, (mp_addr)bytes, size);
    if (status != MP_OK) {
        (void)mp_pool_free(island->provider->pool, *out);
    }
    return status;
}

/* Whether its literals have been given back, or are not there yet. */
static bool lacks_literals(const mp_island_program *p) {
    size_t size = 0;
    (void)mp_program_literals(p->program, &size);
    return size > 0 && p->literals == 0;
}

/* Of a program that has a user, which another thread may be doing, too. */
static mp_status put_literals(mp_island *island, mp_island_program *p) {
    mp_addr fresh = 0;
    size_t size = 0;
    MP_TRY(bring_literals(island, p, &fresh));
    (void)mp_program_literals(p->program, &size);
    (void)pthread_mutex_lock(&island->lock);
    if (lacks_literals(p)) {
        p->literals = fresh;
        fresh = 0;
        mp__island_keeps(island, p, size, 0);
    }
    (void)pthread_mutex_unlock(&island->lock);
    return mp__give_back(island->provider->pool, fresh);
}

/* What a program is made of: a graph and shapes, or the program before it and what was found. */
typedef struct recipe {
    const mp_tensor *in;
    int32_t align;
    mp_program *before;
    mp_program *like; /* the last one that was used of those it will be among, or NULL */
    bool joins;
} recipe;

static mp_status make_program(const mp_island *island, const recipe *how, const program_key *key,
                              mp_program **out) {
    mp_device *device = island->provider->unit->device;
    if (how->before != NULL) {
        return mp_program_continue(how->before, key->bytes, how->like, out);
    }
    if (!how->joins) {
        return mp_program_make(device, island->graph, how->in, how->align, how->like, out);
    }
    MP_TRY(mp_program_join(device, island->graph, how->in, how->align, out));
    return *out != NULL
               ? MP_OK
               : MP_FAIL(UNSUPPORTED, "its branches give different shapes, or more has to be read");
}

static mp_status measure_inputs(const mp_graph *graph, const mp_tensor *in, size_t **out) {
    size_t *bytes = calloc((size_t)graph->input_count + 1, sizeof *bytes);
    mp_status status =
        bytes != NULL ? MP_OK : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a program");
    for (int32_t i = 0; status == MP_OK && i < graph->input_count; i++) {
        status = mp_shape_bytes(&in[i].shape, in[i].type, &bytes[i]);
    }
    *out = bytes;
    return status;
}

static mp_status make(const mp_island *island, const recipe *how, const program_key *key,
                      mp_island_program **out) {
    mp_island_program *p = calloc(1, sizeof *p);
    void *copy = malloc(key->count + 1);
    if (p == NULL || copy == NULL) {
        free(p);
        free(copy);
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a program");
    }
    memcpy(copy, key->bytes, key->count);
    p->key = copy;
    p->key_bytes = key->count;
    p->hash = key->hash;
    p->next.most = (int)island->provider->options.fusion_programs;
    mp_status status = make_program(island, how, key, &p->program);
    if (status == MP_OK && how->in != NULL) {
        status = measure_inputs(island->graph, how->in, &p->in_bytes);
    }
    if (status != MP_OK) {
        destroy(island, p);
        return status;
    }
    *out = p;
    return MP_OK;
}

/* ---- shelves; with the lock held ---- */

static mp_island_program *find(mp_shelf *shelf, const program_key *key) {
    for (int i = 0; i < shelf->count; i++) {
        mp_island_program *p = shelf->list[i];
        if (p->hash == key->hash && p->key_bytes == key->count &&
            memcmp(p->key, key->bytes, key->count) == 0) {
            memmove(&shelf->list[1], &shelf->list[0], (size_t)i * sizeof(mp_island_program *));
            shelf->list[0] = p;
            return p;
        }
    }
    return NULL;
}

/* Room for one more. */
static mp_status make_room(mp_shelf *shelf) {
    const size_t count = (size_t)MP_MIN(shelf->count + 1, shelf->most);
    return mp_grow(&shelf->list, count, &shelf->capacity, sizeof(mp_island_program *))
               ? MP_OK
               : MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a list of programs");
}

/* `*gone`: a program that gave way and is to be destroyed, or NULL. */
static mp_status put(mp_shelf *shelf, mp_island_program *p, mp_island_program **gone) {
    *gone = NULL;
    MP_TRY(make_room(shelf));
    if (shelf->count == shelf->most) {
        mp_island_program *oldest = shelf->list[--shelf->count];
        oldest->is_out = true;
        *gone = oldest->users == 0 ? oldest : NULL;
    }
    memmove(&shelf->list[1], &shelf->list[0], (size_t)shelf->count * sizeof(mp_island_program *));
    shelf->list[0] = p;
    shelf->count++;
    return MP_OK;
}

/* ---- the interface ---- */

/* A run begins to use it. With the lock held. */
static void use(mp_island_program *p, uint64_t now, bool *lacks) {
    p->users++;
    p->last = now;
    *lacks = lacks_literals(p);
}

/* Most of its plans may be those of the program that was used last. */
static mp_status make_like(mp_island *island, const mp_shelf *shelf, const recipe *how,
                           const program_key *key, mp_island_program **out) {
    recipe like = *how;
    (void)pthread_mutex_lock(&island->lock);
    if (shelf->count > 0) {
        like.like = shelf->list[0]->program;
        mp_program_retain(like.like);
    }
    (void)pthread_mutex_unlock(&island->lock);
    const mp_status status = make(island, &like, key, out);
    mp_program_release(like.like);
    return status;
}

/* Makes it; two threads may do so at once, and one of them in vain. `*lacks`, unless it is NULL, as
 * for `use`. */
static mp_status get_fresh(mp_island *island, mp_shelf *shelf, const recipe *how,
                           const program_key *key, uint64_t now, mp_island_program **out,
                           bool *lacks) {
    mp_island_program *fresh = NULL;
    mp_island_program *gone = NULL;
    mp_status status = MP_OK;
    MP_TRY(make_like(island, shelf, how, key, &fresh));
    (void)pthread_mutex_lock(&island->lock);
    mp_island_program *p = find(shelf, key);
    if (p == NULL) {
        p = fresh;
        p->last = now;
        status = put(shelf, p, &gone);
    } else {
        gone = fresh;
    }
    if (status == MP_OK && lacks != NULL) {
        use(p, now, lacks);
    }
    (void)pthread_mutex_unlock(&island->lock);
    gone = status == MP_OK ? gone : fresh;
    if (gone != NULL) {
        destroy(island, gone);
    }
    *out = p;
    return status;
}

static mp_status get(mp_island *island, mp_shelf *shelf, const recipe *how, const program_key *key,
                     mp_island_program **out) {
    const uint64_t now = mp__island_tick(island);
    bool lacks = false;
    (void)pthread_mutex_lock(&island->lock);
    mp_island_program *p = find(shelf, key);
    if (p != NULL) {
        use(p, now, &lacks);
    }
    (void)pthread_mutex_unlock(&island->lock);
    if (p == NULL) {
        MP_TRY(get_fresh(island, shelf, how, key, now, &p, &lacks));
    }
    const mp_status status = lacks ? put_literals(island, p) : MP_OK;
    if (status != MP_OK) {
        mp__island_program_drop(island, p);
        return status;
    }
    *out = p;
    return MP_OK;
}

/* Words for the key of these shapes: `few`, or memory of its own, to be freed. */
static mp_status write_key(const mp_island *island, const mp_tensor *in, int32_t align,
                           int64_t few[FEW_WORDS], int64_t **many, program_key *out) {
    const size_t words = shape_words(island->graph, in);
    *many = words > FEW_WORDS ? calloc(words, sizeof **many) : NULL;
    if (words > FEW_WORDS && *many == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to look for a program");
    }
    int64_t *at = *many != NULL ? *many : few;
    write_shapes(at, island->graph, in, align);
    *out = key_of(at, words * sizeof *at);
    return MP_OK;
}

/* ---- both branches of Ifs in one program ---- */

/* Not before the program of segments has done what it is for: a first result waits for the kernels
 * of the branch that is taken, and for no others. A run that is recorded loads none. */
static bool is_join_due(const mp_island_program *p) {
    const unsigned least = mp__run_now != NULL ? 0 : WAITS_BEFORE_JOIN;
    return atomic_load_explicit(&p->waits, memory_order_relaxed) >= least &&
           mp__recorded_run() == NULL;
}

/* A run goes on without it, whatever is missing. What lacks memory is tried again after some more
 * runs. */
static void note_not_joined(const mp_island *island, mp_island_program *p, mp_status status) {
    if (status == MP_OUT_OF_MEMORY) {
        atomic_store(&p->waits, 0);
        return;
    }
    atomic_store(&p->never_joined, true);
    MP_LOG(INFO, "%s reads conditions back: %s", island->name, mp_error_message());
}

/* Makes it; two threads may do so at once, and one of them in vain. */
static void make_joined(mp_island *island, mp_island_program *p, const recipe *like,
                        const program_key *key) {
    const recipe how = {.in = like->in, .align = like->align, .joins = true};
    mp_island_program *fresh = NULL;
    const mp_status status = make(island, &how, key, &fresh);
    if (status != MP_OK) {
        note_not_joined(island, p, status);
        return;
    }
    fresh->owner = p;
    (void)pthread_mutex_lock(&island->lock);
    if (p->joined == NULL) {
        p->joined = fresh;
        fresh = NULL;
    }
    (void)pthread_mutex_unlock(&island->lock);
    if (fresh != NULL) {
        destroy(island, fresh);
        return;
    }
    MP_LOG(INFO, "%s has both branches in one program of %d steps", island->name,
           mp_program_step_count(p->joined->program));
}

/* `p`, which the run uses, becomes the one with both branches, if there is one. */
static mp_status prefer_joined(mp_island *island, const recipe *how, const program_key *key,
                               mp_island_program **p) {
    mp_island_program *first = *p;
    bool lacks = false;
    if (mp_program_is_last(first->program) || atomic_load(&first->never_joined)) {
        return MP_OK;
    }
    (void)pthread_mutex_lock(&island->lock);
    bool is_there = first->joined != NULL;
    (void)pthread_mutex_unlock(&island->lock);
    if (!is_there && is_join_due(first)) {
        if (mp_program_waits_for_condition(first->program)) {
            make_joined(island, first, how, key);
        } else {
            atomic_store(&first->never_joined, true);
        }
    }
    (void)pthread_mutex_lock(&island->lock);
    is_there = first->joined != NULL;
    if (is_there) {
        use(first->joined, first->last, &lacks);
        *p = first->joined;
    }
    (void)pthread_mutex_unlock(&island->lock);
    return lacks ? put_literals(island, *p) : MP_OK;
}

mp_status mp__island_program_get(mp_island *island, const mp_tensor *in, int32_t align,
                                 mp_island_program **out) {
    int64_t few[FEW_WORDS];
    int64_t *many = NULL;
    program_key key;
    const recipe how = {.in = in, .align = align};
    mp_island_program *p = NULL;
    MP_TRY(write_key(island, in, align, few, &many, &key));
    mp_status status = get(island, &island->programs, &how, &key, &p);
    if (status == MP_OK) {
        status = prefer_joined(island, &how, &key, &p);
        if (status != MP_OK) {
            mp__island_program_drop(island, p);
        }
    }
    free(many);
    *out = p;
    if (status == MP_OK) {
        mp__island_ahead_saw(island, in, align);
    }
    return status;
}

void mp__island_program_prepare(mp_island *island, const mp_tensor *in, int32_t align) {
    int64_t few[FEW_WORDS];
    int64_t *many = NULL;
    program_key key;
    const recipe how = {.in = in, .align = align};
    mp_island_program *p = NULL; /* which another thread may let go of */
    if (mp__island_program_has(island, in, align) ||
        write_key(island, in, align, few, &many, &key) != MP_OK) {
        return;
    }
    (void)get_fresh(island, &island->programs, &how, &key, mp__island_tick(island), &p, NULL);
    free(many);
}

bool mp__island_program_has(mp_island *island, const mp_tensor *in, int32_t align) {
    int64_t few[FEW_WORDS];
    int64_t *many = NULL;
    program_key key;
    if (write_key(island, in, align, few, &many, &key) != MP_OK) {
        return false;
    }
    (void)pthread_mutex_lock(&island->lock);
    const bool found = find(&island->programs, &key) != NULL;
    (void)pthread_mutex_unlock(&island->lock);
    free(many);
    return found;
}

mp_status mp__island_program_next(mp_island *island, mp_island_program *before, const void *found,
                                  mp_island_program **out) {
    const recipe how = {.before = before->program};
    const program_key key = key_of(found, mp_program_found_bytes(before->program));
    return get(island, &before->next, &how, &key, out);
}

void mp__island_program_drop(mp_island *island, mp_island_program *program) {
    if (program == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&island->lock);
    if (program->owner != NULL) {
        program->users--;
        program = program->owner;
    }
    const bool last = --program->users == 0 && program->is_out;
    (void)pthread_mutex_unlock(&island->lock);
    if (last) {
        destroy(island, program);
    }
}

void mp__island_programs_close(mp_island *island) {
    mp__island_ahead_close(island);
    close_shelf(island, &island->programs);
}
