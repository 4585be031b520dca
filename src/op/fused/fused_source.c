/* fused_source.c - writes the text of a fused kernel; of one that has rows, fused_row_source.c
 * does.
 *
 * A lane makes a pack of neighbouring elements, as in kernel/core/walk.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op/fused/fused_source.h"

#include "op/fused/fused_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef mp_fused_writer writer;

static const char *word(mp_dtype type) {
    return mp_dtype_word(type);
}

mp_dtype mp_fused_widest(const mp_expression *e, const mp_reading *readings) {
    mp_dtype widest = mp_expression_type(e, e->outputs[0]);
    for (int i = 1; i < e->output_count; i++) {
        const mp_dtype type = mp_expression_type(e, e->outputs[i]);
        widest = mp_dtype_size(type) > mp_dtype_size(widest) ? type : widest;
    }
    for (int i = 0; i < e->input_count; i++) {
        const bool larger = mp_dtype_size(e->inputs[i]) > mp_dtype_size(widest);
        widest = readings[i] != MP_READ_ONE && larger ? e->inputs[i] : widest;
    }
    return widest;
}

/* ---- one element ---- */

static void write_element(const writer *w) {
    const mp_expression *e = w->e;
    (void)fprintf(w->to, "K_FN void f_element(");
    for (int i = 0; i < e->input_count; i++) {
        (void)fprintf(w->to, "k_%s e%d, ", word(e->inputs[i]), i);
    }
    (void)fprintf(w->to, "const mp_fused_args &args");
    for (int i = 0; i < e->output_count; i++) {
        (void)fprintf(w->to, ", k_%s *made%d", word(mp_expression_type(e, e->outputs[i])), i);
    }
    (void)fprintf(w->to, ") {\n    (void)args;\n");
    for (int i = 0; i < e->input_count; i++) {
        (void)fprintf(w->to, "    const kc_%s x%d = k_load_%s(e%d);\n", word(e->inputs[i]), i,
                      word(e->inputs[i]), i);
    }
    for (int i = 0; i < e->number_count; i++) {
        (void)fprintf(w->to, "    const float n%d = args.numbers[%d];\n", i, i);
    }
    for (int t = 0; t < e->term_count; t++) {
        mp__fused_write_term(w, t);
    }
    for (int i = 0; i < e->output_count; i++) {
        const mp_dtype type = mp_expression_type(e, e->outputs[i]);
        char name[16];
        (void)fprintf(w->to, "    *made%d = k_store_%s(%s);\n", i, word(type),
                      mp__fused_register(e->outputs[i], name));
    }
    (void)fprintf(w->to, "}\n");
}

/* ---- the kernel ---- */

/* The elements of each input that the element's function gets: of pack lane k, or of element n. */
static void write_elements(const writer *w, bool packs) {
    int view = 0;
    for (int i = 0; i < w->e->input_count; i++) {
        if (w->readings[i] == MP_READ_ONE) {
            (void)fprintf(w->to, "one%d, ", i);
        } else if (packs) {
            (void)fprintf(w->to, "p%d.lane[k], ", i);
        } else if (w->readings[i] == MP_READ_WHOLE) {
            (void)fprintf(w->to, "in%d[n], ", i);
        } else {
            (void)fprintf(w->to, "in%d[at[%d]], ", i, view++);
        }
    }
    (void)fprintf(w->to, "args");
    for (int i = 0; i < w->e->output_count; i++) {
        if (!packs && w->e->is_apart) {
            (void)fprintf(w->to, ", &out%d[at[%d]]", i, view);
        } else {
            (void)fprintf(w->to, packs ? ", &m%d.lane[k]" : ", &out%d[n]", i);
        }
    }
}

/* The inputs that are, and the output. */
static int walk_views(const writer *w) {
    return mp__fused_views(w) + w->e->is_apart;
}

static void write_pack_loop(const writer *w) {
    int view = 0;
    (void)fprintf(w->to,
                  "    const int64_t packs = k_walk_packs(&args.walk, skew);\n"
                  "    K_ONE_COPY\n"
                  "    K_GRID_LOOP(i, packs) {\n"
                  "        const k_spot spot = k_spot_of(&args.walk, i, %d);\n",
                  walk_views(w));
    for (int i = 0; i < w->e->input_count; i++) {
        const char *type = word(w->e->inputs[i]);
        if (w->readings[i] == MP_READ_WHOLE) {
            (void)fprintf(w->to,
                          "        pack_%s p%d;\n"
                          "        p%d.words = ((const pack_%s *)(in%d + spot.first))->words;\n",
                          type, i, i, type, i);
        } else if (w->readings[i] == MP_READ_VIEW) {
            (void)fprintf(w->to,
                          "        const pack_%s p%d = read_%s(in%d, &args.walk, &spot, %d);\n",
                          type, i, type, i, view++);
        }
    }
    for (int i = 0; i < w->e->output_count; i++) {
        (void)fprintf(w->to, "        pack_%s m%d;\n",
                      word(mp_expression_type(w->e, w->e->outputs[i])), i);
    }
    (void)fprintf(w->to, "        K_UNROLL\n        for (int32_t k = 0; k < K_WALK; k++) {\n"
                         "            f_element(");
    write_elements(w, true);
    (void)fprintf(w->to, ");\n        }\n");
    for (int i = 0; i < w->e->output_count; i++) {
        (void)fprintf(w->to, "        *(pack_%s *)(out%d + ",
                      word(mp_expression_type(w->e, w->e->outputs[i])), i);
        if (w->e->is_apart) { /* its rows are whole packs */
            (void)fprintf(w->to, "spot.at[%d]) = m%d;\n", view, i);
        } else {
            (void)fprintf(w->to, "spot.first) = m%d;\n", i);
        }
    }
    (void)fprintf(w->to, "    }\n");
}

static void write_rest_loop(const writer *w) {
    const int views = walk_views(w);
    (void)fprintf(w->to, "    const int64_t done = packs * K_WALK;\n"
                         "    K_ONE_COPY\n"
                         "    K_GRID_LOOP(i, args.walk.count - done) {\n"
                         "        const int64_t n = done + i;\n");
    if (views > 0) {
        (void)fprintf(w->to,
                      "        uint32_t at[%d];\n"
                      "        k_walk_to(&args.walk, (uint32_t)n, %d, at);\n",
                      views, views);
    }
    (void)fprintf(w->to, "        f_element(");
    write_elements(w, false);
    (void)fprintf(w->to, ");\n    }\n");
}

static void write_elements_kernel(const writer *w) {
    mp__fused_write_head(w, "#include \"kernel/core/walk.h\"\n"
                            "#include \"kernel/fused/fused_args.h\"\n");
    write_element(w);
    (void)fprintf(w->to, "K_KERNEL(mp_fused_args, args) {\n");
    mp__fused_write_addresses(w);
    write_pack_loop(w);
    write_rest_loop(w);
    (void)fprintf(w->to, "}\n");
}

mp_status mp_fused_source(const mp_expression *e, const mp_reading *readings, char **out) {
    size_t size = 0;
    char *text = NULL;
    const writer w = {.to = open_memstream(&text, &size), .e = e, .readings = readings};
    if (w.to != NULL) {
        (e->row_dims > 0 ? mp__fused_write_rows : write_elements_kernel)(&w);
    }
    if (w.to == NULL || fclose(w.to) != 0 || text == NULL) {
        free(text);
        return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory for the text of a kernel");
    }
    *out = text;
    return MP_OK;
}
