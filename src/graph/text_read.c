/* text_read.c - a graph from text, see text.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/text.h"

#include "base/half.h"

#include <stdlib.h>
#include <string.h>

enum { WORD_MAX = 256, LIST_MAX = 64 };

typedef struct reader {
    mp_graph *graph;
    const char *at;
    int line;
} reader;

/* ---- pieces of a line ---- */

static mp_status wrong(const reader *r, const char *wanted) {
    return MP_FAIL(INVALID_ARGUMENT, "line %d of a graph: %s is wanted at '%.24s'", r->line, wanted,
                   r->at);
}

static void skip_blanks(reader *r) {
    while (*r->at == ' ' || *r->at == '\t') {
        r->at++;
    }
}

static bool take(reader *r, const char *text) {
    skip_blanks(r);
    const size_t length = strlen(text);
    if (strncmp(r->at, text, length) != 0) {
        return false;
    }
    r->at += length;
    return true;
}

static mp_status take_word(reader *r, const char *ends, char word[WORD_MAX]) {
    skip_blanks(r);
    const size_t length = strcspn(r->at, ends);
    if (length == 0 || length >= WORD_MAX) {
        return wrong(r, "a word");
    }
    memcpy(word, r->at, length);
    word[length] = '\0';
    r->at += length;
    return MP_OK;
}

/* A number was read up to `end`. */
static mp_status pass_number(reader *r, const char *end) {
    if (end == r->at) {
        return wrong(r, "a number");
    }
    r->at = end;
    return MP_OK;
}

static mp_status take_number(reader *r, int64_t *out) {
    char *end = NULL;
    skip_blanks(r);
    *out = strtoll(r->at, &end, 10);
    return pass_number(r, end);
}

static mp_status take_real(reader *r, double *out) {
    char *end = NULL;
    skip_blanks(r);
    *out = strtod(r->at, &end);
    return pass_number(r, end);
}

static bool is_at_end(reader *r) {
    skip_blanks(r);
    return *r->at == '\0' || *r->at == '\n';
}

/* ---- types and constants ---- */

static mp_status take_shape(reader *r, mp_shape *shape) {
    *shape = (mp_shape){.rank = 0};
    if (take(r, "[...]")) {
        shape->rank = MP_DIM_UNKNOWN;
        return MP_OK;
    }
    if (!take(r, "[")) {
        return wrong(r, "a shape");
    }
    while (!take(r, "]")) {
        if (shape->rank == MP_RANK_MAX) {
            return wrong(r, "a shorter shape");
        }
        int64_t *dim = &shape->dim[shape->rank++];
        *dim = MP_DIM_UNKNOWN;
        if (!take(r, "?")) {
            MP_TRY(take_number(r, dim));
        }
        (void)take(r, ",");
    }
    return MP_OK;
}

static mp_status take_tensor(reader *r, mp_tensor *out) {
    char word[WORD_MAX];
    *out = (mp_tensor){.type = MP_NONE};
    MP_TRY(take_word(r, "[ \n", word));
    for (int type = 1; type < MP_DTYPE_END; type++) {
        if (mp_dtype_bits((mp_dtype)type) > 0 && strcmp(mp_dtype_word((mp_dtype)type), word) == 0) {
            out->type = (mp_dtype)type;
        }
    }
    if (out->type == MP_NONE && strcmp(word, "any") != 0) {
        return wrong(r, "a type");
    }
    return take_shape(r, &out->shape);
}

static mp_status take_integer(reader *r, mp_dtype type, void *bytes, int64_t i) {
    int64_t value = 0;
    MP_TRY(take_number(r, &value));
    switch (type) {
    case MP_I64:
        ((int64_t *)bytes)[i] = value;
        return MP_OK;
    case MP_I32:
        ((int32_t *)bytes)[i] = (int32_t)value;
        return MP_OK;
    default:
        ((uint8_t *)bytes)[i] = (uint8_t)value;
        return MP_OK;
    }
}

