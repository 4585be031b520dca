/* rank_test.c - ranks as processes of this machine: what they compute, and what each of them says
 * when one is missing, dies, does something else, or is nobody they know.
 * SPDX-License-Identifier: Apache-2.0 */
#include "test.h"
#include "test_port.h"

#include "base/clock.h"
#include "base/half.h"
#include "device/rank/rank_group.h"
#include "device/rank/rank_link.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 4, TIMEOUT_MS = 20000, SHORT_MS = 700 };

/* ---- ranks ---- */

static mp_rank rank_of(int rank, int size, int port, int64_t timeout_ms) {
    mp_rank out = {.rank = rank, .size = size, .port = port, .timeout_ms = timeout_ms};
    (void)snprintf(out.host, sizeof out.host, "127.0.0.1");
    return out;
}

/* What one rank does; true where all was as it should be. */
typedef bool rank_fn(const mp_rank *rank);

/* Says on stderr what a child found: its checks cannot end the parent's test. */
static bool expect(bool good, const mp_rank *rank, const char *what) {
    if (!good) {
        (void)fprintf(stderr, "# rank %d: %s; the last sentence is: %s\n", rank->rank, what,
                      mp_error_message());
    }
    return good;
}

static pid_t start(rank_fn *fn, mp_rank rank) {
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        _exit(fn(&rank) ? 0 : 1);
    }
    return child;
}

/* Runs `fn` as each of `size` ranks but those whose bit is in `left_out`. */
static void run_ranks(rank_fn *fn, int size, unsigned left_out, int64_t timeout_ms) {
    const int port = free_port();
    pid_t children[RANKS] = {0};
    for (int r = 0; r < size; r++) {
        if ((left_out >> r & 1) == 0) {
            children[r] = start(fn, rank_of(r, size, port, timeout_ms));
        }
    }
    bool good = true;
    for (int r = 0; r < size; r++) {
        int state = 0;
        if (children[r] != 0) {
            CHECK(waitpid(children[r], &state, 0) == children[r]);
            good = good && WIFEXITED(state) && WEXITSTATUS(state) == 0;
        }
    }
    CHECK(good);
}

static bool opened(const mp_rank *rank, mp_group **out) {
    return expect(mp__group_open(rank, "", out) == MP_OK, rank, "has not met the others");
}

/* ---- what they compute ---- */

static void store(mp_dtype type, void *target, int64_t i, float value) {
    switch (type) {
    case MP_F64:
        ((double *)target)[i] = (double)value;
        return;
    case MP_F16:
        ((uint16_t *)target)[i] = mp_to_f16(value);
        return;
    case MP_BF16:
        ((uint16_t *)target)[i] = mp_to_bf16(value);
        return;
    case MP_I64:
        ((int64_t *)target)[i] = (int64_t)value;
        return;
    case MP_BOOL:
        ((uint8_t *)target)[i] = (uint8_t)((int)value & 1);
        return;
    default:
        ((float *)target)[i] = value;
    }
}

/* Small integers, which are exact in every type, and so are their sums. */
static float value_of(int rank, int64_t i) {
    return (float)(((int)i * 7 + rank * 3) % 16);
}

enum { COUNT = 4 * RANKS };

static float wanted(const mp_collective *what, const mp_rank *rank, int64_t i) {
    float sum = 0;
    switch (what->kind) {
    case MP_ALL_GATHER:
        return value_of((int)(i / what->count), i % what->count);
    case MP_ALL_TO_ALL:
        return value_of((int)(i / (what->count / rank->size)),
                        rank->rank * (what->count / rank->size) + i % (what->count / rank->size));
    case MP_ALL_REDUCE:
        break;
    }
    for (int r = 0; r < rank->size; r++) {
        sum += value_of(r, i);
    }
    return sum;
}

