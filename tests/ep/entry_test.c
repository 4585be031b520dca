/* entry_test.c - the two exported functions against runtimes of the test's own: old ones, strange
 * ones, and callers that leave arguments out.
 * SPDX-License-Identifier: Apache-2.0 */
#include "ep/session/plugin.h"

#include "base/log.h"
#include "unit/test.h"

#include <stdlib.h>

OrtStatus *CreateEpFactories(const char *registration, const OrtApiBase *base,
                             const OrtLogger *logger, OrtEpFactory **factories,
                             size_t factories_max, size_t *factory_count);
OrtStatus *ReleaseEpFactory(OrtEpFactory *factory);

/* ---- a runtime that has little but a version ---- */

static struct {
    OrtErrorCode code;
    char message[512];
    int lines; /* of the log */
} seen;

static const char *version_text;
static uint32_t version_asked; /* the highest */
static uint32_t version_most;  /* up to which the runtime has a table */

static OrtStatus *create_status(OrtErrorCode code, const char *message) {
    seen.code = code;
    CHECK(strlen(message) < sizeof seen.message);
    memcpy(seen.message, message, strlen(message) + 1);
    return (OrtStatus *)(void *)&seen;
}

static void release_status(OrtStatus *status) {
    CHECK((void *)status == (void *)&seen);
}

static OrtStatus *log_message(const OrtLogger *logger, OrtLoggingLevel level, const char *message,
                              const char *file, int line, const char *function) {
    (void)logger, (void)level, (void)message, (void)file, (void)line, (void)function;
    seen.lines++;
    return NULL;
}

static const OrtEpApi ep_api;

static const OrtEpApi *get_ep_api(void) {
    return &ep_api;
}

static const OrtApi api = {.CreateStatus = create_status,
                           .ReleaseStatus = release_status,
                           .Logger_LogMessage = log_message,
                           .GetEpApi = get_ep_api};
static const OrtApi other_api = {.CreateStatus = create_status, .GetEpApi = get_ep_api};
static const OrtApi *given = &api;

static const OrtApi *get_api(uint32_t version) {
    version_asked = version > version_asked ? version : version_asked;
    return version <= version_most ? given : NULL;
}

static const char *get_version(void) {
    return version_text;
}

static const OrtApiBase base = {.GetApi = get_api, .GetVersionString = get_version};

static OrtStatus *create(OrtEpFactory **factory, size_t *count) {
    return CreateEpFactories("Millpond", &base, NULL, factory, 1, count);
}

TEST(entry_asks_for_no_version_above_the_runtime) {
    NEEDS_OWN_PROCESS();
    const struct {
        const char *text;
        uint32_t want;
    } rows[] = {{"1.26.0", 26}, {"1.28.3-dev+cuda", 28}, {"1.29", 29}, {"1.31.1", 29}};
    version_most = 1000;
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        OrtEpFactory *factory = NULL;
        size_t count = 7;
        version_text = rows[i].text;
        version_asked = 0;
        CHECK(create(&factory, &count) == NULL);
        CHECK_EQ_INT(count, 1);
        CHECK_EQ_INT(version_asked, rows[i].want);
        CHECK(strcmp(factory->GetName(factory), "CudaPluginExecutionProvider") == 0);
        CHECK(ReleaseEpFactory(factory) == NULL);
    }
}

/* The registration says which of its names the provider goes by. */
TEST(entry_takes_the_name_of_onnxruntimes_cuda_provider) {
    NEEDS_OWN_PROCESS();
    const char *const rows[][2] = {{"CUDAExecutionProvider", "CUDAExecutionProvider"},
                                   {"cudaexecutionprovider", "CudaPluginExecutionProvider"},
                                   {"CUDAExecutionProvider.virtual", "CudaPluginExecutionProvider"},
                                   {"", "CudaPluginExecutionProvider"},
                                   {NULL, "CudaPluginExecutionProvider"}};
    version_text = "1.31.1";
    version_most = 1000;
    for (size_t i = 0; i < MP_COUNT_OF(rows); i++) {
        OrtEpFactory *factory = NULL;
        size_t count = 0;
        CHECK(CreateEpFactories(rows[i][0], &base, NULL, &factory, 1, &count) == NULL);
        CHECK(strcmp(factory->GetName(factory), rows[i][1]) == 0);
        CHECK(ReleaseEpFactory(factory) == NULL);
    }
}