static mp_status take_element(reader *r, mp_dtype type, void *bytes, int64_t i) {
    double value = 0;
    switch (type) {
    case MP_I64:
    case MP_I32:
    case MP_BOOL:
    case MP_U8:
    case MP_I8:
        return take_integer(r, type, bytes, i);
    case MP_F32:
        MP_TRY(take_real(r, &value));
        ((float *)bytes)[i] = (float)value;
        return MP_OK;
    case MP_F64:
        return take_real(r, &((double *)bytes)[i]);
    case MP_F16:
        MP_TRY(take_real(r, &value));
        ((uint16_t *)bytes)[i] = mp_to_f16((float)value);
        return MP_OK;
    default:
        return wrong(r, "a constant of another type");
    }
}

static mp_status take_elements(reader *r, const mp_tensor *tensor, void *bytes) {
    const int64_t count = mp_shape_count(&tensor->shape);
    for (int64_t i = 0; i < count; i++) {
        MP_TRY(take_element(r, tensor->type, bytes, i));
    }
    return MP_OK;
}

static mp_status read_constant(reader *r, const char *name, mp_tensor *tensor) {
    int32_t value = MP_NO_VALUE;
    size_t bytes = 0;
    void *data = NULL;
    if (take(r, "=")) {
        MP_TRY(mp_shape_bytes(&tensor->shape, tensor->type, &bytes));
        MP_TRY(mp_graph_keep(r->graph, bytes + 1, &data));
        MP_TRY(take_elements(r, tensor, data));
        tensor->data = (mp_addr)data;
    }
    MP_TRY(mp_graph_add_value(r->graph, name, tensor, &value));
    r->graph->values[value].is_constant = true;
    return MP_OK;
}

/* ---- values ---- */

static mp_status read_value(reader *r, bool constant) {
    char name[WORD_MAX];
    mp_tensor tensor;
    int32_t value = MP_NO_VALUE;
    MP_TRY(take_word(r, " \n", name));
    MP_TRY(take_tensor(r, &tensor));
    if (mp_graph_find_value(r->graph, name) != MP_NO_VALUE) {
        return wrong(r, "another name");
    }
    if (constant) {
        return read_constant(r, name, &tensor);
    }
    MP_TRY(mp_graph_add_value(r->graph, name, &tensor, &value));
    return mp_graph_add_input(r->graph, value);
}

static mp_status read_output(reader *r) {
    char name[WORD_MAX];
    MP_TRY(take_word(r, " \n", name));
    const int32_t value = mp_graph_find_value(r->graph, name);
    return value != MP_NO_VALUE ? mp_graph_add_output(r->graph, value) : wrong(r, "a value");
}

/* ---- nodes ---- */

typedef struct line {
    mp_origin origins[LIST_MAX]; /* their texts are the graph's */
    int32_t origin_count;
    int32_t in[LIST_MAX], out[LIST_MAX];
    int in_count, out_count;
    mp_attr attrs[LIST_MAX];
    char attr_names[LIST_MAX][32];
    int64_t ints[LIST_MAX];
    size_t int_count;
    char text[WORD_MAX], name[WORD_MAX];
} line;

static mp_status read_outputs(reader *r, line *l) {
    const mp_tensor unknown = {.type = MP_NONE, .shape = {.rank = MP_DIM_UNKNOWN}};
    do {
        char name[WORD_MAX];
        int32_t *out = &l->out[l->out_count];
        if (l->out_count == LIST_MAX) {
            return wrong(r, "fewer outputs");
        }
        l->out_count++;
        *out = MP_NO_VALUE;
        skip_blanks(r);
        if (*r->at != ',' && *r->at != '=') {
            MP_TRY(take_word(r, " ,=\n", name));
            MP_TRY(mp_graph_add_value(r->graph, name, &unknown, out));
        }
    } while (take(r, ","));
    return take(r, "=") ? MP_OK : wrong(r, "'='");
}

