/* profile.c - the listeners, the marks of threads, and the records that wait for their listener.
 *
 * A tag is the number of its listener above the number of the mark. Listeners come and go, so a
 * record finds its listener by that number, under the one lock; nothing is kept for one that went.
 * A part of a mark is a mark with a tag of its own; the listener keeps which mark it is of, and its
 * records are given that one's tag in the end. So devices know nothing of parts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/profile.h"

#include "base/clock.h"
#include "base/growing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    MARK_BITS = 40,        /* of a tag; the listener's number is above */
    RECORDS_MAX = 1 << 20, /* of a listener; ONNX Runtime keeps as many events of its own */
    NAMES_MIN = 256,       /* slots of the table of names; a power of two */
};

typedef struct name_table { /* every name once; open addressing */
    char **items;           /* owned, and so is each */
    size_t count, slots;
} name_table;

typedef struct part {
    uint64_t tag; /* first */
    uint64_t of;
    const char *text; /* in the table of names */
} part;

typedef struct moment { /* on both clocks */
    int64_t ns, device_ns;
} moment;

struct mp_profile {
    mp_profile *next; /* among the listeners */
    mp_device *device;
    uint64_t number;
    atomic_uint_fast64_t marks; /* given out so far */
    mp_profile_record *records; /* owned; under lock, as all below */
    size_t count, capacity;
    part *parts; /* owned; by tag */
    size_t part_count, part_capacity;
    size_t dropped;
    int64_t pending;
    name_table names;
    moment opened;
};

typedef struct mark {
    const mp_profile *owner;
    uint64_t id, tag;
    bool is_part; /* of the mark below */
    bool used;
} mark;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mp_profile *listeners;
static uint64_t listener_count; /* ever; under lock */

/* ---- marks ---- */

enum {
    MARKS_MAX = 64
}; /* more push out the oldest: marks that nobody ended, as runs end that fail */

static _Thread_local mark marks[MARKS_MAX];
static _Thread_local int mark_count;

static void push(mark fresh) {
    if (mark_count == MARKS_MAX) {
        memmove(&marks[0], &marks[1], (MARKS_MAX - 1) * sizeof marks[0]);
        mark_count--;
    }
    marks[mark_count++] = fresh;
}

static uint64_t next_tag(mp_profile *profile) {
    return profile->number << MARK_BITS |
           (atomic_fetch_add_explicit(&profile->marks, 1, memory_order_relaxed) + 1);
}

void mp_profile_push(mp_profile *profile, uint64_t id) {
    push((mark){.owner = profile, .id = id, .tag = next_tag(profile)});
}

uint64_t mp_profile_pop(mp_profile *profile, uint64_t id) {
    int at = mark_count - 1;
    while (at >= 0 && (marks[at].owner != profile || marks[at].id != id || marks[at].is_part)) {
        at--;
    }
    if (at < 0) {
        return 0;
    }
    const uint64_t tag = marks[at].used ? marks[at].tag : 0;
    mark_count = at; /* those above were left behind */
    return tag;
}

uint64_t mp__profile_tag(void) {
    if (mark_count == 0) {
        return 0;
    }
    mark *last = &marks[mark_count - 1];
    last->used = true;
    return last->tag;
}

uint64_t mp_profile_listener(void) {
    return mark_count > 0 ? marks[mark_count - 1].tag >> MARK_BITS : 0;
}

uint64_t mp__profile_correlation(void) {
    static atomic_uint_fast64_t count;
    return atomic_fetch_add_explicit(&count, 1, memory_order_relaxed) + 1;
}

/* ---- names ---- */

static size_t hash_of(const char *text) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (; *text != '\0'; text++) {
        hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    }
    return (size_t)hash;
}

static char **slot_of(const name_table *names, const char *text) {
    size_t at = hash_of(text) & (names->slots - 1);
    while (names->items[at] != NULL && strcmp(names->items[at], text) != 0) {
        at = (at + 1) & (names->slots - 1);
    }
    return &names->items[at];
}

