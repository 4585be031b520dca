/* plan_write.h - what a plan does, for people.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_PLAN_WRITE_H
#define MP_OP_PLAN_WRITE_H

#include "op/core/plan.h"

#include <stdio.h>

/* Writes a JSON list with an object for each step: {"kind":"kernel","name":...,"blocks":...,
 * "lanes":...}, {"kind":"product","m":...,"n":...,"k":...,"batch":...}, {"kind":"convolution"},
 * {"kind":"copy","bytes":...}, {"kind":"fill","bytes":...}, {"kind":"host","bytes":...}. */
void mp_plan_write(const mp_plan *plan, FILE *out);

#endif
