/* cuda_nccl_test.c - our declarations of NCCL against its header, where that is, and its library
 * loaded, where that is.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"

#if defined(__has_include)
#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#define WITH_HEADERS 1
#endif
#endif
#ifdef WITH_HEADERS
#include <nccl.h>
#define MP_NCCL_TYPES_ONLY 1 /* the functions are the header's */
#endif
#include "device/cuda/cuda_nccl.h"

#ifdef WITH_HEADERS
#define EQUAL(ours, theirs) _Static_assert((long long)(ours) == (long long)(theirs), #ours)
EQUAL(NCCL_SUCCESS, ncclSuccess);
EQUAL(NCCL_IN_PROGRESS, ncclInProgress);
EQUAL(NCCL_UINT8, ncclUint8);
EQUAL(NCCL_INT64, ncclInt64);
EQUAL(NCCL_FLOAT16, ncclFloat16);
EQUAL(NCCL_FLOAT32, ncclFloat32);
EQUAL(NCCL_FLOAT64, ncclFloat64);
EQUAL(NCCL_BFLOAT16, ncclBfloat16);
EQUAL(NCCL_SUM, ncclSum);
EQUAL(NCCL_ID_BYTES, NCCL_UNIQUE_ID_BYTES);
EQUAL(sizeof(nccl_id), sizeof(ncclUniqueId));
EQUAL(offsetof(nccl_config, size), offsetof(ncclConfig_t, size));
EQUAL(offsetof(nccl_config, mark), offsetof(ncclConfig_t, magic));
EQUAL(offsetof(nccl_config, version), offsetof(ncclConfig_t, version));
EQUAL(offsetof(nccl_config, blocking), offsetof(ncclConfig_t, blocking));
_Static_assert(NCCL_CONFIG_VERSION <= NCCL_VERSION_CODE, "a config of the future");

TEST(cuda_nccl_config_is_that_of_the_header) {
    const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
    CHECK(theirs.magic == NCCL_CONFIG_MARK);
    CHECK(theirs.size >= sizeof(nccl_config));
}
#endif
