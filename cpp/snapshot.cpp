#include "snapshot.h"

#include <nanobind/stl/string.h>

#include "narrow.h"

namespace ort_mlx {

namespace {

constexpr int kUndefinedType = 0;
constexpr int kStringType = 8;

nb::str text(const char* bytes, size_t size) {
  // Attribute strings may hold any bytes.
  PyObject* made = PyUnicode_DecodeUTF8(bytes, static_cast<Py_ssize_t>(size), "surrogateescape");
  if (made == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(made);
}

template <class T>
nb::tuple tuple_of(const std::vector<T>& items) {
  nb::list made;
  for (const T& item : items) made.append(item);
  return nb::tuple(made);
}

}  // namespace

nb::bytes held_bytes(const TensorView& tensor) {
  const ElementType type = type_of(tensor);
  const size_t count = count_of(tensor);
  if (!type.is_narrow()) return nb::bytes(tensor.bytes, byte_size(tensor));
  std::vector<char> held(count * type.held.size());
  unpack_narrow(type, tensor.bytes, count, held.data());
  return nb::bytes(held.data(), held.size());
}

nb::tuple Initializer::shape() const { return tuple_of(dims_); }

size_t Initializer::nbytes() const { return element_type(view_.dtype) ? byte_size(view_) : 0; }

const TensorView& Initializer::checked() const {
  if (!*alive_) throw Error(kRuntimeException, "ort_mlx: an initializer was read too late");
  return view_;
}

nb::bytes Initializer::bytes() const { return held_bytes(checked()); }

mx::array Initializer::to_mlx() const { return copy_in(checked()); }

nb::object Snapshot::dims_of(const OrtTensorTypeAndShapeInfo* info) {
  if (!ort_.call(api::TensorTypeAndShape_HasShape, info)) return nb::none();
  size_t rank = 0;
  ort_.check(api::GetDimensionsCount, info, &rank);
  std::vector<int64_t> dims(rank);
  std::vector<const char*> symbols(rank);
  if (rank != 0) {
    ort_.check(api::GetDimensions, info, dims.data(), rank);
    ort_.check(api::GetSymbolicDimensions, info, symbols.data(), rank);
  }
  nb::list made;
  for (size_t i = 0; i < rank; ++i) {
    if (dims[i] >= 0) {
      made.append(dims[i]);
    } else if (symbols[i] != nullptr && *symbols[i] != '\0') {
      made.append(nb::str(symbols[i]));
    } else {
      made.append(nb::none());
    }
  }
  return nb::tuple(made);
}

nb::object Snapshot::initializer_of(const OrtValueInfo* info) {
  bool is_constant = false;
  ort_.check(api::ValueInfo_IsConstantInitializer, info, &is_constant);
  if (!is_constant) return nb::none();
  const OrtValue* value = nullptr;
  ort_.check(api::ValueInfo_GetInitializerValue, info, &value);
  if (value == nullptr) return nb::none();
  TensorView view{};
  ort_.check(api::GetTensorElementTypeAndShapeDataReference, value, &view.dtype, &view.dims,
             &view.rank);
  if (view.dtype != kStringType) ort_.check(api::GetTensorData, value, &view.bytes);
  return nb::cast(new Initializer(view, alive_), nb::rv_policy::take_ownership);
}

int Snapshot::value_id(Scope& scope, const OrtValueInfo* info) {
  if (info == nullptr) return -1;
  const char* name = nullptr;
  ort_.check(api::GetValueInfoName, info, &name);
  if (*name == '\0') return -1;
  auto [entry, is_new] = scope.ids.try_emplace(name, static_cast<int>(nb::len(scope.values)));
  if (!is_new) return entry->second;

  const OrtTypeInfo* type = nullptr;
  ort_.check(api::GetValueInfoTypeInfo, info, &type);
  int kind = 0;
  int dtype = kUndefinedType;
  nb::object dims = nb::none();
  if (type != nullptr) ort_.check(api::GetOnnxTypeFromTypeInfo, type, &kind);
  if (kind == kOnnxTensor) {
    const OrtTensorTypeAndShapeInfo* tensor = nullptr;
    ort_.check(api::CastTypeInfoToTensorInfo, type, &tensor);
    ort_.check(api::GetTensorElementType, tensor, &dtype);
    dims = dims_of(tensor);
  }
  scope.values.append(nb::make_tuple(nb::str(name), dtype, dims, initializer_of(info)));
  return entry->second;
}

nb::tuple Snapshot::ids_of(Scope& scope, const std::vector<const OrtValueInfo*>& infos) {
  nb::list made;
  for (const auto* info : infos) made.append(value_id(scope, info));
  return nb::tuple(made);
}

nb::object Snapshot::attribute(const OrtOpAttr* attribute) {
  int type = 0;
  ort_.check(api::OpAttr_GetType, attribute, &type);
  // Asking for the size is reported as a failure.
  size_t size = 0;
  if (type != kAttrTensor && type != kAttrGraph) {
    ort_.succeeds(api::ReadOpAttr, attribute, type, static_cast<void*>(nullptr), size_t{0}, &size);
  }
  auto read = [&](void* into, size_t bytes) {
    if (bytes != 0) ort_.check(api::ReadOpAttr, attribute, type, into, bytes, &size);
  };
  switch (type) {
    case kAttrInt: {
      int64_t value = 0;
      read(&value, sizeof(value));
      return nb::int_(value);
    }
    case kAttrFloat: {
      float value = 0;
      read(&value, sizeof(value));
      return nb::float_(value);
    }
    case kAttrInts: {
      std::vector<int64_t> values(size / sizeof(int64_t));
      read(values.data(), size);
      return tuple_of(values);
    }
    case kAttrFloats: {
      std::vector<float> values(size / sizeof(float));
      read(values.data(), size);
      return tuple_of(values);
    }
    case kAttrString: {
      std::string value(size, '\0');
      read(value.data(), size);
      return text(value.data(), value.size());
    }
    case kAttrStrings: {  // each element is followed by one NUL
      std::string all(size, '\0');
      read(all.data(), size);
      nb::list made;
      for (size_t start = 0; start < all.size();) {
        size_t end = all.find('\0', start);
        if (end == std::string::npos) end = all.size();
        made.append(text(all.data() + start, end - start));
        start = end + 1;
      }
      return nb::tuple(made);
    }
    case kAttrTensor: {
      auto value = owned_value(ort_);
      ort_.check(api::OpAttr_GetTensorAttributeAsOrtValue, attribute, value.out());
      TensorView view{};
      ort_.check(api::GetTensorElementTypeAndShapeDataReference, value.get(), &view.dtype,
                 &view.dims, &view.rank);
      if (!element_type(view.dtype)) return nb::none();
      ort_.check(api::GetTensorData, value.get(), &view.bytes);
      Initializer tensor(view, alive_);
      return nb::make_tuple(tensor.dtype(), tensor.shape(), tensor.bytes());
    }
    default:
      return nb::none();
  }
}

nb::tuple Snapshot::node(Scope& scope, const OrtNode* node) {
  const char* name = nullptr;
  const char* domain = nullptr;
  const char* op_type = nullptr;
  int since_version = 0;
  ort_.check(api::Node_GetName, node, &name);
  ort_.check(api::Node_GetDomain, node, &domain);
  ort_.check(api::Node_GetOperatorType, node, &op_type);
  ort_.check(api::Node_GetSinceVersion, node, &since_version);

  nb::dict attributes;
  for (const auto* attr :
       ort_.list<const OrtOpAttr*>(api::Node_GetNumAttributes, api::Node_GetAttributes, node)) {
    const char* attribute_name = nullptr;
    ort_.check(api::OpAttr_GetName, attr, &attribute_name);
    int type = 0;
    // ORT has no type for some kinds, such as a type_proto; their value is None here.
    if (!ort_.succeeds(api::OpAttr_GetType, attr, &type)) {
      attributes[attribute_name] = nb::none();
    } else if (type != kAttrGraph) {
      attributes[attribute_name] = attribute(attr);
    }
  }

  nb::dict bodies;
  size_t body_count = 0;
  ort_.check(api::Node_GetNumSubgraphs, node, &body_count);
  if (body_count != 0) {
    std::vector<const OrtGraph*> graphs(body_count);
    std::vector<const char*> names(body_count);
    ort_.check(api::Node_GetSubgraphs, node, graphs.data(), body_count, names.data());
    for (size_t i = 0; i < body_count; ++i) bodies[names[i]] = graph(graphs[i]);
  }

  auto inputs = ort_.list<const OrtValueInfo*>(api::Node_GetNumInputs, api::Node_GetInputs, node);
  auto outputs =
      ort_.list<const OrtValueInfo*>(api::Node_GetNumOutputs, api::Node_GetOutputs, node);
  return nb::make_tuple(nb::str(name), nb::str(domain), nb::str(op_type), since_version,
                        ids_of(scope, inputs), ids_of(scope, outputs), attributes, bodies);
}

nb::tuple Snapshot::graph(const OrtGraph* graph) {
  Scope scope;
  auto inputs =
      ort_.list<const OrtValueInfo*>(api::Graph_GetNumInputs, api::Graph_GetInputs, graph);
  auto outputs =
      ort_.list<const OrtValueInfo*>(api::Graph_GetNumOutputs, api::Graph_GetOutputs, graph);
  nb::tuple input_ids = ids_of(scope, inputs);
  nb::list nodes;
  for (const auto* n :
       ort_.list<const OrtNode*>(api::Graph_GetNumNodes, api::Graph_GetNodes, graph)) {
    nodes.append(node(scope, n));
  }
  nb::tuple output_ids = ids_of(scope, outputs);
  return nb::make_tuple(nb::tuple(scope.values), input_ids, output_ids, nb::tuple(nodes),
                        metadata_of(graph));
}

nb::tuple Snapshot::lone_node(const OrtNode* n) {
  Scope scope;
  nb::tuple made = node(scope, n);
  return nb::make_tuple(nb::tuple(scope.values), nb::make_tuple(), made[5], nb::make_tuple(made),
                        nb::dict());
}

nb::dict Snapshot::metadata_of(const OrtGraph* graph) {
  nb::dict made;
  auto metadata = owned_metadata(ort_);
  if (!ort_.succeeds(api::Graph_GetModelMetadata, graph, metadata.out())) return made;
  OrtAllocator* allocator = nullptr;
  ort_.check(api::GetAllocatorWithDefaultOptions, &allocator);
  char** keys = nullptr;
  int64_t count = 0;
  ort_.check(api::ModelMetadataGetCustomMetadataMapKeys, metadata.get(), allocator, &keys, &count);
  for (int64_t i = 0; i < count; ++i) {
    char* value = nullptr;
    ort_.check(api::ModelMetadataLookupCustomMetadataMap, metadata.get(), allocator, keys[i],
               &value);
    if (value != nullptr) made[keys[i]] = text(value, std::char_traits<char>::length(value));
    ort_.succeeds(api::AllocatorFree, allocator, value);
    ort_.succeeds(api::AllocatorFree, allocator, keys[i]);
  }
  if (keys != nullptr) ort_.succeeds(api::AllocatorFree, allocator, keys);
  return made;
}

}  // namespace ort_mlx
