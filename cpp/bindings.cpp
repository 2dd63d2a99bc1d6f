// What Python sees of the native layer.

#include <mlx/array.h>
#include <mlx/device.h>
#include <mlx/stream.h>
#include <mlx/version.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "boundary.h"
#include "closure.h"
#include "closure_cache.h"
#include "cpu/blas.h"
#include "cpu/instruction_sets.h"
#include "cpu/repeat.h"
#include "custom_op.h"
#include "ep.h"
#include "progression.h"
#include "python.h"
#include "snapshot.h"
#include "stopping.h"
#include "streams.h"
#include "wrap.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

// Keys made in Python: the bytes, padded to whole words, and their length.
ort_mlx::Key words_of(const nb::bytes& key) {
  ort_mlx::Key words((key.size() + sizeof(uint64_t) - 1) / sizeof(uint64_t) + 1);
  std::memcpy(words.data(), key.c_str(), key.size());
  words.back() = key.size();
  return words;
}

}  // namespace

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
      .def_prop_ro("dtype", &Initializer::dtype, "ONNX Runtime's element type code.")
      .def_prop_ro("shape", &Initializer::shape)
      .def_prop_ro("nbytes", &Initializer::nbytes,
                   "In ONNX Runtime's memory; 0 when no array can hold this type.")
      .def("bytes", &Initializer::bytes,
           "A copy of the elements in the dtype that holds them, row-major.")
      .def("to_mlx", &Initializer::to_mlx, "A copy as an mx.array.");

  nb::class_<Closure>(m, "Closure", "A captured MLX graph, replayed on other inputs.")
      .def_prop_ro("node_count", &Closure::node_count)
      .def_prop_ro("nbytes", &Closure::nbytes)
      .def_prop_ro(
          "nodes",
          [](const Closure& self) {
            auto listed = [](const Closure::Described::Arrays& arrays) {
              nb::list made;
              for (const auto& [dtype, shape] : arrays) {
                const std::vector<int> dims(shape.begin(), shape.end());
                made.append(nb::make_tuple(dtype, nb::tuple(nb::cast(dims))));
              }
              return made;
            };
            nb::list made;
            for (const auto& node : self.nodes()) {
              made.append(
                  nb::make_tuple(node.primitive, listed(node.inputs), listed(node.outputs)));
            }
            return made;
          },
          "Of a sample: the name of each primitive, and dtype and shape of what goes in and out.")
      .def(
          "replay",
          [](const Closure& self, std::vector<mlx::core::array> inputs, int64_t step) {
            return self.replay(std::move(inputs), step);
          },
          "inputs"_a, "step"_a = 0, nb::call_guard<nb::gil_scoped_release>(),
          "The graph on these arrays, not yet evaluated.");
  m.def(
      "capture",
      [](const std::vector<mlx::core::array>& placeholders,
         const std::vector<mlx::core::array>& outputs,
         int threads) { return Closure::capture(placeholders, outputs, threads); },
      "placeholders"_a, "outputs"_a, "threads"_a = 0,
      "Capture the graph from placeholders to outputs as a Closure.");
  m.def(
      "repeat",
      [](const std::vector<mlx::core::array>& placeholders,
         const std::vector<mlx::core::array>& outputs, bool is_counted, bool is_conditional,
         int64_t trips, std::vector<mlx::core::array> carried,
         const std::vector<mlx::core::array>& sources, int threads, bool is_traced) {
        return repeat({placeholders, outputs, is_counted, is_conditional}, trips,
                      std::move(carried), sources, threads, is_traced);
      },
      nb::call_guard<nb::gil_scoped_release>(), "placeholders"_a, "outputs"_a, "is_counted"_a,
      "is_conditional"_a, "trips"_a, "carried"_a, "sources"_a, "threads"_a, "is_traced"_a,
      "Run the traced body of a loop up to `trips` times: its last carried values, then the rows "
      "it stacks. Part of the trace, or computed at once.");
  m.def("sample", &Closure::sample, "placeholders"_a, "outputs"_a, "threads"_a = 0,
        "Capture the graph as it was traced, for `unite`.");
  m.def("unite", &unite, "samples"_a, "steps"_a, "checks"_a,
        "One closure for the progression that the samples were traced at; RuntimeError says why "
        "not.");
  m.def("row_major", &row_major, "value"_a,
        "The elements in row-major order, as an output has them; an empty array is left alone.");
  m.def(
      "placeholder",
      [](const mlx::core::array& like) { return make_placeholder(like.shape(), like.dtype()); },
      "like"_a, "An array of the same shape and dtype without data, to trace with.");
  m.def(
      "placeholder",
      [](const std::vector<int>& shape, const mlx::core::array& like) {
        return make_placeholder(mlx::core::Shape(shape.begin(), shape.end()), like.dtype());
      },
      "shape"_a, "like"_a, "The same with another shape.");

  m.def(
      "settle", [] { settle(mlx::core::default_stream(mlx::core::default_device())); },
      nb::call_guard<nb::gil_scoped_release>(),
      "Wait for the default stream after an evaluation that failed, and forget the failure.");

  nb::class_<ClosureCache>(m, "ClosureCache", "The closures of one session, least recent out.")
      .def(nb::init<size_t, size_t>(), "max_closures"_a, "max_bytes"_a)
      .def(
          "find",
          [](ClosureCache& self, nb::bytes key) { return self.find(words_of(key)).closure; },
          "key"_a)
      .def(
          "insert",
          [](ClosureCache& self, nb::bytes key, std::shared_ptr<const Closure> closure) {
            self.insert(words_of(key), std::move(closure));
          },
          "key"_a, "closure"_a)
      .def(
          "insert_progression",
          [](ClosureCache& self, Key base, Key change, int64_t last,
             std::shared_ptr<const Closure> closure, int route) {
            self.insert({std::move(base), std::move(change), last}, std::move(closure),
                        static_cast<Route>(route));
          },
          "base"_a, "change"_a, "last"_a, "closure"_a, "route"_a,
          "Serve the keys base, base + change, ... up to `last` steps on.")
      .def("clear", &ClosureCache::clear)
      .def("count_failure", &ClosureCache::count_failure)
      .def("__len__", &ClosureCache::size)
      .def_prop_ro("nbytes", &ClosureCache::nbytes)
      .def(
          "counts",
          [](const ClosureCache& self) {
            const auto counts = self.counts();
            nb::dict made;
            made["hits"] = counts.hits;
            made["misses"] = counts.misses;
            made["traces"] = counts.traces;
            made["evictions"] = counts.evictions;
            made["failures"] = counts.failures;
            made["general_runs"] = counts.runs[static_cast<size_t>(Route::kGeneral)];
            made["prefill_runs"] = counts.runs[static_cast<size_t>(Route::kPrefill)];
            made["decode_runs"] = counts.runs[static_cast<size_t>(Route::kDecode)];
            made["eager_runs"] = counts.eager_runs;
            return made;
          },
          "What happened so far, by name.");

  nb::class_<CancelFlag>(m, "CancelFlag", "Stops the Runs of one session.")
      .def(nb::init<>())
      .def("request", &CancelFlag::request, "Stop the Runs that are in progress.");
  m.def("check_stopped", &check_stopped,
        "Raise Cancelled when the Run of this thread was asked to stop.");
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Stopped& error) {
      nb::object type = nb::module_::import_("ort_mlx.running").attr("Cancelled");
      PyErr_SetString(type.ptr(), error.what());
    }
  });

  m.def(
      "add_custom_op",
      [](std::string domain, std::string name, int since_version, size_t required_inputs,
         size_t optional_inputs, bool has_variadic_input, size_t outputs, nb::object infer) {
        CustomOps::instance().add({std::move(domain), std::move(name), since_version,
                                   required_inputs, optional_inputs, has_variadic_input, outputs},
                                  std::move(infer));
      },
      "domain"_a, "name"_a, "since_version"_a, "required_inputs"_a, "optional_inputs"_a,
      "has_variadic_input"_a, "outputs"_a, "infer"_a,
      "Give ORT the schema of an operator that the provider runs.");

  m.def("mlx_version", [] { return std::string(mlx::core::version()); }, "Of the loaded libmlx.");
  m.def("load_blas", &cpu::load_blas, "path"_a,
        "Use this OpenBLAS for products on the CPU; false when it has not what is needed.");
  m.def("blas_description", &cpu::blas_description, "The OpenBLAS in use, or an empty string.");
  m.def("instruction_sets", &cpu::instruction_sets,
        "Of the loops on the CPU, those that this processor has; the last is used.");
  m.def("use_instruction_set", &cpu::use_instruction_set, "name"_a,
        "Use another one, in the whole process; for tests.");
  m.def("gpu_is_available", &gpu_is_available, "Whether MLX has a GPU backend with a device.");
  m.def(
      "pass_array", [](const mlx::core::array& a) { return a; }, "a"_a,
      "Return the array: shows that mlx.core and this module share their types.");
  m.def(
      "counters",
      [] {
        nb::dict made;
        made["python_entries"] = python_entries();
        made["signal_checks"] = signal_checks();
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