static bool computes(mp_group *group, const mp_rank *rank, mp_collective what) {
    char source[COUNT * 8], target[COUNT * RANKS * 8], want[COUNT * RANKS * 8];
    const int64_t out = what.kind == MP_ALL_GATHER ? what.count * rank->size : what.count;
    memset(target, 0, sizeof target);
    for (int64_t i = 0; i < what.count; i++) {
        store(what.type, source, i, value_of(rank->rank, i));
    }
    for (int64_t i = 0; i < out; i++) {
        store(what.type, want, i, wanted(&what, rank, i));
    }
    return expect(mp__group_run(group, &what, source, target) == MP_OK, rank, "fails") &&
           expect(memcmp(target, want, (size_t)out * mp_dtype_size(what.type)) == 0, rank,
                  "has other values");
}

static bool computes_everything(const mp_rank *rank) {
    static const mp_dtype types[] = {MP_F32, MP_F64, MP_F16, MP_BF16, MP_I64, MP_BOOL};
    mp_group *group = NULL;
    bool good = opened(rank, &group);
    for (size_t t = 0; t < MP_COUNT_OF(types) && good; t++) {
        for (int kind = t < 4 ? MP_ALL_REDUCE : MP_ALL_GATHER; kind <= MP_ALL_TO_ALL; kind++) {
            const mp_collective what = {
                .kind = (mp_collective_kind)kind, .type = types[t], .count = COUNT};
            good = good && computes(group, rank, what);
        }
    }
    mp__group_close(group);
    return good;
}

TEST(rank_four_compute_everything) {
    run_ranks(computes_everything, RANKS, 0, TIMEOUT_MS);
}

TEST(rank_one_computes_alone) {
    run_ranks(computes_everything, 1, 0, TIMEOUT_MS);
}

static bool sums_much(const mp_rank *rank) {
    enum { MANY = 3 << 20 }; /* more than sockets hold */
    const mp_collective what = {.kind = MP_ALL_REDUCE, .type = MP_F32, .count = MANY};
    float *source = malloc(MANY * sizeof *source);
    float *target = malloc(MANY * sizeof *target);
    mp_group *group = NULL;
    bool good = source != NULL && target != NULL && opened(rank, &group);
    for (int64_t i = 0; i < MANY && good; i++) {
        source[i] = value_of(rank->rank, i % 1000);
    }
    good = good && expect(mp__group_run(group, &what, source, target) == MP_OK, rank, "fails");
    for (int64_t i = 0; i < MANY && good; i++) {
        good = expect(target[i] == wanted(&what, rank, i % 1000), rank, "has another sum");
    }
    mp__group_close(group);
    free(source);
    free(target);
    return good;
}

TEST(rank_sums_of_megabytes) {
    run_ranks(sums_much, 2, 0, TIMEOUT_MS);
}

/* ---- who is not there ---- */

static bool says(const mp_rank *rank, mp_status status, mp_status wanted_status, const char *text) {
    return expect(status == wanted_status, rank, "does not fail as it should") &&
           expect(strstr(mp_error_message(), text) != NULL, rank, text);
}

static bool misses_rank_two(const mp_rank *rank) {
    mp_group *group = NULL;
    const mp_status status = mp__group_open(rank, "", &group);
    return says(rank, status, MP_DEVICE, "of 4 ranks 1 did not come within 0.7 s: rank 2;");
}

TEST(rank_that_never_comes) {
    run_ranks(misses_rank_two, RANKS, 1u << 2, SHORT_MS);
}

static bool misses_rank_zero(const mp_rank *rank) {
    mp_group *group = NULL;
    const mp_status status = mp__group_open(rank, "", &group);
    return says(rank, status, MP_DEVICE, "rank 0 is not at 127.0.0.1");
}

TEST(rank_zero_that_never_comes) {
    run_ranks(misses_rank_zero, 2, 1, SHORT_MS);
}

static const mp_collective four_sums = {.kind = MP_ALL_REDUCE, .type = MP_F32, .count = 4};

static bool rank_two_is_killed(const mp_rank *rank) {
    float source[4] = {0}, target[4];
    mp_group *group = NULL;
    if (!opened(rank, &group) || mp__group_run(group, &four_sums, source, target) != MP_OK) {
        return false;
    }
    if (rank->rank == 2) {
        _exit(0);
    }
    const bool good = says(rank, mp__group_run(group, &four_sums, source, target), MP_DEVICE,
                           "rank 2: it has gone") &&
                      says(rank, mp__group_run(group, &four_sums, source, target), MP_DEVICE,
                           "restart all ranks") &&
                      says(rank, mp__group_health(group), MP_DEVICE, "rank 2: it has gone");
    mp__group_close(group);
    return good;
}

