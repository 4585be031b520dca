/* program_write.c - see program_write.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "graph/program_write.h"

#include "base/json.h"
#include "graph/program_private.h"
#include "op/core/plan_write.h"

#include <inttypes.h>
#include <stdlib.h>

/* What is known of a value from who makes it and who reads it. */
typedef struct fact {
    mp_tensor tensor;    /* rank -1: not known */
    int32_t first, last; /* steps; -1 for none */
    size_t bytes;
} fact;

/* ---- facts ---- */

static size_t bytes_of(const mp_tensor *tensor) {
    size_t bytes = 0;
    return tensor->shape.rank >= 0 && tensor->type != MP_NONE &&
                   mp_shape_bytes(&tensor->shape, tensor->type, &bytes) == MP_OK
               ? bytes
               : 0;
}

static mp_tensor made_by(const mp_program_step *step, int32_t k) {
    return step->rounds != NULL ? mp_rounds_output(step->rounds, k)
                                : *mp_plan_output_at(step->plan, k);
}

static void learn_step(const mp_program *program, int32_t i, fact *facts) {
    const mp_program_step *step = &program->steps[i];
    for (int32_t k = 0; k < step->in_count; k++) {
        if (step->in[k] != MP_NO_VALUE) {
            facts[step->in[k]].last = i;
        }
    }
    for (int32_t k = 0; k < step->out_count; k++) {
        if (step->out[k] != MP_NO_VALUE) {
            facts[step->out[k]].tensor = made_by(step, k);
            facts[step->out[k]].first = i;
        }
    }
}

/* What earlier segments have made. */
static void learn_before(const mp_program *program, fact *facts) {
    for (; program != NULL; program = program->before) {
        for (int32_t i = 0; i < program->step_count; i++) {
            const mp_program_step *step = &program->steps[i];
            for (int32_t k = 0; k < step->out_count; k++) {
                if (step->out[k] != MP_NO_VALUE) {
                    facts[step->out[k]].tensor = made_by(step, k);
                }
            }
        }
    }
}

/* Gives: a list by value, until free; NULL without memory. `in` may be NULL. */
static fact *learn(const mp_program *program, const mp_graph *graph, const mp_tensor *in) {
    fact *facts = calloc((size_t)program->value_count + 1, sizeof *facts);
    for (int32_t i = 0; facts != NULL && i < program->value_count; i++) {
        facts[i] = (fact){.first = -1, .last = -1, .tensor.shape.rank = MP_DIM_UNKNOWN};
        if (graph->values[i].is_constant) {
            facts[i].tensor = graph->values[i].tensor;
        }
    }
    for (int32_t i = 0; facts != NULL && in != NULL && i < graph->input_count; i++) {
        facts[graph->inputs[i]].tensor = in[i];
    }
    if (facts != NULL) {
        learn_before(program->before, facts);
    }
    for (int32_t i = 0; facts != NULL && i < program->step_count; i++) {
        learn_step(program, i, facts);
    }
    for (int32_t i = 0; facts != NULL && i < program->value_count; i++) {
        facts[i].bytes = bytes_of(&facts[i].tensor);
    }
    return facts;
}

static mp_status no_memory(void) {
    return MP_FAIL(OUT_OF_MEMORY, "cannot allocate host memory to describe a program");
}

/* ---- JSON ---- */

static const char *place_of(const mp_graph *graph, int32_t value, const mp_spot *spot) {
    static const char *const words[] = {
        [MP_SPOT_NONE] = "known",     [MP_SPOT_IN] = "input",      [MP_SPOT_OUT] = "output",
        [MP_SPOT_FIXED] = "constant", [MP_SPOT_LITERAL] = "known", [MP_SPOT_BLOCK] = "block",
        [MP_SPOT_BASE] = "kept"};
    return graph->values[value].is_constant ? "constant" : words[spot->kind];
}

