/* einsum_text.c - reads equations such as "bij,bjk->bik" and "...ii->...i". The text comes from a
 * model file and may be anything.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/linear/einsum_text.h"

#include <string.h>

typedef struct reader {
    const char *text; /* the whole, for messages */
    const char *at;
    mp_equation *equation;
    int dots;            /* dimensions of the longest ellipsis */
    bool has_dots;       /* whether an input has one */
    int uses[MP_LABELS]; /* in the inputs */
} reader;

static mp_status fault(const reader *r, const char *what) {
    return MP_FAIL(INVALID_ARGUMENT, "the equation '%.100s' %s", r->text, what);
}

/* Upper case sorts before lower case, as in NumPy. */
static int label_of(char letter) {
    if (letter >= 'A' && letter <= 'Z') {
        return letter - 'A';
    }
    return letter >= 'a' && letter <= 'z' ? letter - 'a' + 26 : -1;
}

static void skip_spaces(reader *r) {
    while (*r->at == ' ') {
        r->at++;
    }
}

static bool at_arrow(const reader *r) {
    return r->at[0] == '-' && r->at[1] == '>';
}

/* One letter, or an ellipsis: *label is its number, or MP_LABEL_DOTS. */
static mp_status next(reader *r, int *label) {
    if (strncmp(r->at, "...", 3) == 0) {
        r->at += 3;
        *label = MP_LABEL_DOTS;
        return MP_OK;
    }
    *label = label_of(*r->at);
    if (*label < 0) {
        return fault(r, "has something else than letters, '...', ',' and '->'");
    }
    r->at++;
    return MP_OK;
}

static mp_status label_add(reader *r, mp_labels *list, int label) {
    if (list->count == MP_RANK_MAX) {
        return MP_FAIL(UNSUPPORTED, "the equation '%.100s' has a tensor of more than %d dimensions",
                       r->text, MP_RANK_MAX);
    }
    list->at[list->count++] = label;
    return MP_OK;
}

/* ---- inputs ---- */

static mp_status use(reader *r, mp_labels *list, int label, int64_t dim) {
    int64_t *known = &r->equation->dim[label];
    if (*known >= 0 && dim != 1 && *known != 1 && *known != dim) {
        return MP_FAIL(INVALID_ARGUMENT,
                       "the equation '%.100s' gives one letter the sizes %lld and %lld", r->text,
                       (long long)*known, (long long)dim);
    }
    *known = *known < 0 || *known == 1 ? dim : *known;
    r->uses[label]++;
    return label_add(r, list, label);
}

static mp_status read_input(reader *r, const mp_shape *shape, mp_labels *list) {
    int before[MP_RANK_MAX + 1], count = 0;
    bool dots = false;
    for (skip_spaces(r); *r->at != ',' && *r->at != '\0' && !at_arrow(r); skip_spaces(r)) {
        int label = 0;
        MP_TRY(next(r, &label));
        if (label == MP_LABEL_DOTS && dots) {
            return fault(r, "has two ellipses in one input");
        }
        if (count > MP_RANK_MAX) {
            return fault(r, "names more dimensions than an input has");
        }
        dots = dots || label == MP_LABEL_DOTS;
        before[count++] = label;
    }
    const int letters = count - dots;
    if (dots ? letters > shape->rank : letters != shape->rank) {
        char text[MP_SHAPE_TEXT];
        return MP_FAIL(INVALID_ARGUMENT,
                       "the equation '%.100s' names %d dimensions of an input of shape %s", r->text,
                       letters, mp_shape_text(shape, text));
    }
    const int hidden = shape->rank - letters;
    int d = 0;
    for (int i = 0; i < count; i++) {
        if (before[i] != MP_LABEL_DOTS) {
            MP_TRY(use(r, list, before[i], shape->dim[d]));
            d++;
        }
        for (int k = 0; before[i] == MP_LABEL_DOTS && k < hidden; k++, d++) {
            MP_TRY(use(r, list, MP_LABEL_DOTS + hidden - 1 - k, shape->dim[d]));
        }
    }
    r->has_dots = r->has_dots || dots;
    r->dots = dots && hidden > r->dots ? hidden : r->dots;
    return MP_OK;
}

/* ---- the output ---- */

static mp_status add_dots(reader *r) {
    for (int k = r->dots - 1; k >= 0; k--) {
        MP_TRY(label_add(r, &r->equation->out, MP_LABEL_DOTS + k));
    }
    return MP_OK;
}

/* What the inputs have once, by the alphabet. */
static mp_status imply_output(reader *r) {
    MP_TRY(add_dots(r));
    for (int label = 0; label < MP_LABEL_DOTS; label++) {
        if (r->uses[label] == 1) {
            MP_TRY(label_add(r, &r->equation->out, label));
        }
    }
    return MP_OK;
}

static mp_status read_output(reader *r) {
    bool seen[MP_LABELS] = {false};
    for (skip_spaces(r); *r->at != '\0'; skip_spaces(r)) {
        int label = 0;
        MP_TRY(next(r, &label));
        if (seen[label]) {
            return fault(r, "has a letter or ellipsis twice in its output");
        }
        seen[label] = true;
        if (label == MP_LABEL_DOTS) {
            MP_TRY(add_dots(r));
            continue;
        }
        if (r->uses[label] == 0) {
            return fault(r, "has a letter in its output that no input has");
        }
        MP_TRY(label_add(r, &r->equation->out, label));
    }
    return r->has_dots && !seen[MP_LABEL_DOTS]
               ? fault(r, "has an ellipsis in an input and none in its output")
               : MP_OK;
}

mp_status mp_einsum_read(const mp_planner *p, const char *text, mp_labels *in, mp_equation *out) {
    reader r = {.text = text, .at = text, .equation = out};
    memset(out, 0, sizeof *out);
    for (int label = 0; label < MP_LABELS; label++) {
        out->dim[label] = -1;
    }
    for (int i = 0; i < p->in_count; i++) {
        in[i].count = 0;
        if (i > 0 && *r.at++ != ',') {
            return fault(&r, "has fewer terms than there are inputs");
        }
        MP_TRY(read_input(&r, &p->in[i].shape, &in[i]));
    }
    if (*r.at == ',') {
        return fault(&r, "has more terms than there are inputs");
    }
    if (!at_arrow(&r)) {
        return imply_output(&r);
    }
    r.at += 2;
    return read_output(&r);
}