TEST(rank_that_dies_in_between) {
    run_ranks(rank_two_is_killed, RANKS, 0, TIMEOUT_MS);
}

static bool rank_zero_is_killed(const mp_rank *rank) {
    float source[4] = {0}, target[4];
    mp_group *group = NULL;
    if (!opened(rank, &group) || mp__group_run(group, &four_sums, source, target) != MP_OK) {
        return false;
    }
    if (rank->rank == 0) {
        _exit(0);
    }
    return says(rank, mp__group_run(group, &four_sums, source, target), MP_DEVICE,
                "rank 0: it has");
}

TEST(rank_zero_that_dies_in_between) {
    run_ranks(rank_zero_is_killed, RANKS, 0, TIMEOUT_MS);
}

static bool rank_three_hangs(const mp_rank *rank) {
    float source[4] = {0}, target[4];
    mp_group *group = NULL;
    bool good = opened(rank, &group);
    if (rank->rank == 3) {
        (void)usleep(3 * SHORT_MS * 1000);
        good = good && says(rank, mp__group_run(group, &four_sums, source, target), MP_DEVICE,
                            "rank 3 did not come to AllReduce");
    } else {
        good = good && says(rank, mp__group_run(group, &four_sums, source, target), MP_DEVICE,
                            "rank 3 did not come to AllReduce within 0.7 s");
    }
    mp__group_close(group);
    return good;
}

TEST(rank_that_hangs) {
    run_ranks(rank_three_hangs, RANKS, 0, SHORT_MS);
}

/* Others hear of a break between two pieces of work without asking. */
static bool one_breaks(const mp_rank *rank, int which, const char *text) {
    mp_group *group = NULL;
    bool good = opened(rank, &group);
    if (good && rank->rank == which) {
        (void)MP_FAIL(DEVICE, "a GPU of the test's is broken");
        mp__group_break(group);
    }
    for (int i = 0; i < 1000 && good && mp__group_health(group) == MP_OK; i++) {
        (void)usleep(5000);
    }
    good = good && says(rank, mp__group_health(group), MP_DEVICE,
                        rank->rank == which ? "a GPU of the test's is broken" : text);
    mp__group_close(group);
    return good;
}

static bool rank_zero_breaks(const mp_rank *rank) {
    return one_breaks(rank, 0, "a GPU of the test's is broken");
}

static bool rank_three_breaks(const mp_rank *rank) {
    return one_breaks(rank, 3, "rank 3: a GPU of the test's is broken");
}

TEST(rank_hears_of_a_break) {
    run_ranks(rank_zero_breaks, RANKS, 0, TIMEOUT_MS);
    run_ranks(rank_three_breaks, RANKS, 0, TIMEOUT_MS);
}

/* What all agreed on is not asked for again, even where nobody is left to ask. */
static bool agrees_once(const mp_rank *rank) {
    mp_collective what = four_sums;
    mp_group *group = NULL;
    bool good = opened(rank, &group);
    for (int64_t i = 0; i < 2 * 9 && good; i++) {
        what.count = 1 + i / 2;
        good = expect(mp__group_agree_once(group, &what) == MP_OK, rank, "does not agree");
    }
    if (rank->rank == 1) {
        return good; /* and is gone */
    }
    what.count = 3;
    good = good && expect(mp__group_agree_once(group, &what) == MP_OK, rank, "asks again");
    what.type = MP_F16;
    good = good && says(rank, mp__group_agree_once(group, &what), MP_DEVICE, "rank 1: it has gone");
    what.type = MP_F32;
    good = good && says(rank, mp__group_agree_once(group, &what), MP_DEVICE, "restart all ranks");
    mp__group_close(group);
    return good;
}

TEST(rank_agrees_once) {
    run_ranks(agrees_once, 2, 0, TIMEOUT_MS);
}

/* ---- who does something else ---- */

