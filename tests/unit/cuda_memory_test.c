/* cuda_memory_test.c - memory of a real GPU beside captures of the strictest mode, and from another
 * process; skipped where there is none.
 * SPDX-License-Identifier: Apache-2.0 */
#include "memory_calls.h"
#include "test.h"

#include "device/cuda/cuda_load.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

/* ---- captures of other libraries ---- */

/* The global mode forbids unsafe calls to every thread of the process. */
TEST(cuda_memory_calls_leave_global_captures_alone) {
    static const CUstreamCaptureMode modes[] = {CU_STREAM_CAPTURE_MODE_GLOBAL,
                                                CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
                                                CU_STREAM_CAPTURE_MODE_RELAXED};
    mp_device *device = test_gpu();
    mp_stream *stream = NULL, *outside = NULL;
    mp_event *event = NULL;
    CUcontext context = NULL;
    CHECK_EQ_INT(mp__cu.context_retain(&context, device->ordinal), CUDA_SUCCESS);
    CHECK_EQ_INT(mp__cu.context_set(context), CUDA_SUCCESS);
    CHECK_OK(device->ops->stream_create(device, &stream));
    CHECK_OK(device->ops->stream_create(device, &outside));
    CHECK_OK(device->ops->event_create(device, false, &event));
    CHECK_OK(device->ops->event_record(device, event, outside));
    CHECK_OK(device->ops->stream_synchronize(device, outside));
    for (size_t i = 0; i < MP_COUNT_OF(modes); i++) {
        const CUstream native = device->ops->stream_native(device, stream);
        CUgraph graph = NULL;
        CHECK_EQ_INT(mp__cu.capture_begin(native, modes[i]), CUDA_SUCCESS);
        test_memory_calls(device, event);
        CHECK_EQ_INT(mp__cu.capture_end(native, &graph), CUDA_SUCCESS);
        CHECK_EQ_INT(mp__cu.graph_destroy(graph), CUDA_SUCCESS);
    }
    /* The thread's own mode is as it was: the strictest. */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CHECK_EQ_INT(mp__cu.capture_mode(&mode), CUDA_SUCCESS);
    CHECK_EQ_INT(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    device->ops->event_destroy(device, event);
    device->ops->stream_destroy(device, outside);
    device->ops->stream_destroy(device, stream);
    CHECK_EQ_INT(mp__cu.context_release(device->ordinal), CUDA_SUCCESS);
}

/* Copies that are no part of it, whether they are staged (staging.h) or small. */
TEST(cuda_copies_leave_global_captures_alone) {
    static const struct {
        size_t size;
        bool queued;
    } cases[] = {{4096, false}, {11 * MIB + 3, false}, {11 * MIB + 3, true}};
    mp_device *device = test_gpu();
    const mp_device_ops *ops = device->ops;
    mp_stream *captured = NULL, *outside = NULL;
    CUcontext context = NULL;
    CHECK_EQ_INT(mp__cu.context_retain(&context, device->ordinal), CUDA_SUCCESS);
    CHECK_EQ_INT(mp__cu.context_set(context), CUDA_SUCCESS);
    CHECK_OK(ops->stream_create(device, &captured));
    CHECK_OK(ops->stream_create(device, &outside));
    for (size_t i = 0; i < MP_COUNT_OF(cases); i++) {
        const size_t size = cases[i].size;
        mp_stream *stream = cases[i].queued ? outside : NULL;
        const CUstream native = ops->stream_native(device, captured);
        unsigned char *bytes = malloc(size), *back = calloc(1, size);
        CUgraph graph = NULL;
        mp_addr memory = 0;
        CHECK(bytes != NULL && back != NULL);
        for (size_t k = 0; k < size; k++) {
            bytes[k] = (unsigned char)(k * 31 >> 3);
        }
        CHECK_OK(ops->alloc(device, size, &memory));
        CHECK_EQ_INT(mp__cu.capture_begin(native, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
        CHECK_OK(ops->copy(device, stream, memory, (mp_addr)bytes, size));
        CHECK_OK(ops->copy(device, stream, (mp_addr)back, memory, size));
        CHECK_EQ_INT(mp__cu.capture_end(native, &graph), CUDA_SUCCESS);
        CHECK_EQ_INT(mp__cu.graph_destroy(graph), CUDA_SUCCESS);
        CHECK(memcmp(bytes, back, size) == 0);
        ops->free(device, memory, size);
        free(bytes);
        free(back);
    }
    ops->stream_destroy(device, outside);
    ops->stream_destroy(device, captured);
    CHECK_EQ_INT(mp__cu.context_release(device->ordinal), CUDA_SUCCESS);
}

/* ---- other processes ---- */

/* The other process. Returns what failed. */
static int use_from_outside(int from) {
    unsigned char handle[MP_IPC_HANDLE_BYTES];
    mp_device *device = NULL;
    mp_addr addr = 0;
    if (read(from, handle, sizeof handle) != (ssize_t)sizeof handle) {
        return 5; /* the test was skipped */
    }
    if (mp_device_get(MP_DEVICE_CUDA, 0, &device) != MP_OK) {
        return 6;
    }
    return test_use_shared(device, handle, &addr);
}

TEST(cuda_memory_is_shared_with_another_process) {
    NEEDS_OWN_PROCESS(); /* CUDA must not have been used before the fork */
    int ends[2];
    CHECK_EQ_INT(pipe(ends), 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        (void)close(ends[1]);
        _exit(use_from_outside(ends[0]));
    }
    (void)close(ends[0]);
    mp_device *device = test_gpu();
    size_t size = 0;
    unsigned char handle[MP_IPC_HANDLE_BYTES];
    mp_addr addr = 0;
    uint32_t word = 0;
    int state = 0;
    CHECK_OK(device->ops->alloc(device, MIB, &addr));
    CHECK_OK(device->ops->fill(device, NULL, addr, 11, 4, MIB / 4));
    const mp_status status = device->ops->ipc_export(device, addr, handle);
    if (status == MP_UNSUPPORTED) {
        SKIP("%s", mp_error_message());
    }
    CHECK_OK(status);
    CHECK_EQ_INT(write(ends[1], handle, sizeof handle), sizeof handle);
    CHECK_EQ_INT(waitpid(child, &state, 0), child);
    CHECK(WIFEXITED(state));
    CHECK_EQ_INT(WEXITSTATUS(state), 0);
    CHECK_OK(device->ops->copy(device, NULL, (mp_addr)&word, addr + MIB - 4, 4));
    CHECK_EQ_INT(word, 12);
    CHECK(device->ops->ipc_open(device, handle, &addr, &size) !=
          MP_OK); /* not in its own process */
    device->ops->free(device, addr, MIB);
}