static bool grow_names(name_table *names) {
    if (names->count * 2 < names->slots) {
        return true;
    }
    name_table wider = {.count = names->count,
                        .slots = names->slots != 0 ? names->slots * 2 : NAMES_MIN};
    wider.items = calloc(wider.slots, sizeof wider.items[0]);
    if (wider.items == NULL) {
        return false;
    }
    for (size_t i = 0; i < names->slots; i++) {
        if (names->items[i] != NULL) {
            *slot_of(&wider, names->items[i]) = names->items[i];
        }
    }
    free(names->items);
    *names = wider;
    return true;
}

/* The table's own copy of a text, or NULL without memory. */
static const char *keep_name(name_table *names, const char *text) {
    if (!grow_names(names)) {
        return NULL;
    }
    char **slot = slot_of(names, text);
    if (*slot == NULL) {
        *slot = strdup(text);
        names->count += *slot != NULL;
    }
    return *slot;
}

static void free_names(name_table *names) {
    for (size_t i = 0; i < names->slots; i++) {
        free(names->items[i]);
    }
    free(names->items);
}

/* Under lock. */
static mp_profile *find_listener(uint64_t tag) {
    mp_profile *profile = listeners;
    while (profile != NULL && profile->number != tag >> MARK_BITS) {
        profile = profile->next;
    }
    return profile;
}

/* ---- parts ---- */

static bool grow_parts(mp_profile *profile) {
    return profile->part_count < RECORDS_MAX &&
           mp_grow(&profile->parts, profile->part_count + 1, &profile->part_capacity, sizeof(part));
}

/* The tag of a new part, or 0. Tags are given out under the lock, so they are in order. */
static uint64_t add_part(mp_profile *profile, uint64_t of, const char *text) {
    const char *name = grow_parts(profile) ? keep_name(&profile->names, text) : NULL;
    if (name == NULL) {
        return 0;
    }
    const part fresh = {.tag = next_tag(profile), .of = of, .text = name};
    profile->parts[profile->part_count++] = fresh;
    return fresh.tag;
}

bool mp_profile_part_begin(const char *text) {
    if (mark_count == 0 || marks[mark_count - 1].is_part) {
        return false;
    }
    const mark around = marks[mark_count - 1]; /* its listener may have gone */
    (void)pthread_mutex_lock(&lock);
    mp_profile *profile = find_listener(around.tag);
    const uint64_t tag = profile != NULL ? add_part(profile, around.tag, text) : 0;
    (void)pthread_mutex_unlock(&lock);
    if (tag != 0) {
        push((mark){.owner = around.owner, .id = around.id, .tag = tag, .is_part = true});
    }
    return tag != 0;
}

void mp_profile_part_end(void) {
    if (mark_count == 0 || !marks[mark_count - 1].is_part) {
        return;
    }
    const bool used = marks[--mark_count].used;
    if (mark_count > 0) {
        marks[mark_count - 1].used = marks[mark_count - 1].used || used;
    }
}