static bool rank_one_differs(const mp_rank *rank) {
    static const mp_collective others[] = {
        {.kind = MP_ALL_REDUCE, .type = MP_F32, .count = 8},
        {.kind = MP_ALL_REDUCE, .type = MP_F16, .count = 4},
        {.kind = MP_ALL_GATHER, .type = MP_F32, .count = 4},
    };
    static const char *const texts[] = {
        "rank 1 does AllReduce of 8 float where rank 0 does AllReduce of 4 float",
        "rank 1 does AllReduce of 4 float16 where rank 0 does AllReduce of 4 float",
        "rank 1 does AllGather of 4 float where rank 0 does AllReduce of 4 float",
    };
    float source[8] = {1, 1, 1, 1}, target[32] = {0};
    mp_group *group = NULL;
    bool good = opened(rank, &group);
    for (size_t i = 0; i < MP_COUNT_OF(others) && good; i++) {
        const mp_collective *what = rank->rank == 1 ? &others[i] : &four_sums;
        good =
            says(rank, mp__group_run(group, what, source, target), MP_INVALID_ARGUMENT, texts[i]);
        good = good && expect(mp__group_run(group, &four_sums, source, target) == MP_OK, rank,
                              "cannot go on after a refusal");
        good = good && expect(target[0] == (float)rank->size, rank, "has another sum");
    }
    mp__group_close(group);
    return good;
}

TEST(rank_that_does_something_else) {
    run_ranks(rank_one_differs, RANKS, 0, TIMEOUT_MS);
}

static bool refused_in_the_first_place(const mp_rank *rank) {
    mp_rank own = *rank;
    mp_group *group = NULL;
    const char *text = NULL;
    if (rank->rank == 1) {
        own.size = 3; /* the environment is another */
        text = "WORLD_SIZE is 3 for rank 1 and 2 for rank 0";
    } else {
        text = "one was refused: WORLD_SIZE is 3";
    }
    return says(&own, mp__group_open(&own, "", &group), MP_DEVICE, text);
}

TEST(rank_with_another_world) {
    run_ranks(refused_in_the_first_place, 2, 0, SHORT_MS);
}

static bool shares_a_gpu(const mp_rank *rank) {
    mp_group *group = NULL;
    return says(rank, mp__group_open(rank, "GPU 0000:01:00.0 of here", &group), MP_DEVICE,
                "ranks 0 and 1 are both on GPU 0000:01:00.0 of here");
}

TEST(rank_on_the_gpu_of_another) {
    run_ranks(shares_a_gpu, 2, 0, SHORT_MS);
}

/* One that is in, and then sends a tensor where it should ask. */
static bool rank_one_speaks_out_of_turn(const mp_rank *rank) {
    float source[4] = {0}, target[4];
    mp_group *group = NULL;
    bool good = opened(rank, &group);
    if (good && rank->rank == 1) {
        good = mp__link_send(group->links[0], MP_LINK_DATA, source, sizeof source,
                             mp_clock_ms() + TIMEOUT_MS) == MP_OK;
    }
    good = good && says(rank, mp__group_run(group, &four_sums, source, target), MP_DEVICE,
                        "rank 1: it sent message 5 of 16 bytes where message 3 of 24 was expected");
    mp__group_close(group);
    return good;
}

TEST(rank_that_speaks_out_of_turn) {
    run_ranks(rank_one_speaks_out_of_turn, RANKS, 0, TIMEOUT_MS);
}

/* ---- strangers ---- */

static int knock(int port) {
    int fd = -1;
    CHECK_OK(mp__link_connect("127.0.0.1", port, mp_clock_ms() + TIMEOUT_MS, &fd));
    return fd;
}

static void send_raw(int fd, const void *bytes, size_t size) {
    CHECK(send(fd, bytes, size, MSG_NOSIGNAL) == (ssize_t)size);
}

