/* signature.c - see signature.h.
 *
 * A text of the table: inputs, `>`, outputs, and the names of attributes that must be there, each
 * behind a `!`. An input or output is the name of its constraint, "" for none, `:`, the types that
 * the schema allows as a set in hexadecimal, and `?` where it may be left out, `*` where the last
 * one stands for any number of one type, `~` for any number of any types.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/signature.h"

#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *domain, *name;
    int since;
    const char *text;
} signatures[] = {
#define SIGNATURE(domain, name, since, text) {domain, name, since, text},
#include "op/core/signature.def"
#undef SIGNATURE
};

static const char *find(const mp_node *node) {
    for (size_t i = 0; i < MP_COUNT_OF(signatures); i++) {
        if (signatures[i].since == node->version &&
            strcmp(signatures[i].name, node->op->name) == 0 &&
            strcmp(signatures[i].domain, node->op->domain) == 0) {
            return signatures[i].text;
        }
    }
    return NULL;
}

static mp_status wrong(const mp_node *node, const char *side, int i, const char *what) {
    return MP_FAIL(INVALID_ARGUMENT, "node '%s' of the operator %s-%d: %s %d %s", node->name,
                   node->op->name, node->version, side, i, what);
}

/* ---- inputs and outputs ---- */

enum { NAME_MAX_BYTES = 24, NAMES_MAX = 16 };

typedef struct parameter {
    char name[NAME_MAX_BYTES];
    mp_dtypes types;
    char mark; /* '?', '*', '~', or 0 */
} parameter;

/* The types that stand for the names of constraints so far. */
typedef struct binding {
    char name[NAMES_MAX][NAME_MAX_BYTES];
    mp_dtype type[NAMES_MAX];
    int count;
} binding;

/* Reads one from `*at`; false at the end of the list. */
static bool take(const char **at, parameter *out) {
    const char *from = *at + strspn(*at, " ");
    char *end = NULL;
    const size_t length = strcspn(from, ":>! ");
    *out = (parameter){.types = 0};
    if (from[length] != ':' || length >= sizeof out->name) {
        return false;
    }
    memcpy(out->name, from, length);
    out->types = (mp_dtypes)strtoul(from + length + 1, &end, 16);
    if (*end != '\0' && strchr("?*~", *end) != NULL) {
        out->mark = *end++;
    }
    *at = end;
    return true;
}

static mp_dtypes allowed(const mp_op *op, const parameter *p) {
    for (int c = 0; c < MP_CONSTRAINTS_MAX && op->types[c].name != NULL; c++) {
        if (strcmp(op->types[c].name, p->name) == 0) {
            return p->types & op->types[c].types;
        }
    }
    return p->types;
}

/* Whether the type is that of the others of its constraint. */
static bool agrees(binding *b, const parameter *p, mp_dtype type) {
    if (p->name[0] == '\0' || p->mark == '~') {
        return true;
    }
    for (int i = 0; i < b->count; i++) {
        if (strcmp(b->name[i], p->name) == 0) {
            return b->type[i] == type;
        }
    }
    if (b->count < NAMES_MAX) {
        memcpy(b->name[b->count], p->name, sizeof p->name);
        b->type[b->count++] = type;
    }
    return true;
}

static mp_status check_one(const mp_node *node, const char *side, int i, const parameter *p,
                           const mp_tensor *tensor, binding *b) {
    if (tensor->type == MP_NONE) {
        return p->mark == '?' ? MP_OK : wrong(node, side, i, "is missing");
    }
    if (tensor->shape.rank > MP_RANK_MAX) {
        return wrong(node, side, i, "has too many dimensions");
    }
    if ((allowed(node->op, p) & MP_BIT(tensor->type)) == 0 || !agrees(b, p, tensor->type)) {
        return wrong(node, side, i, "has a type that the operator does not allow");
    }
    return MP_OK;
}

static mp_status check_list(const mp_node *node, const char *side, const char **at,
                            const mp_tensor *list, int count, binding *b) {
    static const mp_tensor none = {.type = MP_NONE};
    parameter p = {.mark = 0};
    int i = 0;
    while (take(at, &p)) {
        const bool often = p.mark == '*' || p.mark == '~';
        for (; often && i < count; i++) {
            MP_TRY(check_one(node, side, i, &p, &list[i], b));
        }
        if (!often) {
            MP_TRY(check_one(node, side, i, &p, i < count ? &list[i] : &none, b));
            i++;
        }
    }
    return i >= count ? MP_OK : wrong(node, side, i, "is one too many");
}

/* ---- the rest ---- */

static mp_status check_required(const mp_node *node, const char *at) {
    while (*at == '!') {
        char name[64];
        const size_t length = strcspn(++at, "!");
        (void)snprintf(name, sizeof name, "%.*s", (int)length, at);
        if (mp_node_attr(node, name) == NULL) {
            return MP_FAIL(INVALID_ARGUMENT,
                           "node '%s' of the operator %s-%d lacks the attribute '%s'", node->name,
                           node->op->name, node->version, name);
        }
        at += length;
    }
    return MP_OK;
}

static mp_status check_accepted(const mp_node *node, const mp_tensor *in, int in_count,
                                int out_count) {
    const mp_planner planner = {
        .node = node, .in = in, .in_count = in_count, .out_count = out_count};
    return node->op->accept == NULL ? MP_OK : node->op->accept(&planner);
}

mp_status mp_signature_check(const mp_node *node, const mp_tensor *in, int in_count,
                             const mp_tensor *out, int out_count) {
    const char *at = find(node);
    binding b = {.count = 0};
    if (at == NULL) {
        return MP_FAIL(INVALID_ARGUMENT, "the operator %s has no version %d", node->op->name,
                       node->version);
    }
    MP_TRY(check_list(node, "input", &at, in, in_count, &b));
    at += *at == '>';
    MP_TRY(check_list(node, "output", &at, out, out_count, &b));
    MP_TRY(check_required(node, at));
    return check_accepted(node, in, in_count, out_count);
}
