/* cuda_gemm.c - matrix products through cuBLASLt.
 *
 * cuBLASLt counts by columns. A row-major matrix read by columns is its transpose, so the product
 * is asked for as C' = B' * A', with n rows and m columns; a bias along a row of C runs along the
 * rows of C', which is what the library's bias epilogue adds. What it has no algorithm for (k = 0,
 * a bias with some types) a kernel of our own does after it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "device/cuda/cuda_gemm_tune.h"
#include "device/cuda/cuda_glue.h"
#include "device/cuda/cuda_private.h"

#include <stdlib.h>

enum { WORKSPACE_MAX = 32 << 20 };

typedef struct cuda_gemm {
    cuda_math base;
    mp_gemm shape;
    pthread_mutex_t lock; /* guards the bias address in `desc` from being set until it is read */
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    bool bias_fused;
    mp_kernel *rows; /* NULL where cuBLASLt does it all */
} cuda_gemm;

#define BLASLT_TRY(name, call)                             \
    do {                                                   \
        const cublasStatus_t try_result = mp__blaslt.call; \
        if (try_result != CUBLAS_STATUS_SUCCESS) {         \
            return mp__cuda_blaslt_fail(try_result, name); \
        }                                                  \
    } while (0)

/* ---- preparing ---- */

static mp_status shape_check(const mp_gemm *shape) {
    const int64_t a_row = shape->trans_a ? shape->m : shape->k;
    const int64_t b_row = shape->trans_b ? shape->k : shape->n;
    if (mp__cuda_type_find(shape->type) == NULL) {
        return MP_FAIL(UNSUPPORTED, "matrix products of type %s are not available on a GPU",
                       mp_dtype_name(shape->type));
    }
    if (shape->m < 1 || shape->n < 1 || shape->k < 0 || shape->batch < 1 ||
        shape->batch > INT32_MAX || shape->align < 1 || shape->ldc < shape->n ||
        (shape->k > 0 && (shape->lda < a_row || shape->ldb < b_row))) {
        return MP_FAIL(
            INVALID_ARGUMENT,
            "a matrix product with m %lld, n %lld, k %lld, row lengths %lld, %lld, %lld, "
            "batch %lld is not possible",
            (long long)shape->m, (long long)shape->n, (long long)shape->k, (long long)shape->lda,
            (long long)shape->ldb, (long long)shape->ldc, (long long)shape->batch);
    }
    return MP_OK;
}

