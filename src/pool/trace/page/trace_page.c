/* trace_page.c - the trace as one page that a browser opens from a file.
 *
 * The page is the text of trace_page.html with the data in its middle, as three elements that no
 * browser runs: "about" is JSON, "blocks" and "events" are rows of numbers. A number takes as many
 * bytes as it needs, seven bits in each, the lowest first; differences that may be negative have
 * their sign in the lowest bit; the bytes are written in base64. trace_page_read.js reads the rows,
 * trace_page_model.js and trace_page_labels.js the JSON: they must agree on the order of fields.
 *
 * Addresses are offsets from the lowest one, so that they are exact in the numbers of JavaScript.
 * Streams, threads, labels, stacks and frames are numbered in the order they appear.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/note.h"
#include "pool/pool_handle.h"
#include "pool/trace/trace_format.h"
#include "pool/trace/trace_label.h"
#include "pool/trace/trace_numbering.h"
#include "pool/trace/trace_stack.h"
#include "pool/trace/trace_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct page {
    mp_writer *writer;
    const mp_trace_view *view;
    mp_addr base; /* the lowest address */
    mp_numbering streams, threads, labels, stacks, frames;
    unsigned char triple[3]; /* bytes that wait for base64 */
    size_t waiting;
} page;

/* ---- numbering ---- */

static mp_status number_stack(page *p, uint16_t stack) {
    size_t count = 0;
    const uint16_t *frames = mp__stack_frames(stack, &count);
    for (size_t i = 0; i < count; i++) {
        MP_TRY(mp__number(&p->frames, frames[i]));
    }
    return mp__number(&p->stacks, stack);
}

static mp_status survey_event(page *p, const mp_trace_event *event) {
    MP_TRY(mp__number(&p->streams, (uintptr_t)event->stream));
    MP_TRY(mp__number(&p->threads, event->thread));
    MP_TRY(mp__number(&p->labels, event->label));
    if (event->addr != 0 && event->addr < p->base) {
        p->base = event->addr;
    }
    return number_stack(p, event->stack);
}

/* Numbers all that has a number, and finds the lowest address. Streams that were used come first,
 * in the order of their first use. */
static mp_status survey(page *p) {
    const mp_layout *layout = p->view->layout;
    p->base = UINTPTR_MAX;
    for (size_t i = 0; i < layout->region_count; i++) {
        p->base = MP_MIN(layout->regions[i].addr, p->base);
    }
    for (size_t i = 0; i < p->view->count; i++) {
        MP_TRY(survey_event(p, &p->view->events[i]));
    }
    for (size_t i = 0; i < layout->block_count; i++) {
        MP_TRY(mp__number(&p->streams, (uintptr_t)layout->blocks[i].stream));
        MP_TRY(mp__number(&p->labels, layout->blocks[i].label));
    }
    for (size_t i = 0; i < layout->part_count; i++) {
        MP_TRY(mp__number(&p->labels, layout->parts[i].label));
    }
    p->base = p->base == UINTPTR_MAX ? 0 : p->base;
    return MP_OK;
}

/* ---- base64 ---- */

static void put_triple(page *p) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char text[4];
    const unsigned all = (unsigned)p->triple[0] << 16 | (unsigned)p->triple[1] << 8 | p->triple[2];
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = i <= p->waiting ? digits[all >> (18 - 6 * i) & 63] : '=';
    }
    mp__writer_put(p->writer, text, sizeof text);
    memset(p->triple, 0, sizeof p->triple);
    p->waiting = 0;
}

static void put_byte(page *p, unsigned char byte) {
    p->triple[p->waiting++] = byte;
    if (p->waiting == sizeof p->triple) {
        put_triple(p);
    }
}

static void end_bytes(page *p) {
    if (p->waiting > 0) {
        put_triple(p);
    }
}

static void put_number(page *p, uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
        put_byte(p, (unsigned char)(value | 0x80));
    }
    put_byte(p, (unsigned char)value);
}

