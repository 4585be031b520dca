/* stand_in_terms.h - terms of expressions, computed as a table says (stand_in_args.h). Each has the
 * bits that a fused kernel's own text gives.
 *
 * A value is kept in 64 bits: floats as those of float, integers as int64 or uint64, of which each
 * result is cut to its type. So three families of types are enough: what a function gives for
 * narrower integers is what it gives for wide ones, cut. Doubles are left to the compiler.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef MP_KERNEL_STAND_IN_TERMS_H
#define MP_KERNEL_STAND_IN_TERMS_H

#include "kernel/core/prelude.h"
#include "kernel/fused/stand_in_args.h"
#include "kernel/pointwise/cast_value.h" /* c_to_... of float */

/* ---- the families ---- */

typedef float k_real, kc_real;
typedef int64_t k_whole, kc_whole;
typedef uint64_t k_plain, kc_plain;
#define K_IS_FLOAT_real   1
#define K_IS_FLOAT_whole  0
#define K_IS_FLOAT_plain  0
#define K_IS_SIGNED_real  1
#define K_IS_SIGNED_whole 1
#define K_IS_SIGNED_plain 0
#define K_MATH_real(fn)   fn##f

K_FN uint64_t s_of_real(float value) {
    return k_bits_of_float(value);
}

K_FN uint64_t s_of_whole(int64_t value) {
    return (uint64_t)value;
}

K_FN uint64_t s_of_plain(uint64_t value) {
    return value;
}

K_FN float s_real(uint64_t slot) {
    return k_float_of_bits((uint32_t)slot);
}

/* The number of a row is its place in pointwise.def. */
enum {
#define K_POINTWISE(word, ...) S_##word,
#include "kernel/pointwise/pointwise.def"
#undef K_POINTWISE
};

#define S_YES               ~, 1, ~
#define S_SECOND(a, b, ...) b
#define S_PICK(...)         S_SECOND(__VA_ARGS__)
#define S_ROW_0(word, put, expression)
#define S_ROW_1(word, put, expression) \
    case S_##word:                     \
        return put((expression));
#define S_PUT_T(value)    K_JOIN(s_of_, K_T0)((TC)value)
#define S_PUT_bool(value) (value ? 1u : 0u)

/* The types of a family, and its helpers by names of their own. */
#define TC       K_JOIN(kc_, K_T0)
#define S_OF(fn) K_JOIN(fn, K_JOIN(_, K_T0))
#define p_abs    S_OF(p_abs)
#define p_sign   S_OF(p_sign)
#define p_clamp  S_OF(p_clamp)
#define p_max    S_OF(p_max)
#define p_min    S_OF(p_min)
#define p_div    S_OF(p_div)
#define p_fmod   S_OF(p_fmod)
#define p_mod    S_OF(p_mod)
#define p_shift  S_OF(p_shift)
#define p_moved  S_OF(p_moved)
#define p_shrink S_OF(p_shrink)
/* Of 16 bits or 32, which a term's type says and not the family. */
#define p_gelu(x, by_tanh) (narrow ? p_gelu_narrow(x, by_tanh) : p_gelu_wide(x, by_tanh))

#undef K_T0
#define K_T0 real
#include "kernel/fused/stand_in_family.h"
#undef K_T0
#define K_T0 whole
#include "kernel/fused/stand_in_family.h"
#undef K_T0
#define K_T0 plain
#include "kernel/fused/stand_in_family.h"

/* ---- values ---- */

K_FN int s_is_float(int32_t type) {
    return type == K_ELEMENT_F32 || type == K_ELEMENT_F16 || type == K_ELEMENT_BF16;
}

K_FN int s_is_signed(int32_t type) {
    return type == K_ELEMENT_I8 || type == K_ELEMENT_I16 || type == K_ELEMENT_I32 ||
           type == K_ELEMENT_I64;
}

/* Bytes of an element. */
K_FN int32_t s_size(int32_t type) {
    switch (type) {
    case K_ELEMENT_BOOL:
    case K_ELEMENT_I8:
    case K_ELEMENT_U8:
        return 1;
    case K_ELEMENT_F16:
    case K_ELEMENT_BF16:
    case K_ELEMENT_I16:
    case K_ELEMENT_U16:
        return 2;
    case K_ELEMENT_F32:
    case K_ELEMENT_I32:
    case K_ELEMENT_U32:
        return 4;
    default:
        return 8;
    }
}

/* An integer cut to its type; other values as they are. */
K_FN uint64_t s_cut(int32_t type, uint64_t slot) {
    switch (type) {
    case K_ELEMENT_I8:
        return (uint64_t)(int64_t)(int8_t)slot;
    case K_ELEMENT_I16:
        return (uint64_t)(int64_t)(int16_t)slot;
    case K_ELEMENT_I32:
        return (uint64_t)(int64_t)(int32_t)slot;
    case K_ELEMENT_U8:
        return (uint8_t)slot;
    case K_ELEMENT_U16:
        return (uint16_t)slot;
    case K_ELEMENT_U32:
        return (uint32_t)slot;
    default:
        return slot;
    }
}

