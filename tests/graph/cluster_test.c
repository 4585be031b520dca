/* cluster_test.c - which element-wise nodes run as one kernel.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/cluster.h"
#include "graph/text.h"
#include "unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES = 512, NODES = 512 };

/* One line a step: the nodes' names and, of a cluster, its expression. Inputs have their shapes;
 * nodes that are no candidates give what their first input is. */
static void write_units(const mp_graph *graph, char *text, size_t size) {
    mp_tensor tensors[VALUES];
    mp_node_fate fates[NODES];
    const bool is_kept[VALUES] = {false};
    mp_tensor in[16];
    mp_units units;
    size_t used = 0;
    for (int32_t i = 0; i < graph->value_count; i++) {
        tensors[i] = graph->values[i].tensor;
    }
    for (int32_t n = 0; n < graph->node_count; n++) {
        const mp_vertex *v = &graph->nodes[n];
        mp_tensor *out = &tensors[v->out[0]];
        for (int i = 0; i < v->in_count; i++) {
            in[i] = tensors[v->in[i]];
        }
        fates[n] = mp_cluster_takes(v, in, out) ? MP_FATE_CLUSTER : MP_FATE_STEP;
        if (fates[n] == MP_FATE_STEP) {
            *out = in[0];
            out->data = 0;
        }
    }
    CHECK_OK(mp_units_make(graph, tensors, fates, is_kept, &units));
    text[0] = '\0';
    for (int32_t i = 0; i < units.count && used < size; i++) {
        const mp_unit *unit = &units.units[i];
        for (int32_t k = 0; k < unit->count && used < size; k++) {
            used += (size_t)snprintf(text + used, size - used, "%s%s", k > 0 ? "+" : "",
                                     graph->nodes[units.nodes[unit->first + k]].node.name);
        }
        used += (size_t)snprintf(text + used, size - used, "%s%s\n",
                                 unit->expression != NULL ? ": " : "",
                                 unit->expression != NULL ? unit->expression : "");
    }
    mp_units_close(&units);
}

static void check(const char *from, const char *to) {
    mp_graph *graph = NULL;
    char text[4096];
    CHECK_OK(mp_graph_read(from, &graph));
    CHECK(graph->value_count <= VALUES && graph->node_count <= NODES);
    write_units(graph, text, sizeof text);
    if (strcmp(text, to) != 0) {
        test_fail(__FILE__, __LINE__, "%s instead of %s", text, to);
    }
    mp_graph_destroy(graph);
}

TEST(cluster_of_a_chain) {
    check("input x f32[4,8]\ninput b f32[8]\nconst two f32[] = 2\n"
          "s = Add-14 (x, b) \"s\"\nr = Relu-14 (s) \"r\"\ny = Mul-14 (r, two) \"y\"\noutput y\n",
          "s+r+y: x0=f32 x1=f32 n0=f32:40000000 t0=add(x0,x1) t1=relu(t0) t2=mul(t1,n0) -> t2\n");
}

TEST(cluster_gives_what_others_read) {
    check("input x f32[4,8]\na = Exp-13 (x) \"a\"\nb = Neg-13 (a) \"b\"\nc = Softmax-13 (a) \"c\"\n"
          "output b\noutput c\n",
          "a+b: x0=f32 t0=exp(x0) t1=neg(t0) -> t0 t1\nc\n");
}

/* What stands before a branch runs by itself. */
TEST(cluster_is_of_one_branch) {
    check("input x f32[4,8]\ninput c bool[]\na = Exp-13 (x) \"a\"\nb = Neg-13 (a) \"b\"\nwhen c\n"
          "d = Relu-14 (b) \"d\"\ne = Neg-13 (d) \"e\"\nend\noutput e\n",
          "a+b: x0=f32 t0=exp(x0) t1=neg(t0) -> t1\n"
          "d+e: x0=f32 t0=relu(x0) t1=neg(t0) -> t1\n");
}

