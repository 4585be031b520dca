// throwing.cpp - stands in for PyTorch where there is none: its exceptions, by the names and with the layout that the
// linker and the C++ ABI see, and calls of allocator functions that say what was thrown. For test_torch_functions.py.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace c10 {

struct SourceLocation {
    const char *function, *file;
    uint32_t line;
};

class Error : public std::exception {
    std::string message;
    std::vector<std::string> context;
    std::shared_ptr<const std::string> trace;

  public:
    static std::atomic<int> alive;
    Error(SourceLocation where, std::string text);
    Error(const Error &other) : std::exception(other), message(other.message) { alive++; }
    ~Error() override { alive--; }
    const char *what() const noexcept override { return message.c_str(); }
};

std::atomic<int> Error::alive{0};

Error::Error(SourceLocation where, std::string text)
    : message(std::move(text)), trace(std::make_shared<const std::string>(where.function)) {
    alive++;
}

class OutOfMemoryError : public Error {
    using Error::Error;
};

namespace detail {
[[noreturn]] void torchCheckFail(const char *function, const char *file, uint32_t line, const char *text);
void torchCheckFail(const char *function, const char *file, uint32_t line, const char *text) {
    throw Error({function, file, line}, text);
}
} // namespace detail

} // namespace c10

// The compiler writes the class's tables only where it is thrown.
[[noreturn]] __attribute__((visibility("default"))) void use_tables();
void use_tables() { throw c10::OutOfMemoryError({"", "", 0}, ""); }

namespace {

// 0: nothing thrown, 1: c10::OutOfMemoryError, 2: c10::Error, 3: std::bad_alloc.
template <class Call> int kind_of(Call call, char *text, std::size_t size) {
    try {
        call();
        return 0;
    } catch (const c10::OutOfMemoryError &error) {
        std::snprintf(text, size, "%s", error.what());
        return 1;
    } catch (const c10::Error &error) {
        std::snprintf(text, size, "%s", error.what());
        return 2;
    } catch (const std::bad_alloc &) {
        return 3;
    }
}

using GraphId = std::pair<uint64_t, uint64_t>;
using Filter = std::function<bool(void *)>;

} // namespace

extern "C" {

int objects_alive() { return c10::Error::alive; }

int call_alloc(void *(*alloc)(std::size_t, int, void *), std::size_t bytes, int device, void *stream, void **out,
               char *text, std::size_t size) {
    std::function<void *(std::size_t, int, void *)> function = alloc;
    return kind_of([&] { *out = function(bytes, device, stream); }, text, size);
}

// As PyTorch passes them: the filter by value, with a state of its own, whose users are counted.
int call_begin(void (*begin)(int, GraphId, Filter), int device, uint64_t first, uint64_t second, char *text,
               std::size_t size) {
    std::function<void(int, GraphId, Filter)> function = begin;
    auto state = std::make_shared<int>(7);
    const int kind = kind_of([&] { function(device, {first, second}, [state](void *) { return *state == 7; }); }, text,
                             size);
    return state.use_count() == 1 ? kind : -1;
}

void call_end(void (*end)(int, GraphId), int device, uint64_t first, uint64_t second) {
    const std::function<void(int, GraphId)> function = end;
    function(device, {first, second});
}
}
