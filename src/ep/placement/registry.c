/* registry.c - the kernel registry, from the table of operators and ONNX Runtime's own schemas.
 *
 * A row covers a range of schema versions. For each schema that the running ONNX Runtime has in
 * that range one kernel is registered, for exactly that version and for those of the row's types
 * that the schema allows. What a row says and no schema knows is reported: a constraint name that
 * is wrong would otherwise only show as nodes that silently run on the CPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "ep/abi/bridge.h"
#include "ep/abi/element_types.h"
#include "ep/placement/brought.h"
#include "ep/run/control_flow.h"
#include "ep/session/plugin.h"
#include "op/core/channels.h"

#include <string.h>

/* ---- what a schema allows ---- */

/* Whether kernels may name the type: the schemas of an older ONNX Runtime are ahead of its ABI. */
static bool is_nameable(unsigned type) {
    const OrtDataType *found = NULL;
    OrtStatus *status = ORT_EP->GetTensorDataType((ONNXTensorElementDataType)type, &found);
    ORT->ReleaseStatus(status);
    return status == NULL;
}

static mp_dtypes nameable(mp_dtypes set) {
    mp_dtypes out = 0;
    for (unsigned t = 1; t < MP_DTYPE_END; t++) {
        out |= (set & MP_BIT(t)) != 0 && is_nameable(t) ? MP_BIT(t) : 0;
    }
    return out;
}

static OrtStatus *allowed_types(const OrtOpSchemaTypeConstraint *constraint, mp_dtypes *out) {
    const char *const *texts = NULL;
    size_t count = 0;
    ORT_TRY(ORT_EP->OpSchemaTypeConstraint_GetAllowedTypes(constraint, &texts, &count));
    mp_dtypes set = 0;
    for (size_t i = 0; i < count; i++) {
        set |= mp__types_of_text(texts[i]);
    }
    *out = nameable(set);
    return NULL;
}

OrtStatus *mp__schema_types(const OrtOpSchema *schema, const char *name, bool *found,
                            mp_dtypes *out) {
    size_t count = 0;
    *found = false;
    ORT_TRY(ORT_EP->OpSchema_GetTypeConstraintCount(schema, &count));
    for (size_t i = 0; i < count && !*found; i++) {
        const OrtOpSchemaTypeConstraint *constraint = NULL;
        const char *own = NULL;
        ORT_TRY(ORT_EP->OpSchema_GetTypeConstraint(schema, i, &constraint));
        ORT_TRY(ORT_EP->OpSchemaTypeConstraint_GetTypeParamName(constraint, &own));
        if (strcmp(own, name) == 0) {
            *found = true;
            ORT_TRY(allowed_types(constraint, out));
        }
    }
    return NULL;
}

/* ---- one kernel ---- */

static OrtStatus *add_constraint(OrtKernelDefBuilder *builder, const char *name, mp_dtypes set) {
    const OrtDataType *types[MP_DTYPE_END];
    size_t count = 0;
    for (unsigned t = 1; t < MP_DTYPE_END; t++) {
        if ((set & MP_BIT(t)) != 0) {
            ORT_TRY(ORT_EP->GetTensorDataType((ONNXTensorElementDataType)t, &types[count]));
            count++;
        }
    }
    return ORT_EP->KernelDefBuilder_AddTypeConstraint(builder, name, types, count);
}

static OrtStatus *set_memory(OrtKernelDefBuilder *builder, const mp_op *op, size_t inputs,
                             size_t outputs) {
    for (size_t i = 0; i < inputs; i++) {
        if (mp_op_host_in(op, i)) {
            ORT_TRY(ORT_EP->KernelDefBuilder_SetInputMemType(builder, i, OrtMemTypeCPUInput));
        }
    }
    for (size_t i = 0; i < outputs; i++) {
        if (mp_op_host_out(op, i)) {
            ORT_TRY(ORT_EP->KernelDefBuilder_SetOutputMemType(builder, i, OrtMemTypeCPUOutput));
        }
    }
    return NULL;
}

static OrtStatus *set_aliases(OrtKernelDefBuilder *builder, const mp_op *op) {
    if (op->view_of > 0) {
        const int in = op->view_of - 1;
        const int out = 0;
        ORT_TRY(ORT_EP->KernelDefBuilder_AddInputOutputAliases(builder, &in, &out, 1));
    }
    int in[MP_ALIASES_MAX];
    int out[MP_ALIASES_MAX];
    for (int i = 0; i < op->in_place_count; i++) {
        in[i] = op->in_place[i].in;
        out[i] = op->in_place[i].out;
    }
    return op->in_place_count == 0 || op->sizes_differ
               ? NULL
               : ORT_EP->KernelDefBuilder_AddInputOutputMutableAliases(builder, in, out,
                                                                       (size_t)op->in_place_count);
}