/* The difference of two numbers, with its sign in the lowest bit. */
static void put_step(page *p, uint64_t from, uint64_t to) {
    put_number(p, to >= from ? (to - from) << 1 : ((from - to) << 1) - 1);
}

/* ---- JSON ---- */

/* A string between quotes. '<' is escaped, so that no text can end the element around it. */
static void put_string(page *p, const char *text, size_t size) {
    char clean[256];
    mp__text_clean(text, size < sizeof clean - 1 ? size : sizeof clean - 1, clean);
    mp__writer_put(p->writer, "\"", 1);
    for (const char *c = clean; *c != '\0'; c++) {
        const unsigned char byte = (unsigned char)*c;
        if (byte < 0x20 || byte == 0x7f || strchr("\"\\<>&'", *c) != NULL) {
            mp__writer_print(p->writer, "\\u%04x", byte);
        } else {
            mp__writer_put(p->writer, c, 1);
        }
    }
    mp__writer_put(p->writer, "\"", 1);
}

static void put_stats(page *p) {
    const mp_pool_stats *stats = &p->view->layout->stats;
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        {"in_use", stats->in_use},         {"requested", stats->requested},
        {"in_use_max", stats->in_use_max}, {"total", stats->total},
        {"total_max", stats->total_max},   {"alloc_size_max", stats->alloc_size_max},
        {"allocs", stats->allocs},         {"frees", stats->frees},
        {"reserves", stats->reserves},     {"extensions", stats->extensions},
        {"shrinkages", stats->shrinkages}, {"failures", stats->failures},
        {"events", stats->events},         {"waits", stats->waits},
    };
    mp__writer_print(p->writer, ",\n\"stats\":{\"limit\":");
    if (stats->limit == UINT64_MAX) {
        mp__writer_print(p->writer, "null");
    } else {
        mp__writer_print(p->writer, "%" PRIu64, stats->limit);
    }
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        mp__writer_print(p->writer, ",\"%s\":%" PRIu64, rows[i].name, rows[i].value);
    }
    mp__writer_print(p->writer, "}");
}

static void put_regions(page *p) {
    const mp_layout *layout = p->view->layout;
    mp__writer_print(p->writer, ",\n\"regions\":[");
    for (size_t i = 0; i < layout->region_count; i++) {
        const mp_layout_region *region = &layout->regions[i];
        mp__writer_print(p->writer, "%s[%" PRIu64 ",%zu,%d,%d,%zu,%zu]", i > 0 ? "," : "",
                         (uint64_t)(region->addr - p->base), region->size, region->expandable,
                         region->reserved, region->first_block, region->block_count);
    }
    mp__writer_print(p->writer, "]");
}

/* [offset, size, label] of each part of a block. */
static void put_parts(page *p) {
    const mp_layout *layout = p->view->layout;
    mp__writer_print(p->writer, ",\n\"parts\":[");
    for (size_t i = 0; i < layout->part_count; i++) {
        const mp_layout_part *part = &layout->parts[i];
        mp__writer_print(p->writer, "%s[%" PRIu64 ",%zu,%" PRIu64 "]", i > 0 ? "," : "",
                         (uint64_t)(part->addr - p->base), part->size,
                         mp__number_of(&p->labels, part->label));
    }
    mp__writer_print(p->writer, "]");
}

/* Numbers of 64 bits, as texts, since JavaScript's have 53. */
static void put_values(page *p, const char *name, const mp_numbering *all) {
    mp__writer_print(p->writer, ",\n\"%s\":[", name);
    for (size_t i = 0; i < all->numbers.count; i++) {
        mp__writer_print(p->writer, "%s\"0x%" PRIx64 "\"", i > 0 ? "," : "", all->values[i]);
    }
    mp__writer_print(p->writer, "]");
}

