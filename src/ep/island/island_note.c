/* island_note.c - see island_note.h.
 *
 * Notes are made when somebody looks, of the islands as they are then. Locks are taken in this
 * order: that of notes, the list's, an island's.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/island/island_note.h"

#include "base/json.h"
#include "base/log.h"
#include "ep/abi/bridge.h"
#include "graph/program_write.h"
#include "graph/text.h"
#include "pool/pool_handle.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SUFFIX "/islands"

/* ---- programs ---- */

/* The inputs that a program was made for, from its key; see island_program.c. Gives: a list, until
 * free; NULL without memory. */
static mp_tensor *inputs_of(const mp_island *island, const mp_island_program *p) {
    const int32_t count = island->graph->input_count;
    const int64_t *at = (const int64_t *)p->key + 1;
    mp_tensor *in = calloc((size_t)count + 1, sizeof *in);
    for (int32_t i = 0; in != NULL && i < count; i++) {
        const int64_t word = *at++;
        in[i].type = (mp_dtype)(word >> 8);
        in[i].shape.rank = (int32_t)(word & 0xff);
        for (int32_t d = 0; d < in[i].shape.rank; d++) {
            in[i].shape.dim[d] = *at++;
        }
    }
    return in;
}

static void write_input(const char *name, const mp_tensor *tensor, FILE *out) {
    (void)fputs("{\"name\":", out);
    mp_json_text(out, name);
    (void)fputs(",\"type\":", out);
    mp_json_text(out, mp_dtype_word(tensor->type));
    (void)fputs(",\"shape\":[", out);
    for (int32_t d = 0; d < tensor->shape.rank; d++) {
        (void)fprintf(out, "%s%" PRId64, d > 0 ? "," : "", tensor->shape.dim[d]);
    }
    (void)fputs("]}", out);
}

/* What is planned behind the program, each with what is behind that. */
static bool write_next(const mp_island *island, const mp_island_program *p, const mp_tensor *in,
                       FILE *out) {
    bool whole = true;
    (void)fputs(",\"next\":[", out);
    for (int i = 0; i < p->next.count; i++) {
        const mp_island_program *next = p->next.list[i];
        (void)fputs(i > 0 ? ",{" : "{", out);
        whole = mp_program_write(next->program, island->graph, in, out) == MP_OK && whole;
        whole = write_next(island, next, in, out) && whole;
        (void)fputc('}', out);
    }
    (void)fputc(']', out);
    return whole;
}

static bool write_program(const mp_island *island, const mp_island_program *p, FILE *out) {
    const mp_graph *graph = island->graph;
    mp_tensor *in = inputs_of(island, p);
    if (in == NULL) {
        return false;
    }
    (void)fputs("{\"inputs\":[", out);
    for (int32_t i = 0; i < graph->input_count; i++) {
        (void)fputs(i > 0 ? "," : "", out);
        write_input(graph->values[graph->inputs[i]].name, &in[i], out);
    }
    (void)fputs("],", out);
    bool whole = mp_program_write(p->program, graph, in, out) == MP_OK;
    whole = write_next(island, p, in, out) && whole;
    if (p->joined != NULL) {
        (void)fputs(",\"joined\":{", out);
        whole = mp_program_write(p->joined->program, graph, in, out) == MP_OK && whole;
        (void)fputc('}', out);
    }
    (void)fputc('}', out);
    free(in);
    return whole;
}

/* ---- islands ---- */

static void write_text(const char *key, const char *text, FILE *out) {
    (void)fprintf(out, ",\"%s\":", key);
    mp_json_text(out, text != NULL ? text : "");
}

static bool write_island(mp_island *island, FILE *out) {
    bool whole = true;
    char *after = NULL;
    (void)fprintf(out, "{\"number\":%d,\"is_body\":%s,\"rewrites\":%" PRId64 ",\"nodes\":%s",
                  island->number, island->is_body ? "true" : "false", island->rewrites,
                  island->nodes != NULL ? island->nodes : "[]");
    write_text("name", island->name, out);
    write_text("event", island->event, out);
    whole = mp_graph_write_origins(island->graph, &after) == MP_OK;
    write_text("last_pass", island->graph->last_pass, out);
    write_text("before", island->before, out);
    write_text("after", after, out);
    free(after);
    (void)fputs(",\"programs\":[", out);
    (void)pthread_mutex_lock(&island->lock);
    for (int i = 0; i < island->programs.count; i++) {
        (void)fputs(i > 0 ? "," : "", out);
        whole = write_program(island, island->programs.list[i], out) && whole;
    }
    (void)pthread_mutex_unlock(&island->lock);
    (void)fputs("]}", out);
    return whole;
}

/* Gives: the text, until free; NULL where it could not be made whole. */
static char *end_text(FILE *out, char **text, bool whole) {
    if (fclose(out) != 0 || !whole) {
        free(*text);
        *text = NULL;
    }
    return *text;
}

