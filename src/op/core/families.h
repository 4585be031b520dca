/* families.h - declares every family that op_list.def names.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_OP_FAMILIES_H
#define MP_OP_FAMILIES_H

#include "op/core/op.h"

#define MP_OP_FAMILY(name) extern const mp_op_family mp__family_##name;
#include "op/op_list.def"
#undef MP_OP_FAMILY

#endif