/* The sum cannot run before the Softmax, nor the Softmax before the exponential. */
TEST(cluster_has_nothing_between) {
    check("input x f32[4,8]\na = Exp-13 (x) \"a\"\nb = Softmax-13 (a) \"b\"\nc = Add-14 (a, b) "
          "\"c\"\n"
          "d = Sqrt-13 (c) \"d\"\noutput d\n",
          "a\nb\nc+d: x0=f32 x1=f32 t0=add(x0,x1) t1=sqrt(t0) -> t1\n");
}

/* However much there is before both. */
TEST(cluster_far_behind) {
    enum { DEEP = 300 };
    char from[16384] = "input s0 f32[4,8]\n", to[1024] = "";
    size_t used = strlen(from);
    for (int i = 1; i <= DEEP; i++) {
        used +=
            (size_t)snprintf(from + used, sizeof from - used, "s%d = Softmax-13 (s%d)\n", i, i - 1);
        strcat(to, "\n");
    }
    (void)snprintf(from + used, sizeof from - used,
                   "a = Exp-13 (s%d) \"a\"\nb = Add-14 (a, s%d) \"b\"\noutput b\n", DEEP, DEEP - 1);
    strcat(to, "a+b: x0=f32 x1=f32 t0=exp(x0) t1=add(t0,x1) -> t1\n");
    check(from, to);
}

/* What one node makes is joined again where two ways meet. */
TEST(cluster_of_two_ways) {
    check("input x f32[4,8]\na = Exp-13 (x) \"a\"\nb = Neg-13 (a) \"b\"\nc = Sin-7 (a) \"c\"\n"
          "d = Add-14 (b, c) \"d\"\noutput d\n",
          "a+b+c+d: x0=f32 t0=exp(x0) t1=neg(t0) t2=sin(t0) t3=add(t1,t2) -> t3\n");
}

/* Nodes of other shapes have kernels of their own. */
TEST(cluster_is_of_one_shape) {
    check("input x f32[4,8]\ninput b f32[8]\na = Exp-13 (b) \"a\"\nc = Neg-13 (a) \"c\"\n"
          "d = Add-14 (x, c) \"d\"\ne = Abs-13 (d) \"e\"\noutput e\n",
          "a+c: x0=f32 t0=exp(x0) t1=neg(t0) -> t1\nd+e: x0=f32 x1=f32 t0=add(x0,x1) t1=abs(t0) -> "
          "t1\n");
}

TEST(cluster_of_several_types) {
    check("input x f16[4,8]\ninput y f16[4,8]\na = Less-13 (x, y) \"a\"\n"
          "b = Where-16 (a, x, y) \"b\"\nc = Cast-13 (b) \"c\" to=1\noutput c\n",
          "a+b+c: x0=f16 x1=f16 t0=less(x0,x1) t1=where(t0,x0,x1) t2=cast.f32(t1) -> t2\n");
}

/* Four results at most; what would have more is taken apart. */
TEST(cluster_of_too_many_results) {
    check("input x f32[8]\na = Exp-13 (x) \"a\"\nb = Neg-13 (a) \"b\"\nc = Sin-7 (b) \"c\"\n"
          "d = Cos-7 (c) \"d\"\ne = Abs-13 (d) \"e\"\noutput a\noutput b\noutput c\noutput d\n"
          "output e\n",
          "a\nb\nc\nd\ne\n");
}

/* Clip with bounds that are known is a term; one without a value is a step. */
TEST(cluster_knows_bounds) {
    check("input x f32[8]\ninput top f32[]\nconst low f32[] = 0\nconst six f32[] = 6\n"
          "a = Neg-13 (x) \"a\"\nb = Clip-13 (a, low, six) \"b\"\nc = Clip-13 (b, low, top) \"c\"\n"
          "output c\n",
          "a+b: x0=f32 t0=neg(x0) t1=clip(t0;00000000;40c00000) -> t1\nc\n");
}
