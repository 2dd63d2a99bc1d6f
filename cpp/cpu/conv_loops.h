// Inner loops of convolutions, built once for each instruction set.
#pragma once

#include <cstdint>

namespace ort_mlx::cpu {

// Elements of an input plane that lie at a stride from `from` on, and where they go in a panel's
// row.
struct Piece {
  int64_t from, to, length;
};

// to[rows, columns] = weights[rows, depth] panel[depth, columns], added to it unless `is_first`.
struct PanelProduct {
  const float* weights;
  int64_t weights_stride;
  const float* panel;
  int64_t width;  // of a row of the panel as it lies in memory
  int64_t depth, rows, columns;
  float* to;
  int64_t to_stride;
  bool is_first;
};

struct ConvLoops {
  // to[i] = the sum over taps of weights[t] * from[offsets[t] + i]
  void (*sum_shifted)(float* to, const float* from, const int64_t* offsets, const float* weights,
                      int64_t taps, int64_t n);
  // Rows of n elements: to[r * to_row + i] = from[r * from_row + i * stride]
  void (*copy_rows)(float* to, int64_t to_row, const float* from, int64_t from_row, int64_t stride,
                    int64_t rows, int64_t n);
  int64_t lanes;  // what the width of a panel is a multiple of,
  int64_t widest_panel;
  // A row of a panel from each of `planes` planes, zero where there is no piece.
  void (*gather_pieces)(float* to, int64_t width, const float* from, int64_t plane, int64_t planes,
                        const Piece* pieces, int64_t count, int64_t stride);
  void (*multiply_panel)(const PanelProduct& product);
};

const ConvLoops& conv_loops();

}  // namespace ort_mlx::cpu