TEST(entry_refuses_old_and_strange_versions) {
    NEEDS_OWN_PROCESS();
    const char *const texts[] = {"1.25.9",
                                 "1.2",
                                 "0.31.0",
                                 "2.0.0",
                                 "",
                                 "1.",
                                 "1.x",
                                 "garbage",
                                 NULL,
                                 "1.-5",
                                 "1.99999999999999999999999"};
    version_most = 1000;
    for (size_t i = 0; i < MP_COUNT_OF(texts); i++) {
        OrtEpFactory *factory = NULL;
        size_t count = 7;
        version_text = texts[i];
        version_asked = 0;
        CHECK(create(&factory, &count) != NULL);
        CHECK_EQ_INT(seen.code, ORT_NOT_IMPLEMENTED);
        CHECK_STR_HAS(seen.message, "1.26 or newer");
        CHECK_STR_HAS(seen.message, texts[i] != NULL ? texts[i] : "unknown");
        CHECK_EQ_INT(version_asked, 1);
        CHECK(factory == NULL && count == 0);
    }
}

TEST(entry_survives_a_runtime_without_tables) {
    NEEDS_OWN_PROCESS();
    OrtEpFactory *factory = NULL;
    size_t count = 7;
    version_text = "1.31.0";
    version_most = 1; /* the oldest table alone, to make a status with */
    CHECK(create(&factory, &count) != NULL);
    CHECK_EQ_INT(seen.code, ORT_NOT_IMPLEMENTED);
    version_most = 0; /* not even that */
    CHECK(create(&factory, &count) == NULL);
    CHECK(factory == NULL && count == 0);
    version_text = "1.3";
    CHECK(create(&factory, &count) == NULL);
    CHECK(factory == NULL && count == 0);
}

TEST(entry_checks_its_arguments) {
    NEEDS_OWN_PROCESS();
    OrtEpFactory *factory = NULL;
    size_t count = 7;
    version_text = "1.31.1";
    version_most = 29;
    CHECK(CreateEpFactories("x", NULL, NULL, &factory, 1, &count) == NULL);
    CHECK(CreateEpFactories("x", &base, NULL, NULL, 1, &count) != NULL);
    CHECK_EQ_INT(seen.code, ORT_INVALID_ARGUMENT);
    CHECK_EQ_INT(count, 0);
    CHECK(CreateEpFactories("x", &base, NULL, &factory, 1, NULL) != NULL);
    CHECK(CreateEpFactories("x", &base, NULL, &factory, 0, &count) != NULL);
    CHECK(factory == NULL);
    CHECK(CreateEpFactories(NULL, &base, NULL, &factory, 1, &count) == NULL);
    CHECK(ReleaseEpFactory(factory) == NULL);
    CHECK(ReleaseEpFactory(NULL) == NULL);
}

TEST(entry_factory_releases_nothing_without_a_word) {
    NEEDS_OWN_PROCESS();
    OrtEpFactory *factory = NULL;
    size_t count = 0;
    version_text = "1.31.1";
    version_most = 29;
    CHECK(create(&factory, &count) == NULL);
    factory->ReleaseAllocator(factory, NULL);
    factory->ReleaseEp(factory, NULL);
    CHECK(ReleaseEpFactory(factory) == NULL);
}

TEST(entry_refuses_a_second_runtime) {
    NEEDS_OWN_PROCESS();
    OrtEpFactory *factory = NULL;
    OrtEpFactory *second = NULL;
    size_t count = 0;
    version_text = "1.31.1";
    version_most = 29;
    CHECK(create(&factory, &count) == NULL);
    given = &other_api;
    CHECK(create(&second, &count) != NULL);
    CHECK_STR_HAS(seen.message, "another ONNX Runtime");
    CHECK(second == NULL && count == 0);
    given = &api;
    CHECK(create(&second, &count) == NULL);
    CHECK(ReleaseEpFactory(factory) == NULL);
    CHECK(ReleaseEpFactory(second) == NULL);
}

TEST(entry_logs_to_the_runtime_while_a_factory_lives) {
    NEEDS_OWN_PROCESS();
    OrtEpFactory *factories[2] = {NULL, NULL};
    size_t count = 0;
    const OrtLogger *logger = (const OrtLogger *)(const void *)&seen;
    version_text = "1.31.1";
    version_most = 29;
    for (int round = 0; round < 2; round++) {
        seen.lines = 0;
        for (int i = 0; i < 2; i++) {
            CHECK(CreateEpFactories("x", &base, logger, &factories[i], 1, &count) == NULL);
        }
        MP_LOG(ERROR, "one");
        CHECK_EQ_INT(seen.lines, 1);
        CHECK(ReleaseEpFactory(factories[0]) == NULL);
        MP_LOG(ERROR, "two");
        CHECK_EQ_INT(seen.lines, 2);
        CHECK(ReleaseEpFactory(factories[1]) == NULL);
        MP_LOG(ERROR, "this line belongs on stderr");
        CHECK_EQ_INT(seen.lines, 2);
    }
}
