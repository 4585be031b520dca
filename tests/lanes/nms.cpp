/* nms.cpp - boxes picked by one block a list from bits that say which of them overlap: whole words
 * of boxes and parts, lists that end early, as many as are wanted and fewer, beside picking them
 * one by one.
 * SPDX-License-Identifier: Apache-2.0 */
#include "kernel/image/nms_pick.cu"
#include "lanes.h"

namespace {

struct List {
    int64_t count, fit, most; /* boxes, those that may be selected, those that are wanted */
    uint32_t rarity;          /* one of so many pairs overlaps */
};

std::vector<int32_t> picked_one_by_one(const mp_nms_args &a, int64_t list, int64_t fit) {
    std::vector<bool> gone((size_t)a.count);
    std::vector<int32_t> picked;
    for (int64_t i = 0; i < fit && (int64_t)picked.size() < a.most; i++) {
        if (gone[(size_t)i]) {
            continue;
        }
        picked.push_back(a.order[list * a.count + i]);
        for (int64_t k = i + 1; k < a.count; k++) {
            const uint64_t word = a.bits[(list * a.count + i) * a.words + k / K_NMS_WORD];
            gone[(size_t)k] = gone[(size_t)k] || (word >> k % K_NMS_WORD & 1);
        }
    }
    return picked;
}

void check_list(const List &m) {
    const int64_t lists = 3, boxes = lists * m.count;
    mp_nms_args a = {};
    a.lists = lists;
    a.count = m.count;
    a.most = m.most;
    a.words = (m.count + K_NMS_WORD - 1) / K_NMS_WORD;
    Buffer<int32_t> order((size_t)boxes), picked((size_t)(lists * m.most));
    Buffer<uint64_t> bits((size_t)(boxes * a.words));
    Buffer<int64_t> starts((size_t)lists);
    for (int64_t i = 0; i < boxes; i++) {
        const int64_t own = i % m.count;
        order[(size_t)i] = own < m.fit ? (int32_t)(m.count - own) : -1;
        for (int64_t w = 0; w < a.words; w++) {
            uint64_t &word = bits[(size_t)(i * a.words + w)];
            word = w < own / K_NMS_WORD ? ~0ull : 0; /* which nobody reads */
            for (int64_t k = 0; k < K_NMS_WORD; k++) {
                const int64_t other = w * K_NMS_WORD + k;
                if (other > own && other < m.count && next_random() % m.rarity == 0) {
                    word |= 1ull << k;
                }
            }
        }
    }
    a.order = order.data();
    a.bits = bits.data();
    a.picked = picked.data();
    a.starts = starts.data();
    Buffer<uint64_t> taken((size_t)(lists * a.words)), some((size_t)(lists * K_NMS_WORD * a.words));
    a.taken = taken.data();
    a.rows = K_NMS_WORD; /* one word of boxes after the other, as long lists have parts */
    a.bits = some.data();
    for (a.first = 0; a.first < m.count; a.first += a.rows) {
        for (int64_t i = 0; i < lists * a.rows * a.words; i++) {
            const int64_t row = i / a.words % a.rows + a.first, list = i / a.words / a.rows;
            some[(size_t)i] =
                row < m.count ? bits[(size_t)((list * m.count + row) * a.words + i % a.words)] : 0;
        }
        run_blocks(2, 64, [&] { nms_pick(a); });
    }
    a.bits = bits.data();
    for (int64_t list = 0; list < lists; list++) {
        const std::vector<int32_t> want = picked_one_by_one(a, list, m.fit);
        check(starts[(size_t)list] == (int64_t)want.size(), "how many are picked", list);
        for (size_t i = 0; i < want.size() && (int64_t)i < starts[(size_t)list]; i++) {
            check(picked[(size_t)(list * m.most) + i] == want[i], "a box", (int64_t)i);
        }
    }
}

} // namespace

void run_tests() {
    static const List lists[] = {
        {64, 64, 64, 9},    {17, 17, 17, 3},  {300, 300, 300, 40}, {300, 131, 300, 40},
        {200, 200, 21, 60}, {130, 0, 130, 5}, {129, 129, 129, 1},  {193, 193, 193, 1000000},
    };
    for (const List &m : lists) {
        check_list(m);
    }
}
