/* plugin_ort.c - ONNX Runtime's own arena in the shape that pool_bench drives.
 *
 * It is the arena of its CPU, which is the class that its CUDA provider uses too, with the settings
 * that are the defaults of both; so what it lends is memory of the host, and it takes part only in
 * cases that touch no block. --init is the path of libonnxruntime.so. The arena is had through a
 * session that asks for the environment's allocators. It knows no streams.
 * SPDX-License-Identifier: Apache-2.0 */
#include "plugin.h"

#include "ep/abi/ort_abi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { API_VERSION = 23 }; /* the first with statistics of allocators */

/* A model that gives its input back, as ONNX writes it. */
static const char model[] =
    "\x08\t:=\n\x10\n\x01x\x12\x01y\"\x08Identity\x12\x05smallZ\x10\n\x01x\x12\x0b\n\t\x08\x01\x12"
    "\x05\n\x03\x12\x01nb\x10\n\x01y\x12\x0b\n\t\x08\x01\x12\x05\n\x03\x12\x01nB\x04\n\x00\x10\x12";

static const OrtApi *api;
static OrtEnv *env;
static OrtMemoryInfo *cpu;
static OrtSession *session;
static OrtAllocator *arena;

/* Whether a call went well; says why not. */
static bool is_ok(OrtStatus *status) {
    if (status != NULL) {
        (void)fprintf(stderr, "plugin_ort: %s\n", api->GetErrorMessage(status));
        api->ReleaseStatus(status);
    }
    return status == NULL;
}

static bool load(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        (void)fprintf(stderr, "plugin_ort: %s\n", dlerror());
        return false;
    }
    const OrtApiBase *(*get_base)(void) = NULL;
    *(void **)&get_base = dlsym(library, "OrtGetApiBase");
    api = get_base != NULL ? get_base()->GetApi(API_VERSION) : NULL;
    if (api == NULL) {
        (void)fprintf(stderr, "plugin_ort: %s has no API of version %d\n", path, API_VERSION);
        return false;
    }
    return is_ok(api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "bench", &env)) &&
           is_ok(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &cpu));
}

static bool open_session(void) {
    OrtSessionOptions *options = NULL;
    if (!is_ok(api->CreateSessionOptions(&options))) {
        return false;
    }
    const bool done =
        is_ok(api->SetIntraOpNumThreads(options, 1)) &&
        is_ok(api->AddSessionConfigEntry(options, "session.use_env_allocators", "1")) &&
        is_ok(api->CreateSessionFromArray(env, model, sizeof model - 1, options, &session)) &&
        is_ok(api->CreateAllocator(session, cpu, &arena));
    api->ReleaseSessionOptions(options);
    return done;
}

int bench_init(const char *text, size_t cap) {
    static const char *const keys[] = {"arena_extend_strategy", "initial_chunk_size_bytes"};
    static const size_t values[] = {0, (size_t)1 << 20};
    (void)cap;
    if (api == NULL && !load(text)) {
        return 1;
    }
    OrtArenaCfg *settings = NULL;
    if (!is_ok(api->CreateArenaCfgV2(keys, values, 2, &settings))) {
        return 1;
    }
    const bool done = is_ok(api->CreateAndRegisterAllocator(env, cpu, settings)) && open_session();
    api->ReleaseArenaCfg(settings);
    return done ? 0 : 1;
}

void bench_fini(void) {
    api->ReleaseAllocator(arena);
    api->ReleaseSession(session);
    (void)is_ok(api->UnregisterAllocator(env, cpu));
    arena = NULL;
    session = NULL;
}

void *bench_alloc(ssize_t size, int device, void *stream) {
    (void)device;
    (void)stream;
    return arena->Alloc(arena, (size_t)size);
}

void bench_free(void *memory, ssize_t size, int device, void *stream) {
    (void)size;
    (void)device;
    (void)stream;
    arena->Free(arena, memory);
}

int bench_reserved(uint64_t *now, uint64_t *peak) {
    OrtKeyValuePairs *stats = NULL;
    if (!is_ok(api->AllocatorGetStats(arena, &stats))) {
        return 1;
    }
    const char *total = api->GetKeyValue(stats, "TotalAllocated");
    *now = *peak = total != NULL ? strtoull(total, NULL, 10) : 0; /* it does not shrink here */
    api->ReleaseKeyValuePairs(stats);
    return total != NULL ? 0 : 1;
}
