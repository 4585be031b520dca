/* scatter.c - Scatter, ScatterElements, ScatterND: elements of a copy of the data are replaced by
 * updates, or joined with them, at places that indices name. The copy is left out where the output
 * is the data's own memory.
 * Kernels: move/scatter.cu, move/scatter_reduce.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/core/families.h"
#include "op/move/index_walk.h"

#include <string.h>

/* ---- reduction ---- */

static const struct {
    const char *name;
    int how; /* negative: replaces */
} reductions[] = {
    {"none", -1},           {"add", K_SCATTER_ADD}, {"mul", K_SCATTER_MUL},
    {"max", K_SCATTER_MAX}, {"min", K_SCATTER_MIN},
};

static mp_status read_reduction(const mp_node *node, int *how) {
    const char *name = mp_node_string(node, "reduction", "none");
    for (size_t i = 0; i < MP_COUNT_OF(reductions); i++) {
        if (strcmp(name, reductions[i].name) == 0) {
            *how = reductions[i].how;
            return MP_OK;
        }
    }
    return MP_FAIL(INVALID_ARGUMENT, "reduction '%s' is not known; use none, add, mul, max or min",
                   name);
}

/* A sum of bools is their or, a product their and: maximum and minimum of bytes. */
static const char *join_kernel(mp_dtype dtype, int *how) {
    if (dtype != MP_BOOL) {
        return mp_dtype_word(dtype);
    }
    *how = *how == K_SCATTER_ADD || *how == K_SCATTER_MAX ? K_SCATTER_MAX : K_SCATTER_MIN;
    return "u8";
}

/* ---- steps ---- */

enum { WORD = 4 };

/* Where updates go. A GPU joins bytes as parts of the words around them (atomic.h), and those words
 * must be the tensor's own: a tensor of bytes that is not made of whole words is joined in scratch
 * memory. */
static mp_status choose_place(mp_planner *p, int how, size_t bytes, mp_ref *place) {
    const bool is_narrow = how >= 0 && mp_dtype_size(p->in[0].type) == 1;
    *place = MP_OUT(0);
    return is_narrow && (bytes % WORD != 0 || p->align < WORD)
               ? mp_plan_scratch(p, MP_ALIGN_UP(bytes, WORD), place)
               : MP_OK;
}

static mp_status scatter(mp_planner *p, int how, size_t unit, const k_indexed *walk) {
    const mp_tensor *data = &p->in[0];
    size_t bytes = 0;
    mp_ref place;
    MP_TRY(mp_plan_output(p, 0, data->type, &data->shape));
    MP_TRY(mp_shape_bytes(&data->shape, data->type, &bytes));
    if (walk->count == 0) {
        return mp_plan_copy(p, MP_OUT(0), MP_IN(0), bytes);
    }
    MP_TRY(choose_place(p, how, bytes, &place));
    MP_TRY(mp_plan_copy(p, place, MP_IN(0), bytes));
    mp_scatter_args args = {.walk = *walk, .how = how};
    const mp_kernel *kernel = NULL;
    if (how < 0) {
        MP_TRY(mp_plan_kernel(p, &kernel, "scatter_b%zu", unit * 8));
    } else {
        const char *word = join_kernel(data->type, &args.how);
        MP_TRY(mp_plan_kernel(p, &kernel, "scatter_reduce_%s", word));
    }
    MP_TRY(MP_LAUNCH(p, kernel, mp_plan_grid(p, walk->count, 1), args,
                     MP_BIND(mp_scatter_args, updates, MP_IN(2)),
                     MP_BIND(mp_scatter_args, walk.indices, MP_IN(1)),
                     MP_BIND(mp_scatter_args, out, place)));
    return place.place == MP_PLACE_OUT ? MP_OK : mp_plan_copy(p, MP_OUT(0), place, bytes);
}

static mp_status check_updates(const mp_shape *updates, const mp_shape *wanted) {
    char a[MP_SHAPE_TEXT];
    char b[MP_SHAPE_TEXT];
    return mp_shape_equal(updates, wanted)
               ? MP_OK
               : MP_FAIL(INVALID_ARGUMENT, "updates have the shape %s where %s is needed",
                         mp_shape_text(updates, a), mp_shape_text(wanted, b));
}

static mp_status plan_scatter_elements(mp_planner *p) {
    const mp_tensor *data = &p->in[0];
    int axis = 0;
    int how = -1;
    k_indexed walk;
    MP_TRY(mp_shape_axis(mp_node_int(p->node, "axis", 0), data->shape.rank, "axis", &axis));
    MP_TRY(read_reduction(p->node, &how));
    MP_TRY(check_updates(&p->in[2].shape, &p->in[1].shape));
    MP_TRY(mp_indexed_elements(&data->shape, &p->in[1], axis, &walk));
    return scatter(p, how, mp_dtype_size(data->type), &walk);
}

static mp_status plan_scatter_nd(mp_planner *p) {
    int how = -1;
    mp_sliced to;
    MP_TRY(read_reduction(p->node, &how));
    MP_TRY(mp_indexed_slices(p, &p->in[0], &p->in[1], 0, how < 0, &to));
    MP_TRY(check_updates(&p->in[2].shape, &to.slices));
    return scatter(p, how, to.unit, &to.walk);
}

/* ---- the rows ---- */

static const mp_attr_def axis_only[] = {{"axis", MP_ATTR_INT}, {NULL, 0}};
static const mp_attr_def axis_reduction[] = {
    {"axis", MP_ATTR_INT}, {"reduction", MP_ATTR_STRING}, {NULL, 0}};
static const mp_attr_def reduction_only[] = {{"reduction", MP_ATTR_STRING}, {NULL, 0}};

enum { INDEX = 1u << MP_I32 | 1u << MP_I64 };

#define ELEMENTS(op_name, from, to, set, attrs_)                                               \
    {                                                                                          \
        .domain = "", .name = (op_name), .since = (from), .until = (to),                       \
        .types = {{"T", (set)}, {"Tind", INDEX}}, .in_place = {{0, 0}}, .in_place_count = 1,   \
        .attrs = (attrs_), .plan = plan_scatter_elements, .accept = mp_indexed_elements_accept \
    }
#define SLICES(from, to, set, attrs_)                                                          \
    {                                                                                          \
        .domain = "", .name = "ScatterND", .since = (from), .until = (to),                     \
        .types = {{"T", (set)}}, .in_place = {{0, 0}}, .in_place_count = 1, .attrs = (attrs_), \
        .plan = plan_scatter_nd, .accept = mp_indexed_slices_accept                            \
    }

static const mp_op ops[] = {
    ELEMENTS("Scatter", 9, 9, MP_OLD_TYPES, axis_only),
    ELEMENTS("ScatterElements", 11, 11, MP_OLD_TYPES, axis_only),
    ELEMENTS("ScatterElements", 13, 13, MP_ALL_TYPES, axis_only),
    ELEMENTS("ScatterElements", 16, 18, MP_ALL_TYPES, axis_reduction),
    SLICES(11, 11, MP_OLD_TYPES, NULL),
    SLICES(13, 13, MP_ALL_TYPES, NULL),
    SLICES(16, 18, MP_ALL_TYPES, reduction_only),
};

const mp_op_family mp__family_scatter = {"scatter", ops, MP_COUNT_OF(ops)};
