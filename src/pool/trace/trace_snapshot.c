/* trace_snapshot.c - the trace as a snapshot that PyTorch's memory viewer opens.
 *
 * The viewer starts from the segments as they are now and undoes the events one by one, so every
 * event must fit what it undoes: memory that is given back must have been there, a block must lie
 * in a segment. A first pass, backwards as well, finds those that would not (the device gave a
 * block on its own, say) and marks them.
 *
 * Our words for its words: a region is a segment (of an expandable region: a range of pages that
 * are mapped), and a free is complete at once but for a block that still waits for a stream. Frames
 * are in trace_frames.c.
 * SPDX-License-Identifier: Apache-2.0 */
#include "pool/trace/trace_format.h"
#include "pool/trace/trace_frames.h"
#include "pool/trace/trace_map.h"
#include "pool/trace/trace_pickle.h"
#include "pool/trace/trace_ranges.h"

#include <assert.h>
#include <stdlib.h>

/* X(name): the words of the format. */
/* clang-format off */
#define WORDS(X)                                                                                   \
    X(segments) X(device_traces) X(allocator_settings) X(external_annotations)                     \
    X(device) X(address) X(total_size) X(allocated_size) X(active_size) X(requested_size)          \
    X(stream) X(segment_type) X(large) X(small) X(segment_pool_id) X(is_expandable)                \
    X(frames)                                                                                      \
    X(blocks) X(size) X(state) X(active_allocated) X(active_pending_free) X(inactive)              \
    X(action) X(addr) X(time_us) X(device_free) X(user_metadata) X(thread) X(lent_as)              \
    X(alloc) X(free_requested) X(free_completed) X(oom)                                            \
    X(segment_alloc) X(segment_free) X(segment_map) X(segment_unmap)                               \
    X(allocator) X(version) X(expandable_segments) X(trace_alloc_overflowed)
/* clang-format on */

enum word {
#define X(name) W_##name,
    WORDS(X)
#undef X
        WORD_COUNT
};

static_assert((int)WORD_COUNT <= (int)MP_PICKLE_WORDS_MAX, "the pickle has room for the words");

static const char *const words[] = {
#define X(name) #name,
    WORDS(X)
#undef X
};

/* What the first pass finds out about an event. */
enum mark {
    MARK_ALONE = 1,    /* a block outside every segment: has one of its own */
    MARK_PENDING = 2,  /* the block still waits for a stream */
    MARK_LEFT_OUT = 4, /* does not fit */
    MARK_PAGES = 8,    /* a range of pages of an expandable region */
};

/* Segments larger than this count as large, as they do for PyTorch. */
enum { SMALL_MAX = 1 << 20 };

typedef struct snapshot {
    mp_pickle pickle;
    const mp_trace_view *view;
    uint8_t *marks;   /* owned; one an event */
    mp_frames frames; /* owned */
    mp_map stacks;    /* of the blocks allocated now, by address */
} snapshot;

/* ---- the first pass ---- */

static mp_range range_of(mp_addr addr, uint64_t size) {
    return (mp_range){addr, addr + size};
}

static mp_status mark_event(snapshot *s, mp_ranges *mapped, mp_map *waiting, size_t index) {
    const mp_trace_event *event = &s->view->events[index];
    const mp_range range = range_of(event->addr, event->size);
    uint64_t ignored;
    s->marks[index] = event->pages ? MARK_PAGES : 0;
    switch ((mp_trace_action)event->action) {
    case MP_TRACE_FREE:
        if (mp__map_take(waiting, event->addr, &ignored)) {
            s->marks[index] |= MARK_PENDING;
        }
        /* fall through */
    case MP_TRACE_ALLOC:
        if (!mp__ranges_hold(mapped, range)) {
            s->marks[index] |= MARK_ALONE;
        }
        break;
    case MP_TRACE_GROW:
        if (mp__ranges_hold(mapped, range)) {
            return mp__ranges_remove(mapped, range);
        }
        s->marks[index] |= MARK_LEFT_OUT;
        break;
    case MP_TRACE_SHRINK:
        return mp__ranges_add(mapped, range);
    case MP_TRACE_USE:
    case MP_TRACE_FAIL:
        break;
    }
    return MP_OK;
}

