/* registry_test.c - rows of the operator table against schemas of the test's own: what a row says
 * and no schema knows is reported with the row, and nothing is registered of it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/session/plugin.h"

#include "base/log.h"
#include "unit/test.h"

#include <stdio.h>

/* ---- a runtime that knows one operator, Add, in two versions ---- */

struct OrtOpSchemaTypeConstraint {
    const char *name;
    const char *types[3];
    size_t count;
};
struct OrtOpSchema {
    int since;
    OrtOpSchemaTypeConstraint constraint;
};
static OrtOpSchema schemas[] = {{14, {"T", {"tensor(float)", "tensor(double)"}, 2}},
                                {7, {"T", {"tensor(float)"}, 1}}};

static struct {
    char lines[1024]; /* of the log */
    int registered[16], count;
    const char *constraint;
    size_t types;
    int schemas_out;
} seen;

static int since; /* of the kernel that is being described */

static OrtStatus *get_schema(const char *name, int most, const char *domain, OrtOpSchema **out) {
    *out = NULL;
    for (size_t i = 0; i < MP_COUNT_OF(schemas) && *out == NULL; i++) {
        if (strcmp(name, "Add") == 0 && domain[0] == '\0' && schemas[i].since <= most) {
            *out = &schemas[i];
            seen.schemas_out++;
        }
    }
    return NULL;
}
static void release_schema(OrtOpSchema *schema) {
    seen.schemas_out -= schema != NULL;
}
static OrtStatus *since_of(const OrtOpSchema *schema, int *out) {
    *out = schema->since;
    return NULL;
}
static OrtStatus *inputs_of(const OrtOpSchema *schema, size_t *out) {
    (void)schema;
    *out = 2;
    return NULL;
}
static OrtStatus *one(const OrtOpSchema *schema, size_t *out) {
    (void)schema;
    *out = 1;
    return NULL;
}
static OrtStatus *constraint_of(const OrtOpSchema *schema, size_t i,
                                const OrtOpSchemaTypeConstraint **out) {
    CHECK(i == 0);
    *out = &schema->constraint;
    return NULL;
}
static OrtStatus *name_of(const OrtOpSchemaTypeConstraint *constraint, const char **out) {
    *out = constraint->name;
    return NULL;
}
static OrtStatus *types_of(const OrtOpSchemaTypeConstraint *constraint, const char *const **out,
                           size_t *count) {
    *out = constraint->types;
    *count = constraint->count;
    return NULL;
}
static OrtStatus *data_type(ONNXTensorElementDataType type, const OrtDataType **out) {
    *out = (const OrtDataType *)(uintptr_t)type;
    return NULL;
}

/* ---- and registers what it is given ---- */

static OrtStatus *make_builder(OrtKernelDefBuilder **out) {
    *out = (OrtKernelDefBuilder *)(void *)&seen;
    return NULL;
}
static void drop_builder(OrtKernelDefBuilder *builder) {
    (void)builder;
}
static OrtStatus *set_text(OrtKernelDefBuilder *builder, const char *text) {
    (void)builder, (void)text;
    return NULL;
}
static OrtStatus *set_since(OrtKernelDefBuilder *builder, int first, int last) {
    (void)builder;
    CHECK_EQ_INT(first, last);
    since = first;
    return NULL;
}
static OrtStatus *add_types(OrtKernelDefBuilder *builder, const char *name,
                            const OrtDataType *const *types, size_t count) {
    (void)builder, (void)types;
    seen.constraint = name;
    seen.types = count;
    return NULL;
}
static OrtStatus *build(OrtKernelDefBuilder *builder, OrtKernelDef **out) {
    *out = (OrtKernelDef *)(void *)builder;
    return NULL;
}
static void drop_definition(OrtKernelDef *definition) {
    (void)definition;
}
static OrtStatus *add_kernel(OrtKernelRegistry *registry, const OrtKernelDef *definition,
                             OrtKernelCreateFunc create, void *state) {
    (void)registry, (void)definition, (void)create, (void)state;
    seen.registered[seen.count++] = since;
    return NULL;
}
static void release_status(OrtStatus *status) {
    CHECK(status == NULL);
}

