// Memory of someone else's as an array, without a copy.
#pragma once

#include <mlx/array.h>

namespace ort_mlx {

namespace mx = mlx::core;

// Whether this MLX's buffers are plain host memory, as those of its builds without a GPU are. Only
// then can memory be borrowed; the others know their buffers by a handle, on the CPU device as
// well.
bool can_borrow();

// Gives an array without data these bytes, row-major. MLX does not write to them, free them or give
// them away; whoever owns them keeps them alive.
void borrow(mx::array& array, const void* bytes);

}  // namespace ort_mlx
