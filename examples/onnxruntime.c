/* onnxruntime.c - a model of one float input "x" and one output "y" on the provider, by ONNX
 * Runtime's C API. Build: cc onnxruntime.c -I<folder of onnxruntime_c_api.h> -lonnxruntime Run:
 * ./a.out libonnxruntime_providers_cuda_plugin.so model.onnx    (an absolute path of the library)
 * SPDX-License-Identifier: Apache-2.0 */
#include <onnxruntime_c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 4, DEVICES_MAX = 16 };
static const OrtApi *ort;

static void check(OrtStatus *status) {
    if (status != NULL) {
        fprintf(stderr, "%s\n", ort->GetErrorMessage(status));
        ort->ReleaseStatus(status);
        exit(1);
    }
}

/* The devices of the library that was registered; the name is the provider's, not the one it was
 * registered under. */
static size_t devices_of(OrtEnv *env, const OrtEpDevice **out) {
    const OrtEpDevice *const *all;
    size_t count, found = 0;
    check(ort->GetEpDevices(env, &all, &count));
    for (size_t i = 0; i < count && found < DEVICES_MAX; i++) {
        if (strcmp(ort->EpDevice_EpName(all[i]), "CudaPluginExecutionProvider") == 0) {
            out[found++] = all[i];
        }
    }
    return found;
}

static OrtSession *session_on(OrtEnv *env, const OrtEpDevice *device, const char *model) {
    const char *const keys[] = {"use_tf32"}; /* docs/settings.md lists the options */
    const char *const values[] = {"0"};
    OrtSessionOptions *options;
    OrtSession *session;
    check(ort->CreateSessionOptions(&options));
    check(ort->SessionOptionsAppendExecutionProvider_V2(options, env, &device, 1, keys, values, 1));
    check(ort->CreateSession(env, model, options, &session));
    ort->ReleaseSessionOptions(options);
    return session;
}

static void run(OrtSession *session) {
    float x[COUNT] = {1, 2, 3, 4}, *y;
    const int64_t shape[] = {COUNT};
    const char *const in[] = {"x"}, *const out[] = {"y"};
    OrtMemoryInfo *memory;
    OrtValue *given, *got = NULL;
    check(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
    check(ort->CreateTensorWithDataAsOrtValue(memory, x, sizeof x, shape, 1,
                                              ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &given));
    check(ort->Run(session, NULL, in, (const OrtValue *const *)&given, 1, out, 1, &got));
    check(ort->GetTensorMutableData(got, (void **)&y));
    printf("y = %g %g %g %g\n", y[0], y[1], y[2], y[3]);
    ort->ReleaseValue(got);
    ort->ReleaseValue(given);
    ort->ReleaseMemoryInfo(memory);
}

int main(int count, char **words) {
    const OrtEpDevice *devices[DEVICES_MAX];
    OrtEnv *env;
    ort = OrtGetApiBase()->GetApi(
        26); /* the oldest ONNX Runtime that the provider works with is 1.26 */
    if (count != 3 || ort == NULL) {
        return fprintf(stderr,
                       "give the library's path and a model; ONNX Runtime must be 1.26 or newer\n"),
               2;
    }
    check(ort->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "example", &env));
    check(ort->RegisterExecutionProviderLibrary(env, "millpond", words[1]));
    if (devices_of(env, devices) == 0) {
        return fprintf(stderr, "the library has no device\n"), 1;
    }
    const OrtKeyValuePairs *about = ort->EpDevice_EpMetadata(devices[0]);
    printf("device: %s\n", ort->GetKeyValue(about, "cuda_device_name"));
    OrtSession *session = session_on(env, devices[0], words[2]);
    run(session);
    ort->ReleaseSession(session); /* before the library goes */
    check(ort->UnregisterExecutionProviderLibrary(env, "millpond"));
    ort->ReleaseEnv(env);
    return 0;
}
