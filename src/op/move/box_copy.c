/* box_copy.c - see box_copy.h.
 * Kernel: move/box_copy.cu.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/move/box_copy.h"

#include <string.h>

enum { SOURCE, TARGET, VIEWS };
enum {
    RUN = 128,       /* bytes that are to be neighbours on either side */
    BOX = 16 << 10,  /* bytes of a box: eight of them are on a multiprocessor at a time */
    MOST = 32 << 10, /* those of one that cannot be smaller */
    BLOCKS = 264,    /* boxes that keep a GPU busy: two on each of its multiprocessors */
    LEAST = 1 << 14, /* elements; fewer are moved one by one as soon */
    LARGEST = 8      /* bytes of an element */
};

/* The walk, and how many of each dimension are in a box. */
typedef struct boxes {
    const mp_space *space;
    int order[VIEWS][MP_RANK_MAX]; /* dimensions, those of neighbours first */
    int64_t extent[MP_RANK_MAX];   /* each divides its dimension */
    int64_t size;
} boxes;

/* By strides, least first; false where some are none: what repeats, or is walked backwards. */
static bool sort(const mp_space *space, int view, int *order) {
    for (int d = 0; d < space->rank; d++) {
        int at = d;
        for (; at > 0 && space->stride[view][order[at - 1]] > space->stride[view][d]; at--) {
            order[at] = order[at - 1];
        }
        order[at] = d;
        if (space->stride[view][d] < 1) {
            return false;
        }
    }
    return space->stride[view][order[0]] == 1;
}

/* The least divisor of `dim` that is `least` at least and fits into a box, or dim itself. */
static int64_t divisor_from(int64_t dim, int64_t least) {
    int64_t found = least;
    while (found < dim && found < MOST && dim % found != 0) {
        found++;
    }
    return found < dim && found < MOST ? found : dim;
}

static void widen(boxes *b, int d, int64_t extent) {
    b->size = b->size / b->extent[d] * extent;
    b->extent[d] = extent;
}

/* Neighbours in this view until they are `wanted`, or do not go on. */
static void take_run(boxes *b, int view, int64_t wanted) {
    int64_t run = 1;
    for (int i = 0; i < b->space->rank && run < wanted; i++) {
        const int d = b->order[view][i];
        if (b->space->stride[view][d] != run) {
            return;
        }
        const int64_t extent = divisor_from(b->space->dim[d], MP_CEIL_DIV(wanted, run));
        if (extent > b->extent[d]) {
            widen(b, d, extent);
        }
        run *= b->extent[d];
        if (b->extent[d] < b->space->dim[d] || b->size > MOST) {
            return;
        }
    }
}

/* More of each dimension, the target's neighbours first, as long as there is room. */
static void fill(boxes *b, int64_t room) {
    for (int i = 0; i < b->space->rank; i++) {
        const int d = b->order[TARGET][i];
        while (b->extent[d] < b->space->dim[d]) {
            const int64_t extent = divisor_from(b->space->dim[d], b->extent[d] + 1);
            if (b->size / b->extent[d] * extent > room) {
                break;
            }
            widen(b, d, extent);
        }
    }
}

static bool choose(const mp_space *space, size_t size, boxes *b) {
    *b = (boxes){.space = space, .size = 1};
    if (!sort(space, SOURCE, b->order[SOURCE]) || !sort(space, TARGET, b->order[TARGET]) ||
        b->order[SOURCE][0] == b->order[TARGET][0]) {
        return false;
    }
    int64_t count = 1;
    for (int d = 0; d < space->rank; d++) {
        b->extent[d] = 1;
        count *= space->dim[d];
    }
    const int64_t bytes = (int64_t)size, wanted = RUN / bytes;
    take_run(b, TARGET, wanted);
    take_run(b, SOURCE, wanted);
    if (count < LEAST || b->size > MOST / bytes) {
        return false;
    }
    fill(b, count / BLOCKS < BOX / bytes ? count / BLOCKS : BOX / bytes);
    return true;
}

/* A layout of the dimensions in the order of `view`, outermost first: `count` of each, and strides
 * of two views. */