static mp_status read_inputs(reader *r, line *l) {
    if (!take(r, "(")) {
        return wrong(r, "'('");
    }
    while (!take(r, ")")) {
        char name[WORD_MAX];
        int32_t *in = &l->in[l->in_count];
        if (l->in_count == LIST_MAX) {
            return wrong(r, "fewer inputs");
        }
        l->in_count++;
        *in = MP_NO_VALUE;
        skip_blanks(r);
        if (*r->at != ',' && *r->at != ')') {
            MP_TRY(take_word(r, " ,)\n", name));
            *in = mp_graph_find_value(r->graph, name);
            if (*in == MP_NO_VALUE) {
                return wrong(r, "an input that is there");
            }
        }
        (void)take(r, ",");
    }
    return MP_OK;
}

static mp_status read_ints(reader *r, line *l, mp_attr *attr) {
    attr->kind = MP_ATTR_INTS;
    attr->ints = l->ints + l->int_count;
    while (!take(r, "]")) {
        if (l->int_count == LIST_MAX) {
            return wrong(r, "fewer numbers");
        }
        MP_TRY(take_number(r, &l->ints[l->int_count++]));
        attr->count++;
        (void)take(r, ",");
    }
    return MP_OK;
}

/* 3 is an integer, 0.5f a float, "x" text (one a line), [1,2] integers. */
static mp_status read_attr_value(reader *r, line *l, mp_attr *attr) {
    char *end = NULL;
    if (take(r, "[")) {
        return read_ints(r, l, attr);
    }
    if (take(r, "\"")) {
        attr->kind = MP_ATTR_STRING;
        attr->s = l->text;
        MP_TRY(take_word(r, "\"\n", l->text));
        return take(r, "\"") ? MP_OK : wrong(r, "'\"'");
    }
    skip_blanks(r);
    attr->f = strtof(r->at, &end);
    if (end != r->at && *end == 'f') {
        attr->kind = MP_ATTR_FLOAT;
        r->at = end + 1;
        return MP_OK;
    }
    attr->kind = MP_ATTR_INT;
    return take_number(r, &attr->i);
}

static mp_status read_attrs(reader *r, line *l, mp_node *node) {
    while (!is_at_end(r)) {
        char name[WORD_MAX];
        if (node->attr_count == LIST_MAX) {
            return wrong(r, "fewer attributes");
        }
        mp_attr *attr = &l->attrs[node->attr_count];
        MP_TRY(take_word(r, "=\n", name));
        if (!take(r, "=") || strlen(name) >= sizeof l->attr_names[0]) {
            return wrong(r, "an attribute");
        }
        memcpy(l->attr_names[node->attr_count], name, strlen(name) + 1);
        *attr = (mp_attr){.name = l->attr_names[node->attr_count]};
        MP_TRY(read_attr_value(r, l, attr));
        node->attr_count++;
    }
    return MP_OK;
}

/* "com.microsoft.Gelu-1": the last dot ends the domain, the last dash begins the version. */
static mp_status find_row(reader *r, char *word, mp_node *node) {
    char *dash = strrchr(word, '-');
    if (dash == NULL) {
        return wrong(r, "an operator with a version");
    }
    *dash = '\0';
    node->version = (int)strtol(dash + 1, NULL, 10);
    char *dot = strrchr(word, '.');
    const char *domain = dot != NULL ? word : "";
    if (dot != NULL) {
        *dot = '\0';
    }
    node->op = mp_op_find(domain, dot != NULL ? dot + 1 : word, node->version);
    return node->op != NULL ? MP_OK : wrong(r, "an operator that there is");
}

static mp_status read_name(reader *r, char name[WORD_MAX]) {
    name[0] = '\0';
    if (!take(r, "\"")) {
        return MP_OK;
    }
    MP_TRY(take_word(r, "\"\n", name));
    return take(r, "\"") ? MP_OK : wrong(r, "'\"'");
}