static const OrtApi api = {.ReleaseStatus = release_status};
static const OrtEpApi ep_api = {
    .GetOpSchema = get_schema,
    .ReleaseOpSchema = release_schema,
    .OpSchema_GetSinceVersion = since_of,
    .OpSchema_GetNumInputs = inputs_of,
    .OpSchema_GetNumOutputs = one,
    .OpSchema_GetTypeConstraintCount = one,
    .OpSchema_GetTypeConstraint = constraint_of,
    .OpSchemaTypeConstraint_GetTypeParamName = name_of,
    .OpSchemaTypeConstraint_GetAllowedTypes = types_of,
    .GetTensorDataType = data_type,
    .CreateKernelDefBuilder = make_builder,
    .ReleaseKernelDefBuilder = drop_builder,
    .KernelDefBuilder_SetOperatorType = set_text,
    .KernelDefBuilder_SetDomain = set_text,
    .KernelDefBuilder_SetExecutionProvider = set_text,
    .KernelDefBuilder_SetSinceVersion = set_since,
    .KernelDefBuilder_AddTypeConstraint = add_types,
    .KernelDefBuilder_Build = build,
    .ReleaseKernelDef = drop_definition,
    .KernelRegistry_AddKernel = add_kernel,
};

static void keep_line(void *context, mp_log_level level, const char *file, int line,
                      const char *message) {
    (void)context, (void)file, (void)line;
    const size_t used = strlen(seen.lines);
    CHECK(level == MP_LOG_ERROR);
    snprintf(seen.lines + used, sizeof seen.lines - used, "%s\n", message);
}

/* Registers a row of Add for float and `more` of schema versions [first, last]. */
static void add(int runtime, const char *name, const char *constraint, mp_dtypes more, int first,
                int last) {
    const mp_op row = {.domain = "",
                       .name = name,
                       .since = first,
                       .until = last,
                       .types = {{constraint, MP_BIT(MP_F32) | more}}};
    memset(&seen, 0, sizeof seen);
    mp_the_plugin =
        (mp_plugin){.ort = &api, .ep = &ep_api, .version = 29, .runtime = (uint32_t)runtime};
    mp_log_set_sink(keep_line, NULL);
    const mp_kernels to = {(OrtKernelRegistry *)(void *)&seen, "ThisProvider"};
    CHECK(mp__registry_add_row(&to, &row) == NULL);
    mp_log_set_sink(NULL, NULL);
    CHECK_EQ_INT(seen.schemas_out, 0);
}

/* ---- the rows ---- */

TEST(registry_takes_a_row_for_each_schema_in_its_range) {
    add(31, "Add", "T", MP_BIT(MP_F64), 7, 14);
    CHECK(seen.lines[0] == '\0');
    CHECK_EQ_INT(seen.count, 2);
    CHECK(seen.registered[0] == 14 && seen.registered[1] == 7);
    CHECK(strcmp(seen.constraint, "T") == 0);
    CHECK_EQ_INT(seen.types, 1); /* double is none of version 7 */
}

TEST(registry_reports_a_constraint_that_no_schema_has) {
    add(31, "Add", "T1", 0, 7, 14);
    CHECK_STR_HAS(seen.lines, "row Add 7-14: the schema has no type constraint named T1");
    CHECK_EQ_INT(seen.count, 0);
}

TEST(registry_reports_a_type_that_no_schema_allows) {
    add(31, "Add", "T", MP_BIT(MP_BOOL), 7, 14);
    CHECK_STR_HAS(seen.lines, "row Add 7-14: no schema in that range allows the type bool");
    CHECK_EQ_INT(seen.count, 2); /* with what is allowed */
    CHECK_EQ_INT(seen.types, 1);
}

TEST(registry_reports_a_range_without_a_schema) {
    add(31, "Add", "T", 0, 1, 6);
    CHECK_STR_HAS(seen.lines, "row Add 1-6: ONNX Runtime has no schema in that range");
    CHECK_EQ_INT(seen.count, 0);
    add(31, "Ad", "T", 0, 7, 14);
    CHECK_STR_HAS(seen.lines, "row Ad 7-14: ONNX Runtime has no schema in that range");
}

TEST(registry_takes_older_runtimes_as_they_are) {
    add(30, "Add", "T1", MP_BIT(MP_BOOL), 7, 14);
    CHECK(seen.lines[0] == '\0');
    CHECK_EQ_INT(seen.count, 0);
}