TEST(rank_strangers_change_nothing) {
    const int port = free_port();
    const pid_t first = start(computes_everything, rank_of(0, 2, port, TIMEOUT_MS));
    const struct {
        uint32_t mark, word;
        uint64_t size;
    } huge = {0x314b524d, MP_LINK_HELLO, UINT64_MAX}, other = {0x314b524d, MP_LINK_DATA, 4};
    const char *web = "GET / HTTP/1.1\r\n\r\n";
    int fds[6];
    for (size_t i = 0; i < MP_COUNT_OF(fds); i++) {
        fds[i] = knock(port);
    }
    send_raw(fds[0], web, strlen(web));
    send_raw(fds[1], &huge, sizeof huge);
    send_raw(fds[2], &other, sizeof other);
    (void)close(fds[3]);
    send_raw(fds[4], &huge, 5); /* and no more; the last says nothing */
    const int64_t begin = mp_clock_ms();
    const pid_t second = start(computes_everything, rank_of(1, 2, port, TIMEOUT_MS));
    int state = 1;
    CHECK(waitpid(first, &state, 0) == first);
    CHECK_EQ_INT(state, 0);
    CHECK(waitpid(second, &state, 0) == second);
    CHECK_EQ_INT(state, 0);
    CHECK(mp_clock_ms() - begin < 4000); /* less than a stranger may wait */
    for (size_t i = 0; i < MP_COUNT_OF(fds); i++) {
        if (i != 3) {
            (void)close(fds[i]);
        }
    }
}

/* A pair of connected sockets: what comes out at one end when the other sends `bytes`. */
static mp_status heard(const void *bytes, size_t size, mp_link_word word, size_t wanted_size) {
    int ends[2];
    char room[64];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    send_raw(ends[0], bytes, size);
    CHECK(shutdown(ends[0], SHUT_WR) == 0);
    const mp_status status =
        mp__link_receive(ends[1], word, room, wanted_size, mp_clock_ms() + SHORT_MS);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return status;
}

TEST(rank_link_takes_what_was_asked_for) {
    struct {
        uint32_t mark, word;
        uint64_t size;
        char bytes[16];
    } m = {0x314b524d, MP_LINK_DATA, 8, "12345678"};
    CHECK_OK(heard(&m, 24, MP_LINK_DATA, 8));
    CHECK(heard(&m, 24, MP_LINK_DATA, 4) == MP_DEVICE);
    CHECK(strstr(mp_error_message(), "8 bytes where message 5 of 4 was expected") != NULL);
    CHECK(heard(&m, 24, MP_LINK_GO, 8) == MP_DEVICE);
    CHECK(heard(&m, 20, MP_LINK_DATA, 8) == MP_DEVICE);
    CHECK(strstr(mp_error_message(), "it has gone") != NULL);
    CHECK(heard(&m, 3, MP_LINK_DATA, 8) == MP_DEVICE);
    m.word = MP_LINK_REFUSE;
    CHECK(heard(&m, 24, MP_LINK_DATA, 8) == MP_INVALID_ARGUMENT);
    CHECK(strcmp(mp_error_message(), "12345678") == 0);
    m.word = MP_LINK_END;
    CHECK(heard(&m, 24, MP_LINK_DATA, 8) == MP_NOT_FOUND);
    m.size = MP_LINK_TEXT_MAX; /* one more than a sentence has */
    CHECK(heard(&m, 24, MP_LINK_DATA, 8) == MP_DEVICE);
    CHECK(strstr(mp_error_message(), "a sentence of 512 bytes") != NULL);
    m.mark = 0x4d524b31;
    CHECK(heard(&m, 24, MP_LINK_DATA, 8) == MP_DEVICE);
    CHECK(strstr(mp_error_message(), "does not speak") != NULL);
}

TEST(rank_link_takes_no_random_bytes) {
    uint64_t state = test_seed();
    for (int i = 0; i < 3000; i++) {
        uint32_t bytes[16];
        for (size_t k = 0; k < MP_COUNT_OF(bytes); k++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
            bytes[k] = (uint32_t)(state >> 33);
        }
        if (i % 2 == 0) { /* a head that looks right, but for its size */
            bytes[0] = 0x314b524d;
            bytes[1] = 1 + bytes[1] % 8;
        }
        CHECK(heard(bytes, (size_t)(i % 65), MP_LINK_DATA, 32) != MP_OK);
    }
}

