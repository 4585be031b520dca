/* op.h - what an ONNX operator is, apart from any runtime.
 *
 * An operator is one row of a table and one function, `plan`: from the shapes of the inputs (and
 * the values of the few inputs that live on the host) it declares the outputs and the scratch
 * memory and lists the steps (launches, copies, matrix products). Nothing is queued while planning
 * and nothing is decided while running: a plan is kept for its input shapes and run again with
 * other addresses, by a node of a session or while a graph is captured.
 *
 *     row -> mp_node (attributes read) -> mp_plan (one for each set of shapes) -> mp_plan_run
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_OP_H
#define MP_OP_OP_H

#include "op/core/plan.h"
#include "op/core/shape.h"

#include <string.h>

typedef struct mp_op mp_op;
typedef struct mp_node mp_node;
typedef struct mp_expresser mp_expresser;

/* ---- the row ---- */

enum { MP_CONSTRAINTS_MAX = 6, MP_ALIASES_MAX = 3, MP_VERSION_MAX = 1000000 };

typedef struct mp_constraint {
    const char *name; /* as in ONNX's schema: "T", "Tind"; NULL ends */
    mp_dtypes types;
} mp_constraint;

typedef enum mp_attr_kind {
    MP_ATTR_INT = 1,
    MP_ATTR_FLOAT,
    MP_ATTR_STRING,
    MP_ATTR_INTS,
    MP_ATTR_FLOATS,
    MP_ATTR_TENSOR,
    MP_ATTR_STRINGS,
} mp_attr_kind;

typedef struct mp_attr_def {
    const char *name; /* NULL ends */
    mp_attr_kind kind;
} mp_attr_def;

typedef struct mp_alias {
    int in, out;
} mp_alias;

/* Of rows that no model names: what passes over a graph put in the place of several nodes. */
#define MP_OWN_DOMAIN "millpond"

struct mp_op {
    const char *domain; /* "" is ai.onnx */
    const char *name;
    int since, until; /* schema versions, inclusive; a schema newer than `until` is not claimed */
    mp_constraint types[MP_CONSTRAINTS_MAX];
    uint32_t host_in;  /* bit i: input i is in host memory when planning; bit 31: i >= 31 too */
    uint32_t host_out; /* bit i: output i is written to host memory */
    int view_of;       /* 1 + the input whose memory output 0 may simply be; 0 for none */
    mp_alias in_place[MP_ALIASES_MAX]; /* output may reuse the input's memory when nobody else */
    int in_place_count;                /* reads it and the sizes agree */
    uint32_t apart_in, apart_out;      /* bit i: the rows of input or output i may lie apart
                                        * (mp_tensor.pitch); bit 31: i >= 31 too */
    bool sizes_differ; /* often: ONNX Runtime is not told, which takes unknown ones for the same */
    bool needs_conv;   /* no use without the device's convolutions */
    bool variadic;     /* the inputs are a list of any length: none of them may be left out, which
                        * ONNX Runtime checks for other operators only */
    bool draws;        /* random numbers, other ones in each run */
    const char *once;  /* where this attribute is not 0, and an output lies where an input does, a
                        * second run on them is not like the first; NULL: it always is */
    const mp_attr_def *attrs; /* NULL for none */
    mp_status (*plan)(mp_planner *p);
    /* For what a session can know before it runs: attributes, which inputs and outputs there are,
     * types and shapes of inputs, of which ranks and dimensions that are not known are -1. Nothing
     * else of `p` is set. A node for which it fails is left to other providers, with its sentence.
     * NULL: every node is taken. */
    mp_status (*accept)(const mp_planner *p);
    /* For outputs whose sizes depend on data: `plan` declares none, counts, and says what is read
     * back (mp_plan_read_back); this, given the values, declares the outputs and lists the steps
     * that write them. NULL for other operators. */
    mp_status (*finish)(mp_planner *p, const int64_t *found);
    /* For an input that is a constant of the model and that `plan` wants in another form: declares
     * that as output 0, of as many bytes, and lists the steps that make it; nothing where input `i`
     * is wanted as it is. Of the inputs it knows type and shape of this one. NULL: all are wanted
     * as they are. */
    mp_status (*prepare)(mp_planner *p, int i);
    bool prepares_own; /* only constants that no other node of the group reads, since a form of its
                        * own for each reader would take more memory than it is worth */
    /* For what is computed element by element (op/fused/expression.h): adds it to an expression.
     * NULL for other operators. */
    int (*express)(mp_expresser *e);
    int (*express_rows)(mp_expresser *e); /* the same for what reduces rows */
    const void *detail; /* what makes this row special within its family, typed by the family */
};