typedef struct usable_types {
    mp_dtypes set[MP_CONSTRAINTS_MAX]; /* by the row's constraint; 0: leave the version out */
} usable_types;

static OrtStatus *describe(OrtKernelDefBuilder *builder, const mp_op *op, const OrtOpSchema *schema,
                           int version, const usable_types *types) {
    size_t inputs = 0;
    size_t outputs = 0;
    ORT_TRY(ORT_EP->OpSchema_GetNumInputs(schema, &inputs));
    ORT_TRY(ORT_EP->OpSchema_GetNumOutputs(schema, &outputs));
    ORT_TRY(ORT_EP->KernelDefBuilder_SetOperatorType(builder, op->name));
    ORT_TRY(ORT_EP->KernelDefBuilder_SetDomain(builder, op->domain));
    ORT_TRY(ORT_EP->KernelDefBuilder_SetSinceVersion(builder, version, version));
    for (int c = 0; c < MP_CONSTRAINTS_MAX && op->types[c].name != NULL; c++) {
        ORT_TRY(add_constraint(builder, op->types[c].name, types->set[c]));
    }
    ORT_TRY(set_memory(builder, op, inputs, outputs));
    return set_aliases(builder, op);
}

/* Takes nothing; `builder` has all but the provider. */
static OrtStatus *build_and_add(const mp_kernels *to, OrtKernelDefBuilder *builder,
                                OrtKernelCreateFunc create, const void *state) {
    OrtKernelDef *definition = NULL;
    ORT_TRY(ORT_EP->KernelDefBuilder_SetExecutionProvider(builder, to->provider));
    ORT_TRY(ORT_EP->KernelDefBuilder_Build(builder, &definition));
    OrtStatus *status = ORT_EP->KernelRegistry_AddKernel(to->registry, definition, create,
                                                         (void *)(uintptr_t)state);
    ORT_EP->ReleaseKernelDef(definition);
    return status;
}

static OrtStatus *add_kernel(const mp_kernels *to, const mp_op *op, const OrtOpSchema *schema,
                             int version, const usable_types *types) {
    OrtKernelDefBuilder *builder = NULL;
    ORT_TRY(ORT_EP->CreateKernelDefBuilder(&builder));
    OrtStatus *status = describe(builder, op, schema, version, types);
    if (status == NULL) {
        status = build_and_add(to, builder, mp__kernel_create_of(op), op);
    }
    ORT_EP->ReleaseKernelDefBuilder(builder);
    return status;
}

/* ---- one row against the schemas ---- */

/* An older ONNX Runtime lacks schemas and types that rows have; that is not an error in the table.
 */
static void report(const mp_op *op, const char *fault, const char *detail) {
    enum { WRITTEN_AFTER = 31 };
    if (mp_the_plugin.runtime >= WRITTEN_AFTER) {
        MP_LOG(ERROR, "operator table: row %s%s%s %d-%d: %s %s", op->domain,
               op->domain[0] != '\0' ? "." : "", op->name, op->since, op->until, fault, detail);
    }
}

/* What of the row's types this schema allows. `seen` collects what any schema allowed. */
static OrtStatus *match_types(const mp_op *op, const OrtOpSchema *schema, usable_types *out,
                              usable_types *seen, bool *usable) {
    *usable = true;
    for (int c = 0; c < MP_CONSTRAINTS_MAX && op->types[c].name != NULL; c++) {
        bool found = false;
        mp_dtypes allowed = 0;
        ORT_TRY(mp__schema_types(schema, op->types[c].name, &found, &allowed));
        if (!found) {
            report(op, "the schema has no type constraint named", op->types[c].name);
            *usable = false;
            return NULL;
        }
        out->set[c] = op->types[c].types & allowed;
        seen->set[c] |= allowed;
        *usable = *usable && out->set[c] != 0;
    }
    return NULL;
}

static void report_forbidden(const mp_op *op, const usable_types *seen) {
    if (strcmp(op->domain, MP_NHWC_DOMAIN) == 0 || mp__is_brought(op)) {
        return; /* ONNX Runtime's own schemas, which follow ONNX's some versions later; or ours have
                 * more than those that a build of it may have */
    }
    for (int c = 0; c < MP_CONSTRAINTS_MAX && op->types[c].name != NULL; c++) {
        const mp_dtypes extra = op->types[c].types & ~seen->set[c];
        for (unsigned t = 1; t < MP_DTYPE_END; t++) {
            if ((extra & MP_BIT(t)) != 0) {
                report(op, "no schema in that range allows the type", mp_dtype_name((mp_dtype)t));
            }
        }
    }
}

/* Registers the row for the newest schema up to `newest`; `*since` is that schema's version, or 0
 * where there is none in the row's range. */
