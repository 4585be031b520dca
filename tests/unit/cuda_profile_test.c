/* cuda_profile_test.c - CUPTI's records become records of ours; with a CUPTI of the tests' own, so
 * without a GPU. profile_test.c asks the real one, on a GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "test.h"

#if defined(__has_include)
#if __has_include(<cupti.h>)
#define WITH_HEADERS 1
#endif
#endif
#ifdef WITH_HEADERS
#include <cupti.h>
#define MP_PTI_TYPES_ONLY 1 /* the functions are the header's */
#endif
#include "device/cuda/cuda_pti.h"

#include "device/profile.h"

#include <dlfcn.h>
#include <stdio.h>

/* ---- our declarations against the headers ---- */

#ifdef WITH_HEADERS
#define SAME(ours, field, theirs, their_field)                                               \
    _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field) &&                 \
                       sizeof(((ours *)0)->field) <= sizeof(((theirs *)0)->their_field) * 3, \
                   #ours "." #field)
#define SAME_COMMON(ours, theirs)                   \
    SAME(ours, kind, theirs, kind);                 \
    SAME(ours, start, theirs, start);               \
    SAME(ours, end, theirs, end);                   \
    SAME(ours, device, theirs, deviceId);           \
    SAME(ours, stream, theirs, streamId);           \
    SAME(ours, correlation, theirs, correlationId); \
    SAME(ours, graph_node, theirs, graphNodeId)
