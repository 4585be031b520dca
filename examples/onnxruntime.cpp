/* onnxruntime.cpp - the same as onnxruntime.c in C++17: handles that release themselves, errors as
 * exceptions. Build: c++ -std=c++17 onnxruntime.cpp -I<folder of onnxruntime_c_api.h> -lonnxruntime
 * Run:   ./a.out libonnxruntime_providers_cuda_plugin.so model.onnx    (an absolute path of the
 * library) SPDX-License-Identifier: Apache-2.0 */
#include <onnxruntime_c_api.h>

#include <array>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

const OrtApi *ort =
    OrtGetApiBase()->GetApi(26); // the oldest ONNX Runtime that the provider works with is 1.26

void check(OrtStatus *status) {
    if (status != nullptr) {
        const std::string message = ort->GetErrorMessage(status);
        ort->ReleaseStatus(status);
        throw std::runtime_error(message);
    }
}

template <typename T> using handle = std::unique_ptr<T, void (*)(T *)>;

// What a function gives through its last argument, owned.
template <typename T, typename F> handle<T> made(void (*release)(T *), F create) {
    T *out = nullptr;
    check(create(&out));
    return {out, release};
}

// Keeps the library registered; sessions are gone before it.
class Registration {
  public:
    Registration(OrtEnv *env, const char *path) : env(env) {
        check(ort->RegisterExecutionProviderLibrary(env, "millpond", path));
    }
    Registration(const Registration &) = delete;
    Registration &operator=(const Registration &) = delete;
    ~Registration() {
        if (OrtStatus *status = ort->UnregisterExecutionProviderLibrary(env, "millpond")) {
            ort->ReleaseStatus(status);
        }
    }

    std::vector<const OrtEpDevice *> devices() const {
        const OrtEpDevice *const *all = nullptr;
        size_t count = 0;
        std::vector<const OrtEpDevice *> found;
        check(ort->GetEpDevices(env, &all, &count));
        for (size_t i = 0; i < count; i++) {
            if (ort->EpDevice_EpName(all[i]) == std::string("CudaPluginExecutionProvider")) {
                found.push_back(all[i]);
            }
        }
        return found;
    }

  private:
    OrtEnv *env;
};

void run(OrtEnv *env, const OrtEpDevice *device, const char *model) {
    const std::array<const char *, 1> keys{"use_tf32"}, values{"0"}, in{"x"}, out{"y"};
    auto options = made<OrtSessionOptions>(ort->ReleaseSessionOptions, ort->CreateSessionOptions);
    check(ort->SessionOptionsAppendExecutionProvider_V2(options.get(), env, &device, 1, keys.data(),
                                                        values.data(), keys.size()));
    auto session = made<OrtSession>(ort->ReleaseSession, [&](auto made) {
        return ort->CreateSession(env, model, options.get(), made);
    });
    auto memory = made<OrtMemoryInfo>(ort->ReleaseMemoryInfo, [](auto made) {
        return ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, made);
    });
    std::array<float, 4> x{1, 2, 3, 4};
    const std::array<int64_t, 1> shape{x.size()};
    auto given = made<OrtValue>(ort->ReleaseValue, [&](auto made) {
        return ort->CreateTensorWithDataAsOrtValue(memory.get(), x.data(), sizeof x, shape.data(),
                                                   shape.size(),
                                                   ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, made);
    });
    const std::array<const OrtValue *, 1> inputs{given.get()};
    auto got = made<OrtValue>(ort->ReleaseValue, [&](auto made) {
        return ort->Run(session.get(), nullptr, in.data(), inputs.data(), inputs.size(), out.data(),
                        out.size(), made);
    });
    void *y = nullptr;
    check(ort->GetTensorMutableData(got.get(), &y));
    const float *values_of_y = static_cast<const float *>(y);
    std::printf("y = %g %g %g %g\n", values_of_y[0], values_of_y[1], values_of_y[2],
                values_of_y[3]);
}

} // namespace

int main(int count, char **words) try {
    if (count != 3 || ort == nullptr) {
        throw std::runtime_error(
            "give the library's path and a model; ONNX Runtime must be 1.26 or newer");
    }
    auto env = made<OrtEnv>(ort->ReleaseEnv, [](auto made) {
        return ort->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "example", made);
    });
    const Registration registration(env.get(), words[1]);
    const auto devices = registration.devices();
    if (devices.empty()) {
        throw std::runtime_error("the library has no device");
    }
    std::printf("device: %s\n",
                ort->GetKeyValue(ort->EpDevice_EpMetadata(devices[0]), "cuda_device_name"));
    run(env.get(), devices[0], words[2]);
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
