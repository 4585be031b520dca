/* cuda_choice.h - what was found by timing is kept on disk beside the kernels, so that neither the
 * next such question nor the next process has to time again.
 *
 * An answer holds for one GPU, driver and library; with another of them it is not found.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_DEVICE_CUDA_CHOICE_H
#define MP_DEVICE_CUDA_CHOICE_H

#include "device/device.h"

typedef struct cuda_question {
    const mp_device *device;
    const char *kind; /* of the question: the same numbers may mean something else in another */
    size_t version;   /* of the library that answers are about */
    const int64_t *numbers;
    int count;
} cuda_question;

/* Whether `count` numbers were kept for the question. What they say must be checked like any input.
 * Threads: any. Blocks: reads a file. */
bool mp__cuda_choice_recall(const cuda_question *question, int64_t *answer, int count);

/* Threads: any. Blocks: writes a file. */
void mp__cuda_choice_keep(const cuda_question *question, const int64_t *answer, int count);

#endif