static void write_shape(const mp_tensor *tensor, FILE *out) {
    (void)fputs(",\"type\":", out);
    mp_json_text(out, mp_dtype_word(tensor->type));
    (void)fputs(",\"shape\":[", out);
    for (int d = 0; d < tensor->shape.rank; d++) {
        (void)fprintf(out, "%s%" PRId64, d > 0 ? "," : "", tensor->shape.dim[d]);
    }
    (void)fputc(']', out);
}

static void write_value(const mp_program *program, const mp_graph *graph, const fact *facts,
                        int32_t value, FILE *out) {
    const mp_spot *spot = &program->spots[value];
    (void)fputs("{\"name\":", out);
    mp_json_text(out, graph->values[value].name);
    if (facts[value].tensor.type != MP_NONE && facts[value].tensor.shape.rank >= 0) {
        write_shape(&facts[value].tensor, out);
    }
    (void)fprintf(out, ",\"bytes\":%zu,\"place\":\"%s\"", facts[value].bytes,
                  place_of(graph, value, spot));
    if (spot->kind == MP_SPOT_BLOCK) {
        (void)fprintf(out, ",\"offset\":%" PRIu64, spot->offset);
    } else if (spot->kind == MP_SPOT_IN || spot->kind == MP_SPOT_OUT) {
        (void)fprintf(out, ",\"index\":%d", (int)spot->index);
    }
    (void)fputc('}', out);
}

static void write_values(const mp_program *program, const mp_graph *graph, const fact *facts,
                         const int32_t *values, int32_t count, FILE *out) {
    bool any = false;
    (void)fputc('[', out);
    for (int32_t i = 0; i < count; i++) {
        if (values[i] != MP_NO_VALUE) {
            (void)fputs(any ? "," : "", out);
            write_value(program, graph, facts, values[i], out);
            any = true;
        }
    }
    (void)fputc(']', out);
}

static mp_status write_loop(const mp_program_step *step, FILE *out) {
    const mp_program *body = step->rounds->body;
    (void)fprintf(out, ",\"trips\":%" PRId64 ",\"body\":{", step->rounds->trips);
    const mp_status status = mp_program_write(body, body->graph, NULL, out);
    (void)fputc('}', out);
    return status;
}

/* Outermost last. */
static void write_branches(const mp_program *program, const mp_graph *graph, int32_t branch,
                           FILE *out) {
    const char *before = ",\"branches\":[";
    for (int32_t b = branch; b != 0; b = program->branches[b - 1].outer) {
        const mp_program_branch *at = &program->branches[b - 1];
        (void)fprintf(out, "%s{\"condition\":", before);
        mp_json_text(out, graph->values[at->condition].name);
        (void)fprintf(out, ",\"wanted\":%s}", at->wanted ? "true" : "false");
        before = ",";
    }
    (void)fputs(branch != 0 ? "]" : "", out);
}

static mp_status write_step(const mp_program *program, const mp_graph *graph, const fact *facts,
                            const mp_program_step *step, FILE *out) {
    mp_status status = MP_OK;
    (void)fputs("{\"op\":", out);
    mp_json_text(out, step->op->name);
    (void)fprintf(out, ",\"nodes\":%s", step->name->nodes);
    write_branches(program, graph, step->branch, out);
    (void)fputs(",\"in\":", out);
    write_values(program, graph, facts, step->in, step->in_count, out);
    (void)fputs(",\"out\":", out);
    write_values(program, graph, facts, step->out, step->out_count, out);
    const size_t scratch =
        step->rounds != NULL ? mp_rounds_scratch(step->rounds) : mp_plan_scratch_bytes(step->plan);
    (void)fprintf(out, ",\"scratch_bytes\":%zu,\"scratch_offset\":%zu,\"kernels\":", scratch,
                  step->scratch);
    if (step->rounds != NULL) {
        (void)fputs("[]", out);
        status = write_loop(step, out);
    } else {
        mp_plan_write(step->plan, out);
    }
    (void)fputc('}', out);
    return status;
}

