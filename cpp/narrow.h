// Elements of narrow types: between ORT's packed memory and the arrays that hold them.
#pragma once

#include <cstddef>

#include "dtype.h"

namespace ort_mlx {

// `held` gets one value of `type.held` for each of the `count` packed elements.
void unpack_narrow(const ElementType& type, const void* packed, size_t count, void* held);

// The other way round. Values are those of the type: the ops that make them see to that.
void pack_narrow(const ElementType& type, const void* held, size_t count, void* packed);

}  // namespace ort_mlx