static bool layout_of(const boxes *b, int view, const int64_t *count,
                      const int64_t (*stride)[MP_RANK_MAX], int views, k_layout *out) {
    mp_shape shape = {.rank = b->space->rank};
    int64_t ordered[VIEWS][MP_RANK_MAX] = {{0}};
    for (int i = 0; i < shape.rank; i++) {
        const int d = b->order[view][shape.rank - 1 - i];
        shape.dim[i] = count[d];
        for (int v = 0; v < views; v++) {
            ordered[v][i] = stride[v][d];
        }
    }
    return mp_layout_make(&shape, ordered, views, out) == MP_OK && !out->wide;
}

/* Whether all strides in this view but those of the `inner` innermost dimensions are of whole
 * packs. */
static bool steps_packs(const k_layout *layout, int view, int inner, int64_t pack) {
    for (int d = 0; d < layout->rank - inner; d++) {
        if (layout->stride[view][d] % pack != 0) {
            return false;
        }
    }
    return true;
}

/* Whether the `inner` innermost dimensions, one or two, lie one element after the other in this
 * view, in whole packs. */
static bool runs_packs(const k_layout *layout, int view, int inner, int64_t pack) {
    const int last = layout->rank - 1;
    const int64_t run = layout->dim[last];
    if (inner > layout->rank || layout->stride[view][last] != 1 ||
        (inner == 2 && layout->stride[view][last - 1] != run)) {
        return false;
    }
    return (inner == 2 ? run * layout->dim[last - 1] : run) % pack == 0 &&
           steps_packs(layout, view, inner, pack);
}

bool mp_box_copy_of(const mp_planner *p, const mp_space *space, size_t size, mp_ref from, mp_ref to,
                    mp_box_copy_args *out) {
    enum { ALIGNED = 16 };
    boxes b;
    if (size > LARGEST || !choose(space, size, &b)) {
        return false;
    }
    int64_t steps[VIEWS][MP_RANK_MAX], own[VIEWS][MP_RANK_MAX], number[MP_RANK_MAX];
    int64_t place = 1;
    *out = (mp_box_copy_args){.boxes = 1, .size = (uint32_t)b.size};
    for (int i = 0; i < space->rank; i++) {
        const int d = b.order[SOURCE][i];
        number[d] = space->dim[d] / b.extent[d];
        for (int v = 0; v < VIEWS; v++) {
            steps[v][d] = space->stride[v][d] * b.extent[d];
        }
        own[0][d] = place;
        own[1][d] = space->stride[TARGET][d];
        place *= b.extent[d];
        out->boxes *= number[d];
    }
    if (!layout_of(&b, TARGET, number, (const int64_t(*)[MP_RANK_MAX])steps, VIEWS, &out->box) ||
        !layout_of(&b, SOURCE, b.extent, space->stride, 1, &out->read) ||
        !layout_of(&b, TARGET, b.extent, (const int64_t(*)[MP_RANK_MAX])own, VIEWS, &out->write)) {
        return false;
    }
    const int64_t pack = K_BOX_PACK((int64_t)size);
    const bool aligned = p->align >= ALIGNED && (from.offset | to.offset) % ALIGNED == 0;
    out->reads_packs =
        aligned && steps_packs(&out->box, SOURCE, 0, pack) && runs_packs(&out->read, 0, 1, pack);
    out->writes_packs =
        aligned && steps_packs(&out->box, TARGET, 0, pack) &&
        (runs_packs(&out->write, 1, 1, pack) || runs_packs(&out->write, 1, 2, pack));
    return true;
}

mp_status mp_plan_box_copy(mp_planner *p, const mp_box_copy_args *args, size_t size, mp_ref from,
                           mp_ref to) {
    enum { LANES = 256 };
    const uint32_t bytes = (uint32_t)size;
    const mp_kernel *kernel = NULL;
    MP_TRY(mp_plan_kernel(p, &kernel, "box_copy_b%zu", size * 8));
    mp_grid grid = mp_plan_grid_rows(p, args->boxes, LANES);
    grid.shared_bytes = (args->size + args->size / K_BOX_LINE(bytes) * K_BOX_GAP(bytes)) * bytes;
    return MP_LAUNCH(p, kernel, grid, *args, MP_BIND(mp_box_copy_args, x, from),
                     MP_BIND(mp_box_copy_args, out, to));
}