/* A matrix stored with `rows` rows of `row` elements, `ld` apart. */
static mp_status layout_make(const mp_gemm *shape, int64_t rows, int64_t row, int64_t ld,
                             int64_t stride, cublasLtMatrixLayout_t *out) {
    const int32_t batch = (int32_t)shape->batch;
    BLASLT_TRY("cublasLtMatrixLayoutCreate",
               layout_create(out, mp__cuda_type_find(shape->type)->blas, (uint64_t)row,
                             (uint64_t)rows, ld));
    BLASLT_TRY("cublasLtMatrixLayoutSetAttribute",
               layout_set(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
    BLASLT_TRY(
        "cublasLtMatrixLayoutSetAttribute",
        layout_set(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
    return MP_OK;
}

static mp_status layouts_make(cuda_gemm *gemm) {
    const mp_gemm *shape = &gemm->shape;
    MP_TRY(layout_make(shape, shape->trans_a ? shape->k : shape->m,
                       shape->trans_a ? shape->m : shape->k, shape->lda, shape->stride_a,
                       &gemm->a));
    MP_TRY(layout_make(shape, shape->trans_b ? shape->n : shape->k,
                       shape->trans_b ? shape->k : shape->n, shape->ldb, shape->stride_b,
                       &gemm->b));
    return layout_make(shape, shape->m, shape->n, shape->ldc, shape->stride_c, &gemm->c);
}

/* The library's first operand is our B. */
static mp_status desc_make(cuda_gemm *gemm) {
    const mp_gemm *shape = &gemm->shape;
    const cuda_type *row = mp__cuda_type_find(shape->type);
    const cublasOperation_t first = shape->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = shape->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasComputeType_t compute =
        shape->type == MP_F32 && shape->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : row->blas_compute;
    BLASLT_TRY("cublasLtMatmulDescCreate", desc_create(&gemm->desc, compute, row->blas_scale));
    BLASLT_TRY("cublasLtMatmulDescSetAttribute",
               desc_set(gemm->desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    BLASLT_TRY("cublasLtMatmulDescSetAttribute",
               desc_set(gemm->desc, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    return MP_OK;
}

static cublasLtEpilogue_t epilogue_of(mp_activation activation, bool bias) {
    switch (activation) {
    case MP_ACTIVATION_RELU:
        return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case MP_ACTIVATION_GELU_TANH:
        return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    default:
        return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    }
}

/* Its Gelu is good enough for elements of 16 bits. */
static bool is_activation_known(const mp_gemm *shape) {
    return shape->activation == MP_ACTIVATION_NONE ||
           (shape->k > 0 &&
            ((shape->activation == MP_ACTIVATION_RELU && shape->type != MP_F64) ||
             (shape->activation == MP_ACTIVATION_GELU_TANH && mp_dtype_size(shape->type) == 2)));
}

static mp_status bias_set(cuda_gemm *gemm, mp_addr bias) {
    const cublasLtEpilogue_t epilogue = epilogue_of(gemm->shape.activation, bias != 0);
    BLASLT_TRY("cublasLtMatmulDescSetAttribute",
               desc_set(gemm->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    BLASLT_TRY("cublasLtMatmulDescSetAttribute",
               desc_set(gemm->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    return MP_OK;
}

/* What the operands' addresses are multiples of: of an element at least. */
static uint32_t alignment(const mp_gemm *shape) {
    const uint32_t element = (uint32_t)mp_dtype_size(shape->type);
    return MP_MAX((uint32_t)shape->align, element);
}

static mp_status preference_fill(const mp_gemm *shape, cublasLtMatmulPreference_t preference) {
    static const cublasLtMatmulPreferenceAttributes_t operands[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint64_t workspace = WORKSPACE_MAX;
    const uint32_t align = alignment(shape);
    /* Partial sums stay in the type of arithmetic: in a narrow type they would lose digits. */
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    BLASLT_TRY("cublasLtMatmulPreferenceSetAttribute",
               preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                              sizeof workspace));
    BLASLT_TRY("cublasLtMatmulPreferenceSetAttribute",
               preference_set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                              sizeof reductions));
    for (size_t i = 0; i < MP_COUNT_OF(operands); i++) {
        BLASLT_TRY("cublasLtMatmulPreferenceSetAttribute",
                   preference_set(preference, operands[i], &align, sizeof align));
    }
    return MP_OK;
}

static cublasStatus_t matmul_run(const cuda_gemm *gemm, cublasLtHandle_t handle, CUstream stream,
                                 const mp_addr *operands, mp_addr workspace) {
    const mp_gemm *shape = &gemm->shape;
    const mp_addr d = shape->beta != 0 ? operands[MP_GEMM_D] : operands[MP_GEMM_C];
    const double alpha64 = (double)shape->alpha;
    const double beta64 = (double)shape->beta;
    const bool wide = shape->type == MP_F64;
    return mp__blaslt.matmul(handle, gemm->desc, wide ? (const void *)&alpha64 : &shape->alpha,
                             (const void *)operands[MP_GEMM_B], gemm->b,
                             (const void *)operands[MP_GEMM_A], gemm->a,
                             wide ? (const void *)&beta64 : &shape->beta, (const void *)d, gemm->c,
                             (void *)operands[MP_GEMM_C], gemm->c, &gemm->algo, (void *)workspace,
                             gemm->base.workspace, stream);
}

/* ---- choosing an algorithm ---- */

/* `found` has room for `most`. */
static mp_status heuristic_ask(cuda_gemm *gemm, cublasLtHandle_t handle,
                               cublasLtMatmulPreference_t preference,
                               cublasLtMatmulHeuristicResult_t *found, int most, int *count) {
    MP_TRY(preference_fill(&gemm->shape, preference));
    const cublasStatus_t result = mp__blaslt.heuristic(
        handle, gemm->desc, gemm->b, gemm->a, gemm->c, gemm->c, preference, most, found, count);
    if (result != CUBLAS_STATUS_SUCCESS) {
        return mp__cuda_blaslt_fail(result, "cublasLtMatmulAlgoGetHeuristic");
    }
    if (*count == 0 || found[0].state != CUBLAS_STATUS_SUCCESS) {
        return mp__cuda_blaslt_fail(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic");
    }
    return MP_OK;
}

static void use_algorithm(cuda_gemm *gemm, const cublasLtMatmulHeuristicResult_t *found) {
    gemm->algo = found->algo;
    gemm->base.workspace = found->workspaceSize;
}

/* Memory to run candidates in, whose content does not matter. */
typedef struct trial {
    cuda_device *device;
    cuda_gemm *gemm;
    cublasLtHandle_t handle;
    const cublasLtMatmulHeuristicResult_t *found;
    mp_addr memory; /* owned */
    size_t size;
    mp_addr operands[MP_GEMM_OPERANDS], workspace;
    float first_ms, best_ms; /* negative where nothing worked */
} trial;

/* Bytes of `rows` rows of `ld` elements in each batch. */
static size_t operand_bytes(const mp_gemm *shape, int64_t rows, int64_t ld, int64_t stride) {
    const size_t too_many = SIZE_MAX / 16;
    size_t count = 0, last = 0, bytes = 0;
    if (__builtin_mul_overflow((size_t)rows, (size_t)ld, &last) ||
        __builtin_mul_overflow((size_t)(shape->batch - 1), (size_t)stride, &count) ||
        __builtin_add_overflow(count, last, &count) ||
        __builtin_mul_overflow(count, mp_dtype_size(shape->type), &bytes) || bytes > too_many) {
        return too_many;
    }
    return MP_ALIGN_UP(bytes, MP_ALIGNMENT);
}

static mp_status trial_open(trial *t) {
    const mp_gemm *shape = &t->gemm->shape;
    const int64_t a_rows = shape->trans_a ? shape->k : shape->m;
    const int64_t b_rows = shape->trans_b ? shape->n : shape->k;
    const size_t c = operand_bytes(shape, shape->m, shape->ldc, shape->stride_c);
    const size_t parts[MP_GEMM_OPERANDS] = {
        [MP_GEMM_A] = operand_bytes(shape, a_rows, shape->lda, shape->stride_a),
        [MP_GEMM_B] = operand_bytes(shape, b_rows, shape->ldb, shape->stride_b),
        [MP_GEMM_C] = c,
        [MP_GEMM_D] = shape->beta != 0 ? c : 0,
        [MP_GEMM_BIAS] = operand_bytes(shape, 1, shape->n, 0),
    };
    t->size = WORKSPACE_MAX;
    for (size_t i = 0; i < MP_GEMM_OPERANDS; i++) {
        t->size += parts[i];
    }
    mp_device *device = &t->device->base;
    MP_TRY(device->ops->alloc(device, t->size, &t->memory));
    mp_addr at = t->memory;
    for (size_t i = 0; i < MP_GEMM_OPERANDS; i++) {
        t->operands[i] = at;
        at += parts[i];
    }
    t->workspace = at;
    return MP_OK;
}

static bool try_runs(const trial *t, int runs) {
    const CUstream stream = t->device->copies;
    for (int i = 0; i < runs; i++) {
        if (matmul_run(t->gemm, t->handle, stream, t->operands, t->workspace) !=
            CUBLAS_STATUS_SUCCESS) {
            return false;
        }
    }
    return true;
}

/* The better of two rounds, after a run that does not count; negative where it does not work. */
static float time_between(const trial *t, CUevent start, CUevent end) {
    enum { ROUNDS = 2, RUNS = 5 };
    const CUstream stream = t->device->copies;
    float best = -1;
    bool works = try_runs(t, 1);
    for (int round = 0; works && round < ROUNDS; round++) {
        float ms = 0;
        works = mp__cu.event_record(start, stream) == CUDA_SUCCESS && try_runs(t, RUNS) &&
                mp__cu.event_record(end, stream) == CUDA_SUCCESS &&
                mp__cu.event_synchronize(end) == CUDA_SUCCESS &&
                mp__cu.event_elapsed(&ms, start, end) == CUDA_SUCCESS;
        best = works && (best < 0 || ms < best) ? ms : best;
    }
    return works ? best / RUNS : -1;
}

static float time_candidate(void *context, int candidate) {
    trial *t = context;
    CUevent start = NULL, end = NULL;
    use_algorithm(t->gemm, &t->found[candidate]);
    const bool works = t->found[candidate].state == CUBLAS_STATUS_SUCCESS &&
                       mp__cu.event_create(&start, CU_EVENT_DEFAULT) == CUDA_SUCCESS &&
                       mp__cu.event_create(&end, CU_EVENT_DEFAULT) == CUDA_SUCCESS;
    const float ms = works ? time_between(t, start, end) : -1;
    if (start != NULL) {
        (void)mp__cu.event_destroy(start);
    }
    if (end != NULL) {
        (void)mp__cu.event_destroy(end);
    }
    t->first_ms = candidate == 0 ? ms : t->first_ms;
    t->best_ms = ms >= 0 && (t->best_ms < 0 || ms < t->best_ms) ? ms : t->best_ms;
    return ms;
}

static void report(const mp_gemm *shape, const trial *t, int best, int count) {
    MP_LOG(
        INFO,
        "a product of %s, m %lld, n %lld, k %lld, batch %lld, was measured: algorithm %d of %d is "
        "used, %.1f us beside %.1f us of the first",
        mp_dtype_name(shape->type), (long long)shape->m, (long long)shape->n, (long long)shape->k,
        (long long)shape->batch, best + 1, count,
        (double)(best == 0 ? t->first_ms : t->best_ms) * 1e3, (double)t->first_ms * 1e3);
}

/* The fastest of `count` candidates; the first where the device is too full for a trial. */
static int measure(cuda_device *device, cuda_gemm *gemm, cublasLtHandle_t handle,
                   const cublasLtMatmulHeuristicResult_t *found, int count) {
    const mp_gemm *shape = &gemm->shape;
    trial t = {.device = device, .gemm = gemm, .handle = handle, .found = found, .best_ms = -1};
    cuda_scope scope;
    int best = 0;
    if (mp__cuda_enter_aside(device, &scope) != MP_OK) {
        return 0;
    }
    if (trial_open(&t) == MP_OK) {
        if (!gemm->bias_fused || bias_set(gemm, t.operands[MP_GEMM_BIAS]) == MP_OK) {
            best = mp__cuda_gemm_fastest(count, shape->tune_ms, time_candidate, &t);
        }
        (void)mp__cu.stream_synchronize(device->copies);
        device->base.ops->free(&device->base, t.memory, t.size);
        mp__cuda_gemm_remember(device->base.ordinal, shape, gemm->bias_fused, &found[best]);
        report(shape, &t, best, count);
    }
    mp__cuda_exit(&scope);
    return best;
}

static mp_status choose_with(cuda_device *device, cuda_gemm *gemm, cublasLtHandle_t handle,
                             cublasLtMatmulPreference_t preference) {
    const bool measured = gemm->shape.tune == MP_TUNE_MEASURE;
    const int most = measured ? CUDA_GEMM_CANDIDATES : 1;
    cublasLtMatmulHeuristicResult_t found[CUDA_GEMM_CANDIDATES] = {{.workspaceSize = 0}};
    int count = 0;
    MP_TRY(heuristic_ask(gemm, handle, preference, found, most, &count));
    use_algorithm(gemm, &found[measured ? measure(device, gemm, handle, found, count) : 0]);
    return MP_OK;
}

static mp_status algorithm_choose(cuda_device *device, cuda_gemm *gemm) {
    cublasLtHandle_t handle = NULL;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t known;
    if (gemm->shape.tune != MP_TUNE_OFF &&
        mp__cuda_gemm_recall(device->base.ordinal, &gemm->shape, gemm->bias_fused, &known)) {
        use_algorithm(gemm, &known);
        return MP_OK;
    }
    BLASLT_TRY("cublasLtMatmulPreferenceCreate", preference_create(&preference));
    mp_status status = mp__cuda_blaslt_take(device, &handle);
    if (status == MP_OK) {
        status = choose_with(device, gemm, handle, preference);
        mp__cuda_blaslt_give(device, handle);
    }
    (void)mp__blaslt.preference_destroy(preference);
    return status;
}

/* An address with no more alignment than promised; the heuristic looks at it, nobody reads it. */
static mp_addr bias_stand_in(const mp_gemm *shape) {
    return ((mp_addr)1 << 20) + alignment(shape);
}

static mp_status gemm_fill(cuda_device *device, cuda_gemm *gemm) {
    const mp_gemm *shape = &gemm->shape;
    mp_status status = MP_OK;
    if (!is_activation_known(shape)) {
        return MP_FAIL(UNSUPPORTED, "cuBLASLt has no such activation behind a product");
    }
    if (shape->k > 0) {
        MP_TRY(layouts_make(gemm));
        MP_TRY(desc_make(gemm));
        gemm->bias_fused = shape->bias;
        MP_TRY(bias_set(gemm, shape->bias ? bias_stand_in(shape) : 0));
        status = algorithm_choose(device, gemm);
        const bool refused = status == MP_UNSUPPORTED || status == MP_INVALID_ARGUMENT;
        if (refused && shape->activation != MP_ACTIVATION_NONE) {
            return mp__fail(MP_UNSUPPORTED, "with an activation: %s", mp_error_message());
        }
        if (refused && shape->bias) {
            gemm->bias_fused = false;
            MP_TRY(bias_set(gemm, 0));
            status = algorithm_choose(device, gemm);
        }
    }
    if (status == MP_OK && (shape->k == 0 || shape->bias != gemm->bias_fused)) {
        status = mp__cuda_glue_load(device, GLUE_ROWS, shape->type, &gemm->rows);
    }
    return status;
}

/* ---- running ---- */

static mp_status rows_run(cuda_device *device, mp_stream *stream, const cuda_gemm *gemm,
                          const mp_addr *operands, mp_addr d, double beta) {
    const mp_gemm *shape = &gemm->shape;
    const glue_rows_args args = {.c = operands[MP_GEMM_C],
                                 .d = d,
                                 .bias = shape->bias ? operands[MP_GEMM_BIAS] : 0,
                                 .batch = shape->batch,
                                 .m = shape->m,
                                 .n = shape->n,
                                 .ldc = shape->ldc,
                                 .stride = shape->stride_c,
                                 .beta = beta};
    return mp__cuda_glue_rows(device, stream, gemm->rows, &args);
}

static mp_status product_run(cuda_device *device, mp_stream *stream, cuda_gemm *gemm,
                             const mp_addr *operands, mp_addr workspace) {
    cublasLtHandle_t handle = NULL;
    MP_TRY(mp__cuda_stream_blaslt(device, stream, &handle));
    mp_status status = MP_OK;
    cublasStatus_t result = CUBLAS_STATUS_SUCCESS;
    if (gemm->bias_fused) { /* the bias address is a part of the description */
        (void)pthread_mutex_lock(&gemm->lock);
        status = bias_set(gemm, operands[MP_GEMM_BIAS]);
    }
    if (status == MP_OK) {
        result = matmul_run(gemm, handle, cuda_stream_of(stream), operands, workspace);
    }
    if (gemm->bias_fused) {
        (void)pthread_mutex_unlock(&gemm->lock);
    }
    if (status == MP_OK && result != CUBLAS_STATUS_SUCCESS) {
        status = mp__cuda_blaslt_fail(result, "cublasLtMatmul");
    }
    return status;
}

static mp_status gemm_run(cuda_device *device, mp_stream *stream, cuda_math *math,
                          const mp_addr *operands, mp_addr workspace) {
    cuda_gemm *gemm = (cuda_gemm *)(void *)math;
    const mp_gemm *shape = &gemm->shape;
    if (shape->k == 0) {
        return rows_run(device, stream, gemm, operands, shape->beta != 0 ? operands[MP_GEMM_D] : 0,
                        (double)shape->beta);
    }
    MP_TRY(product_run(device, stream, gemm, operands, workspace));
    return gemm->rows != NULL ? rows_run(device, stream, gemm, operands, operands[MP_GEMM_C], 1.0)
                              : MP_OK;
}

static void gemm_release(cuda_device *device, cuda_math *math) {
    cuda_gemm *gemm = (cuda_gemm *)(void *)math;
    const cublasLtMatrixLayout_t layouts[] = {gemm->a, gemm->b, gemm->c};
    for (size_t i = 0; i < MP_COUNT_OF(layouts); i++) {
        if (layouts[i] != NULL) {
            (void)mp__blaslt.layout_destroy(layouts[i]);
        }
    }
    if (gemm->desc != NULL) {
        (void)mp__blaslt.desc_destroy(gemm->desc);
    }
    if (gemm->rows != NULL) {
        mp__cuda_kernel_unload(&device->base, gemm->rows);
    }
    (void)pthread_mutex_destroy(&gemm->lock);
    free(gemm);
}

static const cuda_math_ops gemm_ops = {.run = gemm_run, .release = gemm_release};

mp_status mp__cuda_gemm_prepare(mp_device *self, const mp_gemm *shape, mp_math **out) {
    cuda_device *device = cuda_device_of(self);
    cuda_scope scope;
    MP_TRY(shape_check(shape));
    MP_TRY(mp__cuda_need(CUDA_LIB_BLASLT));
    cuda_gemm *gemm = calloc(1, sizeof *gemm);
    if (gemm == NULL) {
        return MP_FAIL(OUT_OF_MEMORY,
                       "cannot allocate host memory for the record of a matrix product");
    }
    gemm->base.ops = &gemm_ops;
    gemm->shape = *shape;
    (void)pthread_mutex_init(&gemm->lock, NULL);
    mp_status status = mp__cuda_enter(device, &scope);
    if (status != MP_OK) {
        (void)pthread_mutex_destroy(&gemm->lock);
        free(gemm);
        return status;
    }
    status = gemm_fill(device, gemm);
    if (status != MP_OK) {
        gemm_release(device, &gemm->base);
    }
    mp__cuda_exit(&scope);
    if (status != MP_OK) {
        return mp__fail(status, "matrix product of %s, m %lld, n %lld, k %lld: %s",
                        mp_dtype_name(shape->type), (long long)shape->m, (long long)shape->n,
                        (long long)shape->k, mp_error_message());
    }
    *out = (mp_math *)(void *)gemm;
    return MP_OK;
}
