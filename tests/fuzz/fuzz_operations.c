/* fuzz_operations.c - any bytes as a list of operations on a pool, checked against the model.
 *
 * The first byte is the pool's configuration, the second the device's mode and seed; then
 * MODEL_OP_BYTES an operation.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fuzz.h"

#include "device/host/host_device.h"
#include "pool/model.h"

#include <stdio.h>
#include <stdlib.h>

enum { OPERATIONS_MAX = 400 };

const char *const fuzz_words[] = {NULL};

static _Noreturn void give_up(const model_plan *plan, const model_result *result) {
    (void)fprintf(stderr, "config %s, operation %zu: %s\n", plan->config->name,
                  (size_t)result->done, result->why);
    for (uint64_t i = 0; i < plan->count && i <= result->done; i++) {
        char text[128];
        const model_op op = model_op_from(plan->bytes + i * MODEL_OP_BYTES);
        model_op_print(&op, text, sizeof text);
        (void)fprintf(stderr, "  %s\n", text);
    }
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { // NOLINT
    if (size < 2 + MODEL_OP_BYTES) {
        return 0;
    }
    const mp_host_config host = {.mode = data[1] % 2 == 0 ? MP_HOST_EAGER : MP_HOST_ADVERSARIAL,
                                 .seed = data[1],
                                 .memory_bytes = (size_t)16 << 20};
    const uint64_t count = (size - 2) / MODEL_OP_BYTES;
    const model_plan plan = {.config = &model_configs[data[0] % model_config_count],
                             .count = count < OPERATIONS_MAX ? count : OPERATIONS_MAX,
                             .bytes = data + 2,
                             .check_often = true};
    mp_device *device = NULL;
    model_result result;
    if (mp__host_device_create(&host, &device) != MP_OK) {
        abort();
    }
    if (!model_run(device, &plan, &result)) {
        give_up(&plan, &result);
    }
    if (mp__host_device_destroy(device) != 0) {
        (void)snprintf(result.why, sizeof result.why, "something of the device was left");
        give_up(&plan, &result);
    }
    return 0;
}
