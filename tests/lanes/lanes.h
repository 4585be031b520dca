/* lanes.h - runs a block of lanes, each of them a thread, and checks what came of it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_LANES_LANES_H
#define MP_TESTS_LANES_LANES_H

#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

/* Runs the blocks one after the other. `lanes` is a multiple of 32, 1,024 at most. */
void run_blocks(unsigned blocks, unsigned lanes, const std::function<void()> &kernel);

/* Numbers that are the same in each run. */
uint32_t next_random();

/* Counts the check, and says what it was about where it fails. */
void check(bool holds, const char *what, int64_t at);

/* Memory that begins `skew` elements behind a multiple of 16 bytes. */
template <typename T> class Buffer {
  public:
    explicit Buffer(size_t count, size_t skew = 0) : memory(count + skew + 32 / sizeof(T) + 1) {
        const auto address = (uintptr_t)memory.data();
        first = (T *)((address + 15) / 16 * 16) + skew;
    }
    T &operator[](size_t i) {
        return first[i];
    }
    T *data() {
        return first;
    }

  private:
    std::vector<T> memory;
    T *first;
};

#endif
