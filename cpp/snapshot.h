// One pass over an OrtGraph that leaves plain Python records. No ORT pointer survives it, but for
// initializers, whose bytes may be read until the Snapshot is destroyed.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ort.h"
#include "wrap.h"

namespace ort_mlx {

namespace nb = nanobind;

// A copy of the elements as host values have them, in the dtype that holds them.
nb::bytes held_bytes(const TensorView& tensor);

// An initializer as Python sees it: what it is, and its bytes while ORT's graph lives.
class Initializer {
 public:
  Initializer(TensorView view, std::shared_ptr<const bool> alive)
      : view_(view), dims_(view.dims, view.dims + view.rank), alive_(std::move(alive)) {
    view_.dims = dims_.data();
  }
  // The address of dims_ is kept in view_.
  Initializer(const Initializer&) = delete;
  Initializer& operator=(const Initializer&) = delete;

  int dtype() const { return view_.dtype; }
  nb::tuple shape() const;
  size_t nbytes() const;  // in ORT's memory; 0 for element types that no array can hold
  nb::bytes bytes() const;
  mx::array to_mlx() const;

 private:
  const TensorView& checked() const;

  TensorView view_;
  std::vector<int64_t> dims_;
  std::shared_ptr<const bool> alive_;
};

// Requires the GIL for its whole life. The records are tuples:
//   value: (name, element type, dims or None, Initializer or None); a dim is int, str or None
//   node:  (name, domain, op type, since version, input ids, output ids, attributes, {name: graph})
//   graph: (values, input ids, output ids, nodes, metadata); an id of -1 is an omitted value
class Snapshot {
 public:
  explicit Snapshot(const Runtime& ort) : ort_(ort) {}
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;
  ~Snapshot() { *alive_ = false; }

  nb::tuple graph(const OrtGraph* graph);
  // A graph that holds just this node, for asking about the parent of a nested graph.
  nb::tuple lone_node(const OrtNode* node);
  // The dimensions as a value record has them, or None for an unknown rank.
  nb::object dims_of(const OrtTensorTypeAndShapeInfo* info);
  nb::object attribute(const OrtOpAttr* attribute);

 private:
  struct Scope {
    nb::list values;
    std::unordered_map<std::string, int> ids;
  };

  int value_id(Scope& scope, const OrtValueInfo* info);
  nb::tuple ids_of(Scope& scope, const std::vector<const OrtValueInfo*>& infos);
  nb::object initializer_of(const OrtValueInfo* info);
  nb::tuple node(Scope& scope, const OrtNode* node);
  nb::dict metadata_of(const OrtGraph* graph);

  const Runtime& ort_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ort_mlx
