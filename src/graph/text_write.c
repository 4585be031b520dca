/* text_write.c - a graph as text, see text.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/text.h"

#include "base/half.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_MAX = 16 };

typedef struct writer {
    const mp_graph *graph;
    FILE *out;
    bool origins;
} writer;

/* ---- names ---- */

static bool is_taken_before(const mp_graph *graph, int32_t value) {
    for (int32_t i = 0; i < value; i++) {
        if (strcmp(graph->values[i].name, graph->values[value].name) == 0) {
            return true;
        }
    }
    return false;
}

/* A model may name things as it likes: `ends`, and what is no text, are written as `_`. */
static void write_text(const writer *w, const char *text, const char *ends) {
    for (const char *c = text; *c != '\0'; c++) {
        const bool bad = (unsigned char)*c < ' ' || *c == 0x7f || strchr(ends, *c) != NULL;
        (void)fputc(bad ? '_' : *c, w->out);
    }
}

static void write_name(const writer *w, int32_t value) {
    if (value == MP_NO_VALUE) {
        return;
    }
    const char *name = w->graph->values[value].name;
    write_text(w, name, " ,()=#\"");
    if (name[0] == '\0' || is_taken_before(w->graph, value)) {
        (void)fprintf(w->out, "#%d", (int)value);
    }
}

static void write_names(const writer *w, const int32_t *values, int count) {
    for (int i = 0; i < count; i++) {
        (void)fputs(i > 0 ? ", " : "", w->out);
        write_name(w, values[i]);
    }
}

/* ---- values ---- */

static void write_type(const writer *w, const mp_tensor *tensor) {
    (void)fputs(tensor->type != MP_NONE ? mp_dtype_word(tensor->type) : "any", w->out);
    (void)fputc('[', w->out);
    for (int d = 0; d < tensor->shape.rank; d++) {
        const int64_t dim = tensor->shape.dim[d];
        (void)fputs(d > 0 ? "," : "", w->out);
        if (dim < 0) {
            (void)fputc('?', w->out);
        } else {
            (void)fprintf(w->out, "%" PRId64, dim);
        }
    }
    (void)fputs(tensor->shape.rank < 0 ? "...]" : "]", w->out);
}

static void write_element(const writer *w, const mp_tensor *tensor, int64_t i) {
    switch (tensor->type) {
    case MP_I64:
        (void)fprintf(w->out, " %" PRId64, ((const int64_t *)tensor->data)[i]);
        return;
    case MP_I32:
        (void)fprintf(w->out, " %" PRId32, ((const int32_t *)tensor->data)[i]);
        return;
    case MP_I8:
        (void)fprintf(w->out, " %d", (int)((const int8_t *)tensor->data)[i]);
        return;
    case MP_F32:
        (void)fprintf(w->out, " %.9g", (double)((const float *)tensor->data)[i]);
        return;
    case MP_F64:
        (void)fprintf(w->out, " %.17g", ((const double *)tensor->data)[i]);
        return;
    case MP_F16:
        (void)fprintf(w->out, " %.9g", (double)mp_from_f16(((const uint16_t *)tensor->data)[i]));
        return;
    default:
        (void)fprintf(w->out, " %d", (int)((const uint8_t *)tensor->data)[i]);
        return;
    }
}

static void write_elements(const writer *w, const mp_tensor *tensor) {
    const mp_dtypes shown = MP_BIT(MP_I64) | MP_BIT(MP_I32) | MP_BIT(MP_BOOL) | MP_BIT(MP_U8) |
                            MP_BIT(MP_I8) | MP_BIT(MP_F32) | MP_BIT(MP_F64) | MP_BIT(MP_F16);
    const int64_t count = mp_shape_count(&tensor->shape);
    if (tensor->data == 0 || (shown & MP_BIT(tensor->type)) == 0 || count > SHOWN_MAX) {
        return;
    }
    (void)fputs(" =", w->out);
    for (int64_t i = 0; i < count; i++) {
        write_element(w, tensor, i);
    }
}

static void write_value(const writer *w, const char *what, int32_t value) {
    const mp_value *v = &w->graph->values[value];
    (void)fprintf(w->out, "%s ", what);
    write_name(w, value);
    (void)fputc(' ', w->out);
    write_type(w, &v->tensor);
    if (v->is_constant) {
        write_elements(w, &v->tensor);
    }
    (void)fputc('\n', w->out);
}

/* ---- nodes ---- */

