/* ort_abi.h - ONNX Runtime's C and EP ABI, as far as a plugin needs it.
 *
 * Names of types and members are those of the official headers, so that a source file builds
 * against either. ort.h chooses; include that one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_EP_ORT_ABI_H
#define MP_EP_ORT_ABI_H

#include "ep/abi/ort_abi_api.h"
#include "ep/abi/ort_abi_ep.h"

#endif
