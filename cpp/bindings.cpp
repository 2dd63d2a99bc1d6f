// What Python sees of the native layer.

#include <mlx/array.h>
#include <mlx/device.h>
#include <mlx/stream.h>
#include <mlx/version.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "boundary.h"
#include "ep.h"
#include "python.h"
#include "snapshot.h"
#include "streams.h"
#include "wrap.h"

namespace nb = nanobind;
using namespace nb::literals;

NB_MODULE(_native, m) {
  using namespace ort_mlx;
  // mx.array and mx.Stream are mlx.core's types; it has to be there before one is passed.
  nb::module_::import_("mlx.core");

  m.doc() = "The execution provider itself: ONNX Runtime loads this file as its plugin library.";
  m.attr("EP_NAME") = kEpName;
  m.attr("COMPILED_MLX_VERSION") = ORT_MLX_MLX_VERSION;
  m.attr("NANOBIND_VERSION") = ORT_MLX_NANOBIND_VERSION;
  m.attr("MINIMUM_ORT_MINOR") = kMinimumOrt;

  nb::class_<Initializer>(m, "Initializer",
                          "A constant tensor of the model; readable while ORT's graph lives.")
      .def_prop_ro("dtype", &Initializer::dtype, "ONNX element type code.")
      .def_prop_ro("shape", &Initializer::shape)
      .def_prop_ro("nbytes", &Initializer::nbytes, "0 when MLX has no array of this type.")
      .def("bytes", &Initializer::bytes, "A copy of the bytes, row-major.")
      .def("to_mlx", &Initializer::to_mlx, "A copy as an mx.array.");

  m.def("mlx_version", [] { return std::string(mlx::core::version()); }, "Of the loaded libmlx.");
  m.def("gpu_is_available", &gpu_is_available, "Whether MLX has a GPU backend with a device.");
  m.def(
      "pass_array", [](const mlx::core::array& a) { return a; }, "a"_a,
      "Return the array: shows that mlx.core and this module share their types.");
  m.def(
      "counters",
      [] {
        nb::dict made;
        made["python_entries"] = python_entries();
        made["swallowed_exceptions"] = g_swallowed_exceptions.load();
        made["bytes_wrapped"] = boundary_bytes().wrapped.load();
        made["bytes_copied_in"] = boundary_bytes().copied_in.load();
        made["bytes_copied_out"] = boundary_bytes().copied_out.load();
        return made;
      },
      "Process-wide counts, for tests and reports.");
  m.def(
      "throw_in_callbacks", [](bool enabled) { g_throw_in_callbacks.store(enabled); }, "enabled"_a,
      "Make every callback that ORT calls throw, to test that nothing crosses the C boundary.");
}
