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
        fates[n] = mp_cluster_takes(v, in, true, out) ? MP_FATE_CLUSTER : MP_FATE_STEP;
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
    check("input x f32[4,8]\na = Exp-13 (x) \"a\"\nb = Neg-13 (a) \"b\"\nc = Softmax-13 (a) \"c\" "
          "axis=0\n"
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
    check("input x f32[4,8]\na = Exp-13 (x) \"a\"\nb = Softmax-13 (a) \"b\" axis=0\nc = Add-14 (a, "
          "b) "
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
        used += (size_t)snprintf(from + used, sizeof from - used, "s%d = Softmax-13 (s%d) axis=0\n",
                                 i, i - 1);
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

/* ---- rows ---- */

/* A softmax between what makes its input and what reads its result. */
TEST(cluster_has_a_softmax) {
    check("input x f32[4,8]\ninput m f32[8]\na = Add-14 (x, m) \"a\"\nb = Softmax-13 (a) \"b\"\n"
          "c = Relu-14 (b) \"c\"\noutput c\n",
          "a+b+c: row=1 x0=f32 x1=f32 t0=add(x0,x1) t1=rowmax(t0) t2=sub(t0,t1) t3=exp(t2) "
          "t4=rowsum(t3) t5=div(t3,t4) t6=relu(t5) -> t6\n");
}

/* By itself it has a kernel of its own, as has a reduction. */
TEST(cluster_of_a_reduction_alone_is_none) {
    check("input x f32[4,8]\nconst last i64[1] = -1\na = Softmax-13 (x) \"a\"\n"
          "b = ReduceSum-13 (x, last) \"b\"\noutput a\noutput b\n",
          "a\nb\n");
}

/* Each reduction sees what those before it give; epsilon is a number, scale an input. */
TEST(cluster_has_a_norm) {
    check("input x f16[4,8]\ninput scale f16[8]\nconst last i64[1] = -1\nconst tiny f16[] = 0.5\n"
          "m = ReduceMean-18 (x, last) \"m\"\nd = Sub-14 (x, m) \"d\"\ns = Mul-14 (d, d) \"s\"\n"
          "v = ReduceMean-18 (s, last) \"v\"\ne = Add-14 (v, tiny) \"e\"\nr = Sqrt-13 (e) \"r\"\n"
          "q = Div-14 (d, r) \"q\"\ny = Mul-14 (q, scale) \"y\"\noutput y\noutput v\n",
          "m+d+s+v+e+r+q+y: row=1 x0=f16 x1=f16 n0=f16:3f000000 t0=rowmean(x0) t1=sub(x0,t0) "
          "t2=mul(t1,t1) t3=rowmean(t2) t4=add(t3,n0) t5=sqrt(t4) t6=div(t1,t5) t7=mul(t6,x1) -> "
          "t3 t7\n");
}

/* Rows of two dimensions, what is flat behind, and an input of the same shape. */
TEST(cluster_goes_on_with_flat_rows) {
    check("input x f32[3,4,8]\ninput w f32[3]\na = Exp-13 (x) \"a\"\n"
          "b = ReduceSum-11 (a) \"b\" axes=[1,2] keepdims=0\nc = Mul-14 (b, w) \"c\"\noutput c\n",
          "a+b+c: row=2 x0=f32 x1=f32:flat t0=exp(x0) t1=rowsum(t0) t2=mul(t1,x1) -> t2:flat\n");
}

/* A flat result that is read along the other axis is none of the cluster's rows. */
TEST(cluster_reads_flat_rows_as_rows_alone) {
    check("input x f32[8,8]\na = Exp-13 (x) \"a\"\n"
          "b = ReduceMax-13 (a) \"b\" axes=[1] keepdims=0\nc = Add-14 (a, b) \"c\"\noutput c\n",
          "a+b: row=1 x0=f32 t0=exp(x0) t1=rowmax(t0) -> t0 t1:flat\nc\n");
}

/* One value is read as what is of rows, and as a row. */
TEST(cluster_reads_an_input_in_two_ways) {
    check("input x f32[8,8]\ninput w f32[8]\na = Mul-14 (x, w) \"a\"\n"
          "b = ReduceMin-13 (a) \"b\" axes=[1] keepdims=0\nc = Add-14 (b, w) \"c\"\noutput c\n",
          "a+b+c: row=1 x0=f32 x1=f32 x2=f32:flat t0=mul(x0,x1) t1=rowmin(t0) t2=add(t1,x2) -> "
          "t2:flat\n");
}

TEST(cluster_composes_reductions) {
    check("input x f32[4,8]\na = Neg-13 (x) \"a\"\nb = ReduceLogSumExp-13 (a) \"b\" axes=[1]\n"
          "c = ReduceL2-13 (a) \"c\" axes=[-1]\nd = Div-14 (a, c) \"d\"\n"
          "e = Sub-14 (d, b) \"e\"\noutput e\n",
          "a+b+c+d+e: row=1 x0=f32 n0=f32:00000000 t0=neg(x0) t1=rowmax(t0) t2=sub(t1,t1) "
          "t3=isnan(t2) t4=where(t3,n0,t1) t5=sub(t0,t4) t6=exp(t5) t7=rowsum(t6) t8=log(t7) "
          "t9=add(t8,t4) t10=mul(t0,t0) t11=rowsum(t10) t12=sqrt(t11) t13=div(t0,t12) "
          "t14=sub(t13,t9) -> t14\n");
}

/* Other axes, other rows, rows of one element and whole numbers are left alone. */
TEST(cluster_leaves_other_reductions) {
    check("input x f32[4,8]\na = Exp-13 (x) \"a\"\nb = ReduceSum-11 (a) \"b\" axes=[0]\n"
          "c = Softmax-13 (a) \"c\" axis=0\noutput b\noutput c\n",
          "a\nb\nc\n");
    check("input x f32[4,1]\na = Exp-13 (x) \"a\"\nb = ReduceSum-11 (a) \"b\" axes=[1]\noutput b\n",
          "a\nb\n");
    check("input x i64[4,8]\na = Abs-13 (x) \"a\"\nb = ReduceSum-11 (a) \"b\" axes=[1]\noutput b\n",
          "a\nb\n");
    check("input x f32[2,4,8]\na = Exp-13 (x) \"a\"\nb = ReduceSum-11 (a) \"b\" axes=[2]\n"
          "c = Mul-14 (a, b) \"c\"\nd = ReduceMax-11 (c) \"d\" axes=[1,2]\noutput d\n",
          "a+b+c: row=1 x0=f32 t0=exp(x0) t1=rowsum(t0) t2=mul(t0,t1) -> t2\nd\n");
}

/* A few long rows are cut by other kernels; many are not. */
TEST(cluster_leaves_few_long_rows) {
    check("input x f32[127,8193]\na = Exp-13 (x) \"a\"\nb = ReduceSum-11 (a) \"b\" axes=[1]\n"
          "output b\n",
          "a\nb\n");
    check("input x f32[128,8193]\na = Exp-13 (x) \"a\"\nb = ReduceSum-11 (a) \"b\" axes=[1]\n"
          "output b\n",
          "a+b: row=1 x0=f32 t0=exp(x0) t1=rowsum(t0) -> t1\n");
}
