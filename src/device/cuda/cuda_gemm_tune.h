/* cuda_gemm_tune.h - which of cuBLASLt's algorithms is the fastest for a product, measured once for
 * the process.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_CUDA_GEMM_TUNE_H
#define MP_DEVICE_CUDA_GEMM_TUNE_H

#include "device/cuda/cuda_private.h"

enum { CUDA_GEMM_CANDIDATES = 8 };

/* Milliseconds of candidate `i`; negative where it does not work. */
typedef float cuda_gemm_time(void *context, int i);

/* The fastest of `count` candidates that could be timed within `max_ms` (0: however long it takes).
 * The first one stays unless another is faster by more than measuring errs. At least one is timed.
 */
int mp__cuda_gemm_fastest(int count, int64_t max_ms, cuda_gemm_time *time, void *context);

/* What was found for such a product on the device of that ordinal. The descriptions of how to
 * choose (tune, tune_ms) do not count. Threads: any. */
bool mp__cuda_gemm_recall(int ordinal, const mp_gemm *shape, bool bias_fused,
                          cublasLtMatmulHeuristicResult_t *out);

/* Keeps it, as far as there is room; what was kept for the product before stays. Threads: any. */
void mp__cuda_gemm_remember(int ordinal, const mp_gemm *shape, bool bias_fused,
                            const cublasLtMatmulHeuristicResult_t *found);

#endif