/* Whether input or output `i` is in host memory. */
static inline bool mp_op_host_in(const mp_op *op, size_t i) {
    return (op->host_in >> MP_MIN(i, 31) & 1) != 0;
}
static inline bool mp_op_host_out(const mp_op *op, size_t i) {
    return (op->host_out >> MP_MIN(i, 31) & 1) != 0;
}

/* Whether rows of input or output `i` may lie apart. */
static inline bool mp_op_apart_in(const mp_op *op, size_t i) {
    return (op->apart_in >> MP_MIN(i, 31) & 1) != 0;
}
static inline bool mp_op_apart_out(const mp_op *op, size_t i) {
    return (op->apart_out >> MP_MIN(i, 31) & 1) != 0;
}

/* Whether no model names it. */
static inline bool mp_op_is_own(const mp_op *op) {
    return strncmp(op->domain, MP_OWN_DOMAIN, sizeof MP_OWN_DOMAIN - 1) == 0;
}

/* Every operator, as a table of tables. Static storage. `*count` rows. */
typedef struct mp_op_family {
    const char *name; /* "pointwise" */
    const mp_op *ops;
    size_t count;
} mp_op_family;

extern const mp_op_family *const mp_op_families[];
extern const size_t mp_op_family_count;

/* The row for an operator of schema version `version`, or NULL. */
const mp_op *mp_op_find(const char *domain, const char *name, int version);

/* ---- a node: an operator with its attributes ---- */

typedef struct mp_attr {
    const char *name;
    mp_attr_kind kind;
    int64_t i;
    float f;
    const char *s; /* of STRINGS: `count` of them, one behind the other */
    const int64_t *ints;
    const float *floats;
    size_t count;     /* of ints, floats or strings */
    mp_tensor tensor; /* its data in host memory */
} mp_attr;

/* Choices of the session that concern operators. */
typedef struct mp_op_options {
    bool tf32;               /* float matrix products may use TF32 */
    bool conv_workspace_max; /* as mp_conv.workspace_max */
    int32_t conv_search;     /* 0 exhaustive, 1 heuristic, 2 default */
    int32_t sdpa_kernel;     /* bits of attention kernels that are allowed; 0: all */
    mp_tune tune;            /* how algorithms of matrix products are chosen */
    int64_t tune_ms;
} mp_op_options;

/* The bits of sdpa_kernel, as ONNX Runtime numbers them. What none of those that are allowed can do
 * (double, heads too long for shared memory) goes by products. */
enum {
    MP_SDPA_FEW = 1, /* a few queries at a time */
    MP_SDPA_TILES = 2,
    MP_SDPA_PRODUCTS = 16,
    MP_SDPA_ALL = MP_SDPA_FEW | MP_SDPA_TILES | MP_SDPA_PRODUCTS,
};

struct mp_node {
    const mp_op *op;
    int version;          /* of the schema the model uses */
    const char *name;     /* for messages; "" if it has none */
    const char *title;    /* for messages in place of operator and name; NULL: those */
    const mp_attr *attrs; /* those that the model gives */
    size_t attr_count;
    uint32_t out_absent; /* bit i: the model leaves output i out; of the first 32 */
    uint32_t prepared;   /* bit i: input i comes as `prepare` makes it, with its shape as given */
    uint32_t constants;  /* bit i: input i is a constant of the model, in memory that was written
                          * before any run and that no step of a run writes; of the first 32 */
    mp_op_options options;
};

static inline bool mp_node_prepared(const mp_node *node, int i) {
    return i < 32 && (node->prepared >> i & 1) != 0;
}

/* Whether kernels may read input `i` before the steps before them have ended. */
static inline bool mp_node_constant(const mp_node *node, int i) {
    return i < 32 && (node->constants >> i & 1) != 0;
}

/* A given attribute, or NULL. */
const mp_attr *mp_node_attr(const mp_node *node, const char *name);
int64_t mp_node_int(const mp_node *node, const char *name, int64_t fallback);
float mp_node_float(const mp_node *node, const char *name, float fallback);
/* Whether every number of a list is `wanted`, or there is no list. */
bool mp_node_ints_are(const mp_node *node, const char *name, int64_t wanted);
/* As mp_op.once says. */
bool mp_node_runs_once(const mp_node *node);

/* For flags that ONNX Runtime's CPU provider compares with 1, so that 2 is false; others it
 * compares with 0. */
bool mp_node_flag(const mp_node *node, const char *name, bool fallback);
const char *mp_node_string(const mp_node *node, const char *name, const char *fallback);

#endif