/* What is mapped, and what waits, after the last event. Memory outside the arena comes and goes
 * with its block. */
static mp_status read_layout(const mp_layout *layout, mp_ranges *mapped, mp_map *waiting) {
    for (size_t r = 0; r < layout->region_count; r++) {
        const mp_layout_region *region = &layout->regions[r];
        for (size_t i = 0; i < region->block_count; i++) {
            const mp_layout_block *block = &layout->blocks[region->first_block + i];
            if (block->state != MP_BLOCK_UNMAPPED && !region->reserved) {
                MP_TRY(mp__ranges_add(mapped, range_of(block->addr, block->size)));
            }
            if (block->state == MP_BLOCK_WAITING) {
                MP_TRY(mp__map_set(waiting, block->addr, block->size));
            }
        }
    }
    return MP_OK;
}

static mp_status mark_events(snapshot *s) {
    mp_ranges mapped = {0};
    mp_map waiting = {0};
    mp_status status = read_layout(s->view->layout, &mapped, &waiting);
    for (size_t i = s->view->count; i-- > 0 && status == MP_OK;) {
        status = mark_event(s, &mapped, &waiting, i);
    }
    mp__ranges_free(&mapped);
    mp__map_free(&waiting);
    return status;
}

/* The stacks of blocks that are allocated after the last event, as far as they were looked at. */
static mp_status find_stacks(snapshot *s) {
    mp_status status = MP_OK;
    for (size_t i = 0; i < s->view->count && status == MP_OK; i++) {
        const mp_trace_event *event = &s->view->events[i];
        uint64_t ignored;
        if (event->action == MP_TRACE_FREE) {
            (void)mp__map_take(&s->stacks, event->addr, &ignored);
        } else if (event->action == MP_TRACE_ALLOC && event->stack != 0) {
            status = mp__map_set(&s->stacks, event->addr, event->stack);
        }
    }
    return status;
}

/* ---- pieces ---- */

static void put_key(snapshot *s, enum word key) {
    mp__pickle_word(&s->pickle, key);
}

static void put_int(snapshot *s, enum word key, uint64_t value) {
    put_key(s, key);
    mp__pickle_int(&s->pickle, (int64_t)value);
}

static void put_word(snapshot *s, enum word key, enum word value) {
    put_key(s, key);
    put_key(s, value);
}

static void put_text(snapshot *s, enum word key, const char *text) {
    put_key(s, key);
    mp__pickle_text(&s->pickle, text);
}

static void put_bool(snapshot *s, enum word key, bool value) {
    put_key(s, key);
    mp__pickle_bool(&s->pickle, value);
}

/* What the viewer shows beside a block or an event. */
static void put_frames(snapshot *s, uint8_t client, uint16_t label, uint16_t stack) {
    put_key(s, W_frames);
    mp__frames_put(&s->frames, &s->pickle, client, label, stack);
}

static void put_no_frames(snapshot *s) {
    put_key(s, W_frames);
    mp__pickle_list(&s->pickle);
    mp__pickle_end_list(&s->pickle);
}

/* ---- segments ---- */

static void put_block(snapshot *s, const mp_layout_block *block) {
    const bool lent = block->state == MP_BLOCK_LENT;
    mp__pickle_dict(&s->pickle);
    put_int(s, W_address, block->addr);
    put_int(s, W_size, block->size);
    put_int(s, W_requested_size, lent ? block->requested : block->size);
    put_word(s, W_state,
             lent                               ? W_active_allocated
             : block->state == MP_BLOCK_WAITING ? W_active_pending_free
                                                : W_inactive);
    if (lent) {
        uint64_t stack = 0;
        (void)mp__map_get(&s->stacks, block->addr, &stack);
        put_frames(s, block->client, block->label, (uint16_t)stack);
    } else {
        put_no_frames(s);
    }
    mp__pickle_end_dict(&s->pickle);
}

