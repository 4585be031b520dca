/* cuda_nccl.h - the part of NCCL, NVIDIA's library for work between GPUs, that is used.
 *
 * Toolkits come without NCCL, so what is needed is declared here as it has been since NCCL 2.14,
 * the first with communicators that do not block; cuda_nccl_test.c compares it with the header
 * where that is. With MP_NCCL_TYPES_ONLY the functions are left out, for that test.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_CUDA_NCCL_H
#define MP_DEVICE_CUDA_NCCL_H

#include <cuda.h>
#include <stddef.h>

enum { /* results; all others are errors */
       NCCL_SUCCESS = 0,
       NCCL_IN_PROGRESS = 7,
};

enum { /* types of elements */
       NCCL_UINT8 = 1,
       NCCL_INT64 = 4,
       NCCL_FLOAT16 = 6,
       NCCL_FLOAT32 = 7,
       NCCL_FLOAT64 = 8,
       NCCL_BFLOAT16 = 9,
};

enum { NCCL_SUM = 0 };

enum { NCCL_ID_BYTES = 128, NCCL_CONFIG_VERSION = 21400 };
#define NCCL_CONFIG_MARK 0xcafebeefu

typedef struct nccl_id {
    char bytes[NCCL_ID_BYTES];
} nccl_id;

/* As it was in 2.14; newer versions take what lies behind it for their defaults. */
typedef struct nccl_config {
    size_t size;
    unsigned mark;
    unsigned version;
    int blocking;
} nccl_config;

typedef struct ncclComm nccl_comm;

#ifndef MP_NCCL_TYPES_ONLY
int ncclGetUniqueId(nccl_id *id);
int ncclCommInitRankConfig(nccl_comm **comm, int ranks, nccl_id id, int rank, nccl_config *config);
int ncclCommGetAsyncError(nccl_comm *comm, int *error);
int ncclCommAbort(nccl_comm *comm);
const char *ncclGetErrorString(int result);
const char *ncclGetLastError(nccl_comm *comm);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduce(const void *source, void *target, size_t count, int type, int sum,
                  nccl_comm *comm, CUstream stream);
int ncclAllGather(const void *source, void *target, size_t count, int type, nccl_comm *comm,
                  CUstream stream);
int ncclSend(const void *source, size_t count, int type, int peer, nccl_comm *comm,
             CUstream stream);
int ncclRecv(void *target, size_t count, int type, int peer, nccl_comm *comm, CUstream stream);
#endif

#endif