static char *explain(void *context) {
    mp_island_list *list = context;
    char *text = NULL;
    size_t size = 0;
    bool whole = true;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) {
        return NULL;
    }
    (void)fputs("{\"islands\":[", out);
    (void)pthread_mutex_lock(&list->lock);
    for (mp_island *island = list->first; island != NULL; island = island->next) {
        (void)fputs(island != list->first ? "," : "", out);
        whole = write_island(island, out) && whole;
    }
    (void)fprintf(out, "],\"outside\":[%s]}", list->outside != NULL ? list->outside : "");
    (void)pthread_mutex_unlock(&list->lock);
    return end_text(out, &text, whole);
}

/* The layout of the program that ran last, with all its segments. */
static char *lay_out(void *context) {
    mp_island *island = context;
    char *text = NULL;
    size_t size = 0;
    bool whole = true;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) {
        return NULL;
    }
    (void)pthread_mutex_lock(&island->lock);
    for (const mp_shelf *shelf = &island->programs; shelf->count > 0 && whole;
         shelf = &shelf->list[0]->next) {
        const mp_program *program = shelf->list[0]->program;
        whole = mp_program_write_layout(program, island->graph, out) == MP_OK;
    }
    (void)pthread_mutex_unlock(&island->lock);
    return end_text(out, &text, whole);
}

/* ---- the list ---- */

static mp_status leave(const char *first, const char *second, mp_note_fn *make, void *context,
                       mp_note **out) {
    char *name = NULL;
    if (asprintf(&name, "%s%s", first, second) < 0) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for a name");
    }
    const mp_status status = mp_note_add_made(name, make, context, out);
    free(name);
    return status;
}

static void warn(const char *what) {
    MP_LOG(WARNING, "%s cannot be looked at: %s", what, mp_error_message());
}

void mp__island_list_open(mp_provider *provider) {
    pthread_mutex_init(&provider->islands.lock, NULL);
}

void mp__island_list_publish(mp_provider *provider) {
    mp_island_list *list = &provider->islands;
    provider->options.explain = provider->options.explain && provider->session_name != NULL;
    if (provider->options.explain &&
        leave(provider->session_name, SUFFIX, explain, list, &list->note) != MP_OK) {
        warn("the islands of a session");
    }
}

void mp__island_list_close(mp_provider *provider) {
    mp_note_remove(provider->islands.note);
    free(provider->islands.outside);
    pthread_mutex_destroy(&provider->islands.lock);
}

void mp__island_list_add(mp_island *island) {
    mp_island_list *list = &island->provider->islands;
    if (leave(MP_LABEL_NOTE, island->name, lay_out, island, &island->note) != MP_OK) {
        warn(island->name);
    }
    (void)pthread_mutex_lock(&list->lock);
    mp_island **link = &list->first;
    while (*link != NULL) {
        link = &(*link)->next;
    }
    *link = island;
    (void)pthread_mutex_unlock(&list->lock);
}

void mp__island_list_remove(mp_island *island) {
    mp_island_list *list = &island->provider->islands;
    mp_note_remove(island->note);
    island->note = NULL;
    (void)pthread_mutex_lock(&list->lock);
    mp_island **link = &list->first;
    while (*link != NULL && *link != island) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = island->next;
    }
    (void)pthread_mutex_unlock(&list->lock);
}

/* ---- what is outside ---- */

static mp_status write_outside(const mp_candidate *n, FILE *out) {
    const char *name = NULL;
    MP_TRY(mp__from_ort(ORT->Node_GetName(n->node, &name)));
    (void)fputs("{\"op_type\":", out);
    mp_json_text(out, n->op->name);
    (void)fputs(",\"name\":", out);
    mp_json_text(out, name != NULL ? name : "");
    (void)fputs(",\"reason\":", out);
    mp_json_text(out, n->why != NULL ? n->why : "");
    (void)fputc('}', out);
    return MP_OK;
}

static mp_status write_all_outside(const mp_candidate *nodes, size_t count, const char *before,
                                   FILE *out) {
    bool any = before != NULL && before[0] != '\0';
    (void)fputs(any ? before : "", out);
    for (size_t i = 0; i < count; i++) {
        if (nodes[i].island < 0 && nodes[i].op != NULL) {
            (void)fputs(any ? "," : "", out);
            MP_TRY(write_outside(&nodes[i], out));
            any = true;
        }
    }
    return MP_OK;
}

void mp__island_list_outside(mp_provider *provider, const mp_candidate *nodes, size_t count) {
    mp_island_list *list = &provider->islands;
    char *text = NULL;
    size_t size = 0;
    FILE *out = provider->options.explain ? open_memstream(&text, &size) : NULL;
    if (out == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&list->lock);
    const mp_status status = write_all_outside(nodes, count, list->outside, out);
    if (end_text(out, &text, status == MP_OK) != NULL) {
        free(list->outside);
        list->outside = text;
    }
    (void)pthread_mutex_unlock(&list->lock);
}