static void write_attr(const writer *w, const mp_attr *attr) {
    (void)fprintf(w->out, " %s=", attr->name);
    switch (attr->kind) {
    case MP_ATTR_INT:
        (void)fprintf(w->out, "%" PRId64, attr->i);
        return;
    case MP_ATTR_FLOAT:
        (void)fprintf(w->out, "%.9gf", (double)attr->f);
        return;
    case MP_ATTR_STRING:
        (void)fputc('"', w->out);
        write_text(w, attr->s, "\"");
        (void)fputc('"', w->out);
        return;
    case MP_ATTR_INTS:
        for (size_t i = 0; i < attr->count; i++) {
            (void)fprintf(w->out, "%s%" PRId64, i > 0 ? "," : "[", attr->ints[i]);
        }
        (void)fputs(attr->count > 0 ? "]" : "[]", w->out);
        return;
    case MP_ATTR_FLOATS:
    case MP_ATTR_STRINGS:
    case MP_ATTR_TENSOR:
        (void)fputs("...", w->out);
        return;
    }
}

static void write_quoted(const writer *w, const char *name) {
    if (name[0] != '\0') {
        (void)fputs(" \"", w->out);
        write_text(w, name, "\"");
        (void)fputc('"', w->out);
    }
}

/* The nodes of the model, where they are not just this one. */
static void write_origins(const writer *w, const mp_vertex *v) {
    if (!w->origins || v->node.title == NULL) {
        return;
    }
    for (int32_t i = 0; i < v->origins.count; i++) {
        (void)fputs(i == 0 ? " <- " : ", ", w->out);
        (void)fputs(v->origins.list[i].op, w->out);
        write_quoted(w, v->origins.list[i].name);
    }
}

static void write_node(const writer *w, const mp_vertex *v) {
    const mp_op *op = v->node.op;
    write_names(w, v->out, v->out_count);
    (void)fprintf(w->out, " = %s%s%s-%d (", op->domain, op->domain[0] != '\0' ? "." : "", op->name,
                  v->node.version);
    write_names(w, v->in, v->in_count);
    (void)fputc(')', w->out);
    write_quoted(w, v->node.name);
    write_origins(w, v);
    for (size_t i = 0; i < v->node.attr_count; i++) {
        write_attr(w, &v->node.attrs[i]);
    }
    (void)fputs(v->loop != NULL ? " body=...\n" : "\n", w->out);
}

/* ---- branches ---- */

static void open_guards(const writer *w, int32_t from, int32_t to) {
    if (to != from) {
        const mp_guard *guard = &w->graph->guards[to - 1];
        open_guards(w, from, guard->outer);
        (void)fputs(guard->wanted ? "when " : "unless ", w->out);
        write_name(w, guard->condition);
        (void)fputc('\n', w->out);
    }
}

static void change_guard(const writer *w, int32_t from, int32_t to) {
    while (!mp_graph_guard_within(w->graph, to, from)) {
        (void)fputs("end\n", w->out);
        from = w->graph->guards[from - 1].outer;
    }
    open_guards(w, from, to);
}

/* ---- all ---- */

static void write_graph(const writer *w) {
    const mp_graph *graph = w->graph;
    for (int32_t i = 0; i < graph->input_count; i++) {
        write_value(w, "input", graph->inputs[i]);
    }
    for (int32_t i = 0; i < graph->value_count; i++) {
        if (graph->values[i].is_constant && mp_graph_uses(graph, i) > 0) {
            write_value(w, "const", i);
        }
    }
    int32_t guard = 0;
    for (int32_t n = 0; n < graph->node_count; n++) {
        if (!graph->nodes[n].is_gone) {
            change_guard(w, guard, graph->nodes[n].guard);
            guard = graph->nodes[n].guard;
            write_node(w, &graph->nodes[n]);
        }
    }
    change_guard(w, guard, 0);
    for (int32_t i = 0; i < graph->output_count; i++) {
        (void)fputs("output ", w->out);
        write_name(w, graph->outputs[i]);
        (void)fputc('\n', w->out);
    }
    for (int32_t i = 0; i < graph->value_count; i++) {
        const mp_value *v = &graph->values[i];
        if (v->within != 0) {
            (void)fputs("within ", w->out);
            write_name(w, i);
            (void)fputc(' ', w->out);
            write_name(w, v->within - 1);
            (void)fprintf(w->out, " %" PRId64 "\n", v->within_first);
        }
    }
}

static mp_status write_text_of(const mp_graph *graph, bool origins, char **out) {
    size_t size = 0;
    *out = NULL;
    const writer w = {.graph = graph, .out = open_memstream(out, &size), .origins = origins};
    if (w.out != NULL) {
        write_graph(&w);
    }
    if (w.out == NULL || fclose(w.out) != 0) {
        free(*out);
        *out = NULL;
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the text of a graph");
    }
    return MP_OK;
}

mp_status mp_graph_write(const mp_graph *graph, char **out) {
    return write_text_of(graph, false, out);
}

mp_status mp_graph_write_origins(const mp_graph *graph, char **out) {
    return write_text_of(graph, true, out);
}
