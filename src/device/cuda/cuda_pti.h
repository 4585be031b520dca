/* cuda_pti.h - the part of CUPTI, NVIDIA's profiling interface, that is used.
 *
 * Many toolkits lack CUPTI's headers, so what is needed is declared here. A newer library writes
 * newer versions of its records, which only grow at the end: the fields below have been where they
 * are since CUDA 11.2 (records of graph nodes), and cuda_profile_test.c compares them with the
 * headers where those are. With MP_PTI_TYPES_ONLY the functions are left out, for that test.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_CUDA_PTI_H
#define MP_DEVICE_CUDA_PTI_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

enum { /* results */
       PTI_SUCCESS = 0,
       PTI_MAX_LIMIT_REACHED = 12,
       PTI_NOT_SUPPORTED = 27,
       PTI_INSUFFICIENT_PRIVILEGES = 35,
       PTI_MULTIPLE_SUBSCRIBERS = 39,
};

enum { /* kinds of records */
       PTI_KIND_COPY = 1,
       PTI_KIND_FILL = 2,
       PTI_KIND_KERNEL = 10,
       PTI_KIND_PEER_COPY = 22,
};

enum { /* of a copy */
       PTI_COPY_HOST_TO_DEVICE = 1,
       PTI_COPY_DEVICE_TO_HOST = 2,
       PTI_COPY_HOST_TO_ARRAY = 3,
       PTI_COPY_ARRAY_TO_HOST = 4,
       PTI_COPY_HOST_TO_HOST = 9,
};

enum { PTI_DOMAIN_DRIVER = 1, PTI_DOMAIN_RESOURCE = 3, PTI_SITE_ENTER = 0, PTI_FLUSH_FORCED = 1 };

enum { /* callbacks of the resource domain */
       PTI_NODE_CREATED = 13,
       PTI_NODE_DESTROYED = 14,
       PTI_NODE_CLONED = 20,
};

typedef struct pti_record { /* as any record begins */
    int32_t kind;
} pti_record;

typedef struct pti_kernel {
    int32_t kind;
    uint8_t unused0[12];
    uint64_t start, end;
    uint8_t unused1[8];
    uint32_t device, context, stream;
    int32_t grid[3], block[3];
    uint8_t unused2[16];
    uint32_t correlation;
    uint8_t unused3[8];
    const char *name;
    uint8_t unused4[32];
    uint64_t graph_node;
} pti_kernel;

typedef struct pti_copy { /* also of a fill, whose second word is its value */
    int32_t kind;
    uint8_t copy_kind;
    uint8_t unused0[3];
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
    uint8_t unused1[16];
    uint64_t graph_node;
} pti_copy;

typedef struct pti_peer_copy {
    int32_t kind;
    uint8_t unused0[4];
    uint64_t bytes, start, end;
    uint32_t device, context, stream;
    uint8_t unused1[16];
    uint32_t correlation;
    uint8_t unused2[8];
    uint64_t graph_node;
} pti_peer_copy;

typedef struct pti_call { /* of a driver call */
    int32_t site;
    uint8_t unused0[60];
    uint32_t correlation;
} pti_call;

typedef struct pti_graph { /* of a node of a graph */
    CUgraph graph, original_graph;
    CUgraphNode node, original_node;
} pti_graph;

typedef struct pti_resource {
    CUcontext context;
    void *handle;
    pti_graph *descriptor;
} pti_resource;

typedef void pti_callback(void *context, int domain, uint32_t id, const void *data);
typedef void pti_buffer_give(uint8_t **buffer, size_t *size, size_t *records_max);
typedef void pti_buffer_take(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                             size_t used);

#ifndef MP_PTI_TYPES_ONLY
int cuptiGetVersion(uint32_t *version);
int cuptiGetTimestamp(uint64_t *now);
int cuptiGetResultString(int result, const char **text);
int cuptiSubscribe(void **subscriber, pti_callback *callback, void *context);
int cuptiUnsubscribe(void *subscriber);
int cuptiEnableCallback(uint32_t enable, void *subscriber, int domain, uint32_t id);
int cuptiGetGraphNodeId(CUgraphNode node, uint64_t *id);
int cuptiActivityRegisterCallbacks(pti_buffer_give *give, pti_buffer_take *take);
int cuptiActivityEnable(int kind);
int cuptiActivityDisable(int kind);
int cuptiActivityFlushAll(uint32_t flag);
int cuptiActivityFlushPeriod(uint32_t ms);
int cuptiActivityGetNextRecord(uint8_t *buffer, size_t used, pti_record **record);
#endif

#endif