/* A segment made of `count` blocks that follow each other. */
static void put_segment(snapshot *s, const mp_layout_region *region, const mp_layout_block *blocks,
                        size_t count) {
    uint64_t total = 0, lent = 0, waiting = 0, requested = 0;
    for (size_t i = 0; i < count; i++) {
        total += blocks[i].size;
        lent += blocks[i].state == MP_BLOCK_LENT ? blocks[i].size : 0;
        waiting += blocks[i].state == MP_BLOCK_WAITING ? blocks[i].size : 0;
        requested += blocks[i].state == MP_BLOCK_LENT ? blocks[i].requested : 0;
    }
    mp__pickle_dict(&s->pickle);
    put_int(s, W_device, (uint64_t)s->view->layout->device->ordinal);
    put_int(s, W_address, blocks[0].addr);
    put_int(s, W_total_size, total);
    put_int(s, W_allocated_size, lent);
    put_int(s, W_active_size, lent + waiting);
    put_int(s, W_requested_size, requested);
    put_int(s, W_stream, 0); /* regions serve all streams */
    put_word(s, W_segment_type, total > SMALL_MAX ? W_large : W_small);
    put_key(s, W_segment_pool_id);
    mp__pickle_int(&s->pickle, 0);
    mp__pickle_int(&s->pickle, 0);
    mp__pickle_pair(&s->pickle);
    put_bool(s, W_is_expandable, region->expandable);
    put_no_frames(s);
    put_key(s, W_blocks);
    mp__pickle_list(&s->pickle);
    for (size_t i = 0; i < count; i++) {
        mp__pickle_item(&s->pickle, i);
        put_block(s, &blocks[i]);
    }
    mp__pickle_end_list(&s->pickle);
    mp__pickle_end_dict(&s->pickle);
}

static void put_segments(snapshot *s) {
    const mp_layout *layout = s->view->layout;
    size_t written = 0;
    put_key(s, W_segments);
    mp__pickle_list(&s->pickle);
    for (size_t r = 0; r < layout->region_count; r++) {
        const mp_layout_region *region = &layout->regions[r];
        const mp_layout_block *blocks = layout->blocks + region->first_block;
        for (size_t first = 0, last; first < region->block_count; first = last + 1) {
            last = first;
            while (last < region->block_count && blocks[last].state != MP_BLOCK_UNMAPPED) {
                last++;
            }
            if (last > first) {
                mp__pickle_item(&s->pickle, written++);
                put_segment(s, region, blocks + first, last - first);
            }
        }
    }
    mp__pickle_end_list(&s->pickle);
}

/* ---- events ---- */

static void put_metadata(snapshot *s, const mp_trace_event *event) {
    put_key(s, W_user_metadata);
    mp__pickle_dict(&s->pickle);
    put_int(s, W_thread, event->thread);
    put_int(s, W_lent_as, event->size);
    mp__pickle_end_dict(&s->pickle);
}

static void put_entry(snapshot *s, const mp_trace_event *event, enum word action, bool of_segment) {
    mp__pickle_dict(&s->pickle);
    put_word(s, W_action, action);
    if (action == W_oom) {
        const uint64_t limit = s->view->layout->stats.limit;
        const bool limited = limit != UINT64_MAX && limit > event->total;
        put_int(s, W_device_free, limited ? limit - event->total : 0);
    } else {
        put_int(s, W_addr, event->addr);
    }
    put_int(s, W_size, of_segment ? event->size : event->requested);
    put_int(s, W_stream, of_segment ? 0 : (uintptr_t)event->stream);
    put_int(s, W_time_us, event->time_ns / 1000);
    put_frames(s, event->client, event->label, event->stack);
    put_metadata(s, event);
    mp__pickle_end_dict(&s->pickle);
}

/* Which entries an event stands for, in this order: those of its action whose marks are there and
 * not there. */