TEST(rank_link_does_not_wait_for_ever) {
    int ends[2];
    char byte = 0;
    static char much[4 << 20];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    const int64_t begin = mp_clock_ms();
    CHECK(mp__link_receive(ends[0], MP_LINK_DATA, &byte, 1, begin + 100) == MP_DEVICE);
    CHECK(strstr(mp_error_message(), "did not answer in time") != NULL);
    CHECK(mp__link_send(ends[0], MP_LINK_DATA, much, sizeof much, begin + 200) == MP_DEVICE);
    CHECK(mp_clock_ms() - begin < TIMEOUT_MS);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

/* ---- the environment ---- */

static const char *const variables[] = {"RANK",
                                        "WORLD_SIZE",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "MILLPOND_RANK_PORT",
                                        "MILLPOND_RANK_TIMEOUT",
                                        "MILLPOND_RANK_DIRECT"};

static mp_status read_with(const char *const *pairs, mp_rank *out) {
    for (size_t i = 0; i < MP_COUNT_OF(variables); i++) {
        CHECK(unsetenv(variables[i]) == 0);
    }
    for (; *pairs != NULL; pairs += 2) {
        CHECK(setenv(pairs[0], pairs[1], 1) == 0);
    }
    return mp__rank_read(out);
}

TEST(rank_environment) {
    mp_rank rank;
    NEEDS_OWN_PROCESS();
    CHECK_OK(read_with((const char *const[]){"RANK", "2", "WORLD_SIZE", "4", "PMI_RANK", "1",
                                             "MASTER_ADDR", "node7", "MASTER_PORT", "1234",
                                             "MILLPOND_RANK_TIMEOUT", "7", NULL},
                       &rank));
    CHECK_EQ_INT(rank.rank, 2);
    CHECK_EQ_INT(rank.size, 4);
    CHECK_EQ_INT(rank.port, 1235);
    CHECK_EQ_INT(rank.timeout_ms, 7000);
    CHECK(strcmp(rank.host, "node7") == 0);
    CHECK_OK(read_with((const char *const[]){"OMPI_COMM_WORLD_RANK", "1", "OMPI_COMM_WORLD_SIZE",
                                             "2", "MILLPOND_RANK_PORT", "77",
                                             "MILLPOND_RANK_DIRECT", "65536", NULL},
                       &rank));
    CHECK_EQ_INT(rank.direct_bytes, 65536);
    CHECK_EQ_INT(rank.rank, 1);
    CHECK_EQ_INT(rank.port, 77);
    CHECK(strcmp(rank.host, "127.0.0.1") == 0);
    CHECK_OK(read_with((const char *const[]){"PMI_RANK", "0", "PMI_SIZE", "1", NULL}, &rank));
    CHECK_EQ_INT(rank.size, 1);
    CHECK_EQ_INT(rank.direct_bytes, -1);
    CHECK(read_with((const char *const[]){NULL}, &rank) == MP_NOT_FOUND);
    CHECK(strstr(mp_error_message(), "torchrun or mpirun") != NULL);
    CHECK(read_with((const char *const[]){"RANK", "0", NULL}, &rank) == MP_INVALID_ARGUMENT);
    CHECK(strstr(mp_error_message(), "set both") != NULL);
    static const char *const wrong[][4] = {
        {"RANK", "4", "WORLD_SIZE", "4"},    {"RANK", "-1", "WORLD_SIZE", "4"},
        {"RANK", "0", "WORLD_SIZE", "0"},    {"RANK", "0", "WORLD_SIZE", "1025"},
        {"RANK", "zero", "WORLD_SIZE", "2"}, {"RANK", "0", "WORLD_SIZE", "99999999999999999999"}};
    for (size_t i = 0; i < MP_COUNT_OF(wrong); i++) {
        const char *const pairs[] = {wrong[i][0], wrong[i][1], wrong[i][2], wrong[i][3], NULL};
        CHECK(read_with(pairs, &rank) == MP_INVALID_ARGUMENT);
    }
    CHECK(read_with(
              (const char *const[]){"RANK", "0", "WORLD_SIZE", "2", "MASTER_PORT", "65536", NULL},
              &rank) == MP_INVALID_ARGUMENT);
    CHECK(read_with((const char *const[]){"RANK", "0", "WORLD_SIZE", "2", "MILLPOND_RANK_DIRECT",
                                          "1048577", NULL},
                    &rank) == MP_INVALID_ARGUMENT);
}