static void write_read_back(const mp_program *program, const mp_graph *graph, FILE *out) {
    (void)fputs(",\"read_back\":[", out);
    for (int32_t i = 0; i < program->read_count; i++) {
        const mp_program_read *read = &program->reads[i];
        (void)fputs(i > 0 ? "," : "", out);
        mp_json_text(out, read->value != MP_NO_VALUE ? graph->values[read->value].name
                                                     : graph->nodes[read->node].node.name);
    }
    (void)fputs("],\"loops\":[", out);
    for (int32_t i = 0; i < program->repeat_count; i++) {
        (void)fputs(i > 0 ? "," : "", out);
        mp_json_text(out, graph->nodes[program->repeats[i].node].node.name);
    }
    (void)fputc(']', out);
}

static size_t sum_of(const mp_program *program, const fact *facts) {
    size_t sum = 0;
    for (int32_t i = 0; i < program->value_count; i++) {
        sum += program->spots[i].kind == MP_SPOT_BLOCK ? facts[i].bytes : 0;
    }
    return sum;
}

mp_status mp_program_write(const mp_program *program, const mp_graph *graph, const mp_tensor *in,
                           FILE *out) {
    fact *facts = learn(program, graph, in);
    mp_status status = MP_OK;
    if (facts == NULL) {
        return no_memory();
    }
    (void)fprintf(out,
                  "\"first_step\":%d,\"block_bytes\":%zu,\"literal_bytes\":%zu,\"sum_bytes\":%zu,"
                  "\"steps\":[",
                  (int)program->first_step, program->block_bytes, program->literal_bytes,
                  sum_of(program, facts));
    for (int32_t i = 0; i < program->step_count && status == MP_OK; i++) {
        (void)fputs(i > 0 ? "," : "", out);
        status = write_step(program, graph, facts, &program->steps[i], out);
    }
    (void)fputs("],\"copies\":[", out);
    for (int32_t i = 0; i < program->copy_count; i++) {
        (void)fputs(i > 0 ? ",{\"value\":" : "{\"value\":", out);
        mp_json_text(out, graph->values[program->copies[i].value].name);
        (void)fprintf(out, ",\"bytes\":%zu}", program->copies[i].bytes);
    }
    (void)fputc(']', out);
    write_read_back(program, graph, out);
    free(facts);
    return status;
}

/* ---- the block, as a table ---- */

typedef struct row {
    uint64_t offset;
    int32_t value, first;
} row;

static int by_place(const void *left, const void *right) {
    const row *a = left;
    const row *b = right;
    return a->offset != b->offset ? (a->offset > b->offset) - (a->offset < b->offset)
                                  : (a->first > b->first) - (a->first < b->first);
}

static const char *title_of(const mp_program *program, int32_t step) {
    return step >= 0 ? program->steps[step].name->title : "nobody";
}

static void write_rows(const mp_program *program, const mp_graph *graph, const fact *facts,
                       row *rows, FILE *out) {
    size_t count = 0;
    for (int32_t i = 0; i < program->value_count; i++) {
        if (program->spots[i].kind == MP_SPOT_BLOCK && facts[i].first >= 0) {
            rows[count++] = (row){program->spots[i].offset, i, facts[i].first};
        }
    }
    if (count > 0) {
        qsort(rows, count, sizeof rows[0], by_place);
    }
    (void)fprintf(out, "%12s %12s  %-24s %-32s %s\n", "offset", "bytes", "value", "made by",
                  "last read by");
    for (size_t i = 0; i < count; i++) {
        const fact *f = &facts[rows[i].value];
        (void)fprintf(out, "%12" PRIu64 " %12zu  %-24s %-32s %s\n", rows[i].offset, f->bytes,
                      graph->values[rows[i].value].name, title_of(program, f->first),
                      title_of(program, f->last));
    }
}

mp_status mp_program_write_layout(const mp_program *program, const mp_graph *graph, FILE *out) {
    fact *facts = learn(program, graph, NULL);
    row *rows = calloc((size_t)program->value_count + 1, sizeof *rows);
    const bool whole = facts != NULL && rows != NULL;
    if (whole) {
        write_rows(program, graph, facts, rows, out);
    }
    free(facts);
    free(rows);
    return whole ? MP_OK : no_memory();
}