SAME_COMMON(pti_kernel, CUpti_ActivityKernel9);
SAME(pti_kernel, grid, CUpti_ActivityKernel9, gridX);
SAME(pti_kernel, block, CUpti_ActivityKernel9, blockX);
SAME(pti_kernel, name, CUpti_ActivityKernel9, name);
SAME_COMMON(pti_copy, CUpti_ActivityMemcpy5);
SAME(pti_copy, copy_kind, CUpti_ActivityMemcpy5, copyKind);
SAME(pti_copy, bytes, CUpti_ActivityMemcpy5, bytes);
SAME_COMMON(pti_copy, CUpti_ActivityMemset4);
SAME(pti_copy, bytes, CUpti_ActivityMemset4, bytes);
SAME_COMMON(pti_peer_copy, CUpti_ActivityMemcpyPtoP4);
SAME(pti_peer_copy, bytes, CUpti_ActivityMemcpyPtoP4, bytes);
SAME(pti_call, site, CUpti_CallbackData, callbackSite);
SAME(pti_call, correlation, CUpti_CallbackData, correlationId);
SAME(pti_resource, descriptor, CUpti_ResourceData, resourceDescriptor);
SAME(pti_graph, node, CUpti_GraphData, node);
SAME(pti_graph, original_node, CUpti_GraphData, originalNode);
#define EQUAL(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
EQUAL(PTI_MULTIPLE_SUBSCRIBERS, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
EQUAL(PTI_MAX_LIMIT_REACHED, CUPTI_ERROR_MAX_LIMIT_REACHED);
EQUAL(PTI_INSUFFICIENT_PRIVILEGES, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
EQUAL(PTI_KIND_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
EQUAL(PTI_KIND_COPY, CUPTI_ACTIVITY_KIND_MEMCPY);
EQUAL(PTI_KIND_FILL, CUPTI_ACTIVITY_KIND_MEMSET);
EQUAL(PTI_KIND_PEER_COPY, CUPTI_ACTIVITY_KIND_MEMCPY2);
EQUAL(PTI_COPY_HOST_TO_DEVICE, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
EQUAL(PTI_COPY_DEVICE_TO_HOST, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH);
EQUAL(PTI_DOMAIN_DRIVER, CUPTI_CB_DOMAIN_DRIVER_API);
EQUAL(PTI_DOMAIN_RESOURCE, CUPTI_CB_DOMAIN_RESOURCE);
EQUAL(PTI_NODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED);
EQUAL(PTI_NODE_DESTROYED, CUPTI_CBID_RESOURCE_GRAPHNODE_DESTROY_STARTING);
EQUAL(PTI_NODE_CLONED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED);
EQUAL(PTI_FLUSH_FORCED, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
#endif

/* ---- the tests' own CUPTI ---- */

/* Where cupti/fake_cupti.c was built, as libcupti.so.13. */
#ifndef TEST_FAKE_CUPTI
#define TEST_FAKE_CUPTI ""
#endif

static struct {
    void (*call)(uint32_t correlation);
    void (*node)(int event, uint64_t node, uint64_t original);
    void (*kernel)(uint32_t correlation, uint64_t graph_node, const char *name, bool ended);
    void (*copy)(uint32_t correlation, int copy_kind, uint64_t bytes);
    void (*fill)(uint32_t correlation, uint64_t bytes);
    int *subscribe_result, *subscribers, *enabled, *forced;
} fake;

static void find(void *library, const char *name, void *out) {
    void *address = dlsym(library, name);
    CHECK(address != NULL);
    memcpy(out, &address, sizeof address);
}

/* Loaded before the real one, which then is not looked for: the name is taken. */
static void open_fake(void) {
    NEEDS_OWN_PROCESS();
    void *library = dlopen(TEST_FAKE_CUPTI, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        test_fail(__FILE__, __LINE__, "%s", dlerror());
    }
    find(library, "fake_call", &fake.call);
    find(library, "fake_node", &fake.node);
    find(library, "fake_kernel", &fake.kernel);
    find(library, "fake_copy", &fake.copy);
    find(library, "fake_fill", &fake.fill);
    find(library, "fake_subscribe_result", &fake.subscribe_result);
    find(library, "fake_subscribers", &fake.subscribers);
    find(library, "fake_enabled", &fake.enabled);
    find(library, "fake_forced", &fake.forced);
}

/* The entries of a GPU's table; nothing else of one is asked for. */
mp_status mp__cuda_profile_begin(mp_device *self);
void mp__cuda_profile_flush(mp_device *self, const mp_profile *listener);
void mp__cuda_profile_end(mp_device *self);
int64_t mp__cuda_profile_clock(mp_device *self);

static const mp_device_ops ops = {
    .profile_begin = mp__cuda_profile_begin,
    .profile_flush = mp__cuda_profile_flush,
    .profile_end = mp__cuda_profile_end,
    .profile_clock = mp__cuda_profile_clock,
};
static mp_device gpu = {.ops = &ops};

typedef struct seen {
    mp_profile_record records[8];
    char names[8][64];
    int count;
} seen;

static void note(void *context, const mp_profile_record *record) {
    seen *s = context;
    if (s->count < 8) {
        (void)snprintf(s->names[s->count], sizeof s->names[0], "%s", record->name);
        s->records[s->count] = *record;
    }
    s->count++;
}

static seen stop(mp_profile *profile) {
    seen s = {.count = 0};
    CHECK_EQ_INT(mp_profile_close(profile, note, &s), 0);
    return s;
}

TEST(cupti_kernels_copies_and_fills_find_their_marks) {
    open_fake();
    mp_profile *profile = NULL;
    const int64_t begin = mp_clock_ns();
    CHECK_OK(mp_profile_open(&gpu, &profile));
    CHECK_EQ_INT(*fake.subscribers, 1);
    fake.call(1); /* under no mark */
    fake.kernel(1, 0, "nobody's", true);
    mp_profile_push(profile, 5);
    fake.call(2);
    fake.call(3);
    fake.call(4);
    const uint64_t tag = mp_profile_pop(profile, 5);
    fake.kernel(2, 0, "_Z3addPfi", true);
    fake.copy(3, PTI_COPY_HOST_TO_DEVICE, 640);
    fake.fill(4, 64);
    fake.kernel(99, 0, "of a call that nobody saw", true);
    const seen s = stop(profile);
    const int64_t end = mp_clock_ns();
    CHECK_EQ_INT(s.count, 3);
    CHECK_STR_HAS(s.names[0], "add");
    CHECK_STR_HAS(s.names[1], "MemcpyHostToDevice");
    CHECK_STR_HAS(s.names[2], "Memset");
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(s.records[i].tag, tag);
        CHECK_EQ_INT(s.records[i].node_tag, tag);
        CHECK_EQ_INT(s.records[i].correlation, i + 2);
        CHECK_EQ_INT(s.records[i].stream, 13);
        CHECK_EQ_INT(s.records[i].device, 3);
        /* the library's clock is 5 ms ahead, and a kernel was still to end when it was told */
        CHECK(s.records[i].begin_ns >= begin && s.records[i].end_ns <= end + 10000);
    }
    CHECK_EQ_INT(s.records[0].end_ns - s.records[0].begin_ns, 1500);
    CHECK_EQ_INT(s.records[0].grid[1], 5);
    CHECK_EQ_INT(s.records[0].block[0], 32);
    CHECK_EQ_INT(s.records[1].bytes, 640);
    CHECK_EQ_INT(s.records[2].bytes, 64);
    CHECK_EQ_INT(*fake.forced, 0);
    CHECK_EQ_INT(*fake.subscribers, 0); /* others may have it now */
    CHECK_EQ_INT(*fake.enabled, 0);
}

TEST(cupti_nodes_of_graphs_keep_their_marks) {
    open_fake();
    mp_profile *profile = NULL;
    CHECK_OK(mp_profile_open(&gpu, &profile));
    uint64_t node[2];
    for (uint64_t i = 0; i < 2; i++) { /* captured: a call, and a node made in it */
        mp_profile_push(profile, i);
        fake.call(10 + (uint32_t)i);
        fake.node(PTI_NODE_CREATED, 100 + i, 0);
        node[i] = mp_profile_pop(profile, i);
    }
    fake.node(PTI_NODE_CLONED, 200, 100); /* made ready to run */
    fake.node(PTI_NODE_CLONED, 201, 101);
    fake.node(PTI_NODE_DESTROYED, 100, 0);
    fake.node(PTI_NODE_DESTROYED, 101, 0);
    for (uint64_t i = 1000; i < 4000; i++) { /* many more, of another graph */
        fake.node(PTI_NODE_CREATED, i, 0);
    }
    mp_profile_push(profile, 50);
    fake.call(12);
    const uint64_t run = mp_profile_pop(profile, 50);
    fake.kernel(12, 200, "first", true);
    fake.kernel(12, 201, "second", true);
    fake.kernel(12, 2000, "of no node that was marked", true);
    const seen s = stop(profile);
    CHECK_EQ_INT(s.count, 3);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(s.records[i].tag, run);
        CHECK_EQ_INT(s.records[i].node_tag, i < 2 ? node[i] : 0);
        CHECK_EQ_INT(s.records[i].correlation, 12);
        CHECK(s.records[i].in_graph);
    }
    CHECK_EQ_INT(*fake.forced, 0); /* the captured calls are not waited for */
}

/* More than one buffer, and a kernel that has not ended, which keeps its buffer back. */
TEST(cupti_buffers_are_all_read_and_running_kernels_are_left_out) {
    open_fake();
    mp_profile *profile = NULL;
    CHECK_OK(mp_profile_open(&gpu, &profile));
    mp_profile_push(profile, 1);
    for (uint32_t i = 0; i < 1000; i++) {
        fake.call(i + 1);
        fake.kernel(i + 1, 0, "k", i != 500);
    }
    (void)mp_profile_pop(profile, 1);
    const seen s = stop(profile);
    CHECK_EQ_INT(s.count, 999);
    CHECK_EQ_INT(*fake.forced, 1);
}

TEST(cupti_refuses_a_second_profiler) {
    open_fake();
    mp_profile *profile = NULL;
    *fake.subscribe_result = PTI_MULTIPLE_SUBSCRIBERS;
    CHECK_FAILS(mp_profile_open(&gpu, &profile), UNSUPPORTED, "another profiler");
    CHECK(profile == NULL);
    *fake.subscribe_result = PTI_SUCCESS; /* it has gone */
    mp_profile *second = NULL;
    CHECK_OK(mp_profile_open(&gpu, &profile));
    CHECK_OK(mp_profile_open(&gpu, &second)); /* both are one client */
    CHECK_EQ_INT(*fake.subscribers, 1);
    (void)stop(profile);
    CHECK_EQ_INT(*fake.subscribers, 1);
    (void)stop(second);
    CHECK_EQ_INT(*fake.subscribers, 0);
}