/* [kind, node, tensor] of each. */
static void put_labels(page *p) {
    mp__writer_print(p->writer, ",\n\"labels\":[");
    for (size_t i = 0; i < p->labels.numbers.count; i++) {
        const mp_label_info info = mp__label_info((uint16_t)p->labels.values[i]);
        mp__writer_print(p->writer, "%s[\"%s\",", i > 0 ? "," : "", mp__label_kind_name(info.kind));
        put_string(p, info.node, MP_LABEL_TEXT_MAX);
        mp__writer_print(p->writer, ",");
        put_string(p, info.tensor, MP_LABEL_TEXT_MAX);
        mp__writer_print(p->writer, "]");
    }
    mp__writer_print(p->writer, "]");
}

static void put_lines(page *p, const char *text) {
    for (const char *line = text; *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        mp__writer_print(p->writer, line > text ? "," : "");
        put_string(p, line, length);
        line += length + (line[length] != '\0');
    }
}

/* What is known of memory with this label besides; NULL for nothing, else until free. */
static char *find_note(uint16_t label) {
    char name[sizeof MP_LABEL_NOTE + MP_LABEL_TEXT_MAX];
    size_t length = 0;
    const mp_label_info info = mp__label_info(label);
    (void)snprintf(name, sizeof name, MP_LABEL_NOTE "%s", info.node);
    if (mp_note_find(name, NULL, 0, &length) != MP_OK) {
        return NULL;
    }
    char *text = calloc(1, length + 1);
    if (text != NULL && mp_note_find(name, text, length + 1, &length) != MP_OK) {
        free(text);
        return NULL;
    }
    return text;
}

/* {number of a label: lines} */
static void put_notes(page *p) {
    bool any = false;
    mp__writer_print(p->writer, ",\n\"notes\":{");
    for (size_t i = 0; i < p->labels.numbers.count; i++) {
        char *text = find_note((uint16_t)p->labels.values[i]);
        if (text != NULL) {
            mp__writer_print(p->writer, "%s\"%zu\":[", any ? "," : "", i);
            put_lines(p, text);
            mp__writer_print(p->writer, "]");
            any = true;
        }
        free(text);
    }
    mp__writer_print(p->writer, "}");
}

/* [file, line, function] of each. */
static void put_frames(page *p) {
    mp__writer_print(p->writer, ",\n\"frames\":[");
    for (size_t i = 0; i < p->frames.numbers.count; i++) {
        const mp_frame frame = mp__stack_frame((uint16_t)p->frames.values[i]);
        mp__writer_print(p->writer, i > 0 ? ",[" : "[");
        put_string(p, frame.file, MP_FRAME_TEXT_MAX);
        mp__writer_print(p->writer, ",%" PRId32 ",", frame.line);
        put_string(p, frame.function, MP_FRAME_TEXT_MAX);
        mp__writer_print(p->writer, "]");
    }
    mp__writer_print(p->writer, "]");
}

/* The frames of each, by number, the innermost first. */
static void put_stacks(page *p) {
    mp__writer_print(p->writer, ",\n\"stacks\":[");
    for (size_t i = 0; i < p->stacks.numbers.count; i++) {
        size_t count = 0;
        const uint16_t *frames = mp__stack_frames((uint16_t)p->stacks.values[i], &count);
        mp__writer_print(p->writer, i > 0 ? ",[" : "[");
        for (size_t k = 0; k < count; k++) {
            mp__writer_print(p->writer, "%s%" PRIu64, k > 0 ? "," : "",
                             mp__number_of(&p->frames, frames[k]));
        }
        mp__writer_print(p->writer, "]");
    }
    mp__writer_print(p->writer, "]");
}