/* A float rounded to its type. */
K_FN float s_round(int32_t type, float value) {
    switch (type) {
    case K_ELEMENT_F16:
        return k_load_f16(k_store_f16(value));
    case K_ELEMENT_BF16:
        return k_load_bf16(k_store_bf16(value));
    default:
        return value;
    }
}

K_FN uint64_t s_load(int32_t type, const void *x, int64_t i) {
    switch (type) {
    case K_ELEMENT_F32:
        return ((const uint32_t *)x)[i];
    case K_ELEMENT_F16:
        return s_of_real(k_load_f16(((const k_f16 *)x)[i]));
    case K_ELEMENT_BF16:
        return s_of_real(k_load_bf16(((const k_bf16 *)x)[i]));
    case K_ELEMENT_BOOL:
        return k_load_bool(((const k_bool *)x)[i]);
    case K_ELEMENT_I8:
    case K_ELEMENT_U8:
        return s_cut(type, ((const uint8_t *)x)[i]);
    case K_ELEMENT_I16:
    case K_ELEMENT_U16:
        return s_cut(type, ((const uint16_t *)x)[i]);
    case K_ELEMENT_I32:
    case K_ELEMENT_U32:
        return s_cut(type, ((const uint32_t *)x)[i]);
    default:
        return ((const uint64_t *)x)[i];
    }
}

K_FN void s_store(int32_t type, void *out, int64_t i, uint64_t slot) {
    switch (type) {
    case K_ELEMENT_F32:
    case K_ELEMENT_I32:
    case K_ELEMENT_U32:
        ((uint32_t *)out)[i] = (uint32_t)slot;
        break;
    case K_ELEMENT_F16:
        ((k_f16 *)out)[i] = k_store_f16(s_real(slot));
        break;
    case K_ELEMENT_BF16:
        ((k_bf16 *)out)[i] = k_store_bf16(s_real(slot));
        break;
    case K_ELEMENT_BOOL:
    case K_ELEMENT_I8:
    case K_ELEMENT_U8:
        ((uint8_t *)out)[i] = (uint8_t)slot;
        break;
    case K_ELEMENT_I16:
    case K_ELEMENT_U16:
        ((uint16_t *)out)[i] = (uint16_t)slot;
        break;
    default:
        ((uint64_t *)out)[i] = slot;
        break;
    }
}

/* ---- terms ---- */

/* As cast_value.h casts what c_to_... do not decide. */
K_FN uint64_t s_cast_float(int32_t type, float x) {
    switch (type) {
    case K_ELEMENT_BOOL:
        return x != 0.0f;
    case K_ELEMENT_U64:
    case K_ELEMENT_U32:
        return s_cut(type, c_to_u64(x));
    case K_ELEMENT_I64:
        return (uint64_t)c_to_i64(x);
    default:
        return s_is_float(type) ? s_of_real(s_round(type, x))
                                : s_cut(type, (uint64_t)(int64_t)c_to_i32(x));
    }
}

K_FN uint64_t s_cast(const k_stand_in_term *term, uint64_t x) {
    const int32_t from = term->from, type = term->type;
    if (s_is_float(from)) {
        return s_cast_float(type, s_round(from, s_real(x)));
    }
    if (s_is_float(type)) {
        return s_of_real(s_round(type, s_is_signed(from) ? (float)(int64_t)x : (float)x));
    }
    return type == K_ELEMENT_BOOL ? x != 0 : s_cut(type, x);
}

/* Of operands that may be signed where the function is computed without signs. */
K_FN uint64_t s_call(const k_stand_in_term *term, uint64_t x, uint64_t y) {
    const int32_t from = term->from;
    if (s_is_float(from)) {
        return s_call_real(term->function, s_real(x), s_real(y), term->a, term->b,
                           from != K_ELEMENT_F32);
    }
    x = s_cut(from, x);
    y = s_cut(from, y);
    return s_cut(term->type,
                 s_is_signed(from)
                     ? s_call_whole(term->function, (int64_t)x, (int64_t)y, term->a, term->b, 0)
                     : s_call_plain(term->function, x, y, term->a, term->b, 0));
}

K_FN uint64_t s_term(const k_stand_in_term *term, const uint64_t *slots) {
    const uint64_t x = slots[term->x[0]], y = slots[term->x[1]];
    switch (term->kind) {
    case K_STAND_IN_FUNCTION:
        return s_call(term, x, y);
    case K_STAND_IN_CAST:
        return s_cast(term, x);
    default:
        return x != 0 ? y : slots[term->x[2]];
    }
}

#endif