/* MatMul "first", Add "sum" */
static mp_status read_origins(reader *r, line *l) {
    char word[WORD_MAX];
    do {
        mp_origin *origin = &l->origins[l->origin_count];
        if (l->origin_count == LIST_MAX) {
            return wrong(r, "fewer nodes");
        }
        l->origin_count++;
        MP_TRY(take_word(r, " ,\n", word));
        MP_TRY(mp_graph_keep_text(r->graph, word, &origin->op));
        MP_TRY(read_name(r, word));
        MP_TRY(mp_graph_keep_text(r->graph, word, &origin->name));
    } while (take(r, ","));
    return MP_OK;
}

static mp_status read_node_into(reader *r, line *l) {
    char word[WORD_MAX];
    mp_node node = {.name = l->name, .attrs = l->attrs};
    MP_TRY(read_outputs(r, l));
    MP_TRY(take_word(r, " (\n", word));
    MP_TRY(find_row(r, word, &node));
    MP_TRY(read_inputs(r, l));
    MP_TRY(read_name(r, l->name));
    if (take(r, "<-")) {
        MP_TRY(read_origins(r, l));
    }
    MP_TRY(read_attrs(r, l, &node));
    for (int i = 0; i < l->out_count && i < 32; i++) {
        node.out_absent |= l->out[i] == MP_NO_VALUE ? 1u << i : 0;
    }
    MP_TRY(mp_graph_add_node(r->graph, &node, l->in, l->in_count, l->out, l->out_count));
    return l->origin_count == 0 ? MP_OK
                                : mp_graph_set_origins(r->graph, r->graph->node_count - 1,
                                                       (mp_origins){l->origins, l->origin_count});
}

static mp_status read_node(reader *r) {
    line *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to read a graph");
    }
    const mp_status status = read_node_into(r, l);
    free(l);
    return status;
}

/* ---- branches ---- */

static mp_status read_guard(reader *r, bool wanted) {
    char name[WORD_MAX];
    MP_TRY(take_word(r, " \n", name));
    const int32_t condition = mp_graph_find_value(r->graph, name);
    return condition != MP_NO_VALUE ? mp_graph_open_guard(r->graph, condition, wanted)
                                    : wrong(r, "a condition that is there");
}

static mp_status read_end(reader *r) {
    if (r->graph->guard == 0) {
        return wrong(r, "a branch before its end");
    }
    mp_graph_close_guard(r->graph);
    return MP_OK;
}

/* ---- all ---- */

static mp_status read_line(reader *r) {
    if (is_at_end(r)) {
        return MP_OK;
    }
    if (take(r, "end\n")) {
        r->at--;
        return read_end(r);
    }
    if (take(r, "when ")) {
        MP_TRY(read_guard(r, true));
    } else if (take(r, "unless ")) {
        MP_TRY(read_guard(r, false));
    } else if (take(r, "input ")) {
        MP_TRY(read_value(r, false));
    } else if (take(r, "const ")) {
        MP_TRY(read_value(r, true));
    } else if (take(r, "output ")) {
        MP_TRY(read_output(r));
    } else {
        MP_TRY(read_node(r));
    }
    return is_at_end(r) ? MP_OK : wrong(r, "the end of the line");
}

mp_status mp_graph_read(const char *text, mp_graph **out) {
    reader r = {.at = text};
    MP_TRY(mp_graph_create(&r.graph));
    mp_status status = MP_OK;
    while (status == MP_OK && *r.at != '\0') {
        r.line++;
        status = read_line(&r);
        r.at += status == MP_OK && *r.at == '\n';
    }
    if (status != MP_OK) {
        mp_graph_destroy(r.graph);
        return status;
    }
    *out = r.graph;
    return MP_OK;
}
