/* fake_cupti.c - a CUPTI of our own, by the real one's file name: hands out what a test puts in.
 *
 * As the real one it serves one client, fills the client's buffers, keeps a buffer back while a
 * record in it has not ended, and gives the buffer's address where it says so. cuda_profile_test.c
 * finds the functions that begin with fake_ by name.
 * SPDX-License-Identifier: Apache-2.0 */
#include "device/cuda/cuda_pti.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* What the linker exports beside the functions of CUPTI. */
int fake_subscribe_result;
int fake_subscribers, fake_enabled, fake_forced;
void fake_call(uint32_t correlation);
void fake_node(int event, uint64_t node, uint64_t original);
void fake_kernel(uint32_t correlation, uint64_t graph_node, const char *name, bool ended);
void fake_copy(uint32_t correlation, int copy_kind, uint64_t bytes);
void fake_fill(uint32_t correlation, uint64_t bytes);

enum { RECORD_BYTES = 224, RECORDS_MAX = 4096, CLOCK_AHEAD_NS = 5000000 };

static pti_callback *client;
static void *client_context;
static pti_buffer_give *give;
static pti_buffer_take *take;
static _Alignas(8) uint8_t records[RECORDS_MAX][RECORD_BYTES];
static int record_count;

int cuptiGetVersion(uint32_t *version) {
    *version = 130001;
    return PTI_SUCCESS;
}

int cuptiGetTimestamp(uint64_t *now) {
    struct timespec at;
    (void)clock_gettime(CLOCK_MONOTONIC, &at);
    *now = (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec + CLOCK_AHEAD_NS;
    return PTI_SUCCESS;
}

int cuptiGetResultString(int result, const char **text) {
    *text = result == PTI_MULTIPLE_SUBSCRIBERS ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
                                               : "CUPTI_ERROR";
    return PTI_SUCCESS;
}

int cuptiSubscribe(void **subscriber, pti_callback *callback, void *context) {
    if (fake_subscribe_result != PTI_SUCCESS || fake_subscribers > 0) {
        return fake_subscribe_result != PTI_SUCCESS ? fake_subscribe_result
                                                    : PTI_MULTIPLE_SUBSCRIBERS;
    }
    fake_subscribers++;
    client = callback;
    client_context = context;
    *subscriber = &client;
    return PTI_SUCCESS;
}

int cuptiUnsubscribe(void *subscriber) {
    fake_subscribers -= subscriber == &client;
    client = NULL;
    return PTI_SUCCESS;
}

int cuptiEnableCallback(uint32_t enable, void *subscriber, int domain, uint32_t id) {
    (void)enable, (void)domain, (void)id;
    return subscriber == &client ? PTI_SUCCESS : PTI_NOT_SUPPORTED;
}

int cuptiGetGraphNodeId(CUgraphNode node, uint64_t *id) {
    *id = (uint64_t)(uintptr_t)node;
    return PTI_SUCCESS;
}

int cuptiActivityRegisterCallbacks(pti_buffer_give *give_buffer, pti_buffer_take *take_buffer) {
    give = give_buffer;
    take = take_buffer;
    return PTI_SUCCESS;
}

int cuptiActivityEnable(int kind) {
    (void)kind;
    fake_enabled++;
    return PTI_SUCCESS;
}

int cuptiActivityDisable(int kind) {
    (void)kind;
    fake_enabled--;
    return PTI_SUCCESS;
}

int cuptiActivityFlushPeriod(uint32_t ms) {
    (void)ms;
    return PTI_SUCCESS;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t used, pti_record **record) {
    uint8_t *next = *record == NULL ? buffer : (uint8_t *)*record + RECORD_BYTES;
    if (next + RECORD_BYTES > buffer + used) {
        return PTI_MAX_LIMIT_REACHED;
    }
    *record = (pti_record *)(void *)next;
    return PTI_SUCCESS;
}

static bool all_ended(void) {
    for (int i = 0; i < record_count; i++) {
        if (((const pti_kernel *)(const void *)records[i])->end == 0) {
            return false;
        }
    }
    return true;
}

int cuptiActivityFlushAll(uint32_t flag) {
    fake_forced += flag == PTI_FLUSH_FORCED;
    if (flag != PTI_FLUSH_FORCED && !all_ended()) {
        return PTI_SUCCESS;
    }
    for (int at = 0; at < record_count;) {
        uint8_t *buffer = NULL;
        size_t size = 0;
        size_t most = 0;
        give(&buffer, &size, &most);
        const int room = (int)(size / RECORD_BYTES);
        const int count = record_count - at < room ? record_count - at : room;
        if (buffer == NULL) {
            break;
        }
        memcpy(buffer, records[at], (size_t)count * RECORD_BYTES);
        take(NULL, 0, buffer, size, (size_t)count * RECORD_BYTES);
        at += count;
    }
    record_count = 0;
    return PTI_SUCCESS;
}

/* ---- what a test does ---- */

void fake_call(uint32_t correlation) {
    const pti_call enter = {.site = PTI_SITE_ENTER, .correlation = correlation};
    const pti_call leave = {.site = PTI_SITE_ENTER + 1, .correlation = correlation};
    client(client_context, PTI_DOMAIN_DRIVER, 307, &enter);
    client(client_context, PTI_DOMAIN_DRIVER, 307, &leave);
}

void fake_node(int event, uint64_t node, uint64_t original) {
    pti_graph graph = {.node = (CUgraphNode)(uintptr_t)node,
                       .original_node = (CUgraphNode)(uintptr_t)original};
    const pti_resource resource = {.descriptor = &graph};
    client(client_context, PTI_DOMAIN_RESOURCE, (uint32_t)event, &resource);
}

static void *add_record(void) {
    return memset(records[record_count++ % RECORDS_MAX], 0, RECORD_BYTES);
}

void fake_kernel(uint32_t correlation, uint64_t graph_node, const char *name, bool ended) {
    pti_kernel *kernel = add_record();
    *kernel = (pti_kernel){.kind = PTI_KIND_KERNEL,
                           .device = 3,
                           .stream = 13,
                           .grid = {4, 5, 6},
                           .block = {32, 2, 1},
                           .correlation = correlation,
                           .name = name,
                           .graph_node = graph_node};
    (void)cuptiGetTimestamp(&kernel->start);
    kernel->end = ended ? kernel->start + 1500 : 0;
}

static pti_copy *add_copy(int kind, uint32_t correlation, uint64_t bytes) {
    pti_copy *copy = add_record();
    *copy = (pti_copy){
        .kind = kind, .bytes = bytes, .device = 3, .stream = 13, .correlation = correlation};
    (void)cuptiGetTimestamp(&copy->start);
    copy->end = copy->start + 700;
    return copy;
}

void fake_copy(uint32_t correlation, int copy_kind, uint64_t bytes) {
    add_copy(PTI_KIND_COPY, correlation, bytes)->copy_kind = (uint8_t)copy_kind;
}

void fake_fill(uint32_t correlation, uint64_t bytes) {
    (void)add_copy(PTI_KIND_FILL, correlation, bytes);
}
