/* Compiles the wide kernels for avx2. */
#include "wide.h"

#if PYES_X86_LEVELS
#undef PYES_SUFFIX
#define PYES_SUFFIX avx2
#define PYES_VECTOR_BYTES 32

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

#include "deviation.c"
#include "gradient.c"
#include "noise.c"
#include "optimizers.c"
#include "perturb.c"
#include "policy.c"
#include "virtual_batch_norm.c"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