static void put_about(page *p) {
    const mp_layout *layout = p->view->layout;
    const mp_device *device = layout->device;
    const uint64_t start_ns = p->view->count > 0 ? p->view->events[0].time_ns : 0;
    mp__writer_print(p->writer, "{\"version\":\"%s\",\"device\":\"%s:%d\",\"memory\":\"%s\"",
                     MILLPOND_VERSION, device->info.kind == MP_DEVICE_CUDA ? "cuda" : "host",
                     device->ordinal, layout->memory == MP_MEMORY_PINNED ? "pinned" : "device");
    mp__writer_print(p->writer, ",\"name\":");
    put_string(p, device->info.name, sizeof device->info.name);
    mp__writer_print(p->writer, ",\"driver\":");
    put_string(p, device->info.driver, sizeof device->info.driver);
    mp__writer_print(p->writer, ",\"device_bytes\":%zu,\"written\":%" PRIu64,
                     device->info.memory_bytes, (uint64_t)time(NULL));
    mp__writer_print(p->writer, ",\"base\":\"0x%" PRIxPTR "\",\"start_ns\":\"%" PRIu64 "\"",
                     p->base, start_ns);
    mp__writer_print(p->writer, ",\"event_count\":%zu,\"dropped\":%" PRIu64 ",\"block_count\":%zu",
                     p->view->count, p->view->dropped, layout->block_count);
    mp__writer_print(p->writer, ",\n\"clients\":[");
    for (size_t i = 0; i < layout->client_count; i++) {
        mp__writer_print(p->writer, i > 0 ? "," : "");
        put_string(p, layout->clients[i], sizeof layout->clients[i]);
    }
    mp__writer_print(p->writer, "]");
    put_values(p, "streams", &p->streams);
    put_values(p, "threads", &p->threads);
    put_labels(p);
    put_notes(p);
    put_frames(p);
    put_stacks(p);
    put_parts(p);
    put_stats(p);
    put_regions(p);
    mp__writer_print(p->writer, "}");
}

/* ---- rows ---- */

static void put_blocks(page *p) {
    const mp_layout *layout = p->view->layout;
    mp_addr end = p->base; /* of the block before: blocks mostly follow each other */
    for (size_t i = 0; i < layout->block_count; i++) {
        const mp_layout_block *block = &layout->blocks[i];
        put_step(p, end, block->addr);
        put_number(p, block->size);
        put_number(p, block->requested);
        put_number(p, mp__number_of(&p->streams, (uintptr_t)block->stream));
        put_number(p, block->state);
        put_number(p, block->client);
        put_number(p, mp__number_of(&p->labels, block->label));
        end = block->addr + block->size;
    }
    end_bytes(p);
}

static void put_events(page *p) {
    mp_trace_event before = {.addr = p->base};
    if (p->view->count > 0) {
        before.time_ns = p->view->events[0].time_ns;
    }
    for (size_t i = 0; i < p->view->count; i++) {
        mp_trace_event event = p->view->events[i];
        event.addr = event.addr != 0 ? event.addr : before.addr; /* of a failure: says nothing */
        put_number(p, event.time_ns - before.time_ns);
        put_number(p, (unsigned)event.action | (event.pages ? 8u : 0u));
        put_number(p, event.client);
        put_step(p, before.addr, event.addr);
        put_number(p, event.size);
        put_number(p, event.requested);
        put_number(p, mp__number_of(&p->streams, (uintptr_t)event.stream));
        put_number(p, mp__number_of(&p->threads, event.thread));
        put_step(p, before.total, event.total);
        put_number(p, mp__number_of(&p->labels, event.label));
        put_number(p, mp__number_of(&p->stacks, event.stack));
        before = event;
    }
    end_bytes(p);
}

static void put_element(page *p, const char *id, const char *type, void (*put)(page *p)) {
    mp__writer_print(p->writer, "<script type=\"%s\" id=\"%s\">", type, id);
    put(p);
    mp__writer_print(p->writer, "</script>\n");
}

mp_status mp__trace_page(mp_writer *writer, const mp_trace_view *view) {
    page p = {.writer = writer, .view = view};
    const mp_status status = survey(&p);
    if (status == MP_OK) {
        mp__writer_put(writer, mp__page_head, mp__page_head_size);
        put_element(&p, "about", "application/json", put_about);
        put_element(&p, "blocks", "text/plain", put_blocks);
        put_element(&p, "events", "text/plain", put_events);
        mp__writer_put(writer, mp__page_tail, mp__page_tail_size);
    }
    mp__numbering_free(&p.streams);
    mp__numbering_free(&p.threads);
    mp__numbering_free(&p.labels);
    mp__numbering_free(&p.stacks);
    mp__numbering_free(&p.frames);
    return status;
}