static const struct {
    mp_trace_action action;
    unsigned needs, lacks;
    enum word word;
    bool of_segment;
} rules[] = {
    {MP_TRACE_ALLOC, MARK_ALONE, 0, W_segment_alloc, true},
    {MP_TRACE_ALLOC, 0, 0, W_alloc, false},
    {MP_TRACE_FREE, 0, 0, W_free_requested, false},
    {MP_TRACE_FREE, 0, MARK_PENDING, W_free_completed, false},
    {MP_TRACE_FREE, MARK_ALONE, MARK_PENDING, W_segment_free, true},
    {MP_TRACE_FAIL, 0, 0, W_oom, false},
    {MP_TRACE_GROW, 0, MARK_LEFT_OUT | MARK_PAGES, W_segment_alloc, true},
    {MP_TRACE_GROW, MARK_PAGES, MARK_LEFT_OUT, W_segment_map, true},
    {MP_TRACE_SHRINK, 0, MARK_PAGES, W_segment_free, true},
    {MP_TRACE_SHRINK, MARK_PAGES, 0, W_segment_unmap, true},
};

static void put_event(snapshot *s, const mp_trace_event *event, unsigned marks, size_t *written) {
    for (size_t i = 0; i < MP_COUNT_OF(rules); i++) {
        if (rules[i].action == event->action && (marks & rules[i].needs) == rules[i].needs &&
            (marks & rules[i].lacks) == 0) {
            mp__pickle_item(&s->pickle, (*written)++);
            put_entry(s, event, rules[i].word, rules[i].of_segment);
        }
    }
}

/* A list of events for each device below ours, and ours. */
static void put_events(snapshot *s) {
    size_t written = 0;
    put_key(s, W_device_traces);
    mp__pickle_list(&s->pickle);
    for (int i = 0; i < s->view->layout->device->ordinal; i++) {
        mp__pickle_list(&s->pickle);
        mp__pickle_end_list(&s->pickle);
    }
    mp__pickle_list(&s->pickle);
    for (size_t i = 0; i < s->view->count; i++) {
        put_event(s, &s->view->events[i], s->marks[i], &written);
    }
    mp__pickle_end_list(&s->pickle);
    mp__pickle_end_list(&s->pickle);
}

static void put_settings(snapshot *s) {
    bool expandable = false;
    for (size_t i = 0; i < s->view->layout->region_count; i++) {
        expandable = expandable || s->view->layout->regions[i].expandable;
    }
    put_key(s, W_allocator_settings);
    mp__pickle_dict(&s->pickle);
    put_text(s, W_allocator, "Millpond");
    put_text(s, W_version, MILLPOND_VERSION);
    put_bool(s, W_expandable_segments, expandable);
    put_bool(s, W_trace_alloc_overflowed, s->view->dropped > 0);
    mp__pickle_end_dict(&s->pickle);
}

static void put_all(snapshot *s, mp_writer *writer) {
    mp__pickle_begin(&s->pickle, writer, words);
    mp__pickle_dict(&s->pickle);
    put_segments(s);
    put_events(s);
    put_settings(s);
    put_key(s, W_external_annotations);
    mp__pickle_list(&s->pickle);
    mp__pickle_end_list(&s->pickle);
    mp__pickle_end_dict(&s->pickle);
    mp__pickle_end(&s->pickle);
}

mp_status mp__trace_snapshot(mp_writer *writer, const mp_trace_view *view) {
    snapshot s = {.view = view, .marks = calloc(view->count + 1, 1)};
    if (s.marks == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "no memory for the marks of %zu events", view->count);
    }
    mp__frames_begin(&s.frames, view->layout);
    mp_status status = mark_events(&s);
    if (status == MP_OK) {
        status = find_stacks(&s);
    }
    if (status == MP_OK) {
        put_all(&s, writer);
        status = s.frames.status;
    }
    mp__frames_end(&s.frames);
    mp__map_free(&s.stacks);
    free(s.marks);
    return status;
}
