/* lanes.h - runs a block of lanes, each of them a thread, and checks what came of it.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_TESTS_LANES_LANES_H
#define MP_TESTS_LANES_LANES_H

#include <cstdint>
#include <cstdio>
#include <functional>
#include <vector>

/* Runs the blocks one after the other, or as many `together` as are a cluster. `lanes` is a
 * multiple of 32, 1,024 at most. Shared memory begins as NaN. */
void run_blocks(unsigned blocks, unsigned lanes, const std::function<void()> &kernel,
                unsigned together = 1);

/* Gives what all 32 lanes of the caller's warp have put, of `size` bytes each, 32 at most. */
void lane_gather(const void *put, void *all, size_t size);

/* The 128 lanes of the caller's group meet. */
void lane_group_meet();
/* Arrives at a place of the block, where `lanes` of its lanes meet, and waits for them, or not. */
void lane_place(int place, unsigned lanes, bool waits);

/* 16 bytes to shared memory, of which those from `count` on become 0: now, or when the lane waits
 * for the group, of which all but the last `left` are waited for. */
void lane_copy(void *to, const void *from, uint32_t count);
void lane_copies_group();
void lane_copies_wait(size_t left);

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

/* A multiple of 1/32 from -1 to 1, which every type of floats has. */
inline float small_number() {
    return ((float)(next_random() % 65) - 32) / 32;
}

template <typename X, typename Make> void fill_with(Buffer<X> &to, int64_t count, Make make) {
    for (int64_t i = 0; i < count; i++) {
        to[(size_t)i] = make();
    }
}

#endif
