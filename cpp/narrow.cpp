#include "narrow.h"

#include <mlx/types/half_types.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace ort_mlx {

namespace {

// What the largest codes of a format mean.
enum class Specials {
  kNone,
  kIeee,    // infinities, and NaNs above them
  kOneNan,  // all bits but the sign are set
  kNegativeZeroIsNan,
};

struct FloatFormat {
  int ort;
  int mantissa;
  int bias;
  Specials specials;
};

constexpr FloatFormat kFloatFormats[] = {
    {17, 3, 7, Specials::kOneNan}, {18, 3, 8, Specials::kNegativeZeroIsNan},
    {19, 2, 15, Specials::kIeee},  {20, 2, 16, Specials::kNegativeZeroIsNan},
    {23, 1, 1, Specials::kNone},
};

constexpr int kFloat8E8M0 = 26;

// Both directions as tables over bit patterns: of a code, and of the dtype that holds its value.
struct Codec {
  std::vector<uint16_t> values;
  std::vector<uint8_t> codes;
};

uint16_t half_bits(float value) {
  const mx::float16_t half(value);
  uint16_t bits;
  std::memcpy(&bits, &half, sizeof(bits));
  return bits;
}

bool is_nan(uint16_t half) { return (half & 0x7fff) > 0x7c00; }

uint16_t value_of(const FloatFormat& format, unsigned code, unsigned sign_bit) {
  const bool negative = (code & sign_bit) != 0;
  const unsigned magnitude = code & (sign_bit - 1);
  const unsigned exponent = magnitude >> format.mantissa;
  const unsigned top = (sign_bit - 1) >> format.mantissa;
  const uint16_t sign = negative ? 0x8000 : 0;
  switch (format.specials) {
    case Specials::kIeee:  // float8e5m2 is the upper half of a float16
      if (exponent == top) return static_cast<uint16_t>(code << 8);
      break;
    case Specials::kOneNan:
      if (magnitude == sign_bit - 1) return sign | 0x7e00;
      break;
    case Specials::kNegativeZeroIsNan:
      if (code == sign_bit) return 0xfe00;
      break;
    case Specials::kNone:
      break;
  }
  const unsigned fraction = magnitude & ((1U << format.mantissa) - 1);
  const unsigned digits = exponent == 0 ? fraction : fraction | (1U << format.mantissa);
  const int scale = static_cast<int>(exponent == 0 ? 1 : exponent) - format.bias - format.mantissa;
  return sign | half_bits(std::ldexp(static_cast<float>(digits), scale));
}

Codec float_codec(const FloatFormat& format, size_t bits) {
  const unsigned sign_bit = 1U << (bits - 1);
  Codec made{std::vector<uint16_t>(size_t{1} << bits), std::vector<uint8_t>(1 << 16)};
  for (unsigned pattern = 0; pattern < made.codes.size(); ++pattern) {
    if (!is_nan(static_cast<uint16_t>(pattern))) continue;  // NaNs that no code has
    const bool alone = format.specials == Specials::kNegativeZeroIsNan;
    const unsigned nan = alone ? sign_bit : (pattern >> 15 ? sign_bit : 0) | (sign_bit - 1);
    made.codes[pattern] = static_cast<uint8_t>(nan);
  }
  for (unsigned code = 0; code < made.values.size(); ++code) {
    made.values[code] = value_of(format, code, sign_bit);
    made.codes[made.values[code]] = static_cast<uint8_t>(code);
  }
  return made;
}

// Powers of two: the exponent of a bfloat16, whose subnormals have the smallest one.
Codec exponent_codec() {
  Codec made{std::vector<uint16_t>(256), std::vector<uint8_t>(1 << 16)};
  for (unsigned pattern = 0; pattern < made.codes.size(); ++pattern) {
    made.codes[pattern] = static_cast<uint8_t>(pattern >> 7);
  }
  for (unsigned code = 0; code < 255; ++code) {
    made.values[code] = static_cast<uint16_t>(code == 0 ? 0x40 : code << 7);
  }
  made.values[255] = 0x7fc0;
  return made;
}

Codec integer_codec(size_t bits, bool is_signed) {
  const unsigned count = 1U << bits;
  Codec made{std::vector<uint16_t>(count), std::vector<uint8_t>(256)};
  for (unsigned code = 0; code < count; ++code) {
    const bool negative = is_signed && code >= count / 2;
    made.values[code] = static_cast<uint16_t>((negative ? code - count : code) & 0xff);
  }
  for (unsigned value = 0; value < 256; ++value) {
    made.codes[value] = static_cast<uint8_t>(value & (count - 1));
  }
  return made;
}

Codec codec_for(const ElementType& type) {
  for (const FloatFormat& format : kFloatFormats) {
    if (format.ort == type.ort) return float_codec(format, type.bits);
  }
  if (type.ort == kFloat8E8M0) return exponent_codec();
  return integer_codec(type.bits, type.held == mx::int8);
}

const Codec& codec_of(const ElementType& type) {
  static const auto all = [] {
    std::array<Codec, std::size(kElementTypes)> made;
    for (size_t i = 0; i < made.size(); ++i) {
      if (kElementTypes[i].is_narrow()) made[i] = codec_for(kElementTypes[i]);
    }
    return made;
  }();
  size_t i = 0;
  while (kElementTypes[i].ort != type.ort) ++i;
  return all[i];
}

template <class Held>
void unpack_as(const Codec& codec, size_t bits, const uint8_t* packed, size_t count, Held* held) {
  const unsigned mask = (1U << bits) - 1;
  for (size_t i = 0; i < count; ++i) {
    const size_t at = i * bits;
    held[i] = static_cast<Held>(codec.values[(packed[at / 8] >> (at % 8)) & mask]);
  }
}

template <class Held>
void pack_from(const Codec& codec, size_t bits, const Held* held, size_t count, uint8_t* packed) {
  for (size_t i = 0; i < count; ++i) {
    const size_t at = i * bits;
    const unsigned code = codec.codes[held[i]] << (at % 8);
    packed[at / 8] = static_cast<uint8_t>(at % 8 == 0 ? code : packed[at / 8] | code);
  }
}

}  // namespace

void unpack_narrow(const ElementType& type, const void* packed, size_t count, void* held) {
  const auto* from = static_cast<const uint8_t*>(packed);
  const Codec& codec = codec_of(type);
  if (type.held.size() == 1) {
    unpack_as(codec, type.bits, from, count, static_cast<uint8_t*>(held));
  } else {
    unpack_as(codec, type.bits, from, count, static_cast<uint16_t*>(held));
  }
}

void pack_narrow(const ElementType& type, const void* held, size_t count, void* packed) {
  auto* to = static_cast<uint8_t*>(packed);
  const Codec& codec = codec_of(type);
  if (type.held.size() == 1) {
    pack_from(codec, type.bits, static_cast<const uint8_t*>(held), count, to);
  } else {
    pack_from(codec, type.bits, static_cast<const uint16_t*>(held), count, to);
  }
}

}  // namespace ort_mlx