static OrtStatus *add_version(const mp_kernels *to, const mp_op *op, int newest, usable_types *seen,
                              int *since) {
    OrtOpSchema *schema = NULL;
    *since = 0;
    ORT_TRY(ORT_EP->GetOpSchema(op->name, newest, op->domain, &schema));
    if (schema == NULL) {
        return NULL;
    }
    usable_types types = {{0}};
    bool usable = false;
    int version = 0;
    OrtStatus *status = ORT_EP->OpSchema_GetSinceVersion(schema, &version);
    if (status == NULL && version >= op->since) {
        status = match_types(op, schema, &types, seen, &usable);
        *since = version;
    }
    if (status == NULL && usable) {
        status = add_kernel(to, op, schema, version, &types);
    }
    ORT_EP->ReleaseOpSchema(schema);
    return status;
}

/* ---- operators whose schemas we bring ourselves ---- */

static OrtStatus *describe_brought(OrtKernelDefBuilder *builder, const mp_op *op) {
    ORT_TRY(ORT_EP->KernelDefBuilder_SetOperatorType(builder, op->name));
    ORT_TRY(ORT_EP->KernelDefBuilder_SetDomain(builder, op->domain));
    ORT_TRY(ORT_EP->KernelDefBuilder_SetSinceVersion(builder, op->since, op->until));
    return add_constraint(builder, MP_BROUGHT_CONSTRAINT, nameable(op->types[0].types));
}

static OrtStatus *add_brought(const mp_kernels *to, const mp_op *op) {
    OrtKernelDefBuilder *builder = NULL;
    ORT_TRY(ORT_EP->CreateKernelDefBuilder(&builder));
    OrtStatus *status = describe_brought(builder, op);
    if (status == NULL) {
        status = build_and_add(to, builder, mp__kernel_create_of(op), op);
    }
    ORT_EP->ReleaseKernelDefBuilder(builder);
    return status;
}

OrtStatus *mp__registry_add_row(const mp_kernels *to, const mp_op *op) {
    usable_types seen = {{0}};
    bool any = false;
    bool brought = false;
    ORT_TRY(mp__lacks_schema(op, &brought));
    if (brought) {
        return add_brought(to, op);
    }
    for (int newest = op->until; newest >= op->since;) {
        int since = 0;
        ORT_TRY(add_version(to, op, newest, &seen, &since));
        if (since == 0) {
            break;
        }
        any = true;
        newest = since - 1;
    }
    if (any) {
        report_forbidden(op, &seen);
    } else {
        report(op, "ONNX Runtime has no schema in that range", "");
    }
    return NULL;
}

/* ---- the copies between providers, which have no schema of their own ---- */

static OrtStatus *describe_memcpy(OrtKernelDefBuilder *builder, const char *name, bool to_host) {
    ORT_TRY(ORT_EP->KernelDefBuilder_SetOperatorType(builder, name));
    ORT_TRY(ORT_EP->KernelDefBuilder_SetDomain(builder, ""));
    ORT_TRY(ORT_EP->KernelDefBuilder_SetSinceVersion(builder, 1, 1));
    ORT_TRY(add_constraint(builder, "T", nameable(MP_CARRIED_TYPES)));
    return to_host ? ORT_EP->KernelDefBuilder_SetOutputMemType(builder, 0, OrtMemTypeCPUOutput)
                   : ORT_EP->KernelDefBuilder_SetInputMemType(builder, 0, OrtMemTypeCPUInput);
}

static OrtStatus *add_memcpy(const mp_kernels *to, const char *name, bool to_host) {
    OrtKernelDefBuilder *builder = NULL;
    ORT_TRY(ORT_EP->CreateKernelDefBuilder(&builder));
    OrtStatus *status = describe_memcpy(builder, name, to_host);
    if (status == NULL) {
        status = build_and_add(to, builder, mp__memcpy_create, NULL);
    }
    ORT_EP->ReleaseKernelDefBuilder(builder);
    return status;
}

static OrtStatus *add_all(const mp_kernels *to) {
    for (size_t f = 0; f < mp_op_family_count; f++) {
        for (size_t i = 0; i < mp_op_families[f]->count; i++) {
            const mp_op *op = &mp_op_families[f]->ops[i];
            if (!mp_op_is_own(op)) {
                ORT_TRY(mp__registry_add_row(to, op));
            }
        }
    }
    for (size_t i = 0; i < mp__control_count; i++) {
        ORT_TRY(mp__registry_add_row(to, &mp__controls[i].op));
    }
    ORT_TRY(add_memcpy(to, "MemcpyFromHost", false));
    return add_memcpy(to, "MemcpyToHost", true);
}

OrtStatus *mp__registry_create(const char *provider, OrtKernelRegistry **out) {
    OrtKernelRegistry *registry = NULL;
    ORT_TRY(ORT_EP->CreateKernelRegistry(&registry));
    const mp_kernels to = {registry, provider};
    OrtStatus *status = add_all(&to);
    if (status != NULL) {
        ORT_EP->ReleaseKernelRegistry(registry);
        return status;
    }
    *out = registry;
    return NULL;
}