int mp_profile_by_tag(const void *left, const void *right) {
    const uint64_t a = *(const uint64_t *)left;
    const uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

const void *mp_profile_find(uint64_t tag, const void *list, size_t count, size_t width) {
    return count > 0 ? bsearch(&tag, list, count, width, mp_profile_by_tag) : NULL;
}

static const part *find_part(const mp_profile *profile, uint64_t tag) {
    return mp_profile_find(tag, profile->parts, profile->part_count, sizeof(part));
}

/* Gives records of parts the tags of the marks that these are of. */
static void resolve_parts(mp_profile *profile) {
    for (size_t i = 0; i < profile->count; i++) {
        mp_profile_record *record = &profile->records[i];
        const part *now = find_part(profile, record->tag);
        const part *captured = find_part(profile, record->node_tag);
        record->tag = now != NULL ? now->of : record->tag;
        record->node_tag = captured != NULL ? captured->of : record->node_tag;
        record->part = captured != NULL ? captured->text : NULL;
    }
}

/* ---- records ---- */

static bool grow_records(mp_profile *profile) {
    return profile->count < RECORDS_MAX && mp_grow(&profile->records, profile->count + 1,
                                                   &profile->capacity, sizeof(mp_profile_record));
}

static void keep_record(mp_profile *profile, const mp_profile_record *record) {
    const char *name = grow_records(profile) ? keep_name(&profile->names, record->name) : NULL;
    if (name == NULL) {
        profile->dropped++;
        return;
    }
    profile->records[profile->count] = *record;
    profile->records[profile->count].part = NULL;
    profile->records[profile->count++].name = name;
}

void mp__profile_add(const mp_profile_record *record) {
    (void)pthread_mutex_lock(&lock);
    mp_profile *profile = find_listener(record->tag);
    if (profile != NULL) {
        keep_record(profile, record);
    }
    (void)pthread_mutex_unlock(&lock);
}

void mp__profile_expect(uint64_t tag, int change) {
    (void)pthread_mutex_lock(&lock);
    mp_profile *profile = find_listener(tag);
    if (profile != NULL) {
        profile->pending += change;
    }
    (void)pthread_mutex_unlock(&lock);
}

int64_t mp__profile_pending(const mp_profile *profile) {
    (void)pthread_mutex_lock(&lock);
    const int64_t pending = profile->pending;
    (void)pthread_mutex_unlock(&lock);
    return pending;
}

/* ---- the device's clock and ours ---- */

/* Reads both. The thread may be stopped between two readings, so the device's is taken between two
 * of ours, and those that lie closest together count. */
static moment read_clocks(mp_device *device) {
    enum { TRIES = 5 };
    moment read = {0};
    if (device->ops->profile_clock == NULL) {
        return read;
    }
    int64_t least = INT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        const int64_t before = mp_clock_ns();
        const int64_t device_ns = device->ops->profile_clock(device);
        const int64_t width = mp_clock_ns() - before;
        if (width < least) {
            least = width;
            read = (moment){before + width / 2, device_ns};
        }
    }
    return read;
}

/* From the device's clock to ours. The two may run at slightly different speeds, so moments between
 * the two at which both were read lie on the line between them. */
static void set_clocks(mp_profile *profile, moment closed) {
    const moment opened = profile->opened;
    const int64_t span = closed.device_ns - opened.device_ns;
    const int64_t drift = closed.ns - opened.ns - span;
    for (size_t i = 0; i < profile->count; i++) {
        mp_profile_record *record = &profile->records[i];
        const int64_t since = record->begin_ns - opened.device_ns;
        const double share = span > 0 ? (double)since / (double)span : 0;
        const int64_t shift = opened.ns - opened.device_ns + (int64_t)(share * (double)drift);
        record->begin_ns += shift;
        record->end_ns += shift;
    }
}

/* ---- listeners ---- */

mp_status mp_profile_open(mp_device *device, mp_profile **out) {
    *out = NULL;
    mp_profile *profile = calloc(1, sizeof *profile);
    if (profile == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to profile %s",
                       device->info.name);
    }
    const mp_status status = device->ops->profile_begin(device);
    if (status != MP_OK) {
        free(profile);
        return status;
    }
    profile->device = device;
    profile->opened = read_clocks(device);
    (void)pthread_mutex_lock(&lock);
    profile->number = ++listener_count;
    profile->next = listeners;
    listeners = profile;
    (void)pthread_mutex_unlock(&lock);
    *out = profile;
    return MP_OK;
}

static void unlink_listener(const mp_profile *profile) {
    (void)pthread_mutex_lock(&lock);
    mp_profile **link = &listeners;
    while (*link != profile) {
        link = &(*link)->next;
    }
    *link = profile->next;
    (void)pthread_mutex_unlock(&lock);
}

static int by_begin(const void *left, const void *right) {
    const int64_t a = ((const mp_profile_record *)left)->begin_ns;
    const int64_t b = ((const mp_profile_record *)right)->begin_ns;
    return (a > b) - (a < b);
}

size_t mp_profile_close(mp_profile *profile, mp_profile_visit *visit, void *context) {
    mp_device *device = profile->device;
    device->ops->profile_flush(device, profile);
    unlink_listener(profile); /* from here on nobody else writes to it */
    set_clocks(profile, read_clocks(device));
    device->ops->profile_end(device);
    resolve_parts(profile);
    if (profile->count > 0) {
        qsort(profile->records, profile->count, sizeof profile->records[0], by_begin);
    }
    for (size_t i = 0; i < profile->count; i++) {
        visit(context, &profile->records[i]);
    }
    const size_t dropped = profile->dropped;
    free_names(&profile->names);
    free(profile->records);
    free(profile->parts);
    free(profile);
    return dropped;
}
